// Attention forward for sm_90a: O = softmax(scores(Q·Kᵀ))·V and the logsumexp of each row.
//
// A block is one scheduler warp, one producer warp and Groups consumer warpgroups. The scheduler
// draws the work, a tile of 64·Groups query rows at a time. The producer brings the tile's Q and
// then K and V, TileK keys at a time, into a ring of Stages buffers by TMA. Each warpgroup owns 64
// rows. It keeps the scores of one key tile, its probabilities and its rows of O in registers:
//
//   S = Q·Kᵀ of the next key tile  ─┐ both products run on the tensor cores
//   O += P·V of this key tile      ─┘ while
//   P = 2^(S − max) of the next key tile is computed as soon as its S is there.
//
// Blocks are persistent: they draw tiles from a counter in global memory, longest tiles first where
// the mask makes them unequal. Key tiles are visited from the last to the first, so that those
// which the mask cuts come first in the causal case.
#pragma once
#include "attention_bias_sm90.cuh"
#include "attention_dropout.cuh"
#include "attention_slopes_sm90.cuh"
#include "attention_tiles.cuh"
#include "ring.cuh"
#include "score.cuh"

// BiasUnits says how many pieces of a mapped bias have a place, each the tile's rows of 128 bytes.
// TileHeads is 1, or one for each warpgroup: the tile is then the same 64 rows of so many
// neighbouring heads, which have their keys in common and see the same of them. Slants says that
// there is a place for the distances of slopes by product.
template <int HeadDim, int HeadDimV, int ConsumerGroups, int KeyTile, int RingStages, int QueryStages, int BiasUnits = 0, int TileHeads = 1,
          bool HasSlants = false>
struct ForwardShape {
  static constexpr int D = HeadDim, DV = HeadDimV;
  static constexpr int Groups = ConsumerGroups, Heads = TileHeads;
  static_assert(Heads == 1 || Heads == Groups, "a warpgroup's rows are of one head");
  static constexpr int TileQ = 64 * Groups, TileK = KeyTile, Stages = RingStages, StagesQ = QueryStages;
  static constexpr int Rows = TileQ / Heads;  // of each head
  static constexpr int Threads = 128 * (Groups + 1);
  // Tiles lie in chunks of 64 columns, a row of a chunk is 128 bytes. Q's chunks are per warpgroup.
  static constexpr int Chunks = (D + 63) / 64, ChunksV = (DV + 63) / 64;
  static constexpr int QChunk = 64 * 128, KChunk = TileK * 128;
  static constexpr int QBytes = Groups * Chunks * QChunk, KBytes = Chunks * KChunk, VBytes = ChunksV * KChunk;
  static constexpr int KAt = StagesQ * QBytes, VAt = KAt + Stages * KBytes, OAt = VAt + Stages * VBytes;
  // a warp passes its rows of O through OBytes
  static constexpr int OBytes = 16 * 128, BiasAt = OAt + 4 * Groups * OBytes;
  static constexpr int StagesBias = BiasUnits, BiasBytes = TileQ * 128;
  static constexpr bool Slants = HasSlants;
  static constexpr int SlantsAt = BiasAt + StagesBias * BiasBytes, BarriersAt = SlantsAt + (Slants ? TileK * 32 : 0);
  static constexpr int SharedBytes = BarriersAt + 320 + 1024;  // 1,024 to align the start
  // that run on a multiprocessor at a time
  static constexpr int Blocks = Groups > 1 ? 1 : D <= 64 && TileK == 64 ? 3 : 2;
  // By how many steps earlier the next tile is asked for: those of small tiles are short.
  static constexpr int Early = Blocks > 1 ? 4 : 0;
  // What setmaxnreg gives to the producer and to each consumer.
  static constexpr int ProducerRegisters = Groups == 3 || Blocks == 3 ? 32 : 40;
  static constexpr int ConsumerRegisters = Blocks == 3 ? 128 : Blocks == 2 ? 216 : Groups == 2 ? 232 : 160;
};

// ForwardTile is a piece of work: rows of a sequence, from row on, and a head, or the first of
// several. row < 0 says that there is no more.
struct ForwardTile {
  int sequence, head, row;
};

// ForwardQueue hands out the tiles in one order to all blocks; a whole warp calls it.
template <class Shape> struct ForwardQueue {
  const AttentionArguments& a;
  int sequence, before;  // packed: where the search is, and the tiles of the sequences before
  int together;          // heads visited together, so that their K and V stay in the L2 cache
  bool longestFirst;

  DEVICE ForwardQueue(const AttentionArguments& a) : a(a), sequence(0), before(0) {
    constexpr int64_t cache = 16 << 20;
    const int group = heads() / a.keyHeads, all = heads() * a.sequences;
    longestFirst = a.causal != NotCausal || a.right >= 0;
    const int64_t keyHeads = max((int64_t)4, cache / ((int64_t)a.longestK * (Shape::D + Shape::DV) * 2 + 1));
    const int most = longestFirst ? (int)min((int64_t)all, keyHeads * group) : group, parts = (all + most - 1) / most;
    // Even parts: a small last one would keep few blocks busy.
    together = ((all + parts - 1) / parts + group - 1) / group * group;
  }

  // heads are those of a sequence, of which a tile's count as one.
  DEVICE int heads() const { return a.heads / Shape::Heads; }
  DEVICE static int tilesOf(int rows) { return (rows + Shape::Rows - 1) / Shape::Rows; }

  // first is the block's first tile, next draws the one after those that all blocks have.
  DEVICE ForwardTile first() { return tile(blockIdx.x); }
  DEVICE ForwardTile next() {
    int drawn = 0;
    if ((threadIdx.x & 31) == 0) drawn = atomicAdd(a.counters, 1) + gridDim.x;
    return tile(__shfl_sync(~0u, drawn, 0));
  }

  DEVICE ForwardTile tile(int index) {
    if (!a.qLens) {
      const int tiles = tilesOf(a.sq);
      if (index >= tiles * heads() * a.sequences) return {0, 0, -1};
      const ForwardTile t = within(index, tiles, heads() * a.sequences);
      return {t.head / heads(), t.head % heads() * Shape::Heads, t.row};
    }
    // Sequences differ in length: each lane counts the tiles of one, 32 at a time.
    const int lane = threadIdx.x & 31;
    for (; sequence < a.sequences; sequence += 32) {
      const int n = sequence + lane;
      int tiles = n < a.sequences ? tilesOf(a.qLens[n + 1] - a.qLens[n]) * heads() : 0;
      int sum = tiles;
#pragma unroll
      for (int i = 1; i < 32; i *= 2) {
        const int other = __shfl_up_sync(~0u, sum, i);
        if (lane >= i) sum += other;
      }
      const uint32_t later = __ballot_sync(~0u, before + sum > index);
      if (later) {
        const int at = __ffs(later) - 1;
        const int own = __shfl_sync(~0u, tiles, at), start = before + __shfl_sync(~0u, sum, at) - own;
        const ForwardTile t = within(index - start, own / heads(), heads());
        return {sequence + at, t.head * Shape::Heads, t.row};
      }
      before += __shfl_sync(~0u, sum, 31);
    }
    return {0, 0, -1};
  }

  // within is the i-th of the tiles of `heads` heads of `tiles` tiles each. Where tiles differ, the
  // last two parts are one, in which the longest tiles begin before the blocks run out of others.
  DEVICE ForwardTile within(int i, int tiles, int heads) const {
    const int parts = (heads + together - 1) / together, final = max(0, parts - (longestFirst ? 2 : 1));
    const int part = min(i / (together * tiles), final), rest = i - part * together * tiles;
    const int width = part == final ? heads - part * together : together;
    const int tile = rest / width, head = part * together + rest % width;
    return {0, head, (longestFirst ? tiles - 1 - tile : tile) * Shape::Rows};
  }

  // finish leaves the counters zero for the next launch; every block calls it once, with one
  // thread.
  DEVICE void finish() const {
    if (atomicAdd(a.counters + 1, 1) == (int)gridDim.x - 1) a.counters[0] = a.counters[1] = 0;
  }
};

