// Attention forward for sm_90a, with a user's score or mask: see attention_user.cuh.
//
// Where it goes by lists, a key tile is one cell that the tile of queries sees, or two, which may
// lie apart: the producer writes which ones beside the barriers, and what of ForwardProducer and
// ForwardConsumer has to do with the place of keys stands here. A tile's number is then its place
// among those that the queries see. With -DUSER_LISTER, for masks alone and heads of up to 128, the
// scheduler finds the cells; otherwise the producer does.
#include "attention_user_lists.cuh"

#include "attention_forward_sm90.cuh"

using Shape = ForwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q / 64 * TILE_HEADS, TILE_K, STAGES, STAGES_Q, STAGES_BIAS, TILE_HEADS>;
using Consumer = ForwardConsumer<Shape, SCORE>;

#if !USER_DROPS
// What takes the compiler long is left out where nothing is dropped.
template <> DEVICE void Consumer::drawDropout(int) {}
template <> DEVICE void Consumer::roundP(bool half) {
#pragma unroll
  for (int i = 0; i < TileK / 8; i++)
#pragma unroll
    for (int r = 0; r < 2; r++) p[2 * i + r] = half && i >= TileK / 16 ? 0 : pack(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]);
}
#endif

template <> DEVICE UserMask maskOf<SCORE>(const AttentionArguments& a, const Sequence& s, int head) { return UserMask::of(a, s, head); }

#if USER_LISTS
constexpr int CELLS = TILE_K / USER_CELL;  // of a key tile
static_assert(USER_LINE == 64 && (CELLS == 1 || CELLS == 2 && !SCORE::CHANGES), "attention_score.go has other lists");

// lineOf is the number of the line that a row of a sequence is in, which begins at q0, for a head.
DEVICE int lineOf(const UserLists& lists, int head, int sequence, int q0, int row) {
  return lists.before(lists.planeOf(head), sequence, lists.a.sq, q0, USER_LINE) + row / USER_LINE;
}
DEVICE UserLists userLists(const AttentionArguments& a) { return {(const UserArguments&)a, a.sq, USER_LINE}; }

// touch brings what lies at p into the multiprocessor's cache, without waiting for it.
template <class T> DEVICE void touch(const T* p) {
  uint32_t x;
  asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(x) : "l"(p));
}

template <int SIZE> DEVICE Tiles keyTiles(const UserMask& m, int row, int rows) {
  static_assert(SIZE == TILE_K, "lists are of the kernel's own tiles");
  if (row >= m.sq) return {0, 0, 0, 0};
  const UserLists lists = userLists(*m.a);
  const UserList* const l = lists.list(lineOf(lists, m.head, m.s.index, m.s.q0, row));
  const int count = __ldg(&l->count);
  if (threadIdx.x < 128) {  // whoever reads the list next is in a hurry
    touch(&l->first);
#if !USER_LISTER
    if (count) touch(lists.bits(lineOf(lists, m.head, m.s.index, m.s.q0, row)) + ((__ldg(&l->start) - 1) >> lists.a.shift) / 32);
#endif
  }
  if (rows > USER_LINE) return {0, (count + CELLS - 1) / CELLS, 0, 0};
  const int4 own = __ldg((const int4*)&l->first);
  // what the last tile lacks is hidden without the mask
  const int cleanEnd = own.w == count ? own.w + CELLS - 1 : own.w;
  return {own.x / CELLS, (own.y + CELLS - 1) / CELLS, (own.z + CELLS - 1) / CELLS, cleanEnd / CELLS};
}

// cellsAt is where the cells of a key tile stand: the one that K's or V's ring is at, or some before.
// Where a ring has one stage there are two places, since V is loaded after the next tile's K. Who
// loads begins with the other parity than who waits.
constexpr int PLACES = Shape::Stages == 1 ? 2 : Shape::Stages;
template <bool LOADS> DEVICE uint32_t cellsAt(const ForwardBarriers<Shape>& barriers, const Ring<Shape::Stages>& at, int before = 0) {
  static_assert(160 + 16 * Shape::StagesBias + 8 * PLACES <= 256, "256 bytes for barriers and cells");
  const uint32_t place = Shape::Stages == 1 ? (at.parity + before + LOADS) % 2 : (at.stage + PLACES - before) % PLACES;
  return barriers.fullBias(2 * Shape::StagesBias) + 8 * place;
}
DEVICE int cellOf(uint32_t at, int n) { return (int)loadShared4(at + 4 * n); }

