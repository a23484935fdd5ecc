package data_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/data"
)

// shardsOf writes files of some tokens each, which count up over all, in both formats, and opens
// them.
func shardsOf(t *testing.T, tokens ...int) *data.Shards {
	t.Helper()
	var paths []string
	next := 0
	for i, n := range tokens {
		ids := make([]int, n)
		for k := range ids {
			ids[k] = next
			next++
		}
		made, err := data.FromInts(ids)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "tokens.bin")
		if err := data.Write(path, made, []data.Format{data.LLMC32, data.LLMC}[i%2]); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	s, err := data.OpenShards(paths...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Each window of each file comes once an epoch, in another order in each, and far from where it
// lies; the order does not depend on how batches are asked for.
func TestStream(t *testing.T) {
	const length = 4
	sizes := []int{4 * 300, 3, 4*500 + 1, 5, 4*1000 + 3}
	shards := shardsOf(t, sizes...)
	windows := map[int]bool{} // by their first token
	at, total := 0, 0
	for _, n := range sizes {
		for w := range (n - 1) / length {
			windows[at+w*length] = true
		}
		at, total = at+n, total+(n-1)/length
	}
	for _, shuffle := range []int{0, 1, 100, 1 << 20} {
		b, err := data.Stream(shards, data.StreamOptions{Rows: 3, Length: length, Shuffle: shuffle, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		if b.Count() != total || shards.Len() != at {
			t.Fatalf("there are %d windows and %d tokens, want %d and %d", b.Count(), shards.Len(), total, at)
		}
		epochs := [2][]int{}
		for n := range (2*total + 2) / 3 {
			batch, err := b.Batch(n)
			if err != nil {
				t.Fatal(err)
			}
			tokens, targets := batch["tokens"].Ints(), batch["targets"].Ints()
			for row := range 3 {
				if i := n*3 + row; i < 2*total {
					epochs[i/total] = append(epochs[i/total], tokens[row*length])
				}
			}
			for i := range tokens {
				if tokens[i] != tokens[i/length*length]+i%length || targets[i] != tokens[i]+1 {
					t.Fatalf("batch %d has tokens %v and targets %v", n, tokens, targets)
				}
			}
		}
		for e, firsts := range epochs {
			seen := map[int]bool{}
			for _, first := range firsts {
				if !windows[first] || seen[first] {
					t.Fatalf("shuffle %d: epoch %d has the window at %d, which is none, or comes twice", shuffle, e, first)
				}
				seen[first] = true
			}
			if sorted := slices.IsSorted(firsts); sorted != (shuffle == 1) {
				t.Errorf("shuffle %d: epoch %d is sorted: %v", shuffle, e, sorted)
			}
		}
		if slices.Equal(epochs[0], epochs[1]) != (shuffle == 1) {
			t.Errorf("shuffle %d: two epochs have the same order", shuffle)
		}
		again, err := b.Batch(7)
		if err != nil {
			t.Fatal(err)
		}
		for row := range 3 {
			if again["tokens"].Ints()[row*length] != epochs[0][7*3+row] {
				t.Errorf("shuffle %d: batch 7 is another one when it is asked for alone", shuffle)
			}
		}
	}
}

// Windows that are mixed come from as few runs as fit: a batch reads few places.
func TestStreamLocality(t *testing.T) {
	b, err := data.Stream(shardsOf(t, 64*4*100+1), data.StreamOptions{Rows: 128, Length: 4, Shuffle: 128, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	runs := map[int]bool{}
	batch, err := b.Batch(3)
	if err != nil {
		t.Fatal(err)
	}
	for row := range 128 {
		runs[batch["tokens"].Ints()[row*4]/(64*4)] = true
	}
	if len(runs) != 2 {
		t.Errorf("128 windows are of %d runs, want 2", len(runs))
	}
}

// Packed documents end behind their separator, and learn nothing of the next.
func TestStreamPacked(t *testing.T) {
	ids, err := data.FromInts([]int{1, 2, 0, 3, 4, 5, 0, 0, 6, 7, 8, 9, 10})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens.bin")
	if err := data.Write(path, ids, data.LLMC); err != nil {
		t.Fatal(err)
	}
	shards, err := data.OpenShards(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := data.Stream(shards, data.StreamOptions{Rows: 2, Length: 6, Shuffle: 1, Packed: true})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := b.Batch(0)
	if err != nil {
		t.Fatal(err)
	}
	const none = nn.IgnoreTarget
	for name, want := range map[string][]int{
		"tokens":    {1, 2, 0, 3, 4, 5, 0, 0, 6, 7, 8, 9},
		"targets":   {2, 0, none, 4, 5, 0, none, none, 7, 8, 9, 10},
		"positions": {0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 2, 3},
		"ends":      {0, 3, 6, 7, 8, 12, 12, 12, 12},
	} {
		if got := batch[name].Ints(); !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if err := shards.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Batch(0); err == nil || !strings.Contains(err.Error(), "the tokens are closed") {
		t.Errorf("a batch of closed shards: %v", err)
	}
}

// More files than are open at once are read in turn, and one that is cut short meanwhile is an
// error.
func TestManyShards(t *testing.T) {
	sizes := make([]int, 40)
	for i := range sizes {
		sizes[i] = 9
	}
	shards := shardsOf(t, sizes...)
	b, err := data.Stream(shards, data.StreamOptions{Rows: 1, Length: 4, Shuffle: 64, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for n := range b.Count() {
		batch, err := b.Batch(n)
		if err != nil {
			t.Fatal(err)
		}
		seen[batch["tokens"].Ints()[0]] = true
	}
	if len(seen) != 80 {
		t.Errorf("there are %d windows, want 80", len(seen))
	}
}

func TestShardsErrors(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	short := file("short.bin", strings.Repeat("\x01\x00", 600))
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{nil, "there are no paths"},
		{[]string{filepath.Join(folder, "none.bin")}, "none.bin"},
		{[]string{file("empty.bin", "")}, "is empty"},
		{[]string{short, file("text.bin", strings.Repeat("words ", 500))}, "text.bin holds text"},
		{[]string{file("lying.bin", "\x88\xd8\x34\x01\x01\x00\x00\x00\xff\x00\x00\x00"+strings.Repeat("\x00", 2000))}, "the 255 tokens of its header need"},
	} {
		if _, err := data.OpenShards(c.paths...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: the error is %v, want %q", c.paths, err, c.want)
		}
	}
	shards, err := data.OpenShards(short)
	if err != nil {
		t.Fatal(err)
	}
	defer shards.Close()
	for _, c := range []struct {
		s    *data.Shards
		o    data.StreamOptions
		want string
	}{
		{nil, data.StreamOptions{Rows: 1, Length: 1}, "shards is nil"},
		{shards, data.StreamOptions{}, "rows is 0"},
		{shards, data.StreamOptions{Rows: 1, Length: 600}, "no file has 601 tokens"},
		{shards, data.StreamOptions{Rows: 1, Length: 2, Shuffle: -1}, "shuffle is -1"},
		{shards, data.StreamOptions{Rows: 1, Length: 2, Packed: true, Separator: -1}, "separator is -1"},
	} {
		if _, err := data.Stream(c.s, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.o, err, c.want)
		}
	}
	b, err := data.Stream(shards, data.StreamOptions{Rows: 2, Length: 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Batch(-1); err == nil {
		t.Error("batch -1 is no error")
	}
	if err := os.Truncate(short, 100); err != nil {
		t.Fatal(err)
	}
	var failed error
	for n := range 30 {
		if _, err := b.Batch(n); err != nil {
			failed = err
		}
	}
	if failed == nil || !strings.Contains(failed.Error(), "which had 600 tokens") {
		t.Errorf("a file that was cut short: %v", failed)
	}
	if _, err := new(data.StreamBatches).Batch(0); err == nil {
		t.Error("zero StreamBatches give a batch")
	}
}
