// Attention of a few rows over many keys, as a model computes it for its next token: the rows of
// the query heads that share keys, at most sixteen, are the rows of one product,
//
//   S = scale·Q·Kᵀ,  with soft cap, slopes and mask     O = softmax(S)·V,  LSE = log Σ exp S [+ exp sink]
//
// Reading K and V is all that takes time. Each element goes from device memory to the registers
// that mma.sync multiplies from, once, 16 bytes at a time. Blocks share the keys of a head:
// `splits` runs of `keys`, each of which leaves its sums in scratch memory, and the block that ends
// last adds them, in the order of the keys. With `state`, which cache_append.cu describes, the device
// knows how many keys there are and of which items of a cache. Compile with
//   -DKERNEL=name -DELEMENT=BF16 or F16, -DHEAD_DIM=64, 128 or 256, at least as large as heads of Q, K and V.
#include "attention_mask.cuh"
#include "dependent.cuh"
#include "elements.cuh"
#include "mma.cuh"

constexpr int WARPS = 4, THREADS = 32 * WARPS, ROWS = 16, KEYS = 16;  // keys of a warp's step
constexpr int D = HEAD_DIM, GROUPS = D / 64, DEPTHS = D / 32;

struct DecodeArguments {
  AttentionArguments a;
  float* partials;       // of (sequence, key head, split): Sums
  const int32_t* state;  // of the cache that k and v are all of, null for none
  // keys is a multiple of what a block's warps take in a step; 0: as many as splits of the item need
  int32_t splits, keys;
};
// A row of sums lies a little more than D behind the one before, so that a warp's rows are in
// different banks.
constexpr int STRIDE = D + 4, PARTIAL = ROWS * (STRIDE + 2);

DEVICE uint4 load16(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}
DEVICE uint32_t word(const uint4& v, int n) { return n == 0 ? v.x : n == 1 ? v.y : n == 2 ? v.z : v.w; }

// Head is the queries of one key head, as rows: first those of the first query row, a row a head.
struct Head {
  int sequence, keyBatch, keyHead, group, rows;
  BandMask mask;

  DEVICE Head(const DecodeArguments& g) : sequence(blockIdx.z), keyBatch(keyBatchOf(g.a, sequence)), keyHead(blockIdx.y) {
    const AttentionArguments& a = g.a;
    group = a.heads / a.keyHeads, rows = group * a.sq;
    Sequence s = sequenceOf(a, sequence);
    if (g.state) keyBatch = __ldcg(g.state) + sequence, s.sk = __ldcg(g.state + 1 + keyBatch);
    mask = BandMask::of(a, s);
  }
  DEVICE int queryOf(int row) const { return row / group; }
  DEVICE int headOf(int row) const { return keyHead * group + row % group; }
};

// at is where an element of a tensor begins.
DEVICE const uint16_t* at(const Rows& t, int64_t batch, int64_t head, int64_t row) {
  return (const uint16_t*)t.data + batch * t.batch + head * t.head + row * t.row;
}

// Lane is what a thread has of its warp's sums: rows lane/4 and lane/4 + 8.
struct Lane {
  float most[2], sum[2];     // the largest score so far, times log2 e, and the sum of exponentials
  float o[GROUPS][8][4];     // o[n][j][e]: column 64n + 8·(2·(lane%4) + e%2) + j

  DEVICE Lane() : most{-INFINITY, -INFINITY}, sum{0, 0} {
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[n][j][e] = 0;
  }
};

// factorOf is what sums relative to one maximum are multiplied by to be relative to another, larger
// one.
DEVICE float factorOf(float from, float to) { return from == to ? 1 : exp2Fast(from - to); }

