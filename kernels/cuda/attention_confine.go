//go:build gpu

package cuda

import (
	"math"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// hides reports whether rows of a problem may see different keys.
func hides(a *kernels.Attention) bool {
	return a.Mask != nil || a.Window != nil || a.Causal == kernels.CausalTopLeft || a.Causal == kernels.CausalBottomRight && a.Q.Shape[2] > 1
}

// confineOutputs computes anew what is not finite in o and may have come from what is hidden.
// Kernels read no keys behind the ends of sequences.
func (c *attention) confineOutputs() error {
	if !c.Confine || !hides(c.Attention) {
		return nil
	}
	g := c.args
	return c.confine("", warpsOfPieces(g.longestQ, g.heads*g.sequences))
}

// confineGradients does so with the gradients of q, k and v that a variant has computed. Its last
// tile may have queries that do not exist.
func (c *attention) confineGradients(v variant) error {
	if !c.Confine {
		return nil
	}
	entry := "attention_confine_gradients"
	if slices.ContainsFunc(c.Sequences(), func(s kernels.Sequence) bool { return s.Sq%v.tileQ != 0 }) {
		entry = "attention_confine_all_gradients"
	}
	g := c.args
	return c.confine(entry, warpsOfPieces(g.longestQ, g.heads*g.sequences)+2*warpsOfPieces(g.longestK, g.keyHeads*g.sequences))
}

func warpsOfPieces(rows, planes int32) int {
	return (tilesOf(rows, confinedRows)*int(planes) + confinedPieces - 1) / confinedPieces
}

// confine queues an entry of the kernels' module, or the one of the module's name.
func (c *attention) confine(entry string, warps int) error {
	if warps > math.MaxInt32/confinedPieces {
		return kernels.Unsupported{Device: c.device.Name(), What: "attention that confines what is not finite, of so many sequences and rows of the longest"}
	}
	var v variant
	for _, v = range confineVariants() {
		if v.element == c.element || v.element == elementF32 && c.element == elementTF32 {
			break
		}
	}
	name := v.name
	if c.user {
		m := c.confineModule(v)
		name = m.name()
		if err := c.device.loadUser(m); err != nil {
			return err
		}
	}
	if entry == "" {
		entry = name
	}
	s := shapeOf(name, entry, [3]int{tilesOf(int32(warps), v.threads/32), 1, 1}, v.threads, 0)
	if c.Dropout.P > 0 {
		s.Step = &driver.StepField{Offset: unsafe.Offsetof(c.args.dropStep), Bytes: c.argumentBytes}
	}
	return c.device.launch(s, nil, unsafe.Pointer(c.args))
}

// confineModule is a confining kernel compiled with the problem's score and mask. It evaluates them
// pair by pair, and goes by no lists.
func (c *attention) confineModule(v variant) userModule {
	m := c.moduleOfPolicy(v, "SCORE=UserScore")
	m.defines = append(m.defines, "USER_LISTS=0")
	return m
}
