//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// choiceArguments is ChoiceArguments in src/choice.cu.
type choiceArguments struct {
	logits, settings, random, earlier readable
	ids, logProbs                     writable
	scratch                           address
	logitsRow, settingsRow            int64
	texts, tokens, pairs, part        int32
}

// mostChoicePart is how many tokens of a block lie in shared memory: 64 KB, beside half as much of
// the kernel's own, which every device since Ampere has.
const mostChoicePart = 16 << 10

// ChooseTokens makes a choice for each text.
func (d *Device) ChooseTokens(c *kernels.ChooseTokens, out kernels.ChosenTokens) error {
	const kernel = "choose tokens"
	if err := d.checked(kernel, c.Check(out), kernels.F32); err != nil {
		return err
	}
	if t := c.Logits.DType; t != kernels.F32 {
		return kernels.Unsupported{Device: d.Name(), What: fmt.Sprintf("%s of %v", kernel, t)}
	}
	texts, tokens := c.Logits.Shape[0], c.Logits.Shape[1]
	if texts == 0 {
		return d.queue().Spare(1)
	}
	const threads = 1024
	cluster := d.choiceCluster(texts, tokens)
	g := &choiceArguments{
		logits: read(c.Logits), settings: read(c.Settings), random: read(c.Random), earlier: read(c.Earlier),
		ids: written(out.IDs), logProbs: written(out.LogProbs), logitsRow: int64(c.Logits.Strides[0]), settingsRow: int64(c.Settings.Strides[0]),
		texts: int32(texts), tokens: int32(tokens), pairs: int32((c.Earlier.Shape[0] - texts - 1) / 2),
		part: int32(32 * tilesOf(int32(tokens), 32*cluster)),
	}
	shared := 4 * int(g.part)
	if g.part > mostChoicePart {
		scratch, err := d.scratch(4 * texts * tokens)
		if err != nil {
			return d.failed(kernel, err)
		}
		defer scratch.Free()
		g.scratch, shared = scratch.At, 0
	}
	module := "choice"
	if cluster > 1 {
		module = "choice_sm90"
	}
	err := d.launch(shapeOf(module, fmt.Sprintf("choose_%d", cluster), [3]int{texts * cluster, 1, 1}, threads, shared), nil, unsafe.Pointer(g))
	for _, t := range []kernels.Tensor{c.Logits, c.Settings, c.Random, c.Earlier, out.IDs, out.LogProbs} {
		runtime.KeepAlive(t.Owner)
	}
	return err
}

// choiceCluster is how many blocks share a text: as many as take least, where clusters that do not
// run at once take turns. bench/log/gpu-decode.md has what they take.
func (d *Device) choiceCluster(texts, tokens int) int {
	const (
		few, most = 2048, 8 // tokens of a block that are not worth another, and blocks
		beside    = 20_000  // tokens of a block that take as long as what does not depend on them
	)
	if !d.hasMaps() {
		return 1
	}
	largest := 1
	for largest < most && largest*few < tokens {
		largest *= 2
	}
	// A block has a multiprocessor, and clusters do not find room on all of them.
	room := d.Multiprocessors * 7 / 8
	best, least := largest, 0
	for cluster := largest; cluster > 0 && tilesOf(int32(tokens), cluster) <= mostChoicePart; cluster /= 2 {
		turns := tilesOf(int32(texts), max(1, room/cluster))
		if takes := turns * (beside + tokens/cluster); least == 0 || takes < least {
			best, least = cluster, takes
		}
	}
	return best
}
