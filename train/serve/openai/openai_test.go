package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/serve/openai"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
)

// service is a handler over a small model.
type service struct {
	http.Handler
	model     *serve.Model
	scheduler *serve.Scheduler
}

// start serves a small model until the test ends. Without run, requests wait.
func start(t testing.TB, places, waiting int, run bool, change func(*openai.Config)) *service {
	t.Helper()
	m, err := serve.Open(t.Context(), serve.ModelConfig{Folder: smallmodel.Llama(t, true), Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := m.NewBatchDecoder(places, 128)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.NewScheduler(serve.SchedulerConfig{Decoder: decoder, Tokenizer: m.Tokenizer, Waiting: waiting})
	if err != nil {
		t.Fatal(err)
	}
	c := openai.Config{Name: "small", Model: m, Scheduler: s}
	if change != nil {
		change(&c)
	}
	h, err := openai.NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	if run {
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() {
			stop()
			running.Wait()
		})
	}
	return &service{h, m, s}
}

// post gives what the handler answers.
func (s *service) post(ctx context.Context, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body)))
	return w
}

// completion is what tests look at of any answer.
type completion struct {
	ID, Object, Model string
	Choices           []struct {
		Index   int
		Text    string
		Message struct{ Role, Content string }
		Delta   struct{ Role, Content string }
		Finish  *string `json:"finish_reason"`
		Probs   *struct {
			Content []struct {
				Token   string
				LogProb float64
				Bytes   []byte
				Top     []struct {
					Token   string
					LogProb float64
				} `json:"top_logprobs"`
			}
			Tokens   []string
			LogProbs []float64            `json:"token_logprobs"`
			Top      []map[string]float64 `json:"top_logprobs"`
			Offsets  []int                `json:"text_offset"`
		} `json:"logprobs"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
	Error *struct{ Message, Type, Param, Code string }
}

func (s *service) complete(t testing.TB, path, body string) completion {
	t.Helper()
	w := s.post(t.Context(), path, body)
	var c completion
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s of %s: %d, %v: %s", path, body, w.Code, err, w.Body)
	}
	return c
}

// events are those of a stream, which needs to end by [DONE].
func events(t testing.TB, r io.Reader) []completion {
	t.Helper()
	var list []completion
	for lines := bufio.NewScanner(r); lines.Scan(); {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case lines.Text() == "":
		case data == "[DONE]":
			return list
		default:
			var c completion
			if err := json.Unmarshal([]byte(data), &c); err != nil || !is {
				t.Fatalf("the event is %q: %v", lines.Text(), err)
			}
			list = append(list, c)
		}
	}
	t.Fatal("the stream does not end by [DONE]")
	return nil
}

const hello = `"model": "small", "messages": [{"role": "user", "content": "hello"}]`

// alone is the answer that sample.Generate gives.
func (s *service) alone(t testing.TB, o sample.Options) string {
	t.Helper()
	d, err := s.model.NewDecoder(128)
	if err != nil {
		t.Fatal(err)
	}
	o.Start, err = s.model.Prompt([]chat.Message{{Role: "user", Content: "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := sample.Generate(t.Context(), d, s.model.Tokenizer, "", o, sample.Write(&text)); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestChat(t *testing.T) {
	s := start(t, 4, 0, true, nil)
	o := s.model.Options
	o.MaxTokens = 12
	o.Sampler = sample.SamplerOptions{Temperature: 0.9, TopP: 0.95, Seed: 3}
	const asked = hello + `, "max_tokens": 12, "temperature": 0.9, "top_p": 0.95, "seed": 3`
	want := []string{s.alone(t, o)}
	o.Sampler.Seed++
	want = append(want, s.alone(t, o))

	c := s.complete(t, "/v1/chat/completions", `{`+asked+`, "n": 2}`)
	prompt, err := s.model.Prompt([]chat.Message{{Role: "user", Content: "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, choice := range c.Choices {
		if m := choice.Message; m.Role != "assistant" || m.Content != string([]rune(want[i])) || choice.Index != i {
			t.Errorf("choice %d is %+v, want %q", i, choice, want[i])
		}
	}
	if u := c.Usage; len(c.Choices) != 2 || u.Prompt != len(prompt) || u.Completion < 2 || u.Completion > 24 || u.Total != u.Prompt+u.Completion ||
		c.Object != "chat.completion" || !strings.HasPrefix(c.ID, "chatcmpl-") || c.Model != "small" {
		t.Errorf("the answer is %+v, usage %+v", c, c.Usage)
	}

	w := s.post(t.Context(), "/v1/chat/completions", `{`+asked+`, "n": 2, "stream": true, "stream_options": {"include_usage": true}}`)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Fatalf("a stream begins with %d, %v: %s", w.Code, w.Header(), w.Body)
	}
	got, ends := make([]string, 2), make([]string, 2)
	list := events(t, w.Body)
	for i, e := range list {
		if i == len(list)-1 {
			if len(e.Choices) != 0 || *e.Usage != *c.Usage {
				t.Errorf("the last event is %+v with %+v", e, e.Usage)
			}
			continue
		}
		choice := e.Choices[0]
		got[choice.Index] += choice.Delta.Content
		if choice.Finish != nil {
			ends[choice.Index] += *choice.Finish
		}
		if e.Object != "chat.completion.chunk" || e.ID != list[0].ID {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	for i := range got {
		if got[i] != c.Choices[i].Message.Content || ends[i] != *c.Choices[i].Finish {
			t.Errorf("the stream's choice %d is %q and ends by %q, want %q and %q", i, got[i], ends[i], c.Choices[i].Message.Content, *c.Choices[i].Finish)
		}
	}
}

func TestStopsAndLogProbs(t *testing.T) {
	s := start(t, 2, 0, true, nil)
	whole := s.complete(t, "/v1/chat/completions", `{`+hello+`, "max_tokens": 10, "temperature": 0, "logprobs": true, "top_logprobs": 3}`).Choices[0]
	if len(whole.Probs.Content) != 10 || *whole.Finish != "length" {
		t.Fatalf("there are log-probabilities of %d tokens, the end is %s", len(whole.Probs.Content), *whole.Finish)
	}
	text := ""
	for i, p := range whole.Probs.Content {
		text += p.Token
		if len(p.Top) != 3 || p.Top[0].Token != p.Token || p.Top[0].LogProb != p.LogProb || p.LogProb > 0 || p.Top[2].LogProb > p.Top[1].LogProb {
			t.Errorf("token %d has %+v", i, p)
		}
	}
	if text != whole.Message.Content {
		t.Errorf("the tokens are %q, the text is %q", text, whole.Message.Content)
	}
	stop := whole.Message.Content[3:5]
	body, err := json.Marshal(stop)
	if err != nil {
		t.Fatal(err)
	}
	short := s.complete(t, "/v1/chat/completions", `{`+hello+`, "max_tokens": 10, "temperature": 0, "stop": `+string(body)+`}`).Choices[0]
	if want := whole.Message.Content[:strings.Index(whole.Message.Content, stop)]; short.Message.Content != want || *short.Finish != "stop" {
		t.Errorf("the text up to %q is %q by %s, want %q", stop, short.Message.Content, *short.Finish, want)
	}

	c := s.complete(t, "/v1/completions", `{"model": "small", "prompt": ["once upon", "a time"], "max_tokens": 5, "temperature": 0, "logprobs": 2}`)
	if len(c.Choices) != 2 || c.Object != "text_completion" || c.Usage.Completion != 10 {
		t.Fatalf("the completions are %+v", c)
	}
	for i, choice := range c.Choices {
		if p := choice.Probs; choice.Index != i || strings.Join(p.Tokens, "") != choice.Text || len(p.LogProbs) != 5 || len(p.Top[0]) != 2 || p.Offsets[0] != 0 {
			t.Errorf("completion %d is %+v with %+v", i, choice, p)
		}
	}
	ids, err := s.model.Continue("once upon")
	if err != nil {
		t.Fatal(err)
	}
	body, err = json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	tokens := s.complete(t, "/v1/completions", `{"model": "small", "prompt": `+string(body)+`, "max_tokens": 5, "temperature": 0}`)
	if tokens.Choices[0].Text != c.Choices[0].Text {
		t.Errorf("a prompt of tokens gives %q, its text %q", tokens.Choices[0].Text, c.Choices[0].Text)
	}
	w := s.post(t.Context(), "/v1/completions", `{"model": "small", "prompt": "once upon", "max_tokens": 5, "temperature": 0, "stream": true, "logprobs": 0}`)
	text = ""
	for _, e := range events(t, w.Body) {
		text += e.Choices[0].Text
	}
	if text != c.Choices[0].Text {
		t.Errorf("the stream is %q, want %q", text, c.Choices[0].Text)
	}
}

// What is wrong with a request is told in OpenAI's form, and the server goes on.
func TestErrors(t *testing.T) {
	s := start(t, 1, 0, true, func(c *openai.Config) { c.Limits.Body, c.Limits.Tokens = 4000, 50 })
	for _, c := range []struct {
		path, body string
		status     int
		message    string
	}{
		{"/v1/chat/completions", ``, 400, "the request is not what it needs to be: EOF"},
		{"/v1/chat/completions", `{`, 400, "unexpected EOF"},
		{"/v1/chat/completions", `[]`, 400, "the request is an array, it needs to be an object"},
		{"/v1/chat/completions", `{` + hello + `} {}`, 400, "there is more behind the object"},
		{"/v1/chat/completions", `{` + hello + `, "wings": 2}`, 400, `unknown field "wings"`},
		{"/v1/chat/completions", `{"model": "large", "messages": [{"role": "user", "content": "a"}]}`, 404, `there is no model "large"`},
		{"/v1/chat/completions", `{"model": "small"}`, 400, "messages is empty"},
		{"/v1/chat/completions", `{"model": "small", "messages": 3}`, 400, "messages is a number, it needs to be an array"},
		{"/v1/chat/completions", `{` + hello + `, "max_tokens": 1.5}`, 400, "max_tokens is a number, it needs to be a whole number"},
		{"/v1/chat/completions", `{` + hello + `, "stream": "yes"}`, 400, "stream is a string, it needs to be true or false"},
		{"/v1/chat/completions", `{"model": "small", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, 400, `message 0 has a part of type "image_url", it needs to be text`},
		{"/v1/chat/completions", `{"model": "small", "messages": [{"role": "user", "content": 7}]}`, 400, "the content of message 0 needs to be a text or parts of it"},
		{"/v1/chat/completions", `{` + hello + `, "n": 0}`, 400, "n is 0, it needs to be from 1 to 16"},
		{"/v1/chat/completions", `{` + hello + `, "max_tokens": 0}`, 400, "max_tokens is 0"},
		{"/v1/chat/completions", `{` + hello + `, "max_tokens": 51}`, 400, "max_tokens is 51, it needs to be at most 50"},
		{"/v1/chat/completions", `{` + hello + `, "temperature": 3}`, 400, "temperature is 3, it needs to be from 0 to 2"},
		{"/v1/chat/completions", `{` + hello + `, "temperature": "hot"}`, 400, "temperature is a string, it needs to be a number"},
		{"/v1/chat/completions", `{` + hello + `, "top_p": -1}`, 400, "top_p is -1"},
		{"/v1/chat/completions", `{` + hello + `, "presence_penalty": 2.5}`, 400, "presence_penalty is 2.5"},
		{"/v1/chat/completions", `{` + hello + `, "top_k": -2}`, 400, "top_k is -2"},
		{"/v1/chat/completions", `{` + hello + `, "stop": ["a", ""]}`, 400, "a stop string is empty"},
		{"/v1/chat/completions", `{` + hello + `, "stop": 7}`, 400, "stop is a number, it needs to be a string or an array of them"},
		{"/v1/chat/completions", `{` + hello + `, "top_logprobs": 3}`, 400, "top_logprobs is given, it needs logprobs to be true"},
		{"/v1/chat/completions", `{` + hello + `, "logprobs": true, "top_logprobs": 21}`, 400, "top_logprobs is 21"},
		{"/v1/chat/completions", `{` + hello + `, "tools": [{"type": "function"}]}`, 400, "tools is given, it is not supported"},
		{"/v1/chat/completions", `{` + hello + `, "response_format": {"type": "json_object"}}`, 400, "response_format is given"},
		{"/v1/chat/completions", `{` + hello + `, "logit_bias": {"5": 1}}`, 400, "logit_bias is given, it is not supported"},
		{"/v1/chat/completions", `{` + hello + `, "stream_options": {}}`, 400, "stream_options is given, it is for streams"},
		{"/v1/chat/completions", `{"model": "small", "messages": [{"role": "user", "content": "` + strings.Repeat("gorgon ", 300) + `"}]}`, 400, "together they need to be at most 128"},
		{"/v1/chat/completions", `{"model": "` + strings.Repeat("a", 5000) + `"}`, 413, "the request has more than 4000 bytes"},
		{"/v1/completions", `{"model": "small"}`, 400, "prompt is empty"},
		{"/v1/completions", `{"model": "small", "prompt": {}}`, 400, "prompt is an object, it needs to be a string or an array of them"},
		{"/v1/completions", `{"model": "small", "prompt": [[1], [2]], "n": 9}`, 400, "there are 2 prompts and n is 9, together they may ask for 16 choices"},
		{"/v1/completions", `{"model": "small", "prompt": [99999999]}`, 400, "token 0 of the prompt is 99999999"},
		{"/v1/completions", `{"model": "small", "prompt": [[]]}`, 400, "the prompt is empty"},
		{"/v1/completions", `{"model": "small", "prompt": "a", "echo": true}`, 400, "echo is given, it is not supported"},
		{"/v1/completions", `{"model": "small", "prompt": "a", "suffix": "b"}`, 400, "suffix is given"},
		{"/v1/completions", `{"model": "small", "prompt": "a", "best_of": 3}`, 400, "best_of is given"},
		{"/v1/completions", `{"model": "small", "prompt": "a", "logprobs": -1}`, 400, "logprobs is -1"},
		{"/v1/embeddings", `{"model": "small", "input": "a"}`, 404, `there is no model "small"`},
		{"/v1/models", `{}`, 405, "the method is POST, it needs to be GET"},
		{"/v1/models/other", ``, 405, "it needs to be GET"},
		{"/v2", ``, 404, "there is no path /v2"},
	} {
		w := s.post(t.Context(), c.path, c.body)
		var got completion
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.status || got.Error == nil || !strings.Contains(got.Error.Message, c.message) ||
			got.Error.Type != "invalid_request_error" {
			t.Errorf("%s %.80s: %d %s\nwant %d with %q", c.path, c.body, w.Code, w.Body, c.status, c.message)
		}
	}
	if c := s.complete(t, "/v1/chat/completions", `{`+hello+`, "max_tokens": null, "stop": null, "seed": null, "stream": false, "user": "me"}`); c.Usage.Completion == 0 || c.Usage.Completion > 50 {
		t.Errorf("after the errors: %+v", c.Usage)
	}
	var all bytes.Buffer
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	all.ReadFrom(w.Body)
	for _, want := range []string{
		"\nstheno_running 0\n", "\nstheno_texts_ended_total 1\n", "# TYPE stheno_tokens_total counter\n",
		`stheno_http_requests_total{path="/v1/chat/completions",code="413"} 1` + "\n", `stheno_http_requests_total{path="/v1/chat/completions",code="200"} 1` + "\n",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the metrics lack %q:\n%s", want, all.String())
		}
	}
}

