// Attention of a few rows over many keys, as a model computes it for its next token: the rows of
// the query heads that share keys, at most sixteen, are the rows of one product,
//
//   S = scale·Q·Kᵀ,  with soft cap, slopes and mask     O = softmax(S)·V,  LSE = log Σ exp S [+ exp sink]
//
// Reading K and V is all that takes time. The keys that some row of a head sees are tiles of KEYS.
// All heads' tiles lie in one line, and each block has an equal part of it: a few heads, of which the
// first and the last may be shared with other blocks. Tiles come to a ring of STAGES in shared
// memory, so that loads are under way whatever a block waits for. A warp makes the scores of some of
// a tile's keys, and then adds all of the tile's keys to some columns of O.
//
// Of a head that it shares, a block leaves its sums in scratch memory. The block that ends last adds
// them, in the order of the keys; where they are many, a second kernel does. With `state`, which cache_append.cu describes, the device knows how
// many keys there are and of which items of a cache. Compile with
//   -DKERNEL=name -DELEMENT=BF16 or F16, -DHEAD_DIM=64, 128, 256 or 576, at least as large as heads of Q, K and V,
//   -DV_DIM=512 where a value is the beginning of its key, in the same memory, at least as large as heads of V,
//   -DKEYS=keys of a tile, -DSTAGES=tiles in shared memory, -DBLOCK_WARPS=warps of a block, -DBLOCKS=blocks of a multiprocessor.
#include "attention_mask.cuh"
#include "dependent.cuh"
#include "elements.cuh"
#include "mma.cuh"

constexpr int WARPS = BLOCK_WARPS, THREADS = 32 * WARPS, ROWS = 16;
#ifdef V_DIM
constexpr int D = HEAD_DIM, DV = V_DIM;
constexpr bool JOINED = true;
#else
constexpr int D = HEAD_DIM, DV = HEAD_DIM;
constexpr bool JOINED = false;
#endif
constexpr int CHUNKS = D / 8;  // pieces of 16 bytes of a row
constexpr int OWN_KEYS = KEYS / WARPS, OWN_COLUMNS = DV / WARPS;
static_assert(OWN_KEYS == 8 || OWN_KEYS == 16, "the scores of one or two products");
static_assert(OWN_COLUMNS % 16 == 0 && D % 64 == 0, "whole operands and whole rows");

struct DecodeArguments {
  AttentionArguments a;
  float* partials;       // of (block, first or last head): Sums
  const int32_t* state;  // of the cache that k and v are all of, null for none
  int32_t early;         // k and v may be read before the kernel waits
  int32_t blocks;        // of the kernel
  int32_t apart;         // the second kernel merges
};

// Shared is a block's shared memory: the ring of tiles of K and V, probabilities (row, key), a row a
// little longer than its keys so that a warp's rows are in different banks, and what a warp tells the
// others of each row.
constexpr int TILE = KEYS * D * 2, VALUES = JOINED ? 0 : TILE, STAGE = VALUES + TILE, P_STRIDE = 2 * KEYS + 16;
struct __align__(128) Shared {
  char ring[STAGES * STAGE];
  char p[ROWS * P_STRIDE];
  float most[WARPS][ROWS], sums[WARPS][ROWS];
  int last;
};

// Part is the keys of one head of one sequence that some row sees, in tiles.
struct Part {
  int sequence, head;
  int keyBatch, sk;
  int first, tiles;  // the first key of the first tile, a multiple of KEYS

  DEVICE void at(const DecodeArguments& g, int ofSequence, int ofHead) {
    const AttentionArguments& a = g.a;
    sequence = ofSequence, head = ofHead;
    keyBatch = keyBatchOf(a, sequence);
    sk = sequenceOf(a, sequence).sk;
    if (g.state) keyBatch = __ldcg(g.state) + sequence, sk = __ldcg(g.state + 1 + keyBatch);
    const BandMask m = mask(a);
    first = max(0, m.lo) / KEYS * KEYS;
    tiles = max(1, (min(sk, m.sq - 1 + m.hi) - first + KEYS - 1) / KEYS);
  }
  DEVICE BandMask mask(const AttentionArguments& a) const {
    Sequence s = sequenceOf(a, sequence);
    s.sk = sk;
    return BandMask::of(a, s);
  }
  // next is the part behind this one in the line.
  DEVICE void next(const DecodeArguments& g) {
    if (++head < g.a.keyHeads) return;
    if (sequence + 1 < g.a.sequences) at(g, sequence + 1, 0);
  }
};

