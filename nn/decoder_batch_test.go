package nn_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// Texts that come, rest, fork, go back and go, in any order, are each predicted as alone: the same
// token, and the same logits up to the rounding of products of other numbers of rows.
func TestBatchDecoderOfAnySchedule(t *testing.T) {
	const capacity = 40
	for _, name := range []string{"gpt", "gpt, alibi, cap", "llama, gqa", "llama, interleaved"} {
		t.Run(name, func(t *testing.T) {
			alone := newDecoded(t, name, tensor.Float64, capacity)
			decoders := map[int]*nn.BatchDecoder{}
			rapid.Check(t, func(t *rapid.T) {
				batch := rapid.SampledFrom([]int{1, 2, 3, 5, 8}).Draw(t, "batch")
				d := decoders[batch]
				if d == nil {
					var err error
					d, err = nn.NewBatchDecoder(batch, nn.DecoderConfig{Parameters: alone.p, Capacity: capacity,
						Model: func(s *nn.Scope) nn.CachedModel { return decoderModels[name](s.DType(tensor.Float64)) }})
					if err != nil {
						t.Fatal(err)
					}
					decoders[batch] = d
				}
				d.Reset()
				s := &schedule{d: d, alone: alone.Decoder, windows: make([][]int, batch)}
				for range rapid.IntRange(1, 8).Draw(t, "steps") {
					s.change(t)
					s.step(t)
				}
			})
		})
	}
}

// schedule is a decoder of several texts and what their windows need to be.
type schedule struct {
	d       *nn.BatchDecoder
	alone   *nn.Decoder
	windows [][]int
}

// change ends a text, takes some of it back, or has it go on from another.
func (s *schedule) change(t *rapid.T) {
	text := rapid.IntRange(0, len(s.windows)-1).Draw(t, "text")
	switch rapid.SampledFrom([]string{"nothing", "drop", "truncate", "fork"}).Draw(t, "change") {
	case "drop":
		s.must(t, s.d.Truncate(text, 0))
		s.windows[text] = nil
	case "truncate":
		n := rapid.IntRange(0, len(s.windows[text])).Draw(t, "n")
		s.must(t, s.d.Truncate(text, n))
		s.windows[text] = s.windows[text][:n]
	case "fork":
		from := rapid.IntRange(0, len(s.windows)-1).Draw(t, "from")
		n := rapid.IntRange(0, len(s.windows[from])).Draw(t, "n")
		s.must(t, s.d.Fork(text, from, n))
		s.windows[text] = slices.Clone(s.windows[from][:n])
	}
}

// step gives some texts tokens.
func (s *schedule) step(t *rapid.T) {
	tokens := make([][]int, len(s.windows))
	for text := range tokens {
		n := rapid.SampledFrom([]int{0, 0, 1, 1, 1, 2, 5, 9, 33, 50}).Draw(t, "tokens")
		if n == 0 {
			continue
		}
		tokens[text] = rapid.SliceOfN(rapid.IntRange(0, decoderVocab-1), n, n).Draw(t, "ids")
		w := slices.Concat(s.windows[text], tokens[text])
		if capacity := s.d.Capacity(); len(w) > capacity {
			w = w[len(w)-max(capacity/2, min(n, capacity)):]
		}
		s.windows[text] = w
	}
	logits, err := s.d.Logits(tokens)
	s.must(t, err)
	for text, window := range s.windows {
		if !slices.Equal(s.d.Window(text), window) {
			t.Fatalf("the window of text %d is %v, want %v", text, s.d.Window(text), window)
		}
		if (logits[text] != nil) != (tokens[text] != nil) {
			t.Fatalf("text %d got %v and has logits %v", text, tokens[text], logits[text])
		}
		if tokens[text] == nil {
			continue
		}
		s.alone.Reset()
		want, err := s.alone.Logits(window)
		s.must(t, err)
		if got := logits[text]; largest(got) != largest(want) {
			t.Fatalf("text %d of %v: the next token is %d, alone it is %d", text, window, largest(got), largest(want))
		}
		for i := range want {
			if e := math.Abs(logits[text][i] - want[i]); !(e <= 1e-11*(1+math.Abs(want[i]))) {
				t.Fatalf("text %d of %v: the error of logit %d is %.3g", text, window, i, e)
			}
		}
	}
}

func (s *schedule) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func largest(list []float64) int { return slices.Index(list, slices.Max(list)) }

// A text of float32 that is alone in a large batch has the bits that it has in a decoder of its
// own.
func TestBatchDecoderOfOneText(t *testing.T) {
	for _, name := range []string{"gpt", "llama, gqa"} {
		d := newDecoded(t, name, tensor.Float32, 70)
		b, err := nn.NewBatchDecoder(9, nn.DecoderConfig{Parameters: d.p, Capacity: 70, Model: func(s *nn.Scope) nn.CachedModel {
			return decoderModels[name](s.DType(tensor.Float32))
		}})
		if err != nil {
			t.Fatal(err)
		}
		for step, tokens := range [][]int{{1, 2, 3, 4, 5, 6, 7}, {8}, {9}, {0, 1}, make([]int, 66), {3}} {
			want, err := d.Logits(tokens)
			if err != nil {
				t.Fatal(err)
			}
			all := make([][]int, 9)
			all[5] = tokens
			got, err := b.Logits(all)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got[5], want) {
				t.Errorf("%s, step %d: the logits are %v, alone they are %v", name, step, got[5], want)
			}
		}
	}
}

func TestBatchDecoderForkErrors(t *testing.T) {
	b, err := nn.NewBatchDecoder(2, nn.DecoderConfig{Parameters: nn.NewParameters(1), Capacity: 8,
		Model: func(s *nn.Scope) nn.CachedModel { return decoderModels["gpt"](s) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Logits([][]int{{1, 2, 3}, nil}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to, from, n int
		want        string
	}{
		{2, 0, 1, "BatchDecoder: text is 2, it needs to be at least 0 and less than the batch of 2"},
		{1, -1, 1, "BatchDecoder: text is -1, it needs to be at least 0 and less than the batch of 2"},
		{1, 0, 4, "BatchDecoder: 4 tokens of text 0 are to be copied, it needs to be from 0 to the window's 3"},
		{1, 0, -1, "BatchDecoder: -1 tokens of text 0 are to be copied, it needs to be from 0 to the window's 3"},
		{1, 0, 3, "<nil>"},
		{1, 1, 2, "<nil>"},
	} {
		if err := b.Fork(c.to, c.from, c.n); fmt.Sprint(err) != c.want {
			t.Errorf("Fork(%d, %d, %d): got %v, want %s", c.to, c.from, c.n, err, c.want)
		}
	}
	if w := b.Window(1); !slices.Equal(w, []int{1, 2}) {
		t.Errorf("the window is %v, want [1 2]", w)
	}
	if err := (&nn.BatchDecoder{}).Fork(0, 0, 0); err == nil {
		t.Error("a zero decoder forks")
	}
}
