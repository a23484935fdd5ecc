package kernels

import (
	"errors"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels/score"
)

// Causal says which diagonal separates the past, which a query sees, from the future, which it does
// not.
type Causal int

const (
	NotCausal         Causal = iota // every query sees every key
	CausalBottomRight               // query i sees key j ≤ i + (Sk − Sq): the last query sees the last key
	CausalTopLeft                   // query i sees key j ≤ i: the first query sees the first key alone
)

// Window hides keys far from the diagonal: query i sees i + off + Shift − Left ≤ j ≤ i + off +
// Shift + Right, with off = Sk − Sq. Window{Left: 4, Shift: -10} lies wholly beside the diagonal:
// it shows the keys from 14 to 10 before it.
type Window struct {
	Left, Right int // 0 or more, or −1: unlimited
	Shift       int // of the window along the keys, of either sign; it moves no side that is unlimited
}

// Precision is the coarsest arithmetic that a backend may use for the matrix products of float32
// tensors. A backend may be more exact than asked, never less. The CPU rounds for PrecisionBFloat16
// alone, where the processor multiplies tiles of bfloat16; otherwise it computes in float32.
type Precision int

const (
	PrecisionAuto     Precision = iota // the fastest whose error is like float32's
	PrecisionFloat32                   // error like unfused float32
	PrecisionTF32                      // 10-bit mantissas
	PrecisionBFloat16                  // operands rounded to bfloat16
	PrecisionFloat16                   // operands rounded to float16
	// PrecisionFloat8 is for a [MatMul] of float32 or 16-bit tensors: each row of A and each column
	// of B is multiplied by its [Float8Scale] and rounded to [Float8]. Sums are float32's, but
	// for those of up to 256 products in a GPU, of which its units keep some 14 bits.
	PrecisionFloat8
)

// Validate returns an error if the precision is none of the known ones.
func (p Precision) Validate() error {
	if p < PrecisionAuto || p > PrecisionFloat8 {
		return fmt.Errorf("precision is %d, it needs to be PrecisionAuto, PrecisionFloat32, PrecisionTF32, PrecisionBFloat16, PrecisionFloat16 or PrecisionFloat8", p)
	}
	return nil
}

// OrSixteenBits is the precision for products that 8 bits are not meant for: PrecisionAuto in the
// place of PrecisionFloat8.
func (p Precision) OrSixteenBits() Precision {
	if p == PrecisionFloat8 {
		return PrecisionAuto
	}
	return p
}

// validateSixteenBits is Validate for kernels other than [MatMul].
func (p Precision) validateSixteenBits() error {
	if p < PrecisionAuto || p > PrecisionFloat16 {
		return fmt.Errorf("precision is %d, it needs to be PrecisionAuto, PrecisionFloat32, PrecisionTF32, PrecisionBFloat16 or PrecisionFloat16", p)
	}
	return nil
}

// MaxHeadDim is the largest size of a head.
const MaxHeadDim = 1024