// ForwardBarriers are the addresses of the block's barriers in shared memory. Behind them are the
// tile that each Q is for and the work that the scheduler hands to the producer.
template <class Shape> struct ForwardBarriers {
  uint32_t base;
  DEVICE uint32_t fullQ(int stage) const { return base + 8 * stage; }
  DEVICE uint32_t emptyQ(int stage) const { return fullQ(Shape::StagesQ + stage); }
  DEVICE uint32_t fullK(int stage) const { return fullQ(2 * Shape::StagesQ + stage); }
  DEVICE uint32_t emptyK(int stage) const { return fullK(Shape::Stages + stage); }
  DEVICE uint32_t fullV(int stage) const { return fullK(2 * Shape::Stages + stage); }
  DEVICE uint32_t emptyV(int stage) const { return fullK(3 * Shape::Stages + stage); }
  DEVICE uint32_t tile(int stage) const { return base + 128 + 16 * stage; }
  DEVICE uint32_t fullBias(int stage) const { return base + 160 + 8 * stage; }
  DEVICE uint32_t emptyBias(int stage) const { return fullBias(Shape::StagesBias + stage); }
  DEVICE uint32_t work() const { return base + 256; }

  DEVICE void init() const {
    static_assert(2 * Shape::StagesQ + 4 * Shape::Stages <= 16 && Shape::StagesQ <= 2 && Shape::StagesBias <= 6, "256 bytes for barriers");
    constexpr int warps = 4 * Shape::Groups;
    for (int i = 0; i < Shape::StagesQ; i++) {
      barrierInit(fullQ(i), 1);
      barrierInit(emptyQ(i), warps);
    }
    for (int i = 0; i < Shape::Stages; i++) {
      barrierInit(fullK(i), 1);
      barrierInit(emptyK(i), warps);
      barrierInit(fullV(i), 1);
      barrierInit(emptyV(i), warps);
    }
    for (int i = 0; i < Shape::StagesBias; i++) {
      barrierInit(fullBias(i), 1);
      barrierInit(emptyBias(i), warps);
    }
    barrierInitDone();
  }
  DEVICE void putTile(int stage, const ForwardTile& t) const { storeShared16(tile(stage), make_uint4(t.sequence, t.head, t.row, 0)); }
  DEVICE ForwardTile getTile(int stage) const {
    const uint4 t = loadShared16(tile(stage));
    // The shuffles let the compiler know that these are the same in a warp, and with them all
    // loops.
    return {__shfl_sync(~0u, (int)t.x, 0), __shfl_sync(~0u, (int)t.y, 0), __shfl_sync(~0u, (int)t.z, 0)};
  }
};

// biasUnits is how many pieces a key tile's bias comes in, 0 where it does not come by map.
template <class Shape> DEVICE int biasUnits(const AttentionArguments& a) {
  static_assert(Shape::StagesBias == 0 || Shape::TileK % 64 == 0, "a piece has 64 columns of 16 bits, or 32 of float32");
  return !a.biasMapped ? 0 : Shape::TileK / (a.biasElement == ElementF32 ? 32 : 64);
}

// ForwardWork is a tile and what its loads need to know of it.
struct ForwardWork {
  ForwardTile tile;
  int batch, keyBatch, q0, k0, keyHead;
  Tiles keys;

  // put leaves it in shared memory, and get takes it from there. The shuffles are as in getTile.
  DEVICE void put(uint32_t to) const {
    storeShared16(to, make_uint4(tile.sequence, tile.head, tile.row, batch));
    storeShared16(to + 16, make_uint4(keyBatch, q0, k0, keyHead));
    storeShared16(to + 32, make_uint4(keys.first, keys.end, 0, 0));
  }
  static DEVICE ForwardWork get(uint32_t from) {
    const uint4 x = loadShared16(from), y = loadShared16(from + 16), z = loadShared16(from + 32);
    const auto same = [](uint32_t n) { return __shfl_sync(~0u, (int)n, 0); };
    return {{same(x.x), same(x.y), same(x.z)}, same(x.w), same(y.x), same(y.y), same(y.z), same(y.w), {same(z.x), same(z.y), 0, 0}};
  }
};

// maskOf is the mask of a sequence and a query head.
template <class Score> DEVICE typename Score::Mask maskOf(const AttentionArguments& a, const Sequence& s, int head) {
  return Score::Mask::of(a, s);
}

