package sample_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/sample"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// pieces is a tokenizer whose tokens stand for the given texts; it encodes texts of one byte.
type pieces []string

func (p pieces) Encode(text string) ([]int, error) {
	var ids []int
	for _, r := range text {
		id := slices.Index(p, string(r))
		if id < 0 {
			return nil, fmt.Errorf("%q is in no token", r)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (p pieces) Bytes(id int) ([]byte, error) {
	if id == len(p)-1 && p[id] == "bad" {
		return nil, errors.New("token has no bytes")
	}
	return []byte(p[id]), nil
}

func (p pieces) Size() int { return len(p) }

// script is a decoder that wants certain tokens one after another, and remembers what it was given.
type script struct {
	vocab int
	wants []int
	step  int
	given []int
	fail  error
	after func(step int)
}

func (s *script) Reset() { s.step, s.given = 0, nil }

func (s *script) Logits(tokens []int) ([]float64, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	s.given = append(s.given, tokens...)
	logits := make([]float64, s.vocab)
	logits[s.wants[s.step%len(s.wants)]] = 5
	if s.step++; s.after != nil {
		s.after(s.step)
	}
	return logits, nil
}

// writes records each write.
type writes struct {
	list []string
	fail error
}

func (w *writes) Write(p []byte) (int, error) {
	if w.fail != nil {
		return 0, w.fail
	}
	w.list = append(w.list, string(p))
	return len(p), nil
}

// telling is a decoder that chooses nothing.
type telling struct{ sample.Decoder }

// A decoder that chooses tokens gives the texts, and the log-probabilities, that its logits give.
func TestGenerateByChoices(t *testing.T) {
	letters := pieces(strings.Split("abcdefghijklmnopqrstuvwxyz", ""))
	config := nn.GPTConfig{Vocab: 32, Context: 24, Layers: 1, Heads: 2, Dim: 16}
	d, err := nn.NewDecoder(nn.DecoderConfig{Parameters: nn.NewParameters(3), Model: func(s *nn.Scope) nn.CachedModel { return nn.NewGPT(s, config) }})
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range []sample.SamplerOptions{{}, {RepetitionPenalty: 1.5}, {Temperature: 1}, {Temperature: 2, NoRepeat: 2, TopP: 0.9}, {Temperature: 1, MinP: 0.2, PresencePenalty: 1, FrequencyPenalty: 0.5}} {
		o.Seed = uint64(i)
		options := sample.Options{Sampler: o, MaxTokens: 40, MinTokens: 20, Stop: []int{3}, Suppress: []int{5, 6}, LogProbs: true}
		var texts [2][]sample.Token
		for way, d := range []sample.Decoder{d, telling{d}} {
			if err := sample.Generate(context.Background(), d, letters, "abc", options, func(x sample.Token) error {
				texts[way] = append(texts[way], x)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		same := slices.EqualFunc(texts[0], texts[1], func(a, b sample.Token) bool {
			return a.ID == b.ID && a.Text == b.Text && a.End == b.End && math.Abs(a.LogProb-b.LogProb) < 1e-5 && a.LogProb < 0
		})
		if !same {
			t.Errorf("%+v: the texts are\n%+v and\n%+v", o, texts[0], texts[1])
		}
	}
}

func TestGenerate(t *testing.T) {
	abc := pieces{"a", "b", "c", "d"}
	for _, c := range []struct {
		name   string
		d      *script
		t      pieces
		prompt string
		o      sample.Options
		want   []string // the writes
		given  []int
		err    string
	}{
		{name: "max tokens", d: &script{vocab: 4, wants: []int{2, 1, 0}}, t: abc, prompt: "ad", o: sample.Options{MaxTokens: 3},
			want: []string{"c", "b", "a"}, given: []int{0, 3, 2, 1}},
		{name: "stop", d: &script{vocab: 4, wants: []int{2, 1, 0}}, t: abc, prompt: "a", o: sample.Options{MaxTokens: 9, Stop: []int{3, 0}},
			want: []string{"c", "b"}, given: []int{0, 2, 1}},
		{name: "start", d: &script{vocab: 4, wants: []int{2}}, t: abc, o: sample.Options{MaxTokens: 1, Start: []int{3}},
			want: []string{"c"}, given: []int{3}},
		{name: "start and prompt", d: &script{vocab: 4, wants: []int{2}}, t: abc, prompt: "b", o: sample.Options{MaxTokens: 1, Start: []int{3}},
			want: []string{"c"}, given: []int{3, 1}},
		{name: "more logits than tokens", d: &script{vocab: 9, wants: []int{8, 1}}, t: abc, prompt: "a", o: sample.Options{MaxTokens: 2},
			want: []string{"a", "b"}, given: []int{0, 0}},
		{name: "characters in parts", d: &script{vocab: 5, wants: []int{1, 2, 3, 0, 1, 0, 3}}, t: pieces{"a", "\xe2", "\x82", "\xac!", "b"}, prompt: "a",
			o: sample.Options{MaxTokens: 7}, want: []string{"€!", "a", "\xe2a", "\xac!"}},
		{name: "a part at the end", d: &script{vocab: 3, wants: []int{1, 2}}, t: pieces{"a", "\xe2", "\x82"}, prompt: "a",
			o: sample.Options{MaxTokens: 2}, want: []string{"\xe2\x82"}},
		{name: "empty tokens", d: &script{vocab: 2, wants: []int{1}}, t: pieces{"a", ""}, prompt: "a", o: sample.Options{MaxTokens: 2}},

		{name: "no tokens", d: &script{}, t: abc, prompt: "a", err: "Generate: max tokens is 0, it needs to be at least 1"},
		{name: "options", d: &script{}, t: abc, prompt: "a", o: sample.Options{MaxTokens: 1, Sampler: sample.SamplerOptions{TopK: -1}},
			err: "Generate: Sampler: top k is -1, it needs to be positive, or 0 for all tokens"},
		{name: "unknown character", d: &script{}, t: abc, prompt: "aé", o: sample.Options{MaxTokens: 1}, err: "Generate: prompt: 'é' is in no token"},
		{name: "empty prompt", d: &script{}, t: abc, o: sample.Options{MaxTokens: 1},
			err: "Generate: the prompt is empty, it needs at least one token, or Options.Start to have one"},
		{name: "decoder fails", d: &script{fail: errors.New("no decoder")}, t: abc, prompt: "a", o: sample.Options{MaxTokens: 1}, err: "Generate: no decoder"},
		{name: "no bytes", d: &script{vocab: 2, wants: []int{0, 1}}, t: pieces{"a", "bad"}, prompt: "a", o: sample.Options{MaxTokens: 2},
			want: []string{"a"}, err: "Generate: token has no bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w writes
			c.d.given = []int{77} // which Reset forgets
			err := sample.Generate(t.Context(), c.d, c.t, c.prompt, c.o, sample.Write(&w))
			if err == nil && c.err != "" || err != nil && err.Error() != c.err {
				t.Errorf("the error is %v, want %q", err, c.err)
			}
			if !slices.Equal(w.list, c.want) {
				t.Errorf("wrote %q, want %q", w.list, c.want)
			}
			if c.given != nil && !slices.Equal(c.d.given, c.given) {
				t.Errorf("the decoder was given %v, want %v", c.d.given, c.given)
			}
		})
	}
}

// TestGenerateWritesEveryByte checks, for bytes in any order, that they are written as they are,
// and that every write but the last ends with a whole character where there is one.
func TestGenerateWritesEveryByte(t *testing.T) {
	all := make(pieces, 256)
	for i := range all {
		all[i] = string([]byte{byte(i)})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "text")
		if len(text) == 0 {
			return
		}
		d := &script{vocab: 256}
		for _, b := range text {
			d.wants = append(d.wants, int(b))
		}
		var w writes
		if err := sample.Generate(context.Background(), d, all, "a", sample.Options{MaxTokens: len(text)}, sample.Write(&w)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.list, ""); got != string(text) {
			t.Fatalf("wrote %q, want %q", got, text)
		}
		if utf8.Valid(text) && len(w.list) != utf8.RuneCount(text) {
			t.Fatalf("wrote %q in %d parts, want one a character", text, len(w.list))
		}
	})
}

func TestGenerateIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	d := &script{vocab: 2, wants: []int{0}, after: func(step int) {
		if step == 3 {
			cancel(why)
		}
	}}
	var w writes
	err := sample.Generate(ctx, d, pieces{"a", "b"}, "b", sample.Options{MaxTokens: 100}, sample.Write(&w))
	if !errors.Is(err, why) || strings.Join(w.list, "") != "aaa" {
		t.Errorf("wrote %q and gave %v, want three tokens and %v", w.list, err, why)
	}
}

func TestGenerateWriterFails(t *testing.T) {
	w := writes{fail: errors.New("disk full")}
	d := &script{vocab: 2, wants: []int{0}}
	err := sample.Generate(t.Context(), d, pieces{"a", "b"}, "b", sample.Options{MaxTokens: 100}, sample.Write(&w))
	if !errors.Is(err, w.fail) || d.step != 1 {
		t.Errorf("gave %v after %d tokens, want %v after 1", err, d.step, w.fail)
	}
}

func TestGenerateOfNil(t *testing.T) {
	d, abc := &script{vocab: 2, wants: []int{0}}, pieces{"a", "b"}
	for want, generate := range map[string]func() error{
		"d is nil": func() error {
			return sample.Generate(t.Context(), nil, abc, "a", sample.Options{MaxTokens: 1}, sample.Write(io.Discard))
		},
		"t is nil": func() error {
			return sample.Generate(t.Context(), d, nil, "a", sample.Options{MaxTokens: 1}, sample.Write(io.Discard))
		},
		"each is nil": func() error {
			return sample.Generate(t.Context(), d, abc, "a", sample.Options{MaxTokens: 1}, sample.Write(nil))
		},
	} {
		if err := generate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestGenerateWithAModel checks that the text follows from the seed, also when the decoder was used
// before.
func TestGenerateWithAModel(t *testing.T) {
	letters := pieces(strings.Split("abcdefghijklmnopqrstuvwxyz", ""))
	config := nn.GPTConfig{Vocab: 32, Context: 16, Layers: 1, Heads: 2, Dim: 16}
	d, err := nn.NewDecoder(nn.DecoderConfig{Parameters: nn.NewParameters(3), Model: func(s *nn.Scope) nn.CachedModel { return nn.NewGPT(s, config) }})
	if err != nil {
		t.Fatal(err)
	}
	text := func(seed uint64) string {
		var b bytes.Buffer
		o := sample.Options{MaxTokens: 60, Sampler: sample.SamplerOptions{Temperature: 1, TopK: 20, TopP: 0.95, Seed: seed}}
		if err := sample.Generate(t.Context(), d, letters, "hello", o, sample.Write(&b)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := text(1)
	if len(first) != 60 {
		t.Errorf("the text has %d letters, want 60: %q", len(first), first)
	}
	if again := text(1); again != first {
		t.Errorf("the same seed gives %q and %q", first, again)
	}
	if other := text(2); other == first {
		t.Errorf("two seeds give %q", first)
	}
}

// More prompts than places, of different lengths and with different ends, give each the text that
// it gives alone.
func TestGenerateBatch(t *testing.T) {
	letters := pieces(strings.Split("abcdefghijklmnopqrstuvwxyz", ""))
	config := nn.GPTConfig{Vocab: 32, Context: 24, Layers: 1, Heads: 2, Dim: 16}
	of := nn.DecoderConfig{Parameters: nn.NewParameters(3), Model: func(s *nn.Scope) nn.CachedModel { return nn.NewGPT(s.DType(tensor.Float64), config) }}
	single, err := nn.NewDecoder(of)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := nn.NewBatchDecoder(3, of)
	if err != nil {
		t.Fatal(err)
	}
	prompts := []string{"hello", "a", "themeaning", "b", "abcdefghijklmnopqrstuvwxyzabcdefgh", "zz", "hello"}
	o := sample.Options{
		MaxTokens: 40, Stop: []int{5}, StopStrings: []string{"q"}, Sampler: sample.SamplerOptions{Temperature: 1, TopK: 20, Seed: 7, RepetitionPenalty: 1.1},
	}
	texts := make([]bytes.Buffer, len(prompts))
	add := func(prompt int, t sample.Token) error {
		texts[prompt].WriteString(t.Text)
		return nil
	}
	for range 2 { // what was there before does not matter
		for i := range texts {
			texts[i].Reset()
		}
		if err := sample.GenerateBatch(t.Context(), batch, letters, prompts, o, add); err != nil {
			t.Fatal(err)
		}
		for i, prompt := range prompts {
			var want bytes.Buffer
			alone := o
			alone.Sampler.Seed += uint64(i)
			if err := sample.Generate(t.Context(), single, letters, prompt, alone, sample.Write(&want)); err != nil {
				t.Fatal(err)
			}
			if texts[i].String() != want.String() {
				t.Errorf("prompt %d, %q: the text is %q, alone it is %q", i, prompt, &texts[i], &want)
			}
		}
	}
	if err := sample.GenerateBatch(t.Context(), batch, letters, nil, o, add); err != nil {
		t.Errorf("no prompts: %v", err)
	}

	full := errors.New("no room")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for want, err := range map[string]error{
		"d is nil":                             sample.GenerateBatch(t.Context(), nil, letters, prompts[:1], o, add),
		"each is nil":                          sample.GenerateBatch(t.Context(), batch, letters, prompts[:1], o, nil),
		"prompt 0: t is nil":                   sample.GenerateBatch(t.Context(), batch, nil, prompts[:1], o, add),
		"prompt 1: prompt: 'A' is in no token": sample.GenerateBatch(t.Context(), batch, letters, []string{"a", "A"}, o, add),
		"GenerateBatch: no room":               sample.GenerateBatch(t.Context(), batch, letters, prompts[:1], o, func(int, sample.Token) error { return full }),
		"GenerateBatch: enough":                sample.GenerateBatch(cancelled, batch, letters, prompts[:1], o, add),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// record keeps what a generation gives.
func record(list *[]sample.Token) func(sample.Token) error {
	return func(t sample.Token) error {
		*list = append(*list, t)
		return nil
	}
}

// Each token comes with its text, the last with the reason for which it is the last.
func TestGenerateGivesTokens(t *testing.T) {
	abc := pieces{"a", "b", "c", "<end>"}
	for _, c := range []struct {
		name string
		o    sample.Options
		want []sample.Token
	}{
		{"length", sample.Options{MaxTokens: 2}, []sample.Token{{ID: 0, Text: "a"}, {ID: 1, Text: "b", End: sample.EndLength}}},
		{"stop token", sample.Options{MaxTokens: 9, Stop: []int{3}},
			[]sample.Token{{ID: 0, Text: "a"}, {ID: 1, Text: "b"}, {ID: 2, Text: "c"}, {ID: 3, End: sample.EndStop}}},
		{"the last token is a stop token", sample.Options{MaxTokens: 4, Stop: []int{3}},
			[]sample.Token{{ID: 0, Text: "a"}, {ID: 1, Text: "b"}, {ID: 2, Text: "c"}, {ID: 3, End: sample.EndStop}}},
		{"stop string over tokens", sample.Options{MaxTokens: 9, StopStrings: []string{"bc"}},
			[]sample.Token{{ID: 0, Text: "a"}, {ID: 1}, {ID: 2, End: sample.EndStop}}},
		{"what looks like a stop string", sample.Options{MaxTokens: 3, StopStrings: []string{"bd", "ab!"}},
			[]sample.Token{{ID: 0}, {ID: 1}, {ID: 2, Text: "abc", End: sample.EndLength}}},
		{"a stop string that has begun", sample.Options{MaxTokens: 9, Stop: []int{3}, StopStrings: []string{"c!"}},
			[]sample.Token{{ID: 0, Text: "a"}, {ID: 1, Text: "b"}, {ID: 2}, {ID: 3, Text: "c", End: sample.EndStop}}},
		{"the first of two", sample.Options{MaxTokens: 9, StopStrings: []string{"c", "bc<"}},
			[]sample.Token{{ID: 0, Text: "a"}, {ID: 1}, {ID: 2, Text: "b", End: sample.EndStop}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []sample.Token
			d := &script{vocab: 4, wants: []int{0, 1, 2, 3}}
			if err := sample.Generate(t.Context(), d, abc, "a", c.o, record(&got)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// Stop strings end the text where the first of them begins, however the text is cut into tokens.
func TestStopStringsOverAnyTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := pieces(rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abé€")), 1, 3, -1), 1, 6).Draw(t, "tokens"))
		stops := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abé€")), 1, 4, -1), 0, 3).Draw(t, "stops")
		d := &script{vocab: len(tokens), wants: rapid.SliceOfN(rapid.IntRange(0, len(tokens)-1), 1, 12).Draw(t, "wants")}
		var got []sample.Token
		o := sample.Options{MaxTokens: len(d.wants), StopStrings: stops, Start: []int{0}}
		if err := sample.Generate(context.Background(), d, tokens, "", o, record(&got)); err != nil {
			t.Fatal(err)
		}
		want, text := "", ""
		for _, id := range d.wants {
			want += tokens[id]
		}
		end := sample.EndLength
		for _, stop := range stops {
			if at := strings.Index(want, stop); at >= 0 {
				end = sample.EndStop
			}
		}
		for _, token := range got {
			text += token.Text
			if !utf8.ValidString(token.Text) {
				t.Fatalf("a token has the text %q", token.Text)
			}
		}
		for _, stop := range stops {
			if strings.Contains(text, stop) {
				t.Fatalf("the text %q has the stop string %q", text, stop)
			}
		}
		if !strings.HasPrefix(want, text) || got[len(got)-1].End != end || end == sample.EndLength && text != want {
			t.Fatalf("the text is %q and ends by %q, all of it is %q", text, got[len(got)-1].End, want)
		}
	})
}

// Log-probabilities are those of the model, whatever else the options say.
func TestLogProbs(t *testing.T) {
	d := &script{vocab: 5, wants: []int{2, 2}}
	o := sample.Options{
		MaxTokens: 2, Suppress: []int{2}, LogProbs: true, TopLogProbs: 3,
		Sampler: sample.SamplerOptions{RepetitionPenalty: 3, PresencePenalty: 2},
	}
	var got []sample.Token
	if err := sample.Generate(t.Context(), d, pieces{"a", "b", "c", "d"}, "d", o, record(&got)); err != nil {
		t.Fatal(err)
	}
	total := math.Log(math.Exp(5) + 4) // of all logits, also of a token that the tokenizer does not know
	for i, token := range got {
		want := []sample.Choice{{ID: 2, LogProb: 5 - total}, {ID: 0, LogProb: -total}, {ID: 1, LogProb: -total}}
		if token.ID != i || math.Abs(token.LogProb+total) > 1e-12 || len(token.Top) != len(want) {
			t.Fatalf("token %d is %+v", i, token)
		}
		for j, c := range token.Top {
			if c.ID != want[j].ID || math.Abs(c.LogProb-want[j].LogProb) > 1e-12 {
				t.Errorf("token %d: the choice %d is %+v, want %+v", i, j, c, want[j])
			}
		}
	}
}
