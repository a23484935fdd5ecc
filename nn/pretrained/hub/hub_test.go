package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// server is a hub with one model, and a host for large files as the hub has one. It notes what is
// asked.
type server struct {
	t           *testing.T
	hub, large  *httptest.Server
	files       map[string]string // small files, and large ones whose names end with safetensors
	token       string            // that is needed; empty for none
	list        string            // the answer to what files there are, where it is not to be the files
	cut         int               // where the first answer of a large file is cut off; 0 for nowhere
	ignoreRange bool
	tag         func(content string) string // of large files

	mu    sync.Mutex
	asked []string
}

func newServer(t *testing.T) *server {
	s := &server{t: t, tag: func(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }}
	s.files = map[string]string{
		"config.json": `{"model_type": "llama"}`, "README.md": "read me", "pytorch_model.bin": "another form", "original/config.json": "{}", "1_Pooling/config.json": `{"pooling_mode": "mean"}`,
		"2_Dense/model.safetensors": "dense", "sentence_roberta_config.json": "{}", "additional_chat_templates/tool_use.jinja": "{{ tools }}", "tekken.json": "[]",
		"model.safetensors.index.json":     `{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`,
		"model.safetensors":                "a copy of all",
		"model-00001-of-00002.safetensors": strings.Repeat("first ", 3000000),
		"model-00002-of-00002.safetensors": "second",
		"model-00003-of-00003.safetensors": "of another division",
	}
	s.hub = httptest.NewServer(http.HandlerFunc(s.answer))
	s.large = httptest.NewServer(http.HandlerFunc(s.answerLarge))
	t.Cleanup(s.hub.Close)
	t.Cleanup(s.large.Close)
	for _, name := range []string{
		"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
		"HF_HUB_DISABLE_IMPLICIT_TOKEN", "HUGGING_FACE_HUB_TOKEN", "XDG_CACHE_HOME", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT",
		"HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_SYMLINKS",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", s.hub.URL+"/")
	before := pause
	pause = time.Millisecond
	t.Cleanup(func() { pause = before })
	return s
}

func (s *server) note(r *http.Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := r.Method + " " + r.URL.Path + " " + r.Header.Get("Range")
	s.asked = append(s.asked, strings.TrimSpace(line))
	n := 0
	for _, earlier := range s.asked {
		if strings.HasPrefix(earlier, r.Method+" "+r.URL.Path) {
			n++
		}
	}
	return n
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	s.note(r)
	if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	name, isFile := strings.CutPrefix(r.URL.Path, "/owner/small/resolve/"+commit+"/")
	content, known := s.files[name]
	switch {
	case r.URL.Path == "/api/models/owner/small/revision/main" || r.URL.Path == "/api/models/owner/small/revision/"+commit ||
		r.URL.Path == "/api/models/owner/small/revision/refs/pr/1":
		if s.list != "" {
			fmt.Fprint(w, s.list)
			return
		}
		var siblings []string
		for name := range s.files {
			siblings = append(siblings, fmt.Sprintf(`{"rfilename": %q}`, name))
		}
		slices.Sort(siblings)
		fmt.Fprintf(w, `{"sha": %q, "siblings": [%s]}`, commit, strings.Join(siblings, ","))
	case !isFile || !known:
		http.NotFound(w, r)
	case strings.HasSuffix(name, ".safetensors"):
		w.Header().Set("X-Linked-Etag", `"`+s.tag(content)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
		w.Header().Set("X-Repo-Commit", commit)
		http.Redirect(w, r, s.large.URL+"/"+name, http.StatusFound)
	default:
		w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content))))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	}
}

func (s *server) answerLarge(w http.ResponseWriter, r *http.Request) {
	times := s.note(r)
	if r.Header.Get("Authorization") != "" {
		s.t.Error("another host was sent the token")
	}
	content := s.files[strings.TrimPrefix(r.URL.Path, "/")]
	if s.ignoreRange {
		r.Header.Del("Range")
	}
	if s.cut > 0 && len(content) > s.cut && times == 1 {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Write([]byte(content[:s.cut]))
		return // the connection is cut, as less was written than announced
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(content)))
}