// ForwardScheduler is the part of the warp that draws tiles. The producer asks for each but the
// first, and takes it a while later. In the producer's own warp a draw and its divisions would
// delay loads, which have little time to spare.
template <class Shape, class Score> struct ForwardScheduler {
  static constexpr int Asked = 8, Given = 9;  // named barriers of the two warps

  const AttentionArguments& a;
  const ForwardBarriers<Shape>& barriers;

  static DEVICE void ask() { arrive(Asked); }
  static DEVICE ForwardWork take(const ForwardBarriers<Shape>& barriers) {
    groupSync(Given, 64);
    return ForwardWork::get(barriers.work());
  }
  static DEVICE void arrive(int barrier) { asm volatile("bar.arrive %0, 64;" ::"r"(barrier) : "memory"); }

  DEVICE void run() {
    const bool leader = (threadIdx.x & 31) == 0;
    ForwardQueue<Shape> queue(a);
    for (ForwardTile t = queue.first();; t = queue.next()) {
      if (leader) workOf(t).put(barriers.work());
      __syncwarp();
      arrive(Given);
      if (t.row < 0) break;
      groupSync(Asked, 64);
    }
    if (leader) queue.finish();
  }

  DEVICE ForwardWork workOf(const ForwardTile& t) const {
    if (t.row < 0) return {t, 0, 0, 0, 0, 0, {0, 0, 0, 0}};
    const Sequence s = sequenceOf(a, t.sequence);
    return {t, s.batch, keyBatchOf(a, s.batch), s.q0, s.k0, t.head / (a.heads / a.keyHeads),
            keyTiles<Shape::TileK>(maskOf<Score>(a, s, t.head), t.row, Shape::Rows)};
  }
};

// ForwardProducer is the loading warp's part; one of its lanes starts the copies.
template <class Shape, class Score> struct ForwardProducer {
  using Scheduler = ForwardScheduler<Shape, Score>;
  using Work = ForwardWork;

  const AttentionArguments& a;
  const CUtensorMap *qMap, *kMap, *vMap, *biasMap;
  const uint32_t shared;
  const ForwardBarriers<Shape>& barriers;
  Ring<Shape::Stages> k{1}, v{1};
  Ring<Shape::StagesQ> query{1};
  Ring<Shape::StagesBias> bias{1};

  DEVICE void run() {
    const bool leader = (threadIdx.x & 31) == 0;
    Work w = take();
    if (leader) {
      loadQ(w);
      if (!w.keys.empty()) {
        loadK(w, w.keys.end - 1);
        loadBias(w, w.keys.end - 1);
      }
    }
    __syncwarp();
    while (w.tile.row >= 0) {
      w = load(w, leader);
      __syncwarp();
    }
  }

  // isShort tells that few keys are left to load from the start: the next tile is asked for at
  // once.
  static DEVICE bool isShort(const Work& w) { return w.keys.end - w.keys.first <= Shape::Stages + 1 + Shape::Early; }
  DEVICE Work take() const {
    const Work w = Scheduler::take(barriers);
    if (w.tile.row >= 0 && isShort(w)) Scheduler::ask();
    return w;
  }

  // load loads a tile's keys and values, except the first keys, and the next tile's Q and first
  // keys: Q early where there is a second place for it, else when the consumers are done with this
  // tile's. The next tile is drawn when few of this one's keys are left to load. A block that draws
  // earlier keeps a tile from blocks that are done sooner.
  DEVICE Work load(const Work& w, bool leader) {
    constexpr bool early = Shape::StagesQ > 1;
    const int last = w.keys.end - 1, taking = min(last, w.keys.first + Shape::Stages);
    Work following;
    for (int j = last; j == last || j >= w.keys.first; j--) {
      if (j == taking + 1 + Shape::Early && !isShort(w)) Scheduler::ask();
      if (leader && !w.keys.empty()) {
        if (j > w.keys.first) loadK(w, j - 1);
        loadV(w, j);
        if (j > w.keys.first) loadBias(w, j - 1);
      }
      __syncwarp();
      if (j == taking) {
        following = take();
        if (early && leader) loadQ(following);
      }
    }
    if (leader) {
      if (!following.keys.empty()) loadK(following, following.keys.end - 1);
      if (!early) loadQ(following);
      if (!following.keys.empty()) loadBias(following, following.keys.end - 1);
    }
    return following;
  }

  DEVICE void loadQ(const Work& w) {
    const uint32_t full = barriers.fullQ(query.stage);
    barrierWait(barriers.emptyQ(query.stage), query.parity);
    barriers.putTile(query.stage, w.tile);
    if (w.tile.row < 0) {
      barrierArrive(full);
      return;
    }
    barrierExpect(full, Shape::QBytes);
    for (int i = 0; i < Shape::Groups * Shape::Chunks; i++) {
      const int part = i / Shape::Chunks;
      loadBox(shared + query.stage * Shape::QBytes + i * Shape::QChunk, qMap, full, i % Shape::Chunks * 64,
              w.q0 + w.tile.row + (Shape::Heads > 1 ? 0 : part * 64), w.tile.head + (Shape::Heads > 1 ? part : 0), w.batch);
    }
    query.advance();
  }
  DEVICE void loadK(const Work& w, int j) {
    barrierWait(barriers.emptyK(k.stage), k.parity);
    loadRows(w, j, kMap, Shape::KAt + k.stage * Shape::KBytes, Shape::Chunks, barriers.fullK(k.stage));
    k.advance();
  }
  DEVICE void loadV(const Work& w, int j) {
    barrierWait(barriers.emptyV(v.stage), v.parity);
    loadRows(w, j, vMap, Shape::VAt + v.stage * Shape::VBytes, Shape::ChunksV, barriers.fullV(v.stage));
    v.advance();
  }
  // loadBias loads the bias of key tile j, behind all that the consumers need in order to free its
  // place.
  DEVICE void loadBias(const Work& w, int j) {
    if constexpr (Shape::StagesBias > 0) {
      const int units = biasUnits<Shape>(a), columns = Shape::TileK / max(1, units);
      for (int i = 0; i < units; i++) {
        const uint32_t full = barriers.fullBias(bias.stage);
        barrierWait(barriers.emptyBias(bias.stage), bias.parity);
        barrierExpect(full, a.biasRow == 0 ? 128 : Shape::BiasBytes);
        loadBox(shared + Shape::BiasAt + bias.stage * Shape::BiasBytes, biasMap, full, j * Shape::TileK + i * columns,
                a.biasRow == 0 ? 0 : w.tile.row, a.biasHead ? w.tile.head : 0, a.biasSequence ? w.tile.sequence : 0);
        bias.advance();
      }
    }
  }
  DEVICE void loadRows(const Work& w, int j, const CUtensorMap* map, int to, int chunks, uint32_t full) const {
    barrierExpect(full, chunks * Shape::KChunk);
    for (int c = 0; c < chunks; c++)
      loadBox(shared + to + c * Shape::KChunk, map, full, c * 64, w.k0 + j * Shape::TileK, w.keyHead, w.keyBatch);
  }
};