// Line is the tiles of all parts, and what this block has of them.
struct Line {
  uint32_t blocks;       // that have some
  uint32_t tiles;        // times blocks, less than 2^32
  uint32_t from, to;     // of this block
  uint32_t start;        // of the part that from lies in
  Part part;

  DEVICE uint32_t startOf(uint32_t block) const { return tiles * block / blocks; }
  DEVICE int blockOf(uint32_t tile) const { return (int)(((tile + 1) * blocks - 1) / tiles); }

  // The constructor is called by whole warps.
  DEVICE explicit Line(const DecodeArguments& g) {
    const AttentionArguments& a = g.a;
    if (!a.keyLengths && !g.state) {
      part.at(g, 0, 0);
      tiles = (uint32_t)part.tiles * a.keyHeads * a.sequences;
      share(g);
      const uint32_t n = from / (uint32_t)part.tiles;
      start = n * part.tiles;
      part.sequence = n / (uint32_t)a.keyHeads, part.head = n % (uint32_t)a.keyHeads, part.keyBatch = keyBatchOf(a, part.sequence);
      return;
    }
    tiles = 0;
    for (int first = 0; first < a.sequences; first += 32) tiles += sumOfTiles(g, first).y;
    share(g);
    uint32_t before = 0;
    for (int first = 0;; first += 32) {
      const int2 sums = sumOfTiles(g, first);
      if (before + sums.y <= from) {
        before += sums.y;
        continue;
      }
      // The lane whose sequence from lies in is the first whose sum is beyond it.
      const int in = __ffs(__ballot_sync(~0u, before + sums.x > from)) - 1;
      const int ofHead = __shfl_sync(~0u, tilesOf(g, first + lane()), in);
      start = before + __shfl_sync(~0u, sums.x, in) - ofHead * a.keyHeads;
      const int head = (from - start) / (uint32_t)ofHead;
      start += head * ofHead;
      part.at(g, first + in, head);
      return;
    }
  }
  DEVICE void share(const DecodeArguments& g) {
    blocks = min((uint32_t)g.blocks, tiles);
    from = startOf(blockIdx.x), to = blockIdx.x < blocks ? startOf(blockIdx.x + 1) : from;
    if (from == to) from = 0, to = 0;
  }
  static DEVICE int tilesOf(const DecodeArguments& g, int sequence) {
    if (sequence >= g.a.sequences) return 0;
    Part p;
    p.at(g, sequence, 0);
    return p.tiles;
  }
  // startOf is where a part begins.
  DEVICE uint32_t startOf(const DecodeArguments& g, const Part& p) const {
    if (!g.a.keyLengths && !g.state) return (uint32_t)p.tiles * (p.sequence * g.a.keyHeads + p.head);
    uint32_t before = p.tiles * p.head;
    int first = 0;
    for (; first + 32 <= p.sequence; first += 32) before += sumOfTiles(g, first).y;
    const int sum = __shfl_sync(~0u, sumOfTiles(g, first).x, max(p.sequence - first, 1) - 1);
    return before + (p.sequence > first ? sum : 0);
  }
  // sumOfTiles is the tiles of the sequences from first up to the lane's, x, and of all 32, y.
  static DEVICE int2 sumOfTiles(const DecodeArguments& g, int first) {
    int sum = tilesOf(g, first + lane()) * g.a.keyHeads;
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      const int before = __shfl_up_sync(~0u, sum, other);
      if (lane() >= other) sum += before;
    }
    return make_int2(sum, __shfl_sync(~0u, sum, 31));
  }
};

// at is where an element of a tensor begins.
DEVICE const uint16_t* at(const Rows& t, int64_t batch, int64_t head, int64_t row) {
  return (const uint16_t*)t.data + batch * t.batch + head * t.head + row * t.row;
}

