package reference

import (
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Attention computes the output and the logsumexp of every row: o is (B, Hq, Sq, Dv) and lse is (B,
// Hq, Sq), both row-major whatever the strides of the inputs. The problem must be valid, with
// tensors of floats.
func Attention(a *kernels.Attention) (o, lse []float64) {
	return Arithmetic[float64]{}.Attention(a, nil)
}

// AttentionGradients are the gradients of a problem's inputs, each row-major in the shape of its
// input. DBias and DSinks are nil where the problem has no bias or no sinks, and so is an entry of
// DTables for a table of integers.
type AttentionGradients struct {
	DQ, DK, DV, DBias, DSinks []float64
	DTables                   [][]float64
}

// AttentionGrad computes the gradients from those of the outputs: dO is (B, Hq, Sq, Dv) and dLSE is
// (B, Hq, Sq), row-major; a nil dLSE stands for zeros.
func AttentionGrad(a *kernels.Attention, dO, dLSE []float64) AttentionGradients {
	return Arithmetic[float64]{}.AttentionGrad(a, dO, dLSE, nil)
}

// AttentionDelta computes δ_i = Σ_d O_id·dO_id − dLSE_i as (B, Hq, Sq), row-major, from row-major
// o, dO and dLSE.
func AttentionDelta(a *kernels.Attention, o, dO, dLSE []float64) []float64 {
	return Arithmetic[float64]{}.AttentionDelta(a, o, dO, dLSE)
}

// Rows chooses query rows: by the index of the sequence, the query head, and the row's number in
// its sequence. A nil Rows chooses all.
type Rows func(sequence, head, row int) bool

// Attention is [Attention] in this arithmetic, for the chosen rows alone; the rest of o is 0, of
// lse −∞.
func (m Arithmetic[T]) Attention(a *kernels.Attention, rows Rows) (o, lse []float64) {
	hq, sq, size := a.Q.Shape[1], a.Q.Shape[2], a.V.Shape[3]
	o, lse = make([]float64, a.Q.Shape[0]*hq*sq*size), make([]float64, a.Q.Shape[0]*hq*sq)
	for i := range lse {
		lse[i] = math.Inf(-1)
	}
	eachKeyHead(a, runtime.GOMAXPROCS(0), func(s kernels.Sequence, keyHead int) {
		k, v := m.loadKeys(a, s, keyHead)
		for _, h := range m.queryHeads(a, s, keyHead, k) {
			for i := range s.Sq {
				if rows != nil && !rows(s.Index, h.index, i) {
					continue
				}
				at := (s.Batch*hq+h.index)*sq + s.Q0 + i
				r := h.row(i)
				copyTo(o[at*size:], r.output(v, size))
				lse[at] = float64(r.lse)
			}
		}
	})
	return o, lse
}

// AttentionDelta is [AttentionDelta] in this arithmetic.
func (m Arithmetic[T]) AttentionDelta(a *kernels.Attention, o, dO, dLSE []float64) []float64 {
	size := a.V.Shape[3]
	delta := make([]float64, len(o)/size)
	for i := range delta {
		sum := dotBackwards(load[T](o[i*size:][:size]), load[T](dO[i*size:][:size]))
		if dLSE != nil {
			sum -= T(dLSE[i])
		}
		delta[i] = float64(sum)
	}
	return delta
}

// AttentionGrad is [AttentionGrad] in this arithmetic, of a dO and dLSE that are 0 outside the
// chosen rows: these rows are all that it computes, so that a long problem can be checked at the
// price of a few rows.
func (m Arithmetic[T]) AttentionGrad(a *kernels.Attention, dO, dLSE []float64, rows Rows) AttentionGradients {
	g := newGradients(m, a, dO, dLSE)
	workers := runtime.GOMAXPROCS(0)
	if sharesGradients(a) {
		workers = 1
	}
	eachKeyHead(a, workers, func(s kernels.Sequence, keyHead int) { g.ofKeyHead(s, keyHead, rows) })
	for _, list := range [][]float64{g.DK, g.DV} {
		copyTo(list, m.results(load[T](list)))
	}
	g.DBias, g.DSinks = load[float64](m.results(g.dBias)), load[float64](m.results(g.dSinks))
	for _, d := range g.dTables {
		g.DTables = append(g.DTables, load[float64](m.results(d)))
	}
	return g.AttentionGradients
}

// gradients are on their way.
type gradients[T kernels.Float] struct {
	AttentionGradients
	m             Arithmetic[T]
	a             *kernels.Attention
	dO, dLSE      []float64
	dBias, dSinks []T // nil for none
	biasStrides   []int
	dTables       [][]T // nil for a table that has none
}

func newGradients[T kernels.Float](m Arithmetic[T], a *kernels.Attention, dO, dLSE []float64) *gradients[T] {
	g := &gradients[T]{m: m, a: a, dO: dO, dLSE: dLSE, dTables: make([][]T, len(a.Tables))}
	g.DQ, g.DK, g.DV = make([]float64, a.Q.Elements()), make([]float64, a.K.Elements()), make([]float64, a.V.Elements())
	if a.Bias.IsSet() {
		g.dBias, g.biasStrides = make([]T, a.Bias.Elements()), rowMajor(a.Bias.Shape)
	}
	if a.Sinks.IsSet() {
		g.dSinks = make([]T, a.Q.Shape[1])
	}
	for n, table := range a.ScoreTables() {
		if table.Type == score.Float {
			g.dTables[n] = make([]T, a.Tables[n].Elements())
		}
	}
	return g
}

// ofKeyHead adds what the queries of a key head give.
func (g *gradients[T]) ofKeyHead(s kernels.Sequence, keyHead int, rows Rows) {
	m, a := g.m, g.a
	hq, sq, hk, sk := a.Q.Shape[1], a.Q.Shape[2], a.K.Shape[1], a.K.Shape[2]
	d, dv, scale := a.Q.Shape[3], a.V.Shape[3], T(a.EffectiveScale())
	k, v := m.loadKeys(a, s, keyHead)
	dK, dV := matrix[T](s.Sk, d), matrix[T](s.Sk, dv)
	for _, h := range m.queryHeads(a, s, keyHead, k) {
		for i := range s.Sq {
			if rows != nil && !rows(s.Index, h.index, i) {
				continue
			}
			at := (s.Batch*hq+h.index)*sq + s.Q0 + i
			r := h.row(i)
			dOi := load[T](g.dO[at*dv:][:dv])
			factors := m.operands(dOi) // of products
			dQi := make([]T, d)

			// δ_i = Σ_d O_id dO_id − dLSE_i
			delta := dotBackwards(r.output(v, dv), dOi)
			if g.dLSE != nil {
				delta -= T(g.dLSE[at])
			}
			for n, j := range r.keys {
				// dv_j += P̃_ij·dO_i
				add(dV[j], r.dropped[n], factors)
				// dP_ij = keep_ij/(1−p)·dO_i·v_j      dS_ij = P_ij (dP_ij − δ_i)
				dP := m.result(r.kept[n] * dot(factors, v[j]))
				dS := m.result(r.p[n] * (dP - delta))
				// dtable += dS·∂Score/∂table       dS_ij ← dS_ij ∂Score/∂S_ij A dS of 0 stays 0:
				// Score may have no derivative where P_ij is 0, as at scores of −∞.
				if dS != 0 {
					for _, look := range r.lookups {
						g.dTables[look.table][look.at[n]] += dS * look.slopes[n]
					}
					dS = m.result(dS * r.scoreGrad[n])
				}
				// dbias = Σ dS over the axes that bias broadcasts
				if g.dBias != nil {
					g.dBias[h.biasOffset(g.biasStrides, i, j)] += dS
				}
				// dS_ij ← dS_ij (1 − (S_capped/cap)²)
				dS = m.operand(m.result(dS * r.capGrad[n]))
				// dq_i += scale·dS_ij·k_j             dk_j += scale·dS_ij·q_i
				add(dQi, scale*dS, k[j])
				add(dK[j], scale*dS, h.q[i])
			}
			// dsink −= exp(sink − LSE_i)·δ_i
			if g.dSinks != nil {
				g.dSinks[h.index] -= r.sinkP * delta
			}
			copyTo(g.DQ[at*d:], m.results(dQi))
		}
	}
	for j := range s.Sk {
		at := (s.KeyBatch*hk+keyHead)*sk + s.K0 + j
		addTo(g.DK[at*d:], dK[j])
		addTo(g.DV[at*dv:], dV[j])
	}
}

// sharesGradients reports whether several sequences or key heads add to the same elements of a
// gradient.
func sharesGradients(a *kernels.Attention) bool {
	if len(a.Tables) > 0 {
		return true
	}
	if len(a.Sequences()) > 1 && (a.SharesKeys() || a.Sinks.IsSet() || a.Bias.IsSet() && a.Bias.Shape[0] == 1) {
		return true
	}
	return a.Bias.IsSet() && a.K.Shape[1] > 1 && a.Bias.Shape[1] == 1
}

// eachKeyHead calls do for every sequence and key head, from several goroutines if workers allow
// it.
func eachKeyHead(a *kernels.Attention, workers int, do func(s kernels.Sequence, keyHead int)) {
	free := make(chan struct{}, workers)
	var wait sync.WaitGroup
	for _, s := range a.Sequences() {
		for keyHead := range a.K.Shape[1] {
			free <- struct{}{}
			wait.Go(func() {
				do(s, keyHead)
				<-free
			})
		}
	}
	wait.Wait()
}

// head is one query head of one sequence, beside the keys that it reads.
type head[T kernels.Float] struct {
	Arithmetic[T]
	a        *kernels.Attention
	sequence kernels.Sequence
	index    int
	q, k     [][]T
	sink     T // −∞ where the problem has none
	tables   []score.Values[T]
}

// queryHeads returns the heads of the group that reads a key head.
func (m Arithmetic[T]) queryHeads(a *kernels.Attention, s kernels.Sequence, keyHead int, k [][]T) []*head[T] {
	heads := make([]*head[T], a.Q.Shape[1]/a.K.Shape[1])
	tables, err := kernels.TableValues[T](a)
	if err != nil {
		panic(err)
	}
	for n := range heads {
		index := keyHead*len(heads) + n
		heads[n] = &head[T]{Arithmetic: m, a: a, sequence: s, index: index, k: k, sink: T(math.Inf(-1)), tables: tables}
		heads[n].q = m.loadRows(a.Q, s.Batch, index, s.Q0, s.Sq)
		if a.Sinks.IsSet() {
			heads[n].sink = T(element(a.Sinks, a.Sinks.Offset(index)))
		}
	}
	return heads
}

// sees reports whether the mask shows key j to row i.
func (h *head[T]) sees(i, j int) bool {
	off := h.sequence.Sk - h.sequence.Sq
	if h.a.Causal == kernels.CausalBottomRight && j > i+off {
		return false
	}
	if h.a.Causal == kernels.CausalTopLeft && j > i {
		return false
	}
	if w := h.a.Window; w != nil {
		distance := j - (i + off + w.Shift)
		if w.Left >= 0 && -distance > w.Left || w.Right >= 0 && distance > w.Right {
			return false
		}
	}
	return true
}

// line is the pairs of row i with all keys.
func (h *head[T]) line(i int) score.Line[T] {
	return score.Line[T]{Where: h.a.Where(h.sequence, h.index), N: h.sequence.Sk, Query: i, KeyStep: 1, Tables: h.tables}
}

// shown reports of each key whether Mask shows it to row i.
func (h *head[T]) shown(i int) []bool {
	if h.a.Mask == nil {
		return slices.Repeat([]bool{true}, h.sequence.Sk)
	}
	mask := score.NewEvaluator[T](h.a.Mask.Whole)
	mask.Run(h.line(i))
	return mask.Bools(0)
}

// biasOffset returns where the bias of a pair lies, with the given strides: an axis of size 1
// stands for every index.
func (h *head[T]) biasOffset(strides []int, i, j int) int {
	offset := 0
	for axis, index := range [4]int{h.sequence.Index, h.index, i, j} {
		if h.a.Bias.Shape[axis] > 1 {
			offset += index * strides[axis]
		}
	}
	return offset
}

// row is what one query row makes of the keys that it sees. The slices run over these keys alone.
type row[T kernels.Float] struct {
	Arithmetic[T]
	keys    []int
	p       []T // P_ij, before dropout
	kept    []T // keep_ij/(1−p)
	dropped []T // P̃_ij, after dropout, as a factor: zero where dropped, whatever P_ij is
	capGrad []T // 1 − (S_capped/cap)², the derivative of the soft cap
	lse     T
	sinkP   T // exp(sink − LSE_i)

	scoreGrad []T // ∂Score/∂S
	lookups   []lookup[T]
	before    []T // the scores that Score changed
}

// lookup is what one lookup of floats in Score found for each key: the element's place in the
// table, and ∂Score by it.
type lookup[T kernels.Float] struct {
	table  int
	at     []int
	slopes []T
}

func (h *head[T]) row(i int) row[T] {
	r := row[T]{Arithmetic: h.Arithmetic}
	for j, shown := range h.shown(i) {
		if shown && h.sees(i, j) {
			r.keys = append(r.keys, j)
		}
	}
	a, n := h.a, len(r.keys)
	r.p, r.kept, r.dropped, r.capGrad = make([]T, n), make([]T, n), make([]T, n), make([]T, n)
	off, place := h.sequence.Distance, h.sequence.Place
	plane := place.Sequence*a.Q.Shape[1] + h.index
	scale, softCap := T(a.EffectiveScale()), T(a.SoftCap)

	scores, most := make([]T, n), h.sink
	for n, j := range r.keys {
		// S_ij = scale·q_i·k_j, rounded: fused with what is subtracted from it, it might not be the
		// maximum that it gave
		s := h.result(T(scale * dot(h.q[i], h.k[j])))
		// S_ij ← cap·tanh(S_ij/cap)
		r.capGrad[n] = 1
		if softCap > 0 {
			t := T(math.Tanh(float64(s / softCap)))
			s, r.capGrad[n] = h.result(T(softCap*t)), 1-t*t
		}
		// S_ij ← S_ij − slope·|i + off − j|
		if a.ALiBi != nil {
			s = h.result(s - T(a.ALiBi[h.index])*T(math.Abs(float64(i+off-j))))
		}
		// S_ij ← S_ij + bias_ij
		if a.Bias.IsSet() {
			s = h.result(s + T(element(a.Bias, h.biasOffset(a.Bias.Strides, i, j))))
		}
		scores[n] = s

		r.kept[n] = 1
		if a.Dropout.P > 0 {
			r.kept[n] = 0
			if a.Dropout.Keep(plane, place.Row+i, place.Column+j) {
				r.kept[n] = T(a.Dropout.Scale())
			}
		}
	}

	// S_ij ← Score(S_ij, i, j, …)
	r.before = slices.Clone(scores)
	h.changeScores(i, scores, &r)
	for _, s := range scores {
		most = max(most, s)
	}

	// A row that sees no key, or scores of −∞ alone, has LSE = −∞ and P = 0.
	r.lse = T(math.Inf(-1))
	if most == r.lse {
		return r
	}
	// LSE_i = log(Σ_j exp S_ij + exp sink), with the largest term taken out of the sum. A score of
	// +∞ makes ∞ − ∞ here, so that the whole row is NaN.
	sum := exp(h.sink - most)
	for _, s := range scores {
		sum += exp(s - most)
	}
	r.lse = most + T(math.Log(float64(sum)))
	// P_ij = exp(S_ij − LSE_i). Far from zero LSE loses what it is above the largest score, so the
	// definition divides by the sum; float32 is what programs compute that keep LSE alone.
	weight := func(s T) T { return exp(s - r.lse) }
	if kernels.DTypeOf[T]() == kernels.F64 {
		weight = func(s T) T { return exp(s-most) / sum }
	}
	r.sinkP = weight(h.sink)
	for n, s := range scores {
		r.p[n] = h.result(weight(s))
		// P̃_ij = P_ij·keep_ij/(1−p)
		if r.kept[n] != 0 {
			r.dropped[n] = h.operand(r.p[n] * r.kept[n])
		}
	}
	return r
}

// changeScores applies Score to the scores of the keys that row i sees, and keeps its derivatives.
func (h *head[T]) changeScores(i int, scores []T, r *row[T]) {
	r.scoreGrad = slices.Repeat([]T{1}, len(scores))
	if h.a.Score == nil {
		return
	}
	line := h.line(i)
	line.Scores = make([]T, line.N)
	for n, j := range r.keys {
		line.Scores[j] = scores[n]
	}
	program := h.a.Score.Backward
	e := score.NewEvaluator[T](program)
	e.Run(line)
	for n, j := range r.keys {
		scores[n], r.scoreGrad[n] = h.result(e.Floats(0)[j]), e.Floats(1)[j]
	}
	for _, g := range h.a.Score.Lookups {
		found, shape := lookup[T]{table: g.Table}, h.a.Tables[g.Table].Shape
		for _, j := range r.keys {
			at := 0
			for axis, index := range g.Index {
				at = at*shape[axis] + score.Clamp(e.IntsOf(index)[j], shape[axis])
			}
			found.at, found.slopes = append(found.at, at), append(found.slopes, e.FloatsOf(g.Slope)[j])
		}
		r.lookups = append(r.lookups, found)
	}
}

// output is O_i = Σ_j P̃_ij·v_j, and NaN where no P is a number, however many of them are dropped.
func (r row[T]) output(v [][]T, size int) []T {
	o := make([]T, size)
	if r.lse != r.lse {
		return slices.Repeat([]T{r.lse}, size)
	}
	for n, j := range r.keys {
		add(o, r.dropped[n], v[j])
	}
	return r.results(o)
}
