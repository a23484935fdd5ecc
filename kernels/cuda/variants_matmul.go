//go:build gpu

package cuda

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// matmulTile is how src/matmul_sm90.cuh cuts a product, and MatMulShape there.
type matmulTile struct {
	name      string
	turns     bool // each of the two warpgroups has tiles of its own
	rowBlocks int  // of 64 rows, that a warpgroup has
	columns   int
	stages    int
	buffers   int     // of 16 rows, that a warp has for what leaves: more where much does beside the other warpgroup's products
	cluster   int     // blocks, with tiles below each other
	parts     int     // of split operands; 0 where they are not split
	sharesA   bool    // tiles of a cluster are beside each other instead
	operands  element // elementFloat8 where both are rounded to that; otherwise not set
}

// The tiles that there are kernels for. A large tile reads the least for what it computes, and its
// two warpgroups finish it together. Tiles in turns hide what follows the products: broad ones are
// the largest that a warpgroup has registers for, and the smaller ones are for what has few tiles,
// or columns that broad ones do not fit.
var (
	wideTile  = matmulTile{name: "wide", rowBlocks: 1, columns: 256, stages: 4, buffers: 2, cluster: 2}
	turnTile  = matmulTile{name: "turns", turns: true, rowBlocks: 2, columns: 128, stages: 5, buffers: 4, cluster: 2}
	broadTile = matmulTile{name: "broad", turns: true, rowBlocks: 2, columns: 192, stages: 4, buffers: 4, cluster: 2}
	// The rows of weights' gradients are few, and 1,600 of them fill 6¼ times the 256 that broad
	// tiles of a cluster have below each other.
	sideTile = matmulTile{name: "side", turns: true, rowBlocks: 2, columns: 160, stages: 4, buffers: 4, cluster: 2, sharesA: true}
	// Of split operands: two parts of each take twice the room, and sums twice the registers.
	onePartTile  = matmulTile{name: "part", rowBlocks: 1, columns: 256, stages: 3, buffers: 2, cluster: 2, parts: 1}
	twoPartsTile = matmulTile{name: "parts", rowBlocks: 1, columns: 128, stages: 3, buffers: 2, cluster: 2, parts: 2}
	// Of 8 bits: half of the registers for sums are those of two slices.
	float8Tile = matmulTile{name: "float8", rowBlocks: 1, columns: 192, stages: 4, buffers: 2, cluster: 2, parts: 1, operands: elementFloat8}
)

func (t matmulTile) rows() int {
	if t.turns {
		return 64 * t.rowBlocks
	}
	return 128 * t.rowBlocks
}

// ofCluster is how many rows and columns the tiles of a cluster have together.
func (t matmulTile) ofCluster() (rows, columns int) {
	if t.sharesA {
		return t.rows(), t.cluster * t.columns
	}
	return t.cluster * t.rows(), t.columns
}

// sharedBytes is MatMulShape::SharedBytes: the ring of slices, the buffers of 16 rows of each of
// eight warps, the bias (and the scales, if operands are split) of either warpgroup's columns, and
// barriers.
func (t matmulTile) sharedBytes() int {
	const rowBytes = 128
	columnsOfB := (t.columns + 63) / 64 * 64 // in chunks
	stage, columns := (t.rows()+columnsOfB)*rowBytes, 2*t.columns*4
	if t.parts > 0 {
		stage, columns = stage*t.parts, 2*columns
	}
	return t.stages*stage + 8*t.buffers*16*rowBytes + columns + 2*t.stages*8 + 2*8
}

// matmul90 is one compiled kernel for sm_90a: a module with one entry point.
type matmul90 struct {
	matmulTile
	element  element
	aColumns bool // A's columns are contiguous, rather than its rows
	bRows    bool // B's rows are contiguous, rather than its columns
	epilogue epilogue90
	by       groupedBy
	sumsB    bool // adds up B's columns
}

// epilogue90 is one of src/matmul_epilogue_sm90.cuh. All but activates leave 16-bit results alone.
type epilogue90 struct {
	kind       epilogueKind
	activation kernels.Activation // of 16-bit results, or that whose slope multiplies them
}

type epilogueKind int

const (
	activates epilogueKind = iota
	timesSlope
	gates
	gateGradients
	mirrors // of symmetric products
)

