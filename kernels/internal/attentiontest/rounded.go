package attentiontest

import (
	"math"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
)

// Rounding is arithmetic that is coarser than float32.
type Rounding struct {
	Operand func(float32) float32 // what a factor of a matrix product becomes
	Result  func(float32) float32 // what a matrix that is stored becomes
	Unit    float64               // the distance from 1 to the next larger operand
}

// Round makes every value of the inputs one that round leaves as it is, which a test of 16-bit tensors begins with.
func (p *Problem[T]) Round(round func(float32) float32) {
	for i, b := range p.inputs {
		for j, x := range b.data {
			b.data[j] = T(round(float32(x)))
		}
		copy(p.inputsBefore[i], b.data)
	}
	p.expected = nil
}

// CheckRounded is [Problem.Check] for a kernel whose arithmetic is coarser than the tensors' type: its errors are compared
// with those of an unfused program in that arithmetic, which stores the scores, the probabilities and their gradients.
func CheckRounded(p *Problem[float32], r *Rounding) error {
	if p.expected == nil || p.expected.rounding != r {
		p.expected = &expected{ref: compute[float64](p), pt: unfused(p, *r), rounding: r}
	}
	return p.Check()
}

// unfused is the program that CheckRounded compares with. Sums are float32.
func unfused(p *Problem[float32], r Rounding) results64 {
	a := &p.Attention
	batch, hq, sq, hk, sk := a.Q.Shape[0], a.Q.Shape[1], a.Q.Shape[2], a.K.Shape[1], a.K.Shape[2]
	d, dv := a.Q.Shape[3], a.V.Shape[3]
	var out results64
	out.o, out.lse, out.delta = make([]float64, batch*hq*sq*dv), make([]float64, batch*hq*sq), make([]float64, batch*hq*sq)
	out.DQ, out.DK, out.DV = make([]float64, batch*hq*sq*d), make([]float64, batch*hk*sk*d), make([]float64, batch*hk*sk*dv)
	var sums sync.Mutex // of what several heads add to
	if a.Bias.IsSet() {
		out.DBias = make([]float64, a.Bias.Elements())
	}
	if a.Sinks.IsSet() {
		out.DSinks = make([]float64, hq)
	}
	var heads sync.WaitGroup
	for _, s := range a.Sequences() {
		for keyHead := range hk {
			heads.Go(func() {
				u := unfusedHead{Problem: p, Rounding: r, s: s, out: &out, sums: &sums,
					k: u32(a.K, s.Batch, keyHead, s.K0, s.Sk, r.Operand), v: u32(a.V, s.Batch, keyHead, s.K0, s.Sk, r.Operand)}
				u.dK, u.dV = make([]float32, s.Sk*d), make([]float32, s.Sk*dv)
				for h := keyHead * hq / hk; h < (keyHead+1)*hq/hk; h++ {
					u.head(h)
				}
				at := (s.Batch*hk+keyHead)*sk + s.K0
				u.store(out.DK[at*d:], u.dK)
				u.store(out.DV[at*dv:], u.dV)
			})
		}
	}
	heads.Wait()
	for i, x := range out.DBias {
		out.DBias[i] = float64(r.Result(float32(x)))
	}
	for i, x := range out.DSinks {
		out.DSinks[i] = float64(r.Result(float32(x)))
	}
	return out
}

// u32 reads n rows of one head.
func u32(t kernels.Tensor, batch, head, from, n int, round func(float32) float32) []float32 {
	size := t.Shape[3]
	list := make([]float32, 0, n*size)
	host := kernels.Host[float32](t)
	for i := range n {
		at := t.Offset(batch, head, from+i)
		for _, x := range host[at:][:size] {
			list = append(list, round(x))
		}
	}
	return list
}

// unfusedHead is one key head of a sequence.
type unfusedHead struct {
	*Problem[float32]
	Rounding
	s            kernels.Sequence
	k, v, dK, dV []float32
	out          *results64
	sums         *sync.Mutex
}

func (u *unfusedHead) store(to []float64, from []float32) {
	for i, x := range from {
		to[i] = float64(u.Result(x))
	}
}

