package data_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// batch is batch n, whose rows are checked: each is a window of tokens that count up, and the
// targets are the window one place later. It gives where the rows begin.
func batch(t interface{ Fatalf(string, ...any) }, b data.Batches, n, size int) (starts []int) {
	got, err := b.Batch(n)
	if err != nil {
		t.Fatalf("batch %d: %v", n, err)
	}
	rows, length := got["tokens"].Shape()[0], got["tokens"].Shape()[1]
	tokens, targets := got["tokens"].Ints(), got["targets"].Ints()
	for row := range rows {
		start := tokens[row*length]
		for i := range length {
			if tokens[row*length+i] != start+i || targets[row*length+i] != start+i+1 {
				t.Fatalf("row %d of batch %d is %v with targets %v", row, n, tokens[row*length:][:length], targets[row*length:][:length])
			}
		}
		if start+length >= size {
			t.Fatalf("row %d of batch %d begins at %d of %d tokens", row, n, start, size)
		}
		starts = append(starts, start)
	}
	return starts
}

// problem is random data and a shape that fits it.
func problem(t *rapid.T) (tokens *data.Tokens, rows, length int, seed uint64) {
	length = rapid.IntRange(1, 20).Draw(t, "length")
	size := rapid.IntRange(length+1, 300).Draw(t, "size")
	return count(t, size), rapid.IntRange(1, 9).Draw(t, "rows"), length, rapid.Uint64().Draw(t, "seed")
}

func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens, rows, length, seed := problem(t)
		b, err := data.Random(tokens, rows, length, seed)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(0, math.MaxInt/rows-1).Draw(t, "n")
		first := batch(t, b, n, tokens.Len())
		batch(t, b, 0, tokens.Len())
		if again := batch(t, b, n, tokens.Len()); !slices.Equal(first, again) {
			t.Fatalf("batch %d began at %v and then at %v", n, first, again)
		}
	})
}

// All places are as likely, the first and the last included, and rows, batches and seeds have
// starts of their own.
func TestRandomIsUniform(t *testing.T) {
	const size, length, rows, batches = 20, 4, 8, 2000
	for _, seed := range []uint64{0, 1, 1 << 63} {
		b, err := data.Random(count(t, size), rows, length, seed)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]int, size-length)
		for n := range batches {
			for _, start := range batch(t, b, n, size) {
				seen[start]++
			}
		}
		// The variance of a count is about its mean, 1000; the bound is 5 standard deviations.
		for start, times := range seen {
			if !(math.Abs(float64(times)-rows*batches/(size-length)) <= 160) {
				t.Errorf("seed %d: %d of %d rows begin at %d: %v", seed, times, rows*batches, start, seen)
			}
		}
	}
}

// The first batches of a seed stay what they are: runs that were begun with an earlier version go
// on as they would have.
func TestGoldenStarts(t *testing.T) {
	tokens := count(t, 1_000_000)
	random, err := data.Random(tokens, 3, 64, 1337)
	if err != nil {
		t.Fatal(err)
	}
	shuffled, err := data.Shuffled(tokens, 3, 64, 1337)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		b    data.Batches
		n    int
		want []int
	}{
		{"Random", random, 0, []int{403388, 6661, 467157}},
		{"Random", random, 1, []int{197712, 758349, 777640}},
		{"Random", random, 1 << 30, []int{632961, 158081, 331753}},
		{"Shuffled", shuffled, 0, []int{96640, 571584, 687424}},
		{"Shuffled", shuffled, 5208, []int{844416, 770816, 378624}},
	}
	for _, c := range cases {
		if got := batch(t, c.b, c.n, tokens.Len()); !slices.Equal(got, c.want) {
			t.Errorf("the rows of batch %d of %s begin at %v instead of %v", c.n, c.name, got, c.want)
		}
	}
}

func TestWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens, rows, length, seed := problem(t)
		sequential, err := data.Sequential(tokens, rows, length)
		if err != nil {
			t.Fatal(err)
		}
		shuffled, err := data.Shuffled(tokens, rows, length, seed)
		if err != nil {
			t.Fatal(err)
		}
		windows := (tokens.Len() - 1) / length
		if sequential.Count() != windows || shuffled.Count() != windows {
			t.Fatalf("there are %d and %d windows instead of %d", sequential.Count(), shuffled.Count(), windows)
		}
		const epochs = 3
		var starts, shuffledStarts []int
		for n := range (epochs*windows + rows - 1) / rows {
			starts = append(starts, batch(t, sequential, n, tokens.Len())...)
			shuffledStarts = append(shuffledStarts, batch(t, shuffled, n, tokens.Len())...)
		}
		for epoch := range epochs {
			order := slices.Clone(shuffledStarts[epoch*windows:][:windows])
			slices.Sort(order)
			for i, start := range starts[epoch*windows:][:windows] {
				if start != i*length {
					t.Fatalf("window %d of epoch %d begins at %d", i, epoch, start)
				}
				if order[i] != i*length {
					t.Fatalf("epoch %d has the windows %v", epoch, order)
				}
			}
		}
	})
}