// source is how the sources call the epilogue, and suffix what it adds to a kernel's name.
func (e epilogue90) source() string {
	switch e.kind {
	case timesSlope:
		return fmt.Sprintf("TimesSlope<%v>", e.activation)
	case gates:
		return "Gate"
	case gateGradients:
		return "GateGradient"
	case mirrors:
		return "Mirror"
	}
	return fmt.Sprintf("Activate<%v>", e.activation)
}

func (e epilogue90) suffix() string {
	switch {
	case e.kind == timesSlope:
		return fmt.Sprintf("_slope_%v", e.activation)
	case e.kind == gates:
		return "_gate"
	case e.kind == gateGradients:
		return "_gate_gradient"
	case e.kind == mirrors:
		return "_symmetric"
	case e.activation != kernels.NoActivation:
		return fmt.Sprintf("_%v", e.activation)
	}
	return ""
}

// brings reports whether something comes into the buffers from which C leaves.
func (e epilogue90) brings() bool { return e.kind == timesSlope || e.kind == gateGradients }

func (v matmul90) name() string {
	name := "matmul_sm90_" + v.matmulTile.name + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element]
	name += map[bool]string{false: "_n", true: "_t"}[v.aColumns] + map[bool]string{false: "t", true: "n"}[v.bRows]
	return name + v.epilogue.suffix() + map[bool]string{true: "_sums"}[v.sumsB] + v.by.suffix()
}

// chunk is how many 16-bit columns that leave lie side by side in shared memory, and chunkOfB how
// many of B's rows do.
func (v matmul90) chunk() int {
	if v.columns%64 != 0 || v.epilogue.kind == gates {
		return 32
	}
	return 64
}

func (v matmul90) chunkOfB() int {
	if v.epilogue.kind == gates {
		return 32
	}
	return 64
}

// boxDepth is how much of a slice's depth a box of B's rows has: half of it where a block's part of
// the columns is no whole number of chunks.
func (v matmul90) boxDepth() int {
	if v.columns/v.cluster%v.chunkOfB() != 0 && !v.sharesA {
		return sliceDepth / 2
	}
	return sliceDepth
}

// lastActivated is the last of the activations that src/matmul.cuh has.
const lastActivated = kernels.ReLUSquared

// hasSlope reports whether there are products whose results are multiplied by an activation's
// derivative. That of the exact GELU takes as many instructions as the activation itself.
func hasSlope(a kernels.Activation) bool {
	return a == kernels.GELUTanh || a == kernels.SiLU || a == kernels.ReLUSquared
}

// sharedBytes adds barriers for what comes into the buffers, where something does.
func (v matmul90) sharedBytes() int {
	if !v.epilogue.brings() {
		return v.matmulTile.sharedBytes()
	}
	return v.matmulTile.sharedBytes() + 8*4*8
}

// matmul90Variants are the kernels for sm_90a: each tile for each way that operands may lie in,
// and, where results go through an activation or are multiplied by the derivative of one, for those
// that forward and backward passes have.
func matmul90Variants() []matmul90 {
	var list []matmul90
	for _, e := range []element{elementBF16, elementF16} {
		for _, bRows := range []bool{false, true} {
			for _, aColumns := range []bool{false, true} {
				for _, tile := range []matmulTile{wideTile, broadTile, turnTile} {
					list = append(list, matmul90{matmulTile: tile, element: e, aColumns: aColumns, bRows: bRows})
				}
			}
			for act := kernels.GELUTanh; act <= lastActivated; act++ {
				for _, tile := range []matmulTile{broadTile, turnTile} {
					list = append(list, matmul90{matmulTile: tile, element: e, bRows: bRows, epilogue: epilogue90{activates, act}})
				}
				if !bRows && hasSlope(act) {
					list = append(list, matmul90{matmulTile: broadTile, element: e, epilogue: epilogue90{timesSlope, act}})
				}
			}
		}
		list = append(list, matmul90{matmulTile: sideTile, element: e, aColumns: true, bRows: true})
		for _, tile := range []matmulTile{wideTile, broadTile, turnTile, sideTile} {
			list = append(list, matmul90{matmulTile: tile, element: e, aColumns: true, bRows: true, sumsB: true})
		}
		for _, bRows := range []bool{false, true} {
			for _, kind := range []epilogueKind{gates, gateGradients} {
				list = append(list, matmul90{matmulTile: broadTile, element: e, bRows: bRows, epilogue: epilogue90{kind: kind}})
			}
		}
	}
	list = append(list, matmul90{matmulTile: float8Tile, element: elementBF16})
	for _, columns := range []bool{false, true} {
		list = append(list, matmul90{matmulTile: turnTile, element: elementF16, aColumns: columns, bRows: columns, epilogue: epilogue90{kind: mirrors}})
	}
	return append(list, matmul90{matmulTile: onePartTile, element: elementF16}, matmul90{matmulTile: twoPartsTile, element: elementF16})
}