// placed is where a tile has 8 neighbouring elements of a row: the pieces of 128 bytes are permuted,
// so that a piece of eight neighbouring rows lies in different banks.
DEVICE uint32_t placed(uint32_t tile, int row, int chunk) { return tile + row * (2 * D) + ((chunk ^ row & 7) << 4); }

// loadTile asks for a tile's keys or values. Those beyond the end are zeros.
DEVICE void loadTile(uint32_t to, const Rows& t, const Part& p, int key, int columns) {
  if constexpr (THREADS % CHUNKS != 0) {
    // A warp has some rows, four at a time: 32 pieces of one after the other, and the last 8 of all four.
    static_assert(THREADS % CHUNKS == 0 || (CHUNKS % 32 == 8 && OWN_KEYS % 4 == 0), "whole rows");
#pragma unroll
    for (int n = 0; n < OWN_KEYS; n += 4) {
      const int first = OWN_KEYS * warp() + n;
      const auto copy = [&](int row, int chunk) {
        const bool there = 8 * chunk < columns && key + row < p.sk;
        copyAsync(placed(to, row, chunk), there ? at(t, p.keyBatch, p.head, key + row) + 8 * chunk : (const uint16_t*)t.data, there ? 16 : 0);
      };
#pragma unroll
      for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c + 32 <= CHUNKS; c += 32) copy(first + r, c + lane());
      copy(first + lane() / 8, CHUNKS - 8 + lane() % 8);
    }
    return;
  }
  constexpr int PASS = THREADS / CHUNKS;
  const int chunk = threadIdx.x % CHUNKS, row = threadIdx.x / CHUNKS;
  const bool inside = 8 * chunk < columns;
  const uint16_t* from = at(t, p.keyBatch, p.head, key + row) + 8 * chunk;
#pragma unroll
  for (int n = 0; n < KEYS; n += PASS) {
    const bool there = inside && key + row + n < p.sk;
    copyAsync(placed(to, row + n, chunk), there ? from : (const uint16_t*)t.data, there ? 16 : 0);
    from += PASS * t.row;
  }
}

// Loader asks for a block's tiles, one after the other.
struct Loader {
  Part part;
  int tile, left, stage;

  DEVICE Loader(const Line& l) : part(l.part), tile((int)(l.from - l.start)), left((int)(l.to - l.from)), stage(0) {}
  DEVICE void load(const DecodeArguments& g, uint32_t ring) {
    if (left > 0) {
      const int key = part.first + tile * KEYS;
      loadTile(ring + stage * STAGE, g.a.k, part, key, g.a.d);
      if constexpr (!JOINED) loadTile(ring + stage * STAGE + VALUES, g.a.v, part, key, g.a.dv);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
      left--;
      if (++tile == part.tiles && left > 0) tile = 0, part.next(g);
    }
    copyCommit();
  }
};

// factorOf is what sums relative to one maximum are multiplied by to be relative to another, larger
// one.
DEVICE float factorOf(float from, float to) { return from == to ? 1 : exp2Fast(from - to); }

// Head is the rows of the query heads of one key head: first those of the first query, a row a head.
struct Head {
  int sequence, keyHead, group, rows;

  DEVICE Head(const AttentionArguments& a, const Part& p) : sequence(p.sequence), keyHead(p.head), group(a.heads / a.keyHeads), rows(group * a.sq) {}
  DEVICE int queryOf(int row) const { return row / group; }
  DEVICE int headOf(int row) const { return keyHead * group + row % group; }
};

// Queries are the rows lane/4 and lane/4 + 8 of a head.
struct Queries : Head {
  BandMask mask;
  uint32_t q[D / 16][4];
  float slopes[2];