// wanted are the files that a model consists of.
func (s *server) wanted() []string {
	return []string{
		"1_Pooling/config.json", "2_Dense/model.safetensors", "additional_chat_templates/tool_use.jinja", "config.json", "model-00001-of-00002.safetensors",
		"model-00002-of-00002.safetensors", "model.safetensors.index.json", "sentence_roberta_config.json", "tekken.json",
	}
}

// check compares a folder with what the server has.
func (s *server) check(folder string) {
	s.t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		names = append(names, name)
		content, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
		if string(content) != s.files[name] {
			s.t.Errorf("%s has %d bytes, which are not the server's", name, len(content))
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if !slices.Equal(names, s.wanted()) {
		s.t.Errorf("the folder has %q, want %q", names, s.wanted())
	}
}

func TestFetch(t *testing.T) {
	s := newServer(t)
	s.token = "hf_secret"
	t.Setenv("HF_TOKEN", s.token)
	last := map[string][2]int64{}
	folder, err := Fetch(t.Context(), "owner/small", Options{Progress: func(file string, done, total int64) {
		if done < last[file][0] {
			t.Errorf("%s went back from %d to %d", file, last[file][0], done)
		}
		last[file] = [2]int64{done, total}
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.check(folder)
	for _, name := range s.wanted() {
		if n := int64(len(s.files[name])); last[name] != [2]int64{n, n} {
			t.Errorf("progress of %s ended at %v, it has %d bytes", name, last[name], n)
		}
	}
	home := os.Getenv("HF_HOME")
	if want := filepath.Join(home, "hub", "models--owner--small", "snapshots", commit); folder != want {
		t.Errorf("the folder is %s, want %s", folder, want)
	}
	if content, err := os.ReadFile(filepath.Join(home, "hub", "models--owner--small", "refs", "main")); err != nil || string(content) != commit {
		t.Errorf("main is %q: %v", content, err)
	}
	if link, err := os.Readlink(filepath.Join(folder, "model-00002-of-00002.safetensors")); err != nil || link != "../../blobs/"+s.tag("second") {
		t.Errorf("a file links to %q: %v", link, err)
	}

	// A second time nothing is downloaded, and offline nothing is asked.
	s.asked = nil
	for _, revision := range []string{"", "@main", "@" + commit, "@refs/pr/1"} {
		if again, err := Fetch(t.Context(), "owner/small"+revision, Options{}); err != nil || again != folder {
			t.Errorf("again: %s, %v", again, err)
		}
	}
	if len(s.asked) != 4 {
		t.Errorf("what is there was asked for: %q", s.asked)
	}
	s.asked = nil
	t.Setenv("HF_HUB_OFFLINE", "1")
	for _, revision := range []string{"", "@" + commit, "@refs/pr/1"} {
		if again, err := Fetch(t.Context(), "owner/small"+revision, Options{}); err != nil || again != folder {
			t.Errorf("offline: %s, %v", again, err)
		}
	}
	for _, name := range []string{"owner/other", "owner/small@dev"} {
		if _, err := Fetch(t.Context(), name, Options{}); err == nil || !strings.Contains(err.Error(), "it is not in the cache, and nothing is downloaded offline") {
			t.Errorf("offline, %s: %v", name, err)
		}
	}
	if len(s.asked) != 0 {
		t.Errorf("offline it asked for %q", s.asked)
	}
}

// A download that is cut off goes on where it was, within one call and from one to the next.
func TestFetchResumes(t *testing.T) {
	for _, ignoreRange := range []bool{false, true} {
		s := newServer(t)
		s.cut, s.ignoreRange = 1<<20, ignoreRange
		folder, err := Fetch(t.Context(), "owner/small", Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.check(folder)
		again := "GET /model-00001-of-00002.safetensors bytes=1048576-"
		if !slices.Contains(s.asked, again) {
			t.Errorf("it asked for %q, want %q among them", s.asked, again)
		}
	}
	s := newServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	const at = 1 << 20
	_, err := Fetch(ctx, "owner/small", Options{Progress: func(file string, done, total int64) {
		if done >= at {
			cancel(reason)
		}
	}})
	if !errors.Is(err, reason) {
		t.Fatalf("cancelled: %v", err)
	}
	s.asked = nil
	folder, err := Fetch(t.Context(), "owner/small", Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.check(folder)
	if !slices.ContainsFunc(s.asked, func(line string) bool { return strings.HasPrefix(line, "GET /model-00001-of-00002.safetensors bytes=") }) {
		t.Errorf("after a cancellation it asked for %q, want a part of the first shard", s.asked)
	}
}

// Two processes that want the same file do not write into each other's.
func TestFetchTogether(t *testing.T) {
	s := newServer(t)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			folder, err := Fetch(t.Context(), "owner/small", Options{})
			if err != nil {
				t.Error(err)
				return
			}
			s.check(folder)
		})
	}
	wait.Wait()
	n := 0
	for _, line := range s.asked {
		if strings.HasPrefix(line, "GET /model-00001-of-00002.safetensors") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the first shard was downloaded %d times", n)
	}
}

func TestFetchRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		change func(s *server)
		want   string
	}{
		"no name":        {"", func(*server) {}, "the name is"},
		"a path":         {"../../etc", func(*server) {}, "the name is"},
		"dashes":         {"a--b/c", func(*server) {}, "the name is"},
		"revision":       {"owner/small@../..", func(*server) {}, "the revision is"},
		"not there":      {"owner/none", func(*server) {}, "404 Not Found: there is no such model or revision"},
		"no token":       {"owner/small", func(s *server) { s.token = "hf_secret" }, "HF_TOKEN needs to be set"},
		"wrong hash":     {"owner/small", func(s *server) { s.tag = func(string) string { return strings.Repeat("ab", 32) } }, "has the hash"},
		"no hash":        {"owner/small", func(s *server) { s.tag = func(string) string { return "../../../x" } }, "for its hash, which is none"},
		"no JSON":        {"owner/small", func(s *server) { s.list = "hello" }, "the server's answer"},
		"no commit":      {"owner/small", func(s *server) { s.list = `{"sha": "../x"}` }, "which is none"},
		"no files":       {"owner/small", func(s *server) { s.list = `{"sha": "` + commit + `"}` }, "none of its 0 files is asked for"},
		"a file outside": {"owner/small", func(s *server) { s.list = `{"sha": "` + commit + `", "siblings": [{"rfilename": "../x.safetensors"}]}` }, "not the name of a file in a folder"},
		"broken index":   {"owner/small", func(s *server) { s.files["model.safetensors.index.json"] = "{" }, "model.safetensors.index.json"},
		"never whole":    {"owner/small", func(s *server) { s.large.Config.Handler = http.NotFoundHandler() }, "404"},
		"no server":      {"owner/small", func(s *server) { s.hub.Close() }, "with HF_HUB_OFFLINE=1 what is in the cache is taken"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c.change(s)
			_, err := Fetch(t.Context(), c.model, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the error is %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hf_secret") {
				t.Error("the error has the token in it")
			}
			filepath.WalkDir(os.Getenv("HF_HOME"), func(path string, e os.DirEntry, err error) error {
				if strings.HasSuffix(path, ".safetensors") || strings.Contains(path, "/refs/") {
					t.Errorf("%s is there", path)
				}
				return err
			})
		})
	}
}

