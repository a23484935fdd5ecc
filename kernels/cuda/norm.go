//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// NormForward normalises each row, of x or of x + other, then scales and shifts it.
func (d *Device) NormForward(n *kernels.Norm, out kernels.NormOutputs) error {
	k := &norm{device: d, kernel: "norm forward", problem: n}
	if err := d.checked(k.kernel, n.CheckForward(out), n.X.DType); err != nil {
		return err
	}
	return k.forward(out)
}

// NormBackward computes the gradients of x, gamma and beta, and the sums of that of x.
func (d *Device) NormBackward(n *kernels.Norm, g kernels.NormGradients) error {
	k := &norm{device: d, kernel: "norm backward", problem: n}
	if err := d.checked(k.kernel, n.CheckBackward(g), n.X.DType); err != nil {
		return err
	}
	sums := g.DXSums
	if !n.RMS || !sums.IsSet() {
		return k.backward(g)
	}
	g.DXSums = kernels.Tensor{} // which no kernel of RMS norms gives
	if err := k.backward(g); err != nil {
		return err
	}
	return d.SumRows(g.DX, sums, false)
}

// norm is one call.
type norm struct {
	device  *Device
	kernel  string // in messages
	problem *kernels.Norm
	args    normArguments
	tensors []kernels.Tensor // that the call keeps alive
}

// normArguments is NormArguments in src/norm.cu.
type normArguments struct {
	lines         lines
	x, dy         readable
	y, dx         writable
	other, dSum   readable
	sum           writable
	gamma, beta   parameter
	mean, rstd    writable // backward kernels only read them
	dGamma, dBeta address
	dxSums        address
	eps           float32
	warps         int32
}

// normSlots is how many pieces of a row a thread of the kernels that hold rows has.
const normSlots = 4

// warpsOfRow is how many warps hold a row, a power of two; 0 if no block can.
func warpsOfRow(l *lines, dtype kernels.DType) int {
	if l.aligned == 0 {
		return 0
	}
	pieces := int(l.length) * dtype.Size() / accessBytes
	for warps := 1; warps <= 32; warps *= 2 {
		if pieces <= warps*32*normSlots {
			return warps
		}
	}
	return 0
}

// isAligned reports whether vectors that go with rows can be moved as the rows are.
func isAligned(list ...kernels.Tensor) bool {
	for _, t := range list {
		if read(t)%accessBytes != 0 {
			return false
		}
	}
	return true
}

// describe tells the kernels of the rows. It reports whether there are any.
func (n *norm) describe(beta kernels.Tensor, others ...kernels.Tensor) (bool, error) {
	x, gamma := n.problem.X, n.problem.Gamma
	l, err := linesOf(append([]kernels.Tensor{x}, others...)...)
	if err != nil {
		return false, err
	}
	if !isAligned(gamma, beta) {
		l.aligned = 0
	}
	n.args.lines, n.args.x = l, read(x)
	n.args.gamma, n.args.beta = parameterOf(gamma), parameterOf(beta)
	n.tensors = append(append(n.tensors, x, gamma, beta), others...)
	return l.count > 0, nil
}

func (n *norm) launch(entry string, grid [3]int, threads, sharedBytes int) error {
	kind, suffix := "layer_norm", entrySuffixes[n.problem.X.DType]
	if n.problem.RMS {
		kind = "rms_norm"
	}
	s := shapeOf(kind+suffix, kind+entry+suffix, grid, threads, sharedBytes)
	args := n.args // apart from Go's pointers, which C may not see
	err := n.device.launch(s, nil, unsafe.Pointer(&args))
	runtime.KeepAlive(n.tensors)
	return err
}

// forward normalises all rows, of x or of x + other.
func (n *norm) forward(out kernels.NormOutputs) error {
	others, other := []kernels.Tensor{out.Y}, n.problem.Other
	if other.IsSet() {
		others = append(others, other, out.Sum)
	}
	some, err := n.describe(n.problem.Beta, others...)
	if err != nil || !some {
		return n.device.failed(n.kernel, err)
	}
	g := &n.args
	g.y, g.mean, g.rstd = written(out.Y), written(out.Mean), written(out.RStd)
	g.other, g.sum, g.eps = read(other), written(out.Sum), float32(n.problem.EffectiveEps())
	n.tensors = append(n.tensors, out.Mean, out.RStd)
	warps := warpsOfRow(&g.lines, n.problem.X.DType)
	if warps == 0 {
		g.warps = 8
		return n.launch("_forward_any", [3]int{int(g.lines.count), 1, 1}, 256, 0)
	}
	g.warps = int32(warps)
	threads := max(128, warps*32)
	perBlock := int64(threads / (warps * 32))
	return n.launch("_forward", [3]int{int((g.lines.count + perBlock - 1) / perBlock), 1, 1}, threads, 0)
}

