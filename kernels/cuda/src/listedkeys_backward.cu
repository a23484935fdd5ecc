// Attention to listed keys, backward: the gradients of q, k and v from the saved logsumexp and δ.
//
//   S = scale·Q·Kᵀ over the listed rows of K, P = exp(S − LSE), dS = P∘(dO·Vᵀ − δ)
//   dQ = scale·dS·K, and for each listed key dK += scale·dSᵀ·Q, dV += Pᵀ·dO
//
// listedkeys.cuh says how the work is shared. A key's rows of dK and dV are summed over the heads
// of a block by a product, and over blocks in a.sums: listed_gradients rounds these. Sums are
// float32, in whatever order blocks add to them, or integers of 64 bits, whose order does not
// count. The unit of these follows from the largest elements, which listed_bounds finds: the P of a
// row sum up to 1, so that
//
//   |dV| ≤ rows·max|dO|     |dK|/scale ≤ rows·max|q|·(dv·max|dO|·max|v| + max|δ|)
#include "listedkeys.cuh"

// ListedBounds is the host's listedBounds in listedkeys.go.
struct ListedBounds {
  Rows q, v, dO;
  const float* delta;  // (batch, heads, queries) row-major
  int32_t* bounds;     // the bits of the largest magnitudes of q, v, dO and δ; zero at launch
  int32_t batch, heads, keyBatches, keyHeads;
  int32_t queries, keys, d, dv;
  const int32_t* needed;  // as in ListedArguments
};

// largestIn is the largest magnitude of a tensor's elements, as bits, which are in the order of the
// magnitudes; those of a NaN are above all others.
template <class T> DEVICE uint32_t largestIn(const Rows& t, int batch, int heads, int length, int size) {
  uint32_t most = 0;
  const int64_t rows = (int64_t)batch * heads * length, lanes = (int64_t)gridDim.x * blockDim.x / 32;
  for (int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32; row < rows; row += lanes) {
    const int64_t plane = row / length;
    const T* from = (const T*)t.data + plane / heads * t.batch + plane % heads * t.head + row % length * t.row;
    for (int i = lane(); i < size; i += 32) most = max(most, __float_as_uint(asFloat(from[i])) & 0x7fffffff);
  }
  return most;
}

// listed_bounds has a row of blocks for each tensor.
extern "C" __global__ void __launch_bounds__(256) listed_bounds(const __grid_constant__ ListedBounds a) {
  using Element = Arithmetic::Stored;
  if (a.needed && !*a.needed) return;
  uint32_t most = 0;
  if (blockIdx.y == 0) most = largestIn<Element>(a.q, a.batch, a.heads, a.queries, a.d);
  if (blockIdx.y == 1) most = largestIn<Element>(a.v, a.keyBatches, a.keyHeads, a.keys, a.dv);
  if (blockIdx.y == 2) most = largestIn<Element>(a.dO, a.batch, a.heads, a.queries, a.dv);
  if (blockIdx.y == 3) most = largestIn<float>({(void*)a.delta, (int64_t)a.heads * a.queries, a.queries, 1}, a.batch, a.heads, a.queries, 1);
  most = __reduce_max_sync(~0u, most);
  if (lane() == 0) atomicMax((uint32_t*)a.bounds + blockIdx.y, most);
}

// ListedClear is the host's listedClear in listedkeys.go.
struct ListedClear {
  uint4* to;
  int64_t count;
  const int32_t* needed;  // as in ListedArguments
};

// listed_clear writes zeros to the bounds and the sums, 16 bytes a thread at a time.
extern "C" __global__ void __launch_bounds__(256) listed_clear(const __grid_constant__ ListedClear a) {
  if (a.needed && !*a.needed) return;
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < a.count; i += step) a.to[i] = make_uint4(0, 0, 0, 0);
}

// unitOf is the power of two that sums of integers are multiplied by; 0 where a bound is not
// finite.
DEVICE float unitOf(const int32_t* bounds, int64_t rows, int dv) {
  const double q = __int_as_float(bounds[0]), v = __int_as_float(bounds[1]), dO = __int_as_float(bounds[2]), delta = __int_as_float(bounds[3]);
  const double ofV = rows * dO, ofK = rows * q * (dv * dO * v + delta), most = ofV > ofK ? ofV : ofK;
  if (!(ofV < 1e300 && ofK < 1e300)) return 0;
  constexpr int bits = 61, largest = 126;  // of a sum; of a float's exponents
  return exp2f((float)max(-largest, min(largest, bits - 1 - ilogb(most > 0 ? most : 1))));
}

