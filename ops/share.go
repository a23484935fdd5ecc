package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/ring"
)

// share is a sequence of which this process, one of several ranks, holds a part. A nil share is all
// of one.
type share struct{ kernels.Ranks }

// shareOf is nil for a process alone.
func shareOf(ranks kernels.Ranks) *share {
	if ranks == nil || ranks.Size() <= 1 {
		return nil
	}
	return &share{ranks}
}

// check finds out whether a rank can hold so many rows.
func (s *share) check(name string, rows int) error {
	if s != nil && rows%2 != 0 {
		return fmt.Errorf("%s has %d rows, a rank needs an even number of them: an early and a late part", name, rows)
	}
	return nil
}

// each calls do for rows that follow each other: count rows from at on, the first of which has a
// position in the whole.
func (s *share) each(rows int, do func(at, count, position int) error) error {
	if s == nil {
		return do(0, rows, 0)
	}
	held, err := ring.Held(s.Rank(), s.Size(), rows*s.Size())
	if err != nil {
		return err
	}
	at := 0
	for _, part := range held {
		if err := do(at, part.Count, part.From); err != nil {
			return err
		}
		at += part.Count
	}
	return nil
}

// HeldRows returns the numbers of the rows that this rank holds of a sequence of a length, in the
// order in which it has them: those of an early part and of a late one. A process alone holds all.
// The length needs to be a multiple of twice the number of ranks.
func HeldRows(ranks kernels.Ranks, length int) ([]int, error) {
	s := shareOf(ranks)
	if s != nil && length%(2*s.Size()) != 0 {
		return nil, fmt.Errorf("HeldRows: the length is %d, it needs to be a multiple of 2·%d ranks", length, s.Size())
	}
	rows := length
	if s != nil {
		rows /= s.Size()
	}
	list := make([]int, 0, rows)
	err := s.each(rows, func(_, count, position int) error {
		for i := range count {
			list = append(list, position+i)
		}
		return nil
	})
	return list, err
}
