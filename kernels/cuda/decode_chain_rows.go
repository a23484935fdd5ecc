//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// This file launches chains of several rows, which are the next tokens of as many texts:
// src/decode_chain_rows.cu. The builder of decode_chain.go makes them. What it knows of words only
// says which links' rows are read.

// rowsOfLink is what RowsLink in src/decode_chain_rows.cu has behind linkArguments.
type rowsOfLink struct {
	rows                             int32
	firstQuery, firstKey, firstValue int32
	tells, tellsSquares, tellsRaw    int32
	inTold                           int32
	nextWide, _                      int32
	nextGamma                        readable
}

type rowsLinkArguments struct {
	linkArguments
	rowsOfLink
}

// rowsChainArguments is RowsChain in src/decode_chain_rows.cu.
type rowsChainArguments struct {
	links, maps, state address
	count, flight      int32
	rows, sums         address
	rowBytes, sumBytes int64
	told               address
}

// mayReadRows reports whether the next link may read the rows of an earlier one as a residual: all
// of them are there by then, and those of attentions are not kept for it. Of the rows that the next
// link reads all depend on all before them, or behind an attention on all before those.
func (b *chainBuilder) mayReadRows(link int) bool {
	behind := 2
	if b.links[len(b.links)-1].kind == linkAttention {
		behind = 3
	}
	far := len(b.links) - link
	return far >= behind && far < chainPools && b.links[link].kind != linkAttention
}

// rowsLinks describes the links, and gives the bytes of a link's rows and of its sums.
func (b *chainBuilder) rowsLinks() (links []rowsLinkArguments, rowBytes, sumBytes int) {
	for n, l := range b.links {
		own := rowsOfLink{rows: int32(b.rows)}
		steps := tilesOf(int32(2*l.words()), depthOfStep)
		squares := int(l.groups) * (chainPanel / chainUnit) * mostRows * 4
		rowBytes = max(rowBytes, 2*steps*mostRows*64*2+squares) // for the next link, and as residuals
		if l.out != 0 {
			own.tells = 1
		}
		if l.outSquares != 0 {
			own.tellsSquares = 1
		}
		if n > 0 {
			own.inTold = b.links[n-1].told(b.rows, b.headSize)
		}
		if n+1 < len(b.links) {
			own.nextGamma, own.nextWide = b.links[n+1].gamma, b.links[n+1].gammaWide
		}
		if slices.ContainsFunc(b.links[n:], func(later linkArguments) bool { return later.residual != 0 && int(later.residualNumber) == n }) {
			own.tellsRaw = 1
		}
		switch l.kind {
		case linkProduct:
			l.squareCount *= chainPanel / chainUnit / 4 // words are of 32 columns
			if l.residual == 0 {
				l.residualNumber = -1
			}
			const fragment = mostRows * chainPanel * 4
			sumBytes = max(sumBytes, int(l.groups*l.halves*l.fragments)*fragment)
		case linkAttention:
			in := b.links[l.inNumber].out
			own.firstQuery, own.firstKey, own.firstValue = int32((l.in-in)/8), int32((l.k-in)/8), int32((l.v-in)/8)
			runs := min(b.device.Multiprocessors/(int(l.keyHeads)*b.rows), chainMostRuns)
			sumBytes = max(sumBytes, 4*b.rows*int(l.heads)*runs*chainPartial(b.headSize))
		}
		links = append(links, rowsLinkArguments{l, own})
	}
	return links, rowBytes, tilesOf(int32(sumBytes), 1024) * 1024
}

// told is how often a link tells of a group of columns: by warps that have a panel of a row for the
// source, a head of a row for attention, and a unit of eight rows for a product.
func (l *linkArguments) told(rows, headSize int) int32 {
	switch l.kind {
	case linkSource:
		return int32(2 * rows)
	case linkAttention:
		return int32(rows * chainPanel / headSize)
	}
	return int32(chainPanel / chainUnit * tilesOf(int32(rows), 8))
}

// launchRows queues a chain of several rows in the place of calls.
func (b *chainBuilder) launchRows(list []driver.Link) error {
	d := b.device
	failed := func(err error) error {
		return fmt.Errorf("%s: a chain of %d calls of %d rows: %w", d.Name(), len(list), b.rows, err)
	}
	if err := b.turns(); err != nil {
		return failed(err)
	}
	links, rowBytes, sumBytes := b.rowsLinks()
	const state = 128 // bytes, of which the kernel has eight
	counts := len(links) * chainMostGroups * chainApart * 4
	zeros, err := d.Zeros(d.queue(), state+counts+chainPools*rowBytes)
	if err != nil {
		return failed(err)
	}
	sums, err := d.Filled(d.queue(), chainSumPools*sumBytes, 0xff) // EMPTY
	if err != nil {
		return failed(err)
	}
	g := &rowsChainArguments{state: zeros.At, count: int32(len(links)), flight: chainFlight, told: zeros.At + state,
		rows: zeros.At + address(state+counts), rowBytes: int64(rowBytes), sums: sums.At, sumBytes: int64(sumBytes)}
	if err := b.constants(bytesOf(links), &g.links, &g.maps); err != nil {
		return failed(err)
	}
	name := chainRowsName(b.element, b.headSize)
	s := shapeOf(name, name, [3]int{d.Multiprocessors, 1, 1}, chainThreads, chainRowsShared(b.headSize))
	s.Together = true
	err = d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(list)
	return err
}
