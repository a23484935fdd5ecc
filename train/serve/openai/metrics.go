package openai

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// metrics count requests.
type metrics struct {
	mu       sync.Mutex
	requests map[outcome]uint64
	seconds  map[string]float64
}

type outcome struct {
	path   string
	status int
}

func (m *metrics) count(path string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == nil {
		m.requests, m.seconds = map[outcome]uint64{}, map[string]float64{}
	}
	m.requests[outcome{path, status}]++
	m.seconds[path] += took.Seconds()
}

// writeMetrics writes all numbers in Prometheus' text format.
func (h *handler) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	head := func(name, kind, help string) { fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	if h.Scheduler != nil {
		s := h.Scheduler.Stats()
		for _, m := range []struct {
			name, kind, help string
			value            uint64
		}{
			{"stheno_places", "gauge", "Texts that are written at once at most.", uint64(s.Places)},
			{"stheno_running", "gauge", "Texts that are being written.", uint64(s.Running)},
			{"stheno_waiting", "gauge", "Texts that wait for a place.", uint64(s.Waiting)},
			{"stheno_texts_ended_total", "counter", "Texts that were written to their end.", s.Ended},
			{"stheno_texts_left_total", "counter", "Texts whose reader left.", s.Left},
			{"stheno_texts_failed_total", "counter", "Texts that an error ended.", s.Failed},
			{"stheno_texts_refused_total", "counter", "Texts for which there was no room to wait.", s.Refused},
			{"stheno_prompt_tokens_total", "counter", "Tokens of prompts that were read.", s.PromptTokens},
			{"stheno_shared_tokens_total", "counter", "Tokens of prompts that were in the cache.", s.SharedTokens},
			{"stheno_tokens_total", "counter", "Tokens that were written.", s.Tokens},
		} {
			head(m.name, m.kind, m.help)
			fmt.Fprintf(w, "%s %d\n", m.name, m.value)
		}
	}
	h.metrics.mu.Lock()
	defer h.metrics.mu.Unlock()
	head("stheno_http_requests_total", "counter", "Requests by path and status.")
	for _, o := range slices.SortedFunc(maps.Keys(h.metrics.requests), func(a, b outcome) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.status, b.status))
	}) {
		fmt.Fprintf(w, "stheno_http_requests_total{path=%q,code=\"%d\"} %d\n", o.path, o.status, h.metrics.requests[o])
	}
	head("stheno_http_request_seconds_total", "counter", "Time that requests took, by path.")
	for _, path := range slices.Sorted(maps.Keys(h.metrics.seconds)) {
		fmt.Fprintf(w, "stheno_http_request_seconds_total{path=%q} %g\n", path, h.metrics.seconds[path])
	}
}