// loadKeys reads KEYS keys from `first` on: of key 8t + lane/4, the columns 32n + 8·(lane%4) and
// on.
DEVICE void loadKeys(uint4 (&k)[2][DEPTHS], const AttentionArguments& a, const Head& h, int first) {
#pragma unroll
  for (int t = 0; t < 2; t++)
#pragma unroll
    for (int n = 0; n < DEPTHS; n++) {
      const int key = first + 8 * t + lane() / 4, column = 32 * n + 8 * (lane() % 4);
      k[t][n] = key < h.mask.sk && column < a.d ? load16(at(a.k, h.keyBatch, h.keyHead, key) + column) : make_uint4(0, 0, 0, 0);
    }
}

// loadValues reads rows 2·(lane%4), the next one, and both of the keys 8 behind: 8 columns each of
// every group of 64.
DEVICE void loadValues(uint4 (&v)[4][GROUPS], const AttentionArguments& a, const Head& h, int first) {
#pragma unroll
  for (int r = 0; r < 4; r++)
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
      const int key = first + 8 * (r / 2) + 2 * (lane() % 4) + r % 2, column = 64 * n + 8 * (lane() / 4);
      v[r][n] = key < h.mask.sk && column < a.dv ? load16(at(a.v, h.keyBatch, h.keyHead, key) + column) : make_uint4(0, 0, 0, 0);
    }
}

// Scores makes scores, times log2 e, of products.
struct Scores {
  float slopes[2];
  int queries[2];

  DEVICE Scores(const AttentionArguments& a, const Head& h) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = min(lane() / 4 + 8 * half, h.rows - 1);
      queries[half] = h.queryOf(row);
      slopes[half] = a.slopes ? a.slopes[h.headOf(row)] : 0;
    }
  }
  DEVICE float of(const AttentionArguments& a, const Head& h, float product, int half, int key) const {
    const int query = queries[half];
    if (key >= min(h.mask.sk, query + h.mask.hi) || key < query + h.mask.lo) return -INFINITY;
    float s = a.softCap > 0 ? a.softCap * tanhf(product * a.scaleInCap) : product * a.scale;
    if (a.slopes) s -= slopes[half] * abs(query + h.mask.sk - h.mask.sq - key);
    return s * LOG2E;
  }
};

// visit adds the keys of one step to a lane's sums.
DEVICE void visit(Lane& l, float (&s)[2][4], const uint4 (&v)[4][GROUPS]) {
  uint32_t p[4];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float most = fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]), fmaxf(s[1][2 * half], s[1][2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    most = fmaxf(most, l.most[half]);
    const float factor = factorOf(l.most[half], most), from = most == -INFINITY ? 0 : most;
    l.most[half] = most, l.sum[half] *= factor;
#pragma unroll
    for (int t = 0; t < 2; t++) {
      const float x = exp2Fast(s[t][2 * half] - from), y = exp2Fast(s[t][2 * half + 1] - from);
      l.sum[half] += x + y;
      p[2 * t + half] = pack<ELEMENT>(x, y);
    }
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
      for (int j = 0; j < 8; j++) l.o[n][j][2 * half] *= factor, l.o[n][j][2 * half + 1] *= factor;
  }
#pragma unroll
  for (int n = 0; n < GROUPS; n++)
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const uint32_t halves = j % 2 ? 0x7632 : 0x5410;
      multiplyAdd<ELEMENT>(l.o[n][j], p, __byte_perm(word(v[0][n], j / 2), word(v[1][n], j / 2), halves),
                           __byte_perm(word(v[2][n], j / 2), word(v[3][n], j / 2), halves));
    }
}

// loadQueries reads the columns that loadKeys reads from step n of the depth on, of rows lane/4 and
// lane/4 + 8: the operands of two products.
DEVICE void loadQueries(uint32_t (&q)[2][4], const AttentionArguments& a, const Head& h, int n) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = lane() / 4 + 8 * half, column = 32 * n + 8 * (lane() % 4);
    const uint4 x = row < h.rows && column < a.d ? *(const uint4*)(at(a.q, h.sequence, h.headOf(row), h.queryOf(row)) + column) : make_uint4(0, 0, 0, 0);
    q[0][half] = x.x, q[0][2 + half] = x.y, q[1][half] = x.z, q[1][2 + half] = x.w;
  }
}

