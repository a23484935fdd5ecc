package ptx

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// texts have all that kernels have, and what only looks like it.
var texts = []string{
	"",
	"\n",
	"7",
	"add.s32 \t%r1289, %r1274, 98304;\n",
	"$L__BB0_293:\n@%p522 bra \t$L__BB12_311;\n",
	".reg .f32 \t%f<14705>;\nmov.u32 \t%r1, %tid.x;\n",
	"%f5591, %f5590, %f5495, %f5494,%f5687\n%f0 %f96 %f95\n",                     // distances about far
	"%r0 %r00 %r01 %r16777215 %r16777216 %r99999999999999999999999 %r%r5 %r 5\n", // numbers that are none
	"$L__BB_5 $L__BB0_ $L__BBx_5 $L__BB0_1_2 $L__BB99999999999_5 L__BB0_5 %r5_6\n",
	"fma.rn.f64 %fd8, %fd7, %fd6, 0d3FF0000000000000;\nselp.b16 %rs1, %rs2, %rs3, %p1;\nld.u64 %rd99, [%rd1+64];\n",
}

// A text comes back as it was.
func TestNumbersComeBack(t *testing.T) {
	for _, text := range texts {
		packed, err := withoutNumbers([]byte("before"), text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		packed, isBehind := bytes.CutPrefix(packed, []byte("before"))
		if got, err := withNumbers(packed); got != text || err != nil || !isBehind {
			t.Errorf("%q comes back as %q, with the error %v", text, got, err)
		}
	}
}

// Numbers count from the first one of the last line that begins with their kind.
func TestPackedForm(t *testing.T) {
	packed, err := withoutNumbers(nil, "mov.u32 %r5100, %tid.x;\nadd.s32 %r5101, %r5100, %r5003;\n@%p1 bra $L__BB1_293;\n")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := partsOf(packed)
	if err != nil {
		t.Fatal(err)
	}
	want := [1 + kinds][]byte{
		0:          []byte("mov.u32 \x82, %tid.x;\nadd.s32 \x82, \x82, \x82;\n@\x80 bra $L__BB1_\x86;\n"),
		1:          {far + 1},
		3:          {itself | 5100%64, 5100 / 64, far + 1, far - 1, itself | 5003%64, 5003 / 64},
		labels + 1: {itself | 293%64, 293 / 64},
	}
	for i, part := range parts {
		if !bytes.Equal(part, want[i]) {
			t.Errorf("part %d is %q, it needs to be %q", i, part, want[i])
		}
	}
}

func TestNotASCII(t *testing.T) {
	if _, _, err := Pack([]Module{{Name: "rope", Text: "// é\n"}}); err == nil || !strings.Contains(err.Error(), "rope") {
		t.Errorf("the error is %v, it needs to name rope", err)
	}
}

// Damage is an error or another text, and no panic.
func FuzzNumbers(f *testing.F) {
	for _, text := range texts {
		packed, err := withoutNumbers(nil, text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(text), packed)
		f.Add([]byte(text), packed[:len(packed)/2])
		f.Add([]byte(text), append(slices.Clone(packed), 0))
	}
	f.Add([]byte("%r1"), []byte{2, 1, 0, 0, 0, 0, 0, 0, 'a', numbered + byte(kinds), far})
	f.Fuzz(func(t *testing.T, text, packed []byte) {
		withNumbers(packed)
		again, err := withoutNumbers(nil, string(text))
		if err != nil {
			return
		}
		if got, err := withNumbers(again); got != string(text) || err != nil {
			t.Errorf("%q comes back as %q, with the error %v", text, got, err)
		}
	})
}
