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
)

// file makes sure that a file of a commit is in the snapshot: a link to a blob, which is named by its hash.
func (f *fetcher) file(commit, snapshot, name string) error {
	to := filepath.Join(snapshot, filepath.FromSlash(name))
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	path := "/" + f.name + "/resolve/" + commit + "/" + (&url.URL{Path: name}).EscapedPath()
	b, err := f.describe(path)
	if err != nil {
		return err
	}
	b.path, b.name = path, name
	b.at = filepath.Join(f.folder, "blobs", b.tag)
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
		if err := os.Symlink(from, to); err == nil || errors.Is(err, fs.ErrExist) {
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
	if info, err := os.Stat(b.at); err == nil && info.Size() == b.size {
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
	if err := check(b, part); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, b.at)
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
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o644)
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
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	own := *f
	own.ctx = ctx
	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	response, err := own.request(http.MethodGet, b.path, header)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if have > 0 && response.StatusCode != http.StatusPartialContent {
		if have, err = 0, restart(file); err != nil { // the server sends it from the start
			return err
		}
	}
	if start := fmt.Sprintf("bytes %d-", have); have > 0 && !strings.HasPrefix(response.Header.Get("Content-Range"), start) {
		return fmt.Errorf("the server sends %q, asked for were bytes from %d on", response.Header.Get("Content-Range"), have)
	}
	watch := time.AfterFunc(f.stall, func() { cancel(errors.New("the server sends nothing any more")) })
	defer watch.Stop()
	buffer := make([]byte, 1<<20)
	for have < b.size {
		n, err := response.Body.Read(buffer[:min(int64(len(buffer)), b.size-have)])
		watch.Reset(f.stall)
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

func restart(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.Seek(0, io.SeekStart)
	return err
}

// check compares a file with its hash, as far as that is one.
func check(b *blob, path string) error {
	var sum hash.Hash
	switch len(b.tag) {
	case hex.EncodedLen(sha256.Size):
		sum = sha256.New()
	case hex.EncodedLen(sha1.Size):
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", b.size) // Git's own
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
	if have := hex.EncodeToString(sum.Sum(nil)); have != strings.ToLower(b.tag) {
		return fmt.Errorf("what was downloaded has the hash %s, the server says %s", have, b.tag)
	}
	return nil
}

// writeWhole writes a small file that appears whole.
func writeWhole(path, content string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return intoPlace(path, func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return intoPlace(to, func(w io.Writer) error { _, err := io.Copy(w, source); return err })
}

func intoPlace(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	if err = errors.Join(write(file), file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
