//go:build gpu

package cuda

import (
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// WithoutMaps makes a device choose kernels as one that has no tensor maps, until the function it
// gives is called.
func (d *Device) WithoutMaps() (restore func()) {
	before := d.withoutMaps
	d.withoutMaps = true
	return func() { d.withoutMaps = before }
}

// Rehearse does calls of a device, or of one that has no tensor maps, without their work. What they
// compile is there afterwards.
func (d *Device) Rehearse(withoutMaps bool, calls func(*Device) error) error {
	_, err := d.CountKernels(func(q driver.Queue) error {
		return calls(&Device{hardware: &hardware{GPU: d.GPU, withoutMaps: withoutMaps}, part: q})
	})
	return err
}

// HasMaps reports whether a device chooses kernels with tensor maps, and others for Hopper.
func (d *Device) HasMaps() bool { return d.hasMaps() }

// AsSmallest makes a device choose kernels as one that has neither tensor maps nor more shared
// memory than the smallest since Ampere, until the function it gives is called.
func (d *Device) AsSmallest() (restore func()) { return d.WithSharedMemory(100 << 10) }

// WithSharedMemory makes a device choose kernels as one that has no tensor maps and so many bytes
// of shared memory a multiprocessor, until the function it gives is called.
func (d *Device) WithSharedMemory(bytes int) (restore func()) {
	memory, maps := d.SharedMemory, d.WithoutMaps()
	d.SharedMemory = bytes
	return func() {
		d.SharedMemory = memory
		maps()
	}
}

// LimitLogits lets the logits of a chunk take so many bytes, until the function it gives is called.
func LimitLogits(bytes int) (restore func()) {
	before := bytesOfLogits
	bytesOfLogits = bytes
	return func() { bytesOfLogits = before }
}

// DeepGroups lets grouped products have the larger tiles from so many rows of a group on, until the
// function it gives is called.
func DeepGroups(rows int) (restore func()) {
	before := deepGroups
	deepGroups = rows
	return func() { deepGroups = before }
}

// GroupedTile lets grouped products have one of the tiles for Hopper until the function it gives is
// called, and the kernels for any device where there is none of the name.
func GroupedTile(name string) (restore func()) {
	before := groupedTiles
	groupedTiles = slices.DeleteFunc(slices.Clone(before), func(t matmulTile) bool { return t.name != name })
	return func() { groupedTiles = before }
}

// HeadsOfLongTiles is the least even number of heads of 128 with which forward90Longer chooses
// larger tiles for sequences of a length, 0 where the device has none.
func (d *Device) HeadsOfLongTiles(length int32) int {
	table := forward90Variants()
	at := slices.IndexFunc(table, func(v variant) bool { return v.d == 128 && !v.mod })
	for heads := int32(2); heads <= 512 && d.Major == 9 && d.Minor == 0; heads += 2 {
		a := &arguments{sq: length, sk: length, longestQ: length, longestK: length, sequences: 1, heads: heads, left: -1, right: -1}
		if forward90Longer(table[at], a, d.Multiprocessors).name != table[at].name {
			return int(heads)
		}
	}
	return 0
}

// AttentionKernels are the names of attention's kernels for operands of a type, such as "bf16",
// with tensor maps or without.
func AttentionKernels(operands string, maps bool) (names []string) {
	for _, list := range slices.Concat(forwardVariants(), backwardVariants(), dBiasVariants()) {
		for _, v := range list {
			if v.boxCols > 0 == maps && slices.Contains(strings.Split(v.name, "_"), operands) {
				names = append(names, v.name)
			}
		}
	}
	return names
}

// Float8Product rounds the operands of a product to 8 bits once, and gives what queues the product
// of those. The caller releases what it borrowed.
func (d *Device) Float8Product(m *kernels.MatMul, c kernels.Tensor) (launch func() error, release func(), err error) {
	p := newProduct(d, m, kernels.Activate{}, c)
	return p.launchFloat8, p.release, p.settle()
}

// WaysOfLists are the ways to compute attention to listed keys.
var WaysOfLists = map[string]listedWay{"gathered": listedGathered, "rows": listedOfRows, "dense": listedDense}

// WayOfLists makes attention to listed keys be computed in a way where that can be, until the
// function it gives is called.
func WayOfLists(way listedWay) (restore func()) {
	before := waysOfLists
	waysOfLists = way
	return func() { waysOfLists = before }
}

// RoomForPlanes lets the bias of listed keys take so many bytes, until the function it gives is
// called.
func RoomForPlanes(bytes int) (restore func()) {
	before := bytesOfPlanes
	bytesOfPlanes = bytes
	return func() { bytesOfPlanes = before }
}
