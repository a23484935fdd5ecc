package openai

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/loopback"
	"github.com/stheno-ml/stheno/train/serve"
)

// Embedder makes vectors of texts, and says how many tokens they have.
type Embedder func(ctx context.Context, texts []string) (vectors [][]float32, tokens int, err error)

// Config describes a handler.
type Config struct {
	// Name is what requests call the model.
	Name      string
	Model     *serve.Model
	Scheduler *serve.Scheduler
	// Embed answers the embeddings of requests that name the model EmbedName; nil for none.
	Embed     Embedder
	EmbedName string
	// Key, if it is not empty, is what requests need to have as their bearer token.
	Key    string
	Limits Limits
}

// Limits are the most that a request may have. 0 means what is said at each.
type Limits struct {
	Body    int64         // bytes; 4 MiB
	Tokens  int           // that are written for one choice; as many as fit
	Choices int           // of one request, n times its prompts; 16
	Texts   int           // of one request for embeddings; 256
	Time    time.Duration // of the whole request; 10 minutes
}

type handler struct {
	Config
	key       [sha256.Size]byte
	elsewhere *http.CrossOriginProtection
	metrics   metrics
	created   int64
}

// NewHandler serves a model.
func NewHandler(c Config) (http.Handler, error) {
	h := &handler{Config: c, key: sha256.Sum256([]byte(c.Key)), elsewhere: http.NewCrossOriginProtection(), created: time.Now().Unix()}
	switch {
	case c.Name == "" && c.Model != nil:
		return nil, errors.New("openai: name is empty, it needs to be what requests call the model")
	case (c.Model == nil) != (c.Scheduler == nil):
		return nil, errors.New("openai: model or scheduler is nil, it needs both or none")
	case c.Model == nil && c.Embed == nil:
		return nil, errors.New("openai: there is neither a model nor an embedder")
	case c.Embed != nil && c.EmbedName == "":
		return nil, errors.New("openai: embed name is empty, it needs to be what requests call the embedder")
	}
	l := &h.Limits
	for _, limit := range []struct {
		name string
		n    *int64
		most int64
	}{{"body", &l.Body, 4 << 20}, {"time", (*int64)(&l.Time), int64(10 * time.Minute)}} {
		if *limit.n < 0 {
			return nil, fmt.Errorf("openai: the limit of %s is %d, it cannot be negative", limit.name, *limit.n)
		}
		if *limit.n == 0 {
			*limit.n = limit.most
		}
	}
	for _, limit := range []struct {
		name string
		n    *int
		most int
	}{{"tokens", &l.Tokens, 0}, {"choices", &l.Choices, 16}, {"texts", &l.Texts, 256}} {
		if *limit.n < 0 {
			return nil, fmt.Errorf("openai: the limit of %s is %d, it cannot be negative", limit.name, *limit.n)
		}
		if *limit.n == 0 {
			*limit.n = limit.most
		}
	}
	return h.routes(), nil
}

func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, serve func(*response, *http.Request) error) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			h.serve(w, r, method, path, serve)
		})
	}
	handle(http.MethodPost, "/v1/chat/completions", h.chat)
	handle(http.MethodPost, "/v1/completions", h.completions)
	handle(http.MethodPost, "/v1/embeddings", h.embeddings)
	handle(http.MethodGet, "/v1/models", h.models)
	handle(http.MethodGet, "/v1/models/", h.model)
	handle("", "/", func(_ *response, r *http.Request) error {
		return &apiError{status: http.StatusNotFound, kind: invalid, Message: fmt.Sprintf("there is no path %s", r.URL.Path)}
	})
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /metrics", h.writeMetrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Until read has all of the body: what an answer leaves unread is waited for.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // or there is no network
		own := &response{ResponseWriter: w}
		if r.ContentLength != 0 {
			own.Header().Set("Connection", "close") // until read has all, too
		}
		if err := h.isAsked(r); err != nil {
			own.fail(r.Context(), err)
		} else {
			mux.ServeHTTP(own, r)
		}
		own.end()
	})
}

// isAsked refuses what a page of elsewhere had a browser ask. With a key there is no need: such a
// page does not know it.
func (h *handler) isAsked(r *http.Request) error {
	if h.Key != "" {
		return nil
	}
	address, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if address != nil && address.IP.IsLoopback() && !loopback.IsHost(r.Host) {
		return &apiError{status: http.StatusForbidden, kind: invalid, Message: fmt.Sprintf(
			"the host is %.200q, without a key this server is of its machine alone: the host needs to be localhost, 127.0.0.1 or [::1]", r.Host)}
	}
	if err := h.elsewhere.Check(r); err != nil {
		return &apiError{status: http.StatusForbidden, kind: invalid, Message: "a page of another site has asked, without a key this server answers none"}
	}
	return nil
}