// Attention is one attention problem: the inputs and everything that is done to them. Query head h
// reads key head h/(Hq/Hk). For one head, with i a query row, j a key row and off = Sk − Sq:
//
//	S_ij  = scale · q_i·k_j
//	S_ij  ← cap · tanh(S_ij / cap)                 if SoftCap is set
//	S_ij  ← S_ij − slope_h · |i + off − j|         if ALiBi is given
//	S_ij  ← S_ij + bias_ij                         if Bias is given
//	S_ij  ← Score(S_ij, i, j, …)                   if Score is given
//	S_ij  ← −∞                                     where Causal, Window or Mask hides (i, j)
//	LSE_i = log(Σ_j exp S_ij [+ exp sink_h])       the last term if Sinks is given
//	P_ij  = exp(S_ij − LSE_i)
//	O_i   = Σ_j P_ij · keep_ij/(1 − p) · v_j
//
// A row that sees no key has O = 0 and LSE = −∞ (with a sink, LSE = sink_h) and gives zero to the
// gradients of q, k, v and the bias. A row with a score or a sink of NaN or +∞ has O and LSE of
// NaN, whichever of its weights are dropped.
//
// # Keys of a batch
//
// K and V have Q's batch, or both a batch of 1 that every batch item of Q reads. DK and DV are then
// sums over the batch items, and have a batch of 1 too.
//
// KVLengths says how many rows of K and V batch item b has, from 0 to Sk, such as those of a cache
// that is not full. The item is a problem of so many keys: off = KVLengths[b] − Sq. The rows behind
// them are not read, and their gradients are 0. Bias keeps the whole Sk as its last axis.
//
// # Packed sequences
//
// With QLens and KVLens, sequences lie end to end along the length axis of a batch of one, and each
// is a problem of its own, with its own off, row and column numbers: sequence n takes the place of
// batch item n for Bias and Dropout. A sequence may have no queries or no keys. Rows behind the
// last sequence belong to none. They are not read, a row of Q there has O = 0 and LSE = −∞ even if
// there are sinks, and all gradients are 0 there; only δ has no meaning.
//
// # Large scores
//
// Scores and LSE are rounded to the type of sums: in float32 to within 6e-8 of their magnitude. The
// forward kernel subtracts what the scores and the sink of a row have in common, and so loses
// nothing else. In backward, P = exp(S − LSE) is off by a factor of up to 1 ± 6e-8·|LSE|. That is
// nothing at usual scores and 1% at 1e5. From about 1e7 on a gradient may be anything between 0 and
// that of P = 1, but never NaN. So it is with a row that sees nothing but keys with a bias of -1e9:
// its LSE is -1e9 too, without the logarithm of how many they are, and its P are 1.
//
// # Types
//
// Q, K, V, O and their gradients have one type. LSE, δ and dLSE have its [DType.Wide]. Bias, Sinks
// and Tables of floats may each have either type, and their gradients have the same.
type Attention struct {
	Q Tensor // (B, Hq, Sq, D); every axis but the last may have any stride
	K Tensor // (1|B, Hk, Sk, D)
	V Tensor // (1|B, Hk, Sk, Dv)

	Bias  Tensor // (1|B, 1|Hq, 1|Sq, 1|Sk), left out by the zero Tensor
	Sinks Tensor // (Hq), left out by the zero Tensor

	Lengths

	Scale   float64 // 0 means 1/√D; a Score that does not read the score leaves q·k out
	Causal  Causal
	Window  *Window
	SoftCap float64 // 0 means none
	ALiBi   []float64
	Program
	Dropout   Dropout
	Precision Precision
	Guarantees
}

// Guarantees are what callers ask of results beside their accuracy. The CPU's always have both.
type Guarantees struct {
	// Deterministic asks for gradients that are bit-equal from run to run.
	Deterministic bool
	// Confine keeps a NaN or an infinity in q, k, v or the output's gradient from rows that do not
	// see it. On a GPU one may otherwise reach rows up to a tile away, such as earlier tokens where
	// the future is hidden, or a neighbouring document: the matrix units multiply what a mask hides
	// by zero. What is then computed anew may differ in its last places. It costs up to 2% of long
	// sequences and 4 to 7% of short ones. Second derivatives there cannot have it.
	Confine bool
}

// Lengths says how long the sequences of an attention problem are, and where they belong. Its zero
// value is a batch whose items all have Sq queries and Sk keys.
type Lengths struct {
	// QLens and KVLens are the cumulative lengths of packed sequences: 0, then where each ends.
	// They are nil when not packed.
	QLens, KVLens []int
	KVLengths     []int // how many keys each of Q's batch items has; nil for all, and when packed
	// Places says where each part of [Attention.Sequences] lies in a larger problem. It is nil
	// where there is none. ALiBi's distances and Dropout's masks are those of that problem. What
	// the mask shows stays as it is, and Score and Mask cannot be had.
	Places []Place
}

// Program is what a caller has written about scores and visibility, beside the options.
type Program struct {
	Score  *score.Score // nil leaves scores as they are
	Mask   *score.Mask  // hides pairs that Causal and Window show; nil hides none
	Tables []Tensor     // what Score and Mask look up, in the order of [Attention.ScoreTables]
}

// Place is where an independent part of a problem lies in a larger problem. Row i and key j of the
// part are row Row + i and column Column + j of sequence Sequence there. A row and a column of one
// number are the same position of that sequence.
type Place struct{ Sequence, Row, Column int }

// AttentionOutputs receives what the forward kernel computes.
type AttentionOutputs struct {
	O   Tensor // (B, Hq, Sq, Dv), last axis contiguous
	LSE Tensor // (B, Hq, Sq) row-major, or left out
}

