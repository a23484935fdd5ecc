//go:build gpu

package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

// Every variant compiles with scores and masks of every kind, and with places, on a machine without
// a GPU too.
func TestUserKernelsCompile(t *testing.T) {
	c, err := driver.FindCompiler()
	if err != nil {
		t.Skip(err)
	}
	sets := append(ScoreSets(), []Option{RandomRules(1)})
	n := 0
	for _, list := range slices.Concat(forwardVariants(), backwardVariants(), dBiasVariants()) {
		for _, v := range list {
			n++
			some := v.mod && n%6 == 0 || !v.mod && v.element == elementBF16
			if v.d != 64 || v.drops || v.unbiased || v.slopes || v.bias || !v.mod && v.boxCols == 0 || !some && !testing.Verbose() {
				continue
			}
			options := sets[n%len(sets)]
			switch {
			case !v.mod:
				options = []Option{Documents}
			case v.element == elementF16:
				options = []Option{Dropout, ALiBi, SoftCap, PlacedAt(5, 11)}
			}
			p := New[float32](Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 70, Sk: 90, D: v.d, Dv: v.d, Options: options, Seed: uint64(n)})
			a := &attention{Attention: &p.Attention, device: &Device{hardware: &hardware{GPU: &driver.GPU{Properties: driver.Properties{Major: 9}}}}}
			if v.boxCols > 0 && strings.Contains(v.name, "backward") && !a.gainsFit() {
				continue
			}
			a.args = a.newArguments()
			if a.foldBands(); !a.user { // a kernel of ours does
				continue
			}
			a.ahead = strings.Contains(v.name, "forward")
			with, _ := a.withLists(v)
			modules := []userModule{a.moduleOf(with)}
			if writesScore(a.Attention) {
				modules = append(modules, a.listsModule())
			}
			if a.ahead && n%2 == 0 {
				modules = append(modules, a.confineModule(confineVariants()[n/2%3]))
			}
			for _, m := range modules {
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

// The compiler is opened again where its file or what says where to look for it has changed, and
// otherwise not.
func TestCompilerVersionIsKept(t *testing.T) {
	folder := t.TempDir()
	library := filepath.Join(folder, "library")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opened := 0
	version := func(search string) string {
		got, err := versionKept(folder, search, func() (*driver.Compiler, error) {
			opened++
			return &driver.Compiler{Version: strings.Repeat("1", opened), Path: library}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	write(library, "first")
	for n, c := range []struct {
		search, want string
		before       func()
	}{
		{"here", "1", func() {}}, {"here", "1", func() {}}, {"there", "11", func() {}}, {"there", "11", func() {}},
		{"there", "111", func() { write(library, "the second") }}, {"there", "111", func() {}},
		{"there", "1111", func() { write(filepath.Join(folder, "compiler"), "damaged") }}, {"there", "1111", func() {}},
		{"there", "11111", func() { os.Remove(library) }}, {"there", "111111", func() {}},
	} {
		c.before()
		if got := version(c.search); got != c.want {
			t.Errorf("at %d the version is %q, it needs to be %q", n, got, c.want)
		}
	}
	missing := errors.New("no such file")
	if _, err := versionKept(t.TempDir(), "", func() (*driver.Compiler, error) { return nil, missing }); !errors.Is(err, missing) {
		t.Errorf("without a compiler the error is %v", err)
	}
}

// Who lacks the compiler is told so as of anything that a device cannot do, and why.
func TestNoCompiler(t *testing.T) {
	reason := errors.New("no such file")
	err := error(NoCompiler{"cuda:0", reason})
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, reason) {
		t.Errorf("%v wraps neither what is unsupported nor the reason", err)
	}
}
