//go:build gpu

package cuda

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// rowsCall is a product of one row of 2,048 by as many columns.
func rowsCall(d *Device, x, weight, c, residual address, normed bool) *chained {
	g := &rowsArguments{count: 1, residual: residual.Readable()}
	if normed {
		g.normed = 1
	}
	g.m = matmulArguments{rows: 1, columns: 2048, depth: 2048, cElement: elementBF16}
	g.m.c.data = c.Writable()
	g.weights[0].columns = 2048
	return &chained{device: d, product: &fewRows{matmulRows: matmulRows{element: elementBF16, bRows: true}, arguments: g,
		a: view{data: x, firsts: 1, seconds: 2048, first: 2048, second: 1, element: elementBF16},
		b: []view{{data: weight, firsts: 2048, seconds: 2048, first: 1, second: 2048, element: elementBF16}}}}
}

// deviceOf has no more than what calls are made links by.
func deviceOf(multiprocessors int) *Device {
	return &Device{hardware: &hardware{GPU: &driver.GPU{Properties: driver.Properties{Multiprocessors: multiprocessors}}}}
}

// A call joins a chain where no order but that of words matters, and a tensor gets its numbers from
// the last link that writes there.
func TestCallsJoinChains(t *testing.T) {
	const row = 2 * 2048
	d := deviceOf(132)
	type call struct{ x, weight, c, residual address }
	for name, c := range map[string]struct {
		calls   []call
		joined  int   // the calls of the first chain
		written []int // of these, those that write their tensor
	}{
		"one behind the other":            {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000, 0x2000000, 0x30000, 0x10000}, {0x30000, 0x3000000, 0x40000, 0x20000}}, 3, []int{0, 1, 2}},
		"two tensors in turns":            {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000, 0x2000000, 0x10000, 0x10000}, {0x10000, 0x3000000, 0x20000, 0x20000}}, 3, []int{1, 2}},
		"in place":                        {[]call{{0x10000, 0x1000000, 0x10000, 0x10000}, {0x10000, 0x2000000, 0x10000, 0x10000}}, 2, []int{1}},
		"x from elsewhere":                {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x50000, 0x2000000, 0x30000, 0}}, 1, []int{0}},
		"a residual from elsewhere":       {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000, 0x2000000, 0x30000, 0x50000}}, 1, []int{0}},
		"a part of a row":                 {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000 + 8, 0x2000000, 0x30000, 0}}, 1, []int{0}},
		"weights that a call writes":      {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000, 0x20000 - row, 0x30000, 0}}, 1, []int{0}},
		"weights that the call writes":    {[]call{{0x10000, 0x1000000, 0x1000000 + row, 0}}, 0, nil},
		"weights that a later one writes": {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000, 0x2000000, 0x1000000, 0}}, 1, []int{0}},
		"half of an earlier result":       {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000, 0x2000000, 0x20000 + row/2, 0}}, 1, []int{0}},
		"another residual than was there": {[]call{{0x10000, 0x1000000, 0x20000, 0}, {0x20000, 0x2000000, 0x10000, 0}, {0x10000, 0x3000000, 0x30000, 0x20000}}, 3, []int{0, 1, 2}},
	} {
		b := newChainBuilder(d)
		joined := 0
		for _, call := range c.calls {
			if !b.add(rowsCall(d, call.x, call.weight, call.c, call.residual, false)) {
				break
			}
			joined++
		}
		var written []int
		for n := range joined {
			if b.links[n+1].data != 0 {
				written = append(written, n)
			}
		}
		if joined != c.joined || !slices.Equal(written, c.written) {
			t.Errorf("%s: %d calls are a chain, of which %v write their tensors, it needs to be %d and %v", name, joined, written, c.joined, c.written)
		}
	}
}

