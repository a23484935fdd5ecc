package nn

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// Count is the number of elements of the parameters in all, also of those that other ranks have.
func Count(parameters gorgonia.Nodes) int {
	n := 0
	for _, p := range parameters {
		whole, _ := ops.WholeOf(p)
		n += whole.Shape().TotalSize()
	}
	return n
}

// Summary is a table of parameters: the name, shape, type and number of elements of each, and the
// sum. Of a part it says what it is of.
func Summary(parameters gorgonia.Nodes) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\tshape\tdtype\tcount")
	for _, p := range parameters {
		whole, _ := ops.WholeOf(p)
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\n", p.Name(), times(whole.Shape()), p.Dtype(), thousands(whole.Shape().TotalSize()))
	}
	fmt.Fprintf(w, "total\t\t\t%s\n", thousands(Count(parameters)))
	w.Flush() // to a Builder, which takes everything
	return b.String()
}

// times writes a shape as 768×3072.
func times(shape []int) string {
	axes := make([]string, len(shape))
	for i, d := range shape {
		axes[i] = strconv.Itoa(d)
	}
	return strings.Join(axes, "×")
}

// thousands writes a number with a comma between groups of three digits.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