using Producer = ForwardProducer<Shape, SCORE>;

#if USER_LISTER
// CellChunks are the numbers of the cells that a tile sees, in two chunks of shared memory by
// turns, from the last one on. The scheduler finds them: between loads the producer has no time,
// nor registers, for lists.
struct CellChunks {
  static constexpr int Cells = 64, Bytes = 2 * Cells * 4 + 48;
  uint32_t base;

  DEVICE CellChunks(const ForwardBarriers<Shape>& barriers) : base(barriers.base + 320) {}
  DEVICE uint32_t full(int chunk) const { return base + 8 * chunk; }
  DEVICE uint32_t empty(int chunk) const { return base + 16 + 8 * chunk; }
  DEVICE uint32_t taken() const { return base + 32; }  // how many the producer has done with
  DEVICE uint32_t cells(int chunk) const { return base + 48 + chunk * Cells * 4; }

  DEVICE void init() const {
    for (int n = 0; n < 2; n++) {
      barrierInit(full(n), 1);
      barrierInit(empty(n), 1);
    }
    storeShared4(taken(), 0u);
  }
  // take gives the cells of key tile j, the one below that of the call before unless it is the
  // first of its tile.
  DEVICE void take(int (&to)[CELLS], int j, bool first) const {
    constexpr int tiles = Cells / CELLS;
    const uint32_t n = loadShared4(taken()), from = cells(n % 2) + j % tiles * CELLS * 4;
    if (first || j % tiles == tiles - 1) barrierWait(full(n % 2), n / 2 & 1);
#pragma unroll
    for (int i = 0; i < CELLS; i++) to[i] = cellOf(from, i);
    if (j % tiles == 0) {
      barrierArrive(empty(n % 2));
      storeShared4(taken(), n + 1);
    }
  }
};

// CellLister is the scheduler's part of them. The last key tile may lack its second cell.
struct CellLister {
  const AttentionArguments& a;
  const CellChunks chunks;
  const int lane;
  Ring<2> ring{1};

  DEVICE CellLister(const AttentionArguments& a, const ForwardBarriers<Shape>& barriers) : a(a), chunks(barriers), lane(threadIdx.x & 31) {
    if (lane == 0) chunks.init();
  }
  DEVICE void list(const ForwardWork& w) {
    constexpr int most = CellChunks::Cells;
    const UserLists lists = userLists(a);
    const int line = lineOf(lists, w.tile.head, w.tile.sequence, w.q0, w.tile.row), shift = lists.a.shift;
    const uint32_t* const bits = lists.bits(line);
    const int4 list = __ldg((const int4*)lists.list(line));
    const int count = list.x;
    int n = ((list.y - 1) >> shift) / 32;
    uint32_t word = __ldg(bits + n);
    // how many cells come before those of the word; the last bit may have fewer than others
    int before = count + (-list.y & ((1 << shift) - 1)) - (__popc(word) << shift);
    for (int from = (count - 1) / most * most; from >= 0; from -= most) {
      barrierWait(chunks.empty(ring.stage), ring.parity);
      const uint32_t to = chunks.cells(ring.stage);
      for (;;) {
        if (word >> lane & 1) {
          const int at = before + (__popc(word & ((1u << lane) - 1)) << shift) - from, cell = (32 * n + lane) << shift;
          for (int i = max(0, -at); i < 1 << shift && at + i < min(most, count - from); i++) storeShared4(to + (at + i) * 4, (uint32_t)(cell + i));
        }
        if (before <= from) break;
        word = __ldg(bits + --n);
        before -= __popc(word) << shift;
      }
      if (CELLS == 2 && count % 2 && count - from < most && lane == 0) storeShared4(to + (count - from) * 4, (uint32_t)list.z);
      __syncwarp();
      if (lane == 0) barrierArrive(chunks.full(ring.stage));
      ring.advance();
    }
  }
};

