// The backward kernels for compute capability 8.0 and newer, with a user's score or mask: see
// attention_user.cuh.
#include "attention_user_backward_sm80.cuh"
#include "attention_user_lists.cuh"
#include "attention_user_sums.cuh"

using Kernel = Backward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>;

#if USER_LISTS
static_assert(USER_LINE == TILE_K && USER_CELL == TILE_Q, "attention_score.go has other lists");

// store writes the gradients of the block's keys.
template <class E, class Sums>
DEVICE void store(const Kernel& b, const Matrix& dK, const Matrix& dV, const Sums& sumK, const Sums& sumV, int column, int row, int columnOfTile) {
  if constexpr (E::SCALED) {
    storeFloats(sumK, dK, column + row, columnOfTile);
    storeFloats(sumV, dV, column + row, columnOfTile);
  } else {
    __syncthreads();  // every warp is done with K and V, whose place the results pass through
    storeAccumulator<E>(sumK, b.k, row, columnOfTile);
    storeAccumulator<E>(sumV, b.v, row, columnOfTile);
    __syncthreads();
    storeRows<E, BLOCK_THREADS>(b.k, 0, TILE_K, dK, column, threadIdx.x);
    storeRows<E, BLOCK_THREADS>(b.v, 0, TILE_K, dV, column, threadIdx.x);
  }
}

// run goes over the query tiles that see something of the block's keys, by their list.
template <> DEVICE void Kernel::run() {
  static_assert(!BY_KEYS, "a user's scores do not go by keys");
  constexpr int WARPS = BLOCK_THREADS / 32;
  const Sequence& s = view.s;
  const int column = tile * TILE_K;
  if (column >= s.sk) return;
  const int group = a.heads / a.keyHeads, firstHead = keyHead * group;
  const UserLists lists((const UserArguments&)a, a.sk, USER_LINE);
  const int line = lists.before(s.index, a.sk, s.k0, USER_LINE) + tile;
  const uint32_t* const bits = lists.bits(line);
  const int count = __ldg(&lists.list(line)->count), steps = count * group;
  const int top = __ldg(&lists.list(line)->first), last = __ldg(&lists.list(line)->end) - 1;
  const int rowS = warp() % GRID_S * 16 * ROWS, columnS = warp() / GRID_S * 8 * KEYS;
  const int rowK = warp() % GRID_K * 16 * OUT_ROWS, columnK = warp() / GRID_K * OUT_WIDTH;

  float sumK[OUT_ROWS][OUT][4] = {}, sumV[OUT_ROWS][OUT][4] = {};
  float unitV = 0;
  int head = firstHead, queryTile = last;
  if (steps > 0) {
    loadKeys<Arithmetic, TILE_Q, TILE_K, WARPS>(k, v, q, dO, matrixOf<Arithmetic>(a.k, s.batch, keyHead, s.k0, s.sk, a.d),
                                                matrixOf<Arithmetic>(a.v, s.batch, keyHead, s.k0, s.sk, a.dv), column);
    fetchQ(true, q, head, queryTile);
    fetchDO(true, dO, head, queryTile);
  }
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    const int row = queryTile * TILE_Q, thisHead = head, thisTile = queryTile;
    const bool another = step + 1 < steps;
    if (queryTile == top) queryTile = last, head++;
    else queryTile = userBelow(bits, lists.a.shift, queryTile);
    {
      Scores<Arithmetic, HEAD_DIM, ROWS, KEYS, Score> scores;
      scores.rows(a, view, thisHead, row + rowS);
      copyWait<0>();
      settle<Arithmetic, TILE_Q, WARPS>(q, q);
      settle<Arithmetic, TILE_Q, WARPS>(dO, dO);
      __syncthreads();  // the tiles are here, and every warp is done with the last step
      if (PLACES == 4) fetchQ(another, nextQ, head, queryTile), fetchDO(another, nextDO, head, queryTile);
      scores.compute(a, view, thisHead, q, k, dO, v, rowS, columnS, row + rowS, column + columnS);
      storeScores(scores, rowS, columnS, sumV, unitV);
    }
    __syncthreads();  // P and dS are complete
    if (EARLY_Q) {
      multiplyColumns<Arithmetic, TILE_Q, CELL_ROWS>(sumK, dS, rowK, rowK / (8 * KEYS), q, columnK);
      __syncthreads();  // every warp is done with Q
      fetchQ(another, nextQ, head, queryTile);
    }
    multiplyColumns<Arithmetic, TILE_Q, IN_UNIT ? 0 : CELL_ROWS>(sumV, p, rowK, rowK / (8 * KEYS), dO, columnK);
    if (!EARLY_Q) multiplyColumns<Arithmetic, TILE_Q, CELL_ROWS>(sumK, dS, rowK, rowK / (8 * KEYS), q, columnK);
    if (PLACES == 2) {
      __syncthreads();  // every warp is done with Q and dO
      if (!EARLY_Q) fetchQ(another, nextQ, head, queryTile);
      fetchDO(another, nextDO, head, queryTile);
    }
    addQueries(thisHead, thisTile);
    turn();
  }
  scaleBy(sumK, a.scale);
  scaleBy(sumV, (a.dropThreshold ? a.keepScale : 1) * (IN_UNIT ? unitV : 1));
  const Matrix dK = matrixOf<Arithmetic>(a.dK, s.batch, keyHead, s.k0, s.sk, a.d);
  const Matrix dV = matrixOf<Arithmetic>(a.dV, s.batch, keyHead, s.k0, s.sk, a.dv);
  store<Arithmetic>(*this, dK, dV, sumK, sumV, column, rowK, columnK);
}
#endif

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 256 / BLOCK_THREADS)
KERNEL(const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionBackward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Arithmetic, HEAD_DIM, TILE_Q, BLOCK_THREADS / 32>(a);
}
