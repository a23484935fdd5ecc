// Finds what a user's mask shows: see attention_user_lists.cuh. A line's bits are found by a block,
// or by a warp where the mask is a table of blocks, and then the lists of a plane's sequence by one
// block. What such a table shows is found in each call, which takes less than to see whether the
// table has changed.
//
// Before the lists lies the version of what the mask looks up. Behind them lie, for each line, the
// bits of cells of which something is visible and of those that are visible as a whole, an order
// and a count, and the version that its bits were found for, plus one; then that of the lists of
// each sequence of each plane.
#include "attention_user_lists.cuh"

constexpr int LIST_THREADS = 512, LIST_WARPS = LIST_THREADS / 32, MOST_WORDS = 64;

// Finder is a sequence's part of a plane of this memory.
struct Finder : UserLists {
  const Sequence s;
  const int plane;
  // of the sequence: on the axis of lines, on that of cells, and how many of these
  const int rows, columns, cells;
  const int own, first;            // lines of the sequence, and those of the sequences before

  DEVICE Finder(const UserArguments& a, int index, int plane) : Finder(a, sequenceOf(a, index), plane) {}
  DEVICE Finder(const UserArguments& a, const Sequence& s, int plane)
      : UserLists(a, a.byKeys ? a.sk : a.sq, a.line), s(s), plane(plane), rows(a.byKeys ? s.sk : s.sq), columns(a.byKeys ? s.sq : s.sk),
        cells((columns + a.cell - 1) / a.cell), own((rows + a.line - 1) / a.line),
        first(before(plane, s.index, a.byKeys ? a.sk : a.sq, a.byKeys ? s.k0 : s.q0, a.line)) {}

  DEVICE UserList* of(int line) const { return (UserList*)list(first + line); }
  DEVICE uint32_t* tile(int line) const { return (uint32_t*)bits(first + line); }
  DEVICE uint32_t* seen(int line) const { return tile(line) + (int64_t)lines * a.words; }
  DEVICE uint32_t* whole(int line) const { return seen(line) + (int64_t)lines * a.words; }
  DEVICE int* behind() const { return (int*)bits(3 * lines); }  // the bits of all lines
  DEVICE int* order(int line) const { return behind() + first + line; }
  DEVICE int* counted(int line) const { return order(line) + lines; }
  DEVICE int* found(int line) const { return counted(line) + lines; }
  DEVICE int* listed() const { return behind() + 3 * (int64_t)lines + plane * a.sequences + s.index; }
  DEVICE int version() const { return *((const int*)a.lists - 4) + 1; }

