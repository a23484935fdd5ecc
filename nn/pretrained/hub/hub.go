// Package hub downloads models from the Hugging Face hub, into the cache that Python's
// huggingface_hub has and with its settings, so that what either has downloaded the other finds:
//
//	folder, err := hub.Fetch(ctx, "HuggingFaceTB/SmolLM2-135M-Instruct", hub.Options{})
//
// A download that was cut off goes on where it ended, also in another process. Each file is checked
// against the hash that the hub has for it before it appears under its name.
//
// # Settings
//
// These are read from the environment, as huggingface_hub 1.0 reads them:
//
//   - HF_TOKEN, formerly HUGGING_FACE_HUB_TOKEN, or else the file that HF_TOKEN_PATH names, which
//     is token in HF_HOME: sent to the hub's own host and to no other.
//     HF_HUB_DISABLE_IMPLICIT_TOKEN=1 sends none.
//   - HF_ENDPOINT is another server that speaks the same protocol.
//   - HF_HUB_CACHE, formerly HUGGINGFACE_HUB_CACHE, is the cache: otherwise hub in HF_HOME, which
//     is huggingface in XDG_CACHE_HOME, which is ~/.cache. In these and in HF_TOKEN_PATH a leading
//     ~ and $NAME are replaced.
//   - HF_HUB_OFFLINE=1, or where that is not set TRANSFORMERS_OFFLINE=1: nothing is asked for and
//     what is in the cache is taken.
//   - HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT are after how many seconds without an answer
//     a question and a download are given up; 30 where they are not set. Downloads are then tried
//     again.
//   - HF_HUB_DISABLE_PROGRESS_BARS=1: [Options.Progress] is not called.
//   - HF_HUB_DISABLE_SYMLINKS=1: files are copied into snapshots.
//
// Not honoured: HF_XET_* and HF_HUB_DISABLE_XET, for files come by the hub's plain downloads;
// HF_HUB_DISABLE_SHARED_BLOBS, for none are shared between models; HF_OIDC_RESOURCE;
// HF_HUB_USER_AGENT_ORIGIN; HUGGINGFACE_CO_STAGING; and telemetry, of which there is none. Where
// the hub cannot be reached the cache is not taken unasked: that is what being offline says.
//
// # Trust
//
// Names, hashes and sizes that a server gives are checked before they become paths or memory. A
// file is no longer than the server said. A file that is in the cache already is compared with its
// hash once; the folder .locks of the cache remembers that it was. Nothing is written through a
// link.
package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// Options are the options of [Fetch]. The zero value follows the environment, as huggingface_hub
// does.
type Options struct {
	Endpoint string // of the server; empty means HF_ENDPOINT, or the hub
	Cache    string // a folder; empty means HF_HUB_CACHE, or hub in HF_HOME, or ~/.cache/huggingface/hub
	Token    string // empty means HF_TOKEN, or what the file HF_TOKEN_PATH holds, or token in HF_HOME
	Offline  bool   // takes what is in the cache; HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE of 1 sets it too

	// Want picks files by their names; nil picks what belongs to a model or an adapter:
	// configurations, tokenizers, and weights in safetensors.
	Want func(file string) bool
	// Progress, if it is not nil, is told how many bytes of a file are there, and how many it has.
	Progress func(file string, done, total int64)
	// Client makes the requests; nil means one that gives up where a server does not answer in the
	// time that the environment says.
	Client *http.Client
}

// stall is how long a server may send nothing, where the environment does not say.
const stall = 30 * time.Second

// Fetch downloads the files of a model, "owner/name" or "owner/name@revision", that are not in the
// cache yet, and returns the folder that has them. A revision is a branch, a tag or a commit; none
// means main.
func Fetch(ctx context.Context, model string, o Options) (folder string, err error) {
	f, err := newFetcher(ctx, model, o)
	if err == nil {
		folder, err = f.fetch()
	}
	if err != nil {
		return "", fmt.Errorf("hub: %s: %w", model, err)
	}
	return folder, nil
}

