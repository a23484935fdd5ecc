//go:build gpu

package cuda

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"github.com/stheno-ml/stheno/kernels/score"
)

// This file computes attention with a score or a mask that a user wrote. Its kernels are the
// others' with another policy for scores, src/attention_user.cuh, compiled when a problem is first
// met.

// writesScore reports whether a problem has a score or a mask of its own.
func writesScore(a *kernels.Attention) bool { return a.Score != nil || a.Mask != nil }

// mostTables and mostAxes are how many tables a kernel's arguments have room for, and how many axes
// of all of them.
const mostTables, mostAxes = 64, 256

func axesOf(tables []kernels.Tensor) (axes int) {
	for _, t := range tables {
		axes += len(t.Shape)
	}
	return axes
}

// userTail is what UserArguments in src/attention_user.cuh has between its tables and their axes.
type userTail struct {
	lists                address
	places               readable
	exact, words, shift  int32
	line, cell, together int32
	byKeys               int32
	planes, group        int32
}

// newArguments makes the arguments of the problem's kernels, behind which those of tables lie:
// UserArguments in src/attention_user.cuh.
func (c *attention) newArguments() *arguments {
	c.placed = isPlaced(c.Attention)
	if !writesScore(c.Attention) && !c.placed {
		c.argumentBytes = unsafe.Sizeof(arguments{})
		return &arguments{}
	}
	c.user = true
	const word = unsafe.Sizeof(address(0))
	tables := max(1, len(c.Tables))
	first := (unsafe.Sizeof(arguments{}) + word - 1) / word
	behind := int(first) + 2*tables
	tail := behind + int(unsafe.Sizeof(userTail{})/word)
	words := make([]address, tail+max(1, axesOf(c.Tables)))
	c.argumentBytes = uintptr(len(words)) * word
	c.tables, c.sums = words[first:int(first)+tables], words[int(first)+tables:behind]
	c.tail, c.axes = (*userTail)(unsafe.Pointer(&words[behind])), words[tail:]
	axes := 0
	for n, t := range c.Tables {
		c.tables[n] = address(read(t))
		for axis, size := range t.Shape {
			c.axes[axes] = address(uint32(size)) | address(uint32(t.Strides[axis]))<<32
			axes++
		}
	}
	return (*arguments)(unsafe.Pointer(&words[0]))
}

// visitLastFirst makes the kernels begin with the last queries where a mask is a user's: those of
// most masks see most. An end of the window that is behind all keys says so.
func (c *attention) visitLastFirst() {
	const farthest = 1 << 28
	if g := c.args; c.user && c.Attention.Mask != nil && g.causal == 0 && g.right < 0 {
		g.right = farthest
	}
}

// foldBands makes a window of the mask's bands where one window is the same for all sequences and
// there is none: the kernels then go through tiles as for that, and where there is nothing else of
// a user's they are ours. Otherwise they compute the bands.
func (c *attention) foldBands() {
	c.bands = c.Attention.Mask != nil && len(c.Attention.Mask.Bands) > 0
	if !c.bands || c.Causal != kernels.NotCausal || c.Window != nil {
		return
	}
	const far = 1 << 28
	var left, right int // row i sees from i + off − left to i + off + right
	for n, s := range c.Sequences() {
		lo, hi := c.Attention.Mask.Band(c.Where(s, 0))
		off := s.Sk - s.Sq
		l, r := min(off-lo, far), min(hi-off-1, far)
		if n > 0 && (l != left || r != right) || l < -far || r < -far {
			return
		}
		left, right = l, r
	}
	g := c.args
	c.bands = false
	switch {
	case left == far && right == 0:
		g.causal = int32(kernels.CausalBottomRight)
	case left == far && right < 0:
		g.right, g.shift = 0, int32(right)
	case right == far && left < 0:
		g.left, g.shift = 0, int32(-left)
	case left == far:
		g.right = int32(right)
	case right == far:
		g.left = int32(left)
	case left < 0:
		g.left, g.right, g.shift = 0, int32(max(right+left, 0)), int32(-left)
		c.bands = right+left < 0 // nothing is visible
	case right < 0:
		g.left, g.right, g.shift = int32(max(left+right, 0)), 0, int32(right)
		c.bands = right+left < 0
	default:
		g.left, g.right = int32(left), int32(right)
	}
	if !c.bands && c.Score == nil && c.Attention.Mask.Rest == nil {
		c.user, c.argumentBytes = false, unsafe.Sizeof(arguments{})
	}
}