  // findBits finds the bits of a line: a warp one after the other.
  DEVICE void findBits(int line) const {
    __shared__ uint32_t some[MOST_WORDS], all[MOST_WORDS];
    const UserMask mask = UserMask::of(a, s);
    const int top = line * a.line, end = min(top + a.line, rows), size = a.cell << a.shift, lane = threadIdx.x % 32;
    for (int n = threadIdx.x; n < a.words; n += LIST_THREADS) some[n] = all[n] = 0;
    __syncthreads();
    for (int bit = threadIdx.x / 32; bit * size < columns; bit += LIST_WARPS) {
      const int from = bit * size;
      if (a.byKeys ? mask.none(from, size, top, a.line) : mask.none(top, a.line, from, size)) continue;
      bool one = false, each = true;
      for (int other = from + lane; other < min(from + size, columns); other += 32)
        for (int row = top; row < end && (!one || each); row++) {
          const int visible = visibleOf(mask, a.byKeys ? other : row, a.byKeys ? row : other);
          one |= visible != 0, each &= visible == 2;
        }
      const bool complete = from + size <= columns && (!a.byKeys || top + a.line <= rows);
      one = __any_sync(~0u, one), each = __all_sync(~0u, each && complete);
      if (lane == 0 && one) atomicOr(some + bit / 32, 1u << bit % 32);
      if (lane == 0 && each) atomicOr(all + bit / 32, 1u << bit % 32);
    }
    __syncthreads();
    for (int n = threadIdx.x; n < a.words; n += LIST_THREADS) seen(line)[n] = some[n], whole(line)[n] = all[n];
  }
  // findBlocks finds the bits of a line whose mask is a table of blocks: a warp does.
  DEVICE void findBlocks(int line) const {
    const UserMask mask = UserMask::of(a, s);
    const int top = line * a.line, end = min(top + a.line, rows), size = a.cell << a.shift, lane = threadIdx.x % 32;
#pragma unroll 4
    for (int n = 0; n < a.words; n++) {
      const int from = (32 * n + lane) * size, to = min(from + size, columns);
      const int visible = from >= columns ? 0 : a.byKeys ? blocksOf(mask, from, to, top, end) : blocksOf(mask, top, end, from, to);
      const bool complete = from + size <= columns && (!a.byKeys || top + a.line <= rows);
      const uint32_t some = __ballot_sync(~0u, visible), all = __ballot_sync(~0u, visible == 2 && complete);
      if (lane == 0) seen(line)[n] = some, whole(line)[n] = all;
    }
  }
  // blocksOf is 2 where a plane's heads see all pairs from a query and a key up to others, and 0
  // where they see none. Of pairs that a band divides it looks at those beyond the band too.
  DEVICE int blocksOf(const UserMask& mask, int query, int queryEnd, int key, int keyEnd) const {
    if (mask.none(query, queryEnd - query, key, keyEnd - key)) return 0;
    bool one = false, each = mask.BandMask::whole(query, queryEnd - query, key, keyEnd - key);
    for (int i = query; i < queryEnd; i = (i / USER_BLOCK_QUERIES + 1) * USER_BLOCK_QUERIES)
      for (int j = key; j < keyEnd && (!one || each); j = (j / USER_BLOCK_KEYS + 1) * USER_BLOCK_KEYS) {
        const int visible = headsOf(i, j);
        one |= visible != 0, each &= visible == 2;
      }
    return one + (one && each);
  }
  // visibleOf is 2 where all of a plane's heads see a pair, 1 where some do.
  DEVICE int visibleOf(const UserMask& mask, int query, int key) const {
    return key < query + mask.lo || key >= query + mask.hi ? 0 : headsOf(query, key);
  }
  // headsOf is that without the band.
  DEVICE int headsOf(int query, int key) const {
    bool one = false, each = true;
    for (int head = USER_MASK_BY_HEAD ? plane * a.group : 0; head < (USER_MASK_BY_HEAD ? (plane + 1) * a.group : 1); head++) {
      const bool visible = userVisible(a, UserPair{0, s.index, head, head / (a.heads / a.keyHeads), query, key, s.sq, s.sk});
      one |= visible, each &= visible;
    }
    return one + each;
  }

  // widen makes [from, to) the clean cells if they are more.
  static DEVICE void widen(UserList& l, int from, int to) {
    if (to - from > l.cleanEnd - l.cleanFirst) l.cleanFirst = from, l.cleanEnd = to;
  }
  // below are the bits before the highest one of `bits`, and that one.
  static DEVICE uint32_t below(uint32_t bits) { return ~0u >> __clz(bits); }

  // listQueries lists the cells of a line's tile.
  DEVICE void listQueries(int line) const {
    const int top = line / a.together * a.together, end = min(top + a.together, own);
    UserList l = {};
    l.beyond = cells;
    int run = 0;  // where those begin that the line sees as a whole
    for (int n = 0; n < a.words; n++) {
      uint32_t all = 0;
      for (int other = top; other < end; other++) all |= seen(other)[n];
      if (line == top) tile(line)[n] = all;
      if (!all) continue;
      const int before = l.count;
      const auto upTo = [&](uint32_t bits) { return before + (__popc(all & bits) << a.shift); };
      const uint32_t mine = seen(line)[n];
      if (mine) {
        if (l.end == 0) l.first = upTo((mine & -mine) - 1);
        l.end = upTo(below(mine));
      }
      for (uint32_t others = all & ~whole(line)[n]; others; others &= others - 1) {
        const uint32_t bit = others & -others;
        widen(l, run, upTo(bit - 1));
        run = upTo(below(bit));
      }
      l.count = upTo(~0u), l.start = (32 * n + 32 - __clz(all)) << a.shift;
    }
    widen(l, run, l.count);
    const int missing = max(0, l.start - cells);  // the last bit may have fewer cells
    if (l.end == l.count) l.end -= missing;
    if (l.cleanEnd == l.count) l.cleanEnd = max(l.cleanFirst, l.cleanEnd - missing);
    l.start -= missing, l.count -= missing;
    *of(line) = l;
  }

