package blas_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/blas"
	gonumblas "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var (
	_ gonumblas.Float32       = blas.Implementation{}
	_ gonumblas.Float64       = blas.Implementation{}
	_ gonumblas.Float32Level3 = blas.Implementation{}
	_ gonumblas.Float64Level3 = blas.Implementation{}
	_ gorgonia.BLAS           = blas.Implementation{}
	_ tensor.BLAS             = blas.Implementation{}
)

func TestGemmEqualsGonums(t *testing.T) {
	seed := uint64(0)
	for _, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {64, 65, 66}, {100, 33, 1}, {17, 129, 70}, {0, 3, 3}, {3, 0, 3}, {3, 4, 0}} {
		for _, tA := range []gonumblas.Transpose{gonumblas.NoTrans, gonumblas.Trans, gonumblas.ConjTrans} {
			for _, tB := range []gonumblas.Transpose{gonumblas.NoTrans, gonumblas.Trans} {
				for _, factors := range [][2]float64{{1, 0}, {1, 1}, {0.5, 0}, {-2, 3}, {0, 0}, {0, 2}} {
					seed++
					c := gemmCase{size[0], size[1], size[2], tA, tB, factors[0], factors[1], seed}
					checkGemm(t, c, 1e-4, blas.Implementation{}.Sgemm, gonum.Implementation{}.Sgemm)
					checkGemm(t, c, 1e-12, blas.Implementation{}.Dgemm, gonum.Implementation{}.Dgemm)
				}
			}
		}
	}
}

type gemmCase struct {
	m, n, k     int
	tA, tB      gonumblas.Transpose
	alpha, beta float64
	seed        uint64
}

type gemmFunc[T kernels.Float] func(tA, tB gonumblas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)

func checkGemm[T kernels.Float](t *testing.T, c gemmCase, tolerance float64, ours, gonums gemmFunc[T]) {
	t.Helper()
	const gap = 3
	random := rand.New(rand.NewPCG(c.seed, 5))
	matrix := func(rows, columns int, transpose gonumblas.Transpose) (data []T, stride int) {
		if transpose != gonumblas.NoTrans {
			rows, columns = columns, rows
		}
		data = make([]T, rows*(columns+gap)+1)
		for i := range data {
			data[i] = T(random.NormFloat64())
		}
		return data, columns + gap
	}
	a, lda := matrix(c.m, c.k, c.tA)
	b, ldb := matrix(c.k, c.n, c.tB)
	got, ldc := matrix(c.m, c.n, gonumblas.NoTrans)
	want := append([]T(nil), got...)
	ours(c.tA, c.tB, c.m, c.n, c.k, T(c.alpha), a, lda, b, ldb, T(c.beta), got, ldc)
	gonums(c.tA, c.tB, c.m, c.n, c.k, T(c.alpha), a, lda, b, ldb, T(c.beta), want, ldc)
	for i := range want {
		if e := math.Abs(float64(got[i] - want[i])); !(e <= tolerance*(1+math.Abs(float64(want[i])))) {
			t.Fatalf("%v %+v: element %d is %v, gonum has %v", kernels.DTypeOf[T](), c, i, got[i], want[i])
		}
	}
}

// β = 0 overwrites C whatever it held, and α = 0 leaves A and B out.
func TestGemmZeroFactors(t *testing.T) {
	nan := math.NaN()
	c := []float64{nan, nan}
	blas.Implementation{}.Dgemm(gonumblas.NoTrans, gonumblas.NoTrans, 1, 2, 1, 2, []float64{3}, 1, []float64{5, 7}, 2, 0, c, 2)
	if c[0] != 30 || c[1] != 42 {
		t.Errorf("with β = 0, C is %v instead of [30 42]", c)
	}
	blas.Implementation{}.Dgemm(gonumblas.NoTrans, gonumblas.NoTrans, 1, 2, 1, 0, []float64{nan}, 1, []float64{5, 7}, 2, 0.5, c, 2)
	if c[0] != 15 || c[1] != 21 {
		t.Errorf("with α = 0 and β = 0.5, C is %v instead of [15 21]", c)
	}
}