// Sums are a key's row of dK, or of dV, in a.sums. Sixteen columns lie in the order in which four
// lanes hold them in two accumulator blocks, so that a lane's four are neighbours.
DEVICE int columnOfSum(int at) { return at / 16 * 16 + at % 4 / 2 * 8 + at % 16 / 4 * 2 + at % 2; }

DEVICE void addSums(float* to, float x, float y, float z, float w) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
#else
  atomicAdd(to, x), atomicAdd(to + 1, y), atomicAdd(to + 2, z), atomicAdd(to + 3, w);
#endif
}

template <class E, int D, int R, int SPLITS, int KEYS, int STAGES> struct ListedBackward : Listed<E, D, R, 1, SPLITS, KEYS, STAGES> {
  using Base = Listed<E, D, R, 1, SPLITS, KEYS, STAGES>;
  using Base::a;
  using Base::part;
  using Base::split;
  using typename Base::Operand;
  static constexpr int ROWS = Base::ROWS, WARPS = Base::WARPS, SHARE = Base::SHARE, STAGE = SPLITS * KEYS;
  // A warp sums the gradients of 16 keys, in a part of the columns.
  static constexpr int BLOCKS = KEYS / 16, SPAN = D / (R / BLOCKS);
  static_assert(R % BLOCKS == 0);
  using Square = Tile<E, KEYS>;  // P, or dS, of a set
  static constexpr int CELL = E::SCALED ? 16 : 0;
  static constexpr int TOGETHER = SPAN < 64 ? SPAN : 64;  // columns that it has at a time

  const Operand q, dO, k, v;  // k and v: of all stages
  const Square p, dS;
  int32_t* const indices;
  typename Base::Sums dQ;
  float lse[2], delta[2];  // of the lane's rows; lse to base 2
  float unit;              // of integer sums

  DEVICE ListedBackward(const ListedArguments& a, int block)
      : Base(a, block), q{sharedAddress(sharedMemory)}, dO{q.base + ROWS * Operand::STRIDE}, k{dO.base + ROWS * Operand::STRIDE},
        v{k.base + Base::TILES * Operand::STRIDE}, p{v.base + Base::TILES * Operand::STRIDE + 2 * split * ROWS * Square::STRIDE},
        dS{p.base + ROWS * Square::STRIDE},
        indices((int32_t*)(sharedMemory + (2 * ROWS + 2 * Base::TILES) * Operand::STRIDE + 2 * SPLITS * ROWS * Square::STRIDE)) {}

  DEVICE void run() {
    const Matrix keys = this->keys(a.k, a.d), values = this->keys(a.v, a.dv);
    const bool alignedK = keys.template aligned<E>(), alignedV = values.template aligned<E>();
    const float exponent = a.scale * LOG2E;
    const int tiles = this->tiles();
    unit = a.bounds ? unitOf(a.bounds, (int64_t)a.batch * (a.heads / a.keyHeads) * a.queries, a.dv) : 0;
    const int64_t sums = ((a.keyBatches > 1 ? this->batch : 0) * (int64_t)a.keyHeads + this->keyHead) * a.keys * (2 * D);
    clear(dQ);
    loadTile<E, ROWS, WARPS>(q, this->rows(a.q, a.d), 0);
    loadTile<E, ROWS, WARPS>(dO, this->rows(a.o, a.dv), 0);
    copyCommit();
    readRows();
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
    settle<E, ROWS, WARPS>(dO, dO);
    __syncthreads();
#pragma unroll 1
    for (int n = 0; n < tiles; n++) {
      if (STAGES == 1) fetch(n, 0);
      copyWait<(STAGES > 1 ? STAGES - 2 : 0)>();
      const Operand stageK{k.base + stage * STAGE * Operand::STRIDE}, stageV{v.base + stage * STAGE * Operand::STRIDE};
      settle<E, STAGE, WARPS>(stageK, stageK);
      settle<E, STAGE, WARPS>(stageV, stageV);
      this->await();  // the tile is here, and every warp is done with the last
      if (STAGES > 1) fetch(n + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
      const Operand tileK{stageK.base + split * KEYS * Operand::STRIDE}, tileV{stageV.base + split * KEYS * Operand::STRIDE};
      const int32_t* index = indices + stage * STAGE + split * KEYS;
      scores(tileK, tileV, index, exponent);
      this->await();  // P and dS are complete
      const int first = index[ofKeys() + lane() / 4], second = index[ofKeys() + lane() / 4 + 8];
      if (this->column == 0) {
        addTo(sums, dS, q, first, second);
        addTo(sums + D, p, dO, first, second);
      }
      if (STAGES == 1) this->await();
      else stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    copyWait<0>();
    finish();
  }

  // ofKeys and ofColumns are where the warp's part of dK and dV begins.
  DEVICE int ofKeys() const { return part % BLOCKS * 16; }
  DEVICE int ofColumns() const { return part / BLOCKS * SPAN; }

  // readRows reads what the forward kernel left. A row that does not exist or saw no key gets +inf:
  // its P is 0.
  DEVICE void readRows() {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = 16 * part + lane() / 4 + 8 * half;
      const bool exists = row < this->heads;
      const float x = exists ? a.lse[this->statistic(row)] : INFINITE;
      lse[half] = x == -INFINITE ? INFINITE : x * LOG2E;
      delta[half] = exists ? a.delta[this->statistic(row)] : 0;
    }
  }

  // scores computes the warp's P and dS, leaves both in shared memory and adds to dQ.
  DEVICE void scores(Operand tileK, Operand tileV, const int32_t* index, float exponent) {
    float x[1][KEYS / 8][4], y[1][KEYS / 8][4];
    multiplyTransposed<E, D>(x, q, 16 * part, tileK, 0);
    multiplyTransposed<E, D>(y, dO, 16 * part, tileV, 0);
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
      const int2 keys = *(const int2*)(index + 8 * j + lane() % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        x[0][j][e] = (e % 2 ? keys.y : keys.x) < 0 ? 0 : exp2Fast(x[0][j][e] * exponent - lse[e / 2]);
        y[0][j][e] = x[0][j][e] == 0 ? 0 : x[0][j][e] * (y[0][j][e] - delta[e / 2]);
      }
    }
    if constexpr (E::SCALED) {
      float z[1][KEYS / 8][4];
      withRowPowers(x, x, dO, 16 * part);
      storeCell<E>(x, p, 16 * part, 0, 0);
      withRowPowers(z, y, q, 16 * part);
      storeCell<E>(z, dS, 16 * part, 0, 0);
    } else {
      storeAccumulator<E>(x, p, 16 * part, 0);
      storeAccumulator<E>(y, dS, 16 * part, 0);
    }
    addProduct<E, KEYS>(dQ, y, tileK, this->column);
  }

  // addTo adds the product of a square, turned around, with rows to the sums of the warp's 16 keys,
  // of which first and second are the lane's.
  DEVICE void addTo(int64_t sums, Square square, Operand rows, int first, int second) const {
#pragma unroll 1
    for (int column = ofColumns(); column < ofColumns() + SPAN; column += TOGETHER) {
      float c[1][TOGETHER / 8][4];
      clear(c);
      multiplyColumns<E, ROWS, CELL>(c, square, ofKeys(), 0, rows, column);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int key = half ? second : first;
        const int64_t to = sums + column + lane() % 4 * 4;
        if (a.bounds) addIntegers(to, key, c[0], half);
        else addFloats(to, key, c[0], half);
      }
    }
  }

  DEVICE void addIntegers(int64_t to, int key, const float (&c)[TOGETHER / 8][4], int half) const {
    if (key < 0) return;
#pragma unroll
    for (int j = 0; j < TOGETHER / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        atomicAdd((unsigned long long*)a.sums + to + (int64_t)key * (2 * D) + j / 2 * 16 + j % 2 * 2 + e,
                  (unsigned long long)__float2ll_rn(c[j][2 * half + e] * unit));
  }

  // addFloats adds a line of 128 bytes of a key at a time: four lanes have a half of it, and their
  // neighbours that of another key. Halves are exchanged.
  DEVICE void addFloats(int64_t to, int key, const float (&c)[TOGETHER / 8][4], int half) const {
    static_assert(TOGETHER % 32 == 0, "whole lines");
    const bool odd = lane() & 4;
    const int other = __shfl_xor_sync(~0u, key, 4), even = odd ? other : key, uneven = odd ? key : other;
#pragma unroll
    for (int j = 0; j < TOGETHER / 8; j += 4) {
      float low[4], high[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float x = c[j + e / 2][2 * half + e % 2], y = c[j + 2 + e / 2][2 * half + e % 2];
        const float got = __shfl_xor_sync(~0u, odd ? x : y, 4);
        low[e] = odd ? got : x, high[e] = odd ? y : got;
      }
      float* const line = (float*)a.sums + to + 8 * j + (odd ? 16 : 0);
      if (even >= 0) addSums(line + (int64_t)even * (2 * D), low[0], low[1], low[2], low[3]);
      if (uneven >= 0) addSums(line + (int64_t)uneven * (2 * D), high[0], high[1], high[2], high[3]);
    }
  }

  // finish adds the sets' dQ and writes it.
  DEVICE void finish() {
    using Element = typename E::Stored;
    constexpr int WIDTH = Base::WIDTH, STRIDE = WIDTH + PAD;
    float* const parts = (float*)sharedMemory;  // (SPLITS, ROWS, STRIDE)
    __syncthreads();                            // every warp is done with its tiles
    storePart(dQ, parts, split * ROWS + 16 * part);
    __syncthreads();
    const Results<Element> results(this->rows(a.dQ, a.d));
    for (int at = threadIdx.x; at < this->heads * (WIDTH / 4); at += Base::THREADS) {
      const int row = at / (WIDTH / 4), column = at % (WIDTH / 4) * 4;
      float x[4] = {};
#pragma unroll
      for (int s = 0; s < SPLITS; s++) {
        const float4 y = *(const float4*)(parts + (s * ROWS + row) * STRIDE + column);
        x[0] += a.scale * y.x, x[1] += a.scale * y.y, x[2] += a.scale * y.z, x[3] += a.scale * y.w;
      }
      results.write(row, this->column + column, x);
    }
  }
};

