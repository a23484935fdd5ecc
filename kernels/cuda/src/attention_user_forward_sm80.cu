// The forward kernel for compute capability 8.0 and newer, with a user's score or mask: see
// attention_user.cuh.
#include "attention_user_lists.cuh"

#include "attention_forward_sm80.cuh"

using Kernel = Forward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>;

#if USER_LISTS
static_assert(USER_LINE == TILE_Q && USER_CELL == TILE_K, "attention_score.go has other lists");

// from is a matrix without its first rows.
DEVICE Matrix from(const Matrix& m, int rows) {
  return {(Arithmetic::Stored*)m.data + rows * m.stride, m.stride, m.rows - rows, m.columns};
}

// run goes over the cells that the tile sees. A step loads the tile behind its own in advance: it
// is given matrices in which that is the next one, or (WIDE) knows it.
template <> DEVICE void Kernel::run() {
  const Sequence& s = view.s;
  if (row >= s.sq) return;
  const int keyHead = head / (a.heads / a.keyHeads);
  const Matrix keys = matrixOf<Arithmetic>(a.k, s.batch, keyHead, s.k0, s.sk, a.d);
  const Matrix values = valuesOf(matrixOf<Arithmetic>(a.v, s.batch, keyHead, s.k0, s.sk, a.dv));
  const UserLists lists((const UserArguments&)a, a.sq, USER_LINE);
  const int line = lists.before(lists.planeOf(head), s.index, a.sq, s.q0, USER_LINE) + row / USER_LINE, count = __ldg(&lists.list(line)->count);
  const int cleanFirst = __ldg(&lists.list(line)->cleanFirst), cleanEnd = __ldg(&lists.list(line)->cleanEnd);
  const uint32_t* const bits = lists.bits(line);
  const float exponent = Score::factorOf<Arithmetic::BYTES == 4>(a) * LOG2E;

  clear();
  int tile = 0;
  if (count > 0) {
    tile = userFrom(bits, lists.a.shift, 0);
    begin(matrixOf<Arithmetic>(a.q, s.batch, head, s.q0, s.sq, a.d), keys, values, tile);
  }
#pragma unroll 1
  for (int n = 0; n < count; n++) {
    const bool another = n + 1 < count;
    next = another ? userFrom(bits, lists.a.shift, tile + 1) : tile + 1;
    const int between = WIDE ? 0 : (next - tile - 1) * TILE_K;
    const Matrix nextKeys = from(keys, between), nextValues = STAGED || THREE ? from(values, between) : values;
    if (!USER_SCORE && !USER_OPTIONS && n >= cleanFirst && n < cleanEnd) step<true>(nextKeys, nextValues, tile, another, exponent);
    else step<false>(nextKeys, nextValues, tile, another, exponent);
    tile = next;
  }
  finish(exponent);
}
#endif

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 256 / BLOCK_THREADS)
KERNEL(const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionForward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a);
}
