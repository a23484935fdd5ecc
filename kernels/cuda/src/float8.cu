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
#include "silu.cuh"

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
  uint32_t* across;  // of float8_rows_1 to _8: (depths), zero at launch, receives the largest along the sides; or null
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

// put rounds EACH elements.
__device__ __forceinline__ void put(uint8_t* to, const Raw& r, float up) {
  uint32_t y[EACH / 4];
#pragma unroll
  for (int i = 0; i < EACH; i += 4)
    y[i / 4] = roundedToFloat8(asFloat(r.x[i]), asFloat(r.x[i + 1]), up) | roundedToFloat8(asFloat(r.x[i + 2]), asFloat(r.x[i + 3]), up) << 16;
  if constexpr (EACH == 8) *(uint2*)to = make_uint2(y[0], y[1]);
  else *(uint32_t*)to = y[0];
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
  const auto round = [&](int at, const Raw& r) {
    if (at < c.padded) put(to + at, r, up);
  };
#pragma unroll
  for (int n = 0; n < KEPT; n++) round((n * threads + thread) * EACH, kept[n]);
  for (int at = further + thread * EACH; at < c.padded; at += threads * EACH) round(at, loadUpTo(from + at, depths - at));
}

// ---- sides whose depth is contiguous, read once for the largest along either axis

// Magnitudes are compared as whole numbers, of 16-bit elements two at once. RAISED is added to
// each, which makes those of what is not finite negative.
constexpr bool WIDE = sizeof(ELEMENT) == 4;
constexpr int RAISED = WIDE ? 1 << 23 : std::is_same_v<ELEMENT, __half> ? 1 << 10 : 1 << 7, WORDS = 4;
constexpr uint32_t LEAST = WIDE ? RAISED : RAISED * 0x10001u;

__device__ __forceinline__ uint32_t raised(uint32_t word) { return (word & (WIDE ? 0x7fffffff : 0x7fff7fff)) + LEAST; }
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return WIDE ? max((int)a, (int)b) : __vmaxs2(a, b); }
__device__ __forceinline__ int largerOfWord(uint32_t w) { return WIDE ? (int)w : max((int)(w & 0xffff), (int)(w >> 16)); }

// bitsOf is the float32 whose magnitude was raised.
__device__ __forceinline__ uint32_t bitsOf(int raised) {
  const int bits = raised - RAISED;
  if constexpr (WIDE) return bits;
  else if constexpr (std::is_same_v<ELEMENT, __half>) return __float_as_uint(__half2float(__ushort_as_half(bits)));
  else return bits << 16;
}

// castRows casts sides of a multiple of EACH elements in groups, the last ones first: what was
// written last may still be in the L2 cache. A thread has PIECES of each side, of every side the
// same, and where AHEAD brings what makes those of the next group before it looks at its own.
// Blocks take turns; any number of them, of up to MOST threads. A Source brings what makes a
// thread's pieces of a side, makes them, and says where they lie: each thread's behind those of the
// thread before it, from beginOf up to endOf.
constexpr int MOST = 512;

// Held is a piece as words: pieces of 16-bit elements are taken apart as soon as they have come.
using Held = uint4;

