package pretrained

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// gpt-oss has the weights of its experts in MXFP4: groups of 32 codes of four bits, each one of
// sixteen numbers, and a power of two for each group. They are read as bfloat16, which has all that
// they stand for.

const (
	mxGroup  = 32
	mxBlocks = "_blocks" // (experts, out, groups, 16), two codes a byte, the low one first
	mxScales = "_scales" // (experts, out, groups), exponents from −127 on
)

// mxNumbers are what codes stand for beside a group's scale, by scale and code.
var mxNumbers = sync.OnceValue(func() *[256][16]uint16 {
	var table [256][16]uint16
	for scale := range table {
		for code := range table[scale] {
			x := [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code%8]
			if code >= 8 {
				x = -x
			}
			if code == 8 {
				x = math.Copysign(0, -1)
			}
			table[scale][code] = uint16(math.Float32bits(float32(math.Ldexp(x, scale-127))) >> 16)
		}
	}
	return &table
})

// mxTensor is a weight of experts, (experts, in, out), whose codes lie as (experts, out, in).
type mxTensor struct {
	blocks, scales   plain
	experts, in, out int
}

// joinMXFP4 makes one tensor of the codes and the scales of each weight.
func (w *weights) joinMXFP4() error {
	found := false
	for _, name := range slices.Sorted(maps.Keys(w.holder)) {
		base, is := strings.CutSuffix(name, mxBlocks)
		if !is {
			continue
		}
		found = true
		m, err := w.mxfp4(base)
		if err != nil {
			return err
		}
		delete(w.holder, base+mxBlocks)
		delete(w.holder, base+mxScales)
		w.holder[base] = m
	}
	if !found {
		return errors.New("the config says that weights are MXFP4, and no tensor's name ends with " + mxBlocks)
	}
	return nil
}

func (w *weights) mxfp4(base string) (m mxTensor, err error) {
	blocks, ok := w.holder[base+mxBlocks].(plain)
	if shape := blocks.info.Shape; !ok || blocks.info.Type != "U8" || len(shape) != 4 || shape[3] != mxGroup/2 {
		return m, fmt.Errorf("tensor %q is %s of shape %v, it needs to be U8 of four axes, the last of %d", base+mxBlocks, blocks.info.Type, shape, mxGroup/2)
	}
	shape := blocks.info.Shape
	scales, ok := w.holder[base+mxScales].(plain)
	if !ok {
		return m, fmt.Errorf("tensor %q is missing", base+mxScales)
	}
	if scales.info.Type != "U8" || !slices.Equal(scales.info.Shape, shape[:3]) {
		return m, fmt.Errorf("tensor %q is %s of shape %v, it needs to be U8 of shape %v", base+mxScales, scales.info.Type, scales.info.Shape, shape[:3])
	}
	return mxTensor{blocks, scales, shape[0], shape[2] * mxGroup, shape[1]}, nil
}

func (m mxTensor) describe() storedInfo {
	return storedInfo{[]int{m.experts, m.in, m.out}, kernels.BF16, "MXFP4", m.blocks.info.Bytes + m.scales.info.Bytes}
}

func (m mxTensor) read(first int, to []byte) error {
	each, groups := m.in*m.out, m.in/mxGroup
	codes, scales := make([]byte, each/2), make([]byte, m.out*groups)
	numbers := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(to))), len(to)/2)
	for at := 0; at < len(numbers); at += each {
		expert := (first + at) / each
		if err := m.blocks.read(expert*len(codes), codes); err != nil {
			return err
		}
		if err := m.scales.read(expert*len(scales), scales); err != nil {
			return err
		}
		m.widen(numbers[at:][:each], codes, scales)
	}
	return nil
}

// widen writes the numbers of one expert, (in, out), a tile of 32×32 at a time, so that both sides
// stay near.
func (m mxTensor) widen(to []uint16, codes, scales []byte) {
	table, groups := mxNumbers(), m.in/mxGroup
	var tile [mxGroup][mxGroup]uint16 // by in and out
	for o := 0; o < m.out; o += mxGroup {
		outs := min(mxGroup, m.out-o)
		for g := range groups {
			for j := range outs {
				at := (o+j)*groups + g
				numbers := &table[scales[at]]
				for i, pair := range codes[at*mxGroup/2:][:mxGroup/2] {
					tile[2*i][j], tile[2*i+1][j] = numbers[pair&15], numbers[pair>>4]
				}
			}
			for i := range tile {
				copy(to[(g*mxGroup+i)*m.out+o:], tile[i][:outs])
			}
		}
	}
}