// Registers do not hold all of a large head: its queries are read again for each step, and its keys
// when they are needed.
constexpr bool HOLDS_ALL = D <= 128;

// attend gives a warp's sums over its keys of [from, to).
DEVICE void attend(Lane& l, const AttentionArguments& a, const Head& h, int from, int to) {
  uint32_t q[DEPTHS][2][4];
  if constexpr (HOLDS_ALL)
#pragma unroll
    for (int n = 0; n < DEPTHS; n++) loadQueries(q[n], a, h, n);
  const Scores scores(a, h);
  uint4 k[2][DEPTHS], v[4][GROUPS];
  int key = from + warp() * KEYS;
  const auto orNone = [&](int key) { return key < to ? key : h.mask.sk; };
  if (HOLDS_ALL) loadKeys(k, a, h, orNone(key)), loadValues(v, a, h, orNone(key));
  for (; key < to; key += WARPS * KEYS) {
    const int next = key + WARPS * KEYS;
    if (!HOLDS_ALL) loadKeys(k, a, h, key);
    float s[2][4] = {};
#pragma unroll
    for (int n = 0; n < DEPTHS; n++) {
      if (!HOLDS_ALL) loadQueries(q[n], a, h, n);
#pragma unroll
      for (int t = 0; t < 2; t++) {
        multiplyAdd<ELEMENT>(s[t], q[n][0], k[t][n].x, k[t][n].y);
        multiplyAdd<ELEMENT>(s[t], q[n][1], k[t][n].z, k[t][n].w);
      }
    }
    if (HOLDS_ALL) loadKeys(k, a, h, orNone(next));
    if (!HOLDS_ALL) loadValues(v, a, h, key);
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[t][e] = scores.of(a, h, s[t][e], e / 2, key + 8 * t + 2 * (lane() % 4) + e % 2);
    visit(l, s, v);
    if (HOLDS_ALL) loadValues(v, a, h, orNone(next));
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    l.sum[half] += __shfl_xor_sync(~0u, l.sum[half], 1);
    l.sum[half] += __shfl_xor_sync(~0u, l.sum[half], 2);
  }
}

// Sums are those of a warp, or of a run of keys: ROWS maxima, ROWS sums of exponentials, and ROWS
// rows of O.
struct Sums {
  float *most, *sum, *o;
  DEVICE explicit Sums(float* at) : most(at), sum(at + ROWS), o(at + 2 * ROWS) {}
};

DEVICE void leave(const Lane& l, const Sums& to, int rows) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = lane() / 4 + 8 * half;
    if (row >= rows) continue;
    if (lane() % 4 == 0) to.most[row] = l.most[half], to.sum[row] = l.sum[half];
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
      for (int e = 0; e < 2; e++)
#pragma unroll
        for (int j = 0; j < 8; j += 4)
          *(float4*)&to.o[row * STRIDE + 64 * n + 8 * (2 * (lane() % 4) + e) + j] =
              make_float4(l.o[n][j][2 * half + e], l.o[n][j + 1][2 * half + e], l.o[n][j + 2][2 * half + e], l.o[n][j + 3][2 * half + e]);
  }
}

DEVICE void addTo(float4& sum, const float4& x, float factor) {
  sum.x = fmaf(x.x, factor, sum.x), sum.y = fmaf(x.y, factor, sum.y), sum.z = fmaf(x.z, factor, sum.z), sum.w = fmaf(x.w, factor, sum.w);
}

