package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

func written(t testing.TB, list safetensors.Tensors, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, list, metadata); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readAll(data []byte) (safetensors.Tensors, map[string]string, error) {
	f, err := safetensors.Read(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	list, err := f.Tensors()
	return list, f.Metadata(), err
}

// file is a file of that header and so many bytes of data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// What is written is read again, whatever the names, shapes, types and strings.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.String(), 0, 6, rapid.ID[string]).Draw(t, "names")
		var list safetensors.Tensors
		for _, name := range names {
			shape := rapid.SliceOfN(rapid.IntRange(1, 5), 0, 4).Draw(t, "shape")
			n := tensor.Shape(shape).TotalSize()
			var backing any
			switch rapid.IntRange(0, 3).Draw(t, "type") {
			case 0:
				backing = rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, "data")
			case 1:
				backing = rapid.SliceOfN(rapid.Float64(), n, n).Draw(t, "data")
			case 2:
				backing = rapid.SliceOfN(rapid.Int32(), n, n).Draw(t, "data")
			case 3:
				backing = rapid.SliceOfN(rapid.Int64(), n, n).Draw(t, "data")
			}
			list = append(list, safetensors.Tensor{Name: name, Value: dense(backing, shape...)})
		}
		metadata := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "metadata")
		var b bytes.Buffer
		if err := safetensors.Write(&b, list, metadata); err != nil {
			t.Fatal(err)
		}
		have, haveMetadata, err := readAll(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(metadata, haveMetadata) {
			t.Fatalf("metadata is %q, want %q", haveMetadata, metadata)
		}
		if length := binary.LittleEndian.Uint64(b.Bytes()); length%8 != 0 {
			t.Fatalf("the header has %d bytes, which is no multiple of 8", length)
		}
		slices.SortStableFunc(list, func(a, b safetensors.Tensor) int {
			return int(b.Value.Dtype().Size()) - int(a.Value.Dtype().Size())
		})
		if len(have) != len(list) {
			t.Fatalf("%d tensors were read, want %d", len(have), len(list))
		}
		for i, want := range list {
			if have[i].Name != want.Name || !same(have[i].Value, want.Value) {
				t.Fatalf("tensor %d is %q %v %v, want %q %v %v", i, have[i].Name, have[i].Value.Shape(), have[i].Value,
					want.Name, want.Value.Shape(), want.Value)
			}
		}
	})
}

