//go:build gpu

package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

// Every variant compiles with scores and masks of every kind, on a machine without a GPU too.
func TestUserKernelsCompile(t *testing.T) {
	c, err := findCompiler()
	if err != nil {
		t.Skip(err)
	}
	sets := append(ScoreSets(), []Option{RandomRules(1)})
	n := 0
	for _, list := range slices.Concat(forwardVariants(), backwardVariants(), dBiasVariants()) {
		for _, v := range list {
			n++
			some := v.mod && n%6 == 0 || !v.mod && v.element == elementBF16
			if v.d != 64 || v.drops || !v.mod && v.boxCols == 0 || !some && !testing.Verbose() {
				continue
			}
			options := sets[n%len(sets)]
			if !v.mod {
				options = []Option{Documents}
			}
			p := New[float32](Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 70, Sk: 90, D: v.d, Dv: v.d, Options: options, Seed: uint64(n)})
			a := &attention{Attention: &p.Attention, device: &Device{major: 9}}
			if v.boxCols > 0 && strings.Contains(v.name, "backward") && !a.gainsFit() {
				continue
			}
			a.args = a.newArguments()
			a.foldBands()
			hulls := userModule{source: "attention_user_hulls.cu", program: a.program(), arch: "sm_90a", defines: a.userDefines()}
			for _, m := range []userModule{a.moduleOf(v), hulls} {
				if _, err := m.compile(c); err != nil {
					t.Errorf("%s with %v: %v", v.name, options, err)
				}
			}
		}
	}
}

// A kept module is found again, and one that is damaged, or half of one, is not.
func TestImagesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "a.cubin")
	image := []byte(strings.Repeat("kernel\x00", 1000))
	writeImage(path, image)
	if got, ok := readImage(path); !ok || string(got) != string(image) {
		t.Fatalf("what was kept is not found again: %v", ok)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{"cut": file[:len(file)/2], "empty": nil, "changed": append(file[:len(file)-1:len(file)-1], file[len(file)-1]^1)} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := readImage(path); ok {
			t.Errorf("a file that is %s counts", name)
		}
	}
	writeImage(path, image)
	if _, ok := readImage(path); !ok {
		t.Error("a damaged file is not replaced")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "new-*")); len(left) > 0 {
		t.Errorf("files are left behind: %v", left)
	}
	writeImage("", image) // no place for it
}

// Who lacks the compiler is told so as of anything that a device cannot do, and why.
func TestNoCompiler(t *testing.T) {
	reason := errors.New("no such file")
	err := error(NoCompiler{"cuda:0", reason})
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, reason) {
		t.Errorf("%v wraps neither what is unsupported nor the reason", err)
	}
}
