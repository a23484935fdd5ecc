package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

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
		"message": e.Message, "type": e.kind, "param": orNull(e.Param), "code": orNull(e.Code),
	}})
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
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
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
	return http.NewResponseController(w.ResponseWriter).Flush()
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
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(e)
}