// backward computes the gradients that are not left out.
func (n *norm) backward(out kernels.NormGradients) error {
	others := []kernels.Tensor{out.DY}
	if out.DX.IsSet() {
		others = append(others, out.DX)
		if out.DSum.IsSet() {
			others = append(others, out.DSum)
			n.args.dSum = read(out.DSum)
		}
	}
	some, err := n.describe(kernels.Tensor{}, others...)
	if err != nil {
		return n.device.failed(n.kernel, err)
	}
	g := &n.args
	g.dy, g.dx, g.mean, g.rstd = read(out.DY), written(out.DX), writable(read(out.Mean)), writable(read(out.RStd))
	n.tensors = append(n.tensors, out.Mean, out.RStd)
	parameters := out.DGamma.IsSet() || out.DBeta.IsSet() || out.DXSums.IsSet()
	warps := warpsOfRow(&g.lines, n.problem.X.DType)
	g.warps = int32(max(warps, 1))
	switch {
	case !some:
		return n.sumParts(0, out)
	case out.DX.IsSet() && warps > 0 && warps <= mostNormWarps && parameters:
		return n.backwardAtOnce(out)
	case out.DX.IsSet() && warps > 0:
		threads := max(128, 32*warps)
		groups := int64(threads / (32 * warps))
		err = n.launch("_backward_rows", [3]int{int((g.lines.count + groups - 1) / groups), 1, 1}, threads, 0)
	case out.DX.IsSet():
		g.warps = 8
		err = n.launch("_backward_any", [3]int{int(g.lines.count), 1, 1}, 256, 0)
	}
	if err == nil && out.DXSums.IsSet() {
		err = n.device.SumRows(out.DX, out.DXSums, false)
	}
	if err != nil || !out.DGamma.IsSet() && !out.DBeta.IsSet() {
		return err
	}
	out.DXSums = kernels.Tensor{}
	entry, grid := n.device.columnGrid("_columns", n.problem.X.DType, &g.lines)
	return n.withParts(entry, grid, 256, grid[1], 0, out)
}

// mostNormWarps is the most warps of a row whose rows fit twice into the shared memory that a
// kernel may have.
const mostNormWarps = 4

// backwardAtOnce computes dx and the gradients of the parameters in one pass over the rows.
func (n *norm) backwardAtOnce(out kernels.NormGradients) error {
	const sharedOfBlock = 2 << 10 // besides the rows
	g := &n.args
	groups, length := mostNormWarps/int(g.warps), int(g.lines.length)
	rows := 2 // x and dy
	if g.dSum != 0 {
		rows++
	}
	// It has room for the sums of dγ and dβ of all rows, too.
	shared := 4*length + 2*rows*groups*length*n.problem.X.DType.Size()
	entry, most := "_backward", 4 // blocks of a multiprocessor
	if out.DXSums.IsSet() {
		entry, most, shared = "_backward_sums", 3, max(shared, 3*4*groups*length)
	}
	atOnce := int64(max(1, min(most, n.device.SharedMemory/(shared+sharedOfBlock))) * n.device.Multiprocessors)
	blocks := int(min((g.lines.count+int64(groups)-1)/int64(groups), atOnce))
	return n.withParts(entry, [3]int{blocks, 1, 1}, mostNormWarps*32, blocks, shared, out)
}

// withParts runs a kernel that gives parts of dγ, dβ and the sums of dx, and adds the parts.
func (n *norm) withParts(entry string, grid [3]int, threads, count, sharedBytes int, out kernels.NormGradients) error {
	bytes := count * int(n.args.lines.length) * 4
	parts, err := n.device.scratch(3 * bytes)
	if err != nil {
		return n.device.failed(n.kernel, err)
	}
	defer parts.Free()
	n.args.dGamma, n.args.dBeta = parts.At, parts.At+address(bytes)
	if out.DXSums.IsSet() {
		n.args.dxSums = parts.At + address(2*bytes)
	}
	if err := n.launch(entry, grid, threads, sharedBytes); err != nil {
		return err
	}
	return n.sumParts(count, out)
}

// sumParts adds the parts of the gradients that are wanted.
func (n *norm) sumParts(count int, out kernels.NormGradients) error {
	var sums []columnSum
	for _, s := range []columnSum{
		{n.args.dGamma, out.DGamma}, {n.args.dBeta, out.DBeta}, {n.args.dxSums, out.DXSums},
	} {
		if s.out.IsSet() {
			sums = append(sums, s)
		}
	}
	if len(sums) == 0 {
		return nil
	}
	return n.device.sumParts(n.args.lines.length, count, false, sums...)
}
