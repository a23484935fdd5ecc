//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// norm is what layer norm and RMS norm have in common: RMS norm is layer norm with a mean of 0 and no shift.
type norm struct {
	device  *Device
	kernel  string // in messages
	entry   string // the beginning of entry points
	x       kernels.Tensor
	args    normArguments
	tensors []kernels.Tensor // that a call keeps alive
}

// normArguments is NormArguments in src/norm.cu.
type normArguments struct {
	lines         lines
	x, dy         address
	y, dx         address
	other, dSum   address
	sum           address
	gamma, beta   parameter
	mean, rstd    address
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
		if addressToRead(t)%accessBytes != 0 {
			return false
		}
	}
	return true
}

// describe tells the kernels of the rows; it reports whether there are any.
func (n *norm) describe(gamma, beta kernels.Tensor, others ...kernels.Tensor) (bool, error) {
	l, err := linesOf(append([]kernels.Tensor{n.x}, others...)...)
	if err != nil {
		return false, err
	}
	if !isAligned(gamma, beta) {
		l.aligned = 0
	}
	n.args.lines, n.args.x = l, addressOf(n.x)
	n.args.gamma, n.args.beta = parameterOf(gamma), parameterOf(beta)
	n.tensors = append(append(n.tensors, n.x, gamma, beta), others...)
	return l.count > 0, nil
}

func (n *norm) launch(entry string, grid [3]int, threads, sharedBytes int) error {
	suffix := entrySuffixes[n.x.DType]
	s := launchShape{kernelName{n.entry + suffix, n.entry + entry + suffix}, grid, threads, sharedBytes}
	args := n.args // apart from Go's pointers, which C may not see
	err := n.device.launch(s, nil, unsafe.Pointer(&args))
	runtime.KeepAlive(n.tensors)
	return err
}

// forward normalises all rows, of x or of x + other.
func (n *norm) forward(other, gamma, beta, y, sum, mean, rstd kernels.Tensor, eps float64) error {
	others := []kernels.Tensor{y}
	if other.IsSet() {
		others = append(others, other, sum)
	}
	some, err := n.describe(gamma, beta, others...)
	if err != nil || !some {
		return n.device.failed(n.kernel, err)
	}
	g := &n.args
	g.y, g.mean, g.rstd, g.eps = addressOf(y), addressOf(mean), addressOf(rstd), float32(eps)
	g.other, g.sum = addressOf(other), addressOf(sum)
	n.tensors = append(n.tensors, mean, rstd)
	warps := warpsOfRow(&g.lines, n.x.DType)
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
func (n *norm) backward(gamma, dy, dSum, mean, rstd, dx, dGamma, dBeta, dxSums kernels.Tensor) error {
	others := []kernels.Tensor{dy}
	if dx.IsSet() {
		others = append(others, dx)
		if dSum.IsSet() {
			others = append(others, dSum)
			n.args.dSum = addressOf(dSum)
		}
	}
	some, err := n.describe(gamma, kernels.Tensor{}, others...)
	if err != nil {
		return n.device.failed(n.kernel, err)
	}
	g := &n.args
	g.dy, g.dx, g.mean, g.rstd = addressOf(dy), addressOf(dx), addressOf(mean), addressOf(rstd)
	n.tensors = append(n.tensors, mean, rstd)
	parameters := dGamma.IsSet() || dBeta.IsSet() || dxSums.IsSet()
	warps := warpsOfRow(&g.lines, n.x.DType)
	g.warps = int32(max(warps, 1))
	const (
		mostWarps     = 4       // whose rows fit twice into the shared memory that a kernel may have
		sharedOfBlock = 2 << 10 // besides the rows
	)
	switch {
	case !some:
		return n.sumParts(0, dGamma, dBeta, dxSums)
	case dx.IsSet() && warps > 0 && warps <= mostWarps && parameters:
		groups, length := mostWarps/warps, int(g.lines.length)
		read := 2 // x and dy
		if g.dSum != 0 {
			read++
		}
		shared := 4*length + 2*read*groups*length*n.x.DType.Size() // which has room for the sums of dγ and dβ of all rows, too
		entry, most := "_backward", 4                              // blocks of a multiprocessor
		if dxSums.IsSet() {
			entry, most, shared = "_backward_sums", 3, max(shared, 3*4*groups*length)
		}
		atOnce := int64(max(1, min(most, n.device.sharedMemory/(shared+sharedOfBlock))) * n.device.multiprocessors)
		blocks := int(min((g.lines.count+int64(groups)-1)/int64(groups), atOnce))
		return n.withParts(entry, [3]int{blocks, 1, 1}, mostWarps*32, blocks, shared, dGamma, dBeta, dxSums)
	case dx.IsSet() && warps > 0:
		threads := max(128, 32*warps)
		groups := int64(threads / (32 * warps))
		err = n.launch("_backward_rows", [3]int{int((g.lines.count + groups - 1) / groups), 1, 1}, threads, 0)
	case dx.IsSet():
		g.warps = 8
		err = n.launch("_backward_any", [3]int{int(g.lines.count), 1, 1}, 256, 0)
	}
	if err == nil && dxSums.IsSet() {
		err = n.device.SumRows(dx, dxSums, false)
	}
	if err != nil || !dGamma.IsSet() && !dBeta.IsSet() {
		return err
	}
	entry, grid := n.device.columnGrid("_columns", n.x.DType, &g.lines)
	return n.withParts(entry, grid, 256, grid[1], 0, dGamma, dBeta, kernels.Tensor{})
}

// withParts runs a kernel that gives parts of dγ, dβ and the sums of dx, and adds the parts.
func (n *norm) withParts(entry string, grid [3]int, threads, count, sharedBytes int, dGamma, dBeta, dxSums kernels.Tensor) error {
	bytes := count * int(n.args.lines.length) * 4
	parts, err := n.device.memory.get(3 * bytes)
	if err != nil {
		return n.device.failed(n.kernel, err)
	}
	defer parts.free()
	n.args.dGamma, n.args.dBeta = parts.at, parts.at+address(bytes)
	if dxSums.IsSet() {
		n.args.dxSums = parts.at + address(2*bytes)
	}
	if err := n.launch(entry, grid, threads, sharedBytes); err != nil {
		return err
	}
	return n.sumParts(count, dGamma, dBeta, dxSums)
}

// sumParts adds the parts of the gradients that are wanted.
func (n *norm) sumParts(count int, dGamma, dBeta, dxSums kernels.Tensor) error {
	var sums []columnSum
	if dGamma.IsSet() {
		sums = append(sums, columnSum{n.args.dGamma, dGamma})
	}
	if dBeta.IsSet() {
		sums = append(sums, columnSum{n.args.dBeta, dBeta})
	}
	if dxSums.IsSet() {
		sums = append(sums, columnSum{n.args.dxSums, dxSums})
	}
	if len(sums) == 0 {
		return nil
	}
	return n.device.sumParts(n.args.lines.length, count, false, sums...)
}