// Calls of several rows join a chain where each reads the rows of the one before, and residuals
// that are there by then and still kept.
func TestCallsOfRowsJoinChains(t *testing.T) {
	const rows = 16
	d := deviceOf(132)
	at := func(n int) address { return 0x10000 * address(n+1) }
	type call struct{ x, c, residual, rows int } // residual: -1 for none
	long := []call{}
	for n := range 20 {
		long = append(long, call{n, n + 1, -1, rows})
	}
	for name, c := range map[string]struct {
		calls  []call
		joined int
	}{
		"one behind the other":       {long, 20},
		"a residual two before":      {[]call{{0, 1, -1, rows}, {1, 2, 0, rows}, {2, 3, 1, rows}}, 3},
		"a residual that it reads":   {[]call{{0, 1, -1, rows}, {1, 2, 1, rows}}, 1},
		"a residual that is kept":    {append(slices.Clone(long), call{20, 21, 21 - 15, rows}), 21},
		"a residual that is not":     {append(slices.Clone(long), call{20, 21, 21 - 16, rows}), 20},
		"rows of an earlier one":     {[]call{{0, 1, -1, rows}, {1, 2, -1, rows}, {1, 3, -1, rows}}, 2},
		"another number of rows":     {[]call{{0, 1, -1, rows}, {1, 2, -1, rows - 1}}, 1},
		"a call of one row behind":   {[]call{{0, 1, -1, rows}, {1, 2, -1, 1}}, 1},
		"a call of rows behind one":  {[]call{{0, 1, -1, 1}, {1, 2, -1, rows}}, 1},
		"results in turns, in place": {[]call{{0, 0, -1, rows}, {0, 0, -1, rows}}, 2},
	} {
		b := newChainBuilder(d)
		joined := 0
		for n, call := range c.calls {
			residual := address(0)
			if call.residual >= 0 {
				residual = at(call.residual)
			}
			one := rowsCall(d, at(call.x), 0x10000000+0x1000000*address(n), at(call.c), residual, n%2 == 0)
			one.product.arguments.m.rows = int32(call.rows)
			if !b.add(one) {
				break
			}
			joined++
		}
		if joined != c.joined {
			t.Errorf("%s: %d calls are a chain, it needs to be %d", name, joined, c.joined)
		}
		if b.rows != rows || joined == 0 {
			continue
		}
		links, rowBytes, sumBytes := b.rowsLinks()
		if size := int(unsafe.Sizeof(links[0])); size != chainRowsLinkBytes {
			t.Errorf("a link has %d bytes, chainRowsLinkBytes is %d", size, chainRowsLinkBytes)
		}
		if least := 2 * 2 * rows * 2048; rowBytes < least || rowBytes%16 != 0 {
			t.Errorf("%s: rows have %d bytes, they need to have %d", name, rowBytes, least)
		}
		for n, l := range links[1:] {
			if told := map[bool]int32{true: 2 * rows, false: 16}[n == 0]; l.inTold != told {
				t.Errorf("%s: link %d waits until groups were told of %d times, it needs to be %d", name, n+1, l.inTold, told)
			}
			if least := int(l.groups*l.fragments) * 16 * 128 * 4; sumBytes < least {
				t.Errorf("%s: sums have %d bytes, link %d needs %d", name, sumBytes, n+1, least)
			}
			if l.residual != 0 && links[l.residualNumber].tellsRaw == 0 {
				t.Errorf("%s: link %d reads residuals that link %d does not keep", name, n+1, l.residualNumber)
			}
		}
	}
}

// Links share places for their words. A link writes to a place after all links that read what was
// there, and reads from the place to which the link before it wrote.
func TestPlacesOfWords(t *testing.T) {
	const links, far = 60, 20
	d := deviceOf(132)
	b := newChainBuilder(d)
	at := func(n int) address { return 0x10000 * address(n+1) }
	residuals := map[int]int{} // by the link that reads it
	for n := range links {
		if n%3 == 2 {
			residuals[n+1] = n - 1
		}
		if n == 40 {
			residuals[n+1] = n - far
		}
		residual := address(0)
		if from, ok := residuals[n+1]; ok {
			residual = at(from)
		}
		if !b.add(rowsCall(d, at(n), 0x10000000+0x1000000*address(n), at(n+1), residual, n%2 == 0)) {
			t.Fatalf("call %d does not join", n)
		}
	}
	if size := int(unsafe.Sizeof(linkArguments{})); size != chainLinkBytes {
		t.Errorf("a link has %d bytes, chainLinkBytes is %d", size, chainLinkBytes)
	}
	words := b.places()
	if own := links * (2048/2 + 64); words > own/3 {
		t.Errorf("there are %d words, with a place for each row there would be %d", words, own)
	}
	last := make([]int, links+1)
	for n := 1; n <= links; n++ {
		l := b.links[n]
		last[n-1] = max(last[n-1], n)
		if l.in != b.links[n-1].out || l.squares != 0 && l.squares != b.links[n-1].outSquares {
			t.Errorf("link %d reads %d and squares %d, the link before has %d and %d", n, l.in, l.squares, b.links[n-1].out, b.links[n-1].outSquares)
		}
		if from, ok := residuals[n]; ok {
			last[from] = max(last[from], n)
			if l.residual != b.links[from].out {
				t.Errorf("link %d reads the residual %d, link %d has %d", n, l.residual, from, b.links[from].out)
			}
		}
	}
	type place struct{ from, to address }
	of := func(n int) (list []place) {
		l := b.links[n]
		list = append(list, place{l.out, l.out + 8*2048/2})
		if l.outSquares != 0 {
			list = append(list, place{l.outSquares, l.outSquares + 8*64})
		}
		return list
	}
	for later := range links + 1 {
		for n := range later {
			for _, p := range of(n) {
				for _, q := range of(later) {
					if p.from < q.to && q.from < p.to && later <= last[n] {
						t.Errorf("link %d writes where link %d did, which link %d reads", later, n, last[n])
					}
				}
			}
			if p := of(later)[0]; p.from%16 != 0 || p.from == 0 || p.to > address(8*words) {
				t.Errorf("the words of link %d lie from %d to %d, of %d", later, p.from, p.to, 8*words)
			}
		}
	}
}
