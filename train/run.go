package train

import (
	"context"
	"errors"
)

// Run makes a [Loop], runs it to its end, and closes it: all that a program needs that does not
// resume.
func Run(ctx context.Context, c LoopConfig) (End, error) {
	loop, err := NewLoop(c)
	if err != nil {
		return End{Err: err}, err
	}
	end, err := loop.Run(ctx)
	return end, errors.Join(err, loop.Close())
}
