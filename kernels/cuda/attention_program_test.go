//go:build gpu

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	flags "flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"github.com/stheno-ml/stheno/kernels/internal/scoretest"
)

var (
	drawnPrograms = flags.Int("programs", 200, "how many drawn programs of scores and masks are compiled and compared with the interpreter")
	programSeed   = flags.Uint64("program-seed", 1, "the first seed of those programs; 0 takes the clock's")
)

// Arithmetics of what kernels are compiled of: exact functions, and those that do for operands of
// 16 bits.
var (
	exactPrograms  = scoretest.Arithmetic{Name: "exact", DType: kernels.F32, Unit: 0x1p-22, Functions: 0x1p-19}
	coarsePrograms = scoretest.Arithmetic{Name: "coarse", DType: kernels.F32, Unit: 0x1p-21, Functions: 0x1p-13}
)

// drawnPairs is how many pairs each program is computed for. A pair's results are so many numbers,
// and a few a lookup.
const drawnPairs, pairResults, lookupResults = 64, 8, 4

// drawn is a drawn program, what the interpreter makes of its pairs, and what was compiled.
type drawn struct {
	*scoretest.Case
	a             *kernels.Attention
	tables        []int // of the attention's, their numbers in the case
	exact, coarse []scoretest.Sample
	text          string
	lookups       int
}

// drawPrograms draws some.
func drawPrograms(t testing.TB, from uint64, count int) (list []*drawn) {
	for n := range uint64(count) {
		c := scoretest.Draw(from + n)
		m := exactPrograms
		if m.Wide = n%3 == 1; n%3 == 2 {
			m.DType = kernels.BF16
		}
		a, tables, err := c.Attention(m)
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		d := &drawn{Case: c, a: a, tables: tables, exact: c.Samples(exactPrograms, drawnPairs), coarse: c.Samples(coarsePrograms, drawnPairs)}
		d.text = strings.Replace(programOf(a, false, a.Mask != nil && len(a.Mask.Bands) > 0), "#pragma once\n", "", 1)
		if a.Score != nil {
			d.lookups = len(a.Score.Lookups)
		}
		list = append(list, d)
	}
	return list
}

// userHeader is what attention_user.cuh has before the program.
func userHeader(t testing.TB) string {
	text, _, found := strings.Cut(kernelHeaders()["attention_user.cuh"], `#include "user_program.cuh"`)
	if !found {
		t.Fatal("attention_user.cuh does not include the program")
	}
	return text
}

// drawnText are programs, each in a namespace of its own, with a function that computes all that a
// program has for a pair.
func drawnText(list []*drawn) string {
	var b strings.Builder
	for n, d := range list {
		fmt.Fprintf(&b, "namespace drawn%d {\n%s", n, d.text)
		b.WriteString(`DEVICE void compute(const UserArguments& a, const UserPair& p, float* out) {
  float slope = 1;  // without a score nothing sets it
  out[0] = userScore<true>(a, p);
  out[1] = userScore<true>(a, p, slope), out[2] = slope;
  out[3] = userScore<false>(a, p);
  out[4] = userScore<false>(a, p, slope), out[5] = slope;
  out[6] = userVisible(a, p);
  int lo = -(1 << 28), hi = 1 << 28;
  userBands(a, UserPair{0, p.batch, 0, 0, 0, 0, p.queryLength, p.keyLength}, lo, hi);
  const int distance = p.key.value() - p.query.value();
  out[7] = distance >= lo && distance < hi;
  out += 8;
  eachUserLookup([&](auto lookup) {
    using Lookup = decltype(lookup);
    out[0] = Lookup::TABLE, out[1] = (float)Lookup::place(a, p);
    out[2] = Lookup::template slope<true>(a, p), out[3] = Lookup::template slope<false>(a, p);
    out += 4;
  });
}
}
`)
	}
	return b.String()
}

// dispatchText is a function that finds a program by its number.
func dispatchText(list []*drawn) string {
	var b strings.Builder
	b.WriteString("DEVICE void computeDrawn(int program, const UserArguments& a, const UserPair& p, float* out) {\n  switch (program) {\n")
	for n := range list {
		fmt.Fprintf(&b, "    case %d: drawn%d::compute(a, p, out); break;\n", n, n)
	}
	b.WriteString("  }\n}\n")
	return b.String()
}

// places are how far a pair lies behind a thread's first, in queries and in keys.
func (d *drawn) places() [][2]int32 {
	r, list := rand.New(rand.NewPCG(d.Seed, 5)), make([][2]int32, drawnPairs)
	for k := range list {
		list[k] = [2]int32{int32(r.IntN(17)), int32(r.IntN(65))}
	}
	return list
}

