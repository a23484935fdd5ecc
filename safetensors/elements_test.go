package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
)

// Any part of a tensor is the part of what the file has, in the machine's order of bytes.
func TestElements(t *testing.T) {
	golden, err := safetensors.Open("testdata/python.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	want := []uint16{0x3F80, 0xC020, 0x7F62, 1, 0x7F80, 0xFFFF} // of bf16
	for from := range want {
		var part []byte
		for _, bits := range want[from:] {
			part = binary.NativeEndian.AppendUint16(part, bits)
		}
		have := make([]byte, len(part))
		if err := golden.Elements("bf16", from, have); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, part) {
			t.Errorf("bf16 from %d on is %x, want %x", from, have, part)
		}
	}
	for want, read := range map[string]func() error{
		`has no tensor "none"`: func() error { return golden.Elements("none", 0, nil) },
		`tensor "bf16" has 6 elements, 4 are asked for from number 3 on`:  func() error { return golden.Elements("bf16", 3, make([]byte, 8)) },
		`tensor "bf16" has 6 elements, 0 are asked for from number -1 on`: func() error { return golden.Elements("bf16", -1, nil) },
		`tensor "f32" has elements of 4 bytes, 6 bytes are asked for`:     func() error { return golden.Elements("f32", 0, make([]byte, 6)) },
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