// Views are written as they look.
func TestWriteViews(t *testing.T) {
	count := func(shape ...int) *tensor.Dense {
		return dense(tensor.Range(tensor.Float64, 0, tensor.Shape(shape).TotalSize()), shape...)
	}
	slice := func(d *tensor.Dense, s ...tensor.Slice) *tensor.Dense {
		v, err := d.Slice(s...)
		if err != nil {
			t.Fatal(err)
		}
		return v.(*tensor.Dense)
	}
	transposed := func(d *tensor.Dense, axes ...int) *tensor.Dense {
		if err := d.T(axes...); err != nil {
			t.Fatal(err)
		}
		return d
	}
	cases := []struct {
		name  string
		value *tensor.Dense
		shape []int
		want  []float64
	}{
		{"rows", slice(count(4, 2), tensor.S(1, 3)), []int{2, 2}, []float64{2, 3, 4, 5}},
		{"column", slice(count(3, 4), nil, tensor.S(1)), []int{3}, []float64{1, 5, 9}},
		{"columns", slice(count(3, 4), nil, tensor.S(1, 3)), []int{3, 2}, []float64{1, 2, 5, 6, 9, 10}},
		{"element", slice(count(3, 4), tensor.S(2), tensor.S(1)), []int{}, []float64{9}},
		{"block", slice(count(2, 3, 4), nil, tensor.S(1, 3), tensor.S(0, 2)), []int{2, 2, 2}, []float64{4, 5, 8, 9, 16, 17, 20, 21}},
		{"transposed", transposed(count(2, 3)), []int{3, 2}, []float64{0, 3, 1, 4, 2, 5}},
		{"permuted", transposed(count(2, 1, 3), 2, 1, 0), []int{3, 1, 2}, []float64{0, 3, 1, 4, 2, 5}},
		{"column major", tensor.New(tensor.WithShape(2, 3), tensor.AsFortran([]float64{1, 2, 3, 4, 5, 6})), []int{2, 3}, []float64{1, 2, 3, 4, 5, 6}},
		{"axes of one", count(1, 3, 1), []int{1, 3, 1}, []float64{0, 1, 2}},
		{"larger than the buffer", count(3, 40_000), []int{3, 40_000}, tensor.Range(tensor.Float64, 0, 120_000).([]float64)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			list, _, err := readAll(written(t, safetensors.Tensors{{Name: "x", Value: c.value}}, nil))
			if err != nil {
				t.Fatal(err)
			}
			if want := dense(c.want, c.shape...); !same(list[0].Value, want) {
				t.Errorf("%v, want %v", list[0].Value, want)
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	one := dense([]float32{1}, 1)
	masked := dense([]float32{1, 2}, 2)
	masked.SetMask([]bool{true, false})
	cases := []struct {
		name     string
		list     safetensors.Tensors
		metadata map[string]string
		want     string
	}{
		{"nil", safetensors.Tensors{{"w", nil}}, nil, `tensor "w" is nil`},
		{"a zero value", safetensors.Tensors{{"w", &tensor.Dense{}}}, nil, `tensor "w" is a zero value`},
		{"type", safetensors.Tensors{{"w", dense([]int8{1}, 1)}}, nil, `tensor "w" is int8, it needs to be`},
		{"Go's int", safetensors.Tensors{{"w", dense([]int{1}, 1)}}, nil, `tensor "w" is int, it needs to be`},
		{"empty", safetensors.Tensors{{"w", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(0, 3))}}, nil, `tensor "w" has shape [0 3]`},
		{"masked", safetensors.Tensors{{"w", masked}}, nil, `tensor "w" has a mask`},
		{"twice", safetensors.Tensors{{"w", one}, {"w", one}}, nil, `two tensors are named "w"`},
		{"not UTF-8", safetensors.Tensors{{"w\xff", one}}, nil, `"w\xff" is not UTF-8`},
		{"metadata's name", safetensors.Tensors{{"__metadata__", one}}, nil, "which is the metadata's name"},
		{"metadata not UTF-8", nil, map[string]string{"a": "\xff"}, "is not UTF-8"},
		{"metadata too long", nil, map[string]string{"a": strings.Repeat("x", 100_000_000)}, "the format allows 100000000"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name == "metadata too long" {
				t.Skip("needs a few hundred MB")
			}
			var b bytes.Buffer
			if err := safetensors.Write(&b, c.list, c.metadata); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if b.Len() > 0 {
				t.Errorf("%d bytes were written before the error", b.Len())
			}
		})
	}
}

// failingWriter fails once it has taken that many bytes.
type failingWriter struct{ left int }

var errFull = errors.New("no space left")

func (w *failingWriter) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return w.left, errFull
	}
	w.left -= len(b)
	return len(b), nil
}

func TestWriteFails(t *testing.T) {
	list := safetensors.Tensors{{"a", dense(make([]float32, 100_000), 100_000)}, {"b", dense(make([]float64, 3), 3)}}
	whole := len(written(t, list, nil))
	for _, left := range []int{0, 7, 200, 300_000, whole - 1} {
		if err := safetensors.Write(&failingWriter{left}, list, nil); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: error %v, want the writer's", left, err)
		}
	}
	if err := safetensors.Write(&failingWriter{whole}, list, nil); err != nil {
		t.Error(err)
	}
}

