package serve_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/serve"
	"pgregory.net/rapid"
)

// digits is a tokenizer of the tokens 0 to 99, which are written as numbers.
type digits struct{}

func (digits) Encode(string) ([]int, error) { return nil, errors.New("nothing is encoded") }
func (digits) Bytes(id int) ([]byte, error) { return fmt.Appendf(nil, "%d ", id), nil }
func (digits) Size() int                    { return 100 }
func following(window []int) int            { return (7*window[len(window)-1] + 3*len(window) + window[0]) % 100 }
func written(prompt []int, n int) (all []int) {
	window := slices.Clone(prompt)
	for range n {
		window = append(window, following(window))
	}
	return window[len(prompt):]
}

// fake is a decoder whose next token follows from its window. It fails the test where a text gets
// what it cannot get.
type fake struct {
	t        testing.TB
	capacity int
	windows  [][]int
	read     int // tokens that were given
	steps    int
	before   func(step int) error // of each step
}

func newFake(t testing.TB, batch, capacity int) *fake {
	return &fake{t: t, capacity: capacity, windows: make([][]int, batch)}
}

func (f *fake) Batch() int            { return len(f.windows) }
func (f *fake) Capacity() int         { return f.capacity }
func (f *fake) Window(text int) []int { return slices.Clone(f.windows[text]) }
func (f *fake) Reset()                { clear(f.windows) }
func (f *fake) Truncate(text, n int) error {
	f.windows[text] = f.windows[text][:n]
	return nil
}
func (f *fake) Fork(to, from, n int) error {
	f.windows[to] = slices.Clone(f.windows[from][:n])
	return nil
}
func (f *fake) Logits(tokens [][]int) ([][]float64, error) {
	f.steps++
	if f.before != nil {
		if err := f.before(f.steps); err != nil {
			f.Reset()
			return nil, err
		}
	}
	logits := make([][]float64, len(tokens))
	for text, more := range tokens {
		f.read += len(more)
		if len(more) == 0 {
			continue
		}
		f.windows[text] = append(slices.Clone(f.windows[text]), more...)
		if len(f.windows[text]) > f.capacity {
			f.t.Errorf("a text has %d tokens, the capacity is %d", len(f.windows[text]), f.capacity)
		}
		logits[text] = make([]float64, 100)
		logits[text][following(f.windows[text])] = 5
	}
	return logits, nil
}

func scheduler(t testing.TB, c serve.SchedulerConfig) *serve.Scheduler {
	t.Helper()
	c.Tokenizer = digits{}
	s, err := serve.NewScheduler(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Any number of requests at once, some of which leave, have the tokens that they have alone, and
// nothing is left behind: a bubble ends only when all its goroutines have.
func TestScheduler(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		type client struct {
			prompt []int
			n      int // tokens that it asks for
			leaves int // after so many tokens, 0 for never
			got    []int
			err    error
		}
		token := rapid.IntRange(0, 99)
		beginning := rapid.SliceOfN(token, 20, 20).Draw(r, "beginning")
		clients := make([]client, rapid.IntRange(1, 12).Draw(r, "clients"))
		for i := range clients {
			c := &clients[i]
			c.prompt = rapid.SliceOfN(token, 1, 30).Draw(r, "prompt")
			if rapid.Bool().Draw(r, "begins alike") {
				c.prompt = slices.Concat(beginning, c.prompt)
			}
			c.n = rapid.IntRange(1, 30).Draw(r, "n")
			c.leaves = rapid.IntRange(0, 5).Draw(r, "leaves")
		}
		batch, budget := rapid.IntRange(1, 5).Draw(r, "batch"), rapid.IntRange(1, 40).Draw(r, "budget")
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, batch, 80)
			s := scheduler(t, serve.SchedulerConfig{Decoder: f, PromptTokens: budget, Waiting: len(clients)})
			ctx, stop := context.WithCancel(t.Context())
			var all, running sync.WaitGroup
			running.Go(func() {
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			for i := range clients {
				c := &clients[i]
				all.Go(func() {
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					c.err = s.Generate(ctx, c.prompt, sample.Options{MaxTokens: c.n}, func(t sample.Token) error {
						if c.got = append(c.got, t.ID); len(c.got) == c.leaves {
							leave()
						}
						return nil
					})
				})
			}
			all.Wait()
			synctest.Wait()
			stats := s.Stats()
			stop()
			running.Wait()
			for i, c := range clients {
				want := written(c.prompt, c.n)
				if c.leaves > 0 && c.leaves < c.n {
					if len(c.got) < c.leaves || len(c.got) > c.n || !slices.Equal(c.got, want[:len(c.got)]) {
						t.Errorf("client %d, which leaves after %d tokens, has %v of %v", i, c.leaves, c.got, want)
					}
				} else if c.err != nil || !slices.Equal(c.got, want) {
					t.Errorf("client %d has %v and %v, want %v", i, c.got, c.err, want)
				}
			}
			if stats.Running != 0 || stats.Waiting != 0 || stats.Ended+stats.Left != uint64(len(clients)) || stats.Failed != 0 {
				t.Errorf("when all %d are gone: %+v", len(clients), stats)
			}
		})
	})
}