  DEVICE Queries(const AttentionArguments& a, const Part& p) : Head(a, p), mask(p.mask(a)) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = lane() / 4 + 8 * half;
      const bool there = row < rows;
      slopes[half] = a.slopes && there ? a.slopes[headOf(row)] : 0;
      const uint16_t* from = at(a.q, sequence, headOf(there ? row : 0), queryOf(there ? row : 0)) + 2 * (lane() % 4);
#pragma unroll
      for (int n = 0; n < D / 8; n++) q[n / 2][half + 2 * (n % 2)] = there && 8 * n < a.d ? *(const uint32_t*)(from + 8 * n) : 0;
    }
  }

  // score makes a score, times log2 e, of a product.
  DEVICE float score(const AttentionArguments& a, float product, int half, int key) const {
    const int query = queryOf(min(lane() / 4 + 8 * half, rows - 1));
    if (key >= min(mask.sk, query + mask.hi) || key < query + mask.lo) return -INFINITY;
    float s = a.softCap > 0 ? a.softCap * tanhf(product * a.scaleInCap) : product * a.scale;
    if (a.slopes) s -= slopes[half] * abs(query + mask.sk - mask.sq - key);
    return s * LOG2E;
  }
};

// Lane is what a thread has of a head's sums.
struct Lane {
  float most[2], sum[2];           // the largest score so far, times log2 e, and the sum of its own keys' exponentials
  float o[OWN_COLUMNS / 8][4];     // o[n][e]: row lane/4 + 8·(e/2), column OWN_COLUMNS·warp + 8n + 2·(lane%4) + e%2

  DEVICE void clear() {
    most[0] = most[1] = -INFINITY, sum[0] = sum[1] = 0;
#pragma unroll
    for (int n = 0; n < OWN_COLUMNS / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[n][e] = 0;
  }
};

// visit adds a tile of keys to the sums.
DEVICE void visit(Lane& l, const AttentionArguments& a, const Queries& h, Shared& shared, uint32_t stage, int key) {
  constexpr int PRODUCTS = OWN_KEYS / 8;
  constexpr int SUMS = 4 / PRODUCTS;  // so that products need not wait for each other
  float s[PRODUCTS][SUMS][4] = {};
#pragma unroll
  for (int n = 0; n < D / 16; n += 2 / PRODUCTS) {
    uint32_t k[4];
    if constexpr (PRODUCTS == 2) {
      loadMatrix4(k, placed(stage, OWN_KEYS * warp() + lane() % 8 + lane() / 16 * 8, 2 * n + lane() / 8 % 2));
      multiplyAdd<ELEMENT>(s[0][n % 2], h.q[n], k[0], k[1]);
      multiplyAdd<ELEMENT>(s[PRODUCTS - 1][n % 2], h.q[n], k[2], k[3]);
    } else {
      loadMatrix4(k, placed(stage, OWN_KEYS * warp() + lane() % 8, 2 * n + lane() / 8));
      multiplyAdd<ELEMENT>(s[0][n % SUMS], h.q[n], k[0], k[1]);
      multiplyAdd<ELEMENT>(s[0][(n + 1) % SUMS], h.q[n + 1], k[2], k[3]);
    }
  }
  const int own = OWN_KEYS * warp() + 2 * (lane() % 4);
  float x[2][PRODUCTS][2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float most = -INFINITY;
#pragma unroll
    for (int t = 0; t < PRODUCTS; t++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float sum = s[t][0][2 * half + e];
#pragma unroll
        for (int n = 1; n < SUMS; n++) sum += s[t][n][2 * half + e];
        x[half][t][e] = h.score(a, sum, half, key + own + 8 * t + e);
        most = fmaxf(most, x[half][t][e]);
      }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    if (lane() % 4 == 0) shared.most[warp()][lane() / 4 + 8 * half] = most;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = lane() / 4 + 8 * half;
    float most = l.most[half];
#pragma unroll
    for (int w = 0; w < WARPS; w++) most = fmaxf(most, shared.most[w][row]);
    const float factor = factorOf(l.most[half], most), from = most == -INFINITY ? 0 : most;
    l.most[half] = most, l.sum[half] *= factor;
#pragma unroll
    for (int t = 0; t < PRODUCTS; t++) {
      const float left = exp2Fast(x[half][t][0] - from), right = exp2Fast(x[half][t][1] - from);
      l.sum[half] += left + right;
      *(uint32_t*)(shared.p + row * P_STRIDE + 2 * (own + 8 * t)) = pack<ELEMENT>(left, right);
    }
#pragma unroll
    for (int n = 0; n < OWN_COLUMNS / 8; n++) l.o[n][2 * half] *= factor, l.o[n][2 * half + 1] *= factor;
  }
  __syncthreads();
  const uint32_t p = sharedAddress(shared.p);
#pragma unroll
  for (int n = 0; n < KEYS / 16; n++) {
    uint32_t weights[4];
    loadMatrix4(weights, p + lane() % 16 * P_STRIDE + (2 * n + lane() / 16) * 16);
#pragma unroll
    for (int c = 0; c < OWN_COLUMNS / 8; c += 2) {
      uint32_t v[4];
      loadMatrix4Transposed(v, placed(stage + VALUES, 16 * n + lane() % 16, OWN_COLUMNS / 8 * warp() + c + lane() / 16));
      multiplyAdd<ELEMENT>(l.o[c], weights, v[0], v[1]);
      multiplyAdd<ELEMENT>(l.o[c + 1], weights, v[2], v[3]);
    }
  }
}

// Sums are those of a run of a head's keys: ROWS maxima, ROWS sums of exponentials, and ROWS rows of
// O.
constexpr int PARTIAL = ROWS * (DV + 2);
struct Sums {
  float *most, *sum, *o;
  DEVICE explicit Sums(float* at) : most(at), sum(at + ROWS), o(at + 2 * ROWS) {}
};

// Result is where a row of O goes, and its logsumexp.
struct Result {
  uint16_t* o;
  float* lse;
  float sink;  // times log2 e

