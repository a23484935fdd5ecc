package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/distributed"
)

// This file is Muon where ranks share the state. Each has its part of every momentum and of every
// matrix, but a direction needs a whole one. So each rank gets the parts of one matrix in as many
// as there are ranks, computes its direction, and gives the others their parts of it. As much
// travels as would if each rank had collected one matrix and given one out.

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
	order := make([]int, len(u.Weights))
	for i := range order {
		order[i] = i
	}
	// Ranks that compute at once have matrices of one size, as far as there are such.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(elements(u.shared.shapes[b]), elements(u.shared.shapes[a])) })
	for matrices := range slices.Chunk(order, u.shared.ranks.Size()) {
		if err := m.updateOfRanks(u, decided, matrices); err != nil {
			return fmt.Errorf("%s: %w", u.Names[matrices[0]], err)
		}
	}
	return nil
}

func elements(shape []int) int { return kernels.Contiguous(nil, kernels.F32, shape...).Elements() }

// updateOfRanks changes the parts of one matrix for each rank, or of fewer.
func (m Muon) updateOfRanks(u Update, decided kernels.Update, matrices []int) error {
	parts := make([]kernels.Tensor, len(matrices))
	for k, i := range matrices {
		var err error
		if parts[k], err = u.Scratch(scratchParts+k, u.Weights[i].DType, u.Weights[i].Shape...); err != nil {
			return err
		}
	}
	if err := firstError(u.Backend.Zero(parts), m.move(u, matrices, parts)); err != nil {
		return err
	}
	var whole kernels.Tensor
	if rank := u.shared.ranks.Rank(); rank < len(matrices) {
		var err error
		if whole, err = u.Scratch(scratchMatrix, parts[rank].DType, u.shared.shapes[matrices[rank]]...); err != nil {
			return err
		}
	}
	if err := u.shared.trade(u.Backend, parts, whole, true); err != nil {
		return err
	}
	if whole.IsSet() {
		stack := whole.Reshape(append([]int{1}, whole.Shape...)...)
		if err := m.orthogonal(u, stacks{all: whole.Reshape(whole.Elements()), list: []kernels.Tensor{stack}}); err != nil {
			return err
		}
	}
	if err := u.shared.trade(u.Backend, parts, whole, false); err != nil {
		return err
	}
	for k, i := range matrices {
		if err := m.step(u, decided, matrices[k:k+1], parts[k:k+1], u.shared.shapes[i]); err != nil {
			return err
		}
	}
	return nil
}

// trade brings the parts of a matrix together at its rank, or gives them out from there. Whole is
// the matrix of this rank, the zero Tensor for none; parts are this rank's of everyone's matrix.
func (s *shared) trade(backend kernels.Backend, parts []kernels.Tensor, whole kernels.Tensor, together bool) error {
	rank, size := s.ranks.Rank(), s.ranks.Size()
	of := func(other int) []kernels.Tensor { // the part of this rank's matrix that another one has
		if !whole.IsSet() {
			return nil
		}
		at, end := s.ranks.Part(other, whole.Elements())
		if at == end {
			return nil
		}
		return []kernels.Tensor{whole.Reshape(whole.Elements()).Slice(0, at, end)}
	}
	own := func(other int) []kernels.Tensor { // this rank's part of another one's matrix
		if other >= len(parts) || parts[other].Elements() == 0 {
			return nil
		}
		return parts[other : other+1]
	}
	if there, here := of(rank), own(rank); there != nil && here != nil {
		if !together {
			there, here = here, there
		}
		if err := backend.Copy(there[0], here[0]); err != nil {
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
