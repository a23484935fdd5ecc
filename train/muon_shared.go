package train

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/distributed"
)

// This file is Muon where ranks share the state. Each has its part of every momentum and of every
// matrix, but a direction needs a whole one. So each rank gets the parts of some matrices, computes
// their directions, and gives the others their parts of those. As much travels as would if each
// rank had collected its matrices and given them out.

// shared is what an optimiser of whole parameters needs to know where ranks share the state.
type shared struct {
	ranks  *distributed.Group
	shapes [][]int // of the whole parameters
}

// sharesWhole is a [WholeOptimizer] that trains shards by an Update's shared.
type sharesWhole interface{ sharesWhole() }

func (m Muon) sharesWhole() {}

// updateShared changes this rank's parts of the matrices.
func (m Muon) updateShared(u Update, decided kernels.Update) error {
	for _, group := range together(u.shared.shapes, u.shared.ranks.Size()) {
		if err := m.updateOfRanks(u, decided, group); err != nil {
			return fmt.Errorf("%s: %w", u.Names[group[0][0]], err)
		}
	}
	return nil
}

func elements(shape []int) int { return kernels.Contiguous(nil, kernels.F32, shape...).Elements() }

// updateOfRanks changes the parts of matrices of one smaller side, of which each list has one
// shape. Ranks take turns in who computes the direction of a whole matrix.
func (m Muon) updateOfRanks(u Update, decided kernels.Update, lists [][]int) error {
	rank, size := u.shared.ranks.Rank(), u.shared.ranks.Size()
	all := slices.Concat(lists...)
	dtype := u.Weights[all[0]].DType
	partShapes := make([][]int, len(all))
	for k, i := range all {
		partShapes[k] = append([]int{1}, u.Weights[i].Shape...)
	}
	held, err := u.stacks(scratchParts, dtype, partShapes)
	if err != nil {
		return err
	}
	parts := held.matrices()
	if err := m.move(u, all, parts, kernels.Tensor{}); err != nil {
		return err
	}
	var shapes [][]int // of the stacks of this rank
	first := 0
	for _, list := range lists {
		if n := turns(first, first+len(list), rank, size); n > 0 {
			shapes = append(shapes, append([]int{n}, u.shared.shapes[list[0]]...))
		}
		first += len(list)
	}
	wholes, err := u.stacks(scratchMatrix, dtype, shapes)
	if err != nil {
		return err
	}
	matrices := wholes.matrices()
	if err := u.shared.trade(u.Backend, parts, matrices, true); err != nil {
		return err
	}
	directions, err := m.orthogonalOf(u, wholes)
	if err != nil {
		return err
	}
	given, err := u.stacks(scratchParts+1, u.productType(dtype), partShapes)
	if err != nil {
		return err
	}
	parts = given.matrices()
	if err := u.shared.trade(u.Backend, parts, directions, false); err != nil {
		return err
	}
	first = 0
	for _, list := range lists {
		if err := m.step(u, decided, list, parts[first:][:len(list)], u.shared.shapes[list[0]]); err != nil {
			return err
		}
		first += len(list)
	}
	return nil
}

// orthogonalOf is orthogonal of matrices that were moved elsewhere, if there are any.
func (m Muon) orthogonalOf(u Update, y stacks) ([]kernels.Tensor, error) {
	matrices := y.matrices()
	if len(matrices) == 0 {
		return nil, nil
	}
	squares, err := u.squaresOf(len(matrices))
	if err != nil {
		return nil, err
	}
	if err := u.Backend.SumSquares(matrices, squares); err != nil {
		return nil, err
	}
	directions, err := m.orthogonal(u, y, squares)
	return directions.matrices(), err
}

// turns is how many numbers from one to another, which is not among them, are a rank's turns.
func turns(from, to, rank, size int) int {
	before := func(n int) int { return (n + size - 1 - rank) / size }
	return before(to) - before(from)
}

// trade brings the parts of matrices together at the ranks whose turns they are, or gives them out
// from there. Parts are this rank's of all matrices, and wholes the matrices of its turns.
func (s *shared) trade(backend kernels.Backend, parts, wholes []kernels.Tensor, together bool) error {
	rank, size := s.ranks.Rank(), s.ranks.Size()
	of := func(other int) (list []kernels.Tensor) { // the parts of this rank's matrices that another one has
		for _, whole := range wholes {
			if at, end := s.ranks.Part(other, whole.Elements()); at < end {
				list = append(list, whole.Reshape(whole.Elements()).Slice(0, at, end))
			}
		}
		return list
	}
	own := func(other int) (list []kernels.Tensor) { // this rank's parts of another one's matrices
		for k := other; k < len(parts); k += size {
			if parts[k].Elements() > 0 {
				list = append(list, parts[k])
			}
		}
		return list
	}
	there, here := of(rank), own(rank)
	for k := range there {
		to, from := there[k], here[k]
		if !together {
			to, from = from, to
		}
		if err := backend.Copy(to, from); err != nil {
			return err
		}
	}
	for hop := 1; hop < size; hop++ {
		to, from := (rank+hop)%size, (rank+size-hop)%size
		send, receive := own(to), of(from)
		if !together {
			send, receive = of(to), own(from)
		}
		transfer, err := s.ranks.Exchange(to, send, from, receive)
		if err == nil {
			err = transfer.Join()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
