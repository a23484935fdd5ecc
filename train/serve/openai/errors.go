package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/train/serve"
)

// Types of errors.
const (
	invalid    = "invalid_request_error"
	overloaded = "rate_limit_error"
	failed     = "server_error"
)

// apiError is an error as OpenAI writes it.
type apiError struct {
	Message string
	Param   string
	Code    string
	kind    string
	status  int
}

func (e *apiError) Error() string { return e.Message }

// MarshalJSON is what clients read.
func (e *apiError) MarshalJSON() ([]byte, error) {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return json.Marshal(map[string]any{"error": map[string]any{
		"message": clip(e.Message), "type": e.kind, "param": orNull(e.Param), "code": orNull(e.Code),
	}})
}

// clip cuts what quotes much of a request, and the stack that follows a panic, which is nobody's
// outside.
func clip(message string) string {
	const most = 1000
	message, _, _ = strings.Cut(message, "\n")
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}

var errTime = errors.New("the request takes longer than it may")

// wrong is an error of a request.
func wrong(param, format string, values ...any) error {
	return &apiError{status: http.StatusBadRequest, kind: invalid, Param: param, Message: fmt.Sprintf(format, values...)}
}

func noModel(name string) error {
	return &apiError{status: http.StatusNotFound, kind: invalid, Param: "model", Code: "model_not_found", Message: fmt.Sprintf("there is no model %q", name)}
}

// asAPIError is what a client is told of an error.
func asAPIError(err error) *apiError {
	var known *apiError
	var request *serve.RequestError
	var long *serve.TooLongError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &long):
		return &apiError{status: http.StatusBadRequest, kind: invalid, Param: "messages", Code: "context_length_exceeded", Message: long.Error()}
	case errors.As(err, &request):
		return &apiError{status: http.StatusBadRequest, kind: invalid, Message: request.Error()}
	case errors.Is(err, serve.ErrBusy):
		return &apiError{status: http.StatusTooManyRequests, kind: overloaded, Message: "as many requests wait as may, try again later"}
	case errors.Is(err, serve.ErrClosed):
		return &apiError{status: http.StatusServiceUnavailable, kind: failed, Message: "the server ends"}
	case errors.Is(err, errTime):
		return &apiError{status: http.StatusGatewayTimeout, kind: failed, Message: errTime.Error()}
	}
	return &apiError{status: http.StatusInternalServerError, kind: failed, Message: err.Error()}
}

// statusLeft is what is counted of a client that leaves.
const statusLeft = 499

// response is a response whose status is known, and which can be a stream of events.
type response struct {
	http.ResponseWriter
	status int // 0 before there is one
	events bool
	failed error // of a part, behind which nothing arrives
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends parts that a client has some time for each.
func (w *response) Write(b []byte) (n int, err error) {
	const part = 64 << 10
	if w.status == 0 {
		w.status = http.StatusOK
	}
	for {
		m := 0
		if w.failed == nil {
			w.hurry()
			m, w.failed = w.ResponseWriter.Write(b[n:min(len(b), n+part)])
		}
		if n += m; n == len(b) || w.failed != nil {
			return n, w.failed
		}
	}
}

// hurry bounds how long the client may take nothing. Without a network there is no such time.
func (w *response) hurry() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(stall))
}

// flush sends what was written.
func (w *response) flush() error {
	if w.failed == nil {
		w.hurry()
		w.failed = http.NewResponseController(w.ResponseWriter).Flush()
	}
	return w.failed
}

// end sends what was written, and lets the connection wait for another request.
func (w *response) end() {
	if w.status != 0 {
		_ = w.flush() // there is nobody to tell
	}
	if w.failed == nil {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Time{})
	}
}

// whole sends an answer that is no stream.
func (w *response) whole(status int, json []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(json)))
	w.WriteHeader(status)
	_, err := w.Write(json)
	return err
}

// Unwrap is for an http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// event sends one event of a stream at once.
func (w *response) event(v any) error {
	if !w.events {
		w.events = true
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
	}
	text, err := json.Marshal(v)
	if s, is := v.(string); is {
		text, err = []byte(s), nil
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
		return err
	}
	return w.flush()
}

// fail tells the client of an error, unless it has left.
func (w *response) fail(client context.Context, err error) {
	if client.Err() != nil {
		if w.status == 0 {
			w.status = statusLeft
		}
		return
	}
	e := asAPIError(err)
	switch {
	case w.events:
		_ = w.event(e) // there is nobody to tell of another error
		return
	case w.status != 0:
		return
	}
	switch e.status {
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	case http.StatusGatewayTimeout:
		w.Header().Set("X-Should-Retry", "false") // the next try would take as long
	}
	if text, err := json.Marshal(e); err == nil {
		_ = w.whole(e.status, text) // there is nobody to tell
	}
}