// check compares what was compiled of a program.
func (d *drawn) check(out []float32) error {
	size := pairResults + lookupResults*d.lookups
	for k := range drawnPairs {
		x, exact, coarse := out[k*size:][:size], &d.exact[k], &d.coarse[k]
		fail := func(what string, got float32, want any) error {
			return fmt.Errorf("pair %d, %+v: %s is %v instead of %v; its results are %v\n%v", k, *exact, what, got, want, x, d.Case)
		}
		close := func(got float32, want scoretest.Bounded) bool {
			return !(want.Error < 1e3) || math.Abs(float64(got)-want.X) <= want.Error
		}
		for n, want := range []scoretest.Bounded{exact.Score, exact.Score, exact.Slope, coarse.Score, coarse.Score, coarse.Slope} {
			if !close(x[n], want) {
				return fail([]string{"the score", "the score beside its slope", "the slope", "the coarse score", "the coarse score beside its slope", "the coarse slope"}[n], x[n], want)
			}
		}
		if visible := x[6] != 0 && x[7] != 0; exact.Sure && visible != exact.Visible {
			return fail("visible", x[6]+2*x[7], exact.Visible)
		}
		sums := [2]map[[2]int]float64{{}, {}}
		for n := range d.lookups {
			l := x[pairResults+lookupResults*n:]
			at := [2]int{d.tables[int(l[0])], int(l[1])}
			sums[0][at] += float64(l[2])
			sums[1][at] += float64(l[3])
		}
		for n, s := range []*scoretest.Sample{exact, coarse} {
			for at, want := range s.Lookups {
				if got := float32(sums[n][at]); !close(got, want) {
					return fail(fmt.Sprint("the slope by a table at ", at), got, want)
				}
			}
		}
	}
	return nil
}

// Of the device's kernels, one a program. They have a fixed number of tables and axes; sums are
// where results go, lists the pairs.
const deviceTables, deviceAxes = 12, 24

// deviceText is a module of programs. The sources in front of them are the device's own.
func deviceText(t testing.TB, list []*drawn) string {
	var b strings.Builder
	b.WriteString(userHeader(t) + "static_assert(sizeof(UserArguments) == ARGUMENT_BYTES);\n" + drawnText(list))
	for n, d := range list {
		fmt.Fprintf(&b, `extern "C" __global__ void drawn_program_%d(const __grid_constant__ UserArguments a) {
  const int* w = (const int*)a.lists + 10 * threadIdx.x;
  const UserPair p = {__int_as_float(w[0]), w[1], w[2], w[3], UserPlace(w[4], w[5]), UserPlace(w[6], w[7]), w[8], w[9]};
  drawn%d::compute(a, p, (float*)a.sums[0] + %d * threadIdx.x);
}
`, n, n, pairResults+lookupResults*d.lookups)
	}
	return b.String()
}