var malformed = []struct {
	name string
	data []byte
	want string
}{
	{"nothing", nil, "has 0 bytes"},
	{"short length", []byte{1, 2, 3}, "has 3 bytes"},
	{"no header", file("", 0), "does not begin with {"},
	{"length beyond the file", append([]byte{200, 0, 0, 0, 0, 0, 0, 0}, "{}"...), "claims a header of 200 bytes, only 2 follow"},
	{"length beyond the limit", append([]byte{1, 225, 245, 5, 0, 0, 0, 0}, "{}"...), "the format allows 100000000"},
	{"length beyond all integers", append(bytes.Repeat([]byte{255}, 8), "{}"...), "claims a header of 18446744073709551615 bytes"},
	{"no JSON", file("{hello}", 0), "not valid"},
	{"space first", file(" {}", 0), "does not begin with {"},
	{"array", file("[]", 0), "does not begin with {"},
	{"open", file("{", 0), "ends too early"},
	{"open entry", file(`{"a":{"dtype":"F32"`, 0), "ends too early"},
	{"something behind", file("{} {}", 0), "2 bytes follow"},
	{"not UTF-8", file("{\"a\xff\":{}}", 0), "not UTF-8"},
	{"twice", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), `"a" is there twice`},
	{"twice by escapes", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"\u0061":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), `"a" is there twice`},
	{"dtype twice", file(`{"a":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}}`, 4), `"dtype" is there twice`},
	{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "is there twice"},
	{"metadata no strings", file(`{"__metadata__":{"a":1}}`, 0), "1 is where a string needs to be"},
	{"metadata null", file(`{"__metadata__":{"a":null}}`, 0), "is where a string needs to be"},
	{"metadata list", file(`{"__metadata__":[]}`, 0), "[ is where { needs to be"},
	{"entry number", file(`{"a":1}`, 0), "1 is where { needs to be"},
	{"no dtype", file(`{"a":{"shape":[1],"data_offsets":[0,4]}}`, 4), "needs a dtype"},
	{"no shape", file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4), "needs a dtype"},
	{"no offsets", file(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "needs a dtype"},
	{"one offset", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}`, 4), "two data_offsets"},
	{"three offsets", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`, 4), "two data_offsets"},
	{"upper-case keys", file(`{"a":{"DTYPE":"F32","Shape":[1],"data_offsets":[0,4]}}`, 4), "needs a dtype"},
	{"negative axis", file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "-1 is not an integer"},
	{"fraction", file(`{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}`, 4), "1.0 is not an integer"},
	{"exponent", file(`{"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}}`, 4), "1e0 is not an integer"},
	{"string for a number", file(`{"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}}`, 4), "1 is where a number needs to be"},
	{"null for a number", file(`{"a":{"dtype":"F32","shape":[null],"data_offsets":[0,4]}}`, 4), "is where a number needs to be"},
	{"axis too large", file(`{"a":{"dtype":"F32","shape":[18446744073709551617],"data_offsets":[0,4]}}`, 4), "is not an integer"},
	{"offset too large", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,9223372036854775808]}}`, 4), "is not an integer"},
	{"product overflows to the size", file(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 0), "does not fill its 0 bytes"},
	{"product overflows to one", file(`{"a":{"dtype":"F32","shape":[4294967297,4294967297,1],"data_offsets":[0,4]}}`, 4), "does not fill its 4 bytes"},
	{"shape too small", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}}`, 12), "is F32 of shape [2], which does not fill its 12 bytes"},
	{"shape too large", file(`{"a":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}}`, 8), "does not fill its 8 bytes"},
	{"scalar too large", file(`{"a":{"dtype":"F64","shape":[],"data_offsets":[0,16]}}`, 16), "does not fill its 16 bytes"},
	{"end before begin", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), "ends at 0, before it begins at 4"},
	{"beyond the data", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4), "but there are 4 bytes of data: the file is cut short"},
	{"far beyond the data", file(`{"a":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4611686018427387904]}}`, 4), "cut short"},
	{"data left over", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8), "has 8 bytes of data, its tensors have 4"},
	{"data without tensors", file(`{}`, 8), "has 8 bytes of data, its tensors have 0"},
	{"hole", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12),
		`tensor "b" begins at 8, but "a" ends at 4: there is a hole`},
	{"hole first", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "but the header ends at 0: there is a hole"},
	{"overlap", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12),
		`tensor "b" begins at 4, before "a" ends at 8`},
	{"same data", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4),
		`tensor "b" begins at 0, before "a" ends at 4`},
	{"unknown type without room", file(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}`, 0), "cut short"},
}

func TestReadRefuses(t *testing.T) {
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := readAll(c.data)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// No proper beginning of a file is a file.
func TestReadTruncated(t *testing.T) {
	whole := written(t, goldenTensors(), goldenMetadata)
	for n := range whole {
		if _, _, err := readAll(whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes were read without an error", n, len(whole))
		}
	}
}

// A file that becomes shorter after it was opened gives an error.
func TestReadShrunk(t *testing.T) {
	whole := written(t, goldenTensors(), nil)
	f, err := safetensors.Read(bytes.NewReader(whole[:len(whole)-2]), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	names := f.Names()
	if _, err := f.Tensor(names[len(names)-1]); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("error %v, want an unexpected EOF", err)
	}
	if _, err := f.Tensor(names[0]); err != nil {
		t.Error(err)
	}
}

func TestReadUnusual(t *testing.T) {
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", file(`{}`, 0), "map[]"},
		{"padded", file("{} \t\r\n", 0), "map[]"},
		{"unknown field", file(`{"a":{"dtype":"F32","extra":{"x":[1,2]},"shape":[1],"data_offsets":[0,4]}}`, 4), "map[a:[0]]"},
		{"order of the data", file(`{"b":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8),
			"map[a:[0] b:[0]]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			list, _, err := readAll(c.data)
			if err != nil {
				t.Fatal(err)
			}
			have := map[string]any{}
			for _, x := range list {
				have[x.Name] = x.Value.Data()
			}
			if fmt.Sprint(have) != c.want {
				t.Errorf("%v, want %s", have, c.want)
			}
		})
	}
	small := file(`{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}`, 3)
	f, err := safetensors.Read(bytes.NewReader(small), int64(len(small)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor("a"); err == nil || !strings.Contains(err.Error(), `tensor "a" is F4; only`) {
		t.Errorf("a type without a size: error %v", err)
	}
}

// A scalar of 16 bits, such as CLIP's scale of logits, is written like a tensor.
func TestScalarHalves(t *testing.T) {
	scalar := func(data any) *tensor.Dense { return tensor.New(tensor.WithShape(), tensor.WithBacking(data)) }
	list, _, err := readAll(written(t, safetensors.Tensors{
		{Name: "brain", Value: scalar([]kernels.BFloat16{kernels.ToBFloat16(1.5)})},
		{Name: "half", Value: scalar([]kernels.Float16{kernels.ToFloat16(-2.5)})},
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{1.5, -2.5} {
		if have := list[i].Value; len(have.Shape()) != 0 || have.Float32s()[0] != want {
			t.Errorf("%s is %v of shape %v, want the scalar %v", list[i].Name, have, have.Shape(), want)
		}
	}
}

// Every number in half precision and in bfloat16 becomes the float32 that equals it.
func TestHalves(t *testing.T) {
	const n = 1 << 16
	header := `{"half":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]},"brain":{"dtype":"BF16","shape":[65536],"data_offsets":[131072,262144]}}`
	data := file(header, 0)
	for range 2 {
		for i := range n {
			data = binary.LittleEndian.AppendUint16(data, uint16(i))
		}
	}
	list, _, err := readAll(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, format := range []struct{ exponentBits, fractionBits int }{{5, 10}, {8, 7}} {
		for bits, have := range list[i].Value.Float32s() {
			bias := 1<<(format.exponentBits-1) - 1
			exponent := bits >> format.fractionBits & (1<<format.exponentBits - 1)
			fraction := float64(bits&(1<<format.fractionBits-1)) / float64(int(1)<<format.fractionBits)
			want := math.Ldexp(1+fraction, exponent-bias)
			switch {
			case exponent == 0:
				want = math.Ldexp(fraction, 1-bias)
			case exponent == 1<<format.exponentBits-1 && fraction == 0:
				want = math.Inf(1)
			case exponent == 1<<format.exponentBits-1:
				want = math.NaN()
			}
			if bits >= n/2 {
				want = -want
			}
			if !same(dense([]float32{have}), dense([]float32{float32(want)})) {
				t.Fatalf("%s %#04x is read as %v, want %v", list[i].Name, bits, have, want)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "short"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "short", "."} {
		path := filepath.Join(folder, name)
		if _, err := safetensors.Open(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with the path", name, err)
		}
	}
}

// A file of another kind is named.
func TestOtherKinds(t *testing.T) {
	for start, want := range map[string]string{
		"PK\x03\x04\x14\x00\x00\x08": "a zip archive", "\x80\x02}q\x00X\x07\x00": "a Python pickle", "GGUF\x03\x00\x00\x01": "a GGUF file",
		"\x93NUMPY\x01\x00": "a NumPy array", "version https://git-lfs": "Git LFS", "{\n  \"metadata\"": "JSON", "<!DOCTYPE html>": "a web page",
	} {
		if _, _, err := readAll([]byte(start + "and so on")); err == nil || !strings.Contains(err.Error(), "begins like") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", start, err, want)
		}
	}
}

// sparse is a file whose data are zeros as far as anyone reads.
type sparse struct{ start []byte }

func (s sparse) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < int64(len(s.start)) {
		copy(b, s.start[at:])
	}
	return len(b), nil
}

// What no machine can hold is an error, also if a file says truly that it has it.
func TestSparseFile(t *testing.T) {
	const bytes = 4 << 50
	header := file(fmt.Sprintf(`{"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, bytes/4, bytes), 0)
	f, err := safetensors.Read(sparse{header}, int64(len(header))+bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor("w"); err == nil || !strings.Contains(err.Error(), "do not fit into the memory") {
		t.Errorf("a tensor of %d bytes: error %v", bytes, err)
	}
	if _, err := f.Tensors(); err == nil {
		t.Error("all tensors: no error")
	}
}

func TestNil(t *testing.T) {
	if _, err := safetensors.Read(nil, 100); err == nil {
		t.Error("a nil reader: no error")
	}
	if safetensors.Write(nil, nil, nil) == nil {
		t.Error("a nil writer: no error")
	}
}

// Whatever a file holds, reading it gives an error or tensors that make the same file again.
func FuzzRead(f *testing.F) {
	f.Add(written(f, goldenTensors(), goldenMetadata))
	f.Add(file(`{"a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[],"data_offsets":[4,6]}}`, 6))
	f.Add(file(`{"a":{"dtype":"F32","shape":[0,18446744073709],"data_offsets":[0,0]}}`, 0))
	for _, c := range malformed {
		f.Add(c.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, metadata, err := readAll(data)
		if err != nil {
			return
		}
		again, againMetadata, err := readAll(written(t, list, metadata))
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(metadata, againMetadata) {
			t.Fatalf("metadata was %q, then %q", metadata, againMetadata)
		}
		values := again.Map()
		if len(values) != len(list) {
			t.Fatalf("%d tensors became %d", len(list), len(values))
		}
		for _, want := range list {
			if have := values[want.Name]; have == nil || !same(have, want.Value) {
				t.Fatalf("%q was %v, then %v", want.Name, want.Value, have)
			}
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	list := safetensors.Tensors{{"w", dense(make([]float32, 2_500_000), 2_500_000)}}
	b.SetBytes(10_000_000)
	b.ReportAllocs()
	for b.Loop() {
		if err := safetensors.Write(&failingWriter{math.MaxInt}, list, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTensor(b *testing.B) {
	data := written(b, safetensors.Tensors{{"w", dense(make([]float32, 2_500_000), 2_500_000)}}, nil)
	f, err := safetensors.Read(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(10_000_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Tensor("w"); err != nil {
			b.Fatal(err)
		}
	}
}