__device__ __forceinline__ Held held(const ELEMENT* from, bool there) {
  Held h = make_uint4(0, 0, 0, 0);
  if (there) h = *(const Held*)from;
  return h;
}
__device__ __forceinline__ uint32_t wordOf(const Held& h, int w) { return w == 0 ? h.x : w == 1 ? h.y : w == 2 ? h.z : h.w; }
__device__ __forceinline__ void floatsOf(const Held& h, float (&x)[EACH]) {
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    const uint32_t word = wordOf(h, w);
    if constexpr (WIDE) {
      x[w] = __uint_as_float(word);
    } else if constexpr (std::is_same_v<ELEMENT, __half>) {
      x[2 * w] = __half2float(__ushort_as_half(word & 0xffff)), x[2 * w + 1] = __half2float(__ushort_as_half(word >> 16));
    } else {
      x[2 * w] = __uint_as_float(word << 16), x[2 * w + 1] = __uint_as_float(word & 0xffff0000);
    }
  }
}
// pairOf rounds two numbers by one instruction.
template <class T> __device__ __forceinline__ uint32_t pairOf(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, __half>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ Held rounded(const float (&x)[EACH]) {
  uint32_t words[WORDS];
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    if constexpr (WIDE) {
      words[w] = __float_as_uint(x[w]);
    } else {
      words[w] = pairOf<ELEMENT>(x[2 * w], x[2 * w + 1]);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void put(uint8_t* to, const Held& h, float up) {
  float x[EACH];
  floatsOf(h, x);
  uint32_t y[EACH / 4];
#pragma unroll
  for (int i = 0; i < EACH; i += 4) y[i / 4] = roundedToFloat8(x[i], x[i + 1], up) | roundedToFloat8(x[i + 2], x[i + 3], up) << 16;
  if constexpr (EACH == 8) *(uint2*)to = make_uint2(y[0], y[1]);
  else *(uint32_t*)to = y[0];
}

template <int PIECES, template <int> class Source, class Arguments> __device__ __forceinline__ void castRows(const Arguments& c) {
  using From = Source<PIECES>;
  constexpr int SIDES = PIECES < From::TOGETHER ? From::TOGETHER / PIECES : 1;
  constexpr bool AHEAD = From::AHEAD;  // there are registers for the next group
  __shared__ int parts[2][SIDES][MOST / 32];
  __shared__ __align__(16) int staged[MOST * EACH];
  const int thread = threadIdx.x, threads = blockDim.x, warps = threads / 32;
  From next[SIDES];
  const auto bring = [&](int side) {
#pragma unroll
    for (int s = 0; s < SIDES; s++) next[s].bring(c, side + s, side >= 0 && side + s < c.sides);
  };
  uint32_t across[PIECES][WORDS];
#pragma unroll
  for (int n = 0; n < PIECES; n++) {
#pragma unroll
    for (int w = 0; w < WORDS; w++) across[n][w] = LEAST;
  }
  const int groups = (c.sides + SIDES - 1) / SIDES;
  int side = (groups - 1 - (int)blockIdx.x) * SIDES;
  if constexpr (AHEAD) bring(side);
  for (int turn = 0; side >= 0; turn ^= 1) {
    const int after = side - (int)gridDim.x * SIDES;
    if constexpr (!AHEAD) bring(side);
    Held now[SIDES][PIECES];
#pragma unroll
    for (int s = 0; s < SIDES; s++) next[s].make(c, side + s, side + s < c.sides, now[s]);
    if constexpr (AHEAD) bring(after);
    int most[SIDES];
#pragma unroll
    for (int s = 0; s < SIDES; s++) {
      uint32_t own = LEAST;
#pragma unroll
      for (int n = 0; n < PIECES; n++) {
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
          const uint32_t word = raised(wordOf(now[s][n], w));
          across[n][w] = larger(across[n][w], word), own = larger(own, word);
        }
      }
      most[s] = __reduce_max_sync(~0u, largerOfWord(own));
      if (thread % 32 == 0) parts[turn][s][thread / 32] = most[s];
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
#pragma unroll
      for (int s = 0; s < SIDES; s++) most[s] = max(most[s], parts[turn][s][i]);
    }
#pragma unroll
    for (int s = 0; s < SIDES; s++) {
      if (side + s >= c.sides) break;
      const uint32_t bits = bitsOf(most[s]);
      if (thread == s) c.most[side + s] = bits;
      const float up = Float8Scale(bits).up;
      uint8_t* to = c.to + (int64_t)(side + s) * c.padded;
#pragma unroll
      for (int n = 0; n < PIECES; n++)
        if (From::placeOf(c, n) < c.padded) put(to + From::placeOf(c, n), now[s][n], up);
    }
    side = after;
  }
  if (c.across == nullptr) return;
#pragma unroll
  for (int n = 0; n < PIECES; n++) {
    __syncthreads();
    int4* stage = (int4*)&staged[thread * EACH];
    const auto half = [&](int w) { return make_int2(across[n][w] & 0xffff, across[n][w] >> 16); };
    if constexpr (WIDE) {
      stage[0] = make_int4(across[n][0], across[n][1], across[n][2], across[n][3]);
    } else {
      stage[0] = make_int4(half(0).x, half(0).y, half(1).x, half(1).y);
      stage[1] = make_int4(half(2).x, half(2).y, half(3).x, half(3).y);
    }
    __syncthreads();
    const int begin = From::beginOf(c, n), end = min(threads * EACH, From::endOf(c, n) - begin);
    // What other blocks have found so far spares most of the writes.
    uint32_t found[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const int i = thread + k * threads;
      found[k] = i < end ? __ldcg(&c.across[begin + i]) : ~0u;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const int i = thread + k * threads;
      if (i < end && staged[i] > RAISED && bitsOf(staged[i]) > found[k]) atomicMax(&c.across[begin + i], bitsOf(staged[i]));
    }
  }
}

// AsTheyLie is sides that are there.
template <int PIECES> struct AsTheyLie {
  static constexpr int TOGETHER = 4;  // pieces of a thread, of several sides
  static constexpr bool AHEAD = PIECES < 8;
  Held own[PIECES];

  static __device__ __forceinline__ int beginOf(const Casting&, int n) { return n * blockDim.x * EACH; }
  static __device__ __forceinline__ int placeOf(const Casting& c, int n) { return beginOf(c, n) + threadIdx.x * EACH; }
  static __device__ __forceinline__ int endOf(const Casting& c, int) { return c.depths; }
  __device__ __forceinline__ void bring(const Casting& c, int side, bool there) {
#pragma unroll
    for (int n = 0; n < PIECES; n++) own[n] = held(c.from + side * c.side + placeOf(c, n), there && placeOf(c, n) < c.depths);
  }
  __device__ __forceinline__ void make(const Casting&, int, bool, Held (&to)[PIECES]) const {
#pragma unroll
    for (int n = 0; n < PIECES; n++) to[n] = own[n];
  }
};

// The host's castPieces in matmul_float8.go has the most threads of each. Two blocks of 352 share a
// multiprocessor with 88 registers a thread.
#define REGISTERS_1(threads) __launch_bounds__(threads, 2)
#define REGISTERS_2(threads) __launch_bounds__(threads, 2)
#define REGISTERS_4(threads) __maxnreg__(88)
#define REGISTERS_8(threads) __launch_bounds__(threads)
#define CAST_ROWS(pieces, threads) \
  extern "C" __global__ void REGISTERS_##pieces(threads) float8_rows_##pieces(const __grid_constant__ Casting c) { castRows<pieces, AsTheyLie>(c); }
CAST_ROWS(1, 384)
CAST_ROWS(2, 384)
CAST_ROWS(4, 352)
CAST_ROWS(8, MOST)

// ---- sides that SwiGLU makes

// Gating is the host's gating in matmul_float8.go. Rows have a multiple of 16 elements.
struct Gating : Casting {  // from is gate, and side how far its rows lie apart
  const ELEMENT *up, *dy;
  ELEMENT* made;  // (sides, depths): silu(gate)·up, or the gradients of gate and up side by side; or null
  int64_t upSide, dySide, madeSide;
};

// Gated is silu(gate)·up.
template <int PIECES> struct Gated {
  static constexpr int TOGETHER = 2;
  static constexpr bool AHEAD = PIECES < 4;
  Held gate[PIECES], up[PIECES];

  static __device__ __forceinline__ int beginOf(const Gating&, int n) { return n * blockDim.x * EACH; }
  static __device__ __forceinline__ int placeOf(const Gating& c, int n) { return beginOf(c, n) + threadIdx.x * EACH; }
  static __device__ __forceinline__ int endOf(const Gating& c, int) { return c.depths; }
  __device__ __forceinline__ void bring(const Gating& c, int side, bool there) {
#pragma unroll
    for (int n = 0; n < PIECES; n++) {
      const int at = placeOf(c, n);
      const bool is = there && at < c.depths;
      gate[n] = held(c.from + side * c.side + at, is);
      up[n] = held(c.up + side * c.upSide + at, is);
    }
  }
  __device__ __forceinline__ void make(const Gating& c, int side, bool there, Held (&to)[PIECES]) const {
#pragma unroll
    for (int n = 0; n < PIECES; n++) {
      float g[EACH], u[EACH];
      floatsOf(gate[n], g), floatsOf(up[n], u);
#pragma unroll
      for (int i = 0; i < EACH; i++) g[i] = swigluOf<WIDE>(g[i], u[i]);
      to[n] = rounded(g);
      if (c.made && there && placeOf(c, n) < c.depths) *(Held*)(c.made + side * c.madeSide + placeOf(c, n)) = to[n];
    }
  }
};

// GateGradients is the gradients of gate and up side by side: the first half of a thread's pieces,
// and the second. dy may lie where the first half is written.
template <int PIECES> struct GateGradients {
  static constexpr int HALF = PIECES / 2, TOGETHER = 2;
  static constexpr bool AHEAD = PIECES < 4;
  Held gate[HALF], up[HALF], dy[HALF];

  static __device__ __forceinline__ int beginOf(const Gating& c, int n) { return n % HALF * blockDim.x * EACH + (n < HALF ? 0 : c.depths / 2); }
  static __device__ __forceinline__ int placeOf(const Gating& c, int n) {
    const int at = beginOf(c, n) + threadIdx.x * EACH;
    return at < endOf(c, n) ? at : c.padded;
  }
  static __device__ __forceinline__ int endOf(const Gating& c, int n) { return n < HALF ? c.depths / 2 : c.depths; }
  __device__ __forceinline__ void bring(const Gating& c, int side, bool there) {
#pragma unroll
    for (int n = 0; n < HALF; n++) {
      const int at = placeOf(c, n);
      const bool is = there && at < c.depths / 2;
      gate[n] = held(c.from + side * c.side + at, is);
      up[n] = held(c.up + side * c.upSide + at, is);
      dy[n] = held(c.dy + side * c.dySide + at, is);
    }
  }
  __device__ __forceinline__ void make(const Gating& c, int side, bool there, Held (&to)[PIECES]) const {
#pragma unroll
    for (int n = 0; n < HALF; n++) {
      float g[EACH], u[EACH], d[EACH];
      floatsOf(gate[n], g), floatsOf(up[n], u), floatsOf(dy[n], d);
#pragma unroll
      for (int i = 0; i < EACH; i++) swigluGradients<WIDE>(g[i], u[i], d[i]);
      to[n] = rounded(u), to[HALF + n] = rounded(g);
      const int at = placeOf(c, n);
      if (c.made && there && at < c.depths / 2) {
        ELEMENT* made = c.made + side * c.madeSide + at;
        *(Held*)made = to[n], *(Held*)(made + c.depths / 2) = to[HALF + n];
      }
    }
  }
};

#define CAST_GATED(pieces, threads) \
  extern "C" __global__ void REGISTERS_##pieces(threads) float8_swiglu_##pieces(const __grid_constant__ Gating c) { castRows<pieces, Gated>(c); }
CAST_GATED(1, 384)
CAST_GATED(2, 384)
CAST_GATED(4, 352)
CAST_GATED(8, MOST)

#define CAST_GRADIENTS(pieces, threads) \
  extern "C" __global__ void REGISTERS_##pieces(threads) float8_swiglu_backward_##pieces(const __grid_constant__ Gating c) { castRows<pieces, GateGradients>(c); }
CAST_GRADIENTS(2, 384)
CAST_GRADIENTS(4, 352)
CAST_GRADIENTS(8, MOST)

// ---- sides that are contiguous

constexpr int SIDES = 64, DEPTHS = 128, ACROSS = SIDES / EACH, DOWN = THREADS / ACROSS;

// float8_largest finds the largest magnitudes of sides that are contiguous. Blocks (SIDES of the
// sides, `run` of the depth, items).
extern "C" __global__ void __launch_bounds__(THREADS) float8_largest(const __grid_constant__ Casting c) {
  __shared__ uint32_t most[SIDES];
  if (threadIdx.x < SIDES) most[threadIdx.x] = 0;
  __syncthreads();
  const int mine = threadIdx.x % ACROSS * EACH, side = blockIdx.x * SIDES + mine;
  const int first = (gridDim.y - 1 - blockIdx.y) * c.run, end = min(c.depths, first + c.run);
  uint32_t largest[EACH] = {};
  const ELEMENT* from = itemOf(c, blockIdx.z) + side;
  const auto look = [&](const Raw& r) {
#pragma unroll
    for (int i = 0; i < EACH; i++) largest[i] = max(largest[i], finite(asFloat(r.x[i])));
  };
  int p = first + threadIdx.x / ACROSS;
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
  constexpr int TURNS = DEPTHS / 4 / DOWN;
  __shared__ uint32_t tile[SIDES][DEPTHS / 4 + 1];
  __shared__ float ups[SIDES];
  const int64_t row = (int64_t)blockIdx.z * c.sides + blockIdx.x * SIDES;
  const int sides = min(SIDES, c.sides - (int)blockIdx.x * SIDES), first = blockIdx.y * DEPTHS;
  const int mine = threadIdx.x % ACROSS * EACH;
  const ELEMENT* from = itemOf(c, blockIdx.z) + blockIdx.x * SIDES + mine;
  Held r[TURNS][4];
#pragma unroll
  for (int turn = 0; turn < TURNS; turn++) {
    const int p = first + 4 * (turn * DOWN + threadIdx.x / ACROSS);
#pragma unroll
    for (int n = 0; n < 4; n++) r[turn][n] = held(from + (p + n) * c.depth, mine + EACH <= sides && p + n < c.depths);
    if (mine < sides && mine + EACH > sides) {
#pragma unroll
      for (int n = 0; n < 4; n++) {
        if (p + n >= c.depths) continue;
        const Raw some = loadUpTo(from + (p + n) * c.depth, sides - mine);
        r[turn][n] = *(const Held*)&some;
      }
    }
  }
  // Scales come while the elements do.
  if (threadIdx.x < SIDES) ups[threadIdx.x] = threadIdx.x < sides ? Float8Scale(c.most[row + threadIdx.x]).up : 0;
  __syncthreads();
#pragma unroll
  for (int turn = 0; turn < TURNS; turn++) {
    float x[4][EACH];
#pragma unroll
    for (int n = 0; n < 4; n++) floatsOf(r[turn][n], x[n]);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const auto two = [&](int n) { return roundedToFloat8(x[n][i], x[n + 1][i], ups[mine + i]); };
      tile[mine + i][turn * DOWN + threadIdx.x / ACROSS] = two(0) | two(2) << 16;
    }
  }
  __syncthreads();
#pragma unroll
  for (int word = threadIdx.x % 32; word < DEPTHS / 4; word += 32) {
    const int at = first + 4 * word;
    if (at >= c.padded) break;
#pragma unroll 8
    for (int i = threadIdx.x / 32; i < sides; i += THREADS / 32) *(uint32_t*)(c.to + (row + i) * c.padded + at) = tile[i][word];
  }
}