// module says how a kernel is compiled.
func (v matmul90) module() compiledModule {
	m := compiledModule{Name: v.name(), Source: "matmul_sm90.cu", Arch: "compute_90a"}
	switch {
	case v.epilogue.kind == mirrors:
		m.Source = "matmul_symmetric_sm90.cu"
	case v.sumsB:
		m.Source = "matmul_sums_sm90.cu"
	}
	m.Defines = []string{
		"KERNEL=" + m.Name, "ELEMENT_" + map[element]string{elementBF16: "BF16", elementF16: "F16"}[v.element],
		fmt.Sprintf("IN_TURNS=%t", v.turns), fmt.Sprintf("ROW_BLOCKS=%d", v.rowBlocks), fmt.Sprintf("TILE_COLUMNS=%d", v.columns),
		fmt.Sprintf("STAGES=%d", v.stages), fmt.Sprintf("OUT_BUFFERS=%d", v.buffers), fmt.Sprintf("CLUSTER=%d", v.cluster), fmt.Sprintf("SPLIT_PARTS=%d", v.parts),
		fmt.Sprintf("SHARES_A=%t", v.sharesA), fmt.Sprintf("SHARED_BYTES=%d", v.sharedBytes()),
	}
	if v.aColumns {
		m.Defines = append(m.Defines, "A_COLUMNS")
	}
	if v.bRows {
		m.Defines = append(m.Defines, "B_ROWS")
	}
	operands := "Words"
	if v.operands == elementFloat8 {
		operands = "Float8"
	}
	m.Defines = append(m.Defines, "OPERANDS="+operands, "EPILOGUE="+v.epilogue.source())
	if v.by != ungrouped {
		m.Defines = append(m.Defines, fmt.Sprintf("GROUPED=%d", v.by))
	}
	return m
}

// matmulSchedule is MatMulSchedule in src/matmul_sm90.cuh, which says what each field means.
type matmulSchedule struct {
	whole, tiles, across, down, beside, band, slices int32
	way, period, second, third, swapped              int32
}

// sliceDepth is how much of the depth of 16-bit operands a stage of the ring holds.
const sliceDepth = 64

// sliceDepth is how much of the depth of the tile's operands it holds.
func (t matmulTile) sliceDepth() int {
	if t.operands == elementFloat8 {
		return 2 * sliceDepth
	}
	return sliceDepth
}

// schedule says how the clusters of a device share a product, how many clusters there are, and how
// long they take in units of a slice of a tile.
func (t matmulTile) schedule(rows, columns, depth, items int32, multiprocessors int) (s matmulSchedule, clusters int, slices float64) {
	down, across := t.ofCluster()
	s.down, s.across = int32(tilesOf(rows, down)), int32(tilesOf(columns, across))
	if int(rows) <= t.rows() && !t.sharesA {
		s.beside, s.across = 1, int32(tilesOf(columns, t.columns*t.cluster))
	}
	s.tiles, s.band = s.down*s.across*items, int32(t.band())
	return t.share(s, depth, multiprocessors)
}

// scheduleSymmetric is schedule of products of which tiles left of the diagonal are not computed:
// those of a cluster are two beside each other in a square.
func (t matmulTile) scheduleSymmetric(side, depth, items int32, multiprocessors int) (s matmulSchedule, clusters int, slices float64) {
	down, across := t.ofCluster()
	s.down, s.across = int32(tilesOf(side, down)), int32(tilesOf(side, across))
	s.tiles = (s.down*s.across - s.down*(s.down-1)) * items
	return t.share(s, depth, multiprocessors)
}