// Each window is as likely in each place of a shuffled epoch, and epochs and seeds differ.
func TestShuffledIsUniform(t *testing.T) {
	for _, windows := range []int{1, 2, 3, 5, 8, 13} {
		const epochs = 4000
		seen := make([]int, windows*windows)
		for seed := range uint64(2) {
			b, err := data.Shuffled(count(t, windows+1), windows, 1, seed)
			if err != nil {
				t.Fatal(err)
			}
			for epoch := range epochs {
				for place, start := range batch(t, b, epoch, windows+1) {
					seen[place*windows+start]++
				}
			}
		}
		mean := 2 * epochs / float64(windows)
		for i, times := range seen {
			if !(math.Abs(float64(times)-mean) <= 5*math.Sqrt(mean)) {
				t.Errorf("of %d windows, window %d comes %d times at place %d, it needs to be about %.0f",
					windows, i%windows, times, i/windows, mean)
			}
		}
	}
}

func TestBatchesErrors(t *testing.T) {
	random := func(tokens *data.Tokens, rows, length int) error {
		_, err := data.Random(tokens, rows, length, 1)
		return err
	}
	makers := map[string]func(*data.Tokens, int, int) error{
		"Random":     random,
		"Sequential": func(t *data.Tokens, rows, length int) error { _, err := data.Sequential(t, rows, length); return err },
		"Shuffled":   func(t *data.Tokens, rows, length int) error { _, err := data.Shuffled(t, rows, length, 1); return err },
	}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			check(t, make(count(t, 65), 2, 64), "")
			check(t, make(count(t, 64), 2, 64), name+": tokens holds 64, a row of 64 and the target after it need at least 65")
			check(t, make(count(t, 0), 1, 1), "tokens holds 0")
			check(t, make(nil, 1, 1), "tokens is nil")
			check(t, make(count(t, 9), 0, 4), "rows is 0 and length is 4")
			check(t, make(count(t, 9), 1, -4), "rows is 1 and length is -4")
			check(t, make(count(t, 9), math.MaxInt, 2), "product")
			check(t, make(count(t, 9), 1, math.MaxInt), "product")
		})
	}

	b, err := data.Random(count(t, 9), 2, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	prefetcher, err := data.Prefetch(b, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []data.Batches{b, prefetcher} {
		t.Run(fmt.Sprintf("%T", b), func(t *testing.T) {
			_, err := b.Batch(-1)
			check(t, err, "n is -1")
			_, err = b.Batch(math.MaxInt)
			check(t, err, "n is ")
		})
	}
	check(t, prefetcher.Close(), "")

	tokens := count(t, 9)
	if b, err = data.Random(tokens, 2, 4, 1); err != nil {
		t.Fatal(err)
	}
	check(t, tokens.Close(), "")
	_, err = b.Batch(0)
	check(t, err, "Random: the tokens are closed")
}

// A Prefetcher gives the same batches as those underneath, in any order.
func TestPrefetch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens, rows, length, seed := problem(t)
		b, err := data.Random(tokens, rows, length, seed)
		if err != nil {
			t.Fatal(err)
		}
		p, err := data.Prefetch(b, rapid.IntRange(0, 20).Draw(t, "from"), rapid.IntRange(1, 5).Draw(t, "depth"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, from := range rapid.SliceOfN(rapid.IntRange(0, 20), 1, 5).Draw(t, "order") {
			for n := from; n < from+3; n++ {
				got, want := batch(t, p, n, tokens.Len()), batch(t, b, n, tokens.Len())
				if !slices.Equal(got, want) {
					t.Fatalf("the rows of batch %d begin at %v instead of %v", n, got, want)
				}
			}
		}
	})
}

// fake are batches of one token, the number of the batch, that fail where a number can be divided
// by 3, and that notice when two goroutines use them at once.
type fake struct {
	mutex  sync.Mutex
	filled []int
}

var errFake = errors.New("divisible by three")

