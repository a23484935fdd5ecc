//go:build gpu

package cuda

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// This file computes attention with a score or a mask that a user wrote. Its kernels are the others' with another policy for scores,
// src/attention_user.cuh, compiled when a problem is first met.

// writesScore reports whether a problem has a score or a mask of its own.
func writesScore(a *kernels.Attention) bool { return a.Score != nil || a.Mask != nil }

// mostTables and mostAxes are how many tables a kernel's arguments have room for, and how many axes of all of them.
const mostTables, mostAxes = 64, 256

func axesOf(tables []kernels.Tensor) (axes int) {
	for _, t := range tables {
		axes += len(t.Shape)
	}
	return axes
}

// newArguments makes the arguments of the problem's kernels, behind which those of tables lie: UserArguments in
// src/attention_user.cuh.
func (c *attention) newArguments() *arguments {
	if !writesScore(c.Attention) {
		c.argumentBytes = unsafe.Sizeof(arguments{})
		return &arguments{}
	}
	c.user = true
	const word = unsafe.Sizeof(address(0))
	tables := max(1, len(c.Tables))
	first := (unsafe.Sizeof(arguments{}) + word - 1) / word
	words := make([]address, int(first)+2*tables+2+max(1, axesOf(c.Tables)))
	c.argumentBytes = uintptr(len(words)) * word
	c.tables, c.sums, c.exact = words[first:int(first)+tables], words[int(first)+tables:int(first)+2*tables], &words[int(first)+2*tables+1]
	c.hulls, c.axes = &words[int(first)+2*tables], words[int(first)+2*tables+2:]
	axes := 0
	for n, t := range c.Tables {
		c.tables[n] = addressOf(t)
		for axis, size := range t.Shape {
			c.axes[axes] = address(uint32(size)) | address(uint32(t.Strides[axis]))<<32
			axes++
		}
	}
	return (*arguments)(unsafe.Pointer(&words[0]))
}

// visitLastFirst makes the kernels begin with the last queries where a mask is a user's: those of most masks see most. An end of the
// window that is behind all keys says so.
func (c *attention) visitLastFirst() {
	const farthest = 1 << 28
	if g := c.args; c.user && c.Attention.Mask != nil && g.causal == 0 && g.right < 0 {
		g.right = farthest
	}
}

// foldBands makes a window of the mask's bands where one window is the same for all sequences and there is none: the kernels then go
// through tiles as for that, and where there is nothing else of a user's they are ours. Otherwise they compute the bands.
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

// hullRows is USER_HULL in src/attention_user.cuh, hullBytes the size of a hull, versionBytes what lies before all of them, and
// foundBytes what lies behind them for each.
const hullRows, hullBytes, versionBytes, foundBytes = 16, 16, 16, 4

// findHulls finds the tiles that the mask shows, beyond its band: once for a mask and lengths, and again on the device when what it
// looks up has changed.
func (c *attention) findHulls() error {
	mask, g, d := c.Attention.Mask, c.args, c.device
	if mask == nil || mask.Rest == nil {
		return nil
	}
	m := userModule{source: "attention_user_hulls.cu", program: c.program(), arch: d.arch(), defines: c.userDefines()}
	name, err := d.loadUser(m)
	if err != nil {
		return err
	}
	slots := func(rows int32) int {
		if g.qLens != 0 {
			return int(rows)/hullRows + int(g.sequences)
		}
		return tilesOf(rows, hullRows) * int(g.sequences)
	}
	bytes := versionBytes + (slots(g.sq)+slots(g.sk))*(hullBytes+foundBytes)
	bytes = tilesOf(int32(bytes), versionBytes) * versionBytes
	s := launchShape{kernelName{name, name}, [3]int{tilesOf(max(g.longestQ, g.longestK), hullRows), int(g.sequences), 2}, 128, 0}
	tables, copied, kept := c.maskTables()
	find := func(at address) error {
		if err := c.watch(name, tables, at, at+address(bytes)); err != nil {
			return err
		}
		*c.hulls = at + versionBytes
		return d.launch(s, nil, unsafe.Pointer(g))
	}
	recording := d.memory.recording.Load()
	key := fmt.Sprint(name, g.sequences, g.heads, g.keyHeads, g.sq, g.sk, g.causal, g.left, g.right, g.shift, c.QLens, c.KVLens, c.KVLengths)
	for _, t := range tables {
		key += fmt.Sprint(" ", t.Data, t.Shape)
	}
	p := &d.programs
	p.Lock()
	defer p.Unlock()
	if o, ok := p.hulls[key]; ok && kept {
		if recording != nil {
			recording.keepConstant(o)
		}
		c.pinned = append(c.pinned, o)
		if len(tables) > 0 {
			return find(o.at)
		}
		*c.hulls = o.at + versionBytes
		return nil
	}
	if recording != nil || !kept {
		at, err := c.borrowZeros(bytes + copied)
		if err != nil {
			return err
		}
		tables = nil
		return find(at)
	}
	b, err := d.memory.getLasting(bytes + copied)
	if err != nil {
		return d.callError(c.name, err)
	}
	o := b.owned()
	if err := d.zero(o.at, bytes+copied); err != nil {
		return err
	}
	if err := find(o.at); err != nil {
		return err
	}
	if len(p.hulls) == mostPrograms || p.hulls == nil {
		p.hulls = map[string]*owner{}
	}
	p.hulls[key] = o
	c.pinned = append(c.pinned, o)
	return nil
}