// AttentionGradients carries the backward kernel's inputs beside the problem itself, and what it
// computes. The gradient that is left out (the zero Tensor) is not computed.
type AttentionGradients struct {
	DO    Tensor // (B, Hq, Sq, Dv), last axis contiguous
	LSE   Tensor // (B, Hq, Sq) row-major, from the forward kernel
	Delta Tensor // (B, Hq, Sq) row-major, from the delta kernel

	DQ, DK, DV Tensor   // shaped as Q, K, V, last axis contiguous, every element written; all three or none
	DBias      Tensor   // shaped as Bias, row-major
	DSinks     Tensor   // shaped as Sinks, row-major
	DTables    []Tensor // nil, or one a table, shaped as it, row-major
}

// AttentionKernels are the three kernels of attention. Each validates the problem before it touches
// memory.
type AttentionKernels interface {
	// AttentionForward computes O, and the logsumexp of each row if asked.
	AttentionForward(a *Attention, out AttentionOutputs) error
	// AttentionDelta computes δ_i = Σ_d O_id·dO_id − dLSE_i into delta, (B, Hq, Sq) row-major; dLSE
	// may be left out.
	AttentionDelta(a *Attention, o, dO, dLSE, delta Tensor) error
	// AttentionBackward computes the gradients from the saved logsumexp and δ:
	//
	//	dP_ij = keep_ij/(1 − p) · dO_i·v_j
	//	dS_ij = P_ij (dP_ij − δ_i)
	//	dtable = Σ dS ∂Score/∂table over the lookups that find an element
	//	dS_ij ← dS_ij ∂Score/∂S_ij                  if Score is given
	//	dbias = Σ dS over the axes that bias broadcasts      dsink_h = −Σ_i exp(sink_h − LSE_i) δ_i
	//	dS_ij ← dS_ij (1 − (S_capped/cap)²)                  if SoftCap is set
	//	dv_j  = Σ_i P_ij keep_ij/(1 − p) dO_i   dq_i = scale Σ_j dS_ij k_j   dk_j = scale Σ_i dS_ij q_i
	AttentionBackward(a *Attention, g AttentionGradients) error
}

// Sequence is one independent part of a problem: a batch item, or one of the packed sequences.
type Sequence struct {
	Index    int // of the sequence, for bias and dropout
	Batch    int // the index on the batch axis of Q and O
	KeyBatch int // the index on the batch axis of K and V
	Q0, K0   int // where it starts on the length axes
	Sq, Sk   int

	// Where the part lies for Dropout: the sequence that counts, and its first row and column
	// there. Row i and column j are |i + Distance − j| apart for ALiBi.
	Place    Place
	Distance int
}

// Sequences lists the independent parts of the problem.
func (a *Attention) Sequences() []Sequence {
	list := a.parts()
	for n := range list {
		s := &list[n]
		s.Place, s.Distance = Place{Sequence: s.Index}, s.Sk-s.Sq
		if a.Places != nil {
			s.Place = a.Places[n]
			s.Distance = s.Place.Row - s.Place.Column
		}
	}
	return list
}

func (a *Attention) parts() []Sequence {
	if a.QLens == nil {
		list := make([]Sequence, a.Q.Shape[0])
		for b := range list {
			list[b] = Sequence{Index: b, Batch: b, Sq: a.Q.Shape[2], Sk: a.K.Shape[2]}
			if !a.SharesKeys() {
				list[b].KeyBatch = b
			}
			if a.KVLengths != nil {
				list[b].Sk = a.KVLengths[b]
			}
		}
		return list
	}
	list := make([]Sequence, len(a.QLens)-1)
	for n := range list {
		list[n] = Sequence{
			Index: n,
			Q0:    a.QLens[n], Sq: a.QLens[n+1] - a.QLens[n],
			K0: a.KVLens[n], Sk: a.KVLens[n+1] - a.KVLens[n],
		}
	}
	return list
}

// SharesKeys reports whether one batch item of K and V serves several of Q.
func (a *Attention) SharesKeys() bool { return a.K.Shape[0] == 1 && a.Q.Shape[0] > 1 }

// unlimited is farther than any sequence is long, and can be added to without overflow.
const unlimited = 1 << 40

