package attentiontest

import (
	"fmt"
	"io"
	"slices"
	"sync"
)

// margin is how one tensor stood to its bound.
type margin struct {
	name           string
	worst          float64
	unfused, bound float64 // the bound, and what of it the unfused program's error makes
}

// margins are those of all tensors below float64 that this process has checked.
var margins struct {
	sync.Mutex
	list []margin
}

func (m margin) record() {
	margins.Lock()
	margins.list = append(margins.list, m)
	margins.Unlock()
}

// ReportMargins writes how the tensors that were checked so far stood to their bounds: in how many
// half of it or more was the unfused program's error, and which share of the bound their errors
// reached. Tensors without any error count apart.
func ReportMargins(w io.Writer) {
	margins.Lock()
	defer margins.Unlock()
	for _, name := range []string{"all", "o", "lse", "delta", "dq", "dk", "dv", "dbias", "dsinks"} {
		var shares []float64
		exact, decided := 0, 0
		for _, m := range margins.list {
			switch {
			case name != "all" && m.name != name:
				continue
			case m.worst == 0:
				exact++
				continue
			case 2*m.unfused >= m.bound:
				decided++
			}
			shares = append(shares, m.worst/m.bound)
		}
		if len(shares) == 0 {
			continue
		}
		slices.Sort(shares)
		quantile := func(q float64) float64 { return shares[int(q*float64(len(shares)-1))] }
		fmt.Fprintf(w, "%-6s %6d tensors, %5d exact; unfused errors decide %5.1f%% of the others; share of the bound: median %.2f, 90%% %.2f, 99%% %.2f, largest %.2f\n",
			name, exact+len(shares), exact, 100*float64(decided)/float64(len(shares)), quantile(0.5), quantile(0.9), quantile(0.99), quantile(1))
	}
}
