package hub

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/internal/filelock"
	"github.com/stheno-ml/stheno/internal/plainfile"
)

// file makes sure that a file of a commit is in the snapshot: a link to a blob, which is named by
// its hash.
func (f *fetcher) file(commit, snapshot, name string) error {
	to := filepath.Join(snapshot, filepath.FromSlash(name))
	if f.isChecked(to) {
		return nil
	}
	path := "/" + f.name + "/resolve/" + commit + "/" + (&url.URL{Path: name}).EscapedPath()
	b, err := f.describe(path)
	if err != nil {
		return err
	}
	if name == indexFile && b.size > maxIndex {
		return fmt.Errorf("it has %d bytes, it can have %d", b.size, maxIndex)
	}
	b.path, b.name = path, name
	b.at = filepath.Join(f.folder, "blobs", b.tag)
	if info, err := os.Lstat(to); err == nil && info.Mode().IsRegular() && f.checkOnce(to, b.tag, b.size) == nil {
		return nil
	}
	if err := f.download(b); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	from, err := filepath.Rel(filepath.Dir(to), b.at)
	if err != nil {
		return err
	}
	if !isTrue(os.Getenv("HF_HUB_DISABLE_SYMLINKS")) {
		err := os.Symlink(from, to)
		if errors.Is(err, fs.ErrExist) && !isLinkTo(to, from) {
			// What lies there is not what the server has.
			err = errors.Join(os.Remove(to), os.Symlink(from, to))
		}
		if err == nil || errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	return copyFile(to, b.at) // where it is asked for, or the filesystem has no links
}

// blob is a file's content: what the server says of it, and where it goes.
type blob struct {
	path, name string
	tag        string // its hash: SHA-256 of large files, that of Git for small ones
	size       int64
	at         string
}

// describe asks for a file's hash and size.
func (f *fetcher) describe(path string) (*blob, error) {
	response, err := f.request(http.MethodHead, path, nil)
	if err != nil {
		return nil, err
	}
	response.Body.Close()
	h := response.Header
	tag := cmp.Or(h.Get("X-Linked-Etag"), h.Get("Etag"))
	b := &blob{tag: strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)}
	if !entityTag.MatchString(b.tag) {
		return nil, fmt.Errorf("the server gives %.60q for its hash, which is none", tag)
	}
	if b.size, err = strconv.ParseInt(cmp.Or(h.Get("X-Linked-Size"), h.Get("Content-Length")), 10, 64); err != nil || b.size < 0 {
		return nil, errors.New("the server does not say how long it is")
	}
	return b, nil
}

// attempts is how often in a row a download may end without a byte.
const attempts = 5

// pause is how much longer each further attempt waits.
var pause = time.Second

// download makes sure that the blob is there, whole and checked. One process at a time does it.
func (f *fetcher) download(b *blob) error {
	locks := filepath.Join(f.Cache, ".locks", filepath.Base(f.folder))
	for _, folder := range []string{locks, filepath.Dir(b.at)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	lock, err := f.lock(filepath.Join(locks, b.tag+".lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if f.checkOnce(b.at, b.tag, b.size) == nil {
		return nil
	}
	part := b.at + ".incomplete"
	for failures := 0; ; failures++ {
		before := sizeOf(part)
		err := f.receive(b, part)
		if err == nil {
			break
		}
		if f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		if sizeOf(part) > before {
			failures = 0
		}
		var refused *statusError
		if isRefusal := errors.As(err, &refused) && refused.code < 500 && refused.code != http.StatusTooManyRequests; isRefusal || failures == attempts {
			return err
		}
		select {
		case <-time.After(time.Duration(failures) * pause):
		case <-f.ctx.Done():
		}
	}
	if err := check(part, b.tag, b.size); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if err := os.Rename(part, b.at); err != nil {
		return err
	}
	f.remember(b.at, b.tag)
	return nil
}

// lock waits for a file's lock.
func (f *fetcher) lock(path string) (*os.File, error) {
	for {
		lock, err := filelock.Create(path)
		if !errors.Is(err, filelock.ErrLocked) {
			return lock, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-f.ctx.Done():
			return nil, context.Cause(f.ctx)
		}
	}
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// receive asks for what is missing of a blob and appends it.
func (f *fetcher) receive(b *blob, part string) (err error) {
	file, err := plainfile.OpenOwn(part)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	have, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if have > b.size {
		if have, err = 0, restart(file); err != nil {
			return err
		}
	}
	if f.Progress != nil {
		f.Progress(b.name, have, b.size)
	}
	if have == b.size {
		return nil
	}
	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	response, watch, err := f.watched(http.MethodGet, b.path, header)
	if err != nil {
		return err
	}
	defer watch.Close()
	if have > 0 && response.StatusCode != http.StatusPartialContent {
		if have, err = 0, restart(file); err != nil { // the server sends it from the start
			return err
		}
	}
	if start := fmt.Sprintf("bytes %d-", have); have > 0 && !strings.HasPrefix(response.Header.Get("Content-Range"), start) {
		return fmt.Errorf("the server sends %q, asked for were bytes from %d on", response.Header.Get("Content-Range"), have)
	}
	buffer := make([]byte, 1<<20)
	for have < b.size {
		if f.ctx.Err() != nil { // bytes that are there already could be read on
			return context.Cause(f.ctx)
		}
		n, err := watch.Read(buffer[:min(int64(len(buffer)), b.size-have)])
		if n > 0 {
			if _, err := file.Write(buffer[:n]); err != nil {
				return err
			}
			have += int64(n)
			if f.Progress != nil {
				f.Progress(b.name, have, b.size)
			}
		}
		if err == io.EOF && have < b.size {
			return fmt.Errorf("the server ended after %d of %d bytes", have, b.size)
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// watched makes a request whose answer is read through a watch.
func (f *fetcher) watched(method, path string, header http.Header) (*http.Response, *watch, error) {
	ctx, cancel := context.WithCancelCause(f.ctx)
	own := *f
	own.ctx = ctx
	response, err := own.request(method, path, header)
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	w := &watch{body: response.Body, cancel: cancel, stall: f.stall}
	w.timer = time.AfterFunc(f.stall, func() { cancel(errors.New("the server sends nothing any more")) })
	return response, w, nil
}

// watch reads an answer and gives it up when nothing comes for some time.
type watch struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	stall  time.Duration
	timer  *time.Timer
}

func (w *watch) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.timer.Reset(w.stall)
	return n, err
}

func (w *watch) Close() error {
	w.timer.Stop()
	w.cancel(nil)
	return w.body.Close()
}

func restart(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.Seek(0, io.SeekStart)
	return err
}

// check compares a file with its hash, as far as that is one.
func check(path, tag string, size int64) error {
	var sum hash.Hash
	switch len(tag) {
	case hex.EncodedLen(sha256.Size):
		sum = sha256.New()
	case hex.EncodedLen(sha1.Size):
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", size) // Git's own
	default:
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if have := hex.EncodeToString(sum.Sum(nil)); have != strings.ToLower(tag) {
		return fmt.Errorf("what was downloaded has the hash %s, the server says %s", have, tag)
	}
	return nil
}

// writeWhole writes a small file that appears whole.
func writeWhole(path, content string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return plainfile.Write(path, func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return plainfile.Write(to, func(w io.Writer) error { _, err := io.Copy(w, source); return err })
}
