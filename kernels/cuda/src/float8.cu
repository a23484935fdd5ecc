// Rounds operands of products to 8 bits: a row of A, or a column of B, is multiplied by a power of
// two (Float8Scale in float8.cuh) and rounded to e4m3.
//
//   most[i] = bits of max over p of |from[i, p]|, of what is finite
//   to[i, p] = e4m3(from[i, p] · up(most[i])), 0 beyond the depth
//
// Sides i are rows of A or columns of B. Tensor cores read 8-bit operands along the depth alone, so
// `to` is (items, sides, padded depth) whichever axis of `from` is contiguous. Rows of `from` begin
// at multiples of 16 bytes. Compile with -DELEMENT=float, __nv_bfloat16 or __half.
#include "elements.cuh"
#include "float8.cuh"

// Casting is the host's casting in matmul_float8.go.
struct Casting {
  const ELEMENT* from;
  int64_t outer, inner, side, depth;  // strides in elements
  uint8_t* to;
  uint32_t* most;                 // (items, sides); zero at launch where sides are contiguous
  int32_t sides, depths, padded;  // sizes; padded is a multiple of 16
  int32_t innerItems;
  int32_t warps;                  // that share a row, a power of two up to 8
  int32_t run;                    // depth of a block of float8_largest
};

constexpr int THREADS = 256, EACH = perAccess<ELEMENT>;

__device__ __forceinline__ const ELEMENT* itemOf(const Casting& c, int item) {
  return c.from + item / c.innerItems * c.outer + item % c.innerItems * c.inner;
}
__device__ __forceinline__ uint32_t finite(float x) {
  const uint32_t bits = __float_as_uint(x) & 0x7fffffff;
  return bits < 0x7f800000 ? bits : 0;
}

// Raw is EACH elements, which one access to memory brings. loadUpTo reads those of them that there
// are, the others as zeros.
using Raw = Piece<ELEMENT, EACH>;
__device__ __forceinline__ Raw loadUpTo(const ELEMENT* from, int count) {
  Raw r = {};
  if (count >= EACH) {
    r = *(const Raw*)from;
  } else {
#pragma unroll
    for (int i = 0; i < EACH; i++)
      if (i < count) r.x[i] = from[i];
  }
  return r;
}

// float8_rows casts sides whose depth is contiguous. Some warps share one, and keep what they read
// of it as long as it fits into registers. Blocks (sides, items).
extern "C" __global__ void __launch_bounds__(THREADS, 3) float8_rows(const __grid_constant__ Casting c) {
  constexpr int KEPT = 8;
  __shared__ uint32_t parts[THREADS / 32];
  const int warp = threadIdx.x / 32, threads = 32 * c.warps, thread = threadIdx.x % threads;
  const int side = blockIdx.x * (8 / c.warps) + warp / c.warps;
  const int depths = side < c.sides ? c.depths : 0, whole = depths / EACH * EACH;
  const ELEMENT* from = itemOf(c, blockIdx.y) + side * c.side;
  const int64_t row = (int64_t)blockIdx.y * c.sides + side;
  Raw kept[KEPT];
  // Loads without branches between them are on their way together.
#pragma unroll
  for (int n = 0; n < KEPT; n++) {
    const int at = (n * threads + thread) * EACH;
    kept[n] = at < whole ? *(const Raw*)(from + at) : Raw{};
  }
  const int further = KEPT * threads * EACH;
  if (whole < depths && whole < further) {
#pragma unroll
    for (int n = 0; n < KEPT; n++)
      if ((n * threads + thread) * EACH == whole) kept[n] = loadUpTo(from + whole, depths - whole);
  }
  uint32_t most = 0;
  const auto look = [&](const Raw& r) {
#pragma unroll
    for (int i = 0; i < EACH; i++) most = max(most, finite(asFloat(r.x[i])));
  };
#pragma unroll
  for (int n = 0; n < KEPT; n++) look(kept[n]);
  for (int at = further + thread * EACH; at < depths; at += threads * EACH) look(loadUpTo(from + at, depths - at));
  most = __reduce_max_sync(~0u, most);
  if (c.warps > 1) {
    if (threadIdx.x % 32 == 0) parts[warp] = most;
    __syncthreads();
    const int first = warp / c.warps * c.warps;
    for (int i = 0; i < c.warps; i++) most = max(most, parts[first + i]);
  }
  if (side >= c.sides) return;
  if (thread == 0) c.most[row] = most;
  // Numbers are converted anew rather than kept: registers are what limits the loads on their way.
#pragma unroll
  for (int n = 0; n < KEPT; n++) {
    uint4& words = *(uint4*)&kept[n];
    asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
  }
  const float up = Float8Scale(most).up;
  uint8_t* to = c.to + row * c.padded;
  const auto put = [&](int at, const Raw& r) {
    if (at >= c.padded) return;
    uint32_t y[EACH / 4];
#pragma unroll
    for (int i = 0; i < EACH; i += 4)
      y[i / 4] = roundedToFloat8(asFloat(r.x[i]), asFloat(r.x[i + 1]), up) | roundedToFloat8(asFloat(r.x[i + 2]), asFloat(r.x[i + 3]), up) << 16;
    if constexpr (EACH == 8) *(uint2*)(to + at) = make_uint2(y[0], y[1]);
    else *(uint32_t*)(to + at) = y[0];
  };
#pragma unroll
  for (int n = 0; n < KEPT; n++) put((n * threads + thread) * EACH, kept[n]);
  for (int at = further + thread * EACH; at < c.padded; at += threads * EACH) put(at, loadUpTo(from + at, depths - at));
}

