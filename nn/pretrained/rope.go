package pretrained

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// ropeProblem is what the options of RoPE depend on beside the object that the config has for it.
type ropeProblem struct {
	headDim    int
	theta      float64 // the base where the object has none
	partial    float64 // how much of each head turns where the config does not say
	bands      bool    // a part of each head may turn, and the rest stand
	neighbours bool    // pairs are neighbours, not half a head apart
	trained    int     // max_position_embeddings
	original   int     // the context of the first training; 0 for what the config or the object says, or trained
	context    int     // the longest sequence that the model will be used for; 0 for as long as the first frequencies hold
	scores     float64 // is set to what DeepSeek multiplies scores with beside the usual; 0 for nothing
	holds      int     // is set to the longest sequence that the frequencies are for; 0 for any
}

// rope reads the options of RoPE for layers of a type, empty where there is but one. They are in
// rope_parameters, one object or one a type, or, in configs written before transformers 5, in
// rope_scaling.
func (c *config) rope(layerType string, p *ropeProblem) ops.RoPEOptions {
	partial := c.float("partial_rotary_factor", p.partial)
	o, older := c.object("rope_parameters"), c.object("rope_scaling")
	switch {
	case o != nil && older != nil && !bytes.Equal(compact(c.fields["rope_parameters"]), compact(c.fields["rope_scaling"])):
		c.fail("field rope_scaling is given beside rope_parameters, and differs from it")
	case o == nil:
		o = older
	case layerType != "":
		types := o
		for _, t := range []string{fullAttention, slidingAttention} {
			if inner := types.object(t); t == layerType {
				o = inner
			}
		}
		c.join(types)
	}
	theta, kind := p.theta, "default"
	if o != nil {
		theta, partial = o.float("rope_theta", theta), o.float("partial_rotary_factor", partial)
		kind = o.string("rope_type", o.string("type", kind))
	}
	if !(partial > 0 && partial <= 1) || partial != 1 && !p.bands {
		c.fail("field partial_rotary_factor is %v, only 1 is supported", partial)
	}
	c.checkBase(theta)
	options := turned(ops.RoPEOptions{Base: theta}, partial, p.headDim)
	if n := options.RotaryDim; partial < 1 && (n == 0 || n%2 != 0) {
		c.fail("field partial_rotary_factor is %v, of which a head of %d dimensions turns %d, it needs to be an even number", partial, p.headDim, n)
	}
	p.original = cmp.Or(p.original, c.optionalSize("original_max_position_embeddings"))
	if o != nil {
		options = o.scaled(kind, options, p)
		c.join(o)
	}
	return options
}

// compact is JSON without its spaces.
func compact(text json.RawMessage) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return text
	}
	return b.Bytes()
}

// turned sets how many dimensions of a head turn.
func turned(o ops.RoPEOptions, partial float64, headDim int) ops.RoPEOptions {
	if partial != 1 {
		o.RotaryDim = int(float64(headDim) * partial)
	}
	return o
}

// scaled changes the options as the kind of scaling says.
func (c *config) scaled(kind string, o ops.RoPEOptions, p *ropeProblem) ops.RoPEOptions {
	original := cmp.Or(p.original, c.optionalSize("original_max_position_embeddings"), p.trained)
	var err error
	switch kind {
	case "default", "":
		c.unread("factor") // means nothing without another type
	case "dynamic":
		// Up to the length of the training it is the default.
		c.stretch(1)
		p.holds = p.trained
	case "linear":
		o.Scaling = c.stretch(1)
	case "llama3":
		o, err = nn.Llama3RoPE{
			Factor: c.stretch(0), Low: c.float("low_freq_factor", 0), High: c.float("high_freq_factor", 0), Context: original,
		}.Apply(o, p.headDim)
	case "yarn":
		y := nn.YaRN{
			Factor: c.stretch(float64(p.trained) / float64(original)),
			Fast:   c.float("beta_fast", 32), Slow: c.float("beta_slow", 1),
			Context: original, NoRounding: !c.bool("truncate", true), Amplitude: c.float("attention_factor", 0),
		}
		m, all := c.float("mscale", 0), c.float("mscale_all_dim", 0)
		if grows := math.Log(max(1, y.Factor)) / 10; all != 0 {
			p.scores = (1 + all*grows) * (1 + all*grows)
			if y.Amplitude == 0 && m != 0 {
				y.Amplitude = (1 + m*grows) / (1 + all*grows)
			}
		}
		o, err = y.Apply(o, p.headDim)
	case "longrope", "su":
		o = c.longRoPE(o, p, original)
	default:
		c.fail("field %srope_type is %q, it needs to be default, linear, dynamic, llama3, yarn or longrope", c.within, kind)
	}
	if err != nil {
		c.fail("field %s: %w", c.within[:len(c.within)-1], err)
	}
	return o
}

// checkBase refuses a base below 1. Pairs would turn by more than a radian a token, and by so many
// turns in all that float32 does not tell where they end.
func (c *config) checkBase(theta float64) {
	if theta < 1 {
		c.fail("field rope_theta is %v, it needs to be at least 1", theta)
	}
}

// stretch reads by how much positions are divided, at least 1 as transformers asks for.
func (c *config) stretch(otherwise float64) float64 {
	factor := c.float("factor", otherwise)
	if c.has("factor") && factor < 1 {
		c.fail("field %sfactor is %v, it needs to be at least 1", c.within, factor)
	}
	return factor
}

// longRoPE takes one of two lists of divisors, by the length that the model will be used for.
func (c *config) longRoPE(o ops.RoPEOptions, p *ropeProblem, original int) ops.RoPEOptions {
	short, long := c.floats("short_factor"), c.floats("long_factor")
	o.Divisors, p.holds = short, original
	if p.context > original {
		o.Divisors, p.holds = long, p.context
	}
	stretch := c.float("factor", float64(p.trained)/float64(original))
	o.Amplitude = c.float("attention_factor", 0)
	if o.Amplitude == 0 && stretch > 1 {
		o.Amplitude = math.Sqrt(1 + math.Log(stretch)/math.Log(float64(original)))
	}
	pairs := p.headDim / 2
	if o.RotaryDim > 0 {
		pairs = o.RotaryDim / 2
	}
	for _, list := range [][]float64{short, long} {
		if len(list) != pairs {
			c.fail("field %sshort_factor or long_factor has %d numbers, it needs one for each of the %d pairs of a head", c.within, len(list), pairs)
		}
	}
	return o
}
