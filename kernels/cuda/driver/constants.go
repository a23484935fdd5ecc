//go:build gpu

package driver

import "sync"

// constants are vectors and tables in the device's memory that kernels read, such as slopes, the
// lengths of packed sequences and the places of parameters. They are found by what they say, so
// that a step whose constants are those of the last uploads nothing.
type constants struct {
	sync.Mutex
	owners map[string]*Owner
	order  []string // of their upload, for forgetting the oldest
}

// mostConstants is how many constants a device remembers.
const mostConstants = 64

// vectorOf finds a vector by its contents.
func vectorOf(q Queue, g *GPU, contents string) (*Owner, error) {
	return g.constants.find(q, g, "vector: "+contents, func() []byte { return []byte(contents) })
}

// find finds a constant by its key, and makes it if it is not there.
func (c *constants) find(q Queue, g *GPU, key string, make func() []byte) (*Owner, error) {
	c.Lock()
	defer c.Unlock()
	if o, ok := c.owners[key]; ok {
		q.Keep(o)
		return o, nil
	}
	contents := make()
	b, err := g.Lasting(len(contents))
	if err != nil {
		return nil, err
	}
	o := b.Owned()
	q.Keep(o)
	if err := q.upload(o.At, contents); err != nil {
		return nil, err
	}
	if c.owners == nil {
		c.owners = map[string]*Owner{}
	}
	if len(c.order) == mostConstants {
		delete(c.owners, c.order[0])
		c.order = append(c.order[:0], c.order[1:]...)
	}
	c.owners[key] = o
	c.order = append(c.order, key)
	return o, nil
}