  DEVICE Result(const AttentionArguments& a, const Head& h, int row) {
    const int head = h.headOf(row), query = h.queryOf(row);
    o = (uint16_t*)a.o.data + h.sequence * a.o.batch + head * a.o.head + query * a.o.row;
    lse = a.lse ? a.lse + ((int64_t)h.sequence * a.heads + head) * a.sq + query : nullptr;
    sink = a.sinks ? a.sinks[head] * LOG2E : -INFINITY;
  }
  DEVICE void putSum(float most, float sum) const {
    if (lse) *lse = sum == 0 ? -INFINITY : (most + log2f(sum)) * LN2;
  }
};

// sumOfRows gives the lane's rows the sums of all warps.
DEVICE void sumOfRows(Lane& l, Shared& shared) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    l.sum[half] += __shfl_xor_sync(~0u, l.sum[half], 1);
    l.sum[half] += __shfl_xor_sync(~0u, l.sum[half], 2);
    if (lane() % 4 == 0) shared.sums[warp()][lane() / 4 + 8 * half] = l.sum[half];
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    l.sum[half] = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) l.sum[half] += shared.sums[w][lane() / 4 + 8 * half];
  }
}

// write writes the rows of a head that no other block has a part of.
DEVICE void write(const Lane& l, const AttentionArguments& a, const Head& h) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = lane() / 4 + 8 * half;
    if (row >= h.rows) continue;
    const Result r(a, h, row);
    const float most = fmaxf(l.most[half], r.sink), factor = factorOf(l.most[half], most);
    const float sum = l.sum[half] * factor + (r.sink == -INFINITY ? 0 : exp2Fast(r.sink - most)), scale = sum == 0 ? 0 : factor / sum;
    if (warp() == 0 && lane() % 4 == 0) r.putSum(most, sum);
#pragma unroll
    for (int n = 0; n < OWN_COLUMNS / 8; n++) {
      const int column = OWN_COLUMNS * warp() + 8 * n + 2 * (lane() % 4);
      if (column < a.dv) *(uint32_t*)(r.o + column) = pack<ELEMENT>(l.o[n][2 * half] * scale, l.o[n][2 * half + 1] * scale);
    }
  }
}

// leave leaves the sums of a run in scratch memory.
DEVICE void leave(const Lane& l, const Sums& to, int rows) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = lane() / 4 + 8 * half;
    if (row >= rows) continue;
    if (warp() == 0 && lane() % 4 == 0) to.most[row] = l.most[half], to.sum[row] = l.sum[half];
#pragma unroll
    for (int n = 0; n < OWN_COLUMNS / 8; n++)
      *(float2*)&to.o[row * DV + OWN_COLUMNS * warp() + 8 * n + 2 * (lane() % 4)] = make_float2(l.o[n][2 * half], l.o[n][2 * half + 1]);
  }
}

