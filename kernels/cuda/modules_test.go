//go:build gpu

package cuda

import (
	"compress/gzip"
	"os"
	"slices"
	"strings"
	"testing"
)

// Every variant has a module of its own name that was compiled from the sources as they are, and there are no others.
func TestEveryVariantIsCompiled(t *testing.T) {
	if _, err := os.Stat("src"); err != nil {
		t.Skip("the sources are not here")
	}
	list, err := compiledModules()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range list {
		if listed[m.Name] {
			t.Errorf("%s is listed twice", m.Name)
		}
		listed[m.Name] = true
		image, err := imageOf(m.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(image, ".visible .entry "+m.Name) && slices.Contains(m.Defines, "KERNEL="+m.Name) {
			t.Errorf("the module %s has no kernel of that name", m.Name)
		}
		file, err := images.Open("ptx/" + m.Name + ".ptx.gz")
		if err != nil {
			t.Fatal(err)
		}
		reader, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		if reader.Comment != m.Digest {
			t.Errorf("%s is not compiled from the sources as they are: run go generate -tags gpu ./kernels/cuda", m.Name)
		}
	}
	files, err := images.ReadDir("ptx")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !listed[strings.TrimSuffix(f.Name(), ".ptx.gz")] {
			t.Errorf("ptx/%s is of no variant", f.Name())
		}
	}
}
