package serve_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/serve"
)

// pieces is a tokenizer whose tokens are parts of characters, several, or none.
type pieces [][]byte

func (pieces) Encode(string) ([]int, error)   { return nil, errors.New("nothing is encoded") }
func (p pieces) Bytes(id int) ([]byte, error) { return p[id], nil }
func (p pieces) Size() int                    { return len(p) }
func (p pieces) tokens(r *rand.Rand, n int) (l []int) {
	for range n {
		l = append(l, r.IntN(len(p)))
	}
	return l
}

// dreamer is a decoder whose logits follow from the window alone, of a few more tokens than the
// tokenizer has.
type dreamer struct {
	*fake
	vocab int
}

func (d dreamer) Logits(tokens [][]int) ([][]float64, error) {
	logits, err := d.fake.Logits(tokens)
	for text := range logits {
		if logits[text] != nil {
			logits[text] = d.after(d.windows[text])
		}
	}
	return logits, err
}

func (d dreamer) after(window []int) []float64 {
	hash := fnv.New64a()
	fmt.Fprint(hash, window)
	r := rand.New(rand.NewPCG(hash.Sum64(), 0))
	list := make([]float64, d.vocab)
	for i := range list {
		list[i] = 3 * r.NormFloat64()
	}
	return list
}

// drawOptions draws what a text is to be.
func drawOptions(r *rand.Rand, p pieces) (o sample.Options) {
	one := func(n int) bool { return r.IntN(n) == 0 }
	maybe := func(x float64) float64 {
		if one(2) {
			return x
		}
		return 0
	}
	o.MaxTokens, o.LogProbs = 1+r.IntN(20), one(2)
	o.Sampler = sample.SamplerOptions{Temperature: maybe(1.3), TopK: r.IntN(2) * (1 + r.IntN(9)), TopP: maybe(0.8), MinP: maybe(0.05),
		RepetitionPenalty: maybe(1.4), PresencePenalty: maybe(0.5), FrequencyPenalty: maybe(0.7), NoRepeat: r.IntN(2) * (1 + r.IntN(3)), Seed: r.Uint64()}
	if one(2) {
		o.TopLogProbs = r.IntN(5)
	}
	if one(2) {
		o.Stop, o.MinTokens = p.tokens(r, r.IntN(4)), r.IntN(8)
	}
	if one(3) {
		o.Suppress = p.tokens(r, r.IntN(9))
	}
	if one(3) {
		o.Start = p.tokens(r, 1+r.IntN(3))
	}
	for one(2) {
		o.StopStrings = append(o.StopStrings, []string{"a", "b c", "你", "好😀", "é", "ab", " ", "n\xc3"}[r.IntN(8)])
	}
	return o
}

// Texts of any options, that are written beside others which come and leave, are those that they
// are alone.
func TestDrawnRequests(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			var p pieces
			for all := []byte("né你好😀ab c\xff"); len(p) < 40; {
				from := r.IntN(len(all))
				p = append(p, all[from:min(len(all), from+r.IntN(4))])
			}
			d := dreamer{newFake(t, 1+r.IntN(4), 48), len(p) + r.IntN(3)}
			s, err := serve.NewScheduler(serve.SchedulerConfig{Decoder: d, Tokenizer: p, Waiting: 100, PromptTokens: r.IntN(9)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var clients, running sync.WaitGroup
			running.Go(func() { s.Run(ctx) })
			shared := p.tokens(r, 24)
			for range 12 {
				prompt := slices.Concat(shared[:r.IntN(len(shared))], p.tokens(r, 1+r.IntN(3)))
				o, leaves := drawOptions(r, p), 1+r.IntN(40)
				clients.Go(func() {
					var have, want []sample.Token
					left := errors.New("left")
					err := s.Generate(ctx, prompt, o, func(token sample.Token) error {
						if have = append(have, token); len(have) == leaves {
							return left
						}
						return nil
					})
					if tooLong := new(serve.TooLongError); errors.As(err, &tooLong) {
						return
					}
					text, wantErr := sample.NewText(p, prompt, o)
					window := slices.Concat(o.Start, prompt)
					for wantErr == nil && (len(want) == 0 || want[len(want)-1].End == "") && len(want) != leaves {
						var token sample.Token
						if token, wantErr = text.Take(d.after(window)); wantErr == nil {
							want, window = append(want, token), append(window, token.ID)
						}
					}
					if !reflect.DeepEqual(have, want) || (err == nil || errors.Is(err, left)) != (wantErr == nil) {
						t.Errorf("%v of %+v: with others %v (%v), alone %v (%v)", prompt, o, have, err, want, wantErr)
					}
				})
			}
			clients.Wait()
			stop()
			running.Wait()
		})
	}
}
