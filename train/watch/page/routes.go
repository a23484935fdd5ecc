package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// routes are the answers of the server: the page, a stream of what happens, and attention.
func (p *page) routes(running context.Context) map[string]handler {
	routes := map[string]handler{
		"/":       func(r request, w *response) error { return w.whole(200, "text/html; charset=utf-8", html) },
		"/events": func(r request, w *response) error { return p.events(running, w) },
	}
	if p.o.Attention != nil {
		routes["/attention"] = func(r request, w *response) error { return p.attention(running, r, w) }
	}
	return routes
}

// pace is the time between two messages of a stream, and pulse that after which one without news
// shows that the stream goes on.
const (
	pace  = 200 * time.Millisecond
	pulse = 5 * time.Second
)

// events sends what a page lacks, until the run ends.
func (p *page) events(running context.Context, w *response) error {
	if err := w.begin(200, "text/event-stream"); err != nil {
		return err
	}
	var have cursor
	for {
		ended := running.Err() != nil // before what is sent, so that the end is in it
		var news update
		var changed <-chan struct{}
		news, have, changed = p.record.since(have)
		text, err := json.Marshal(news)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return err
		}
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(pulse):
		case <-running.Done():
			continue
		}
		select {
		case <-time.After(pace):
		case <-running.Done():
		}
	}
}

// longestText is how many bytes of a text are looked at.
const longestText = 2000

// attention asks the training for its attention over a text.
func (p *page) attention(running context.Context, r request, w *response) error {
	layer, err := strconv.Atoi(r.query.Get("layer"))
	text := r.query.Get("text")
	switch {
	case err != nil:
		return w.fail(400, fmt.Errorf("layer is %q, it needs to be a number", r.query.Get("layer")))
	case text == "":
		return w.fail(400, errors.New("text is empty, it needs to be what attention is wanted of"))
	case len(text) > longestText:
		return w.fail(400, fmt.Errorf("text has %d bytes, it needs to have at most %d", len(text), longestText))
	}
	answered := make(chan answer, 1)
	select {
	case p.asked <- question{text, layer, answered}:
	default:
		return w.fail(429, errors.New("other texts wait for the training already"))
	}
	select {
	case a := <-answered:
		if a.err != nil {
			return w.fail(400, a.err)
		}
		content, err := json.Marshal(a.weights)
		if err != nil {
			return w.fail(500, err)
		}
		return w.whole(200, "application/json", content)
	case <-running.Done():
		return w.fail(410, errors.New("the run has ended"))
	}
}

// fail answers with an error, which the page shows.
func (w *response) fail(status int, err error) error {
	return w.whole(status, "text/plain; charset=utf-8", []byte(err.Error()))
}
