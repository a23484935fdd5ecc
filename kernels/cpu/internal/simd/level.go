package simd

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Level is a set of vector instructions. A higher level includes what the machine needs for the lower ones.
type Level int

const (
	Generic Level = iota // plain Go, on every machine
	AVX2                 // 256-bit vectors with fused multiply-add
	AVX512               // 512-bit vectors: F, VL, BW and DQ
)

var levelNames = [...]string{"generic", "avx2", "avx512"}

func (l Level) String() string {
	if l >= 0 && int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// environment is the variable that lowers the level for a whole process.
const environment = "STHENO_SIMD"

var active, environmentErr = chooseLevel(best(), os.Getenv(environment))

// chooseLevel is the level to start with on a machine whose highest is most.
func chooseLevel(most Level, asked string) (Level, error) {
	if asked == "" {
		return most, nil
	}
	for l, name := range levelNames {
		if name != asked {
			continue
		}
		if Level(l) > most {
			return most, fmt.Errorf("%s is %q, this machine has no more than %q", environment, asked, most)
		}
		return Level(l), nil
	}
	return most, fmt.Errorf("%s is %q, it needs to be one of %q", environment, asked, levelNames)
}

// Active is the level that kernels run at: the machine's highest, unless STHENO_SIMD or [SetLevel] lowered it.
func Active() Level { return active }

// Check returns what is wrong with the STHENO_SIMD environment variable: an unknown word, or more than the machine has. The
// kernels of package cpu return it, each of them at every call: which instructions run is never a guess.
func Check() error { return environmentErr }

// Levels lists the levels that this machine has, the lowest first.
func Levels() []Level {
	levels := make([]Level, best()+1)
	for l := range levels {
		levels[l] = Level(l)
	}
	return levels
}

// SetLevel changes the level for tests and benchmarks; restore undoes it. Vector and panel widths change with it, so
// no kernel may be running and nothing that was packed before fits after. It panics at a level that [Levels] lacks.
func SetLevel(l Level) (restore func()) {
	if l < Generic || l > best() {
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
	}
	return genericLanes
}

// Panel is the number of columns in a panel of B, two vectors.
func Panel[T kernels.Float]() int { return 2 * Lanes[T]() }

// genericLanes is the width of a "vector" in plain Go: as many columns as [gemmGeneric] keeps in registers.
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