// loadCells loads the rows of a tile's cells.
DEVICE void loadCells(const Producer& p, const Producer::Work& w, const int (&cells)[CELLS], const CUtensorMap* map, int to, int chunks,
                      uint32_t full) {
  barrierExpect(full, chunks * Shape::KChunk);
#pragma unroll
  for (int n = 0; n < CELLS; n++) {
    const int row = w.k0 + cells[n] * USER_CELL;
    for (int c = 0; c < chunks; c++)
      loadBox(p.shared + to + c * Shape::KChunk + n * USER_CELL * 128, map, full, c * 64, row, w.keyHead, w.keyBatch);
  }
}

// headsTogether is ForwardQueue::together for half the cache: a tile reads keys from all over its
// head.
DEVICE int headsTogether(const ForwardQueue<Shape>& queue) {
  constexpr int64_t cache = 8 << 20;
  const AttentionArguments& a = queue.a;
  const int group = queue.heads() / a.keyHeads, all = queue.heads() * a.sequences;
  const int64_t keyHeads = max((int64_t)2, cache / ((int64_t)a.longestK * (Shape::D + Shape::DV) * 2 + 1));
  const int most = queue.longestFirst ? (int)min((int64_t)all, keyHeads * group) : group, parts = (all + most - 1) / most;
  return ((all + parts - 1) / parts + group - 1) / group * group;
}

template <> DEVICE void ForwardScheduler<Shape, SCORE>::run() {
  const bool leader = (threadIdx.x & 31) == 0;
  CellLister lister(a, barriers);
  ForwardQueue<Shape> queue(a);
  queue.together = headsTogether(queue);
  for (ForwardTile t = queue.first();; t = queue.next()) {
    const ForwardWork w = workOf(t);
    if (leader) w.put(barriers.work());
    __syncwarp();
    arrive(Given);
    if (t.row < 0) break;
    if (!w.keys.empty()) lister.list(w);
    groupSync(Asked, 64);
  }
  if (leader) queue.finish();
}

// loadK takes the tile's cells.
template <> DEVICE void Producer::loadK(const Work& w, int j) {
  const uint32_t at = cellsAt<true>(barriers, k);
  int cells[CELLS];
  CellChunks(barriers).take(cells, j, j == w.keys.end - 1);
  barrierWait(barriers.emptyK(k.stage), k.parity);
#pragma unroll
  for (int n = 0; n < CELLS; n++) storeShared4(at + 4 * n, (uint32_t)cells[n]);
  loadCells(*this, w, cells, kMap, Shape::KAt + k.stage * Shape::KBytes, Shape::Chunks, barriers.fullK(k.stage));
  k.advance();
}
template <> DEVICE void Producer::loadV(const Work& w, int j) {
  const uint32_t at = cellsAt<true>(barriers, v);
  int cells[CELLS];
#pragma unroll
  for (int n = 0; n < CELLS; n++) cells[n] = cellOf(at, n);
  barrierWait(barriers.emptyV(v.stage), v.parity);
  loadCells(*this, w, cells, vMap, Shape::VAt + v.stage * Shape::VBytes, Shape::ChunksV, barriers.fullV(v.stage));
  v.advance();
}
#else
// loadCells loads a tile's rows.
DEVICE void loadCells(const Producer& p, const Producer::Work& w, uint32_t cells, const CUtensorMap* map, int to, int chunks, uint32_t full) {
  barrierExpect(full, chunks * Shape::KChunk);
  for (int n = 0; n < CELLS; n++) {
    const int row = w.k0 + cellOf(cells, n) * USER_CELL;
    for (int c = 0; c < chunks; c++)
      loadBox(p.shared + to + c * Shape::KChunk + n * USER_CELL * 128, map, full, c * 64, row, w.keyHead, w.keyBatch);
  }
}

