package distributed

import "fmt"

// This file is parts of a group, such as the rows and the columns of a mesh: ranks of a row share
// sequences or weights, while those of a column have the same part of them, and all of the group
// share the batches. A part has operations of its own, over the connections that there
// are already: two ranks of a part come to its operations and to the whole's in the same order, so
// that what one sends is what the other waits for. A part and the whole end together.

// Split returns the part of the group that this rank is in, where a part is size ranks that follow
// each other: ranks 0 to size−1 are the first one, and there they are ranks 0 to size−1 too. Every
// rank calls it. The operations of a part concern its ranks alone; another part may do something
// else meanwhile. When a rank of any part fails the whole ends, and messages name it by its number
// in the whole.
//
// A device is connected to a part by the part's own [Group.Connect]. What a device does with a part
// must not overlap with what it does with the whole: operations that were asked for later, and
// exchanges, are joined before the other group's begin.
func (g *Group) Split(size int) (*Group, error) {
	if err := g.divide("Split", size); err != nil {
		return nil, err
	}
	return g.split("Split", size, 1)
}

// SplitAcross returns the part of the group that has the rank with this one's number in each of the
// parts that Split makes of a size: in ranks of its own, the number of their part. What Split says
// of parts holds for it too.
func (g *Group) SplitAcross(size int) (*Group, error) {
	if err := g.divide("SplitAcross", size); err != nil {
		return nil, err
	}
	return g.split("SplitAcross", g.Size()/size, size)
}

// divide makes sure that the group falls into parts of a size.
func (g *Group) divide(name string, size int) error {
	if err := g.Err(); err != nil {
		return err
	}
	if size < 1 || g.Size()%size != 0 {
		return fmt.Errorf("distributed: %s: size is %d, it needs to divide the number of ranks, %d", name, size, g.Size())
	}
	return nil
}

// split makes a part of so many ranks, each so many after the one before.
func (g *Group) split(name string, size, stride int) (*Group, error) {
	switch {
	case size == g.Size():
		return g, nil
	case g.whole != g:
		return nil, fmt.Errorf("distributed: %s: the group is a part of one of %d ranks, it needs to be that one", name, g.whole.Size())
	case len(g.parts) == maxGroups-1:
		return nil, fmt.Errorf("distributed: %s: the group was split %d times, that is the most", name, len(g.parts))
	}
	if g.config.Lost == LostEnds { // otherwise some may have split already, before a rank was lost
		operation, err := g.begin(name)
		if err != nil {
			return nil, err
		}
		if err := g.agree(operation, fmt.Sprintf("%s into parts of %d ranks by %d", name, size, stride), nil); err != nil {
			return nil, err
		}
	}
	part := &Group{
		config: g.config, rank: g.Rank() / stride % size, size: size, number: uint8(len(g.parts) + 1),
		whole: g, stride: stride, peers: make([]*peer, size),
	}
	part.name.Store(&noOperation)
	g.fill(part)
	g.lock.Lock()
	defer g.lock.Unlock()
	g.parts = append(g.parts, part)
	return part, nil
}

// fill gives a part the connections to its ranks.
func (g *Group) fill(part *Group) {
	part.fate = g.fate
	first := g.Rank() - part.Rank()*part.stride
	for rank := range part.peers {
		if p := g.peers[first+rank*part.stride]; p != nil {
			part.peers[rank] = newPeer(rank, p.link, part.number)
		}
	}
}

// withParts are the group and its parts.
func (g *Group) withParts() []*Group {
	g.lock.Lock()
	defer g.lock.Unlock()
	return append([]*Group{g}, g.parts...)
}