// Band returns what Causal, Window and the band of Mask show of a sequence, as two diagonals: row i
// sees keys from max(0, i+lo) up to, not including, min(Sk, i+hi). The rest of Mask may hide some
// of them. Where nothing is hidden on a side, the bound is beyond every key.
func (a *Attention) Band(s Sequence) (lo, hi int) {
	off := s.Sk - s.Sq
	lo, hi = -unlimited, unlimited
	switch a.Causal {
	case CausalBottomRight:
		hi = off + 1
	case CausalTopLeft:
		hi = 1
	}
	if w := a.Window; w != nil {
		if w.Left >= 0 {
			lo = off + w.Shift - min(w.Left, 2*unlimited)
		}
		if w.Right >= 0 {
			hi = min(hi, off+w.Shift+min(w.Right, 2*unlimited)+1)
		}
	}
	if a.Mask != nil {
		from, to := a.Mask.Band(a.Where(s, 0))
		lo, hi = max(lo, from), min(hi, to)
	}
	return lo, hi
}

// EffectiveScale returns the factor of q·k: Scale, or 1/√D where Scale is 0.
func (a *Attention) EffectiveScale() float64 {
	if a.Scale != 0 {
		return a.Scale
	}
	return 1 / math.Sqrt(float64(a.Q.Shape[3]))
}

// VisiblePairs returns the number of (query, key) pairs within the bands of the sequences, over all
// query heads. What Mask hides of them is counted too.
func (a *Attention) VisiblePairs() int {
	pairs := 0
	for _, s := range a.Sequences() {
		lo, hi := a.Band(s)
		for i := range s.Sq {
			pairs += max(0, min(s.Sk, i+hi)-max(0, i+lo))
		}
	}
	return pairs * a.Q.Shape[1]
}

// ForwardFLOPs counts the multiplications and additions of the two matrix products over visible
// pairs.
func (a *Attention) ForwardFLOPs() float64 {
	return 2 * float64(a.VisiblePairs()) * float64(a.Q.Shape[3]+a.V.Shape[3])
}

// BackwardFLOPs counts the multiplications and additions of the five matrix products over visible
// pairs.
func (a *Attention) BackwardFLOPs() float64 {
	return 2 * float64(a.VisiblePairs()) * float64(3*a.Q.Shape[3]+2*a.V.Shape[3])
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil. Tensors may lack data, so that a problem can be checked before its values
// exist.
func (a *Attention) Validate() error {
	if a == nil {
		return errNoProblem
	}
	for _, check := range []func() error{a.validateShapes, a.validateOptions, a.validateLens, a.validateBias, a.validateSinks, a.validateScore, a.validatePlaces} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (a *Attention) validateShapes() error {
	for _, in := range []struct {
		name string
		t    Tensor
	}{{"q", a.Q}, {"k", a.K}, {"v", a.V}} {
		if err := in.t.validateRows(in.name); err != nil {
			return err
		}
		if in.t.DType != a.Q.DType {
			return fmt.Errorf("%s is %v, q is %v: all inputs need one dtype", in.name, in.t.DType, a.Q.DType)
		}
		if d := in.t.Shape[3]; d < 1 || d > MaxHeadDim {
			return fmt.Errorf("%s has a head size of %d, it needs to be from 1 to %d", in.name, d, MaxHeadDim)
		}
	}
	q, k, v := a.Q.Shape, a.K.Shape, a.V.Shape
	switch {
	case k[0] != q[0] && k[0] != 1:
		return fmt.Errorf("k has a batch of %d, it needs q's %d, or 1 for all of them", k[0], q[0])
	case v[0] != k[0]:
		return fmt.Errorf("v has a batch of %d, k of %d: they need to be equal", v[0], k[0])
	case k[1] == 0 && q[1] > 0:
		return fmt.Errorf("k has no heads, q has %d: they need at least one", q[1])
	case k[1] > 0 && q[1]%k[1] != 0:
		return fmt.Errorf("k has %d heads, which does not divide q's %d", k[1], q[1])
	case v[1] != k[1]:
		return fmt.Errorf("v has %d heads, it needs k's %d", v[1], k[1])
	case k[3] != q[3]:
		return fmt.Errorf("k has a head size of %d, it needs q's %d", k[3], q[3])
	case v[2] != k[2]:
		return fmt.Errorf("v has %d rows, it needs k's %d", v[2], k[2])
	}
	return nil
}

// validateRows checks what all of q, k, v, O and their gradients need: four axes, the last
// contiguous, no negative stride.
func (t Tensor) validateRows(name string) error {
	if len(t.Shape) != 4 {
		return fmt.Errorf("%s has shape %v, it needs four axes (batch, heads, length, head size)", name, t.Shape)
	}
	for _, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("%s has shape %v, no axis can be negative", name, t.Shape)
		}
	}
	return t.validateStrides(name)
}