func (u *unfusedHead) head(h int) {
	a, s := &u.Attention, u.s
	hq, sq, d, dv := a.Q.Shape[1], a.Q.Shape[2], a.Q.Shape[3], a.V.Shape[3]
	q, dO := u32(a.Q, s.Batch, h, s.Q0, s.Sq, u.Operand), u32(u.DO, s.Batch, h, s.Q0, s.Sq, u.Operand)
	lo, hi := a.Band(s)
	sink := float32(math.Inf(-1))
	if a.Sinks.IsSet() {
		sink = kernels.Host[float32](a.Sinks)[a.Sinks.Offset(h)]
	}
	scale, softCap := float32(a.EffectiveScale()), float32(a.SoftCap)
	for i := range s.Sq {
		if !u.isChosen(s.Batch, h, s.Q0+i) {
			continue
		}
		first, end := max(0, i+lo), min(s.Sk, i+hi)
		n := max(0, end-first)
		p, kept, capGrad := make([]float32, n), make([]float32, n), make([]float32, n)
		most := sink
		for c := range n {
			j := first + c
			x := u.Result(scale * dot32(q[i*d:][:d], u.k[j*d:]))
			capGrad[c] = 1
			if softCap > 0 {
				t := float32(math.Tanh(float64(x / softCap)))
				x, capGrad[c] = u.Result(softCap*t), 1-t*t
			}
			if a.ALiBi != nil {
				x = u.Result(x - float32(a.ALiBi[h])*float32(math.Abs(float64(i+s.Sk-s.Sq-j))))
			}
			if a.Bias.IsSet() {
				x = u.Result(x + kernels.Host[float32](a.Bias)[u.biasAt(a.Bias.Strides, h, i, j)])
			}
			kept[c] = 1
			if a.Dropout.P > 0 {
				kept[c] = 0
				if a.Dropout.Keep(s.Index*hq+h, i, j) {
					kept[c] = float32(a.Dropout.Scale())
				}
			}
			p[c], most = x, max(most, x)
		}
		row := (s.Batch*hq+h)*sq + s.Q0 + i
		lse, sinkP := float32(math.Inf(-1)), float32(0)
		if most != lse {
			sum := float32(math.Exp(float64(sink - most)))
			for _, x := range p {
				sum += float32(math.Exp(float64(x - most)))
			}
			lse = most + float32(math.Log(float64(sum)))
			sinkP = float32(math.Exp(float64(sink - lse)))
		}
		u.out.lse[row] = float64(lse)
		o := make([]float32, dv)
		for c := range p {
			if p[c] = u.Result(float32(math.Exp(float64(p[c] - lse)))); math.IsInf(float64(lse), -1) {
				p[c] = 0
			}
			if kept[c] != 0 {
				add32(o, u.Operand(p[c]*kept[c]), u.v[(first+c)*dv:])
			}
		}
		delta := float32(0)
		for e := range o {
			o[e] = u.Result(o[e])
			u.out.o[row*dv+e] = float64(o[e])
			delta += o[e] * kernels.Host[float32](u.DO)[u.DO.Offset(s.Batch, h, s.Q0+i)+e] // no product of matrices
		}
		if u.DLSE.IsSet() {
			delta -= kernels.Host[float32](u.DLSE)[u.DLSE.Offset(s.Batch, h, s.Q0+i)]
		}
		u.out.delta[row] = float64(delta)
		dQ := make([]float32, d)
		for c := range p {
			j := first + c
			add32(u.dV[j*dv:][:dv], u.Operand(p[c]*kept[c]), dO[i*dv:])
			dP := u.Result(kept[c] * dot32(dO[i*dv:][:dv], u.v[j*dv:]))
			dS := u.Result(p[c] * (dP - delta))
			if a.Bias.IsSet() {
				u.sums.Lock()
				u.out.DBias[u.biasAt(kernels.Contiguous(nil, kernels.F32, a.Bias.Shape...).Strides, h, i, j)] += float64(dS)
				u.sums.Unlock()
			}
			dS = u.Operand(u.Result(dS * capGrad[c]))
			add32(dQ, scale*dS, u.k[j*d:])
			add32(u.dK[j*d:][:d], scale*dS, q[i*d:])
		}
		u.store(u.out.DQ[row*d:], dQ)
		if a.Sinks.IsSet() {
			u.sums.Lock()
			u.out.DSinks[h] -= float64(sinkP * delta)
			u.sums.Unlock()
		}
	}
}

// biasAt is the offset of a pair's bias, with the given strides.
func (u *unfusedHead) biasAt(strides []int, h, i, j int) int {
	at := 0
	for axis, index := range [4]int{u.s.Index, h, i, j} {
		if u.Attention.Bias.Shape[axis] > 1 {
			at += index * strides[axis]
		}
	}
	return at
}

func dot32(x, y []float32) float32 {
	sum := float32(0)
	for i, a := range x {
		sum += a * y[i]
	}
	return sum
}

func add32(sum []float32, factor float32, x []float32) {
	for i := range sum {
		sum[i] += factor * x[i]
	}
}
