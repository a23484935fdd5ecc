// Package neon writes the assembly of package simd for arm64. No generator knows that processor, so
// a small one is here: a kernel is a function that calls the methods of a [kernel], which append
// instructions; then the registers are given their numbers. Each kernel is written once for both
// element types. Vectors are 128 bits wide, and what of a row does not fill one is done element by
// element, for there are no masked moves.
package neon

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Kernel is a kernel as the rest of the program sees it.
type Kernel struct {
	Name       string
	Parameters string // and results, T being the element type
	Typed      bool   // there is one for each element type

	doc  string
	emit func(*kernel)
}

// Families are the kernels by the name of their files.
var Families = map[string][]Kernel{
	"gemm": {
		typed("gemm", "(m, nv, k int, a *T, rs, cs int, b *T, ldb, bp int, c *T, ldc int, accumulate bool)", "is Gemm.", gemm),
	},
	"transpose": {
		typed("transpose", "(blockRows, blockCols int, src *T, lds int, dst *T, ldd int)",
			"stores the transpose of blockRows×blockCols blocks whose rows are 32 bytes.", transpose),
	},
	"softmax": {
		typed("softmax", "(rows, n int, s *T, lds int, m, l *T, o *T, ldo, d int, scale T, lo, hi int)", "is Softmax.", softmax),
		typed("softmaxGrad", "(rows, n int, s, dp *T, ld int, lse, delta *T, scale T, lo, hi int)", "is SoftmaxGrad.", softmaxGrad),
	},
	"scores": {
		typed("softCap", "(rows, n int, s, slope *T, ld int, scale, cap T)", "is SoftCap.", softCap),
		typed("alibi", "(rows, n int, s *T, ld int, scale, slope T, c int)", "is ALiBi.", alibi),
		typed("addBias", "(rows, n int, s *T, ld int, scale T, bias *T, ldb int)", "is AddBias.", addBias),
	},
	"rows": {
		typed("mulTile", "(rows, n int, dst, src *T, ld int)", "is MulTile.", mulTile),
		typed("addTile", "(rows, n int, dst *T, ldd int, src *T, lds int)", "is AddTile.", addTile),
		typed("scaleRows", "(rows, n int, dst *T, ldd int, src *T, lds int, f *T)", "is ScaleRows.", scaleRows),
		typed("dots", "(rows, n int, a *T, lda int, b *T, ldb int, out *T)", "is Dots.", dots),
		typed("dotsWithOne", "(rows, n int, a *T, lda int, b, out *T)", "is Dots with one b for all rows. It sums each row as dots does.", dotsWithOne),
		typed("finite", "(rows, n int, a *T, lda int) bool", "is Finite.", finite),
	},
	"half": {
		{"dotsBFloat16", halfDotsParameters, false, "is HalfDots of whole vectors.", halfDots((*kernel).widenBFloat16)},
		{"dotsFloat16", halfDotsParameters, false, "is HalfDots of whole vectors.", halfDots((*kernel).widenFloat16)},
		{"combineBFloat16", halfCombineParameters, false, "is HalfCombine of whole vectors.", halfCombine((*kernel).widenBFloat16)},
		{"combineFloat16", halfCombineParameters, false, "is HalfCombine of whole vectors.", halfCombine((*kernel).widenFloat16)},
	},
	"packed": {
		plain("dotsNibbles", "(rows, blocks int, codes *byte, ldc int, table *float32, scales *float32, lds int, x, out *float32)", "is PackedDots.", dotsPacked(nibbles)),
		plain("dotsBytes", "(rows, blocks int, codes *byte, ldc int, scales *float32, lds int, x, out *float32)", "is PackedDots.", dotsPacked(signed)),
		plain("widenNibbles", "(blocks int, dst *float32, codes *byte, table *float32, scales *float32)", "is PackedWiden.", widenPacked(nibbles)),
		plain("scalesOfRows", "(rows, n int, from *byte, ld int, dst *float32)", "is PackedScales.", scalesOfRows),
		plain("widenBytes", "(blocks int, dst *float32, codes *byte, scales *float32)", "is PackedWiden.", widenPacked(signed)),
	},
	"cache": cacheKernels(),
	"listed": {
		typed("listedDots4", listedDots4Parameters, "is ListedDots of four rows of b.", listedDots4),
		typed("listedDots1", listedDots1Parameters, "is ListedDots of one row of b.", listedDots1),
		typed("listedCombine4", listedCombine4Parameters, "is ListedCombine of 4 rows of c.", listedCombine(4)),
		typed("listedCombine1", listedCombine1Parameters, "is ListedCombine of 1 rows of c.", listedCombine(1)),
		typed("listedAdd", "(heads, n, d int, a *T, lda int, list *int64, x *T, ldx int, b *T, ldb int)", "is ListedAdd.", listedAdd),
	},
	"dropout": {
		plain("philox", "(n int, numbers *uint16, key, counter *uint32)",
			"draws n numbers, rounded up to whole groups of four vectors, those of one counter after the other's.", philox),
		typed("keep", "(n int, to, from *T, numbers *uint16, threshold uint32, scale T)", "applies random numbers to n elements, a multiple of the lanes.", keep),
	},
	"peak": {typed("peak", "(n int)", "does n rounds of 24 vector FMAs in registers; n is at least 1.", peak)},
	"activation": {
		typed("geluTanh", activateParameters, "is Activate.", activate((*kernel).geluTanh)),
		typed("geluTanhGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).geluTanh)),
		typed("geluErf", activateParameters, "is Activate.", activate((*kernel).geluErf)),
		typed("geluErfGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).geluErf)),
		typed("silu", activateParameters, "is Activate.", activate((*kernel).silu)),
		typed("siluGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).silu)),
		typed("reluSquared", activateParameters, "is Activate.", activate((*kernel).reluSquared)),
		typed("reluSquaredGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).reluSquared)),
		typed("relu", activateParameters, "is Activate.", activate((*kernel).relu)),
		typed("reluGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).relu)),
		typed("quickGELU", activateParameters, "is Activate.", activate((*kernel).quickGELU)),
		typed("quickGELUGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).quickGELU)),
		typed("sigmoid", activateParameters, "is Activate.", activate((*kernel).sigmoid)),
		typed("sigmoidGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).sigmoid)),
		typed("tanh", activateParameters, "is Activate.", activate((*kernel).tanh)),
		typed("tanhGrad", activateGradParameters, "is ActivateGrad.", activateGrad((*kernel).tanh)),
		typed("swiglu", "(n int, y, gate, up *T)", "is SwiGLU.", swiglu),
		typed("swigluGrad", "(n int, dGate, dUp, gate, up, dy *T)", "is SwiGLUGrad.", swigluGrad),
	},
	"norm": {
		typed("sum", "(n int, x *T) float64", "is Sum.", sum),
		typed("deviations", "(n int, x *T, centre T) (sum, squares T)", "is Deviations.", deviations),
		typed("normalize", "(n int, y, x *T, centre, rstd, shift T, gamma, beta *T)", "is Normalize.", normalize),
		typed("normalizeDots", "(n int, x, dy, gamma *T, centre, rstd T) (sum, sumX T)", "is NormalizeDots.", normalizeDots),
		typed("normalizeGrad", "(n int, dx, x, dy, gamma *T, centre, rstd, mean, meanX T, dGamma, dBeta *T)", "is NormalizeGrad.", normalizeGrad),
	},
	"crossentropy": {
		typed("greatest", "(n int, x *T) T", "is Greatest.", greatest),
		typed("sumExp", "(n int, x *T, most T) T", "is SumExp.", sumExp),
		typed("scaledExp", "(n int, y, x *T, lse, scale, less T)", "is ScaledExp.", scaledExp),
		typed("exponentials", "(n int, y, x *T, most T) T", "is Exponentials.", exponentials),
		typed("probabilities", "(n int, y, x *T, factor T, past int)", "is Probabilities.", probabilities),
		typed("logProbabilities", "(n int, y, x *T, most, log T, past int)", "is LogProbabilities.", logProbabilities),
		typed("softmaxRowGrad", "(n int, dx, y, dy *T, mean T, past int)", "is SoftmaxRowGrad.", softmaxRowGrad),
		typed("logSoftmaxRowGrad", "(n int, dx, y, dy *T, sum T, past int)", "is LogSoftmaxRowGrad.", logSoftmaxRowGrad),
	},
	"largest": {
		typed("maxima", "(n int, x, out *T) T", "is Maxima.", maxima),
		typed("kth", "(x *T, k T) T", "is Kth.", kth),
		typed("notBelow", "(n int, x *T, least T, list *int64, room int) int", "is NotBelow.", notBelow),
	},
	"rope": {
		typed("rotate", "(rows, n int, y1, y2 *T, ldy int, x1, x2 *T, ldx int, cos, sin *T, ldt int)", "is Rotate.", rotate),
		typed("rotateNeighbours", "(rows, n int, y *T, ldy int, x *T, ldx int, cos, sin *T, ldt int)", "is RotateNeighbours.", rotateNeighbours),
	},
	"function": {
		typed("quotient", "(n int, c, a, b *T)", "is Div.", quotient),
		typed("squareRoot", "(n int, y, x *T)", "is Sqrt.", squareRoot),
		typed("logarithm", "(n int, y, x *T)", "is Log.", logarithm),
		typed("absGrad", "(n int, dx, x, dy *T)", "is AbsGrad.", absGrad),
	},
	"pointwise": pointwise,
	"add":       {typed("add", "(n int, c, a, b *T)", "is Add.", add)},
	"mul":       {typed("mul", "(n int, c, a, b *T)", "is Mul.", mul)},
	"tiles": {
		plain("tileProduct", "(rows, blocks, steps int, a *uint16, skipA int, b *uint16, skipB int, c *float32, ldc int, accumulate bool)", "is TileProduct.", tileProduct),
		plain("tileRows", "(steps int, src *uint16, stride int, dst *uint16)", "makes groups of eight lines whose numbers lie end to end.", tileRows(false)),
		plain("tileRowsRounded", "(steps int, src *float32, stride int, dst *uint16)", "is tileRowsNEON from float32.", tileRows(true)),
		plain("tilePairs", "(steps int, src *uint16, stride int, dst *uint16)", "makes groups of eight lines that lie side by side.", tilePairs(false)),
		plain("tilePairsRounded", "(steps int, src *float32, stride int, dst *uint16)", "is tilePairsNEON from float32.", tilePairs(true)),
		plain("widenRow", "(vectors int, dst *float32, src *uint16)", "is WidenRow, sixteen numbers at a time.", widenRow),
		plain("roundRow", "(vectors int, dst *uint16, src *float32)", "is RoundRow, sixteen numbers at a time.", roundRow),
	},
	"optimizer": {
		typed("adamw", "(n int, w, dw, m, v *T, scale, rest1, beta2, rest2, root, epsilon, decay, rate T)", "is AdamW.", adamw),
		typed("sgd", "(n int, w, dw *T, scale, pull, decay, rate T)", "is SGD.", sgd),
		typed("sgdMomentum", "(n int, w, dw, m *T, scale, pull, momentum, decay, rate, ahead T)", "is SGDMomentum.", sgdMomentum),
		typed("lion", "(n int, w, dw, m *T, scale, beta1, rest1, beta2, rest2, decay, rate T)", "is Lion.", lion),
		typed("sumSquares", "(n int, x *T) float64", "is SumSquares.", sumSquares),
	},
}

const (
	activateParameters     = "(n int, y, x *T)"
	activateGradParameters = "(n int, dx, x, dy *T)"
	halfDotsParameters     = "(rows, n int, a *uint16, lda int, b, out *float32)"
	halfCombineParameters  = "(rows, n int, a *uint16, lda int, x *float32, step int, c *float32, accumulate bool)"
)

func plain(name, parameters, doc string, emit func(*kernel)) Kernel {
	return Kernel{name, parameters, false, doc, emit}
}

func typed(name, parameters, doc string, emit func(*kernel)) Kernel {
	return Kernel{name, parameters, true, doc, emit}
}

// Write writes the files of all families to a folder: assembly, and the Go declarations of its
// functions.
func Write(folder string) error {
	for name, kernels := range Families {
		assembly, stubs, err := family(kernels)
		if err != nil {
			return err
		}
		for ending, text := range map[string][]byte{"_arm64.s": assembly, "_arm64.go": stubs} {
			if err := os.WriteFile(filepath.Join(folder, name+ending), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

const generated = "// Code generated by _gen -neon. DO NOT EDIT.\n\n"

func family(kernels []Kernel) (assembly, stubs []byte, err error) {
	var code, declarations strings.Builder
	const table = "numbers<>"
	numbers := &numbers{}
	code.WriteString(generated + "#include \"textflag.h\"\n")
	declarations.WriteString(generated + "package simd\n")
	for _, k := range kernels {
		for _, v := range k.Variants() {
			signature := typeParameter.ReplaceAllString(k.Parameters, v.Element)
			body, err := newKernel(k.Parameters, v.Element == "float64", numbers)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", v.Function, err)
			}
			k.emit(body)
			text, err := body.emitted(v.Function, signature, table)
			if err != nil {
				return nil, nil, err
			}
			code.WriteString(text)
			fmt.Fprintf(&declarations, "\n// %s %s\n//\n//go:noescape\nfunc %[1]s%[3]s\n", v.Function, k.doc, signature)
		}
	}
	if len(numbers.words) > 0 {
		code.WriteString("\n")
		for i, w := range numbers.words {
			fmt.Fprintf(&code, "DATA %s+%d(SB)/8, $0x%016x\n", table, 8*i, w)
		}
		fmt.Fprintf(&code, "GLOBL %s(SB), RODATA|NOPTR, $%d\n", table, 8*len(numbers.words))
	}
	stubs, err = format.Source([]byte(declarations.String()))
	return []byte(code.String()), stubs, err
}

var typeParameter = regexp.MustCompile(`\bT\b`)

// Variant is a function that a kernel is emitted as, and its element type.
type Variant struct{ Function, Element string }

// Variants are the functions of a kernel, that of float32 first.
func (k Kernel) Variants() []Variant {
	if !k.Typed {
		return []Variant{{k.Name + "NEON", "float32"}}
	}
	return []Variant{{k.Name + "NEONF32", "float32"}, {k.Name + "NEONF64", "float64"}}
}

// instructions are the lines of some assembly that are written as numbers.
func instructions(assembly []byte) (words, texts []string) {
	for _, line := range strings.Split(string(assembly), "\n") {
		word, text, ok := strings.Cut(strings.TrimSpace(line), " // ")
		if word, isWord := strings.CutPrefix(word, "WORD $0x"); ok && isWord {
			words, texts = append(words, word), append(texts, text)
		}
	}
	return words, texts
}