// userLists are the sizes of what a mask's lists are made of, for one kernel: see
// src/attention_user_lists.cuh.
type userLists struct {
	line, cell int
	together   int   // lines that make a tile
	byKeys     int32 // UserLines there
}

// planes are how many lists a line has: one for all heads, or one for each group of so many query
// heads that the mask may tell apart and that a kernel works on together.
func (c *attention) planes() (planes, group int) {
	a := c.Attention
	heads, keyHeads := a.Q.Shape[1], max(1, a.K.Shape[1])
	byHead := func(i score.Instr) bool { return i.Op == score.OpHead }
	switch {
	case !a.Mask.ByHead:
		return 1, heads
	case c.ahead && slices.ContainsFunc(a.Mask.Rest.Code, byHead):
		return heads, 1
	}
	return keyHeads, heads / keyHeads
}

// listsFor are those of a variant; listed reports whether it goes by lists: where a mask is more
// than a band, but not where the order of sums must not change, which a band alone decides.
func (c *attention) listsFor(v variant) (l userLists, listed bool) {
	const gathered = 64 // keys that a mask alone can bring from anywhere
	mask := c.Attention.Mask
	if !c.user || mask == nil || mask.Rest == nil || !c.ahead && c.Deterministic {
		return userLists{}, false
	}
	keys := v.tileK
	if v.boxCols > 0 && c.takesPlain(v) && v.tileK == 2*gathered && !(c.ahead && c.listsCells(v) && alongKeys(mask, keys)) {
		keys = gathered
	}
	switch {
	case c.ahead && v.boxCols > 0:
		return userLists{line: 64, cell: keys, together: v.tileQ / 64}, true
	case c.ahead:
		return userLists{line: v.tileQ, cell: keys, together: 1}, true
	case v.boxCols > 0:
		return userLists{line: keys, cell: v.tileQ, together: v.tileK / keys, byKeys: 1}, true
	}
	return userLists{line: keys, cell: v.tileQ, together: 1, byKeys: 2}, true
}

// alongKeys reports whether a mask is of blocks that end where tiles of so many keys do.
func alongKeys(mask *score.Mask, keys int) bool {
	_, n, _ := mask.Blocks()
	return n > 0 && n%keys == 0
}

// findLists finds the tiles that the mask shows, beyond its band, for a variant: once for a mask
// and lengths, and again on the device when what it looks up has changed.
func (c *attention) findLists(v variant) error {
	l, listed := c.listsFor(v)
	if !listed {
		return nil
	}
	d, tail := c.device, c.tail
	bytes, rows, planes := c.sizeLists(l)
	name := c.lists
	tables, copied, kept := c.maskTables()
	_, keys, alone := c.Attention.Mask.Blocks()
	if alone = alone && keys > 1; alone {
		tables = nil
	}
	find := func(at address) error {
		if err := c.watch(name, tables, at+versionBytes-16, at+address(bytes)); err != nil {
			return err
		}
		tail.lists = at + versionBytes
		return c.launchLists(l, rows, planes, alone)
	}
	if alone { // quicker than to see whether its table has changed
		at, err := c.borrowBytes(bytes)
		if err != nil {
			return err
		}
		return find(at)
	}
	q := d.queue()
	key := c.listsKey(l, tables)
	p := &d.programs
	p.Lock()
	defer p.Unlock()
	if o, ok := p.lists[key]; ok && kept && q.Keep(o) {
		c.pinned = append(c.pinned, o)
		if len(tables) > 0 {
			return find(o.At)
		}
		tail.lists = o.At + versionBytes
		return nil
	}
	if !kept || !q.Makes() {
		at, err := c.borrowZeros(bytes)
		if err != nil {
			return err
		}
		tables = nil
		return find(at)
	}
	b, err := d.Lasting(bytes + copied)
	if err != nil {
		return d.callError(c.name, err)
	}
	o := b.Owned()
	if err := d.zero(o.At, bytes+copied); err != nil {
		return err
	}
	if err := find(o.At); err != nil {
		return err
	}
	if len(p.lists) == mostPrograms || p.lists == nil {
		p.lists = map[string]*driver.Owner{}
	}
	p.lists[key] = o
	c.pinned = append(c.pinned, o)
	return nil
}

// cellChunkBytes is CellChunks::Bytes in src/attention_user_forward_sm90.cu.
const cellChunkBytes = 2*64*4 + 48

// versionBytes lie before lists: their version is the last 16.
const versionBytes = 32

