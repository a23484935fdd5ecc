package kernels

import (
	"errors"
	"fmt"
	"math"
)

// Choice says how the next token of a text is chosen. The zero value takes the most probable token.
type Choice struct {
	// Temperature divides the logits. 0 takes the most probable token, the first of several;
	// TopK, TopP, MinP and Random do not matter then.
	Temperature float64
	TopK        int     // leaves the K most probable tokens, and those as probable as the last of them; 0 for all
	TopP        float64 // leaves the fewest of these whose probabilities sum to at least so much of theirs; 0 for all
	MinP        float64 // leaves tokens at least so many times as probable as the most probable one; 0 for all

	// Repetition divides the positive logits of tokens that came before and multiplies their other
	// logits; 0 means 1. Presence is subtracted from the logits of tokens that were chosen before,
	// and Frequency as often as they were.
	Repetition, Presence, Frequency float64
	// Earlier are the tokens that came before, as far as penalties look at them, and those that
	// cannot be chosen. Each stands there once, or only as forbidden.
	Earlier []EarlierToken

	Tokens  int    // the choice is among so many first tokens; 0 for all
	Random  uint64 // decides: a random number of 64 bits
	LogProb bool   // asks for the log-probability of the token
}

// EarlierToken is a token that came before, and how often it was chosen: 0 if it was only in a
// prompt, [Forbidden] if it cannot be chosen.
type EarlierToken struct{ ID, Chosen int32 }

// Forbidden stands for how often a token was chosen that cannot be chosen.
const Forbidden = -1

// Chosen is a token that was chosen, and if asked for the logarithm of the probability that the
// logits give it, before temperature, penalties and whatever else a [Choice] says.
type Chosen struct {
	ID      int
	LogProb float64
	Err     error // why there is no token: no logit is finite, or one is NaN or +∞
}

// The columns of [ChooseTokens]'s settings: fields of a [Choice].
const (
	ChoiceTemperature = iota
	ChoiceTopK
	ChoiceTopP
	ChoiceMinP
	ChoiceRepetition
	ChoicePresence
	ChoiceFrequency
	ChoiceTokens
	ChoiceLogProb
	ChoiceSettings // how many there are
)

// mostTokens is one more than a text may choose from: up to there float32 holds every number, and
// 64 bits the sum of all weights.
const mostTokens = 1 << 24

// Settings are the row of [ChooseTokens]'s settings for a choice.
func (c *Choice) Settings() [ChoiceSettings]float32 {
	logProb := float32(0)
	if c.LogProb {
		logProb = 1
	}
	count := func(n int) float32 { return float32(min(n, mostTokens)) }
	topP := float32(c.TopP)
	if c.TopP > 0 {
		topP = max(topP, math.SmallestNonzeroFloat32) // 0 would be all
	}
	return [ChoiceSettings]float32{float32(c.Temperature), count(c.TopK), topP, float32(c.MinP),
		float32(c.Repetition), float32(c.Presence), float32(c.Frequency), count(c.Tokens), logProb}
}

// Validate returns what is wrong with the choice, naming the field, what it was and what it needs
// to be, or nil.
func (c *Choice) Validate() error {
	switch finite := func(x float64) bool { return math.Abs(x) <= math.MaxFloat32 }; {
	case !(c.Temperature >= 0) || math.IsInf(c.Temperature, 0):
		return fmt.Errorf("temperature is %v, it needs to be positive, or 0 for the most probable token", c.Temperature)
	case c.TopK < 0:
		return fmt.Errorf("top k is %d, it needs to be positive, or 0 for all tokens", c.TopK)
	case !(c.TopP >= 0 && c.TopP <= 1):
		return fmt.Errorf("top p is %v, it needs to be in (0, 1], or 0 for 1", c.TopP)
	case !(c.MinP >= 0 && c.MinP <= 1):
		return fmt.Errorf("min p is %v, it needs to be from 0 to 1", c.MinP)
	case !(c.Repetition >= 0) || !finite(c.Repetition):
		return fmt.Errorf("repetition penalty is %v, it needs to be positive and a float32, or 0 for none", c.Repetition)
	case !finite(c.Presence):
		return fmt.Errorf("presence penalty is %v, it needs to be a finite float32", c.Presence)
	case !finite(c.Frequency):
		return fmt.Errorf("frequency penalty is %v, it needs to be a finite float32", c.Frequency)
	case c.Tokens < 0:
		return fmt.Errorf("tokens is %d, it needs to be positive, or 0 for all", c.Tokens)
	}
	return nil
}

