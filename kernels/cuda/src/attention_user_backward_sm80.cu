// The backward kernels for compute capability 8.0 and newer, with a user's score or mask: see
// attention_user.cuh.
#include "attention_user_backward_sm80.cuh"
#include "attention_user_lists.cuh"
#include "attention_user_sums.cuh"

#if USER_LISTS
static_assert(USER_LINE == TILE_K && USER_CELL == TILE_Q, "attention_score.go has other lists");

// QueryWalk by the list of the block's keys.
template <> struct QueryWalk<Score, TILE_Q, TILE_K> {
  static constexpr bool SKIPS = true;
  const UserLists lists;
  const int line;
  const uint32_t* const bits;
  const int steps, start, end;
  DEVICE QueryWalk(const AttentionArguments& a, const View<Score>& view, int tile, int head, int heads)
      : lists((const UserArguments&)a, a.sk, USER_LINE),
        line(lists.before(lists.planeOf(head), view.s.index, a.sk, view.s.k0, USER_LINE) + tile),
        bits(lists.bits(line)), steps(__ldg(&lists.list(line)->count) * heads), start(__ldg(&lists.list(line)->first)),
        end(__ldg(&lists.list(line)->end) - 1) {}
  DEVICE const int& first() const { return start; }
  DEVICE const int& last() const { return end; }
  DEVICE int below(int queryTile) const { return userBelow(bits, lists.a.shift, queryTile); }
};
#endif

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 256 / BLOCK_THREADS)
KERNEL(const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionBackward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Arithmetic, HEAD_DIM, TILE_Q, BLOCK_THREADS / 32>(a);
}
