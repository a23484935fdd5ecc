package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/train/serve/openai"
)

// A request whose JSON is ambiguous or endless is refused before it takes memory or time, and an
// error quotes little of it.
func TestHostileRequests(t *testing.T) {
	s := start(t, 1, 0, true, nil)
	list := func(item string, n int) string { return strings.Repeat(item+",", n-1) + item }
	fields := ""
	for i := range 65 {
		fields += fmt.Sprintf(`, "f%d": 1`, i)
	}
	long := strings.Repeat("q", 1<<20)
	const m = `{"model": "small", `
	for body, want := range map[string]string{
		m + `"prompt": "a"}]}`:                                      "there is more behind the object",
		m + `"prompt": "a"}}`:                                       "there is more behind the object",
		m + `"prompt": "a", "Prompt": "b"}`:                         `"Prompt" is there twice`,
		m + `"prompt": "a", "max_to\u212aens": 3, "max_tokens": 4}`: "is there twice",
		m + `"prompt": "` + "\xff" + `"}`:                           "it is not UTF-8",
		`null`:                                                      "it needs to be an object",
		m + `"prompt": [1, null]}`:                                  "prompt has a null among its tokens",
		m + `"prompt": [[1], [null]]}`:                              "there are",
		m + `"prompt": "a", "stop_token_ids": [` + list("1", 257) + `]}`: "there are 257 stop tokens, there may be 256",
		m + `"` + long + `": 1}`:                            "unknown field",
		`{"model": "` + long + `", "prompt": "a"}`:          "there is no model",
		m + `"prompt": ` + strings.Repeat("[", 1<<20) + `}`: "exceeded max depth",
	} {
		path := "/v1/completions"
		if strings.Contains(want, "there are") && strings.Contains(body, "[null]") {
			want = "null among its tokens"
		}
		checkError(t, s, path, body, want)
	}
	for body, want := range map[string]string{
		m + `"messages": [` + list("{}", 1<<20) + `]}`:                                                                  "there are 1048576 messages, there may be 16384",
		m + `"messages": [{"role": "user", "content": "a"` + fields + `}]}`:                                             "message 0 has 65 fields, it may have 64",
		m + `"messages": [{"role": "user"}], "messages": [{"content": "a"}]}`:                                           `"messages" is there twice`,
		m + `"messages": [{"role": "user", "content": [{"type": "` + long + `"}]}]}`:                                    "it needs",
		m + `"messages": [{"role": "user", "content": ` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}]}`: "needs to be a text or parts of it",
	} {
		checkError(t, s, "/v1/chat/completions", body, want)
	}
}

// checkError posts what is refused with an error in OpenAI's form.
func checkError(t *testing.T, s *service, path, body, want string) {
	t.Helper()
	w := s.post(t.Context(), path, body)
	var got completion
	err := json.Unmarshal(w.Body.Bytes(), &got)
	if err != nil || w.Code < 400 || w.Code > 499 || got.Error == nil || got.Error.Type != "invalid_request_error" {
		t.Errorf("%.80s: %d %.300s", body, w.Code, w.Body)
		return
	}
	if m := got.Error.Message; len(m) > 1100 || len(m) < 900 && !strings.Contains(m, want) {
		t.Errorf("%.80s: the error has %d bytes: %.300s, want %q", body, len(m), m, want)
	}
}

// Any request is answered with JSON in OpenAI's form, in little time.
func FuzzRequests(f *testing.F) {
	s := start(f, 1, 0, true, nil)
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models/small"}
	for _, body := range []string{
		`{"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "logprobs": true, "top_logprobs": 2}`,
		`{"model": "small", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}], "tool_calls": []}], "stream": true, "max_tokens": 2, "n": 2}`,
		`{"model": "small", "prompt": ["once", "twice"], "max_tokens": 4, "stop": ["a", "bc"], "seed": 1, "temperature": 0.5, "top_p": 0.9, "logprobs": 1}`,
		`{"model": "small", "prompt": [[1, 2], [3]], "max_tokens": 1, "repetition_penalty": 1.5, "presence_penalty": -2, "min_p": 0.1, "top_k": 3, "stop_token_ids": [4]}`,
		`{"model": "small", "input": "a", "encoding_format": "base64"}`,
	} {
		for i := range paths {
			f.Add(uint8(i), body)
		}
	}
	f.Fuzz(func(t *testing.T, path uint8, body string) {
		w := s.post(t.Context(), paths[int(path)%len(paths)], body)
		if w.Code >= 500 || w.Code < 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if !utf8.Valid(w.Body.Bytes()) {
			t.Fatalf("the answer is not UTF-8: %q", w.Body)
		}
		if w.Code != http.StatusOK {
			var got completion
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Error == nil || got.Error.Message == "" {
				t.Fatalf("the error is %s: %v", w.Body, err)
			}
		}
	})
}