// Limits of time and of requests that wait, and a scheduler that has ended.
func TestLimits(t *testing.T) {
	code := func(w *httptest.ResponseRecorder) string {
		var c completion
		_ = json.Unmarshal(w.Body.Bytes(), &c)
		if c.Error == nil {
			return fmt.Sprint(w.Code)
		}
		return fmt.Sprint(w.Code, " ", c.Error.Type)
	}
	// Nothing runs, so that the time ends for the first, and two choices are one too many to wait.
	s := start(t, 1, 1, false, func(c *openai.Config) { c.Limits.Time = time.Nanosecond })
	if w := s.post(t.Context(), "/v1/chat/completions", `{`+hello+`}`); code(w) != "504 server_error" || w.Header().Get("X-Should-Retry") != "false" {
		t.Errorf("when the time ends: %s %s", code(w), w.Body)
	}
	s = start(t, 1, 1, false, nil)
	if w := s.post(t.Context(), "/v1/chat/completions", `{`+hello+`, "n": 2}`); code(w) != "429 rate_limit_error" || w.Header().Get("Retry-After") != "1" {
		t.Errorf("with two that wait: %s %s", code(w), w.Body)
	}
	if n := s.scheduler.Stats().Waiting; n != 0 {
		t.Errorf("%d wait when all have left", n)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := s.scheduler.Run(ended); err != nil {
		t.Fatal(err)
	}
	if w := s.post(t.Context(), "/v1/chat/completions", `{`+hello+`}`); code(w) != "503 server_error" {
		t.Errorf("after the end: %s %s", code(w), w.Body)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("after the end healthz gives %d", w.Code)
	}
}

func TestKeyAndModels(t *testing.T) {
	embed := func(_ context.Context, texts []string) ([][]float32, int, error) {
		var vectors [][]float32
		for _, text := range texts {
			vectors = append(vectors, []float32{float32(len(text)), 0.5})
		}
		return vectors, 7, nil
	}
	s := start(t, 1, 0, true, func(c *openai.Config) { c.Key, c.Embed, c.EmbedName = "secret", embed, "vectors" })
	do := func(method, path, key, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if key != "" {
			r.Header.Set("Authorization", key)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		has                     string
	}{
		{"GET", "/v1/models", "", "", 401, `"code":"invalid_api_key"`},
		{"GET", "/v1/models", "Bearer wrong", "", 401, `"type":"invalid_request_error"`},
		{"GET", "/v1/models", "secret", "", 401, "the API key is missing or wrong"},
		{"GET", "/v2", "", "", 401, ""},
		{"GET", "/v1/models", "Bearer secret", "", 200, `"id":"small","object":"model"`},
		{"GET", "/v1/models", "Bearer secret", "", 200, `"id":"vectors"`},
		{"GET", "/v1/models/small", "Bearer secret", "", 200, `"owned_by":"stheno"`},
		{"GET", "/v1/models/large", "Bearer secret", "", 404, `"code":"model_not_found"`},
		{"GET", "/healthz", "", "", 200, "ok"},
		{"GET", "/metrics", "", "", 200, "stheno_places 1"},
		{"POST", "/v1/embeddings", "Bearer secret", `{"model": "vectors", "input": ["abc", "de"]}`, 200, `"embedding":[2,0.5]`},
		{"POST", "/v1/embeddings", "Bearer secret", `{"model": "vectors", "input": "abc", "encoding_format": "base64", "dimensions": 2}`, 200, `"embedding":"AABAQAAAAD8="`},
		{"POST", "/v1/embeddings", "Bearer secret", `{"model": "vectors", "input": "abc", "dimensions": 3}`, 400, "dimensions is 3, the model has 2"},
		{"POST", "/v1/embeddings", "Bearer secret", `{"model": "vectors", "input": [1, 2]}`, 400, "tokens are not supported"},
		{"POST", "/v1/embeddings", "Bearer secret", `{"model": "vectors", "input": []}`, 400, "input has 0 texts"},
		{"POST", "/v1/embeddings", "Bearer secret", `{"model": "vectors", "input": "a", "encoding_format": "hex"}`, 400, `encoding_format is \"hex\"`},
	} {
		if w := do(c.method, c.path, c.key, c.body); w.Code != c.status || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", c.method, c.path, c.body, w.Code, w.Body, c.status, c.has)
		}
	}
}

// Of 64 clients at once, which stream over a network, every third leaves in the middle. The others
// get what they get alone, and all places are free in the end.
func TestManyClients(t *testing.T) {
	const clients, places = 64, 8
	s := start(t, places, clients, true, nil)
	prompts := []string{"hello", "who are you?", "a", "tell me of the gorgons"}
	body := func(i int) string {
		return fmt.Sprintf(`{"model": "small", "messages": [{"role": "user", "content": %q}], "max_tokens": %d, "temperature": 0.8, "seed": %d, "stream": true}`,
			prompts[i%len(prompts)], 3+i%40, i%10)
	}
	text := func(list []completion) (all string) {
		for _, e := range list {
			all += e.Choices[0].Delta.Content
		}
		return all
	}
	server := httptest.NewServer(s)
	got := make([]string, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(body(i)))
			if err != nil {
				t.Error(err)
				return
			}
			answer, err := server.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if i%3 == 0 { // reads a line and leaves
				if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
					t.Error(err)
				}
				return
			}
			got[i] = text(events(t, answer.Body))
		})
	}
	all.Wait()
	server.Close() // waits for the requests
	for i := range clients {
		w := s.post(t.Context(), "/v1/chat/completions", body(i))
		if want := text(events(t, w.Body)); i%3 != 0 && got[i] != want {
			t.Errorf("client %d has %q, alone it has %q", i, got[i], want)
		}
	}
	stats := s.scheduler.Stats()
	if stats.Running != 0 || stats.Waiting != 0 || stats.Failed != 0 || stats.Refused != 0 || stats.Ended+stats.Left != 2*clients {
		t.Errorf("in the end: %+v", stats)
	}
}

func TestNewHandlerErrors(t *testing.T) {
	s := start(t, 1, 0, false, nil)
	embed := func(context.Context, []string) ([][]float32, int, error) { return nil, 0, nil }
	for want, c := range map[string]openai.Config{
		"name is empty":             {Model: s.model, Scheduler: s.scheduler},
		"model or scheduler is nil": {Name: "a", Model: s.model},
		"neither":                   {},
		"embed name is empty":       {Embed: embed},
		"the limit of body is -1":   {Name: "a", Model: s.model, Scheduler: s.scheduler, Limits: openai.Limits{Body: -1}},
		"the limit of texts is -3":  {Embed: embed, EmbedName: "b", Limits: openai.Limits{Texts: -3}},
	} {
		if _, err := openai.NewHandler(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
