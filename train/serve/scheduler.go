package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/train/sample"
)

// Decoder is what a [Scheduler] runs. [github.com/stheno-ml/stheno/nn.BatchDecoder] is one.
type Decoder interface {
	sample.BatchDecoder
	// Capacity is how many tokens fit in the window of each text.
	Capacity() int
	// Window lists the tokens that the next one of a text will follow.
	Window(text int) []int
	// Fork makes the window of one text the first n tokens of another's.
	Fork(to, from, n int) error
}

// SchedulerConfig describes a [Scheduler].
type SchedulerConfig struct {
	Decoder   Decoder
	Tokenizer sample.Tokenizer
	// Waiting is how many requests may wait for a place in the batch; 0 means 4 for each place.
	Waiting int
	// PromptTokens is how many tokens of prompts are read between two tokens of the texts that are
	// being written; 0 means 256. More read prompts faster, fewer let texts flow.
	PromptTokens int
}

// Scheduler joins requests into the batch of a decoder. Its methods may be called from many
// goroutines.
type Scheduler struct {
	c      SchedulerConfig
	wake   chan struct{} // there is something to look at
	places []place       // of Run alone

	mu      sync.Mutex
	waiting []*request
	running bool
	closed  bool
	stats   Stats
}

// Stats say what a [Scheduler] does and has done.
type Stats struct {
	Places, Running, Waiting int
	Capacity                 int  // of each place, in tokens
	Closed                   bool // Run has ended

	Ended, Left, Failed, Refused uint64 // requests
	PromptTokens, SharedTokens   uint64 // of the prompts, read and found in the cache
	Tokens                       uint64 // that were chosen
}

// Errors of [Scheduler.Generate].
var (
	ErrBusy   = errors.New("as many requests wait as may")
	ErrClosed = errors.New("the scheduler has ended")
)

// RequestError is an error of what a request asks for.
type RequestError struct{ Err error }

func (e *RequestError) Error() string { return e.Err.Error() }

// Unwrap is what is wrong.
func (e *RequestError) Unwrap() error { return e.Err }

// TooLongError says that a text does not fit in a place.
type TooLongError struct{ Prompt, MaxTokens, Capacity int }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the prompt has %d tokens and %d more are asked for, together they need to be at most %d", e.Prompt, e.MaxTokens, e.Capacity)
}

// NewScheduler is a Scheduler that works while [Scheduler.Run] does.
func NewScheduler(c SchedulerConfig) (*Scheduler, error) {
	switch {
	case c.Decoder == nil:
		return nil, errors.New("Scheduler: decoder is nil, it needs to be one, such as nn.NewBatchDecoder makes")
	case c.Tokenizer == nil:
		return nil, errors.New("Scheduler: tokenizer is nil, it needs to be the model's")
	case c.Waiting < 0:
		return nil, fmt.Errorf("Scheduler: waiting is %d, it needs to be positive, or 0 for 4 a place", c.Waiting)
	case c.PromptTokens < 0:
		return nil, fmt.Errorf("Scheduler: prompt tokens is %d, it needs to be positive, or 0 for 256", c.PromptTokens)
	}
	if c.Waiting == 0 {
		c.Waiting = 4 * c.Decoder.Batch()
	}
	if c.PromptTokens == 0 {
		c.PromptTokens = 256
	}
	s := &Scheduler{c: c, wake: make(chan struct{}, 1), places: make([]place, c.Decoder.Batch())}
	s.stats.Places, s.stats.Capacity = len(s.places), c.Decoder.Capacity()
	return s, nil
}

// Stats are those of now.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Waiting, stats.Closed = len(s.waiting), s.closed
	return stats
}

// Generate continues a prompt, as [sample.Generate] does, when there is a place in the batch. Each
// is called in the caller's goroutine; other texts do not wait for it. With MaxTokens of 0 the text
// may become as long as a place allows.
//
// A cancelled context ends the text and frees its place, and so does an error of each. What asks
// for something impossible is a [RequestError]; [ErrBusy] and [ErrClosed] are about the scheduler.
func (s *Scheduler) Generate(ctx context.Context, prompt []int, o sample.Options, each func(sample.Token) error) error {
	if each == nil {
		return errors.New("Scheduler: each is nil, it needs to be a function")
	}
	r, err := s.enter(prompt, o)
	if err != nil {
		return fmt.Errorf("Scheduler: %w", err)
	}
	defer s.leave(r)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.wake:
		}
		tokens, err := r.take()
		for _, t := range tokens {
			if err := each(t); err != nil || t.End != "" {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("Scheduler: %w", err)
		}
	}
}

