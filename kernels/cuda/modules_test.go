//go:build gpu

package cuda

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/cuda/ptx"
)

// Every variant has a module of its own name that was compiled from the sources as they are, and
// there are no others. It needs no GPU.
func TestEveryVariantIsCompiled(t *testing.T) {
	if _, err := os.Stat("src"); err != nil {
		t.Skip("the sources are not here")
	}
	list, err := compiledModules()
	if err != nil {
		t.Fatal(err)
	}
	library, err := compiledKernels()
	if err != nil {
		t.Fatal(err)
	}
	compiled := map[string]ptx.Module{}
	for _, name := range library.Families() {
		family, err := library.Family(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range family {
			compiled[m.Name] = m
		}
	}
	for _, m := range list {
		c, ok := compiled[m.Name]
		switch {
		case !ok:
			t.Errorf("%s is listed twice, or it is not compiled", m.Name)
		case !strings.Contains(c.Text, ".visible .entry "+m.Name) && slices.Contains(m.Defines, "KERNEL="+m.Name):
			t.Errorf("the module %s has no kernel of that name", m.Name)
		case c.Digest != m.Digest:
			t.Errorf("%s is not compiled from the sources as they are: run go generate -tags gpu ./kernels/cuda", m.Name)
		case library.HasCubin(m.Name) != m.Cubin:
			t.Errorf("%s has a cubin: %v, it needs to be %v: run go generate -tags gpu ./kernels/cuda with the ptxas that README.md names",
				m.Name, library.HasCubin(m.Name), m.Cubin)
		}
		delete(compiled, m.Name)
	}
	for name := range compiled {
		t.Errorf("the module %s is of no variant", name)
	}
}