// compileDrawn compiles programs for a device.
func compileDrawn(t testing.TB, c *driver.Compiler, arch string, list []*drawn) []byte {
	image, err := c.Compile(deviceText(t, list), kernelHeaders(), []string{"--gpu-architecture=" + arch, "--std=c++17",
		"--device-as-default-execution-space", "--diag-suppress=177", fmt.Sprintf("-DUSER_TABLES=%d", deviceTables),
		fmt.Sprintf("-DUSER_AXES=%d", deviceAxes), "-DUSER_DROPS=0", "-DUSER_PLACES=0",
		fmt.Sprintf("-DARGUMENT_BYTES=%d", unsafe.Sizeof(deviceArguments{}))})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// deviceArguments are UserArguments of so many tables and axes.
type deviceArguments struct {
	arguments
	_            [(8 - unsafe.Sizeof(arguments{})%8) % 8]byte
	tables, sums [deviceTables]address
	userTail
	axes [deviceAxes][2]int32
}

// Drawn programs compile for a device, where there is a compiler.
func TestDrawnProgramsCompile(t *testing.T) {
	c, err := driver.FindCompiler()
	if err != nil {
		t.Skip(err)
	}
	compileDrawn(t, c, "sm_90a", drawPrograms(t, 1, 20))
}

// Drawn programs compute on a device what the interpreter says: -programs says how many.
func TestDrawnProgramsOnTheDevice(t *testing.T) {
	if Count() == 0 {
		t.Skip("this machine has no GPU")
	}
	c, err := driver.FindCompiler()
	if err != nil {
		t.Skip(err)
	}
	d, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	const together = 50 // programs a module; modules are compiled beside each other
	from := *programSeed
	if from == 0 {
		from = uint64(time.Now().UnixNano())
	}
	t.Logf("%d programs from seed %d on", *drawnPrograms, from)
	type module struct {
		list  []*drawn
		image []byte
	}
	var modules sync.WaitGroup
	compiled, free := make(chan module, runtime.NumCPU()), make(chan bool, runtime.NumCPU())
	go func() {
		for first := 0; first < *drawnPrograms; first += together {
			free <- true
			modules.Go(func() {
				defer func() { <-free }()
				list := drawPrograms(t, from+uint64(first), min(together, *drawnPrograms-first))
				compiled <- module{list, compileDrawn(t, c, d.arch(), list)}
			})
		}
		modules.Wait()
		close(compiled)
	}()
	number := 0
	for m := range compiled {
		name := fmt.Sprint("drawn ", number)
		number++
		if err := d.AddModule(name, string(m.image)); err != nil {
			t.Fatal(err)
		}
		for n, p := range m.list {
			kernel := driver.Kernel{Module: name, Entry: fmt.Sprint("drawn_program_", n)}
			out, err := p.onDevice(d, kernel)
			if err == nil {
				err = p.check(out)
			}
			if err != nil {
				again, failed := p.onDevice(d, kernel)
				t.Errorf("seed %d: %v\na second run of it gives the same: %v, %v", p.Seed, err, slices.Equal(out, again), failed)
			}
		}
	}
}

// onDevice computes all pairs of a program.
func (d *drawn) onDevice(device *Device, kernel driver.Kernel) ([]float32, error) {
	var failed error
	send := func(host kernels.Tensor) kernels.Tensor {
		at, err := device.Alloc(host.DType, host.Shape...)
		if err == nil {
			err = device.Copy(at, host)
		}
		failed = errors.Join(failed, err)
		return at
	}
	words := d.pairWords()
	out := make([]float32, drawnPairs*(pairResults+lookupResults*d.lookups))
	pairs, results := send(kernels.Of(words, len(words))), send(kernels.Of(out, len(out)))
	a := new(deviceArguments)
	axes := 0
	kept := []kernels.Tensor{pairs, results}
	for n, table := range d.a.Tables {
		on := send(table)
		kept = append(kept, on)
		a.tables[n] = address(read(on))
		for axis, size := range table.Shape {
			a.axes[axes] = [2]int32{int32(size), int32(table.Strides[axis])}
			axes++
		}
	}
	if failed != nil {
		return nil, failed
	}
	a.lists, a.sums[0] = address(read(pairs)), written(results).Address()
	err := device.launch(shapeOf(kernel.Module, kernel.Entry, [3]int{1, 1, 1}, drawnPairs, 0), nil, unsafe.Pointer(a))
	if err == nil {
		err = device.Copy(kernels.Of(out, len(out)), results)
	}
	runtime.KeepAlive(kept)
	return out, err
}

// hostShims are what the compiled text takes of a device and of the sources before it, for a
// compiler of the host.
const hostShims = `#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#define DEVICE inline
#define __device__
#define __logf logf
#define __noinline__ __attribute__((noinline))
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct __nv_bfloat16 { uint16_t bits; };
struct __half { uint16_t bits; };
struct AttentionArguments {};
static int min(int x, int y) { return x < y ? x : y; }
static int max(int x, int y) { return x > y ? x : y; }
static int64_t min(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t max(int64_t x, int64_t y) { return x > y ? x : y; }
static float __int_as_float(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
static float widen(__nv_bfloat16 x) { return __int_as_float((uint32_t)x.bits << 16); }
static float widen(__half) { return 0; }
template <class T> static T __ldg(const T* p) { return *p; }
static float __fadd_rn(float x, float y) { return x + y; }
static float __fsub_rn(float x, float y) { return x - y; }
static float __fmul_rn(float x, float y) { return x * y; }
static float __fdividef(float x, float y) { return x / y; }
static float exp2Fast(float x) { return exp2f(x); }
static float minNaN(float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : fminf(x, y); }
static float maxNaN(float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : fmaxf(x, y); }
static constexpr float LOG2E = 1.4426950408889634f;
template <bool EXACT> static float hyperbolicTangent(float x, float factor) {
  return EXACT ? tanhf(x * factor) : 1 - __fdividef(2, 1 + exp2Fast(x * (2 * LOG2E * factor)));
}
constexpr int USER_TABLES = 64, USER_AXES = 256;
`

// hostMain reads of each program the numbers of tables and axes, the tables, the axes and the
// pairs, and writes results.
const hostMain = `
static int32_t word(FILE* f) { int32_t x; if (fread(&x, 4, 1, f) != 1) __builtin_trap(); return x; }
int main(int, char** arguments) {
  FILE *in = fopen(arguments[1], "rb"), *out = fopen(arguments[2], "wb");
  for (int n = word(in); n > 0; n--) {
    static UserArguments a;
    const int program = word(in), tables = word(in), axes = word(in), size = word(in), pairs = word(in);
    std::vector<std::vector<char>> data(tables);
    for (int t = 0; t < tables; t++) {
      data[t].resize(word(in));
      if (fread(data[t].data(), 1, data[t].size(), in) != data[t].size()) __builtin_trap();
      a.tables[t] = data[t].data();
    }
    for (int n = 0; n < axes; n++) a.axes[n].x = word(in), a.axes[n].y = word(in);
    for (int k = 0; k < pairs; k++) {
      UserPair p;
      p.score = __int_as_float(word(in)), p.batch = word(in), p.head = word(in), p.keyHead = word(in);
      p.query.first = word(in), p.query.behind = word(in), p.key.first = word(in), p.key.behind = word(in);
      p.queryLength = word(in), p.keyLength = word(in);
      std::vector<float> x(size);
      computeDrawn(program, a, p, x.data());
      fwrite(x.data(), 4, size, out);
    }
  }
  return fclose(out);
}
`

// tableBytes is a table's memory.
func tableBytes(t kernels.Tensor) []byte {
	var b bytes.Buffer
	var values any
	switch t.DType {
	case kernels.F32:
		values = kernels.Host[float32](t)
	case kernels.BF16:
		values = kernels.Host[kernels.BFloat16](t)
	case kernels.I32:
		values = kernels.Host[int32](t)
	default:
		values = kernels.Host[int64](t)
	}
	binary.Write(&b, binary.LittleEndian, values)
	return b.Bytes()
}

// pairWords are a program's pairs as hostMain and the device's kernel take them.
func (d *drawn) pairWords() (words []int32) {
	for k, behind := range d.places() {
		s := &d.exact[k]
		words = append(words, int32(math.Float32bits(float32(s.Raw))), int32(s.Batch), int32(s.Head), int32(s.KeyHead),
			int32(s.Query)-behind[0], behind[0], int32(s.Key)-behind[1], behind[1], int32(s.QueryLength), int32(s.KeyLength))
	}
	return words
}

// What is written in CUDA C++ of drawn programs computes what the interpreter says, compiled for
// the host with stand-ins for the few functions of a device.
func TestDrawnProgramsOnTheHost(t *testing.T) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("this machine has no g++")
	}
	const together = 100 // programs that are compiled at a time
	from := *programSeed
	if from == 0 {
		from = uint64(time.Now().UnixNano())
	}
	t.Logf("%d programs from seed %d on", *drawnPrograms, from)
	for first := 0; first < *drawnPrograms && !t.Failed(); first += together {
		checkOnHost(t, compiler, drawPrograms(t, from+uint64(first), min(together, *drawnPrograms-first)))
	}
}

