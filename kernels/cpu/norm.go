package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// NormForward normalises each row, then scales and shifts it.
func (b *Backend) NormForward(n *kernels.Norm, out kernels.NormOutputs) (err error) {
	defer catch("norm forward", &err)
	if err := checked("norm forward", n.CheckForward(out)); err != nil {
		return err
	}
	own := *n
	if n.Other.IsSet() && isHalf(n.X.DType) { // what is normalised is the rounded sum
		b.add(n.X, n.Other, out.Sum)
		own.X, own.Other, out.Sum = out.Sum, kernels.Tensor{}, kernels.Tensor{}
	}
	h := halves{b: b}
	defer h.round()
	own.X, own.Gamma, own.Beta, out.Y = h.read(own.X), h.read(own.Gamma), h.read(own.Beta), h.write(out.Y)
	inTypeOf(own.X, normForward[float32], normForward[float64])(b, &own, out)
	return nil
}

// NormBackward computes the gradients of x, gamma and beta.
func (b *Backend) NormBackward(n *kernels.Norm, g kernels.NormGradients) (err error) {
	defer catch("norm backward", &err)
	if err := checked("norm backward", n.CheckBackward(g)); err != nil {
		return err
	}
	b.normBackward(*n, g)
	if g.DXSums.IsSet() {
		return b.SumRows(g.DX, g.DXSums, false)
	}
	return nil
}

func (b *Backend) normBackward(n kernels.Norm, g kernels.NormGradients) {
	if g.DSum.IsSet() && g.DX.IsSet() && isHalf(n.X.DType) { // what is added to is the rounded gradient
		own := halves{b: b}
		defer own.round()
		alone, dSum := g, g.DSum
		alone.DX, alone.DSum = own.scratch(g.DX, g.DX.DType), kernels.Tensor{}
		b.normBackward(n, alone)
		b.add(alone.DX, dSum, g.DX)
		return
	}
	h := halves{b: b}
	defer h.round()
	n.X, n.Gamma, g.DY, g.DSum = h.read(n.X), h.read(n.Gamma), h.read(g.DY), h.read(g.DSum)
	g.DX, g.DGamma, g.DBeta = h.write(g.DX), h.write(g.DGamma), h.write(g.DBeta)
	n.Beta = kernels.Tensor{} // shifts no gradient
	inTypeOf(n.X, normBackward[float32], normBackward[float64])(b, &n, g)
}

// norm is a call of one of the two.
type norm[T kernels.Float] struct {
	b           *Backend
	x, other    rowView[T] // other is added to x; without data for none
	centred     bool       // rather than with a mean of 0, as in an RMS norm
	eps         float64
	gamma, beta []T
}

func newNorm[T kernels.Float](b *Backend, n *kernels.Norm) *norm[T] {
	k := &norm[T]{
		b: b, x: rowViewOf[T](n.X), other: rowViewOf[T](n.Other), centred: !n.RMS, eps: n.EffectiveEps(),
		gamma: kernels.Host[T](n.Gamma), beta: kernels.Host[T](n.Beta),
	}
	if k.gamma == nil {
		k.gamma = make([]T, k.x.length)
		for i := range k.gamma {
			k.gamma[i] = 1
		}
	}
	if k.beta == nil {
		k.beta = make([]T, k.x.length)
	}
	return k
}

// normForward normalises all rows, after adding what is to be added. Mean and RStd receive a value
// a row unless they are left out.
func normForward[T kernels.Float](b *Backend, n *kernels.Norm, o kernels.NormOutputs) {
	k := newNorm[T](b, n)
	out, means, rstds := rowViewOf[T](o.Y), kernels.Host[T](o.Mean), kernels.Host[T](o.RStd)
	normalise := func(row int, x *T) {
		m, r := k.row(out.at(row), x)
		if means != nil {
			means[row] = m
		}
		if rstds != nil {
			rstds[row] = r
		}
	}
	if k.other.data == nil {
		k.b.eachRow(k.x.n, k.x.length, func(row int) { normalise(row, k.x.at(row)) })
		return
	}
	sums := rowViewOf[T](o.Sum)
	k.b.eachRow(k.x.n, k.x.length, func(row int) {
		simd.Add(k.x.length, sums.at(row), k.x.at(row), k.other.at(row))
		normalise(row, sums.at(row))
	})
}

