//go:build gpu

package cuda_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

var margins = flag.Bool("margins", false, "end with how the errors of attention stood to their bounds")

func TestMain(m *testing.M) {
	flag.Parse()
	if cuda.Count() == 0 {
		// An example cannot skip itself.
		if err := flag.Set("test.skip", "^Example"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if *margins {
		attentiontest.ReportMargins(os.Stdout)
	}
	os.Exit(code)
}

// Where there is no device, a program starts, and opening one says why there is none.
func TestOpenWithoutADevice(t *testing.T) {
	if cuda.Count() > 0 {
		t.Skip("this machine has a GPU")
	}
	_, err := cuda.Open(0)
	const says = "cuda: there is no device 0: "
	if err == nil || !strings.HasPrefix(err.Error(), says) || len(err.Error()) < len(says)+10 {
		t.Errorf("the error is %v", err)
	}
}