func checkOnHost(t *testing.T, compiler string, list []*drawn) {
	header := userHeader(t)
	_, header, _ = strings.Cut(header, "#include \"score.cuh\"\n")
	for _, name := range []string{"min", "max"} {
		header = strings.Replace(header, `asm("`+name+`.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));`, "z = "+name+"NaN(x, y);", 1)
		header = strings.Replace(header, `asm("`+name+`.u32 %0, %1, %2;" : "=r"(z) : "r"(turned(x)), "r"(turned(y)));`, "z = std::"+name+"(turned(x), turned(y));", 1)
	}
	header = strings.Replace(header, `asm("abs.s32 %0, %1;" : "=r"(z) : "r"(x));`, "z = x < 0 ? userSub(0, x) : x;", 1)
	var in bytes.Buffer
	put := func(words ...int32) { binary.Write(&in, binary.LittleEndian, words) }
	put(int32(len(list)))
	for n, d := range list {
		axes := axesOf(d.a.Tables)
		put(int32(n), int32(len(d.a.Tables)), int32(axes), int32(pairResults+lookupResults*d.lookups), drawnPairs)
		for _, table := range d.a.Tables {
			data := tableBytes(table)
			put(int32(len(data)))
			in.Write(data)
		}
		for _, table := range d.a.Tables {
			for axis, size := range table.Shape {
				put(int32(size), int32(table.Strides[axis]))
			}
		}
		put(d.pairWords()...)
	}
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	if err := os.WriteFile(path("drawn.cpp"), []byte(hostShims+header+drawnText(list)+dispatchText(list)+hostMain), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("in"), in.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{compiler, "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-o", path("drawn"), path("drawn.cpp")}, {path("drawn"), path("in"), path("out")},
	} {
		if message, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%.4000s", command[0], err, message)
		}
	}
	data, err := os.ReadFile(path("out"))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		n := drawnPairs * (pairResults + lookupResults*d.lookups)
		if err := d.check(out[:n]); err != nil {
			t.Error(err)
		}
		out = out[n:]
	}
}
