package nn

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Count is the number of elements of the parameters in all, also of those that other ranks have.
func Count(parameters gorgonia.Nodes) int {
	n := 0
	for _, p := range parameters {
		n += tensor.Shape(shapeOf(p)).TotalSize()
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
		shape := shapeOf(p)
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\n", p.Name(), times(shape), p.Dtype(), thousands(tensor.Shape(shape).TotalSize()))
	}
	fmt.Fprintf(w, "total\t\t\t%s\n", thousands(Count(parameters)))
	w.Flush() // to a Builder, which takes everything
	return b.String()
}

// shapeOf is the shape of a parameter, of what it is a part of, or of the matrix that is packed.
func shapeOf(p *gorgonia.Node) []int {
	whole, _ := ops.WholeOf(p)
	return ops.UnpackedShape(whole.Dtype(), whole.Shape())
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