extern "C" __global__ void __launch_bounds__(32 * ROW_WARPS * TILE_SPLITS) listed_backward(const __grid_constant__ ListedArguments a) {
  forBlocks<ListedBackward<Arithmetic, HEAD_DIM, ROW_WARPS, TILE_SPLITS, TILE_K, TILE_STAGES>>(a);
}

// ListedSums is the host's listedSums in listedkeys.go.
struct ListedSums {
  Rows dK, dV;
  const void* sums;
  const int32_t* bounds;  // null for sums of float32
  int64_t count, rows;    // of elements, and what the bounds take
  int32_t keyHeads, keys, d, dv;
  float scale;
  int32_t reserved;
  const int32_t* needed;  // as in ListedArguments
};

// listed_gradients rounds the sums to dK and dV: four elements a thread at a time.
extern "C" __global__ void __launch_bounds__(256) listed_gradients(const __grid_constant__ ListedSums a) {
  using Element = Arithmetic::Stored;
  if (a.needed && !*a.needed) return;
  const float unit = a.bounds ? unitOf(a.bounds, a.rows, a.dv) : 0;
  const int64_t step = (int64_t)gridDim.x * blockDim.x * 4;
#pragma unroll 1
  for (int64_t at = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4; at < a.count; at += step) {
    float list[4];
    if (a.bounds) {
#pragma unroll
      for (int i = 0; i < 4; i++) list[i] = unit == 0 ? __int_as_float(0x7fffffff) : (float)((double)((const int64_t*)a.sums)[at + i] / unit);
    } else {
      load<4>((const float*)a.sums + at, list);
    }
    const int64_t row = at / (2 * HEAD_DIM);
    const int within = at % (2 * HEAD_DIM), of = within % HEAD_DIM;
    const bool isValue = within >= HEAD_DIM;
    const int64_t key = row % a.keys, plane = row / a.keys;
    const Rows& t = isValue ? a.dV : a.dK;
    const int columns = isValue ? a.dv : a.d;
    const float factor = isValue ? 1 : a.scale;
    Element* const to = (Element*)t.data + plane / a.keyHeads * t.batch + plane % a.keyHeads * t.head + key * t.row;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int column = columnOfSum(of + i);
      if (column < columns) to[column] = fromFloat<Element>(factor * list[i]);
    }
  }
}
