package ops

import "gorgonia.org/gorgonia"

// SwiGLU is silu(gate)·up, element by element: the middle of Llama's MLP, whose gate and up are two
// linear layers.
func SwiGLU(gate, up *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("SwiGLU", kernel{
		describe: func(in tensors) (description, error) {
			return like(in[0]), checkSame("up", in[1], "gate", in[0])
		},
		forward: func(r *run, in, out tensors) error { return r.SwiGLU(in[0], in[1], out[0]) },
		backward: func(r *run, in, dOut, d tensors) (err error) { // both, which share their exponentials
			for i := range d {
				if !d[i].IsSet() && err == nil {
					d[i], err = r.scratchLike(dOut[0])
				}
			}
			if err != nil {
				return err
			}
			return r.SwiGLUBackward(in[0], in[1], dOut[0], d[0], d[1])
		},
	}, input{name: "gate", node: gate}, input{name: "up", node: up})
}
