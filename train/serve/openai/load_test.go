package openai_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/serve/openai"
)

var (
	load      = flag.Duration("load", 0, "how long TestLoad has clients ask")
	loadModel = flag.String("load-model", "", "the folder of TestLoad's model; empty for a random one of 6 million parameters")
)

const loadClients, loadPlaces, loadWindow = 64, 16, 256

// Under clients that ask without a pause, some of which leave in the middle, no request fails and
// nothing is left behind. The log says how the rate compares with that of the decoder alone, on
// prompts and answers of the same lengths, before and after.
func TestLoad(t *testing.T) {
	if *load == 0 {
		t.Skip("runs with -load 5m")
	}
	folder := *loadModel
	if folder == "" {
		folder = smallmodel.LlamaOf(t, true, smallmodel.Size{Layers: 6, Dim: 256, Hidden: 704, Heads: 4, Context: loadWindow})
	}
	model, err := serve.Open(t.Context(), serve.ModelConfig{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	alone := decoderRate(t, model, *load/10)
	decoder, err := model.NewBatchDecoder(loadPlaces, loadWindow)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.NewScheduler(serve.SchedulerConfig{Decoder: decoder, Tokenizer: model.Tokenizer, Waiting: loadClients})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := openai.NewHandler(openai.Config{Name: "small", Model: model, Scheduler: s})
	if err != nil {
		t.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	server := httptest.NewServer(handler)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})

	var answers, left atomic.Int64
	ask := func(seconds time.Duration) {
		var clients sync.WaitGroup
		end := time.Now().Add(seconds)
		for i := range uint64(loadClients) {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(i, uint64(end.UnixNano())))
				for time.Now().Before(end) && !t.Failed() {
					if r.IntN(5) == 0 {
						left.Add(1)
						stream(t, server, r, 1+r.IntN(8))
					} else {
						answers.Add(1)
						stream(t, server, r, 0)
					}
				}
			})
		}
		clients.Wait()
	}
	began := time.Now()
	ask(*load / 2)
	memory := heap() // all places have been full by now
	ask(*load / 2)
	grown, stats, took := heap()-memory, s.Stats(), time.Since(began)
	server.Close()
	stop()
	running.Wait()
	if n := settled(goroutines); n > goroutines {
		t.Errorf("%d goroutines are left, before there were %d", n, goroutines)
	}
	if stats.Running != 0 || stats.Waiting != 0 || stats.Failed != 0 || stats.Refused != 0 {
		t.Errorf("in the end: %+v", stats)
	}
	if grown > 8<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	rate, again := float64(stats.Tokens)/took.Seconds(), decoderRate(t, model, *load/10)
	t.Logf("%d answers, %d readers left, in %v; %.0f tokens/s, the decoder alone %.0f before and %.0f after: %.2f; the heap grew by %d kB",
		answers.Load(), left.Load(), took.Round(time.Second), rate, alone, again, 2*rate/(alone+again), grown>>10)
}

// loadLengths are those of a prompt, about, and of its answer, in tokens.
func loadLengths(r *rand.Rand) (prompt, answer int) { return 16 + r.IntN(48), 32 + r.IntN(96) }

// stream asks for an answer and reads it, or so many lines of it.
func stream(t *testing.T, server *httptest.Server, r *rand.Rand, lines int) {
	prompt, answer := loadLengths(r)
	words := make([]string, prompt)
	for i := range words {
		words[i] = fmt.Sprint(r.IntN(10))
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	body := fmt.Sprintf(`{"model": "small", "messages": [{"role": "user", "content": %q}], "max_tokens": %d, "seed": %d, "stream": true}`,
		strings.Join(words, ""), answer, r.IntN(1<<30))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the answer to %s is %s", body, response.Status)
		return
	}
	last := ""
	for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
		if line := scanner.Text(); line != "" {
			last = line
		}
		if lines--; lines == 0 {
			return
		}
	}
	if last != "data: [DONE]" {
		t.Errorf("the stream ends by %q", last)
	}
}

// decoderRate is how many tokens a second the decoder chooses of texts as the clients ask for.
func decoderRate(t *testing.T, model *serve.Model, seconds time.Duration) float64 {
	d, err := model.NewBatchDecoder(loadPlaces, loadWindow)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	next, left, choices := make([][]int, loadPlaces), make([]int, loadPlaces), make([]kernels.Choice, loadPlaces)
	tokens := 0
	began := time.Now()
	for time.Since(began) < seconds {
		for i := range next {
			if left[i]--; left[i] > 0 {
				continue
			}
			prompt, answer := loadLengths(r)
			next[i], left[i] = slices.Repeat([]int{5 + r.IntN(50)}, prompt), answer
			if err := d.Truncate(i, 0); err != nil {
				t.Fatal(err)
			}
		}
		for i := range choices {
			choices[i] = kernels.Choice{Temperature: 1, Random: r.Uint64()}
		}
		chosen, err := d.Choose(next, choices)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range chosen {
			next[i] = []int{c.ID}
			tokens++
		}
	}
	return float64(tokens) / time.Since(began).Seconds()
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// settled is the number of goroutines once it is what it was, or after some seconds.
func settled(before int) int {
	for range 50 {
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return runtime.NumGoroutine()
}
