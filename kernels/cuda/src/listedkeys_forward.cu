// Attention to listed keys, forward: O and the logsumexp of a query's heads.
//
//   S = scale·Q·Kᵀ over the listed rows of K, P = exp(S − max), O = P·V / Σ P
//
// listedkeys.cuh says how the work is shared. A set's softmax is online; its maxima and sums are
// joined with those of the other sets at the end.
#include "listedkeys.cuh"

template <class E, int D, int R, int BLOCKS, int SPLITS, int KEYS, int STAGES>
struct ListedForward : Listed<E, D, R, BLOCKS, SPLITS, KEYS, STAGES> {
  using Base = Listed<E, D, R, BLOCKS, SPLITS, KEYS, STAGES>;
  using Base::a;
  using Base::part;
  using Base::split;
  using typename Base::Operand;
  using typename Base::Scores;
  static constexpr int ROWS = Base::ROWS, WARPS = Base::WARPS, SHARE = Base::SHARE, OWN = Base::OWN, STAGE = SPLITS * KEYS;

  const Operand q, k, v;  // k and v: of all stages
  int32_t* const indices;
  typename Base::Sums o;
  float most[BLOCKS][2], sum[BLOCKS][2];  // to base 2; of the lane's exponentials

  DEVICE ListedForward(const ListedArguments& a, int block)
      : Base(a, block), q{sharedAddress(sharedMemory)}, k{q.base + ROWS * Operand::STRIDE}, v{k.base + Base::TILES * Operand::STRIDE},
        indices((int32_t*)(sharedMemory + (ROWS + 2 * Base::TILES) * Operand::STRIDE)) {}