// ---- sides that are contiguous

constexpr int SIDES = 64, DEPTHS = 128, ACROSS = SIDES / EACH, DOWN = THREADS / ACROSS;

// float8_largest finds the largest magnitudes of sides that are contiguous. Blocks (SIDES of the
// sides, `run` of the depth, items).
extern "C" __global__ void __launch_bounds__(THREADS) float8_largest(const __grid_constant__ Casting c) {
  __shared__ uint32_t most[SIDES];
  if (threadIdx.x < SIDES) most[threadIdx.x] = 0;
  __syncthreads();
  const int mine = threadIdx.x % ACROSS * EACH, side = blockIdx.x * SIDES + mine;
  const int end = min(c.depths, (int)(blockIdx.y + 1) * c.run);
  uint32_t largest[EACH] = {};
  const ELEMENT* from = itemOf(c, blockIdx.z) + side;
  const auto look = [&](const Raw& r) {
#pragma unroll
    for (int i = 0; i < EACH; i++) largest[i] = max(largest[i], finite(asFloat(r.x[i])));
  };
  int p = blockIdx.y * c.run + threadIdx.x / ACROSS;
  if (side + EACH <= c.sides) {
    for (; p + 3 * DOWN < end; p += 4 * DOWN) {
      Raw r[4];
#pragma unroll
      for (int n = 0; n < 4; n++) r[n] = *(const Raw*)(from + (p + n * DOWN) * c.depth);
#pragma unroll
      for (int n = 0; n < 4; n++) look(r[n]);
    }
  }
  for (; p < end; p += DOWN) look(loadUpTo(from + p * c.depth, c.sides - side));
#pragma unroll
  for (int i = 0; i < EACH; i++) {
#pragma unroll
    for (int apart = ACROSS; apart < 32; apart *= 2) largest[i] = max(largest[i], __shfl_xor_sync(~0u, largest[i], apart));
    if (threadIdx.x % 32 < ACROSS) atomicMax(&most[mine + i], largest[i]);
  }
  __syncthreads();
  const int i = blockIdx.x * SIDES + threadIdx.x;
  if (threadIdx.x < SIDES && i < c.sides && most[threadIdx.x]) atomicMax(&c.most[(int64_t)blockIdx.z * c.sides + i], most[threadIdx.x]);
}

// float8_columns casts them. A thread has four steps of the depth of a few sides, so that what it
// puts into shared memory is whole words of a side. Blocks as float8_largest has them, of DEPTHS.
extern "C" __global__ void __launch_bounds__(THREADS) float8_columns(const __grid_constant__ Casting c) {
  __shared__ uint32_t tile[SIDES][DEPTHS / 4 + 1];
  __shared__ float ups[SIDES];
  const int64_t row = (int64_t)blockIdx.z * c.sides + blockIdx.x * SIDES;
  const int sides = min(SIDES, c.sides - (int)blockIdx.x * SIDES), first = blockIdx.y * DEPTHS;
  const int mine = threadIdx.x % ACROSS * EACH;
  const ELEMENT* from = itemOf(c, blockIdx.z) + blockIdx.x * SIDES + mine;
  if (threadIdx.x < SIDES) ups[threadIdx.x] = threadIdx.x < sides ? Float8Scale(c.most[row + threadIdx.x]).up : 0;
  __syncthreads();
#pragma unroll
  for (int quad = threadIdx.x / ACROSS; quad < DEPTHS / 4; quad += DOWN) {
    Raw r[4];
    const int p = first + 4 * quad;
    if (mine + EACH <= sides) {
#pragma unroll
      for (int n = 0; n < 4; n++) r[n] = p + n < c.depths ? *(const Raw*)(from + (p + n) * c.depth) : Raw{};
    } else {
#pragma unroll
      for (int n = 0; n < 4; n++) r[n] = loadUpTo(from + (p + n) * c.depth, p + n < c.depths ? sides - mine : 0);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const auto two = [&](int n) { return roundedToFloat8(asFloat(r[n].x[i]), asFloat(r[n + 1].x[i]), ups[mine + i]); };
      tile[mine + i][quad] = two(0) | two(2) << 16;
    }
  }
  __syncthreads();
  const int at = first + threadIdx.x % 32 * 4;
  if (at >= c.padded) return;
#pragma unroll
  for (int i = threadIdx.x / 32; i < sides; i += THREADS / 32) *(uint32_t*)(c.to + (row + i) * c.padded + at) = tile[i][threadIdx.x % 32];
}