// ChooseTokens chooses the next token of each of B texts by its logits. For each text, in float32:
//
//	x_v = z_v, or for an earlier token z_v·repetition where that is negative and z_v/repetition
//	      elsewhere, less presence + chosen·frequency if it was chosen; −∞ for one that is forbidden
//	w_v = the weight of x_v − max x at the temperature: see [ChoiceWeight]
//
// Tokens are ordered by x, the first of equal ones first. Of those that TopK, TopP and MinP leave,
// the token is the first whose weight and those of the tokens left before it sum to more than
// ⌊random·Σw/2⁶⁴⌋. Weights are integers, so that the choice does not depend on the order of a sum,
// and every device makes the same.
type ChooseTokens struct {
	Logits Tensor // (B, V): z, contiguous rows, float32 or float64, which is rounded; −∞ is never chosen
	// Settings is (B, ChoiceSettings), contiguous rows of float32: see [Choice.Settings]. A
	// fraction of TopK is dropped, and what is not positive, or no number, is as 0.
	Settings Tensor
	Random   Tensor // (B), int64: 64 random bits
	// Earlier is a vector of int32. Its first B + 1 numbers say where the pairs of each text begin
	// and the last one's end, counted in pairs; the pairs follow, a token and how often it was
	// chosen or Forbidden. A text has each token once, or only as Forbidden. Tokens and pairs that
	// there are not are left out.
	Earlier Tensor
}

// ChosenTokens receives what ChooseTokens computes.
type ChosenTokens struct {
	// IDs is (B), int64: the tokens. Where a text has none it is what [ChoiceError] makes an error
	// of: −1 − v for a first x_v of NaN or +∞, and −1 − V where all are −∞.
	IDs Tensor
	// LogProbs is (B), float32: the logarithm of each token's softmax(z); 0 where it is not asked
	// for or there is no token.
	LogProbs Tensor
}

// ChoiceKernels choose tokens.
type ChoiceKernels interface {
	// ChooseTokens makes a choice for each text.
	ChooseTokens(c *ChooseTokens, out ChosenTokens) error
}

// Check returns what is wrong with a call of ChooseTokens.
func (c *ChooseTokens) Check(out ChosenTokens) error {
	if err := c.Validate(); err != nil {
		return err
	}
	texts := c.Logits.Shape[:1]
	return checkOperands(
		operand{name: "logits", tensor: c.Logits, shape: c.Logits.Shape, dtypes: [2]DType{F32, F64}, layout: contiguousRows},
		operand{name: "settings", tensor: c.Settings, shape: c.Settings.Shape, dtypes: [2]DType{F32}, layout: contiguousRows},
		operand{name: "random", tensor: c.Random, shape: texts, dtypes: [2]DType{I64}, layout: contiguousRows},
		operand{name: "earlier", tensor: c.Earlier, shape: c.Earlier.Shape, dtypes: [2]DType{I32}, layout: contiguousRows},
		operand{name: "ids", tensor: out.IDs, shape: texts, dtypes: [2]DType{I64}, layout: writtenRows},
		operand{name: "logProbs", tensor: out.LogProbs, shape: texts, dtypes: [2]DType{F32}, layout: writtenRows})
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil. Tensors may lack data.
func (c *ChooseTokens) Validate() error {
	if c == nil {
		return errNoProblem
	}
	if err := c.Logits.validateFeatures("logits"); err != nil {
		return err
	}
	switch z := c.Logits; {
	case len(z.Shape) != 2:
		return fmt.Errorf("logits has shape %v, it needs two axes (texts, tokens)", z.Shape)
	case z.Shape[1] >= mostTokens:
		return fmt.Errorf("logits is of %d tokens, it needs to be of less than %d", z.Shape[1], mostTokens)
	case len(c.Settings.Shape) != 2 || c.Settings.Shape[0] != z.Shape[0] || c.Settings.Shape[1] != ChoiceSettings:
		return fmt.Errorf("settings has shape %v, it needs shape %v", c.Settings.Shape, []int{z.Shape[0], ChoiceSettings})
	case len(c.Earlier.Shape) != 1 || c.Earlier.Shape[0] <= z.Shape[0]:
		return fmt.Errorf("earlier has shape %v, it needs one axis of at least %d", c.Earlier.Shape, z.Shape[0]+1)
	}
	return nil
}

// ChoiceWeight is 2⁴⁰·exp((x − largest)/temperature) as a whole number, for x up to the largest, by
// operations that every device rounds alike.
func ChoiceWeight(x, largest, temperature float32) uint64 {
	const (
		bits     = 40
		mantissa = 23
		log2E    = float32(math.Log2E)
	)
	power := float32(float32(float32(x-largest)/temperature) * log2E)
	if !(power > -bits-1) {
		return 0 // NaN of −∞ over an infinite temperature too
	}
	whole := float32(math.Floor(float64(power)))
	f := float32(power - whole)
	y := choicePower[0]
	for _, c := range choicePower[1:] {
		y = float32(y*f) + c
	}
	significant := uint64(y * (1 << mantissa))
	if shift := bits - mantissa + int(whole); shift >= 0 {
		return significant << shift
	} else {
		return significant >> -shift
	}
}

// choicePower is a polynomial near 2^f for f from 0 to 1, the highest power first. It is 1 at 0,
// and at most 3e-7 from it elsewhere.
var choicePower = [...]float32{0x1.ee382ep-10, 0x1.260a28p-7, 0x1.c9686ep-5, 0x1.ebd53cp-3, 0x1.62e4e2p-1, 1}

// ChoiceError is the error of a number that ChooseTokens gives in the place of a token: id is
// negative.
func ChoiceError(id, tokens int) error {
	if at := -1 - id; at < tokens {
		return fmt.Errorf("the logit of token %d is NaN or +Inf, it needs to be finite or -Inf", at)
	}
	return errors.New("all logits are -Inf, at least one needs to be finite")
}