func (t Tensor) validateStrides(name string) error {
	if len(t.Strides) != len(t.Shape) {
		return fmt.Errorf("%s has %d strides for its %d axes", name, len(t.Strides), len(t.Shape))
	}
	for _, s := range t.Strides {
		if s < 0 {
			return fmt.Errorf("%s has strides %v, none can be negative", name, t.Strides)
		}
	}
	if last := len(t.Shape) - 1; t.Shape[last] > 1 && t.Strides[last] != 1 {
		return fmt.Errorf("%s has a stride of %d along its last axis, which needs to be contiguous", name, t.Strides[last])
	}
	return nil
}

func (a *Attention) validateOptions() error {
	switch {
	case math.IsNaN(a.Scale) || math.IsInf(a.Scale, 0):
		return fmt.Errorf("scale is %v, it needs to be finite", a.Scale)
	case !(a.SoftCap >= 0) || math.IsInf(a.SoftCap, 0):
		return fmt.Errorf("soft cap is %v, it needs to be positive, or 0 for none", a.SoftCap)
	case a.Causal < NotCausal || a.Causal > CausalTopLeft:
		return fmt.Errorf("causal is %d, it needs to be NotCausal, CausalBottomRight or CausalTopLeft", a.Causal)
	case a.Precision.validateSixteenBits() != nil:
		return a.Precision.validateSixteenBits()
	case a.Window != nil && (a.Window.Left < -1 || a.Window.Right < -1):
		return fmt.Errorf("window is (%d, %d), each side needs to be 0 or more, or -1 for unlimited", a.Window.Left, a.Window.Right)
	case a.Window != nil && (a.Window.Shift < -unlimited || a.Window.Shift > unlimited):
		return fmt.Errorf("window has a shift of %d, it needs to be from %d to %d", a.Window.Shift, -unlimited, unlimited)
	case a.ALiBi != nil && len(a.ALiBi) != a.Q.Shape[1]:
		return fmt.Errorf("alibi has %d slopes, it needs one for each of q's %d heads", len(a.ALiBi), a.Q.Shape[1])
	}
	if err := a.Dropout.Validate(); err != nil {
		return err
	}
	for h, slope := range a.ALiBi {
		if math.IsNaN(slope) || math.IsInf(slope, 0) {
			return fmt.Errorf("alibi has a slope of %v for head %d, it needs to be finite", slope, h)
		}
		if err := validateNumber(fmt.Sprintf("alibi's slope for head %d", h), slope, a.Q.DType); err != nil {
			return err
		}
	}
	if err := validateNumber("scale", a.Scale, a.Q.DType); err != nil {
		return err
	}
	if err := validateNumber("soft cap", a.SoftCap, a.Q.DType); err != nil || a.SoftCap == 0 {
		return err
	}
	return validateNumber("scale over soft cap", a.EffectiveScale()/a.SoftCap, a.Q.DType)
}

func (a *Attention) validateBias() error {
	if !a.Bias.IsSet() {
		return nil
	}
	b := a.Bias
	if len(b.Shape) != 4 {
		return fmt.Errorf("bias has shape %v, it needs four axes (1 or batch, 1 or heads, 1 or q's length, 1 or k's length)", b.Shape)
	}
	if err := b.validateStrides("bias"); err != nil {
		return err
	}
	if err := a.validateAdded("bias", b.DType); err != nil {
		return err
	}
	batch, longestQ, longestK, packed := a.Q.Shape[0], a.Q.Shape[2], a.K.Shape[2], a.QLens != nil
	if packed {
		batch, longestQ, longestK = len(a.QLens)-1, longest(a.QLens), longest(a.KVLens)
	}
	fits := func(axis, want int) bool {
		return b.Shape[axis] == 1 || b.Shape[axis] == want || packed && axis >= 2 && b.Shape[axis] >= want
	}
	if !fits(0, batch) || !fits(1, a.Q.Shape[1]) || !fits(2, longestQ) || !fits(3, longestK) {
		return fmt.Errorf("bias has shape %v, which does not broadcast: it needs (1 or %d, 1 or %d, 1 or %d, 1 or %d)",
			b.Shape, batch, a.Q.Shape[1], longestQ, longestK)
	}
	return nil
}