func (f *fake) Batch(n int) (data.Batch, error) {
	if !f.mutex.TryLock() {
		panic("two goroutines use the batches at once")
	}
	defer f.mutex.Unlock()
	f.filled = append(f.filled, n)
	if n%3 == 0 {
		return nil, fmt.Errorf("batch %d: %w", n, errFake)
	}
	return data.Batch{"n": tensor.New(tensor.WithShape(1), tensor.WithBacking([]int{n}))}, nil
}

// Synctest fails a test whose goroutines do not end.
func TestPrefetchWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{}
		p, err := data.Prefetch(source, 4, 3)
		if err != nil {
			t.Fatal(err)
		}
		steps := []struct {
			n      int
			filled []int // what was made when all is quiet, the batch asked for included
		}{
			{4, []int{4, 5, 6, 7}},
			{5, []int{8}},
			{6, []int{9}},
			{100, []int{100, 101, 102, 103}},
			{101, []int{104}},
			{2, []int{2, 3, 4, 5}},
			{3, []int{6}},
			{5, []int{7, 8}},
		}
		for _, step := range steps {
			synctest.Wait()
			before := len(source.filled)
			if step.n == 4 {
				before = 0
			}
			b, err := p.Batch(step.n)
			if (err != nil) != (step.n%3 == 0) || err != nil && !errors.Is(err, errFake) {
				t.Errorf("the error of batch %d is %v", step.n, err)
			}
			if err == nil && b["n"].Ints()[0] != step.n {
				t.Errorf("batch %d is %v", step.n, b["n"])
			}
			synctest.Wait()
			if got := source.filled[before:]; !slices.Equal(got, step.filled) {
				t.Errorf("for batch %d the batches %v were made instead of %v", step.n, got, step.filled)
			}
		}
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		_, err = p.Batch(0)
		check(t, err, "closed")
	})
}

// Goroutines that ask at once all get what they ask for, until the Prefetcher is closed under them.
func TestPrefetchConcurrently(t *testing.T) {
	p, err := data.Prefetch(&fake{}, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	var group, half sync.WaitGroup
	half.Add(4)
	for g := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				n := (i*7 + g*11) % 50
				b, err := p.Batch(n)
				if err != nil && !errors.Is(err, errFake) {
					check(t, err, "closed")
					return
				}
				if (err != nil) != (n%3 == 0) || err == nil && b["n"].Ints()[0] != n {
					t.Errorf("batch %d is %v, error %v", n, b["n"], err)
				}
				if i == 100 {
					half.Done()
				}
			}
		})
	}
	half.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	group.Wait()
}

func TestPrefetchErrors(t *testing.T) {
	for _, c := range []struct {
		b           data.Batches
		from, depth int
		want        string
	}{
		{nil, 0, 1, "Prefetch: b is nil"},
		{&fake{}, -1, 1, "from is -1"},
		{&fake{}, 0, 0, "depth is 0"},
	} {
		_, err := data.Prefetch(c.b, c.from, c.depth)
		check(t, err, c.want)
	}
}

func BenchmarkBatch(b *testing.B) {
	const rows, length = 12, 64
	tokens := count(b, 1_000_000)
	random, err := data.Random(tokens, rows, length, 1)
	if err != nil {
		b.Fatal(err)
	}
	sequential, err := data.Sequential(tokens, rows, length)
	if err != nil {
		b.Fatal(err)
	}
	shuffled, err := data.Shuffled(tokens, rows, length, 1)
	if err != nil {
		b.Fatal(err)
	}
	prefetcher, err := data.Prefetch(random, 0, 2)
	if err != nil {
		b.Fatal(err)
	}
	defer prefetcher.Close()
	for _, c := range []struct {
		name    string
		batches data.Batches
	}{{"Random", random}, {"Sequential", sequential}, {"Shuffled", shuffled}, {"Prefetcher", prefetcher}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(rows * length * 2)
			for n := 0; b.Loop(); n++ {
				if _, err := c.batches.Batch(n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// panicking are batches of which one panics.
type panicking struct{}

func (panicking) Batch(n int) (data.Batch, error) {
	if n == 2 {
		panic("a fault")
	}
	return data.Batch{}, nil
}

// A panic where batches are made is the error of that batch.
func TestPrefetchOfAPanic(t *testing.T) {
	p, err := data.Prefetch(panicking{}, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for n := range 5 {
		_, err := p.Batch(n)
		if (err != nil) != (n == 2) || err != nil && !strings.HasSuffix(err.Error(), ": Prefetcher: batch 2: it panics: a fault") {
			t.Errorf("batch %d: %v", n, err)
		}
	}
}
