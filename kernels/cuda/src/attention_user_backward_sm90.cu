// Attention backward for sm_90a, with a user's score or mask, and what runs after it: see
// attention_user.cuh.
//
// Where it goes by lists, a tile of keys is one line, or two of 64 keys, one for each of the
// consumers' warpgroups, which may lie apart, and its steps are the query tiles that see something
// of them. Which tile sees a query tile first is not known then: the sums of dQ are zero at launch,
// all add to them, and no order is kept.
#include "attention_user_lists.cuh"

#include "attention_backward_tiles_sm90.cuh"

#ifdef MOD
using Ours = OptionScore;
#else
using Ours = PlainScore;
#endif

#if USER_LISTS
// LINES are those of a tile of keys.
template <class Shape> constexpr int LINES = Shape::TileK / USER_LINE;
#endif

// A BackwardRecord of a user's mask. By lists, field 7 is the number of the tile's list, 14 the
// second line's first key less what lies before it in the tile, and 15 the band's end.
template <int D, int DV, int TILE, int KEYS>
struct BackwardRecord<BackwardShape<D, DV, TILE, SCORE, KEYS>> : BackwardRecord<BackwardShape<D, DV, TILE, Ours, KEYS>> {
  using Options = BackwardRecord<BackwardShape<D, DV, TILE, Ours, KEYS>>;
  using Options::TileK, Options::TileQ, Options::at, Options::get;
  DEVICE int order(int m) const { return USER_LISTS ? 0 : Options::order(m); }
#if USER_LISTS
  using Options::sk, Options::sq;
  DEVICE UserMask mask() const { return {{sq(), sk(), get(6), get(15)}}; }
  DEVICE int list() const { return get(7); }
  // The first key of the tile, as seen from the thread's warpgroup.
  DEVICE int key() const { return LINES<BackwardShape<D, DV, TILE, SCORE, KEYS>> == 2 && threadIdx.x >= 256 ? secondKey() : get(9); }
  DEVICE int secondKey() const { return get(14); }
  DEVICE int leads() const { return INT32_MAX; }

  DEVICE void put(const AttentionArguments& arguments, const BackwardTile& t) const {
    const UserArguments& a = (const UserArguments&)arguments;
    if (t.tile < 0) return storeShared16(at, make_uint4(~0u, 0, 0, 0));
    const Sequence s = sequenceOf(a, t.sequence);
    const UserMask mask = UserMask::of(a, s);
    const UserLists lists(a, a.sk, USER_LINE);
    const int number = lists.before(lists.planeOf(t.keyHead * (a.heads / a.keyHeads)), s.index, a.sk, s.k0, USER_LINE) + t.tile;
    const int4* const list = (const int4*)lists.list(number);
    const int4 keys = __ldg(list), steps = __ldg(list + 1);
    storeShared16(at, make_uint4(s.index, s.batch, s.q0, s.k0));
    storeShared16(at + 16, make_uint4(s.sq, s.sk, mask.lo, number));
    storeShared16(at + 32, make_uint4(t.keyHead, keys.y * USER_LINE, steps.x, steps.y));
    storeShared16(at + 48, make_uint4(steps.z, steps.w, keys.z * USER_LINE - USER_LINE, mask.hi));
  }
#else
  DEVICE UserMask mask() const { return {Options::mask()}; }

  DEVICE void put(const AttentionArguments& a, const BackwardTile& t) const {
    if (t.tile < 0) return storeShared16(at, make_uint4(~0u, 0, 0, 0));
    const Sequence s = sequenceOf(a, t.sequence);
    const UserMask mask = UserMask::of(a, s);
    const int key = t.tile * TileK;
    const Tiles tiles = queryTiles<TileQ, true>(mask, key, TileK);
    storeShared16(at, make_uint4(s.index, s.batch, s.q0, s.k0));
    storeShared16(at + 16, make_uint4(s.sq, s.sk, mask.lo, mask.hi));
    storeShared16(at + 32, make_uint4(t.keyHead, key, tiles.first, tiles.end));
    storeShared16(at + 48, make_uint4(tiles.cleanFirst, tiles.cleanEnd, firstOf<TileQ>(mask.lo, key), 0));
  }
#endif
};

#if USER_LISTS
// BackwardSteps by lists. The bits that are left of a word stay in a register, since a step must
// not wait for memory.
template <int D, int DV, int TILE, int KEYS> struct BackwardSteps<BackwardShape<D, DV, TILE, SCORE, KEYS>> {
  using Record = BackwardRecord<BackwardShape<D, DV, TILE, SCORE, KEYS>>;
  const UserArguments& a;
  Record record;
  int m, head;    // of this step
  int left;       // heads, with this one
  int last;       // the step before's m
  uint32_t word;  // bits below m's of the word that has it

  DEVICE BackwardSteps(const AttentionArguments& arguments, Record record)
      : a((const UserArguments&)arguments), record(record), m(0), head(record.keyHead() * (a.heads / a.keyHeads)), left(0), last(0), word(0) {
    if (record.first() == record.end()) return;
    left = a.heads / a.keyHeads;
    begin();
  }
  // begin goes to a head's last query tile.
  DEVICE void begin() {
    m = record.end() - 1;
    const int bit = m >> a.shift;
    word = __ldg(bits() + bit / 32) & ((1u << bit % 32) - 1);
  }
  DEVICE const uint32_t* bits() const { return UserLists(a, a.sk, USER_LINE).bits(record.list()); }

  DEVICE void next() {
    last = m;
    if (m & ((1 << a.shift) - 1)) {
      m--;
      return;
    }
    int n = (m >> a.shift) / 32;
    if (!word) {
      if (m == record.first()) {
        left--, head++;
        return begin();
      }
      do word = __ldg(bits() + --n);
      while (!word);
    }
    const int bit = 31 - __clz(word);
    word ^= 1u << bit;
    m = ((32 * n + bit + 1) << a.shift) - 1;
  }
  DEVICE BackwardStep before() const { return {last, last <= m ? head - 1 : head}; }
  DEVICE int cleanFirst() const { return __shfl_sync(~0u, record.cleanFirst(), 0); }
  DEVICE int cleanEnd() const { return __shfl_sync(~0u, record.cleanEnd(), 0); }
  DEVICE void share() {
    m = __shfl_sync(~0u, m, 0);
    head = __shfl_sync(~0u, head, 0);
    left = __shfl_sync(~0u, left, 0);
    word = __shfl_sync(~0u, word, 0);
  }
};
#endif

