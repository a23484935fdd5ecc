// Splits operands of float32 products into float16, which the tensor cores multiply fastest: a row
// of A, or a column of B, is multiplied by a power of two (Scale in matmul.cuh) and rounded to 11
// bits; where there are two parts the second is what the first lacks, 22 bits together. An
// element's error is at most 2^-22 of it, or 2^-39 of the row's largest.
//
// Sides are rows of A or columns of B, with any strides. Parts are written (items, sides, parts,
// padded depth), zero beyond the depth.
#include "matmul.cuh"

// Splitting is the host's splitting in matmul_split.go.
struct Splitting {
  const float* from;
  int64_t outer, inner, side, depth;  // strides in elements
  __half* to;
  // (items, sides) bits of the largest finite magnitude, zero at launch
  uint32_t* most;
  int32_t sides, depths, padded;      // sizes
  int32_t items, innerItems, parts;
};

constexpr int SIDES = 32, DEPTHS = 64, THREADS = 256, EACH = SIDES * DEPTHS / THREADS;

// Place is where a block works: SIDES × DEPTHS of an item. Neighbouring threads take neighbours in
// memory.
struct Place {
  const Splitting& s;
  int item, side, depth;
  __device__ __forceinline__ Place(const Splitting& s) : s(s) {
    const int across = s.padded / DEPTHS, down = (s.sides + SIDES - 1) / SIDES;
    depth = blockIdx.x % across * DEPTHS, side = blockIdx.x / across % down * SIDES, item = blockIdx.x / across / down;
  }
  __device__ __forceinline__ int sideOf(int n) const { return s.depth == 1 ? threadIdx.x / 64 + 4 * n : threadIdx.x % 32; }
  __device__ __forceinline__ int depthOf(int n) const { return s.depth == 1 ? threadIdx.x % 64 : threadIdx.x / 32 + 8 * n; }
  __device__ __forceinline__ void load(float (&x)[EACH]) const {
    const float* from = s.from + item / s.innerItems * s.outer + item % s.innerItems * s.inner;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
      const int i = side + sideOf(n), p = depth + depthOf(n);
      x[n] = i < s.sides && p < s.depths ? from[i * s.side + p * s.depth] : 0;
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS) matmul_largest(const __grid_constant__ Splitting s) {
  __shared__ uint32_t most[SIDES];
  if (threadIdx.x < SIDES) most[threadIdx.x] = 0;
  __syncthreads();
  const Place at(s);
  float x[EACH];
  at.load(x);
#pragma unroll
  for (int n = 0; n < EACH; n++) {
    const uint32_t bits = __float_as_uint(x[n]) & 0x7fffffff;
    uint32_t finite = bits < 0x7f800000 ? bits : 0;
    if (s.depth == 1) finite = __reduce_max_sync(~0u, finite);  // a warp has one side
    if (s.depth != 1 || threadIdx.x % 32 == 0) atomicMax(&most[at.sideOf(n)], finite);
  }
  __syncthreads();
  if (threadIdx.x < SIDES && at.side + threadIdx.x < s.sides && most[threadIdx.x])
    atomicMax(&s.most[(int64_t)at.item * s.sides + at.side + threadIdx.x], most[threadIdx.x]);
}

extern "C" __global__ void __launch_bounds__(THREADS) matmul_split(const __grid_constant__ Splitting s) {
  __shared__ float tile[SIDES][DEPTHS + 1];
  const Place at(s);
  float x[EACH];
  at.load(x);
#pragma unroll
  for (int n = 0; n < EACH; n++) tile[at.sideOf(n)][at.depthOf(n)] = x[n];
  __syncthreads();
  // A warp writes a side: two neighbours a thread.
#pragma unroll
  for (int i = threadIdx.x / 32; i < SIDES; i += THREADS / 32) {
    if (at.side + i >= s.sides) break;
    const int64_t side = (int64_t)at.item * s.sides + at.side + i;
    const float up = Scale(s.most[side]).up;
    const float y = tile[i][threadIdx.x % 32 * 2] * up, z = tile[i][threadIdx.x % 32 * 2 + 1] * up;
    const __half2 high = __floats2half2_rn(y, z);
    __half2* to = (__half2*)(s.to + side * s.parts * s.padded + at.depth) + threadIdx.x % 32;
    *to = high;
    if (s.parts == 2) to[s.padded / 2] = __floats2half2_rn(y - __low2float(high), z - __high2float(high));
  }
}