// A prompt that begins as another, which is read or being read, costs what it has more.
func TestSchedulerSharesPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 4, 300)
		s := scheduler(t, serve.SchedulerConfig{Decoder: f, PromptTokens: 50})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go s.Run(ctx)
		prompt := make([]int, 200)
		for i := range prompt {
			prompt[i] = i * i % 100
		}
		generate := func(prompt []int, n int) {
			var got []int
			err := s.Generate(t.Context(), prompt, sample.Options{MaxTokens: n}, func(t sample.Token) error {
				got = append(got, t.ID)
				return nil
			})
			if want := written(prompt, n); err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v and %v, want %v", got, err, want)
			}
		}
		var all sync.WaitGroup
		for range 4 { // at once
			all.Go(func() { generate(prompt, 10) })
		}
		all.Wait()
		synctest.Wait()
		if want := 200 + 3 + 4*9; f.read != want {
			t.Errorf("four texts of one prompt read %d tokens, want %d", f.read, want)
		}
		f.read = 0
		longer := slices.Concat(prompt, written(prompt, 10), []int{1, 2, 3})
		synctest.Wait()
		generate(longer, 5) // the next turn of a conversation
		synctest.Wait()
		// The last token of the answer was chosen and not read.
		if want := 1 + 3 + 4; f.read != want {
			t.Errorf("a conversation that goes on reads %d tokens, want %d", f.read, want)
		}
	})
}

