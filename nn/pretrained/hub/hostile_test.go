package hub

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A file of the cache that is not what its hash says is downloaded again, and offline it is an
// error.
func TestDamagedCache(t *testing.T) {
	s := newServer(t)
	folder, err := Fetch(t.Context(), "owner/small", Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "model-00002-of-00002.safetensors")
	damage := func() {
		t.Helper()
		if err := os.WriteFile(path, []byte("sEcond"), 0o644); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Hour) // for filesystems that count time in seconds
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
	}
	damage()
	if _, err := Fetch(t.Context(), "owner/small", Options{Offline: true}); err == nil || !strings.Contains(err.Error(), "is damaged in the cache") {
		t.Errorf("offline, a damaged file gives %v", err)
	}
	for _, withLinks := range []string{"", "1"} {
		t.Setenv("HF_HUB_DISABLE_SYMLINKS", withLinks)
		if _, err := Fetch(t.Context(), "owner/small", Options{}); err != nil {
			t.Fatal(err)
		}
		s.check(folder)
		damage()
	}
	// What another process has put there is compared once.
	if _, err := Fetch(t.Context(), "owner/small", Options{}); err != nil {
		t.Fatal(err)
	}
	notes, err := filepath.Glob(filepath.Join(os.Getenv("HF_HOME"), "hub/.locks/*/*.checked"))
	if err != nil || len(notes) < 4 {
		t.Fatalf("the notes are %q, %v", notes, err)
	}
	for _, note := range notes {
		if err := os.Remove(note); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Fetch(t.Context(), "owner/small", Options{Offline: true}); err != nil {
		t.Error(err)
	}
	if again, _ := filepath.Glob(filepath.Join(os.Getenv("HF_HOME"), "hub/.locks/*/*.checked")); len(again) < 3 {
		t.Errorf("the notes are %q", again)
	}
}

// Nothing is written through a link that somebody has put into the cache.
func TestLinks(t *testing.T) {
	s := newServer(t)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(os.Getenv("HF_HOME"), "hub")
	tag := s.tag(s.files["model-00002-of-00002.safetensors"])
	for _, name := range []string{"models--owner--small/blobs/" + tag + ".incomplete", ".locks/models--owner--small/" + tag + ".lock"} {
		link := filepath.Join(cache, name)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		os.Remove(link) // what a call before this has made
		if err := os.Symlink(victim, link); err != nil {
			t.Fatal(err)
		}
		if _, err := Fetch(t.Context(), "owner/small", Options{}); err == nil || !strings.Contains(err.Error(), "is a link, it needs to be a file") {
			t.Errorf("%s gives %v", name, err)
		}
		if content, err := os.ReadFile(victim); err != nil || string(content) != "precious" {
			t.Errorf("through %s the file became %q, %v", name, content, err)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that stops within the list of files is given up.
func TestListStalls(t *testing.T) {
	s := newServer(t)
	ended := make(chan struct{})
	s.hub.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"sha": `))
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	defer close(ended)
	t.Setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Fetch(ctx, "owner/small", Options{}); err == nil || ctx.Err() != nil {
		t.Errorf("the error is %v, after the time of the test: %v", err, ctx.Err())
	}
}

func TestHostileAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*server)
		want   string
	}{
		"a name that writes to a terminal": {
			func(s *server) {
				s.list = `{"sha": "` + commit + `", "siblings": [{"rfilename": "model-\u001b[31m-of-00001.safetensors"}]}`
			}, `a file called "model-\x1b[31m-of`,
		},
		"a dot": {func(s *server) { s.list = `{"sha": "` + commit + `", "siblings": [{"rfilename": "."}]}` }, `a file called "."`},
		"a long name": {func(s *server) {
			s.list = `{"sha": "` + commit + `", "siblings": [{"rfilename": "` + strings.Repeat("x", 2000) + `"}]}`
		}, "a file called"},
		"a long list":  {func(s *server) { s.list = strings.Repeat(" ", maxList+1) }, "more than 67108864 bytes"},
		"a huge index": {func(s *server) { s.files[indexFile] = strings.Repeat(" ", maxIndex+1) }, "it has 67108865 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c.change(s)
			_, err := Fetch(t.Context(), "owner/small", Options{Want: func(string) bool { return true }})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
	newServer(t)
	if _, err := Fetch(t.Context(), "owner/small@.", Options{}); err == nil || !strings.Contains(err.Error(), "the revision is") {
		t.Errorf("the revision . gives %v", err)
	}
}