// share completes a schedule that has its tiles.
func (t matmulTile) share(s matmulSchedule, depth int32, multiprocessors int) (_ matmulSchedule, clusters int, slices float64) {
	const (
		toPass = 3    // slices' time that a streamed tile's sums take to be written
		toAdd  = 4    // and to be added, for each cluster that has some
		least  = 4    // slices of a cluster
		enough = 40   // slices of a cluster that are worth streaming without a whole tile for each
		worth  = 1.06 // what streaming has to gain: clusters with whole tiles read the same operands at the same time
	)
	s.slices, s.whole = int32(tilesOf(depth, t.sliceDepth())), s.tiles
	clusters = multiprocessors / t.cluster
	tiles, each := int(s.tiles), int(s.slices)
	waves, rest := tiles/clusters, tiles%clusters
	if rest == 0 {
		return s, clusters, float64(waves * each)
	}
	streamed := rest
	if waves > 0 && rest*each < enough*clusters {
		streamed += clusters
	}
	if waves == 0 {
		clusters = max(tiles, min(clusters, tiles*each/least))
	}
	even := float64(streamed*each) / float64(clusters)
	even += toPass + toAdd*float64(each)/even
	uneven := float64((streamed + clusters - 1) / clusters * each)
	whole := float64(tiles/clusters*each) - float64(streamed/clusters*each)
	if worth*even < uneven {
		s.whole, s.period = int32(tiles-streamed), int32(min(each, streamed*each/clusters))
		return s, clusters, whole + even
	}
	return s, min(clusters, tiles), whole + uneven
}

// cycles is about how long a product takes, as bench/log/gpu-matmul.md found it.
func (t matmulTile) cycles(rows, columns, depth, items int32, multiprocessors int) float64 {
	const (
		products = 2048 // of a multiprocessor in a cycle
		leaving  = 500  // cycles of a tile that its own products do not hide
		narrow   = 1.08 // of tiles whose operands come from shared memory more slowly than they are multiplied
	)
	_, _, slices := t.schedule(rows, columns, depth, items, multiprocessors)
	cycles := slices * float64(t.rows()*t.columns*sliceDepth) / products
	switch {
	case !t.turns:
		cycles += leaving * slices / float64(tilesOf(depth, sliceDepth))
	case t.columns < broadTile.columns:
		cycles *= narrow
	}
	return cycles
}

// band is how many tiles of a cluster below each other are visited together, so that what all
// clusters read at a time is about as many rows of A as columns of B.
func (t matmulTile) band() int {
	const clusters = 64
	n := 1
	down, across := t.ofCluster()
	for n*n*down < clusters*across {
		n++
	}
	return n
}

// matmul80Tile is how src/matmul_sm80.cu cuts a product.
type matmul80Tile struct {
	name          string
	rows, columns int // of C, that a block computes
	down, across  int // warps that share it
	depth, stages int // of a slice, and of the ring
	blocks        int // that a multiprocessor has registers for
	parts         int // of split operands; 0 where they are not split
}

// The tiles that there are kernels for. A warp has 64×64 of one, which with what it multiplies next
// is all that there are registers for. Deep slices need half as many barriers, but also more shared
// memory than the smallest GPUs have. Of two parts, sums take twice the registers, and slices twice
// the room.
var (
	deep80     = matmul80Tile{name: "deep", rows: 256, columns: 128, down: 4, across: 2, depth: 64, stages: 3, blocks: 1}
	flat80     = matmul80Tile{name: "flat", rows: 128, columns: 128, down: 2, across: 2, depth: 32, stages: 3, blocks: 2}
	deepPart   = matmul80Tile{name: "deep", rows: 256, columns: 128, down: 4, across: 2, depth: 64, stages: 3, blocks: 1, parts: 1}
	flatPart   = matmul80Tile{name: "flat", rows: 128, columns: 128, down: 2, across: 2, depth: 32, stages: 3, blocks: 2, parts: 1}
	twoParts80 = matmul80Tile{name: "flat", rows: 128, columns: 128, down: 2, across: 4, depth: 32, stages: 3, blocks: 1, parts: 2}
)

// threads are those of a block, and groups how many times a warp's sums leave, 16 rows and 32
// columns at a time.
func (t matmul80Tile) threads() int { return 32 * t.down * t.across }
func (t matmul80Tile) groups() int  { return t.rows / t.down / 16 * (t.columns / t.across / 32) }

// sharedBytes is the ring of slices, and twice what belongs to the columns and rows of a tile: the
// bias and, where operands are split, scales.
func (t matmul80Tile) sharedBytes() int {
	slice, beside := (t.rows+t.columns)*t.depth*2, t.columns
	if t.parts > 0 {
		slice, beside = slice*t.parts, 2*t.columns+t.rows
	}
	return t.stages*slice + 2*beside*4
}

