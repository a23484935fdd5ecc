package ops

import "github.com/stheno-ml/stheno/kernels"

// KeptCopies is what a host that keeps copies of weights in 16 bits was asked for.
type KeptCopies struct {
	Layouts []kernels.RoundedLayout // of each call
	Narrow  int                     // weights of 16 bits among those of the calls
	Copied  int                     // copies that were made of such weights besides
}

// keepingHost is the host as a device that keeps such copies, beside packed matrices as floats. It
// makes them anew in each call.
type keepingHost struct {
	*wideHost
	KeptCopies
	weights map[*byte]bool
}

func (h *keepingHost) Rounded(dtype kernels.DType, layout kernels.RoundedLayout, weights ...kernels.Tensor) (all kernels.Tensor, err error) {
	const multiple = 8
	if err := kernels.CheckRounded(dtype, layout, weights); err != nil {
		return all, err
	}
	h.Layouts = append(h.Layouts, layout)
	rows, columns := weights[0].Shape[0], columnsOf(weights)
	if layout.Blocks {
		rows = 0
		for _, w := range weights {
			rows += (w.Shape[0] + multiple - 1) / multiple * multiple
		}
	}
	if layout.Transposed {
		all, err = h.Alloc(dtype, columns, rows)
		all = all.Permute(1, 0)
	} else {
		all, err = h.Alloc(dtype, rows, columns)
	}
	kernels.FillHost(all, 0)
	below, beside := 0, 0
	for _, w := range weights {
		h.weights[(*byte)(w.Data)] = true
		if w.DType == dtype {
			h.Narrow++
		}
		kernels.CopyHost(all.Slice(0, below, below+w.Shape[0]).Slice(1, beside, beside+w.Shape[1]), w)
		if beside += w.Shape[1]; layout.Blocks {
			below += (w.Shape[0] + multiple - 1) / multiple * multiple
		}
	}
	return all, err
}

func (h *keepingHost) Copy(dst, src kernels.Tensor) error {
	if h.weights[(*byte)(src.Data)] {
		h.Copied++
	}
	return h.wideHost.Copy(dst, src)
}

// OnKeepingHost runs something where the host keeps copies of weights in 16 bits.
func OnKeepingHost(do func()) KeptCopies {
	plain := host
	defer func() { host = plain }()
	h := &keepingHost{wideHost: &wideHost{Backend: plain}, weights: map[*byte]bool{}}
	host = h
	do()
	return h.KeptCopies
}