// sizeLists tells kernels of the sizes of lists, and gives the bytes of all, the rows of the
// longest sequence on the axis of lines, and the planes.
func (c *attention) sizeLists(l userLists) (bytes, longestRows, planes int) {
	const listBytes, foundBytes = 32, 3 * 4 // of a list, and behind the bits of each
	const mostBits = 2048
	g, tail := c.args, c.tail
	rows, longest, others := g.sq, g.longestQ, g.longestK
	if l.byKeys != 0 {
		rows, longest, others = g.sk, g.longestK, g.longestQ
	}
	shift, cells := 0, tilesOf(others, l.cell)
	for cells > mostBits<<shift {
		shift++
	}
	words := (cells + 32<<shift - 1) / (32 << shift)
	planes, group := c.planes()
	tail.words, tail.shift, tail.line, tail.cell = int32(words), int32(shift), int32(l.line), int32(l.cell)
	tail.together, tail.byKeys, tail.planes, tail.group = int32(l.together), l.byKeys, int32(planes), int32(group)
	lines := tilesOf(rows, l.line) * int(g.sequences)
	if g.qLens != 0 {
		lines = int(rows)/l.line + int(g.sequences)
	}
	bytes = versionBytes + planes*(lines*(listBytes+3*4*words+foundBytes)+4*int(g.sequences))
	bytes = tilesOf(int32(bytes), versionBytes) * versionBytes
	return bytes, int(longest), planes
}

// launchLists queues what finds lists, of a table of blocks alone or of any mask, for the lines of
// a sequence of up to so many rows.
func (c *attention) launchLists(l userLists, rows, planes int, alone bool) error {
	const warps = 512 / 32
	sequences := int(c.args.sequences)
	blocks := tilesOf(int32(rows), l.line) // of threads: one for each line
	if alone {                             // or a warp
		blocks = tilesOf(int32(blocks), warps)
	}
	bits := shapeOf(c.lists, c.lists, [3]int{blocks, sequences, planes}, 32*warps, 0)
	if err := c.device.launch(bits, nil, unsafe.Pointer(c.args)); err != nil || alone && l.byKeys == 0 {
		return err
	}
	return c.device.launch(shapeOf(c.lists, "attention_lists", [3]int{sequences, planes, 1}, 256, 0), nil, unsafe.Pointer(c.args))
}

// listsKey is all that the lists of a mask depend on, but what its tables hold.
func (c *attention) listsKey(l userLists, tables []kernels.Tensor) string {
	g := c.args
	key := fmt.Sprint(c.lists, l, g.sequences, g.heads, g.keyHeads, g.sq, g.sk, g.causal, g.left, g.right, g.shift, c.QLens, c.KVLens, c.KVLengths)
	for _, t := range tables {
		key += fmt.Sprint(" ", t.Data, t.Shape)
	}
	return key
}

// listsModule finds lists of the problem's mask.
func (c *attention) listsModule() userModule {
	return userModule{source: "attention_user_lists.cu", program: c.program(), arch: c.device.arch(), defines: append(c.userDefines(), "USER_LISTS=0")}
}

// maskTables are the tables that the mask looks up, and the bytes of their copies; kept reports
// whether their changes can be watched, which needs that each lies in one piece of whole words, and
// that the copies are small.
func (c *attention) maskTables() (tables []kernels.Tensor, bytes int, kept bool) {
	const most = 16 << 20
	seen := map[int]bool{}
	for _, i := range c.Attention.Mask.Rest.Code {
		if i.Op != score.OpLookup || seen[i.Table] {
			continue
		}
		seen[i.Table] = true
		t := c.Tables[i.Table]
		size := t.Elements() * t.DType.Size()
		if !t.IsRowMajor() || size%4 != 0 || read(t)%4 != 0 {
			return nil, 0, false
		}
		tables = append(tables, t)
		bytes += size
	}
	return tables, bytes, bytes <= most
}

// lookedUp is a table that is watched: LookedUpArguments in src/attention_user_lists.cu.
type lookedUp struct {
	table         readable
	copy, version address
	words         int64
}

// watch raises a version where a table has changed since the last time. Copies of them all lie at
// an address.
func (c *attention) watch(module string, tables []kernels.Tensor, version, copies address) error {
	const threads, mostBlocks = 256, 512
	for _, t := range tables {
		l := lookedUp{read(t), copies, version, int64(t.Elements() * t.DType.Size() / 4)}
		copies += address(4 * l.words)
		blocks := int(min(mostBlocks, (l.words+threads-1)/threads))
		s := shapeOf(module, "attention_looked_up", [3]int{max(1, blocks), 1, 1}, threads, 0)
		if err := c.device.launch(s, nil, unsafe.Pointer(&l)); err != nil {
			return err
		}
	}
	return nil
}