#include "attention_backward_sm90.cuh"
#include "attention_user_sums.cuh"

using Score = SCORE;

using Shape = BackwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q, Score, TILE_K>;
static_assert(Shape::TileK == TILE_K && Shape::Threads == BLOCK_THREADS && Shape::SharedBytes == SHARED_BYTES,
              "variants_backward90.go describes another kernel");

#if !USER_DROPS
// What takes the compiler long is left out where nothing is dropped.
template <> DEVICE void BackwardHelpers<Shape>::draw(const Steps&) const {}
template <> DEVICE void BackwardScores<Shape>::drop(uint32_t (&)[TILE_Q / 4]) const {}
template <> template <class Masked>
DEVICE void BackwardScores<Shape>::droppedGradients(const uint32_t (&)[TILE_Q / 4], const uint32_t (&)[TILE_Q / 4], float (&)[TILE_Q / 2],
                                                    Masked) const {}
#endif

#if USER_LISTS
static_assert(USER_CELL == TILE_Q && (LINES<Shape> == 1 || LINES<Shape> == 2 && !Shape::Modified && !Shape::Wide),
              "attention_score.go has other lists");

// waitK zeroes the rows of each line beyond the end.
template <> DEVICE void BackwardScores<Shape>::waitK(const Steps& steps) const {
  barrierWait(barriers().fullK(), keysParity);
  if (!keysEndEarly(a)) return;
  const int first = steps.record.get(9), second = steps.record.secondKey() + USER_LINE, sk = steps.record.sk();
  clear(Shape::KAt, Shape::Chunks, Shape::KChunk, max(0, sk - first), USER_LINE);
  if (LINES<Shape> == 2) clear(Shape::KAt + USER_LINE * 128, Shape::Chunks, Shape::KChunk, max(0, sk - second), USER_LINE);
}
#endif

#if USER_LISTS && USER_LISTER
// Heads come one after the other, or two at a time where each has its own keys: a tile adds to sums
// of dQ all over its heads, and as many of these as can be should lie in the L2 cache.
template <>
DEVICE BackwardQueue<Shape>::BackwardQueue(const AttentionArguments& a)
    : a(a), tiles((a.longestK + Shape::TileK - 1) / Shape::TileK), heads(a.sequences * a.keyHeads), mixed(0),
      sequencesFirst(Shape::Modified && a.dBias && a.dBiasSequence == 0) {
  const int together = a.heads == a.keyHeads ? 2 : 1;
  even = (heads + together - 1) / together;
  parts = max(1, even - 1);
}
#endif

#if USER_LISTS && USER_LISTER && TILE_K == 64 && HEAD_DIM <= 128
// storeMark makes a counter other than zero. Many threads may do so at a time.
DEVICE void storeMark(int32_t* counter) { asm volatile("st.relaxed.gpu.global.b32 [%0], 1;" ::"l"(counter) : "memory"); }

// backwardAdded only marks the query tiles that have sums: nobody waits for them, and where one
// warpgroup has all of a tile a fence in each step would delay the next one's sums.
template <>
DEVICE void backwardAdded<Shape>(const CUtensorMap*, const AttentionArguments& a, uint32_t, const BackwardBarriers<Shape>& barriers) {
  Ring<2> slot(0);
  uint32_t n = 0;
  barrierArrive(barriers.turn());
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next(), n++) {
      barrierWait(barriers.added(), n & 1);
      barrierArrive(barriers.turn());
      storeMark(a.counters + 2 + Shape::Sums::place(a, record.sequence(), steps.head, steps.m));
    }
    barriers.releaseRecord(slot, true);
  }
}
#endif

#if USER_LISTS && USER_LINE < TILE_K
// KeyRows of tiles of two lines, read where they are needed.
template <> struct KeyRows<Shape> {
  static constexpr int Pieces = LINES<Shape>;
  const BackwardRecord<Shape> record;
  DEVICE KeyRows(const BackwardRecord<Shape>& record) : record(record) {}
  DEVICE int operator[](int n) const { return record.k0() + (n ? record.secondKey() + USER_LINE : record.get(9)); }
};
#endif

extern "C" __global__ void __launch_bounds__(Shape::Threads, Shape::Blocks)
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ CUtensorMap o,
#ifdef MOD
       const __grid_constant__ CUtensorMap bias, const __grid_constant__ UserArguments a) {
  const CUtensorMap* const ofBias = &bias;
#else
       const __grid_constant__ UserArguments a) {
  const CUtensorMap* const ofBias = nullptr;
#endif
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionBackward<Shape>(&q, &k, &v, &o, ofBias, nullptr, a);
}

extern "C" __global__ void __launch_bounds__(256) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Shape::Sums, 256>(a);
}