// serve does what all paths have in common: the key, the limits, errors and counting.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, method, path string, serve func(*response, *http.Request) error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(r.Context(), h.Limits.Time, errTime)
	defer cancel()
	counted := w.(*response)
	err := h.permit(counted, r, method)
	if err == nil {
		r.Body = http.MaxBytesReader(counted.ResponseWriter, r.Body, h.Limits.Body)
		err = guard.Call(path, func() error { return serve(counted, r.WithContext(ctx)) })
	}
	if err != nil {
		counted.fail(r.Context(), err)
	}
	h.metrics.count(path, counted.status, time.Since(began))
}

// permit checks key and method.
func (h *handler) permit(w http.ResponseWriter, r *http.Request, method string) error {
	if h.Key != "" {
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		sum := sha256.Sum256([]byte(given))
		if !bearer || subtle.ConstantTimeCompare(sum[:], h.key[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			return &apiError{status: http.StatusUnauthorized, kind: invalid, Code: "invalid_api_key", Message: "the API key is missing or wrong"}
		}
	}
	if method != "" && r.Method != method {
		w.Header().Set("Allow", method)
		return &apiError{status: http.StatusMethodNotAllowed, kind: invalid, Message: fmt.Sprintf("the method is %s, it needs to be %s", r.Method, method)}
	}
	return nil
}

// bodyTime is how long the body of a request may take to come, and stall how long a client may take
// nothing of an answer.
var bodyTime, stall = 30 * time.Second, 30 * time.Second

// read reads a request's JSON.
func (h *handler) read(w *response, r *http.Request, to any) error {
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &apiError{status: http.StatusRequestEntityTooLarge, kind: invalid, Message: fmt.Sprintf("the request has more than %d bytes", large.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &apiError{status: http.StatusRequestTimeout, kind: invalid, Message: fmt.Sprintf("the request needs to come within %v", bodyTime)}
	case err == nil:
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{}) // the answer may take longer
		w.Header().Del("Connection")
		err = parse(body, to)
	}
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return wrong("", "the request is %s, it needs to be an object", article(kind.Value))
	case errors.As(err, &kind):
		field := strings.TrimPrefix(kind.Field, "sampling.") // the embedded struct
		return wrong(field, "%s is %s, it needs to be %s", field, article(kind.Value), jsonKind(kind.Type))
	case err != nil:
		return wrong("", "the request is not what it needs to be: %v", err)
	}
	return nil
}

// article returns a kind of JSON, as the decoder names it, with its article.
func article(kind string) string {
	kind, _, _ = strings.Cut(kind, " ") // "number -1" has its digits behind it
	if kind == "array" || kind == "object" {
		return "an " + kind
	}
	return "a " + kind
}

// jsonKind returns what JSON calls values of a type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonKind(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return "a string or an array of them"
		}
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64, reflect.Int32, reflect.Uint32:
		return "a whole number"
	}
	return "a number"
}

// parse reads an object and nothing else. A name that is there twice, in whatever case, is an
// error: others who look at the request may take another of its values.
func parse(body []byte, to any) error {
	if !utf8.Valid(body) {
		return errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more behind the object")
	}
	d = json.NewDecoder(bytes.NewReader(body))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return errors.Join(err, errors.New("it needs to be an object"))
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err = errors.Join(err, d.Decode(&value)); err != nil {
			return err
		}
		folded := strings.ToLower(strings.ToUpper(name.(string)))
		if seen[folded] {
			return fmt.Errorf("%q is there twice", name)
		}
		seen[folded] = true
	}
	return nil
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (h *handler) list() []modelObject {
	var list []modelObject
	for _, name := range []string{h.Name, h.EmbedName} {
		if name != "" && (len(list) == 0 || list[0].ID != name) {
			list = append(list, modelObject{name, "model", h.created, "stheno"})
		}
	}
	return list
}

func (h *handler) models(w *response, _ *http.Request) error {
	return write(w, map[string]any{"object": "list", "data": h.list()})
}

func (h *handler) model(w *response, r *http.Request) error {
	name := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	for _, m := range h.list() {
		if m.ID == name {
			return write(w, m)
		}
	}
	return noModel(name)
}

func (h *handler) healthz(w http.ResponseWriter, _ *http.Request) {
	if h.Scheduler != nil && h.Scheduler.Stats().Closed {
		http.Error(w, "the scheduler has ended", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// write answers with JSON.
func write(w *response, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.whole(http.StatusOK, text)
}