DEVICE void addTo(float4& sum, const float4& x, float factor) {
  sum.x = fmaf(x.x, factor, sum.x), sum.y = fmaf(x.y, factor, sum.y), sum.z = fmaf(x.z, factor, sum.z), sum.w = fmaf(x.w, factor, sum.w);
}

// Runs are what several blocks have left of one head: the last head of the first block, and the
// first of all others.
struct Runs {
  float* partials;
  int first, count;
  DEVICE float* operator[](int run) const { return partials + (int64_t)(2 * (first + run) + (run == 0)) * PARTIAL; }
};

// RowOfRuns adds four neighbours of a row of a head's runs.
struct RowOfRuns {
  float most, sum;
  float4 o;

  DEVICE RowOfRuns() : most(-INFINITY), sum(0), o(make_float4(0, 0, 0, 0)) {}
  DEVICE void grow(float to) {
    const float factor = factorOf(most, to);
    most = to, sum *= factor, o.x *= factor, o.y *= factor, o.z *= factor, o.w *= factor;
  }
  DEVICE void add(float ofMost, float ofSum, const float4& ofO) {
    const float factor = factorOf(ofMost, most);
    sum = fmaf(ofSum, factor, sum);
    addTo(o, ofO, factor);
  }
  // read adds the runs from first on, every so many, as many on their way as registers have room for.
  DEVICE void read(const Runs& runs, int row, int column, int first, int step) {
    constexpr int TOGETHER = THREADS * BLOCKS <= 256 ? 18 : 12;
    for (; first < runs.count; first += TOGETHER * step) {
      float m[TOGETHER], s[TOGETHER];
      float4 x[TOGETHER];
#pragma unroll
      for (int n = 0; n < TOGETHER; n++) {
        const float* of = runs[min(first + n * step, runs.count - 1)];
        m[n] = __ldcg(of + row), s[n] = __ldcg(of + ROWS + row), x[n] = __ldcg((const float4*)(of + 2 * ROWS + row * DV + column));
      }
      float to = most;
#pragma unroll
      for (int n = 0; n < TOGETHER; n++) to = fmaxf(to, m[n]);  // the last one may count twice here
      grow(to);
#pragma unroll
      for (int n = 0; n < TOGETHER; n++)
        if (first + n * step < runs.count) add(m[n], s[n], x[n]);
    }
  }
  DEVICE void write(const AttentionArguments& a, const Head& h, int row, int column) {
    const Result r(a, h, row);
    grow(fmaxf(most, r.sink));
    if (r.sink != -INFINITY) sum += exp2Fast(r.sink - most);
    const float scale = sum == 0 ? 0 : 1 / sum;
    if (column == 0) r.putSum(most, sum);
    if (column < a.dv) *(uint2*)(r.o + column) = make_uint2(pack<ELEMENT>(o.x * scale, o.y * scale), pack<ELEMENT>(o.z * scale, o.w * scale));
  }
};

// mergeFew is merge of at most RUNS runs, for QUADS times four neighbours of a thread at a time: all
// that it reads is on its way at once.
template <int QUADS, int RUNS> DEVICE void mergeFew(const AttentionArguments& a, const Head& h, const Runs& runs) {
  const int end = h.rows * DV;
  for (int i = 4 * threadIdx.x; i < end; i += 4 * THREADS * QUADS) {
    float m[QUADS][RUNS], s[QUADS][RUNS];
    float4 x[QUADS][RUNS];
#pragma unroll
    for (int n = 0; n < RUNS; n++) {
      const float* of = runs[min(n, runs.count - 1)];
#pragma unroll
      for (int q = 0; q < QUADS; q++) {
        const int at = min(i + 4 * THREADS * q, end - 4);
        m[q][n] = __ldcg(of + at / DV), s[q][n] = __ldcg(of + ROWS + at / DV), x[q][n] = __ldcg((const float4*)(of + 2 * ROWS + at));
      }
    }
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
      const int at = i + 4 * THREADS * q;
      if (at >= end) break;
      RowOfRuns r;
#pragma unroll
      for (int n = 0; n < RUNS; n++) r.most = fmaxf(r.most, m[q][n]);
#pragma unroll
      for (int n = 0; n < RUNS; n++)
        if (n < runs.count) r.add(m[q][n], s[q][n], x[q][n]);
      r.write(a, h, at / DV, at % DV);
    }
  }
}