// While one prompt is read, the texts that are being written go on.
func TestSchedulerReadsPromptsInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2, 300)
		s := scheduler(t, serve.SchedulerConfig{Decoder: f, PromptTokens: 10})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var entered sync.WaitGroup
		var first, second int // tokens
		f.before = func(step int) error {
			if step == 3 {
				entered.Go(func() {
					if err := s.Generate(t.Context(), make([]int, 100), sample.Options{MaxTokens: 1}, func(sample.Token) error {
						second++
						return nil
					}); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait() // until it waits
			}
			return nil
		}
		entered.Go(func() {
			if err := s.Generate(t.Context(), []int{1}, sample.Options{MaxTokens: 30}, func(sample.Token) error {
				first++
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		go s.Run(ctx)
		entered.Wait()
		synctest.Wait()
		if f.steps != 30 || first != 30 || second != 1 {
			t.Errorf("there are %d steps, the texts have %d and %d tokens, want 30, 30 and 1", f.steps, first, second)
		}
	})
}

func TestSchedulerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1, 20)
		s := scheduler(t, serve.SchedulerConfig{Decoder: f, Waiting: 1})
		none := func(sample.Token) error { return nil }
		check := func(what string, err error, want string) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %v, want %q", what, err, want)
			}
		}
		var request *serve.RequestError
		for want, err := range map[string]error{
			"Scheduler: the prompt has 18 tokens and 3 more are asked for, together they need to be at most 20": s.Generate(t.Context(), make([]int, 18), sample.Options{MaxTokens: 3}, none),
			"the prompt has 20 tokens and 1 more are asked for":                                                 s.Generate(t.Context(), make([]int, 20), sample.Options{}, none),
			"token 1 of the prompt is 100, it needs to be from 0 to 99":                                         s.Generate(t.Context(), []int{1, 100}, sample.Options{MaxTokens: 3}, none),
			"temperature is -1":   s.Generate(t.Context(), []int{1}, sample.Options{Sampler: sample.SamplerOptions{Temperature: -1}}, none),
			"the prompt is empty": s.Generate(t.Context(), nil, sample.Options{}, none),
		} {
			check("a bad request", err, want)
			if !errors.As(err, &request) {
				t.Errorf("%v is no error of the request", err)
			}
		}
		check("nil", s.Generate(t.Context(), []int{1}, sample.Options{}, nil), "each is nil")

		// One waits, so that there is no room, and leaves.
		waits, leave := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		all.Go(func() { check("one that leaves", s.Generate(waits, []int{1}, sample.Options{}, none), "enough") })
		synctest.Wait()
		if err := s.Generate(t.Context(), []int{1}, sample.Options{}, none); !errors.Is(err, serve.ErrBusy) {
			t.Errorf("a second that waits: %v", err)
		}
		leave(errors.New("enough"))
		all.Wait()

		// A step that fails ends the texts that it is of, and no others.
		steps := f.steps
		f.before = func(step int) error {
			if step == steps+2 {
				return errors.New("no power")
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		all.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		check("a step that fails", s.Generate(t.Context(), []int{1}, sample.Options{MaxTokens: 5}, none), "Scheduler: no power")
		if err := s.Generate(t.Context(), []int{1}, sample.Options{MaxTokens: 5}, none); err != nil {
			t.Errorf("after one that failed: %v", err)
		}
		full := errors.New("full")
		if err := s.Generate(t.Context(), []int{1}, sample.Options{MaxTokens: 5}, func(sample.Token) error { return full }); !errors.Is(err, full) {
			t.Errorf("an error of each becomes %v", err)
		}
		synctest.Wait()
		check("a second run", s.Run(ctx), "it can run once")

		// The end comes in the middle of a text.
		synctest.Wait()
		begun := make(chan struct{})
		f.before = func(int) error {
			if begun != nil {
				close(begun)
				begun = nil
			} else {
				stop()
			}
			return nil
		}
		if err := s.Generate(t.Context(), []int{1}, sample.Options{MaxTokens: 15}, none); !errors.Is(err, serve.ErrClosed) {
			t.Errorf("at the end the error is %v", err)
		}
		all.Wait()
		if err := s.Generate(t.Context(), []int{1}, sample.Options{}, none); !errors.Is(err, serve.ErrClosed) || !s.Stats().Closed {
			t.Errorf("after the end the error is %v", err)
		}
		if stats := s.Stats(); stats.Refused != 1 || stats.Left+stats.Ended != 3 || stats.Failed != 2 || stats.Running != 0 {
			t.Errorf("in the end: %+v", stats)
		}
	})
	for want, c := range map[string]serve.SchedulerConfig{
		"decoder is nil":       {Tokenizer: digits{}},
		"tokenizer is nil":     {Decoder: newFake(t, 1, 1)},
		"waiting is -1":        {Decoder: newFake(t, 1, 1), Tokenizer: digits{}, Waiting: -1},
		"prompt tokens is -2,": {Decoder: newFake(t, 1, 1), Tokenizer: digits{}, PromptTokens: -2},
	} {
		if _, err := serve.NewScheduler(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