  DEVICE void run() {
    const Matrix keys = this->keys(a.k, a.d), values = this->keys(a.v, a.dv);
    const bool alignedK = keys.template aligned<E>(), alignedV = values.template aligned<E>();
    const float exponent = a.scale * LOG2E;
    const int tiles = this->tiles();
    clear(o);
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++) most[n / 2][n % 2] = -INFINITE, sum[n / 2][n % 2] = 0;
    loadTile<E, ROWS, WARPS>(q, this->rows(a.q, a.d), 0);
    copyCommit();
    int stage = 0;
    int2 next = this->entry(split);
    const auto fetch = [&](int n, int to) {
      if (n < tiles) {
        const int first = to * STAGE + split * KEYS + part * SHARE;
        const int key = this->keyOf(split + n * SPLITS, next);
        if (lane() < SHARE) indices[first + lane()] = key;
        gather<E, D, SHARE>(k, first, keys, alignedK, key);
        gather<E, D, SHARE>(v, first, values, alignedV, key);
        next = this->entry(split + (n + 1) * SPLITS);
      }
      copyCommit();
    };
#pragma unroll
    for (int n = 0; n < STAGES - 1; n++) fetch(n, n);
    copyWait<STAGES - 1>();
    settle<E, ROWS, WARPS>(q, q);
    __syncthreads();
#pragma unroll 1
    for (int n = 0; n < tiles; n++) {
      if (STAGES == 1) fetch(n, 0);
      copyWait<(STAGES > 1 ? STAGES - 2 : 0)>();
      const Operand tileK{k.base + stage * STAGE * Operand::STRIDE}, tileV{v.base + stage * STAGE * Operand::STRIDE};
      settle<E, STAGE, WARPS>(tileK, tileK);
      settle<E, STAGE, WARPS>(tileV, tileV);
      this->await();  // the tile is here, and every warp is done with the last
      if (STAGES > 1) fetch(n + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
      Scores x;
      multiplyTransposed<E, D>(x, q, OWN * part, tileK, split * KEYS);
      exponentials(x, indices + stage * STAGE + split * KEYS, exponent);
      addProduct<E, KEYS>(o, x, Operand{tileV.base + split * KEYS * Operand::STRIDE}, this->column);
      if (STAGES == 1) this->await();
      else stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    copyWait<0>();
    finish();
  }

  DEVICE void exponentials(Scores& x, const int32_t* index, float exponent) {
    float highest[BLOCKS][2];
    bool moves = false;
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++) highest[n / 2][n % 2] = most[n / 2][n % 2];
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
      const int2 keys = *(const int2*)(index + 8 * j + lane() % 4 * 2);
#pragma unroll
      for (int i = 0; i < BLOCKS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          x[i][j][e] = (e % 2 ? keys.y : keys.x) < 0 ? -INFINITE : x[i][j][e] * exponent;
          highest[i][e / 2] = fmaxf(highest[i][e / 2], x[i][j][e]);
        }
    }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++) {
      float& m = highest[n / 2][n % 2];
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      moves |= m > most[n / 2][n % 2];
    }
    if (__any_sync(~0u, moves)) {
#pragma unroll
      for (int n = 0; n < 2 * BLOCKS; n++) {
        const int i = n / 2, half = n % 2;
        const float after = highest[i][half], factor = after == -INFINITE ? 1 : exp2Fast(most[i][half] - after);
        most[i][half] = after, sum[i][half] *= factor;
#pragma unroll
        for (int j = 0; j < Base::WIDTH / 8; j++) o[i][j][2 * half] *= factor, o[i][j][2 * half + 1] *= factor;
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++) {
      const int i = n / 2, half = n % 2;
      const float base = most[i][half] == -INFINITE ? 0 : most[i][half];
#pragma unroll
      for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          x[i][j][e] = exp2Fast(x[i][j][e] - base);
          sum[i][half] += x[i][j][e];
        }
    }
  }

  // finish joins the sets and writes O and the logsumexp.
  DEVICE void finish() {
    using Element = typename E::Stored;
    constexpr int WIDTH = Base::WIDTH, STRIDE = WIDTH + PAD;
    float* const parts = (float*)sharedMemory;              // (SPLITS, ROWS, STRIDE)
    float* const tops = parts + SPLITS * ROWS * STRIDE;     // (SPLITS, ROWS)
    float* const totals = tops + SPLITS * ROWS;             // (SPLITS, ROWS), then the factors of parts
    __syncthreads();  // every warp is done with its tiles
    storePart(o, parts, split * ROWS + OWN * part);
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++) {
      float total = sum[n / 2][n % 2];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const int row = split * ROWS + OWN * part + lane() / 4 + 8 * n;
      if (lane() % 4 == 0) tops[row] = most[n / 2][n % 2], totals[row] = total;
    }
    __syncthreads();
    for (int row = threadIdx.x; row < this->heads; row += Base::THREADS) {
      float top = -INFINITE, total = 0;
      for (int s = 0; s < SPLITS; s++) top = fmaxf(top, tops[s * ROWS + row]);
      for (int s = 0; s < SPLITS; s++)
        if (totals[s * ROWS + row] != 0) total += totals[s * ROWS + row] * exp2Fast(tops[s * ROWS + row] - top);
      for (int s = 0; s < SPLITS; s++) totals[s * ROWS + row] = total == 0 || totals[s * ROWS + row] == 0 ? 0 : exp2Fast(tops[s * ROWS + row] - top) / total;
      if (a.lse && this->column == 0) a.lse[this->statistic(row)] = total == 0 ? -INFINITE : top * LN2 + logf(total);
    }
    __syncthreads();
    const Results<Element> results(this->rows(a.o, a.dv));
    for (int at = threadIdx.x; at < this->heads * (WIDTH / 4); at += Base::THREADS) {
      const int row = at / (WIDTH / 4), column = at % (WIDTH / 4) * 4;
      float x[4] = {};
#pragma unroll
      for (int s = 0; s < SPLITS; s++) {
        const float factor = totals[s * ROWS + row];
        if (factor == 0) continue;
        const float4 y = *(const float4*)(parts + (s * ROWS + row) * STRIDE + column);
        x[0] += factor * y.x, x[1] += factor * y.y, x[2] += factor * y.z, x[3] += factor * y.w;
      }
      results.write(row, this->column + column, x);
    }
  }
};

extern "C" __global__ void __launch_bounds__(32 * ROW_WARPS * TILE_SPLITS, LEAST_BLOCKS) listed_forward(const __grid_constant__ ListedArguments a) {
  forBlocks<ListedForward<Arithmetic, HEAD_DIM, ROW_WARPS, ROW_BLOCKS, TILE_SPLITS, TILE_K, TILE_STAGES>>(a);
}