// validateAdded checks the type of what is added to scores, or to their sum.
func (a *Attention) validateAdded(name string, dtype DType) error {
	switch own, wide := a.Q.DType, a.Q.DType.Wide(); {
	case dtype == own || dtype == wide:
		return nil
	case own == wide:
		return fmt.Errorf("%s is %v, it needs q's %v", name, dtype, own)
	default:
		return fmt.Errorf("%s is %v, it needs q's %v or %v", name, dtype, own, wide)
	}
}

// longest returns the greatest difference of neighbours.
func longest(lens []int) int {
	most := 0
	for n := 1; n < len(lens); n++ {
		most = max(most, lens[n]-lens[n-1])
	}
	return most
}

func (a *Attention) validateSinks() error {
	if !a.Sinks.IsSet() {
		return nil
	}
	if len(a.Sinks.Shape) != 1 || a.Sinks.Shape[0] != a.Q.Shape[1] {
		return fmt.Errorf("sinks has shape %v, it needs one value for each of q's %d heads", a.Sinks.Shape, a.Q.Shape[1])
	}
	if err := a.validateAdded("sinks", a.Sinks.DType); err != nil {
		return err
	}
	return a.Sinks.validateStrides("sinks")
}

func (a *Attention) validateLens() error {
	if a.QLens == nil && a.KVLens == nil {
		return a.validateKVLengths()
	}
	if a.KVLengths != nil {
		return fmt.Errorf("kvLengths has %d entries, packed sequences need their keys' lengths in kvLens alone", len(a.KVLengths))
	}
	if a.QLens == nil || a.KVLens == nil {
		return fmt.Errorf("qLens has %d entries and kvLens has %d: packed sequences need both", len(a.QLens), len(a.KVLens))
	}
	if a.Q.Shape[0] != 1 {
		return fmt.Errorf("q has a batch of %d, packed sequences need a batch of 1", a.Q.Shape[0])
	}
	if len(a.QLens) != len(a.KVLens) {
		return fmt.Errorf("kvLens has %d entries, it needs qLens's %d", len(a.KVLens), len(a.QLens))
	}
	if err := validateCumulative("qLens", a.QLens, "q", a.Q.Shape[2]); err != nil {
		return err
	}
	return validateCumulative("kvLens", a.KVLens, "k", a.K.Shape[2])
}

func (a *Attention) validatePlaces() error {
	if a.Places == nil {
		return nil
	}
	switch parts := len(a.parts()); {
	case len(a.Places) != parts:
		return fmt.Errorf("places has %d entries, it needs one for each of the %d sequences", len(a.Places), parts)
	case a.Score != nil || a.Mask != nil:
		return errors.New("places are given with a score or a mask, which do not know them")
	}
	for n, p := range a.Places {
		if p.Sequence < 0 || p.Row < 0 || p.Column < 0 {
			return fmt.Errorf("place %d is %+v, no number in it can be negative", n, p)
		}
	}
	return nil
}

func (a *Attention) validateKVLengths() error {
	if a.KVLengths != nil && len(a.KVLengths) != a.Q.Shape[0] {
		return fmt.Errorf("kvLengths has %d entries, it needs one for each of q's %d batch items", len(a.KVLengths), a.Q.Shape[0])
	}
	for b, n := range a.KVLengths {
		if n < 0 || n > a.K.Shape[2] {
			return fmt.Errorf("kvLengths is %d for batch item %d, it needs to be from 0 to k's %d rows", n, b, a.K.Shape[2])
		}
	}
	return nil
}

func validateCumulative(name string, lens []int, of string, total int) error {
	if len(lens) < 2 || lens[0] != 0 {
		return fmt.Errorf("%s is %v, it needs to be 0 and then where each sequence ends", name, lens)
	}
	for n := 1; n < len(lens); n++ {
		if lens[n] < lens[n-1] {
			return fmt.Errorf("%s goes from %d to %d at entry %d, it cannot decrease", name, lens[n-1], lens[n], n)
		}
	}
	if last := lens[len(lens)-1]; last > total {
		return fmt.Errorf("%s ends at %d, %s has %d rows", name, last, of, total)
	}
	return nil
}