// Walk is where the producer is in a line's cells, which it goes down: behind `cell`, of whose bits
// `word` is the n-th and `below` the one before. Between key tiles it lies in shared memory: to read
// the lists anew for each of them took a fifth of the kernel's time.
struct Walk {
  const uint32_t* bits;
  int cell, n;
  uint32_t word, below;

  // next is the cell that it comes to; there is one.
  DEVICE int next(int shift) {
    const int bit = (cell - 1) >> shift;
    uint32_t left = bit / 32 == n ? word & ((2u << bit % 32) - 1) : 0;
    while (!left) {
      n--;
      left = word = below;
      below = n > 0 ? __ldg(bits + n - 1) : 0;
    }
    const int found = 32 * n + 31 - __clz(left);
    return cell = found == bit ? cell - 1 : ((found + 1) << shift) - 1;
  }
  DEVICE static Walk before(int cell, const uint32_t* bits, int shift) {
    const int n = ((cell - 1) >> shift) / 32;
    return {bits, cell, n, __ldg(bits + n), n > 0 ? __ldg(bits + n - 1) : 0};
  }
  DEVICE static Walk get(uint32_t at) {
    const uint4 x = loadShared16(at), y = loadShared16(at + 16);
    return {(const uint32_t*)((uint64_t)x.y << 32 | x.x), (int)x.z, (int)x.w, y.x, y.y};
  }
  DEVICE void put(uint32_t at) const {
    storeShared16(at, make_uint4((uint32_t)(uint64_t)bits, (uint64_t)bits >> 32, cell, n));
    storeShared16(at + 16, make_uint4(word, below, 0, 0));
  }
};
// walkAt is behind the cells, in what the barriers leave of 256 bytes, or 0 where they leave too
// little.
DEVICE uint32_t walkAt(const ForwardBarriers<Shape>& barriers) {
  constexpr int offset = (160 + 16 * Shape::StagesBias + 8 * PLACES + 15) / 16 * 16;
  return offset + 32 <= 256 ? barriers.fullBias(0) - 160 + offset : 0;
}

// loadK finds the tile's cells, below those of the tile before. The last tile may lack its second
// one.
template <> DEVICE void Producer::loadK(const Work& w, int j) {
  const uint32_t at = cellsAt<true>(barriers, k), kept = walkAt(barriers);
  const int shift = ((const UserArguments&)a).shift;
  Walk walk;
  int second = -1;
  if (j == w.keys.end - 1 || !kept) {
    const UserLists lists = userLists(a);
    const int line = lineOf(lists, w.tile.head, w.tile.sequence, w.q0, w.tile.row);
    const int4 list = __ldg((const int4*)lists.list(line));
    walk = Walk::before(j == w.keys.end - 1 ? list.y : cellOf(cellsAt<true>(barriers, k, 1), 0), lists.bits(line), shift);
    if (2 * j + 1 >= list.x) second = list.z;
  } else {
    walk = Walk::get(kept);
  }
  if (CELLS == 2 && second < 0) second = walk.next(shift);
  const int first = walk.next(shift);
  barrierWait(barriers.emptyK(k.stage), k.parity);
  if (CELLS == 2) storeShared4(at + 4, (uint32_t)second);
  storeShared4(at, (uint32_t)first);
  loadCells(*this, w, at, kMap, Shape::KAt + k.stage * Shape::KBytes, Shape::Chunks, barriers.fullK(k.stage));
  if (kept) walk.put(kept);
  k.advance();
}
template <> DEVICE void Producer::loadV(const Work& w, int j) {
  barrierWait(barriers.emptyV(v.stage), v.parity);
  loadCells(*this, w, cellsAt<true>(barriers, v), vMap, Shape::VAt + v.stage * Shape::VBytes, Shape::ChunksV, barriers.fullV(v.stage));
  v.advance();
}
#endif
template <> DEVICE void Producer::loadBias(const Work& w, int j) {
  if constexpr (Shape::StagesBias > 0) {
    const int units = biasUnits<Shape>(a), columns = Shape::TileK / max(1, units);
    const int key = cellOf(cellsAt<true>(barriers, k, 1), 0) * USER_CELL;
    for (int i = 0; i < units; i++) {
      const uint32_t full = barriers.fullBias(bias.stage);
      barrierWait(barriers.emptyBias(bias.stage), bias.parity);
      barrierExpect(full, Shape::BiasBytes);
      loadBox(shared + Shape::BiasAt + bias.stage * Shape::BiasBytes, biasMap, full, key + i * columns, w.tile.row,
              a.biasHead ? w.tile.head : 0, a.biasSequence ? w.tile.sequence : 0);
      bias.advance();
    }
  }
}