// enter makes a request wait for a place.
func (s *Scheduler) enter(prompt []int, o sample.Options) (*request, error) {
	capacity := s.c.Decoder.Capacity()
	all := slices.Concat(o.Start, prompt)
	o.Start = nil
	if o.MaxTokens == 0 {
		o.MaxTokens = max(1, capacity-len(all))
	}
	if o.MaxTokens > capacity-len(all) {
		return nil, &RequestError{&TooLongError{len(all), o.MaxTokens, capacity}}
	}
	for i, id := range all {
		if id < 0 || id >= s.c.Tokenizer.Size() {
			return nil, &RequestError{fmt.Errorf("token %d of the prompt is %d, it needs to be from 0 to %d", i, id, s.c.Tokenizer.Size()-1)}
		}
	}
	text, err := sample.NewText(s.c.Tokenizer, all, o)
	if err != nil {
		return nil, &RequestError{err}
	}
	r := &request{text: text, left: all, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case len(s.waiting) >= s.c.Waiting:
		s.stats.Refused++
		return nil, ErrBusy
	}
	s.waiting = append(s.waiting, r)
	notify(s.wake)
	return r, nil
}

// leave tells Run that nobody waits for a request any more.
func (s *Scheduler) leave(r *request) {
	r.gone.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiting, r); at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
		s.stats.Left++
	}
	notify(s.wake)
}

// Run does the work, until the context ends. Requests that are not done then end with ErrClosed,
// and so do later ones.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running || s.closed {
		s.mu.Unlock()
		return errors.New("Scheduler: it runs or has ended, it can run once")
	}
	s.running = true
	s.mu.Unlock()
	defer s.close()
	stop := context.AfterFunc(ctx, func() { notify(s.wake) })
	defer stop()
	for ctx.Err() == nil {
		if err := s.admit(); err != nil {
			s.failAll(err)
		}
		if !slices.ContainsFunc(s.places, place.isTaken) {
			<-s.wake
			continue
		}
		if err := s.step(); err != nil {
			s.failAll(err)
		}
	}
	return nil
}

// close ends all requests.
func (s *Scheduler) close() {
	s.mu.Lock()
	s.closed = true
	waiting := s.waiting
	s.waiting = nil
	s.stats.Failed += uint64(len(waiting))
	s.mu.Unlock()
	for _, r := range waiting {
		r.give(nil, ErrClosed)
	}
	s.failAll(ErrClosed)
}

// failAll ends the requests that have a place. The decoder has forgotten all, or is not needed any
// more.
func (s *Scheduler) failAll(err error) {
	for i := range s.places {
		if s.places[i].isTaken() {
			s.hand(i, taken{err: err})
		}
	}
}

// free ends the use of a place. Its tokens stay in the decoder for texts that begin likewise.
func (s *Scheduler) free(i int, counter *uint64) {
	s.places[i].request = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Running--
	*counter++
}

// step has the decoder read what is next of each text, and takes a token of those whose prompt is
// read.
func (s *Scheduler) step() error {
	tokens, texts, budget := make([][]int, len(s.places)), make([]*sample.Text, len(s.places)), s.c.PromptTokens
	for i, p := range s.places {
		if !p.isTaken() {
			continue
		}
		n := min(len(p.left), max(1, budget))
		if n > 1 {
			budget -= n
		}
		tokens[i], texts[i] = p.left[:n], p.text
	}
	take, err := sample.NextOfTexts(s.c.Decoder, tokens, texts)
	if err != nil {
		return err
	}
	var taking sync.WaitGroup
	results := make([]taken, len(s.places))
	for i, p := range s.places {
		if !p.isTaken() {
			continue
		}
		if p.left = p.left[len(tokens[i]):]; len(p.left) > 0 {
			continue
		}
		taking.Go(func() {
			if err := guard.Call("choosing a token", func() error { results[i] = p.taken(take(i)); return nil }); err != nil {
				results[i] = taken{err: err}
			}
		})
	}
	taking.Wait()
	for i, t := range results {
		s.hand(i, t)
	}
	return nil
}

// hand gives a token to the one who waits for it. The place of a last token is free by then.
func (s *Scheduler) hand(i int, t taken) {
	r := s.places[i].request
	switch {
	case t.err != nil:
		s.free(i, &s.stats.Failed)
		r.give(nil, t.err)
		return
	case t.tokens == nil:
		return
	case t.tokens[0].End != "":
		s.free(i, &s.stats.Ended)
	}
	s.mu.Lock()
	s.stats.Tokens++
	s.mu.Unlock()
	r.give(t.tokens, nil)
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