// programs are what was written for scores and masks, and the lists of masks by what they depend
// on.
type programs struct {
	sync.Mutex
	written map[programKey]string
	lists   map[string]*driver.Owner
}

// programKey is all that a program depends on.
type programKey struct {
	score   *score.Score
	mask    *score.Mask
	options bool
	bands   bool
	tables  string // their types and axes
}

// mostPrograms is how many a device remembers before it begins anew.
const mostPrograms = 256

// program finds the text of the problem's score and mask, or writes it.
func (c *attention) program() string {
	options := c.changesScores()
	var tables strings.Builder
	for _, t := range c.Tables {
		fmt.Fprint(&tables, t.DType, len(t.Shape))
	}
	key := programKey{c.Score, c.Attention.Mask, options, c.bands, tables.String()}
	p := &c.device.programs
	p.Lock()
	defer p.Unlock()
	text, ok := p.written[key]
	if !ok {
		if text = programOf(c.Attention, options, c.bands); len(p.written) == mostPrograms || p.written == nil {
			p.written = map[programKey]string{}
		}
		p.written[key] = text
	}
	return text
}

// changesScores reports whether options of ours change the scores too.
func (c *attention) changesScores() bool {
	return c.EffectiveScale() < 0 || c.SoftCap > 0 || c.ALiBi != nil || c.Bias.IsSet()
}

// gainsFit reports whether the derivatives of a user's score fit where backward kernels with tensor
// maps keep them: one float16 a score, which has no room for those of options too, and not for the
// score itself, which some derivatives of tables need.
func (c *attention) gainsFit() bool {
	if c.changesScores() {
		return c.placed && !c.Bias.IsSet() // the gains are those of options alone
	}
	s := c.Score
	if s == nil {
		return true
	}
	const most = 1 << 12 // far from float16's end
	lo, hi := s.Backward.Bounds(s.Backward.Results[1])
	for _, g := range s.Lookups {
		if s.Backward.Code[g.Slope].ByScore {
			return false
		}
	}
	return lo >= -most && hi <= most
}

// changesByUser reports whether a user's score takes kernels that change scores. A mask does not.
func (c *attention) changesByUser() bool { return c.Score != nil }

// fitsPlain reports whether a user's score and mask can have the tiles of plain scores, which leave
// no places for a bias: with tensor maps, a mask alone, and ahead a score too, where dropout draws
// for whole tiles.
func (c *attention) fitsPlain(v *variant) bool {
	const drawn = 64 // keys that dropout draws for together
	return v.boxCols > 0 && (!c.modifies() || c.ahead && !c.Bias.IsSet() && v.tileK%drawn == 0)
}

// chooseFor finds the variant for the problem. That of a user's score or mask is compiled.
func (c *attention) chooseFor(lists [][]variant, tensors ...kernels.Tensor) (variant, error) {
	v, err := c.choose(lists, tensors...)
	if err != nil || !c.user {
		return v, err
	}
	v, listed := c.withLists(c.alongBlocks(v))
	m := c.moduleOf(v)
	v.name = m.name()
	if listed {
		lists := c.listsModule()
		c.lists = lists.name()
		return v, c.device.loadUser(m, lists)
	}
	return v, c.device.loadUser(m)
}

// withLists is a variant with the boxes and the shared memory that its lists need, and whether it
// goes by any.
func (c *attention) withLists(v variant) (_ variant, listed bool) {
	l, listed := c.listsFor(v)
	if listed && v.boxCols > 0 {
		if v.boxK = l.cell; l.byKeys != 0 {
			v.boxK = l.line
		} else if c.listsCells(v) {
			v.sharedBytes += cellChunkBytes
		}
	}
	return v, listed
}

// alongBlocks is the variant of v's size and type whose tiles end where the blocks of the mask do,
// if there is one.
func (c *attention) alongBlocks(v variant) variant {
	queries, keys, _ := c.Attention.Mask.Blocks()
	switch {
	case queries == 0 || v.boxCols == 0 || !c.takesPlain(v):
		return v
	case c.ahead:
		return forward90AlongBlocks(v, queries, c.pairsOfHeads())
	}
	return backward90AlongBlocks(v, queries, keys)
}

// pairsOfHeads reports whether pairs of neighbouring query heads have keys and mask in common.
func (c *attention) pairsOfHeads() bool {
	_, group := c.planes()
	return group%2 == 0 && c.args.heads/max(1, c.args.keyHeads)%2 == 0
}

