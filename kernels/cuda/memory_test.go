//go:build gpu

package cuda

import (
	"runtime"
	"testing"
	"time"
)

// An address has an owner where it lies in the memory of a tensor that is alive, at its start and inside.
func TestOwnerAt(t *testing.T) {
	a := &allocator{device: &Device{hardware: &hardware{}}}
	const size = 1024
	var owners []*owner
	for _, at := range []address{5, 2, 9, 3, 7} { // 4, 6 and 8 are nobody's
		owners = append(owners, (&block{allocator: a, at: at * size, bytes: size}).owned())
	}
	check := func(alive []*owner) {
		t.Helper()
		for at := address(0); at < 12*size; at += 16 {
			var want *owner
			for _, o := range alive {
				if o.at <= at && at < o.at+size {
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

func (a *allocator) cachedBytes() int {
	a.Lock()
	defer a.Unlock()
	return a.stats.Cached
}
