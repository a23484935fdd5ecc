package ops

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Sliding is a window that slides along an axis of length n. It has (n + 2·Padding −
// Dilation·(Size−1) − 1)/Stride + 1 places, rounded down.
type Sliding struct {
	Size     int
	Stride   int // between the places of the window; 0 means 1
	Padding  int // elements on either side of the axis that are the value of [Patches]
	Dilation int // between the elements that the window sees; 0 means 1
}

// Patches is what windows see of x at each of their places: x is (B, lengths..., C), with a window
// for each of the lengths, and the result (B, places..., K, C), where K is the product of the
// windows' sizes. A convolution is a product of patches and a weight, and pooling a maximum or a
// mean along K. The elements of a padding are value.
func Patches(x *gorgonia.Node, value float64, windows ...Sliding) (*gorgonia.Node, error) {
	windows = slices.Clone(windows)
	return arrange("Patches", func(in tensors) (arrangement, error) { return patches(in[0], value, windows) },
		input{name: "x", node: x})
}

// largestWindow is how many elements windows may have together: each is a copy in a run.
const largestWindow = 1 << 16

func patches(x kernels.Tensor, value float64, windows []Sliding) (a arrangement, err error) {
	axes := len(windows)
	if len(x.Shape) != axes+2 || axes == 0 {
		return a, fmt.Errorf("x has shape %v, it needs (batch, %d lengths, channels), a length for each window", x.Shape, axes)
	}
	size := 1
	a = arrangement{shape: []int{x.Shape[0]}, fill: value, rests: true}
	for i := range windows {
		w, n := &windows[i], x.Shape[1+i]
		if err := w.complete(i, n); err != nil {
			return a, err
		}
		if size *= w.Size; size > largestWindow {
			return a, fmt.Errorf("windows have %d elements together, they need to have at most %d", size, largestWindow)
		}
		a.shape = append(a.shape, w.places(n))
		a.gaps = a.gaps || w.Padding > 0
		a.again = a.again || w.Stride < w.Size || w.Dilation > 1
	}
	a.shape = append(a.shape, size, x.Shape[axes+1])
	for k := range size {
		if p, some := patch(x, a.shape, k, windows); some {
			a.parts = append(a.parts, p)
		}
	}
	return a, nil
}

// complete gives the fields that are 0 their meaning, and checks all for window i over n elements.
func (w *Sliding) complete(i, n int) error {
	w.Stride, w.Dilation = cmp.Or(w.Stride, 1), cmp.Or(w.Dilation, 1)
	const most = 1 << 30 // so that no product below overflows
	switch {
	case max(w.Size, w.Stride, w.Padding, w.Dilation) > most:
		return fmt.Errorf("window %d is %+v, it needs numbers of at most %d", i, *w, most)
	case w.Size < 1 || w.Stride < 1 || w.Dilation < 1 || w.Padding < 0:
		return fmt.Errorf("window %d is %+v, it needs a size of at least 1, and nothing negative", i, *w)
	case w.places(n) < 1:
		return fmt.Errorf("window %d is %+v, it needs to fit into x's %d elements with their padding", i, *w, n)
	}
	return nil
}

// places is how many places the window has along n elements.
func (w Sliding) places(n int) int {
	left := n + 2*w.Padding - w.Dilation*(w.Size-1) - 1
	if left < 0 {
		return 0
	}
	return left/w.Stride + 1
}

// patch is element k of all windows, where one of them sees something of x.
func patch(x kernels.Tensor, shape []int, k int, windows []Sliding) (p arranged, some bool) {
	type span struct{ from, to, count, step int }
	spans := make([]span, len(windows))
	for i, rest := len(windows)-1, k; i >= 0; i-- {
		w, n := windows[i], x.Shape[1+i]
		begin := rest%w.Size*w.Dilation - w.Padding // where place 0 sees x
		rest /= w.Size
		first := max(0, (w.Stride-1-begin)/w.Stride) // place that sees x
		count := min(shape[1+i], (n-1-begin+w.Stride)/w.Stride) - first
		if n-1-begin < 0 || count < 1 {
			return p, false
		}
		spans[i] = span{begin + first*w.Stride, first, count, w.Stride}
	}
	from := func(t kernels.Tensor) kernels.Tensor {
		for i, s := range spans {
			t = every(t, 1+i, s.from, s.count, s.step)
		}
		return t
	}
	to := func(t kernels.Tensor) kernels.Tensor {
		t = at(t, 1+len(spans), k)
		for i, s := range spans {
			t = t.Slice(1+i, s.to, s.to+s.count)
		}
		return t
	}
	return arranged{0, from, to}, true
}