// row normalises a row in three passes, the second and third over cached memory. The first finds
// the mean to within rounding. The deviations from that centre are exact where it matters, so the
// second finds both the variance without cancellation and what the rounded centre lacks of the
// mean.
func (k *norm[T]) row(y, x *T) (mean, rstd T) {
	n, count := k.x.length, float64(k.x.length)
	var centre, shift T
	if k.centred {
		centre = T(simd.Sum(n, x) / count)
	}
	sum, squares := simd.Deviations(n, x, centre)
	variance := float64(squares) / count
	if k.centred {
		shift = T(float64(sum) / count)
		variance = max(0, variance-float64(shift)*float64(shift))
	}
	rstd = T(1 / math.Sqrt(variance+k.eps))
	simd.Normalize(n, y, x, centre, rstd, -shift*rstd, &k.gamma[0], &k.beta[0])
	return centre + shift, rstd
}

// Backward cuts the rows into at most this many parts, each of at least so many rows, and each with
// a sum of dγ and dβ of its own: the parts, and with them the order of all sums, depend on the
// number of rows alone.
const (
	normParts        = 64
	normRowsPerPart  = 16
	normSumsPerParts = 2 // dγ and dβ
)

// normBackward computes the gradients that are not left out, and adds DSum to DX.
func normBackward[T kernels.Float](b *Backend, problem *kernels.Norm, g kernels.NormGradients) {
	k := newNorm[T](b, problem)
	in, out, more := rowViewOf[T](g.DY), rowViewOf[T](g.DX), rowViewOf[T](g.DSum)
	means, rstds := kernels.Host[T](g.Mean), kernels.Host[T](g.RStd)
	n, length := k.x.n, k.x.length
	perPart := max(normRowsPerPart, ceilDiv(n, normParts))
	parts := ceilDiv(n, perPart)
	memory := newWorkspace(bytesFor[T](parts * normSumsPerParts * length))
	defer memory.release()
	sums := take[T](memory, parts*normSumsPerParts*length)
	k.b.inRuns(parts, 2*elementFLOPs*float64(n)*float64(length), func(claim func() (int, bool)) {
		unwanted := newWorkspace(bytesFor[T](length)) // for the dx that nobody asked for, or that is to be added
		defer unwanted.release()
		nowhere := take[T](unwanted, length)
		for part, ok := claim(); ok; part, ok = claim() {
			own := sums[part*normSumsPerParts*length:][:normSumsPerParts*length]
			clear(own)
			for row := part * perPart; row < min(n, (part+1)*perPart); row++ {
				to, centre, dSum := out.at(row), T(0), more.at(row)
				if to == nil || dSum != nil {
					to = &nowhere[0]
				}
				if k.centred {
					centre = means[row]
				}
				k.rowGrad(to, k.x.at(row), in.at(row), centre, rstds[row], &own[0], &own[length])
				if dx := out.at(row); dx != nil && dSum != nil {
					simd.Add(length, dx, to, dSum)
				}
			}
		}
	})
	for i, target := range [normSumsPerParts]kernels.Tensor{g.DGamma, g.DBeta} {
		if !target.IsSet() {
			continue
		}
		total := kernels.Host[T](target)
		clear(total)
		for part := range parts {
			simd.AddTile(1, length, &total[0], length, &sums[(part*normSumsPerParts+i)*length], length)
		}
	}
}

func (k *norm[T]) rowGrad(dx, x, dy *T, centre, rstd T, dGamma, dBeta *T) {
	n, gamma := k.x.length, &k.gamma[0]
	sum, sumX := simd.NormalizeDots(n, x, dy, gamma, centre, rstd)
	mean, meanX := T(0), T(float64(sumX)/float64(n))
	if k.centred {
		mean = T(float64(sum) / float64(n))
	}
	simd.NormalizeGrad(n, dx, x, dy, gamma, centre, rstd, mean, meanX, dGamma, dBeta)
}
