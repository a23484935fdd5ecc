package ring

import "github.com/stheno-ml/stheno/kernels"

// This file is what travels: keys and values there, their gradients back.

// keys brings the keys and values of other ranks, one step ahead.
type keys struct {
	*runner
	steps    []int // those that have not arrived
	transfer kernels.Transfer
	arrives  [2]kernels.Tensor    // those of the step under way
	room     [2][2]kernels.Tensor // memory for what arrives, used in turns
	copies   [2][2]kernels.Tensor // memory for what is sent and does not lie together, used in turns
	turn     int
}

// newKeys lets the first keys come.
func (r *runner) newKeys() (*keys, error) {
	c := &keys{runner: r, steps: r.problem.steps()}
	return c, c.start()
}

func (c *keys) more() bool { return len(c.steps) > 0 }

// seen is the rows that this rank sends and receives in a step.
func (r *runner) seen(step int) (send, receive Rows) {
	return keysOf(r.blocks(r.rank(step), r.rank(0))), keysOf(r.blocks(r.rank(0), r.rank(-step)))
}

// start begins the exchange of the next step. What it receives takes the place of what came two
// steps before, which is no longer read.
func (c *keys) start() error {
	if !c.more() {
		return nil
	}
	send, receive := c.seen(c.steps[0])
	var sent, received []kernels.Tensor
	for i, t := range [2]kernels.Tensor{c.K, c.V} {
		if send.Count > 0 {
			together, err := c.together(rowsOf(t, send), &c.copies[c.turn][i])
			if err != nil {
				return err
			}
			sent = append(sent, together)
		}
		c.arrives[i] = kernels.Tensor{}
		if receive.Count > 0 {
			shape := []int{t.Shape[0], receive.Count, t.Shape[1], t.Shape[3]}
			memory, err := c.reuse(&c.room[c.turn][i], t.DType, shape...)
			if err != nil {
				return err
			}
			received = append(received, memory)
			c.arrives[i] = memory.Permute(0, 2, 1, 3)
		}
	}
	c.turn = 1 - c.turn
	var err error
	c.transfer, err = c.ranks.Exchange(c.rank(c.steps[0]), sent, c.rank(-c.steps[0]), received)
	return err
}

// together is rows as a row-major tensor of (batch, length, heads, size): themselves, or a copy.
func (c *keys) together(t kernels.Tensor, memory *kernels.Tensor) (kernels.Tensor, error) {
	t = t.Permute(0, 2, 1, 3)
	if t.IsRowMajor() {
		return t, nil
	}
	dense, err := c.reuse(memory, t.DType, t.Shape...)
	if err != nil {
		return t, err
	}
	return dense, c.Copy(dense, t)
}

// reuse gives a tensor in memory that is taken once, for all rows of a rank.
func (r *runner) reuse(memory *kernels.Tensor, dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	if !memory.IsSet() {
		most := kernels.Contiguous(nil, dtype, shape[0], r.rows, shape[2], shape[3]).Elements()
		var err error
		if *memory, err = r.scratch(dtype, most); err != nil {
			return *memory, err
		}
	}
	return shaped(*memory, shape...), nil
}

// arrived gives what this rank's rows see of the keys that have come, numbered as they lie there,
// and lets those after them come.
func (c *keys) arrived() (list []block, k, v kernels.Tensor, err error) {
	_, receive := c.seen(c.steps[0])
	list = c.blocks(c.rank(0), c.rank(-c.steps[0]))
	for i := range list {
		list[i].k.From -= receive.From
	}
	k, v = c.arrives[0], c.arrives[1]
	if err := c.transfer.Join(); err != nil {
		return nil, k, v, err
	}
	c.steps = c.steps[1:]
	return list, k, v, c.start()
}

// gradients brings the gradients of keys and values to the ranks that these are from.
type gradients struct {
	*runner
	sums [3]kernels.Tensor // of this rank's queries, keys and values

	rooms    [2][2]kernels.Tensor // memory for what is sent, used in turns
	room     [2]kernels.Tensor    // memory for what arrives
	turn     int
	sent     []kernels.Tensor
	transfer kernels.Transfer // nil before the first
	arrives  []kernels.Tensor
	to       Rows // where they belong
}

// next gives zeros for the gradients of the keys and values that arrived in a step.
func (g *gradients) next(step int) (d [2]kernels.Tensor, err error) {
	_, rows := g.seen(step)
	g.sent = nil
	for i, t := range [2]kernels.Tensor{g.K, g.V} {
		if rows.Count == 0 {
			continue
		}
		sum, err := g.reuse(&g.rooms[g.turn][i], g.wide, t.Shape[0], rows.Count, t.Shape[1], t.Shape[3])
		if err == nil {
			err = g.Fill(sum, 0)
		}
		if err != nil {
			return d, err
		}
		g.sent, d[i] = append(g.sent, sum), sum.Permute(0, 2, 1, 3)
	}
	g.turn = 1 - g.turn
	return d, nil
}

// start sends the gradients of a step, which are complete, when those of the step before have come.
func (g *gradients) start(step int) (err error) {
	if err := g.join(); err != nil {
		return err
	}
	g.to, _ = g.seen(step)
	g.arrives = nil
	for i, t := range [2]kernels.Tensor{g.K, g.V} {
		if g.to.Count == 0 {
			continue
		}
		sum, err := g.reuse(&g.room[i], g.wide, t.Shape[0], g.to.Count, t.Shape[1], t.Shape[3])
		if err != nil {
			return err
		}
		g.arrives = append(g.arrives, sum)
	}
	g.transfer, err = g.ranks.Exchange(g.rank(-step), g.sent, g.rank(step), g.arrives)
	return err
}

// join adds what has come to this rank's gradients.
func (g *gradients) join() error {
	if g.transfer == nil {
		return nil
	}
	if err := g.transfer.Join(); err != nil {
		return err
	}
	for i, d := range g.arrives {
		sum := rowsOf(g.sums[1+i], g.to)
		if err := g.Add(sum, d.Permute(0, 2, 1, 3), sum); err != nil {
			return err
		}
	}
	return nil
}