// fits reports whether a multiprocessor with so much shared memory has room for the blocks.
func (t matmul80Tile) fits(sharedMemory int) bool {
	return t.blocks*(t.sharedBytes()+ofDriver) <= sharedMemory
}

// matmul80 is one compiled kernel for any device since Ampere: a module with it and the one that
// adds what it leaves in shares.
type matmul80 struct {
	matmul80Tile
	element         element
	aColumns, bRows bool
}

func matmul80Variants() []matmul80 {
	var list []matmul80
	for _, tile := range []matmul80Tile{deep80, flat80} {
		for _, e := range []element{elementBF16, elementF16} {
			for _, aColumns := range []bool{false, true} {
				for _, bRows := range []bool{false, true} {
					list = append(list, matmul80{tile, e, aColumns, bRows})
				}
			}
		}
	}
	for _, tile := range []matmul80Tile{deepPart, flatPart, twoParts80} {
		list = append(list, matmul80{tile, elementF16, false, false})
	}
	return list
}

func (v matmul80) name() string {
	name := "matmul_sm80_" + v.matmul80Tile.name + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element]
	name += map[bool]string{false: "_n", true: "_t"}[v.aColumns] + map[bool]string{false: "t", true: "n"}[v.bRows]
	return name + [...]string{"", "_part", "_parts"}[v.parts]
}

func (v matmul80) module() compiledModule {
	m := compiledModule{Name: v.name(), Source: "matmul_sm80.cu", Arch: "compute_80"}
	m.Defines = []string{
		"KERNEL=" + m.Name, "ELEMENT=" + map[element]string{elementBF16: "BF16", elementF16: "F16"}[v.element],
		fmt.Sprintf("TILE_ROWS=%d", v.rows), fmt.Sprintf("TILE_COLUMNS=%d", v.columns), fmt.Sprintf("WARPS_DOWN=%d", v.down),
		fmt.Sprintf("WARPS_ACROSS=%d", v.across), fmt.Sprintf("TILE_DEPTH=%d", v.depth), fmt.Sprintf("STAGES=%d", v.stages),
		fmt.Sprintf("SPLIT_PARTS=%d", v.parts), fmt.Sprintf("SHARED_BYTES=%d", v.sharedBytes()),
	}
	if v.aColumns {
		m.Defines = append(m.Defines, "A_COLUMNS")
	}
	if v.bRows {
		m.Defines = append(m.Defines, "B_ROWS")
	}
	return m
}

// matmul80Schedule is Schedule in src/matmul_sm80.cu, which says what each field means.
type matmul80Schedule struct {
	tiles, whole, across, down, band, slices, shares, way int32
}

// pieces counts the tiles that are whole and the shares of the others.
func (s matmul80Schedule) pieces() int { return int(s.whole) + s.shared()*int(s.shares) }
func (s matmul80Schedule) shared() int { return int(s.tiles - s.whole) }

// schedule says how the blocks of a device share a product. Where the last tiles are fewer than the
// blocks, it cuts the depth of each into as many shares as should take the least time.
func (t matmul80Tile) schedule(rows, columns, depth, items int32, multiprocessors int) (s matmul80Schedule) {
	const (
		passing = 512 // steps of the depth whose time the sums of a share take to be written and to be added
		most    = 64  // shares of a tile
		least   = 128 // steps of a share
		worth   = 0.97
	)
	s.down, s.across, s.slices = int32(tilesOf(rows, t.rows)), int32(tilesOf(columns, t.columns)), int32(tilesOf(depth, t.depth))
	s.tiles, s.shares = s.down*s.across*items, 1
	blocks := multiprocessors * t.blocks
	for s.band = 1; int(s.band*s.band)*t.rows < blocks*t.columns; s.band++ {
	}
	s.whole = s.tiles
	rest := int(s.tiles) % blocks
	if rest == 0 {
		return s
	}
	time := float64(depth)
	for shares := 2; shares <= min(most, int(depth)/least); shares++ {
		if next := float64(tilesOf(int32(rest*shares), blocks)) * (float64(depth)/float64(shares) + passing); next < worth*time {
			time, s.shares, s.whole = next, int32(shares), s.tiles-int32(rest)
		}
	}
	return s
}
