package hub

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// A file of the cache was written by some process, perhaps by one that died or that trusts nobody.
// Each is compared with its hash before it is used. A note in the cache's .locks remembers the size
// and the time of a file that was, so that it happens once.

// note is where it is remembered that a file was compared with its hash. A copy of a blob has its
// own.
func (f *fetcher) note(path, tag string) string {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && filepath.Base(path) != tag {
		tag += ".copy"
	}
	return filepath.Join(f.Cache, ".locks", filepath.Base(f.folder), tag+".checked")
}

// state is what changes when a file is written.
func state(info fs.FileInfo) string {
	return fmt.Sprintf("%d %d\n", info.Size(), info.ModTime().UnixNano())
}

// checkOnce compares a file with its hash, unless that was done since it was written. A size below
// 0 is any.
func (f *fetcher) checkOnce(path, tag string, size int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || size >= 0 && info.Size() != size {
		return fmt.Errorf("%s is not a file of %d bytes", path, size)
	}
	if known, err := plainfile.ReadFile(f.note(path, tag), maxNote); err == nil && string(known) == state(info) {
		return nil
	}
	if err := check(path, tag, info.Size()); err != nil {
		return err
	}
	f.remember(path, tag)
	return nil
}

// remember notes that a file has its hash. A cache that cannot be written to is read again each
// time.
func (f *fetcher) remember(path, tag string) {
	if info, err := os.Stat(path); err == nil {
		_ = writeWhole(f.note(path, tag), state(info))
	}
}

// tagOf is the hash of a snapshot's file, which is the name of the blob that it is a link to.
func (f *fetcher) tagOf(path string) (tag string, isLink bool) {
	target, err := os.Readlink(path)
	if err != nil {
		return "", false
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	tag = filepath.Base(target)
	return tag, target == filepath.Join(f.folder, "blobs", tag) && entityTag.MatchString(tag)
}

// isChecked reports whether a snapshot's file is there and has its hash. Of a file that is not a
// link the server is asked for the hash first.
func (f *fetcher) isChecked(path string) bool {
	tag, isLink := f.tagOf(path)
	return isLink && f.checkOnce(path, tag, -1) == nil
}

func isLinkTo(path, target string) bool {
	have, err := os.Readlink(path)
	return err == nil && have == target
}

// checkSnapshot compares all files of a snapshot with their hashes.
func (f *fetcher) checkSnapshot(snapshot string) error {
	return filepath.WalkDir(snapshot, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		tag, isLink := f.tagOf(path)
		if !isLink {
			return nil // a copy, whose hash nobody here knows
		}
		if err := f.checkOnce(path, tag, -1); err != nil {
			name, _ := filepath.Rel(snapshot, path)
			return fmt.Errorf("%s is damaged in the cache: %w", name, err)
		}
		return nil
	})
}
