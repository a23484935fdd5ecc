package embed

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Embedder makes vectors of texts. It belongs to one goroutine.
type Embedder struct {
	model     *pretrained.Model
	tokenizer *tokenizer.HuggingFace
	s         settings
	masks     bool // padding is told by a mask and not by lengths
	predictor *train.Predictor
}

// Load reads a folder, or a model of the hub, as [pretrained.Load] does.
func Load(place string, o pretrained.Options) (*Embedder, error) {
	m, err := pretrained.Load(place, o)
	if err != nil {
		return nil, err
	}
	e, err := open(m)
	if err != nil {
		return nil, fmt.Errorf("embed: %s: %w", m.Folder(), err)
	}
	return e, nil
}

func open(m *pretrained.Model) (e *Embedder, err error) {
	e = &Embedder{model: m}
	reader := nn.NewScope(gorgonia.NewGraph(), m.Parameters())
	e.masks = !m.Encoder(reader).TakesLengths()
	decodes := reader.Err() != nil
	if e.s, err = readSettings(m.Folder(), decodes); err != nil {
		return nil, err
	}
	if e.tokenizer, err = tokenizer.Open(m.Folder()); err != nil {
		return nil, err
	}
	if e.s.lower {
		if e.tokenizer, err = e.tokenizer.Lowered(); err != nil {
			return nil, err
		}
	}
	e.predictor, err = train.NewPredictor(m.Parameters(), func(s *nn.Scope, in train.Inputs) nn.Tensor {
		if decodes {
			// Nothing sees the padding, which stands behind.
			return m.LanguageModel(s).Hidden(in.Get("tokens")).Cast(tensor.Float32)
		}
		inputs := nn.EncoderInputs{}
		if lengths := in.Get("lengths"); e.masks {
			inputs.KeyMask = lengths
		} else {
			inputs.KeyLengths = lengths
		}
		return m.Encoder(s).ForwardWith(in.Get("tokens"), inputs).Cast(tensor.Float32)
	})
	return e, err
}

// Model is the model that the vectors of tokens come from, such as to be trained.
func (e *Embedder) Model() *pretrained.Model { return e.model }

// Prompts are what may be put before texts, by their names.
func (e *Embedder) Prompts() map[string]string { return maps.Clone(e.s.prompts) }

// Close releases what the graphs of the model hold.
func (e *Embedder) Close() error {
	if e.predictor == nil {
		return nil
	}
	return e.predictor.Close()
}

// Embed is the vector of each text, with the prompt before it that the model has for texts of which
// nothing is said, which most have not.
func (e *Embedder) Embed(texts ...string) ([][]float32, error) {
	return e.embed(e.s.prompts[e.s.usual], texts)
}

// EmbedWith is [Embedder.Embed] with the prompt of that name, such as query or document.
func (e *Embedder) EmbedWith(prompt string, texts ...string) ([][]float32, error) {
	before, found := e.s.prompts[prompt]
	if !found {
		return nil, fmt.Errorf("embed: prompt is %q, it needs to be one of %q", prompt, slices.Sorted(maps.Keys(e.s.prompts)))
	}
	return e.embed(before, texts)
}

// rows is how many texts are read at a time.
const rows = 32

func (e *Embedder) embed(prompt string, texts []string) ([][]float32, error) {
	if e.predictor == nil {
		return nil, errors.New("embed: the Embedder is a zero value, it needs to be what Load gave")
	}
	if prompt != "" && e.s.pooling.withoutPrompt {
		return nil, errors.New("embed: the model leaves out its prompt when it pools, which is not supported")
	}
	ids, order := make([][]int, len(texts)), make([]int, len(texts))
	for i, text := range texts {
		var err error
		if ids[i], err = e.encode(prompt + text); err != nil {
			return nil, fmt.Errorf("embed: text %d: %w", i, err)
		}
		order[i] = i
	}
	// Texts of about one length are read together.
	slices.SortStableFunc(order, func(a, b int) int { return len(ids[b]) - len(ids[a]) })
	vectors := make([][]float32, len(texts))
	for some := range slices.Chunk(order, rows) {
		if err := e.read(some, ids, vectors); err != nil {
			return nil, fmt.Errorf("embed: %w", err)
		}
	}
	return vectors, nil
}

// encode makes tokens of a text, at most as many as the model takes: what the template adds stays.
func (e *Embedder) encode(text string) ([]int, error) {
	encoding, err := e.tokenizer.EncodeWith(text, tokenizer.EncodeOptions{NoLimits: true, Most: e.s.longest})
	if err != nil {
		return nil, err
	}
	if len(encoding.IDs) == 0 {
		return nil, errors.New("it has no tokens")
	}
	return encoding.IDs, nil
}

// read computes the vectors of some of the texts, of which the first is the longest.
func (e *Embedder) read(some []int, ids [][]int, vectors [][]float32) error {
	length := roundUp(len(ids[some[0]]))
	if e.s.longest > 0 {
		length = min(length, max(e.s.longest, len(ids[some[0]])))
	}
	batch := 1
	for batch < len(some) {
		batch *= 2
	}
	tokens, lengths := make([]int, batch*length), make([]int, batch)
	for row := range batch {
		text := ids[some[min(row, len(some)-1)]]
		lengths[row] = len(text)
		copy(tokens[row*length:], text)
	}
	h, err := e.predictor.Predict(data.Batch{"tokens": data.Ints(tokens, batch, length), "lengths": e.padding(lengths, length)})
	if err != nil {
		return err
	}
	dim := h.Shape()[2]
	for row, text := range some {
		first := h.Float32s()[row*length*dim:]
		if vectors[text], err = e.s.finish(first[:lengths[row]*dim], dim); err != nil {
			return err
		}
	}
	return nil
}

// padding says where texts end: their lengths, or 1 for each token and 0 behind.
func (e *Embedder) padding(lengths []int, length int) *tensor.Dense {
	if !e.masks {
		return data.Ints(lengths, len(lengths))
	}
	mask := make([]int, len(lengths)*length)
	for row, n := range lengths {
		for at := range n {
			mask[row*length+at] = 1
		}
	}
	return data.Ints(mask, len(lengths), length)
}

// roundUp is a length, or a little more, so that few lengths differ: each has a graph of its own.
func roundUp(n int) int {
	step := 8
	for step*8 < n {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// Cosine is how alike two vectors are: 1 where they point the same way, 0 where one is zero.
func Cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range min(len(a), len(b)) {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
