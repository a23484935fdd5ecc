package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
)

// tableSums are the gradients of the tables that a score looks up. Each task sums in memory of its
// own worker, in float64, and adds that to the whole when its turn comes, in the order of the
// tasks: sums are the same for any number of threads.
type tableSums struct {
	sums  []*tableSum // of each table, nil where it has none
	turns *ticketOrder
}

// tableSum is a sum for each element of a table, and which pages of it were added to.
type tableSum struct {
	data    []float64
	touched []bool
}

const tablePage = 64

func newTableSum(n int) *tableSum {
	return &tableSum{data: make([]float64, n), touched: make([]bool, ceilDiv(n, tablePage))}
}

func (t *tableSum) add(at int, x float64) {
	t.data[at] += x
	t.touched[at/tablePage] = true
}

// newTableSums makes room for the gradients that are wanted, nil if there are none.
func newTableSums[T kernels.Float](k *backward[T]) *tableSums {
	if k.rules == nil || k.rules.gradients == nil {
		return nil
	}
	t := &tableSums{sums: make([]*tableSum, len(k.Tables)), turns: newTicketOrder(1)}
	wanted := false
	for _, g := range k.rules.gradients {
		if len(k.g.DTables) > 0 && k.g.DTables[g.Table].IsSet() && t.sums[g.Table] == nil {
			t.sums[g.Table], wanted = newTableSum(k.Tables[g.Table].Elements()), true
		}
	}
	if !wanted {
		return nil
	}
	return t
}

// private is a worker's own memory.
func (t *tableSums) private() []*tableSum {
	own := make([]*tableSum, len(t.sums))
	for n, sum := range t.sums {
		if sum != nil {
			own[n] = newTableSum(len(sum.data))
		}
	}
	return own
}

// add adds what a task has summed, after all tasks of lower numbers, and clears it.
func (t *tableSums) add(task int, own []*tableSum) {
	t.turns.wait(0, task)
	for n, sum := range t.sums {
		if sum == nil {
			continue
		}
		for page, touched := range own[n].touched {
			if !touched {
				continue
			}
			from := page * tablePage
			part := own[n].data[from:min(from+tablePage, len(sum.data))]
			for i, x := range part {
				sum.data[from+i] += x
			}
			clear(part)
			own[n].touched[page] = false
		}
	}
	t.turns.pass(0)
}

// writeTables stores the gradients of tables that are wanted: 0 for one that the score does not
// look up.
func writeTables[T kernels.Float](k *backward[T]) {
	for n, d := range k.g.DTables {
		out := kernels.Host[T](d)
		for i := range out {
			if out[i] = 0; k.tables != nil && k.tables.sums[n] != nil {
				out[i] = T(k.tables.sums[n].data[i])
			}
		}
	}
}

// scatter adds the elements of a strip to the elements of a table that a lookup finds for them.
func (w *pointScratch[T]) scatter(a *address, s part[T], x simd.Points[T], to *tableSum, values []score.Values[T]) {
	lines := &s.lines.offsets[a.number]
	rows, columns, diagonals := lines[score.Rows], lines[score.Columns], lines[score.Diagonals]
	start := 0
	if o := lines[score.Nowhere]; o != nil {
		start = o[0]
	}
	switch {
	case a.evaluated == nil && columns == nil && diagonals == nil:
		for r := range s.n {
			sum, at := 0.0, start
			for _, x := range w.row(x, r, s.columns) {
				sum += float64(x)
			}
			if rows != nil {
				at += rows[s.i+r]
			}
			to.add(at, sum)
		}
	case a.evaluated == nil && rows == nil && diagonals == nil:
		sums := w.lineSums[:s.columns]
		clear(sums)
		for r := range s.n {
			simd.AddTile(1, s.columns, &sums[0], 0, &w.row(x, r, s.columns)[0], 0)
		}
		for c, sum := range sums {
			to.add(start+columns[s.j+c], float64(sum))
		}
	case a.evaluated == nil && rows == nil && columns == nil:
		// The strip's last row has its lowest diagonal.
		sums := w.lineSums[:s.columns+s.n-1]
		clear(sums)
		for r := range s.n {
			simd.AddTile(1, s.columns, &sums[s.n-1-r], 0, &w.row(x, r, s.columns)[0], 0)
		}
		first := s.diagonal(s.n - 1)
		for d, sum := range sums {
			to.add(start+diagonals[first+d], float64(sum))
		}
	default:
		for r := range s.n {
			row := w.row(x, r, s.columns)
			for c, at := range w.find(a, s, r, 1, values) {
				to.add(at, float64(row[c]))
			}
		}
	}
}