// takesPlain reports whether a variant of a user's takes scores as they come.
func (c *attention) takesPlain(v variant) bool { return !v.mod && !c.modifies() }

// listsCells reports whether a variant that goes by lists is compiled with USER_LISTER.
func (c *attention) listsCells(v variant) bool { return c.takesPlain(v) && max(v.d, v.dv) <= 128 }

// moduleOf is a variant compiled with the problem's score and mask, and told how it goes by lists.
func (c *attention) moduleOf(v variant) userModule {
	policy := "SCORE=UserScore"
	if c.takesPlain(v) {
		policy = "SCORE=UserPlain"
	}
	m := c.moduleOfPolicy(v, policy)
	if l, listed := c.listsFor(v); listed {
		m.defines = append(m.defines, "USER_LISTS=1", fmt.Sprintf("USER_LINE=%d", l.line), fmt.Sprintf("USER_CELL=%d", l.cell))
		if c.listsCells(v) {
			m.defines = append(m.defines, "USER_LISTER=1")
		}
	} else {
		m.defines = append(m.defines, "USER_LISTS=0")
	}
	return m
}

// moduleOfPolicy is a variant compiled with the problem's score and mask, by a policy of scores.
func (c *attention) moduleOfPolicy(v variant, policy string) userModule {
	compiled := v.module()
	m := userModule{source: strings.Replace(compiled.Source, "attention_", "attention_user_", 1), program: c.program(), arch: c.device.arch(), placed: c.placed}
	for _, define := range compiled.Defines {
		if name, _, _ := strings.Cut(define, "="); name != "KERNEL" && name != "SCORE" {
			m.defines = append(m.defines, define)
		}
	}
	m.defines = append(m.defines, append(c.userDefines(), policy)...)
	return m
}

// userDefines tell the compiler of the arguments, whether there is dropout, and whether it and
// slopes are those of a larger problem.
func (c *attention) userDefines() []string {
	drops, places := 0, 0
	if c.Dropout.P > 0 {
		drops = 1
	}
	if c.placed {
		places = userPlaces(c.Attention)
	}
	return []string{fmt.Sprintf("USER_TABLES=%d", len(c.tables)), fmt.Sprintf("USER_AXES=%d", len(c.axes)),
		fmt.Sprintf("ARGUMENT_BYTES=%d", c.argumentBytes), fmt.Sprintf("USER_DROPS=%d", drops), fmt.Sprintf("USER_PLACES=%d", places)}
}

// arch names the device's own instructions to the compiler.
func (d *Device) arch() string {
	if d.Major == 9 && d.Minor == 0 {
		return "sm_90a"
	}
	return fmt.Sprintf("sm_%d%d", d.Major, d.Minor)
}

// exactSumBytes is the size of ExactSum in src/attention_user.cuh.
const exactSumBytes = 12*8 + 8

// exactSums are sums that attention_sums rounds: SumsArguments in src/attention_user_sums.cuh.
type exactSums struct {
	from  address
	to    writable
	count int64
}

// prepareTables says where the gradients of tables are summed: in float32, straight in their place
// where that has this type. Sums of which the order must not count are longer, and rounded by
// roundTables.
func (c *attention) prepareTables(gradients []kernels.Tensor) (exact []exactSums, err error) {
	for n, t := range gradients {
		if !t.IsSet() {
			continue
		}
		sums := t
		if t.DType != kernels.F32 {
			if sums, err = c.borrow(kernels.F32, t.Shape...); err != nil {
				return nil, err
			}
			c.results = append(c.results, pair{t, sums})
		}
		c.sums[n] = written(sums).Address()
		if !c.Deterministic {
			if err := c.device.zero(c.sums[n], sums.Elements()*sums.DType.Size()); err != nil {
				return nil, err
			}
			continue
		}
		e := exactSums{to: written(sums), count: int64(sums.Elements())}
		if e.from, err = c.borrowZeros(sums.Elements() * exactSumBytes); err != nil {
			return nil, err
		}
		c.sums[n], c.tail.exact = e.from, 1
		exact = append(exact, e)
	}
	return exact, nil
}

// roundTables writes the gradients that exact sums have, with a kernel of v's module.
func (c *attention) roundTables(v variant, exact []exactSums) error {
	const threads = 128
	for _, e := range exact {
		blocks := int((e.count + threads - 1) / threads)
		s := shapeOf(v.name, "attention_sums", [3]int{blocks, 1, 1}, threads, 0)
		if err := c.device.launch(s, nil, unsafe.Pointer(&e)); err != nil {
			return err
		}
	}
	return nil
}