// merge adds the runs of a head and writes its rows and their logsumexps.
DEVICE void merge(const AttentionArguments& a, const Head& h, const Runs& runs) {
  if (runs.count <= 5) return mergeFew<4, 5>(a, h, runs);
  for (int i = 4 * threadIdx.x; i < h.rows * DV; i += 4 * THREADS) {
    RowOfRuns r;
    r.read(runs, i / DV, i % DV, 0, 1);
    r.write(a, h, i / DV, i % DV);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) KERNEL(const __grid_constant__ DecodeArguments g) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *(Shared*)memory;
  const AttentionArguments& a = g.a;
  if (!g.early) awaitBefore();
  Line line(g);
  Loader loader(line);
  const uint32_t ring = sharedAddress(shared.ring);
#pragma unroll 1
  for (int n = 0; n < STAGES - 1; n++) loader.load(g, ring);
  if (g.early) awaitBefore();
  beginDependents();
  Lane l;
  Part part = line.part;
  uint32_t start = line.start, tile = line.from;
  int stage = 0;
#pragma unroll 1
  while (tile < line.to) {
    const Queries h(a, part);
    l.clear();
    const uint32_t end = start + part.tiles, until = min(end, line.to);
    const bool whole = tile == start && until == end;
#pragma unroll 1
    for (int key = part.first + (int)(tile - start) * KEYS; tile < until; tile++, key += KEYS) {
      copyWait<STAGES - 2>();
      __syncthreads();
      loader.load(g, ring);
      visit(l, a, h, shared, ring + stage * STAGE, key);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    sumOfRows(l, shared);
    if (whole) {
      write(l, a, h);
    } else {
      const Runs runs = {g.partials, line.blockOf(start), line.blockOf(end - 1) - line.blockOf(start) + 1};
      leave(l, Sums(runs[blockIdx.x - runs.first]), h.rows);
      if (g.apart) {
        start = end;
        part.next(g);
        continue;
      }
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        int32_t* counter = a.counters + (h.sequence * a.keyHeads + h.keyHead);
        shared.last = atomicAdd(counter, 1) == runs.count - 1;
        if (shared.last) *counter = 0;
      }
      __syncthreads();
      if (shared.last) {
        __threadfence();
        merge(a, h, runs);
      }
    }
    start = end;
    part.next(g);
  }
}

#define CONCATENATED(a, b) a##b
#define NAMED(a, b) CONCATENATED(a, b)
constexpr int MERGERS = 8, MERGED = 128;  // warps, and columns of a block

// The second kernel merges where more blocks share a head than one block can add up soon. A block has
// MERGED columns of a row, and its warps take runs in turns.
extern "C" __global__ void __launch_bounds__(32 * MERGERS) NAMED(KERNEL, _merge)(const __grid_constant__ DecodeArguments g) {
  __shared__ RowOfRuns ofWarps[MERGERS][32];
  const AttentionArguments& a = g.a;
  awaitBefore();
  beginDependents();
  const Line line(g);
  Part part;
  part.at(g, blockIdx.x / a.keyHeads, blockIdx.x % a.keyHeads);
  const uint32_t start = line.startOf(g, part);
  const Runs runs = {g.partials, line.blockOf(start), line.blockOf(start + part.tiles - 1) - line.blockOf(start) + 1};
  if (runs.count == 1) return;  // whose block has written it
  const int chunks = (DV + MERGED - 1) / MERGED, row = blockIdx.y / chunks, column = blockIdx.y % chunks * MERGED + 4 * lane();
  RowOfRuns r;
  if (column < DV) r.read(runs, row, column, warp(), MERGERS);
  ofWarps[warp()][lane()] = r;
  __syncthreads();
  if (warp() > 0 || column >= DV) return;
#pragma unroll
  for (int w = 1; w < MERGERS; w++) {
    const RowOfRuns& other = ofWarps[w][lane()];
    r.grow(fmaxf(r.most, other.most));
    r.add(other.most, other.sum, other.o);
  }
  r.write(a, Head(a, part), row, column);
}