// maskTables are the tables that the mask looks up, and the bytes of their copies; kept reports whether their changes can be watched,
// which needs that each lies in one piece of whole words, and that the copies are small.
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
		if !t.IsRowMajor() || size%4 != 0 || addressOf(t)%4 != 0 {
			return nil, 0, false
		}
		tables = append(tables, t)
		bytes += size
	}
	return tables, bytes, bytes <= most
}

// lookedUp is a table that is watched: LookedUpArguments in src/attention_user_hulls.cu.
type lookedUp struct {
	table, copy, version address
	words                int64
}

// watch raises a version where a table has changed since the last time. Copies of them all lie at an address.
func (c *attention) watch(module string, tables []kernels.Tensor, version, copies address) error {
	const threads, mostBlocks = 256, 512
	for _, t := range tables {
		l := lookedUp{addressOf(t), copies, version, int64(t.Elements() * t.DType.Size() / 4)}
		copies += address(4 * l.words)
		blocks := int(min(mostBlocks, (l.words+threads-1)/threads))
		s := launchShape{kernelName{module, "attention_looked_up"}, [3]int{max(1, blocks), 1, 1}, threads, 0}
		if err := c.device.launch(s, nil, unsafe.Pointer(&l)); err != nil {
			return err
		}
	}
	return nil
}

// programs are what was written for scores and masks, and the hulls of masks by what they depend on.
type programs struct {
	sync.Mutex
	written map[programKey]string
	hulls   map[string]*owner
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

// gainsFit reports whether the derivatives of a user's score fit where backward kernels with tensor maps keep them: one float16 a score,
// which has no room for those of options too, and not for the score itself, which some derivatives of tables need.
func (c *attention) gainsFit() bool {
	if c.changesScores() {
		return false
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

// changesByUser reports whether a user's score or mask takes kernels that change scores. A mask that is the same for all heads does not.
func (c *attention) changesByUser() bool {
	return c.user && (c.Score != nil || c.Attention.Mask.ByHead)
}

// fitsPlain reports whether a user's score and mask can have the tiles of plain scores, which leave no places for a bias: with tensor
// maps, a mask alone, and ahead a score too, where dropout draws for whole tiles.
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
	v.name, err = c.device.loadUser(c.moduleOf(v))
	return v, err
}

// moduleOf is a variant with the problem's score and mask.
func (c *attention) moduleOf(v variant) userModule {
	compiled := v.module()
	m := userModule{source: strings.Replace(compiled.Source, "attention_", "attention_user_", 1), program: c.program(), arch: c.device.arch()}
	for _, define := range compiled.Defines {
		if name, _, _ := strings.Cut(define, "="); name != "KERNEL" && name != "SCORE" {
			m.defines = append(m.defines, define)
		}
	}
	policy := "SCORE=UserPlain"
	if v.mod || c.modifies() {
		policy = "SCORE=UserScore"
	}
	m.defines = append(m.defines, append(c.userDefines(), policy)...)
	return m
}

// userDefines tell the compiler of the arguments and the policy.
func (c *attention) userDefines() []string {
	return []string{fmt.Sprintf("USER_TABLES=%d", len(c.tables)), fmt.Sprintf("USER_AXES=%d", len(c.axes)),
		fmt.Sprintf("ARGUMENT_BYTES=%d", c.argumentBytes)}
}

// arch names the device's own instructions to the compiler.
func (d *Device) arch() string {
	if d.major == 9 && d.minor == 0 {
		return "sm_90a"
	}
	return fmt.Sprintf("sm_%d%d", d.major, d.minor)
}

// exactSumBytes is the size of ExactSum in src/attention_user.cuh.
const exactSumBytes = 12*8 + 8

// exactSums are sums that attention_sums rounds: SumsArguments in src/attention_user_sums.cuh.
type exactSums struct {
	from, to address
	count    int64
}

// prepareTables says where the gradients of tables are summed: in float32, straight in their place where that has this type. Sums of
// which the order must not count are longer, and rounded by roundTables.
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
		c.sums[n] = addressOf(sums)
		if !c.Deterministic {
			if err := c.device.zero(c.sums[n], sums.Elements()*sums.DType.Size()); err != nil {
				return nil, err
			}
			continue
		}
		e := exactSums{to: addressOf(sums), count: int64(sums.Elements())}
		if e.from, err = c.borrowZeros(sums.Elements() * exactSumBytes); err != nil {
			return nil, err
		}
		c.sums[n], *c.exact = e.from, 1
		exact = append(exact, e)
	}
	return exact, nil
}

// roundTables writes the gradients that exact sums have, with a kernel of v's module.
func (c *attention) roundTables(v variant, exact []exactSums) error {
	const threads = 128
	for _, e := range exact {
		blocks := int((e.count + threads - 1) / threads)
		s := launchShape{kernelName{v.name, "attention_sums"}, [3]int{blocks, 1, 1}, threads, 0}
		if err := c.device.launch(s, nil, unsafe.Pointer(&e)); err != nil {
			return err
		}
	}
	return nil
}
