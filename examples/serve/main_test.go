package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/train/serve"
)

// The program answers, and when it is to end it lets the answers end that are being written.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := settings{
		model: serve.ModelConfig{Folder: smallmodel.Llama(t, true), Device: "cpu", Context: 128}, address: "localhost:0", places: 2, grace: time.Hour,
		embedder: "../../train/embed/testdata/bert",
	}
	s.api.Name, s.api.Key = "small", "secret"
	address := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, func(a net.Addr, _ string) { address <- a }) }()
	var url string
	select {
	case a := <-address:
		url = "http://" + a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	ask := func(path, body string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	vectors := ask("/v1/embeddings", `{"model": "bert", "input": ["A cat sat.", "A dog ran."]}`)
	defer vectors.Body.Close()
	var embeddings struct {
		Data []struct{ Embedding []float32 }
	}
	if err := json.NewDecoder(vectors.Body).Decode(&embeddings); err != nil || len(embeddings.Data) != 2 || len(embeddings.Data[1].Embedding) < 8 {
		t.Errorf("the vectors are %d %v, %v", vectors.StatusCode, embeddings, err)
	}
	answer := ask("/v1/chat/completions", `{"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 60, "stream": true}`)
	defer answer.Body.Close()
	stop()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("the answer is %d %q, %v", answer.StatusCode, text, err)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := <-ended; err != nil {
		t.Errorf("the program ends by %v", err)
	}
}

// What cannot be served is told before anything listens.
func TestServeErrors(t *testing.T) {
	folder := smallmodel.Llama(t, true)
	for _, s := range []settings{
		{},
		{model: serve.ModelConfig{Folder: t.TempDir(), Device: "cpu"}},
		{model: serve.ModelConfig{Folder: folder, Device: "cpu", Weights: "int3"}},
		{model: serve.ModelConfig{Folder: folder, Device: "cpu"}},                                              // no places
		{model: serve.ModelConfig{Folder: folder, Device: "cpu", Context: 999}, places: 1},                     // more than the model's
		{model: serve.ModelConfig{Folder: folder, Device: "cpu", Context: 9}, places: 1, address: "nowhere:x"}, //
	} {
		if err := run(t.Context(), s, func(net.Addr, string) { t.Error("it listens") }); err == nil {
			t.Errorf("%+v is no error", s)
		}
	}
}

// A wrong flag is answered by the one that was probably meant, and help is in groups.
func TestFlags(t *testing.T) {
	s, err := parse(strings.Fields("-model x -places 5"), io.Discard)
	if err != nil || s.places != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parse(strings.Fields("-port 80"), io.Discard); err == nil || !strings.Contains(err.Error(), "did you mean -address?") {
		t.Errorf("the error is %v, it needs \"did you mean -address?\"", err)
	}
	var help strings.Builder
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "\nthe model\n") || strings.Contains(help.String(), "\nmore\n") {
		t.Errorf("help is %v, %s", err, help.String())
	}
}

// What cannot work is told before a model is loaded.
func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"-address 8080":  `-address is "8080", it needs to be a host and a port, such as localhost:8080`,
		"":               "-model is needed: a model's folder, a GGUF file, or hub:NAME",
		"-places 0":      "-places is 0, it needs to be at least 1",
		"-waiting -1":    "-waiting is -1, it needs to be positive, or 0 for 4 a place",
		"-max-tokens -1": "-max-tokens is -1, it needs to be positive, or 0",
		"-max-body 0":    "-max-body is 0, it needs to be at least 1",
		"-max-time 0s":   "-max-time is 0s, it needs to be positive",
		"-grace -1s":     "-grace is -1s, it cannot be negative",
		"-grace 30":      `invalid value "30" for flag -grace: it needs to be a time with its unit`,
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", args, err, want)
		}
	}
}