func TestGemmPanicsLikeGonums(t *testing.T) {
	four := make([]float32, 4)
	for _, call := range []func(sgemm gemmFunc[float32]){
		func(sgemm gemmFunc[float32]) { sgemm('x', gonumblas.NoTrans, 2, 2, 2, 1, four, 2, four, 2, 0, four, 2) },
		func(sgemm gemmFunc[float32]) { sgemm(gonumblas.NoTrans, 'x', 2, 2, 2, 1, four, 2, four, 2, 0, four, 2) },
		func(sgemm gemmFunc[float32]) {
			sgemm(gonumblas.NoTrans, gonumblas.NoTrans, -1, 2, 2, 1, four, 2, four, 2, 0, four, 2)
		},
		func(sgemm gemmFunc[float32]) {
			sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 2, 1, four, 1, four, 2, 0, four, 2)
		},
		func(sgemm gemmFunc[float32]) {
			sgemm(gonumblas.Trans, gonumblas.NoTrans, 2, 2, 3, 1, four, 2, four, 2, 0, four, 2)
		},
		func(sgemm gemmFunc[float32]) {
			sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 2, 1, four, 2, four[:3], 2, 0, four, 2)
		},
		func(sgemm gemmFunc[float32]) {
			sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 2, 1, four, 2, four, 2, 0, four[:3], 2)
		},
	} {
		panics := func(sgemm gemmFunc[float32]) (message string) {
			defer func() { message = fmt.Sprint(recover()) }()
			call(sgemm)
			return ""
		}
		got, want := panics(blas.Implementation{}.Sgemm), panics(gonum.Implementation{}.Sgemm)
		if got != want || want == "<nil>" {
			t.Errorf("the panic is %q, gonum's is %q", got, want)
		}
	}
}

// After Use, a product in a graph runs on this package: 0·NaN, which gonum skips, tells the two
// apart.
func TestGorgoniaUse(t *testing.T) {
	before := gorgonia.WhichBLAS()
	defer gorgonia.Use(before)
	product := func() float32 {
		g := gorgonia.NewGraph()
		a := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithName("a"), gorgonia.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{0, 1, 2, 3}))))
		b := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithName("b"), gorgonia.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{float32(math.NaN()), 5, 6, 7}))))
		c := gorgonia.Must(gorgonia.Mul(a, b))
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		values := c.Value().Data().([]float32)
		if values[1] != 7 || values[3] != 31 {
			t.Errorf("the second column of the product is %v, %v instead of 7, 31", values[1], values[3])
		}
		return values[0]
	}
	if x := product(); x != 6 {
		t.Errorf("gonum's 0·NaN + 1·6 is %v instead of 6: this test no longer tells it apart", x)
	}
	gorgonia.Use(blas.Implementation{})
	if x := product(); x == x {
		t.Errorf("after Use, 0·NaN + 1·6 is %v instead of NaN: Gorgonia does not multiply with this package", x)
	}
}

func ExampleImplementation() {
	before := gorgonia.WhichBLAS()
	defer gorgonia.Use(before)

	gorgonia.Use(blas.Implementation{}) // once, before the first graph runs

	g := gorgonia.NewGraph()
	a := gorgonia.NewMatrix(g, gorgonia.Float64, gorgonia.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))))
	square := gorgonia.Must(gorgonia.Mul(a, a))
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(square.Value().Data())
	// Output: [7 10 15 22]
}

// TestNew checks that a program with an unknown word in STHENO_SIMD gets an error from New.
func TestNew(t *testing.T) {
	const unknown = "fast"
	_, err := blas.New()
	if os.Getenv("STHENO_SIMD") == unknown {
		fmt.Println(err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	slow.Forks(t)
	program := exec.Command(os.Args[0], "-test.run=^TestNew$")
	program.Env = append(os.Environ(), "STHENO_SIMD="+unknown)
	out, err := program.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	if want := `STHENO_SIMD is "fast", it needs to be one of`; !strings.Contains(string(out), want) {
		t.Errorf("the program printed\n%s\nwhich lacks\n%s", out, want)
	}
}
