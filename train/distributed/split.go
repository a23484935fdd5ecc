package distributed

import "fmt"

// This file is parts of a group, such as the rows of a mesh: ranks that share sequences, while all
// of the group share the batches. A part has operations of its own, over the connections that there
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
	if err := g.Err(); err != nil {
		return nil, err
	}
	switch {
	case size < 1 || g.Size()%size != 0:
		return nil, fmt.Errorf("distributed: Split: size is %d, it needs to divide the number of ranks, %d", size, g.Size())
	case size == g.Size():
		return g, nil
	case g.whole != g:
		return nil, fmt.Errorf("distributed: Split: the group is a part of one of %d ranks, it needs to be that one", g.whole.Size())
	case len(g.parts) == maxGroups-1:
		return nil, fmt.Errorf("distributed: Split: the group was split %d times, that is the most", len(g.parts))
	}
	if g.config.Lost == LostEnds { // otherwise some may have split already, before a rank was lost
		operation, err := g.begin("Split")
		if err != nil {
			return nil, err
		}
		if err := g.agree(operation, fmt.Sprint("Split into parts of ", size), nil); err != nil {
			return nil, err
		}
	}
	part := &Group{config: g.config, rank: g.Rank() % size, size: size, number: uint8(len(g.parts) + 1), whole: g, peers: make([]*peer, size)}
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
	first := g.Rank() - part.Rank()
	for rank, p := range g.peers[first : first+part.Size()] {
		if p != nil {
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