// ForwardSlant is how slopes come to the scores of a key tile whose keys lie on one side of all of
// the warpgroup's rows:
//
//   −slope·|i − j| = −slope·(distance to the tile's nearest key) − slope·(that key's distance to j)
//
// The second term is the same in all rows, and one more step of the product Q·Kᵀ adds it. Its right
// operand has, for each key, how many keys lie behind it and before it; its left one has the slope,
// as three numbers of 16 bits, in the columns of either. The first term is the same for all keys:
// the softmax adds it to a row's maximum. Where keys lie on both sides, or the slope is steep, the
// left operand is zero, and scores are changed one by one. Without slants it is nothing.
template <class Shape, bool Slants = Shape::Slants> struct ForwardSlant {
  DEVICE bool on() const { return false; }
  DEVICE float missing(int j, int r) const { return 0; }
};
template <class Shape> struct ForwardSlant<Shape, true> {
  static constexpr int TileK = Shape::TileK;
  uint64_t keys;        // the right operand's matrix descriptor
  uint32_t factors[4];  // the thread's part of the left operand
  bool active;          // this is the side of the key tile, not both
  int turn;             // the key tile with which the next side begins
  // The first term, for each of the thread's rows: of the side's nearest tile, and what each tile
  // farther away adds.
  int nearest;
  float start[2], more;

  DEVICE bool on() const { return active; }
  DEVICE float missing(int j, int r) const { return fmaf(more, abs(j - nearest), start[r]); }

  // begin writes the right operand. Keys behind are in the first three of 16 columns, keys before in
  // the fifth to the seventh. Eight rows of eight columns lie together, without swizzle.
  DEVICE void begin(uint32_t shared, int thread, int group) {
    const uint32_t at = shared + Shape::SlantsAt;
    keys = unswizzled(at);
    factors[2] = factors[3] = 0;
    side(0, 0, 0, 0);
    for (int n = thread; n < TileK; n += 128) {
      const float behind = TileK - 1 - n, before = n;
      const uint32_t row = at + n / 8 * 256 + n % 8 * 16;
      storeShared16(row, make_uint4(pack(behind, behind), pack(behind, 0), pack(before, before), pack(before, 0)));
      storeShared16(row + 128, make_uint4(0, 0, 0, 0));
    }
    sharedToAsync();
    groupSync(1 + group, 128);
  }
  // side is what is the same on one side of key tile j. first is the place of the warpgroup's first
  // row among the keys; a slope of 0 says that scores are changed one by one.
  DEVICE void side(float slope, int first, int j, int thread) {
    const int left = (first + 1 - TileK) / TileK - (first + 1 < TileK);   // up to this tile, keys lie before all rows,
    const int right = (max(0, first + 63) + TileK - 1) / TileK;           // and from this one on behind them
    const bool before = j <= left;
    active = slope != 0 && (before || j >= right);
    turn = slope == 0 || before ? -1 : j >= right ? right - 1 : left;
    nearest = before ? left : right;
    more = active ? -slope * TileK : 0.f;
    const int row = thread / 32 * 16 + thread % 32 / 4;
    const int distance = before ? first + row - left * TileK - (TileK - 1) : right * TileK - first - row;
    start[0] = active ? -slope * distance : 0.f;
    start[1] = active ? -slope * (distance + (before ? 8 : -8)) : 0.f;
    const float head = widen(Scalar(-slope)), middle = widen(Scalar(-slope - head));
    const uint32_t part = thread % 2 ? pack(-slope - head - middle, 0) : pack(head, middle);
    factors[0] = factors[1] = active && (thread % 4 < 2) == before ? part : 0;
  }
};

