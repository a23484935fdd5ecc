package gguf_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
)

var types = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K}

// A file of llama.cpp's own package is read as it reads it, and written again byte by byte the
// same.
func TestGolden(t *testing.T) {
	var want map[string]struct {
		Type   string
		Shape  []int
		Values []float32
	}
	text, err := os.ReadFile("testdata/golden.json")
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open("testdata/golden.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for key, want := range map[string]any{
		"general.architecture": "llama", "general.name": "small", "llama.block_count": uint32(2), "general.flag": true,
		"general.large": uint64(1<<63 + 5), "general.negative": int8(-7), "general.double": 0.1,
		"tokenizer.ggml.tokens": []string{"<s>", "a", "ä😀"}, "tokenizer.ggml.scores": []float32{0, -1.5, 2.5},
		"tokenizer.ggml.token_type": []int32{3, 1, 1},
	} {
		if have := f.Metadata()[key]; !reflect.DeepEqual(have, want) {
			t.Errorf("%s is %#v, want %#v", key, have, want)
		}
	}
	if n := len(f.Tensors()); n != len(want) {
		t.Errorf("there are %d tensors, want %d", n, len(want))
	}
	var tensors []gguf.Tensor
	for _, info := range f.Tensors() {
		want := want[info.Name]
		have := make([]float32, info.Elements())
		if err := f.Elements(info.Name, 0, have); err != nil {
			t.Fatal(err)
		}
		if info.Type.String() != want.Type || !slices.Equal(info.Shape, want.Shape) || !slices.Equal(have, want.Values) {
			t.Errorf("%s is %v of shape %v, %v", info.Name, info.Type, info.Shape, have)
		}
		tensors = append(tensors, gguf.Tensor{Name: info.Name, Type: info.Type, Shape: info.Shape, Data: func(w io.Writer) error {
			b := make([]byte, info.Type.Bytes(info.Elements()))
			if err := f.Bytes(info.Name, 0, b); err != nil {
				return err
			}
			_, err := w.Write(b)
			return err
		}})
	}
	var out bytes.Buffer
	if err := gguf.Write(&out, f.Metadata(), tensors); err != nil {
		t.Fatal(err)
	}
	again, err := gguf.Read(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil || !reflect.DeepEqual(again.Metadata(), f.Metadata()) {
		t.Fatalf("written, the metadata is %v: %v", again.Metadata(), err)
	}
	for _, info := range f.Tensors() {
		n := info.Type.Bytes(info.Elements())
		a, b := make([]byte, n), make([]byte, n)
		if err := f.Bytes(info.Name, 0, a); err != nil {
			t.Fatal(err)
		}
		if err := again.Bytes(info.Name, 0, b); err != nil || !bytes.Equal(a, b) {
			t.Errorf("written, %s is another: %v", info.Name, err)
		}
	}
}

// The types that are read and not written count as they do in llama.cpp's own package, to the bit.
func TestReadOnlyTypes(t *testing.T) {
	var want map[string][]float32
	text, err := os.ReadFile("testdata/more.json")
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open("testdata/more.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := len(f.Tensors()); n != len(want) || n != 8 {
		t.Errorf("there are %d tensors, want %d", n, len(want))
	}
	for _, info := range f.Tensors() {
		have := make([]float32, info.Elements())
		if err := f.Elements(info.Name, 0, have); err != nil {
			t.Fatal(err)
		}
		if info.Type.String() != info.Name || !slices.Equal(have, want[info.Name]) {
			t.Errorf("%s is read as %v, %v", info.Name, info.Type, have)
		}
		block := info.Type.Block()
		err := info.Type.Encode(make([]byte, info.Type.Bytes(block)), make([]float32, block))
		if err == nil || !strings.Contains(err.Error(), info.Name+" is read and not written") || info.Type.IsWritten() {
			t.Errorf("%s is written: %v", info.Name, err)
		}
	}
}

// What is encoded and decoded is off by no more than a step of its type, and what was decoded is
// encoded without a further loss where the type has one scale a block.
func TestEncode(t *testing.T) {
	// A step, in parts of the largest magnitude of 32 elements.
	steps := map[gguf.Type]float64{gguf.F32: 0, gguf.F16: 0x1p-11, gguf.BF16: 0x1p-8, gguf.Q8_0: 0.6 / 127, gguf.Q4_0: 1.05 / 8, gguf.Q4_K: 0.12, gguf.Q6_K: 0.045}
	r := rand.New(rand.NewPCG(7, 8))
	for _, kind := range types {
		x, b, y := make([]float32, 2048), make([]byte, kind.Bytes(2048)), make([]float32, 2048)
		for i := range x {
			x[i] = float32(r.NormFloat64() * (1 + 0.2*float64(i/256)))
		}
		clear(x[512:768])
		if err := kind.Encode(b, x); err != nil {
			t.Fatal(err)
		}
		if err := kind.Decode(y, b); err != nil {
			t.Fatal(err)
		}
		for from := 0; from < len(x); from += 32 {
			most := 0.0
			for _, v := range x[from:][:32] {
				most = max(most, math.Abs(float64(v)))
			}
			for i := from; i < from+32; i++ {
				if off := math.Abs(float64(x[i] - y[i])); !(off <= steps[kind]*most) {
					t.Fatalf("%v: element %d is %v, decoded %v: off by %.3g of its block's largest", kind, i, x[i], y[i], off/most)
				}
			}
		}
		if kind.Block() > 1 {
			x[3] = float32(math.Inf(1))
			if err := kind.Encode(b, x); err == nil || !strings.Contains(err.Error(), "not finite") {
				t.Errorf("%v: encoding an infinity: %v", kind, err)
			}
		}
	}
	for want, err := range map[string]error{
		"gguf: 33 elements are no whole blocks of Q8_0, which have 32": gguf.Q8_0.Decode(make([]float32, 33), nil),
		"gguf: 256 elements of Q4_K take 144 bytes, there are 3":       gguf.Q4_K.Encode(make([]byte, 3), make([]float32, 256)),
		"gguf: Q8_K is not read or written":                            gguf.Type(15).Decode(nil, nil),
		"gguf: type 99 is not read or written":                         gguf.Type(99).Decode(nil, nil),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// small is a valid file of one tensor.
func small(t testing.TB) []byte {
	var out bytes.Buffer
	err := gguf.Write(&out, map[string]any{"general.architecture": "llama", "a.list": []uint16{1, 2}, "a.texts": []string{"x", ""}}, []gguf.Tensor{
		{Name: "w", Type: gguf.Q8_0, Shape: []int{2, 32}, Data: func(w io.Writer) error { _, err := w.Write(make([]byte, 68)); return err }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A file that is cut short anywhere is an error.
func TestCutShort(t *testing.T) {
	whole := small(t)
	for n := range whole {
		if _, err := gguf.Read(bytes.NewReader(whole[:n]), int64(n)); err == nil {
			t.Errorf("%d of %d bytes are a file", n, len(whole))
		}
	}
	folder := t.TempDir()
	if _, err := gguf.Open(folder); err == nil {
		t.Error("a folder is a file")
	}
	path := filepath.Join(folder, "x.gguf")
	if err := os.WriteFile(path, whole, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, err := range []error{
		f.Elements("v", 0, nil), f.Bytes("w", 1, nil), f.Bytes("w", 32, make([]byte, 35)), f.Bytes("w", -32, make([]byte, 34)), f.Elements("w", 0, make([]float32, 96)),
	} {
		if err == nil {
			t.Error("elements that are not there are read")
		}
	}
}

func TestWriteErrors(t *testing.T) {
	data := func(w io.Writer) error { _, err := w.Write(make([]byte, 4)); return err }
	for want, err := range map[string]error{
		"gguf: metadata a is a int, which the format does not have": gguf.Write(io.Discard, map[string]any{"a": 3}, nil),
		"gguf: metadata general.alignment is 64, it needs to be 32": gguf.Write(io.Discard, map[string]any{"general.alignment": uint32(64)}, nil),
		`gguf: tensor "w" has 4 bytes, it needs 8`:                  gguf.Write(io.Discard, nil, []gguf.Tensor{{Name: "w", Shape: []int{2}, Data: data}}),
		`gguf: tensor "w" of shape [2 33] cannot be written as Q8_0, or is there twice`: gguf.Write(io.Discard, nil,
			[]gguf.Tensor{{Name: "w", Type: gguf.Q8_0, Shape: []int{2, 33}, Data: data}}),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Whatever a file says, reading it ends, takes no more memory than it has bytes of, and does not
// panic.
func FuzzRead(f *testing.F) {
	f.Add(small(f))
	more, err := os.ReadFile("testdata/more.gguf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(more)
	golden, err := os.ReadFile("testdata/golden.gguf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := gguf.Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, info := range file.Tensors() {
			if info.Type.Block() == 0 {
				continue
			}
			if err := file.Elements(info.Name, 0, make([]float32, info.Elements())); err != nil {
				t.Errorf("tensor %q: %v", info.Name, err)
			}
		}
	})
}