// startScores also reads which keys these are, as long as they are there: behind the product, which
// need not wait for that.
template <> DEVICE void Consumer::startScores() {
  const uint64_t keys = moved(kAt, k.stage * Shape::KBytes);
  productFence();
#pragma unroll
  for (int i = 0; i < D / 16; i++)
    Wgmma<TileK>::template ss<0, 0>(s, moved(queries, i / 4 * Shape::QChunk + i % 4 * 32), moved(keys, i / 4 * Shape::KChunk + i % 4 * 32),
                                    i != 0);
  productCommit();
  for (int n = 0; n < CELLS; n++) mask.cells[n] = __shfl_sync(~0u, cellOf(cellsAt<false>(barriers, k), n), 0);
}

template <> template <int Part> DEVICE void Consumer::hidePart(int) {
  using Half = ScoreTile<1, TileK / 16, false>;
  float(&x)[Half::SIZE] = *(float(*)[Half::SIZE])(s + Part * Half::SIZE);
  const int key = CELLS == 2 ? mask.cells[Part] * USER_CELL : mask.cells[0] * USER_CELL + Part * TileK / 2;
  mask.hide(Half{x, row, key + pair}, -INFINITY);
}

// change also hides the second half of a tile that has one cell.
template <> DEVICE void Consumer::change(int) {
  SCORE::change(a, Scores(*this, mask.cells[0]));
  if (CELLS == 2 && mask.cells[1] * USER_CELL >= sequence.sk) {
#pragma unroll
    for (int i = TileK / 4; i < TileK / 2; i++) s[i] = -INFINITY;
  }
}

template <> DEVICE int Consumer::keyOf(int) const { return mask.cells[0] * USER_CELL; }

// clearV zeroes the rows beyond the end, which only the last cells may have.
template <> DEVICE void Consumer::clearV() {
  if (!keysEndEarly(a)) return;
  barrierWait(barriers.fullV(v.stage), v.parity);
  for (int n = 0; n < CELLS; n++) {
    const int rows = max(0, sequence.sk - mask.cells[n] * USER_CELL);
    for (int i = rows * Shape::ChunksV * 8 + thread; i < USER_CELL * Shape::ChunksV * 8; i += 128) {
      const int at = n * USER_CELL + i / (Shape::ChunksV * 8), part = i % (Shape::ChunksV * 8);
      storeShared16(shared + Shape::VAt + v.stage * Shape::VBytes + part / 8 * Shape::KChunk + at * 128 + part % 8 * 16,
                    make_uint4(0, 0, 0, 0));
    }
  }
  sharedToAsync();
  groupSync(1 + group, 128);
}
#endif

#if USER_LISTS && USER_LISTER
constexpr int LISTS_BYTES = CellChunks::Bytes;
#else
constexpr int LISTS_BYTES = 0;
#endif
static_assert(Shape::SharedBytes + LISTS_BYTES == SHARED_BYTES && Shape::Threads == BLOCK_THREADS, "variants_forward90.go describes another kernel");

extern "C" __global__ void __launch_bounds__(Shape::Threads, Shape::Blocks)
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
#ifdef MOD
       const __grid_constant__ CUtensorMap bias, const __grid_constant__ UserArguments a) {
  const CUtensorMap* const ofBias = &bias;
#else
       const __grid_constant__ UserArguments a) {
  const CUtensorMap* const ofBias = nullptr;
#endif
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionForward<Shape, SCORE>(&q, &k, &v, ofBias, a);
}
