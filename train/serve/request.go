package serve

import (
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/train/sample"
)

// request is a text that waits or is written.
type request struct {
	text *sample.Text
	left []int // what the decoder has not read yet of the tokens before the next one; Run's
	gone atomic.Bool
	wake chan struct{} // there are tokens or an error

	mu     sync.Mutex
	tokens []sample.Token
	err    error
}

// give hands tokens, or an error that ends the request, to the goroutine that waits for them.
func (r *request) give(tokens []sample.Token, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens, r.err = append(r.tokens, tokens...), err
	notify(r.wake)
}

// take is what was given since the last time.
func (r *request) take() ([]sample.Token, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tokens := r.tokens
	r.tokens = nil
	return tokens, r.err
}

// taken is the next token of a text, none while its prompt is read, or why there is none.
type taken struct {
	tokens []sample.Token
	err    error
}

// taken is the next token.
func (r *request) taken(token sample.Token, err error) taken {
	if err != nil {
		return taken{err: err}
	}
	r.left = r.text.Next()
	return taken{tokens: []sample.Token{token}}
}