// Each variable of the environment does what it does to huggingface_hub.
func TestEnvironment(t *testing.T) {
	newServer(t) // without any of them
	for _, c := range []struct {
		set  map[string]string
		want func(f *fetcher) bool
	}{
		{map[string]string{"HF_TOKEN": " a\n", "HUGGING_FACE_HUB_TOKEN": "b"}, func(f *fetcher) bool { return f.Token == "a" }},
		{map[string]string{"HUGGING_FACE_HUB_TOKEN": "b"}, func(f *fetcher) bool { return f.Token == "b" }},
		{map[string]string{"HF_HOME": "$PLACE"}, func(f *fetcher) bool { return f.Token == "of the home" }},
		{map[string]string{"HF_TOKEN_PATH": "${PLACE}/other"}, func(f *fetcher) bool { return f.Token == "of a path" }},
		{map[string]string{"HF_TOKEN": "a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "yes"}, func(f *fetcher) bool { return f.Token == "" }},
		{map[string]string{"HF_ENDPOINT": "http://mirror.example/hf/"}, func(f *fetcher) bool { return f.Endpoint == "http://mirror.example/hf" }},
		{map[string]string{"HF_HUB_CACHE": "/a", "HUGGINGFACE_HUB_CACHE": "/b"}, func(f *fetcher) bool { return f.Cache == "/a" }},
		{map[string]string{"HUGGINGFACE_HUB_CACHE": "/b"}, func(f *fetcher) bool { return f.Cache == "/b" }},
		{map[string]string{"HF_HUB_CACHE": "~/c"}, func(f *fetcher) bool { return f.Cache == os.Getenv("HOME")+"/c" }},
		{map[string]string{"HF_HUB_CACHE": "/$NOT_SET_ANYWHERE"}, func(f *fetcher) bool { return f.Cache == "/$NOT_SET_ANYWHERE" }},
		{map[string]string{"HF_HOME": "/h"}, func(f *fetcher) bool { return f.Cache == filepath.Join("/h", "hub") }},
		{map[string]string{"HF_HOME": "", "XDG_CACHE_HOME": "/x"}, func(f *fetcher) bool { return f.Cache == filepath.Join("/x", "huggingface", "hub") }},
		{map[string]string{"HF_HOME": ""}, func(f *fetcher) bool {
			return f.Cache == filepath.Join(os.Getenv("HOME"), ".cache", "huggingface", "hub")
		}},
		{map[string]string{"HF_HUB_OFFLINE": "ON"}, func(f *fetcher) bool { return f.Offline }},
		{map[string]string{"TRANSFORMERS_OFFLINE": "1"}, func(f *fetcher) bool { return f.Offline }},
		{map[string]string{"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, func(f *fetcher) bool { return !f.Offline }},
		{map[string]string{"HF_HUB_DOWNLOAD_TIMEOUT": "7"}, func(f *fetcher) bool { return f.stall == 7*time.Second && answersWithin(f.Client) == f.stall }},
		{map[string]string{"HF_HUB_ETAG_TIMEOUT": "7"}, func(f *fetcher) bool { return f.stall == stall && answersWithin(f.asking) == 7*time.Second }},
		{map[string]string{"HF_HUB_ETAG_TIMEOUT": "soon"}, nil},
		{map[string]string{"HF_HUB_DOWNLOAD_TIMEOUT": "-1"}, nil},
		{map[string]string{"HF_HUB_DISABLE_PROGRESS_BARS": "0"}, func(f *fetcher) bool { return f.Progress != nil }},
		{map[string]string{"HF_HUB_DISABLE_PROGRESS_BARS": "1"}, func(f *fetcher) bool { return f.Progress == nil }},
	} {
		t.Run(fmt.Sprint(c.set), func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("PLACE", home)
			for name, content := range map[string]string{"token": "of the home\n", "other": "of a path"} {
				if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for name, value := range c.set {
				t.Setenv(name, value)
			}
			f, err := newFetcher(t.Context(), "owner/small", Options{Progress: func(string, int64, int64) {}})
			if (err != nil) != (c.want == nil) {
				t.Fatalf("the error is %v", err)
			}
			if err == nil && !c.want(f) {
				t.Errorf("it makes of them %+v", f)
			}
		})
	}
}

func answersWithin(c *http.Client) time.Duration {
	return c.Transport.(*http.Transport).ResponseHeaderTimeout
}

// Without links, snapshots have files of their own.
func TestFetchWithoutLinks(t *testing.T) {
	s := newServer(t)
	s.files["model-00001-of-00002.safetensors"] = "first"
	t.Setenv("HF_HUB_DISABLE_SYMLINKS", "1")
	folder, err := Fetch(t.Context(), "owner/small", Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.check(folder)
	if info, err := os.Lstat(filepath.Join(folder, "config.json")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("config.json is %v: %v", info, err)
	}
}