// merge adds the sums of the block's warps into one. Four neighbours of a row are a thread's at a
// time.
DEVICE void merge(const float* ofWarps, const Sums& to, int rows, int dv) {
  for (int i = 4 * threadIdx.x; i < rows * D; i += 4 * THREADS) {
    const int row = i / D, column = i % D;
    if (column >= dv) continue;
    float most = -INFINITY, sum = 0;
    for (int w = 0; w < WARPS; w++) most = fmaxf(most, ofWarps[w * PARTIAL + row]);
    float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const Sums s((float*)ofWarps + w * PARTIAL);
      const float factor = factorOf(s.most[row], most);
      sum = fmaf(s.sum[row], factor, sum);
      addTo(o, *(const float4*)&s.o[row * STRIDE + column], factor);
    }
    *(float4*)&to.o[row * STRIDE + column] = o;
    if (column == 0) to.most[row] = most, to.sum[row] = sum;
  }
}

// finish adds the sums of `runs` runs of keys, at most 32, and writes the rows of O and their
// logsumexps.
DEVICE void finish(const AttentionArguments& a, const Head& h, const float* partials, int runs, float* factors) {
  // What each run's row counts in the result, (rows, 32): a warp has a row, and a lane a run.
  for (int row = warp(); row < h.rows; row += WARPS) {
    const float* of = partials + (int64_t)lane() * PARTIAL + row;
    const bool there = lane() < runs;
    const float own = there ? __ldcg(of) : -INFINITY, ownSum = there ? __ldcg(of + ROWS) : 0;
    const int query = h.queryOf(row), head = h.headOf(row);
    const float sink = a.sinks ? a.sinks[head] * LOG2E : -INFINITY;
    float most = fmaxf(own, sink);
#pragma unroll
    for (int other = 16; other > 0; other /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
    const float factor = factorOf(own, most);
    const float sum = sumOfWarp(ownSum * factor) + (sink == -INFINITY ? 0 : exp2Fast(sink - most));
    factors[row * 32 + lane()] = sum == 0 ? 0 : factor / sum;
    if (a.lse && lane() == 0) a.lse[((int64_t)h.sequence * a.heads + head) * a.sq + query] = sum == 0 ? -INFINITY : (most + log2f(sum)) * LN2;
  }
  __syncthreads();
  for (int i = 4 * threadIdx.x; i < h.rows * D; i += 4 * THREADS) {
    const int row = i / D, column = i % D;
    if (column >= a.dv) continue;
    const float* of = partials + 2 * ROWS + row * STRIDE + column;
    float4 o = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int n = 0; n < runs; n++) addTo(o, __ldcg((const float4*)(of + (int64_t)n * PARTIAL)), factors[row * 32 + n]);
    uint16_t* to = (uint16_t*)a.o.data + h.sequence * a.o.batch + h.headOf(row) * a.o.head + h.queryOf(row) * a.o.row + column;
    *(uint2*)to = make_uint2(pack<ELEMENT>(o.x, o.y), pack<ELEMENT>(o.z, o.w));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const __grid_constant__ DecodeArguments g) {
  const AttentionArguments& a = g.a;
  awaitBefore();
  beginDependents();
  const Head h(g);
  constexpr int STEP = WARPS * KEYS;
  const int keys = g.keys ? g.keys : max(1, (h.mask.sk + g.splits * STEP - 1) / (g.splits * STEP)) * STEP;
  const int run = blockIdx.x, runs = max(1, (h.mask.sk + keys - 1) / keys), number = h.sequence * a.keyHeads + h.keyHead;
  if (run >= runs) return;
  float* partials = g.partials + (int64_t)number * g.splits * PARTIAL;
  extern __shared__ __align__(16) float ofWarps[];
  Lane l;
  attend(l, a, h, run * keys, min(h.mask.sk, (run + 1) * keys));
  leave(l, Sums(ofWarps + warp() * PARTIAL), h.rows);
  __syncthreads();
  merge(ofWarps, Sums(partials + (int64_t)run * PARTIAL), h.rows, a.dv);

  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(a.counters + number, 1) == runs - 1;
    if (last) a.counters[number] = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  finish(a, h, partials, runs, ofWarps);
}