// fetcher downloads one model.
type fetcher struct {
	Options
	ctx            context.Context
	name, revision string
	folder         string        // of the model in the cache
	asking         *http.Client  // for what is not a file's content
	stall          time.Duration // how long a download may bring nothing before it is made anew
}

var (
	modelName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,96}(/[A-Za-z0-9_.-]{1,96})?$`)
	commitID  = regexp.MustCompile(`^[0-9a-f]{40}$`)
	entityTag = regexp.MustCompile(`^[0-9A-Za-z_-]{1,128}$`)
)

func newFetcher(ctx context.Context, model string, o Options) (*fetcher, error) {
	f := &fetcher{Options: o, ctx: ctx}
	f.name, f.revision, _ = strings.Cut(model, "@")
	f.revision = cmp.Or(f.revision, "main")
	if !modelName.MatchString(f.name) || strings.Contains(f.name, "..") || strings.Contains(f.name, "--") {
		return nil, fmt.Errorf("the name is %q, it needs to be of the form owner/name", f.name)
	}
	if !isPath(f.revision) || strings.ContainsAny(f.revision, "\\?#%:") {
		return nil, fmt.Errorf("the revision is %q, it needs to be a branch, a tag or a commit", f.revision)
	}
	home := place("HF_HOME")
	if home == "" {
		cache := place("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("there is no place for the cache, HF_HOME can name one: %w", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	f.Cache = cmp.Or(f.Cache, place("HF_HUB_CACHE"), place("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))
	f.folder = filepath.Join(f.Cache, "models--"+strings.ReplaceAll(f.name, "/", "--"))
	f.Endpoint = strings.TrimRight(cmp.Or(f.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	if u, err := url.Parse(f.Endpoint); err != nil || u.Host == "" {
		return nil, fmt.Errorf("the endpoint is %q, it needs to be an address such as https://example.org", f.Endpoint)
	}
	f.Offline = f.Offline || isTrue(cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE")))
	if f.Token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		f.Token = strings.TrimSpace(cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN")))
		if content, err := os.ReadFile(cmp.Or(place("HF_TOKEN_PATH"), filepath.Join(home, "token"))); f.Token == "" && err == nil {
			f.Token = strings.TrimSpace(string(content))
		}
	}
	if isTrue(os.Getenv("HF_HUB_DISABLE_PROGRESS_BARS")) {
		f.Progress = nil
	}
	answer, err := seconds("HF_HUB_ETAG_TIMEOUT")
	if err != nil {
		return nil, err
	}
	if f.stall, err = seconds("HF_HUB_DOWNLOAD_TIMEOUT"); err != nil {
		return nil, err
	}
	f.asking = f.Client
	if f.Client == nil {
		f.asking, f.Client = clientWithin(answer), clientWithin(f.stall)
	}
	return f, nil
}

// clientWithin makes requests that are answered so soon.
func clientWithin(answer time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answer
	return &http.Client{Transport: transport}
}

// place is the path in a variable of the environment.
func place(variable string) string {
	path := os.Expand(os.Getenv(variable), func(name string) string {
		if value, found := os.LookupEnv(name); found {
			return value
		}
		return "$" + name
	})
	if user, err := os.UserHomeDir(); err == nil && (path == "~" || strings.HasPrefix(path, "~/")) {
		return user + path[1:]
	}
	return path
}

// seconds is the duration in a variable of the environment; none, and 0, mean stall.
func seconds(variable string) (time.Duration, error) {
	text := strings.TrimSpace(cmp.Or(os.Getenv(variable), "0"))
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1<<20 {
		return 0, fmt.Errorf("%s is %.40q, it needs to be a number of seconds", variable, text)
	}
	return cmp.Or(time.Duration(n)*time.Second, stall), nil
}

func isTrue(value string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(value))
}

func (f *fetcher) fetch() (string, error) {
	if f.Offline {
		return f.cached()
	}
	commit, files, err := f.list()
	if err != nil {
		return "", err
	}
	snapshot := filepath.Join(f.folder, "snapshots", commit)
	if files, err = f.pick(files); err != nil {
		return "", err
	}
	// The index of shards comes before them, and says which there are.
	var shards map[string]bool
	for _, name := range files {
		if isShard(name) && shards != nil && !shards[name] {
			continue
		}
		if err := f.file(commit, snapshot, name); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if name == indexFile {
			if shards, err = readIndex(filepath.Join(snapshot, name)); err != nil {
				return "", err
			}
		}
	}
	if f.revision != commit {
		if err := writeWhole(filepath.Join(f.folder, "refs", filepath.FromSlash(f.revision)), commit); err != nil {
			return "", err
		}
	}
	return snapshot, nil
}

// cached is the folder that an earlier download has filled.
func (f *fetcher) cached() (string, error) {
	commit := f.revision
	if !commitID.MatchString(commit) {
		content, err := plainfile.ReadFile(filepath.Join(f.folder, "refs", filepath.FromSlash(f.revision)), maxNote)
		if err != nil {
			return "", fmt.Errorf("it is not in the cache, and nothing is downloaded offline: %w", err)
		}
		if commit = strings.TrimSpace(string(content)); !commitID.MatchString(commit) {
			return "", fmt.Errorf("the cache says that %s is %.60q, which is no commit", f.revision, commit)
		}
	}
	snapshot := filepath.Join(f.folder, "snapshots", commit)
	if _, err := os.Stat(snapshot); err != nil {
		return "", fmt.Errorf("it is not in the cache, and nothing is downloaded offline: %w", err)
	}
	return snapshot, f.checkSnapshot(snapshot)
}

// list asks for the commit of the revision and the names of its files.
func (f *fetcher) list() (commit string, files []string, err error) {
	response, watch, err := f.watched(http.MethodGet, "/api/models/"+f.name+"/revision/"+url.PathEscape(f.revision), nil)
	if err != nil {
		return "", nil, fmt.Errorf("%w; with HF_HUB_OFFLINE=1 what is in the cache is taken", err)
	}
	defer watch.Close()
	content, err := io.ReadAll(io.LimitReader(watch, maxList+1))
	if err != nil {
		return "", nil, err
	}
	if len(content) > maxList {
		return "", nil, fmt.Errorf("the server's answer has more than %d bytes", maxList)
	}
	if response.StatusCode != http.StatusOK {
		return "", nil, &statusError{response.StatusCode, response.Status}
	}
	var info struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(content, &info); err != nil {
		return "", nil, fmt.Errorf("the server's answer: %w", err)
	}
	if !commitID.MatchString(info.SHA) {
		return "", nil, fmt.Errorf("the server says that the commit is %.60q, which is none", info.SHA)
	}
	for _, s := range info.Siblings {
		if !isPath(s.Name) || strings.ContainsAny(s.Name, "\\:") || strings.ContainsFunc(s.Name, unicode.IsControl) {
			return "", nil, fmt.Errorf("the server has a file called %.200q, which is not the name of a file in a folder", s.Name)
		}
		files = append(files, s.Name)
	}
	return info.SHA, files, nil
}

// maxName is the longest name that a file or a branch can have, in bytes.
const maxName = 500

// isPath reports whether a name is that of a file somewhere within a folder, written in the one
// way.
func isPath(name string) bool {
	return len(name) <= maxName && filepath.IsLocal(name) && name == path.Clean(name) && name != "."
}

// maxList and maxIndex bound what is read as a whole: the names of a model's files, and the index
// of its shards.
const (
	maxList  = 64 << 20
	maxIndex = 64 << 20
)

// maxNote bounds what the cache itself has of a revision or a file.
const maxNote = 1 << 10

const indexFile = "model.safetensors.index.json"

// pick chooses the files to download, small ones and the index of shards first.
func (f *fetcher) pick(files []string) ([]string, error) {
	want := f.Want
	if want == nil {
		want = func(name string) bool {
			// Where there are shards, a file of all weights beside them would be another copy.
			return isModelFile(name) && !(name == "model.safetensors" && slices.Contains(files, indexFile))
		}
	}
	var picked []string
	for _, name := range files {
		if want(name) {
			picked = append(picked, name)
		}
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("none of its %d files is asked for", len(files))
	}
	weights := func(name string) bool { return strings.HasSuffix(name, ".safetensors") }
	slices.SortFunc(picked, func(a, b string) int {
		if weights(a) != weights(b) {
			if weights(a) {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	return picked, nil
}

// isModelFile tells what a model consists of from other forms of its weights, pictures and the
// like.
func isModelFile(name string) bool {
	return slices.Contains([]string{
		"config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
		"special_tokens_map.json", "added_tokens.json", "merges.txt", "vocab.json", "vocab.txt", "spiece.model",
		"sentencepiece.bpe.model", "spm.model", "tekken.json", "tiktoken.model",
		"chat_template.jinja", "additional_chat_templates/tool_use.jinja",
		"model.safetensors", indexFile, "adapter_config.json", "adapter_model.safetensors",
		"modules.json", "config_sentence_transformers.json",
	}, name) || isShard(name) || isModule(name)
}

// isModule tells the files of modules that make one vector of those of a model's tokens, and what
// says how long a text may be.
func isModule(name string) bool {
	for _, pattern := range []string{"[0-9]_*/config.json", "[0-9]_*/model.safetensors", "sentence_*_config.json"} {
		if matches, err := path.Match(pattern, name); matches && err == nil {
			return true
		}
	}
	return false
}

func isShard(name string) bool {
	matches, err := filepath.Match("model-?????-of-?????.safetensors", name)
	return matches && err == nil
}

// readIndex lists the shards that an index names.
func readIndex(path string) (map[string]bool, error) {
	content, err := plainfile.ReadFile(path, maxIndex)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(content, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	shards := map[string]bool{}
	for _, shard := range index.WeightMap {
		shards[shard] = true
	}
	return shards, nil
}

// request asks the server for something, and makes an error of any answer but that it is there. A
// redirection to another host is followed for contents, without the token, and is the answer to a
// question for a header.
func (f *fetcher) request(method, path string, header http.Header) (*http.Response, error) {
	isContent := method == http.MethodGet && header != nil
	request, err := http.NewRequestWithContext(f.ctx, method, f.Endpoint+path, nil)
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		request.Header[key] = values
	}
	request.Header.Set("User-Agent", "stheno")
	request.Header.Set("Accept-Encoding", "identity") // lengths are those of the files
	if f.Token != "" {
		request.Header.Set("Authorization", "Bearer "+f.Token)
	}
	client := *f.asking
	if isContent {
		client = *f.Client
	}
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		switch {
		case len(via) > 10:
			return errors.New("the server redirects without end")
		case next.URL.Host == request.URL.Host && next.URL.Scheme == request.URL.Scheme:
			return nil
		case method == http.MethodHead:
			return http.ErrUseLastResponse
		}
		next.Header.Del("Authorization")
		return nil
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	redirected := response.StatusCode >= 300 && response.StatusCode < 400 && method == http.MethodHead
	if response.StatusCode >= 200 && response.StatusCode < 300 || redirected {
		return response, nil
	}
	response.Body.Close()
	err = &statusError{response.StatusCode, response.Status}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		if f.Token == "" {
			return nil, fmt.Errorf("%w: it does not exist, or HF_TOKEN needs to be set to see it", err)
		}
		return nil, fmt.Errorf("%w: it does not exist, or the token does not let you see it", err)
	case http.StatusNotFound:
		return nil, fmt.Errorf("%w: there is no such model or revision", err)
	}
	return nil, err
}

// statusError is an answer that is not what was asked for.
type statusError struct {
	code   int
	status string
}

func (e *statusError) Error() string { return "the server answers " + e.status }
