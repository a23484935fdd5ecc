package simd

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Level is a set of vector instructions.
type Level int

const (
	Generic Level = iota // plain Go, on every machine
	AVX2                 // amd64: 256-bit vectors with fused multiply-add and F16C
	AVX512               // amd64: 512-bit vectors: F, VL, BW and DQ
	NEON                 // arm64: 128-bit vectors, which every such processor has
	BFMMLA               // arm64: NEON, and products of bfloat16 by the instruction of that name
)

var levelNames = [...]string{"generic", "avx2", "avx512", "neon", "bfmmla"}

func (l Level) String() string {
	if l >= 0 && int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// environment is the variable that lowers the level for a whole process.
const environment = "STHENO_SIMD"

var active, environmentErr = chooseLevel(Levels(), os.Getenv(environment))

// chooseLevel is the level to start with on a machine that has these, the lowest first.
func chooseLevel(have []Level, asked string) (Level, error) {
	most := have[len(have)-1]
	if asked == "" {
		return most, nil
	}
	for l, name := range levelNames {
		if name != asked {
			continue
		}
		if !slices.Contains(have, Level(l)) {
			return most, fmt.Errorf("%s is %q, this machine has %q", environment, asked, have)
		}
		return Level(l), nil
	}
	return most, fmt.Errorf("%s is %q, it needs to be one of %q", environment, asked, levelNames)
}

// Active is the level that kernels run at: the machine's highest, unless STHENO_SIMD or [SetLevel]
// lowered it.
func Active() Level { return active }

// Check returns what is wrong with the STHENO_SIMD environment variable: an unknown word, or what
// the machine lacks. The kernels of package cpu return it, each of them at every call: which
// instructions run is never a guess.
func Check() error { return environmentErr }

// SetLevel changes the level for tests and benchmarks; restore undoes it. Vector and panel widths
// change with it, so no kernel may be running and nothing that was packed before fits after. It
// panics at a level that [Levels] lacks.
func SetLevel(l Level) (restore func()) {
	if !slices.Contains(Levels(), l) {
		panic(fmt.Sprintf("simd.SetLevel: %v, this machine has %v", l, Levels()))
	}
	before := active
	active = l
	return func() { active = before }
}

// Lanes is the number of elements in a vector.
func Lanes[T kernels.Float]() int {
	switch {
	case active == AVX512:
		return 64 / size[T]()
	case active == AVX2:
		return 32 / size[T]()
	case isNEON():
		return 16 / size[T]()
	}
	return genericLanes
}

// isNEON reports whether vectors are NEON's.
func isNEON() bool { return active == NEON || active == BFMMLA }

// Panel is the number of columns in a panel of B, two vectors.
func Panel[T kernels.Float]() int { return 2 * Lanes[T]() }

// genericLanes is the width of a "vector" in plain Go: as many columns as [gemmGeneric] keeps in
// registers.
const genericLanes = 4

// roundUp is n columns rounded up to whole vectors.
func roundUp[T kernels.Float](n int) int { return (n + Lanes[T]() - 1) &^ (Lanes[T]() - 1) }

// size is the number of bytes of an element.
func size[T kernels.Float]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// at is the element i places after p.
func at[T kernels.Float](p *T, i int) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(p), i*size[T]()))
}

// row is the first n elements of row i of a tile whose rows are ld elements apart.
func row[T kernels.Float](tile *T, i, ld, n int) []T {
	return unsafe.Slice(at(tile, i*ld), n)
}

// single reports whether T is float32.
func single[T kernels.Float]() bool { return size[T]() == 4 }

// pointer32 and pointer64 are p as what T is.
func pointer32[T kernels.Float](p *T) *float32 { return (*float32)(unsafe.Pointer(p)) }
func pointer64[T kernels.Float](p *T) *float64 { return (*float64)(unsafe.Pointer(p)) }
