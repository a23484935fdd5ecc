//go:build gpu

package driver

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// An address has an owner where it lies in the memory of a tensor that is alive, at its start and
// inside.
func TestOwnerAt(t *testing.T) {
	a := &allocator{gpu: &GPU{}}
	const size = 1024
	var owners []*Owner
	for _, at := range []Address{5, 2, 9, 3, 7} { // 4, 6 and 8 are nobody's
		owners = append(owners, (&Block{allocator: a, At: at * size, Bytes: size}).Owned())
	}
	check := func(alive []*Owner) {
		t.Helper()
		for at := Address(0); at < 12*size; at += 16 {
			var want *Owner
			for _, o := range alive {
				if o.At <= at && at < o.At+size {
					want = o
				}
			}
			if got := a.ownerAt(at); got != want {
				t.Fatalf("address %d has the owner %v, it needs to be %v", at, got, want)
			}
		}
	}
	check(owners)
	owners[0], owners[2] = owners[4], owners[3]
	owners = owners[:4]
	for n := 0; n < 100 && a.cachedBytes() < 2*size; n++ {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if freed := a.cachedBytes(); freed != 2*size {
		t.Fatalf("%d bytes were freed, it needs to be %d", freed, 2*size)
	}
	check(owners)
}

// Blocks are as large as what lies in them, and a large tensor's at most a 128th larger.
func TestSizesOfBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		bytes := 1 + r.IntN(1<<(1+r.IntN(34)))
		for _, c := range []struct{ size, most int }{{sizeClass(bytes), bytes/8 + 512}, {tensorClass(bytes), max(bytes, slabBytes)/128 + 512}} {
			if over := c.size - bytes; over < 0 || c.size%512 != 0 || over > c.most && bytes > slabBytes {
				t.Fatalf("%d bytes have a block of %d", bytes, c.size)
			}
		}
	}
}

func (a *allocator) cachedBytes() int {
	a.Lock()
	defer a.Unlock()
	return a.stats.Cached
}