// ForwardConsumer is a warpgroup's part. A thread holds two rows (r = 0, 1: row and row + 8) of
// each of S, P and O, in the accumulators' order: element (r, 8·i + pair + e) is number 4·i + 2·r +
// e, pair being 2·(lane mod 4).
//
// Where Halves, the softmax leaves out the second half of a warpgroup's last key tile if the
// warpgroup does not see it. That pays for small heads, whose exponentials take longer than their
// products.
template <class Shape, class Score> struct ForwardConsumer {
  static constexpr int D = Shape::D, DV = Shape::DV, TileK = Shape::TileK;
  static constexpr bool Drops = Score::DROPS, Halves = !Score::CHANGES && D <= 64;

  const AttentionArguments& a;
  const ForwardBarriers<Shape>& barriers;
  const uint32_t shared;
  const int group, thread, lane, pair;
  const uint64_t qAt, kAt, vAt;  // matrix descriptors
  const float toLog2;            // turns what the softmax finds in S into powers of two

  Ring<Shape::Stages> k{0}, v{0};
  Ring<Shape::StagesQ> query{0};
  Ring<Shape::StagesBias> bias{0};
  float s[TileK / 2], o[DV / 2];
  uint32_t p[TileK / 4];
  // of a row: the maximum of S that P refers to, the sum of P over this thread's columns
  float highest[2], sum[2];
  // dropout, of a row: a bit for each of this thread's columns, in the order of keepMask
  uint32_t kept[2];

  ForwardSlant<Shape> slant;

  // Of the tile being worked on.
  Sequence sequence;
  typename Score::Mask mask;
  // part is which 64 of the tile's rows are the warpgroup's, row is the thread's first
  int head, part, row;
  Tiles block, own;     // key tiles of the block's rows and of the warpgroup's
  uint64_t queries;     // the matrix descriptor of the warpgroup's rows of Q
  bool half;            // the warpgroup sees only the first half of its last key tile

  DEVICE ForwardConsumer(const AttentionArguments& a, const ForwardBarriers<Shape>& barriers, uint32_t shared)
      : a(a), barriers(barriers), shared(shared), group(warpgroupIndex() - 1), thread(threadIdx.x % 128), lane(threadIdx.x % 32),
        pair(lane % 4 * 2), qAt(descriptor(shared, 16, 1024)), kAt(descriptor(shared + Shape::KAt, 16, 1024)),
        vAt(descriptor(shared + Shape::VAt, Shape::KChunk, 1024)), toLog2(Score::factorOf(a) * LOG2E), part(group) {}

  DEVICE void run() {
    // The first round works on nothing, so that the code which goes from tile to tile exists once.
    // (With a second copy ahead of the loop the compiler loses sight of what is the same in a warp
    // and moves each descriptor into place.)
    sequence = {0, 0, 0, 0, 0, 0};
    head = 0;
    row = lane / 4;
    block = own = {0, 0, 0, 0};
    half = false;
    queries = qAt;
    if constexpr (Shape::Slants) slant.begin(shared, thread, group);
    for (bool more = true; more;) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        highest[r] = -INFINITY;
        sum[r] = 0;
      }
#pragma unroll
      for (int i = 0; i < DV / 2; i++) o[i] = 0;

      if (!own.empty()) {
        first();
#pragma unroll 1
        for (int j = own.end - 2; j >= own.first; j--) step(j);
        barrierWait(barriers.fullV(v.stage), v.parity);
        pin(p);
        pin(o);
        startOutput();
      }
      // The last product and the stores of this tile overlap with the first product of the next
      // one, where there is room for its Q. Passing over key tiles needs V's place in the ring
      // free.
      const Destination to = destination();
      bool usingV = !own.empty();
      auto finishOutput = [&]() {
        productWait<0>();
        pin(o);
        if (usingV) releaseV();
        usingV = false;
      };
      const int rest = own.first - block.first;
      if (rest > 0 || Shape::StagesQ == 1) finishOutput();
      skip(rest);
      if (Shape::StagesQ == 1) store(to);
      more = take();
      if (block.end > own.end) finishOutput();
      startFirst();
      if (Shape::StagesQ > 1) {
        productWait<1>();
        pin(o);
        pin(p);
        if (usingV) releaseV();
        store(to);
      }
      finishFirst();
    }
  }

  // take takes the next tile from the producer and tells whether there was one.
  DEVICE bool take() {
    barrierWait(barriers.fullQ(query.stage), query.parity);
    const ForwardTile t = barriers.getTile(query.stage);
    block = own = {0, 0, 0, 0};
    if (t.row < 0) return false;
    sequence = sequenceOf(a, t.sequence);
    mask = maskOf<Score>(a, sequence, t.head);
    head = t.head;
    // Warpgroups take turns at the parts of a tile, since a mask gives some of them more to do.
    if (++part == Shape::Groups) part = 0;
    if (Shape::Heads > 1) head += part;
    const int groupRow = t.row + part * (Shape::Heads > 1 ? 0 : 64);
    row = groupRow + thread / 32 * 16 + lane / 4;
    block = keyTiles<TileK>(mask, t.row, Shape::Rows);
    own = keyTiles<TileK>(mask, groupRow, 64);
    if (own.empty()) {
      own.first = own.end = block.end;
      releaseQ();
    }
    if (Halves) half = min(sequence.sk, min(groupRow + 64, sequence.sq) - 1 + mask.hi) <= own.end * TileK - TileK / 2;
    queries = moved(qAt, query.stage * Shape::QBytes + part * Shape::Chunks * Shape::QChunk);
    return true;
  }
  // slantAt makes slant that of key tile j's side.
  DEVICE void slantAt(int j) {
    const int first = row - (thread / 32 * 16 + lane / 4) + sequence.sk - sequence.sq;
    slant.side(Score::byProduct(a, head), __shfl_sync(~0u, first, 0), j, thread);
  }

  // skip passes over key tiles that other warpgroups of the block need and this one does not.
  DEVICE void skip(int tiles) {
#pragma unroll 1
    for (; tiles > 0; tiles--) {
      barrierWait(barriers.fullK(k.stage), k.parity);
      releaseK();
      if constexpr (Shape::StagesBias > 0) {
        for (int i = biasUnits<Shape>(a); i > 0; i--) {
          barrierWait(barriers.fullBias(bias.stage), bias.parity);
          releaseBias();
        }
      }
      barrierWait(barriers.fullV(v.stage), v.parity);
      releaseV();
    }
  }

  DEVICE void releaseQ() {
    if (lane == 0) barrierArrive(barriers.emptyQ(query.stage));
    query.advance();
  }
  DEVICE void releaseK() {
    if (lane == 0) barrierArrive(barriers.emptyK(k.stage));
    k.advance();
  }
  DEVICE void releaseV() {
    if (lane == 0) barrierArrive(barriers.emptyV(v.stage));
    v.advance();
  }
  DEVICE void releaseBias() {
    if (lane == 0) barrierArrive(barriers.emptyBias(bias.stage));
    bias.advance();
  }

  // startScores starts S = Q·Kᵀ.
  DEVICE void startScores() {
    const uint64_t keys = moved(kAt, k.stage * Shape::KBytes);
    productFence();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
      Wgmma<TileK>::template ss<0, 0>(s, moved(queries, i / 4 * Shape::QChunk + i % 4 * 32), moved(keys, i / 4 * Shape::KChunk + i % 4 * 32),
                                      i != 0);
    if constexpr (Shape::Slants) Wgmma<TileK>::template rs<0>(s, slant.factors, slant.keys, 1);
    productCommit();
  }
  // startOutput starts O += P·V.
  DEVICE void startOutput() {
    const uint64_t values = moved(vAt, v.stage * Shape::VBytes);
    productFence();
#pragma unroll
    for (int i = 0; i < TileK / 16; i++) Wgmma<DV>::template rs<1>(o, p + 4 * i, moved(values, i * 2048), 1);
    productCommit();
  }

  // startFirst starts the scores of the tile's first key tile, finishFirst waits for them. Without
  // one, as after the last tile, the product is of whatever lies there and nobody looks at it.
  DEVICE void startFirst() {
    skip(block.end - own.end);
    if (!own.empty()) barrierWait(barriers.fullK(k.stage), k.parity);
    if constexpr (Shape::Slants) {
      if (!own.empty()) slantAt(own.end - 1);
    }
    startScores();
  }
  DEVICE void finishFirst() {
    productWait<0>();
    pin(s);
    if constexpr (Shape::Slants) pin(slant.factors);
    if (own.empty()) return;
    releaseK();
    if (own.end - 1 == own.first) releaseQ();
  }

  // first makes P of the tile's first key tile.
  DEVICE void first() {
    const int j = own.end - 1;
    drawDropout(j);
    if (!slant.on()) change(j);
    if (!own.clean(j)) hide(j, half);
    float shrink[2];
    softmax(j, shrink, half);
    roundP(half);
    clearV();
  }

  // step adds the key tile after j's P·V to O while it makes P of key tile j.
  DEVICE void step(int j) {
    barrierWait(barriers.fullK(k.stage), k.parity);
    pin(p);
    pin(o);
    if constexpr (Shape::Slants) {
      if (__builtin_expect(j == slant.turn, 0)) slantAt(j);
    }
    startScores();
    barrierWait(barriers.fullV(v.stage), v.parity);
    startOutput();
    drawDropout(j);
    productWait<1>();
    pin(s);
    if constexpr (Shape::Slants) pin(slant.factors);
    releaseK();
    if (j == own.first) releaseQ();
    if (!slant.on()) change(j);
    if (__builtin_expect(!own.clean(j), 0)) hide(j, false);
    float shrink[2];
    const bool grew = softmax(j, shrink, false);
    productWait<0>();
    pin(o);
    pin(p);
    releaseV();
    roundP(false);
    if (grew) {
#pragma unroll
      for (int i = 0; i < DV / 2; i++) o[i] *= shrink[i / 2 % 2];
    }
  }

  // clearV zeroes the rows of the first V that lie beyond the end of the sequence's keys within the
  // tensor. P is zero there, but zero times NaN is not. At the end of the tensor TMA has done it.
  DEVICE void clearV() {
    const int rows = sequence.sk - (own.end - 1) * TileK;
    if (!keysEndEarly(a) || rows >= TileK) return;
    barrierWait(barriers.fullV(v.stage), v.parity);
    for (int i = thread; i < (TileK - rows) * Shape::ChunksV * 8; i += 128) {
      const int at = rows + i / (Shape::ChunksV * 8), part = i % (Shape::ChunksV * 8);
      storeShared16(shared + Shape::VAt + v.stage * Shape::VBytes + part / 8 * Shape::KChunk + at * 128 + part % 8 * 16,
                    make_uint4(0, 0, 0, 0));
    }
    sharedToAsync();
    groupSync(1 + group, 128);
  }

  // hide hides what the mask hides of key tile j.
  DEVICE void hide(int j, bool half) {
    hidePart<0>(j);
    if (!half) hidePart<1>(j);
  }
  template <int Part> DEVICE void hidePart(int j) {
    using Half = ScoreTile<1, TileK / 16, false>;
    float(&x)[Half::SIZE] = *(float(*)[Half::SIZE])(s + Part * Half::SIZE);
    mask.hide(Half{x, row, j * TileK + Part * TileK / 2 + pair}, -INFINITY, j < own.cleanFirst, j >= own.cleanEnd);
  }
  template <int Part> DEVICE float& element(int i, int r, int e) { return s[Part * TileK / 4 + 4 * i + 2 * r + e]; }

  // Scores are S of a key tile.
  struct Scores : ScoreTileOf<Scalar, false, 1, TileK / 8> {
    ForwardConsumer& c;
    DEVICE Scores(ForwardConsumer& c, int j)
        : ScoreTileOf<Scalar, false, 1, TileK / 8>(c.s, c.row, j * TileK + c.pair, c.sequence, c.head), c(c) {}
    DEVICE bool addMappedBias(float factor) {
      const bool mapped = Shape::StagesBias > 0 && (isBias<Score> || c.a.biasMapped);
      if (mapped) c.addMappedBias(factor);
      return mapped;
    }
  };
  DEVICE void change(int j) { Score::change(a, Scores(*this, j)); }

  // addMappedBias scales the scores and adds the bias, which lies in shared memory.
  DEVICE void addMappedBias(float scale) {
    const bool same = a.biasRow == 0;  // in all rows, of which the first is there
    if (a.biasElement == ElementF32) {
#pragma unroll
      for (int n = 0; n < TileK / 32; n++) {
        const uint32_t unit = takeBias();
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int at = same ? 0 : part * 64 + thread / 32 * 16 + lane / 4 + 8 * r;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const float2 two = loadShared8(unit + at * 128 + ((2 * i + pair / 4) ^ (at & 7)) * 16 + pair % 4 * 4);
            float* const x = s + 16 * n + 4 * i + 2 * r;
            x[0] = fmaf(x[0], scale, two.x);
            x[1] = fmaf(x[1], scale, two.y);
          }
        }
        doneWithBias();
      }
    } else {
#pragma unroll
      for (int n = 0; n < TileK / 64; n++) {
        // The lane gives the address of a row of one of four 8×8 matrices: eight rows or the next
        // eight, eight columns or the next eight.
        const uint32_t unit = takeBias();
        const int at = same ? 0 : part * 64 + thread / 32 * 16 + lane % 16, next = lane / 16;
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
          uint32_t two[4];
          loadMatrix4(two, unit + at * 128 + ((i + next) ^ (at & 7)) * 16);
#pragma unroll
          for (int m = 0; m < 4; m++) {
            float* const x = s + 32 * n + 4 * i + 2 * m;
            const float2 b = unpack(two[m]);
            x[0] = fmaf(x[0], scale, b.x);
            x[1] = fmaf(x[1], scale, b.y);
          }
        }
        doneWithBias();
      }
    }
  }
  // doneWithBias gives the place of a piece back. Without the fence TMA might write the next one
  // there before this one is read.
  DEVICE void doneWithBias() {
    sharedToAsync();
    __syncwarp();
    releaseBias();
  }
  // takeBias waits for the next piece of the bias and returns its address.
  DEVICE uint32_t takeBias() {
    barrierWait(barriers.fullBias(bias.stage), bias.parity);
    return shared + Shape::BiasAt + bias.stage * Shape::BiasBytes;
  }

  // softmax turns S into P relative to the rows' maxima. A maximum that grew by less than 2^8 stays
  // as it was, since nothing overflows; true tells that some row of the warp may have a new one and
  // its O must shrink by the factor. From S of rows whose maximum is far it is subtracted first, in
  // the same branch: one more would cost 7%.
  DEVICE bool softmax(int j, float (&shrink)[2], bool half) {
    const float missing[2] = {slant.missing(j, 0), slant.missing(j, 1)};
    float top[2] = {s[0], s[2]};
    highestOf<0>(top);
    if (!half) highestOf<1>(top);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
      if (Shape::Slants) top[r] += missing[r];
    }
    bool grows = (top[0] - highest[0]) * toLog2 > 8.f || (top[1] - highest[1]) * toLog2 > 8.f;
    if (Score::ADDS) grows |= isFar<false>(fmaxf(fabsf(highest[0] - missing[0]), fabsf(highest[1] - missing[1])) * toLog2);
    const bool grew = __any_sync(~0u, grows);
    float base[2] = {0, 0};
    if (grew) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float before = highest[r];
        highest[r] = fmaxf(before, top[r]);
        shrink[r] = exp2Fast((before - (highest[r] == -INFINITY ? 0.f : highest[r])) * toLog2);
        sum[r] *= shrink[r];
        if (Score::ADDS) {
          const float start = highest[r] == -INFINITY ? 0.f : highest[r] - missing[r];
          base[r] = isFar<false>(start * toLog2) ? start : 0.f;
        }
      }
      if (Score::ADDS) {
#pragma unroll
        for (int i = 0; i < TileK / 2; i++) s[i] -= base[i / 2 % 2];
      }
    }
    exponentials<0>(missing, base);
    if (!half) exponentials<1>(missing, base);
    return grew;
  }
  template <int Part> DEVICE void highestOf(float (&top)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < TileK / 16; i++) top[r] = fmaxf(top[r], fmaxf(element<Part>(i, r, 0), element<Part>(i, r, 1)));
  }
  // exponentials turns S, which lacks missing and from which base was subtracted, into P.
  template <int Part> DEVICE void exponentials(const float (&missing)[2], const float (&base)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float offset = highest[r] == -INFINITY ? 0.f : (Score::ADDS ? highest[r] - missing[r] - base[r] : highest[r]) * toLog2;
      float total = sum[r];
#pragma unroll
      for (int i = 0; i < TileK / 16; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& x = element<Part>(i, r, e);
          x = exp2Fast(fmaf(x, toLog2, -offset));
          total += x;
        }
      sum[r] = total;
    }
  }

  // roundP packs P for the product, leaving out what dropout drops.
  DEVICE void roundP(bool half) {
#pragma unroll
    for (int i = 0; i < TileK / 8; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) p[2 * i + r] = half && i >= TileK / 16 ? 0 : pack(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]);
    if (Drops && a.dropThreshold) {
#pragma unroll
      for (int i = 0; i < TileK / 8; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) p[2 * i + r] &= keepMask(kept[r], i);
    }
  }

  // Bits of the kept columns: of a pair of neighbouring columns 8·i + pair, the first one's is in
  // byte 1 − i mod 2, the second one's two bytes above, i/2 places under its top. keepMask makes a
  // register of ones out of them.
  static constexpr int KeptBits = TileK / 16;
  static DEVICE uint32_t keepMask(uint32_t bits, int i) {
    uint32_t ones;  // the selectors copy the top bit of a byte to all bits of two
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(ones) : "r"(bits << i / 2), "r"(i % 2 ? 0xAA88 : 0xBB99));
    return ones;
  }

  // drawDropout draws which elements of key tile j stay. Four neighbouring lanes share two rows,
  // and of eight columns have two each, one word of the counter. Each draws a quarter of the
  // counters, those of one row (lane mod 2) and of every other eight columns (lane / 2 mod 2), and
  // gives the others what is theirs.
  DEVICE void drawDropout(int j) {
    if (!Drops || !a.dropThreshold) return;
    const Dropper dropper(a, sequence, head);
    // for the lanes 0 (bytes 1 and 3) and 1 (0 and 2) of the four, and for 2 and 3
    uint32_t low = 0, high = 0;
    if (dropper.dropsFew())
      drawQuarter<true>(dropper, j, low, high);
    else
      drawQuarter<false>(dropper, j, low, high);
    const bool odd = lane & 1, upper = lane & 2;
    const uint32_t others = __shfl_xor_sync(~0u, upper ? low : high, 2);
    // of every other eight columns
    const uint32_t first = upper ? others : low, second = upper ? high : others;
    const uint32_t even = __byte_perm(first, second, 0x3715), uneven = __byte_perm(first, second, 0x2604);
    const uint32_t got = __shfl_xor_sync(~0u, odd ? even : uneven, 1);
    kept[0] = odd ? got : even;
    kept[1] = odd ? uneven : got;
  }
  // keyOf is the first key of tile j.
  DEVICE int keyOf(int j) const { return j * TileK; }
  template <bool Few> DEVICE void drawQuarter(const Dropper& dropper, int j, uint32_t& low, uint32_t& high) const {
    constexpr int together = 4;
    static_assert(!Drops || KeptBits % together == 0 && KeptBits <= 8, "a byte has the bits of all counters, drawn four at a time");
    const int i = row + (lane & 1) * 8, column = keyOf(j) + (lane & 2) * 4;
#pragma unroll 1
    for (int n = KeptBits - together; n >= 0; n -= together) {
      uint4 words[together];
#pragma unroll
      for (int m = 0; m < together; m++) words[m] = dropper.counter(i, column + (n + m) * 16);
      dropper.draw(words);
      low >>= together;
      high >>= together;
#pragma unroll
      for (int m = 0; m < together; m++) {
        const uint32_t w0 = dropper.keptOf<Few>(words[m].x), w1 = dropper.keptOf<Few>(words[m].y);
        const uint32_t w2 = dropper.keptOf<Few>(words[m].z), w3 = dropper.keptOf<Few>(words[m].w);
        low |= __byte_perm(w0, w1, 0x3715) >> m & 0x80808080 >> m;
        high |= __byte_perm(w2, w3, 0x3715) >> m & 0x80808080 >> m;
      }
    }
  }

  // Destination is where the sixteen rows of the thread's warp go, how many of them exist, and
  // their head's sink.
  struct Destination {
    Scalar* o;
    float* lse;
    int rows;
    float sink;
  };
  DEVICE Destination destination() const {
    const int64_t at = sequence.q0 + row - lane / 4;
    return {(Scalar*)a.o.data + sequence.batch * a.o.batch + head * a.o.head + at * a.o.row,
            a.lse + ((int64_t)sequence.batch * a.heads + head) * a.sq + at, sequence.sq - (row - lane / 4),
            a.sinks ? a.sinks[head] : -INFINITY};
  }

  // store divides by the rows' sums and writes O and the logsumexp.
  DEVICE void store(const Destination& to) const {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float total = sum[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      float top = Score::ADDS ? highest[r] * Score::factorOf(a) : highest[r] * toLog2 * LN2, shrink = 1;
      if (to.sink != -INFINITY) {
        const float before = top;
        top = fmaxf(before, to.sink);
        shrink = before == -INFINITY ? 0.f : exp2Fast((before - top) * LOG2E);
        total = total * shrink + exp2Fast((to.sink - top) * LOG2E);
      }
      factor[r] = total == 0 ? 0.f : __fdividef(shrink, total);
      if (Drops && a.dropThreshold) factor[r] *= a.keepScale;
      const int at = lane / 4 + 8 * r;
      if (a.lse && lane % 4 == 0 && at < to.rows) to.lse[at] = total == 0 ? -INFINITY : top + __logf(total);
    }

    // The warp's rows pass through its own piece of shared memory, 64 columns at a time, so that
    // the writes are of whole lines. No product of the warpgroup hides this code, so what most tiles
    // need is short and apart from the rest. The warp decides: were it a thread, the compiler would
    // lose sight of what is the same in a warp.
    const uint32_t stage = shared + Shape::OAt + (threadIdx.x / 32 - 4) * Shape::OBytes;
    const bool whole = a.dv % 8 == 0 && ((uint64_t)a.o.data | a.o.row * 2 | a.o.head * 2 | a.o.batch * 2) % 16 == 0;
    const int line = lane / 8, part = lane % 8;  // what the lane writes: every fourth row, eight columns
    if (__all_sync(~0u, whole && to.rows >= 16)) {
      Scalar* const first = to.o + line * a.o.row + 8 * part;
      const uint32_t even = stage + line * 128 + (part ^ line) * 16, odd = stage + (line + 4) * 128 + (part ^ line ^ 4) * 16;
#pragma unroll
      for (int c = 0; c < Shape::ChunksV; c++) {
        putChunk(stage, c, factor);
        uint4 eight[4];
#pragma unroll
        for (int i = 0; i < 4; i++) eight[i] = loadShared16((i % 2 ? odd : even) + i / 2 * 1024);
        if (64 * c + 8 * part < a.dv) {
#pragma unroll
          for (int i = 0; i < 4; i++) storeGlobal16(first + 4 * i * a.o.row + 64 * c, eight[i]);
        }
        __syncwarp();
      }
    } else {
#pragma unroll
      for (int c = 0; c < Shape::ChunksV; c++) {
        putChunk(stage, c, factor);
        const int column = 64 * c + 8 * part;
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
          const int at = line + 4 * i;
          if (at >= to.rows || column >= a.dv) continue;
          const uint4 eight = loadShared16(stage + at * 128 + (part ^ (at & 7)) * 16);
          Scalar* const first = to.o + at * a.o.row + column;
          if (whole) {
            storeGlobal16(first, eight);
          } else {
            const Scalar* elements = (const Scalar*)&eight;
#pragma unroll
            for (int e = 0; e < 8; e++)
              if (column + e < a.dv) first[e] = elements[e];
          }
        }
        __syncwarp();
      }
    }
  }
  // putChunk writes 64 columns of the warp's rows of O to shared memory, where the 16-byte parts of
  // a row are permuted by the row's number, against bank conflicts.
  DEVICE void putChunk(uint32_t to, int c, const float (&factor)[2]) const {
    // storeMatrix4: the row that the lane gives the address of, and which half
    const int line = lane % 16, behind = lane / 16;
#pragma unroll
    for (int i = 0; i < min(8, DV / 8 - 8 * c) / 2; i++) {
      const float* x = o + 32 * c + 8 * i;
      storeMatrix4(to + line * 128 + ((2 * i + behind) ^ (line & 7)) * 16, pack(x[0] * factor[0], x[1] * factor[0]),
                   pack(x[2] * factor[1], x[3] * factor[1]), pack(x[4] * factor[0], x[5] * factor[0]),
                   pack(x[6] * factor[1], x[7] * factor[1]));
    }
    __syncwarp();
  }
  // storeGlobal16 is one instruction. Of an assignment the compiler makes four in some places.
  static DEVICE void storeGlobal16(Scalar* to, uint4 x) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
  }
};

template <class Shape, class Score>
DEVICE void attentionForward(const CUtensorMap* q, const CUtensorMap* k, const CUtensorMap* v, const CUtensorMap* bias,
                             const AttentionArguments& a) {
  extern __shared__ uint8_t memory[];
  const uint32_t shared = (sharedAddress(memory) + 1023) & ~1023u;
  const ForwardBarriers<Shape> barriers = {shared + Shape::BarriersAt};
  if (threadIdx.x == 0) {
    barriers.init();
    prefetchMap(q);
    prefetchMap(k);
    prefetchMap(v);
    if (Shape::StagesBias > 0 && a.biasMapped) prefetchMap(bias);
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewerRegisters<Shape::ProducerRegisters>();
    if (threadIdx.x < 32)
      ForwardProducer<Shape, Score>{a, q, k, v, bias, shared, barriers}.run();
    else if (threadIdx.x < 64)
      ForwardScheduler<Shape, Score>{a, barriers}.run();
  } else {
    moreRegisters<Shape::ConsumerRegisters>();
    ForwardConsumer<Shape, Score>(a, barriers, shared).run();
  }
}
