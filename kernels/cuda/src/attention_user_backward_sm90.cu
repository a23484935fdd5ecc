// Attention backward for sm_90a, with a user's score or mask, and what runs after it: see attention_user.cuh.
#include "attention_user.cuh"

#include "attention_backward_tiles_sm90.cuh"

// A BackwardRecord of a user's mask. Where tiles are those of hulls, which of them sees a query tile first is not known: the sums of
// dQ are zero at launch, all add to them, and no order is kept.
#ifdef MOD
using Ours = OptionScore;
#else
using Ours = PlainScore;
#endif
template <int D, int DV, int TILE>
struct BackwardRecord<BackwardShape<D, DV, TILE, SCORE>> : BackwardRecord<BackwardShape<D, DV, TILE, Ours>> {
  using Options = BackwardRecord<BackwardShape<D, DV, TILE, Ours>>;
  using Options::TileK, Options::TileQ, Options::at, Options::get;
  DEVICE bool ordered() const { return get(15); }
  DEVICE int order(int m) const { return ordered() ? Options::order(m) : 0; }
  DEVICE UserMask mask() const { return {Options::mask()}; }

  DEVICE void put(const AttentionArguments& a, const BackwardTile& t) const {
    if (t.tile < 0) return storeShared16(at, make_uint4(~0u, 0, 0, 0));
    const Sequence s = sequenceOf(a, t.sequence);
    const UserMask mask = UserMask::of(a, s);
    const int key = t.tile * TileK;
    const Tiles tiles = queryTiles<TileQ, true>(mask, key, TileK);
    const bool ordered = !((const UserArguments&)a).hulls;
    storeShared16(at, make_uint4(s.index, s.batch, s.q0, s.k0));
    storeShared16(at + 16, make_uint4(s.sq, s.sk, mask.lo, mask.hi));
    storeShared16(at + 32, make_uint4(t.keyHead, key, tiles.first, tiles.end));
    storeShared16(at + 48, make_uint4(tiles.cleanFirst, tiles.cleanEnd, ordered ? firstOf<TileQ>(mask.lo, key) : INT32_MAX, ordered));
  }
};

#include "attention_backward_sm90.cuh"
#include "attention_user_sums.cuh"

using Score = SCORE;

using Shape = BackwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q, Score>;
static_assert(Shape::TileK == TILE_K && Shape::Threads == BLOCK_THREADS && Shape::SharedBytes == SHARED_BYTES,
              "variants_backward90.go describes another kernel");

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
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
  attentionBackward<Shape>(&q, &k, &v, &o, ofBias, a);
}

extern "C" __global__ void __launch_bounds__(256) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Shape::Sums, 256>(a);
}