  // countCells counts what sees a line, and orderKeys puts those first that are seen by most,
  // unless InPlace: lines that make a tile then are seen by about as many, and the longest tiles
  // come first. Lines that are seen by a sixteenth of the most or more keep their order, and so do
  // the others, since neighbours are often seen by the same; those that nothing sees are last.
  DEVICE int countCells(int line) const {
    int count = 0;
    for (int n = 0; n < a.words; n++) count += __popc(seen(line)[n]);
    return *counted(line) = count;
  }
  DEVICE int rank(int line, int most) const {
    const int count = *counted(line);
    return a.byKeys == InPlace ? 0 : count >= (most + 15) / 16 && count > 0 ? 2 : count > 0;
  }
  DEVICE void orderKeys(int line, int most) const {
    const int mine = rank(line, most);
    int at = 0;
    for (int other = 0; other < own; other++) {
      const int theirs = rank(other, most);
      at += theirs > mine || theirs == mine && other < line;
    }
    *order(at) = line;
  }
  // listKeys lists the cells of a tile of one or two lines.
  DEVICE void listKeys(int at) const {
    const int x = *order(at * a.together), next = at * a.together + a.together - 1, y = next < own ? *order(next) : own;
    UserList l = {};
    l.line0 = x, l.line1 = y;
    int run = 0;
    for (int n = 0; n < a.words; n++) {
      const bool two = y < own;
      const uint32_t some = seen(x)[n] | (two ? seen(y)[n] : 0), all = whole(x)[n] & (two ? whole(y)[n] : 0);
      tile(at)[n] = some;
      if (!some) continue;
      const auto endOf = [&](uint32_t bits) { return (32 * n + 32 - __clz(bits)) << a.shift; };
      if (l.count == 0) l.first = (32 * n + __ffs(some) - 1) << a.shift;
      for (uint32_t others = some & ~all; others; others &= others - 1) {
        const uint32_t bit = others & -others, before = some & (bit - 1);
        widen(l, run, before ? endOf(before) : l.end);
        run = endOf(bit);
      }
      l.count += __popc(some) << a.shift, l.end = endOf(some);
    }
    widen(l, run, l.end);
    const int missing = max(0, l.end - cells);
    if (l.cleanEnd == l.end) l.cleanEnd = max(l.cleanFirst, l.cleanEnd - missing);
    l.end -= missing, l.count -= missing;
    *of(at) = l;
  }
};

extern "C" __global__ void __launch_bounds__(LIST_THREADS) KERNEL(const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  const Finder f(a, blockIdx.y, blockIdx.z);
  if constexpr (USER_BLOCK_KEYS > 1) {
    // a warp lists one line of keys, or the lines of one tile of queries together
    const int warp = blockIdx.x * LIST_WARPS + threadIdx.x / 32, together = a.byKeys ? 1 : a.together;
    const int top = warp * together, end = min(top + together, f.own);
    for (int line = top; line < end; line++) f.findBlocks(line);
    __syncwarp();
    const int mine = top + threadIdx.x % 32;
    if (!a.byKeys && mine < end) f.listQueries(mine);
    return;
  }
  const int line = blockIdx.x, version = f.version();
  if (line >= f.own || *f.found(line) == version) return;
  __syncthreads();
  f.findBits(line);
  if (threadIdx.x == 0) *f.found(line) = version;
}

extern "C" __global__ void __launch_bounds__(256) attention_lists(const __grid_constant__ UserArguments a) {
  const Finder f(a, blockIdx.x, blockIdx.y);
  const int version = f.version(), lines = f.own;
  if (USER_BLOCK_KEYS == 1 && *f.listed() == version) return;
  __syncthreads();
  if (a.byKeys) {
    __shared__ int most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    for (int line = threadIdx.x; line < lines; line += blockDim.x) atomicMax(&most, f.countCells(line));
    __syncthreads();
    for (int line = threadIdx.x; line < lines; line += blockDim.x) f.orderKeys(line, most);
    __syncthreads();
    for (int at = threadIdx.x; at * a.together < lines; at += blockDim.x) f.listKeys(at);
  } else {
    for (int line = threadIdx.x; line < lines; line += blockDim.x) f.listQueries(line);
  }
  if (threadIdx.x == 0) *f.listed() = version;
}

// LookedUpArguments is lookedUpArguments in attention_score.go.
struct LookedUpArguments {
  const uint32_t* table;
  uint32_t* copy;
  int* version;
  int64_t words;
};

// attention_looked_up copies a table that a mask looks up, and raises the version where it is not
// what the copy was.
extern "C" __global__ void attention_looked_up(const __grid_constant__ LookedUpArguments a) {
  bool differs = false;
  for (int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; at < a.words; at += gridDim.x * (int64_t)blockDim.x) {
    const uint32_t word = a.table[at];
    if (a.copy[at] == word) continue;
    a.copy[at] = word;
    differs = true;
  }
  if (differs) atomicAdd(a.version, 1);
}
