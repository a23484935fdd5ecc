package pretrained

import (
	"cmp"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"gorgonia.org/tensor"
)

// link says which parameters of package nn a tensor of a file is. The same list of links serves
// reading and writing.
type link struct {
	theirs string // its name in the file
	shape  []int  // its shape there
	// transposed says that the rows of the file's matrix are outputs: it is (out, in), and the
	// parameter (in, out).
	transposed bool
	linear     bool   // the parts are the weights of an nn.Linear each
	experts    bool   // the part is of one of the matrices of nn.Experts
	embedding  bool   // the part is the weight of an nn.Embedding
	copied     bool   // it is only written: another link reads its parts
	parts      []part // they lie one after the other along the first axis of the file's tensor
}

// part is a parameter, whose outputs are its columns where it is transposed and its rows or
// elements where it is not.
type part struct {
	ours  string
	shape []int // of the parameter
	n     int   // of its outputs
	at    int   // the first of them
	// matrix is the number of that which the outputs are of, where the parameter has several, by
	// its first axis.
	matrix int
}

// columns is the length of a parameter's rows.
func (p *part) columns() int { return p.shape[len(p.shape)-1] }

// first is the first element of the part's matrix.
func (p *part) first() int {
	if len(p.shape) < 3 {
		return 0
	}
	return p.matrix * p.shape[1] * p.shape[2]
}

// isWhole reports whether the tensor is a parameter as it is.
func (l *link) isWhole() bool {
	return !l.transposed && len(l.parts) == 1 && slices.Equal(l.parts[0].shape, l.shape)
}

func (l *link) elements() int { return kernels.Tensor{Shape: l.shape}.Elements() }

// rows is the length of the first axis; a scalar is one row.
func (l *link) rows() int {
	if len(l.shape) == 0 {
		return 1
	}
	return l.shape[0]
}

// same is a tensor that is a parameter, element by element.
func same(theirs, ours string, shape ...int) link {
	return link{theirs: theirs, shape: shape, parts: []part{{ours: ours, shape: shape, n: shape[0]}}}
}

// table is the matrix of an embedding.
func table(theirs, ours string, vocab, dim int) link {
	l := same(theirs, ours, vocab, dim)
	l.embedding = true
	return l
}

// weight is a matrix (out, in) that is a parameter (in, out).
func weight(theirs, ours string, in, out int) link {
	return joined(theirs, in, output{ours: ours, n: out})
}

// conv1D is a matrix (in, out) that is a parameter as it is.
func conv1D(theirs, ours string, in, out int) link {
	l := same(theirs, ours, in, out)
	l.linear = true
	return l
}

// output is n columns or elements of a parameter.
type output struct {
	ours string
	n    int
	at   int // the first of them
	of   int // how many the parameter has; 0 for n
}

// joined is a matrix (out, in) whose rows are the columns of one parameter after another.
func joined(theirs string, in int, outputs ...output) link {
	l := link{theirs: theirs, transposed: true, linear: true}
	rows := 0
	for _, o := range outputs {
		l.parts = append(l.parts, part{ours: o.ours, shape: []int{in, cmp.Or(o.of, o.n)}, n: o.n, at: o.at})
		rows += o.n
	}
	l.shape = []int{rows, in}
	return l
}

// joinedBias is a vector whose elements are those of one parameter after another.
func joinedBias(theirs string, outputs ...output) link {
	l := link{theirs: theirs}
	n := 0
	for _, o := range outputs {
		l.parts = append(l.parts, part{ours: o.ours, shape: []int{cmp.Or(o.of, o.n)}, n: o.n, at: o.at})
		n += o.n
	}
	l.shape = []int{n}
	return l
}

// pack is the tensor of the file. It shares the memory of the parameter where that is the same.
func (l *link) pack(ours map[string]*tensor.Dense) (*tensor.Dense, error) {
	if l.isWhole() {
		return ours[l.parts[0].ours], nil
	}
	theirs := make([]float32, l.elements())
	rest := theirs
	for _, p := range l.parts {
		from, n := ours[p.ours].Float32s(), p.n*l.rowLength()
		if l.transposed {
			to := kernels.Of(rest, p.n, l.rowLength()).Permute(1, 0)
			columns := kernels.Of(from[p.first():], l.rowLength(), p.columns()).Slice(1, p.at, p.at+p.n)
			if err := cpu.New().Copy(to, columns); err != nil {
				return nil, err
			}
		} else {
			copy(rest[:n], from[p.at*l.rowLength():])
		}
		rest = rest[n:]
	}
	return tensor.New(tensor.WithShape(l.shape...), tensor.WithBacking(theirs)), nil
}

// rowLength is how many elements there are behind each index of the first axis.
func (l *link) rowLength() int { return l.elements() / l.rows() }
