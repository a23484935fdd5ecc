package hub

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// told is a hub without a network.
type told struct{ list, tag, size, link, content string }

func (h told) RoundTrip(r *http.Request) (*http.Response, error) {
	content := h.content
	if strings.HasPrefix(r.URL.Path, "/api/") {
		content = h.list
	}
	header := http.Header{"Etag": {h.tag}, "Content-Length": {h.size}, "X-Linked-Etag": {h.link}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader([]byte(content))), Request: r}, nil
}

// Whatever a hub answers, nothing is written outside of the cache, and what is said to be there is
// what its hash says.
func FuzzAnswers(f *testing.F) {
	f.Add(`{"sha": "`+commit+`", "siblings": [{"rfilename": "config.json"}, {"rfilename": "original/x.safetensors"}]}`,
		`"ba6e6a5b5b7b3c0e5b4b1c9d1f3f5c3c7e0f0a1b"`, "2", "", "{}")
	f.Add(`{"sha": "`+commit+`", "siblings": [{"rfilename": "../../x"}]}`, `W/"abc"`, "-1", "../x", "text")
	f.Add(`{"sha": "`+commit+`", "siblings": [{"rfilename": "model.safetensors.index.json"}]}`, `"abc"`, "19", "", `{"weight_map": {"a":"b"}}`)
	before := pause
	pause = 0
	f.Cleanup(func() { pause = before })
	f.Fuzz(func(t *testing.T, list, tag, size, link, content string) {
		folder := t.TempDir()
		_, err := Fetch(t.Context(), "owner/small", Options{
			Endpoint: "http://hub.example", Cache: filepath.Join(folder, "cache"), Token: "t", Want: func(string) bool { return true },
			Client: &http.Client{Transport: told{list, tag, size, link, content}},
		})
		if err != nil && len(err.Error()) > 2000 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "cache" {
			t.Errorf("beside the cache are %v, %v", entries, err)
		}
	})
}