// A browser that a page of elsewhere sends is refused, and whatever else asks this machine is not.
func TestPagesOfElsewhere(t *testing.T) {
	ask := func(s *service, body string, change func(*http.Request)) int {
		server := httptest.NewServer(s)
		defer server.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		var c completion
		if err := json.Unmarshal(text, &c); err != nil || answer.StatusCode != http.StatusOK && c.Error == nil {
			t.Errorf("%d %s: %v", answer.StatusCode, text, err)
		}
		return answer.StatusCode
	}
	open := start(t, 1, 0, true, nil)
	closed := start(t, 1, 0, true, func(c *openai.Config) { c.Key = "secret" })
	const body = `{"model": "small", "prompt": "a", "max_tokens": 1}`
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"a program": {func(*http.Request) {}, 200},
		"localhost": {func(r *http.Request) { r.Host = "localhost:1" }, 200},
		"rebound":   {func(r *http.Request) { r.Host = "evil.example" }, 403},
		"rebound by port": {func(r *http.Request) {
			r.Host = "evil.example:8080"
			r.Header.Set("Origin", "http://evil.example:8080")
		}, 403},
		"another origin": {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		"no origin":      {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"another site":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"its own page":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
	} {
		if status := ask(open, body, c.change); status != c.status {
			t.Errorf("%s: %d, want %d", name, status, c.status)
		}
		if status := ask(closed, body, func(r *http.Request) { c.change(r); r.Header.Set("Authorization", "Bearer secret") }); status != 200 {
			t.Errorf("%s with the key: %d", name, status)
		}
	}
}

// A client that sends its body slowly or not at all, and one that takes nothing of its answer, are
// hung up on, whatever they asked for, and nothing of them is left.
func TestSlowClients(t *testing.T) {
	restore := openai.Hurry(time.Second, 200*time.Millisecond)
	s := start(t, 4, 0, true, func(c *openai.Config) { c.Key = "secret" })
	goroutines := runtime.NumGoroutine()
	var begun, ended atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		defer ended.Add(1)
		s.ServeHTTP(w, r)
	}))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	defer restore()
	defer server.Close() // before
	const key = "Authorization: Bearer secret\r\n"
	many := `{"model": "small", "prompt": "a", "max_tokens": 100, "n": 4, "logprobs": 20, "stream": true}`
	var all sync.WaitGroup
	slow := map[string]string{
		"no key":       "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
		"a wrong path": "POST /v2 HTTP/1.1\r\nHost: localhost\r\n" + key + "Content-Length: 100\r\n\r\n{",
		"a redirect":   "POST //v1/models HTTP/1.1\r\nHost: localhost\r\n" + key + "Content-Length: 100\r\n\r\n{",
		"of GET":       "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + key + "Content-Length: 100\r\n\r\n",
		"healthz":      "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"in chunks":    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"a body":       "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + key + "Content-Length: 100\r\n\r\n{",
		"not JSON":     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + key + "Content-Length: 100\r\n\r\nx",
	}
	for name, text := range slow {
		all.Go(func() {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Error(err)
			}
			answer, err := io.ReadAll(conn) // until the server hangs up
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
				t.Errorf("%s: %q, %v", name, answer, err)
			}
		})
	}
	const streams = 4
	for range streams {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", key, len(many), many)
	}
	// One that is not hung up on has the test end by its deadline.
	all.Wait()
	for want := int64(streams + len(slow)); begun.Load() < want || ended.Load() < want || s.scheduler.Stats().Running > 0; {
		time.Sleep(10 * time.Millisecond)
	}
	server.Close()
	for runtime.NumGoroutine() > goroutines {
		time.Sleep(10 * time.Millisecond)
	}
}
