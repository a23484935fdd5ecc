// Matrix products for every GPU since compute capability 8.0: operands of 16 bits, summed in
// float32 by mma.sync. One variant a module. Compile with
//   -DKERNEL=name -DELEMENT=BF16 or F16,
//   -DSPLIT_PARTS=0, or 1 or 2 for float32 that was split (matmul_split.cu),
//   -DA_COLUMNS where A's columns are contiguous rather than its rows,
//   -DB_ROWS where B's rows are rather than its columns,
//   -DTILE_ROWS, -DTILE_COLUMNS of C that a block computes,
//   -DWARPS_DOWN, -DWARPS_ACROSS that share them,
//   -DTILE_DEPTH of a slice, 32 or 64, -DSTAGES of slices, -DSHARED_BYTES,
//   -DGROUPED=1 where A's rows belong to groups (grouped.cuh), 2 where the depth does.
//
// Slices of the depth arrive in a ring of STAGES buffers by cp.async. Beside the products of a step
// a warp loads what it multiplies in the next one, so that the barrier between slices stands before
// products that need shared memory no more.
//
// Blocks are persistent, and the ring goes on from tile to tile: the first slices of a tile arrive
// while the one before leaves, from registers. Where the last tiles are fewer than the blocks, the
// depth of each may be cut into shares. Blocks leave the sums of a share in scratch memory, and a
// second kernel adds the shares of a tile in order.
#include "mma.cuh"
#include "grouped.cuh"

#ifndef GROUPED
#define GROUPED 0
#endif

#ifdef A_COLUMNS
constexpr bool AColumns = true;
#else
constexpr bool AColumns = false;
#endif
#ifdef B_ROWS
constexpr bool BRows = true;
#else
constexpr bool BRows = false;
#endif

constexpr int DEPTH = TILE_DEPTH, STEPS = DEPTH / STEP, THREADS = 32 * WARPS_DOWN * WARPS_ACROSS;
constexpr bool SCALED = SPLIT_PARTS > 0;
constexpr int PARTS = SCALED ? SPLIT_PARTS : 1, PRODUCTS = PARTS == 2 ? 3 : 1;
constexpr int A_BYTES = TILE_ROWS * DEPTH * 2, B_BYTES = TILE_COLUMNS * DEPTH * 2, STAGE_BYTES = PARTS * (A_BYTES + B_BYTES);
// A warp has ROWS blocks of 16 rows below each other, and GROUPS groups of 32 columns, between
// which lie those of the warps beside it.
constexpr int WARP_ROWS = TILE_ROWS / WARPS_DOWN, ROWS = WARP_ROWS / 16, COLUMNS = TILE_COLUMNS / WARPS_ACROSS / 8;
constexpr int PAIRS = COLUMNS / 2, GROUPS = COLUMNS / 4, NEXT_GROUP = 32 * WARPS_ACROSS;
// What belongs to the columns and rows of a tile, in two places that tiles use in turns: the bias
// and, where operands are scaled, the scales of columns and of rows.
constexpr int SIDE_FLOATS = TILE_COLUMNS + (SCALED ? TILE_COLUMNS + TILE_ROWS : 0), SIDES_AT = STAGES * STAGE_BYTES;
static_assert(SHARED_BYTES == SIDES_AT + 2 * SIDE_FLOATS * 4, "the table of variants has other tiles");
static_assert(THREADS >= TILE_ROWS && THREADS >= TILE_COLUMNS && WARP_ROWS <= 64 && WARPS_ACROSS >= 2);

// How the result leaves: element by element, as 16-bit numbers, as floats, or as floats added to C.
// But for the first, rows of what is written begin at multiples of 16 bytes. The host's are in
// matmul_sm90.go.
enum Way : int32_t { Elements = 0, Halves = 1, Floats = 2, AddedFloats = 3 };

struct Schedule {
  int32_t tiles, whole;    // all, and those that are not shared, which come first
  int32_t across, down;    // tiles of an item
  int32_t band;            // tiles below each other that are visited together
  int32_t slices, shares;  // of the depth of a tile, and of a shared one
  int32_t way;
};

#if GROUPED == 0
struct Arguments {
  MatMulArguments g;
  Schedule s;
};

// Groups is nothing where there are none.
struct Groups {
  DEVICE Groups(const Arguments&) {}
  DEVICE int pieces(const Arguments& x) const { return x.s.whole + (x.s.tiles - x.s.whole) * x.s.shares; }
};
#else
struct Arguments : GroupedArguments {
  Schedule s;
};

constexpr int MOST_GROUPS = 256;

// Groups is where groups begin and, where they are of rows, how many tiles come before each.
struct Groups {
  int32_t begins[MOST_GROUPS + 1], tiles[MOST_GROUPS + 1];

  DEVICE void read(const Arguments& x) {
    for (int i = threadIdx.x; i <= x.groups; i += THREADS) begins[i] = x.offsets[i];
    __syncthreads();
    if (GROUPED == 1 && warp() == 0) {
      int before = 0;
      for (int base = 0; base < x.groups; base += 32) {
        const int i = base + lane();
        int sum = i < x.groups ? (begins[i + 1] - begins[i] + TILE_ROWS - 1) / TILE_ROWS * x.s.across : 0;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          const int other = __shfl_up_sync(~0u, sum, step);
          if (lane() >= step) sum += other;
        }
        if (i < x.groups) tiles[i + 1] = before + sum;
        before += __shfl_sync(~0u, sum, 31);
      }
      if (lane() == 0) tiles[0] = 0;
    }
    __syncthreads();
  }
  DEVICE int pieces(const Arguments& x) const { return GROUPED == 1 ? tiles[x.groups] : x.s.tiles; }
  // of is the group of a tile.
  DEVICE int of(const Arguments& x, int tile) const {
    int low = 0, high = x.groups;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (tiles[middle] <= tile) low = middle;
      else high = middle;
    }
    return low;
  }
};
#endif

// Piece is some of the depth of a tile: slices [from, to).
struct Piece {
  int item, row, column, from, to;
#if GROUPED == 0
  DEVICE int rows(const Arguments& x) const { return x.g.rows; }
  DEVICE int depth(const Arguments& x) const { return x.g.depth; }
  DEVICE int firstDepth() const { return 0; }
  DEVICE int64_t bias(const Arguments&) const { return 0; }

  DEVICE Piece(const Arguments& x, const Groups&, int number) : from(0), to(x.s.slices) {
    const Schedule& s = x.s;
    int tile = number;
    if (number >= s.whole) {
      const int shared = s.tiles - s.whole, share = (number - s.whole) / shared;
      tile = s.whole + (number - s.whole) % shared;
      from = (int)((int64_t)share * s.slices / s.shares), to = (int)((int64_t)(share + 1) * s.slices / s.shares);
    }
    item = tile / (s.across * s.down);
    tile -= item * s.across * s.down;
    const int first = tile / (s.band * s.across) * s.band, high = min(s.band, s.down - first);
    tile -= first * s.across;
    row = (first + tile % high) * TILE_ROWS, column = tile / high * TILE_COLUMNS;
  }
#else
  int begins, ends;  // of the group

  DEVICE int rows(const Arguments& x) const { return GROUPED == 1 ? ends : x.g.rows; }
  DEVICE int depth(const Arguments& x) const { return GROUPED == 2 ? ends - begins : x.g.depth; }
  DEVICE int firstDepth() const { return GROUPED == 2 ? begins : 0; }
  DEVICE int64_t bias(const Arguments& x) const { return item * x.biasStep; }

  // The tiles of a group of rows that have the same columns follow each other, so that these stay near.
  DEVICE Piece(const Arguments& x, const Groups& groups, int number) : from(0), to(x.s.slices) {
    if (GROUPED == 1) {
      item = groups.of(x, number), begins = groups.begins[item], ends = groups.begins[item + 1];
      const int tile = number - groups.tiles[item], down = (ends - begins + TILE_ROWS - 1) / TILE_ROWS;
      row = begins + tile % down * TILE_ROWS, column = tile / down * TILE_COLUMNS;
      return;
    }
    const int each = x.s.across * x.s.down;
    item = number / each, number %= each, begins = groups.begins[item], ends = groups.begins[item + 1];
    row = number % x.s.down * TILE_ROWS, column = number / x.s.down * TILE_COLUMNS;
    to = max(1, (ends - begins + DEPTH - 1) / DEPTH);  // of no depth a slice of zeros
  }
#endif
};

// ---- from device memory to shared memory

// copyUnless brings 16 bytes, or zeros where skip holds, if go does.
DEVICE void copyUnless(bool skip, bool go, uint32_t to, const void* from) {
  asm volatile(
      "{\n.reg .pred skip, go;\nsetp.ne.u32 skip, %2, 0;\nsetp.ne.u32 go, %3, 0;\n"
      "@go cp.async.cg.shared.global [%0], [%1], 16, skip;\n}\n" ::"r"(to), "l"(from), "r"((uint32_t)skip), "r"((uint32_t)go) : "memory");
}

// turned says how the units of a line whose depth is contiguous are permuted.
DEVICE int turned(int line) { return DEPTH == 64 ? line & 7 : line >> 1 & 3; }

// Source is what a thread copies of A's rows, or of B's columns: 16 bytes at a time. With Along,
// the sides are contiguous rather than the depth, and a tile has a line for each step of the depth;
// otherwise it has one for each side. Units of 16 bytes of a line are permuted, so that ldmatrix
// finds those of eight neighbouring lines in different banks.
template <bool Along, int SIDES> struct Source {
  static_assert(PARTS == 1 || !Along);
  // threads a line, and lines at a time
  static constexpr int SPAN = Along ? 8 : DEPTH / 8, PASS = THREADS / SPAN;
  // of a thread: a line's, and all
  static constexpr int BESIDE = Along ? SIDES / 64 : PARTS, COPIES = (Along ? DEPTH : SIDES) / PASS * BESIDE;
  const uint16_t* at;
  int left;  // sides from the thread's first one on

  static DEVICE int unit() { return threadIdx.x % SPAN; }
  static DEVICE int line() { return threadIdx.x / SPAN; }
  static DEVICE uint32_t place() {
    return Along ? line() * SIDES * 2 + (unit() ^ line() & 7) * 16 : line() * DEPTH * 2 + (unit() ^ turned(line())) * 16;
  }
  // placeOf is where the n-th copy goes.
  static DEVICE uint32_t placeOf(int n) {
    return place() + n / BESIDE * PASS * (Along ? SIDES : DEPTH) * 2 + n % BESIDE * (Along ? 128 : SIDES * DEPTH * 2);
  }

  DEVICE void begin(const Stack& s, const MatMulArguments& g, int64_t side, int64_t depth, int sides, int item, int first, int from) {
    first += Along ? unit() * 8 : line();
    from += Along ? line() : unit() * 8;
    at = (const uint16_t*)s.data + item / g.inner * s.outer + item % g.inner * s.inner + (Along ? first + from * depth : first * side + from);
    left = sides - first;
  }

  // copy starts the n-th copy of a slice whose units are there whole or not at all. After the last
  // one it has gone on to the next slice.
  DEVICE void copy(int n, bool go, uint32_t to, int64_t side, int64_t depth, int low) {
    const int beside = n % BESIDE;
    copyUnless((Along ? beside * 64 : n / BESIDE * PASS) >= left, go, to + placeOf(n), at + (Along ? beside * 64 : beside * low));
    if (beside == BESIDE - 1) at += PASS * (Along ? depth : side);
    if (!Along && n == COPIES - 1) at += DEPTH - SIDES * side;
    asm volatile("" : "+l"(at));  // one pointer that moves, not many that take registers
  }

  // copyRest brings all of a slice, of which rest steps of the depth are there, for what ends
  // within a unit.
  DEVICE void copyRest(uint32_t to, int64_t side, int64_t depth, int rest, int low) const {
#pragma unroll 1
    for (int line = 0; line < COPIES / BESIDE; line++)
#pragma unroll
      for (int beside = 0; beside < BESIDE; beside++) {
        const int steps = Along ? this->line() + line * PASS < rest ? 8 : 0 : rest - unit() * 8;
        const int sides = Along ? left - beside * 64 : line * PASS < left ? 8 : 0;
        copyAsync(to + placeOf(line * BESIDE + beside), at + line * PASS * (Along ? depth : side) + (Along ? beside * 64 : beside * low),
                  min(8, max(0, min(steps, sides))) * 2);
      }
  }
};

// Cursor is where a block has got to in copying.
struct Cursor {
  using SourceA = Source<AColumns, TILE_ROWS>;
  using SourceB = Source<BRows, TILE_COLUMNS>;
  static constexpr int COPIES = SourceA::COPIES + SourceB::COPIES;
  const Arguments& x;
  const Groups& groups;
  SourceA a;
  SourceB b;
  int piece, pieces, left, rest;  // slices of the piece that are left, and steps of the depth
  bool ends;                      // sides end within a unit
  const uint32_t ring;
  uint32_t to;

  DEVICE Cursor(const Arguments& x, const Groups& groups, uint32_t ring, int pieces) : x(x), groups(groups), piece(blockIdx.x), pieces(pieces), ring(ring), to(ring) { begin(); }

  DEVICE void begin() {
    if (piece >= pieces) return;
    const MatMulArguments& g = x.g;
    const Piece p(x, groups, piece);
    const int from = p.firstDepth() + p.from * DEPTH;
    a.begin(g.a, g, g.a.row, g.a.column, p.rows(x), p.item, p.row, from);
    b.begin(g.b, g, g.b.column, g.b.row, g.columns, p.item, p.column, from);
    left = p.to - p.from, rest = p.depth(x) - p.from * DEPTH;
    ends = AColumns && p.row + TILE_ROWS > g.rows && g.rows % 8 || BRows && p.column + TILE_COLUMNS > g.columns && g.columns % 8;
  }

  DEVICE bool isWhole() const { return !ends && rest >= DEPTH; }

  // copy starts the n-th copy of the next slice, if there is one.
  DEVICE void copy(int n) {
    const MatMulArguments& g = x.g;
    const bool there = piece < pieces, go = there && isWhole();
    if (n == 0 && there && !isWhole()) {
      a.copyRest(to, g.a.row, g.a.column, rest, g.lowDepth);
      b.copyRest(to + PARTS * A_BYTES, g.b.column, g.b.row, rest, g.lowDepth);
    }
    if (n < SourceA::COPIES) a.copy(n, go, to, g.a.row, g.a.column, g.lowDepth);
    else b.copy(n - SourceA::COPIES, go, to + PARTS * A_BYTES, g.b.column, g.b.row, g.lowDepth);
    if (n == COPIES - 1) copyCommit();
  }
  // advance goes on to the next slice.
  DEVICE void advance() {
    to = to + STAGE_BYTES == ring + STAGES * STAGE_BYTES ? ring : to + STAGE_BYTES;
    rest -= DEPTH;
    if (--left == 0) {
      piece += gridDim.x;
      begin();
    }
  }
};

// ---- from shared memory to registers

// Fragments are what a warp multiplies in a step and in the next one, in turns, and where in a
// stage it finds that.
struct Fragments {
  uint32_t a[2][ROWS][4], b[2][PAIRS][4];
  uint32_t ofA, ofB;

  DEVICE Fragments() {
    const int down = warp() / WARPS_ACROSS * WARP_ROWS, across = warp() % WARPS_ACROSS, l = lane();
    ofA = AColumns ? (l % 8 + l / 16 * 8) * TILE_ROWS * 2 + down * 2 + (l / 8 % 2 ^ l & 7) * 16 : (down + l % 16) * DEPTH * 2 + (l / 16 ^ turned(l)) * 16;
    ofB = PARTS * A_BYTES + (BRows ? l % 16 * TILE_COLUMNS * 2 + (across * 4 + l / 16 ^ l & 7) * 16
                                   : (across * 32 + l % 8 + l / 16 * 8) * DEPTH * 2 + (l / 8 % 2 ^ turned(l)) * 16);
  }

  // load loads what a step of the depth multiplies. A step is one of a product of two parts.
  DEVICE void load(uint32_t stage, int step) {
    const uint32_t fromA = stage + ofA, fromB = stage + ofB;
    const int k = step % STEPS, partA = PARTS == 2 && step < STEPS ? A_BYTES : 0, partB = PARTS == 2 && step / STEPS == 1 ? B_BYTES : 0;
    uint32_t(&toA)[ROWS][4] = a[step % 2], (&toB)[PAIRS][4] = b[step % 2];
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
      if constexpr (BRows) loadMatrix4Transposed(toB[pair], (fromB ^ 32 * (pair % 2)) + pair / 2 * NEXT_GROUP * 2 + k * STEP * TILE_COLUMNS * 2 + partB);
      else loadMatrix4(toB[pair], (fromB ^ 32 * k) + (pair / 2 * NEXT_GROUP + pair % 2 * 16) * DEPTH * 2 + partB);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      if constexpr (AColumns) loadMatrix4Transposed(toA[i], (fromA ^ 32 * i) + k * STEP * TILE_ROWS * 2 + partA);
      else loadMatrix4(toA[i], (fromA ^ 32 * k) + i * 16 * DEPTH * 2 + partA);
    }
  }
};

// ---- from registers to device memory

// Sides is what belongs to the columns and rows of a tile: what a thread fetches of it, and where
// it lies.
struct Sides {
  float bias, columnScale, rowScale;

  DEVICE void fetch(const Arguments& x, const Piece& p) {
    const MatMulArguments& g = x.g;
    const int row = p.row + threadIdx.x, column = p.column + threadIdx.x;
    bias = 0, columnScale = 0, rowScale = 0;
    if (threadIdx.x < TILE_COLUMNS && column < g.columns) {
      if (g.bias) bias = loadElement(g.bias, p.bias(x) + column, g.biasElement);
      if constexpr (SCALED) columnScale = Scale(g.columnMost[itemOf(g.b, p.item) * g.columns + column]).down;
    }
    if constexpr (SCALED)
      if (threadIdx.x < TILE_ROWS && row < g.rows) rowScale = Scale(g.rowMost[itemOf(g.a, p.item) * g.rows + row]).down;
  }
  DEVICE void keep(float* at) const {
    if (threadIdx.x < TILE_COLUMNS) at[threadIdx.x] = bias;
    if constexpr (SCALED) {
      if (threadIdx.x < TILE_COLUMNS) at[TILE_COLUMNS + threadIdx.x] = columnScale;
      if (threadIdx.x < TILE_ROWS) at[2 * TILE_COLUMNS + threadIdx.x] = rowScale;
    }
  }
};

// Leaving is a tile on its way out, which leaves 16 rows of 32 columns of a warp at a time. A lane
// has rows lane/4 and 8 below, and of each of four blocks of 8 columns the two from lane%4·2 on.
struct Leaving {
  using Group = float[4][4];
  const MatMulArguments& g;
  const Output out;
  const float* sides;
  int way, row, column, rows;  // of the tile's first element, and where its item's rows end

  DEVICE Leaving(const Arguments& x, const Piece& p, const float* sides)
      : g(x.g), out(x.g, p.item), sides(sides), way(x.s.way), row(p.row), column(p.column), rows(p.rows(x)) {}

  // leave finishes sums of which these are the lane's first row and column within the tile. Plain
  // ones go to C alone, unchanged but for the bias, not element by element, and all columns of the
  // tile are C's.
  template <bool Plain> DEVICE void leave(Group& x, int r, int c) const {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if constexpr (SCALED) {
        const float2 across = *(const float2*)&sides[TILE_COLUMNS + c + 8 * j];
        const float upper = sides[2 * TILE_COLUMNS + r], lower = sides[2 * TILE_COLUMNS + r + 8];
        x[j][0] *= upper * across.x, x[j][1] *= upper * across.y, x[j][2] *= lower * across.x, x[j][3] *= lower * across.y;
      }
      if (g.bias) {
        const float2 bias = *(const float2*)&sides[c + 8 * j];
        x[j][0] += bias.x, x[j][1] += bias.y, x[j][2] += bias.x, x[j][3] += bias.y;
      }
    }
    r += row, c += column;
    if constexpr (!Plain) {
      if (way == Elements && g.accumulate) each(x, r, c, [&](int i, int k, float& y) { y += loadElement(g.c.data, out.c + i * g.c.row + k, g.cElement); });
      if (g.pre.data) write(g.pre, out.pre, g.preElement, x, r, c);
      activate(x);
    }
    if (way >= Floats) asFloats<Plain>(x, r, c);
    else if (Plain) asHalves<true>((uint16_t*)g.c.data + out.c, g.c.row, x, r, c + lane() % 4 * 6);
    else write(g.c, out.c, g.cElement, x, r, c);
  }

  // each calls f for the elements that C has.
  template <class F> DEVICE void each(Group& x, int r, int c, F f) const {
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int i = r + e / 2 * 8, k = c + 8 * j + e % 2;
        if (i < rows && k < g.columns) f(i, k, x[j][e]);
      }
  }

  DEVICE void activate(Group& x) const {
    const auto all = [&](auto f) {
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[j][e] = f(x[j][e]);
    };
    switch (g.activation) {
      case GELUTanh: return all([](float y) { return geluTanh(y); });
      case GELUErf: return all([](float y) { return geluErf(y); });
      case SiLU: return all([](float y) { return silu(y); });
      case ReLUSquared: return all([](float y) { return reluSquared(y); });
    }
  }

  // write writes C or Pre, whose item begins at an element.
  DEVICE void write(const Stack& to, int64_t item, int32_t element, Group& x, int r, int c) const {
    if (way == Halves) asHalves<false>((uint16_t*)to.data + item, to.row, x, r, c + lane() % 4 * 6);
    else each(x, r, c, [&](int i, int k, float& y) { storeElement(to.data, item + i * to.row + k, element, y); });
  }

  // asHalves has the four lanes of a row pass each other what they have, so that each gets one
  // block of 8 columns: the one from c on.
  template <bool Whole> DEVICE void asHalves(uint16_t* to, int64_t stride, const Group& x, int r, int c) const {
    const bool odd = lane() & 1, upper = lane() & 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t y[4];
#pragma unroll
      for (int j = 0; j < 4; j++) y[j] = pack<ELEMENT>(x[j][2 * half], x[j][2 * half + 1]);
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const uint32_t other = __shfl_xor_sync(~0u, odd ? y[j] : y[j + 1], 1);
        y[j] = odd ? other : y[j], y[j + 1] = odd ? y[j + 1] : other;
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const uint32_t other = __shfl_xor_sync(~0u, upper ? y[j] : y[j + 2], 2);
        y[j] = upper ? other : y[j], y[j + 2] = upper ? y[j + 2] : other;
      }
      if (r + 8 * half >= rows) continue;
      uint16_t* p = to + (r + 8 * half) * stride + c;
      if (Whole || c + 8 <= g.columns) {
        *(uint4*)p = make_uint4(y[0], y[1], y[2], y[3]);
      } else {
#pragma unroll
        for (int e = 0; e < 8; e++)
          if (c + e < g.columns) p[e] = (uint16_t)(y[e / 2] >> e % 2 * 16);
      }
    }
  }

  // asFloats writes pairs, or adds them to what is there.
  template <bool Whole> DEVICE void asFloats(const Group& x, int r, int c) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (r + 8 * half >= rows) continue;
      float* p = (float*)g.c.data + out.c + (r + 8 * half) * g.c.row + c;
      float2 y[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        y[j] = make_float2(0, 0);
        if (way == AddedFloats) {
          if (Whole || c + 8 * j + 1 < g.columns) y[j] = *(const float2*)(p + 8 * j);
          else if (c + 8 * j < g.columns) y[j].x = p[8 * j];
        }
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        y[j].x += x[j][2 * half], y[j].y += x[j][2 * half + 1];
        if (Whole || c + 8 * j + 1 < g.columns) *(float2*)(p + 8 * j) = y[j];
        else if (c + 8 * j < g.columns) p[8 * j] = y[j].x;
      }
    }
  }
};

// firstRow and firstColumn are those of a lane within a tile.
DEVICE int firstRow() { return warp() / WARPS_ACROSS * WARP_ROWS + lane() / 4; }
DEVICE int firstColumn() { return warp() % WARPS_ACROSS * 32 + lane() % 4 * 2; }

// copyGroup takes the sums that leave together, of 16 rows and 32 columns.
template <class T> DEVICE void copyGroup(float (&x)[4][4], const T& sum, int group) {
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) x[j][e] = sum[j + 4 * group][e];
}

extern "C" __global__ void __launch_bounds__(THREADS, 256 / THREADS) KERNEL(const __grid_constant__ Arguments x) {
  extern __shared__ __align__(128) char memory[];
  const MatMulArguments& g = x.g;
  const uint32_t ring = sharedAddress(memory);
#if GROUPED == 0
  const Groups groups(x);
#else
  __shared__ Groups groups;
  groups.read(x);
#endif
  const int pieces = groups.pieces(x);
  Cursor cursor(x, groups, ring, pieces);
#pragma unroll 1
  for (int slice = 0; slice < STAGES - 1; slice++) {
#pragma unroll
    for (int n = 0; n < Cursor::COPIES; n++) cursor.copy(n);
    cursor.advance();
  }
  // steps of a slice, and copies beside one of them
  constexpr int TURNS = PRODUCTS * STEPS, AT_ONCE = (Cursor::COPIES + TURNS - 2) / (TURNS - 1);
  Fragments f;
  uint32_t stage = ring;
  const auto begin = [&] {  // a slice
    copyWait<STAGES - 2>();
    __syncthreads();
    f.load(stage, 0);
  };
  begin();
#pragma unroll 1
  for (int number = blockIdx.x, turn = 0; number < pieces; number += gridDim.x, turn ^= 1) {
    const Piece p(x, groups, number);
    float* const besides = (float*)(memory + SIDES_AT) + turn * SIDE_FLOATS;
    Sides sides;
    sides.fetch(x, p);
    float sum[ROWS][COLUMNS][4], part[PARTS == 2 ? ROWS : 1][PARTS == 2 ? COLUMNS : 1][4];
    clear(sum);
    const int slices = p.to - p.from;
#pragma unroll 1
    for (int left = slices; left > 0; left--) {
      // Products of two parts are added a slice at a time, the small ones first: mma.sync cuts sums
      // off instead of rounding them.
      if constexpr (PARTS == 2) clear(part);
#pragma unroll
      for (int step = 0; step < TURNS; step++) {
        if (step < TURNS - 1) {
          f.load(stage, step + 1);
#pragma unroll
          for (int n = step * AT_ONCE; n < min((step + 1) * AT_ONCE, Cursor::COPIES); n++) cursor.copy(n);
        } else {
          stage = stage + STAGE_BYTES == ring + STAGES * STAGE_BYTES ? ring : stage + STAGE_BYTES;
          begin();
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
          for (int n = 0; n < COLUMNS; n++) {
            const int j = i % 2 ? COLUMNS - 1 - n : n;
            const uint32_t(&b)[4] = f.b[step % 2][j / 2];
            multiplyAdd<ELEMENT>(PARTS == 2 ? part[PARTS == 2 ? i : 0][PARTS == 2 ? j : 0] : sum[i][j], f.a[step % 2][i], b[j % 2 * 2], b[j % 2 * 2 + 1]);
          }
        if (step == 0 && left == slices) sides.keep(besides);
      }
      if constexpr (PARTS == 2) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
          for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][j][e] += part[i][j][e];
      }
      cursor.advance();
    }

    if (!GROUPED && number >= x.s.whole) {
      float4* to = (float4*)g.partials + (int64_t)(number - x.s.whole) * (ROWS * COLUMNS * THREADS) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) to[(i * COLUMNS + j) * THREADS] = make_float4(sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]);
      continue;
    }
    const Leaving leaving(x, p, besides);
    const int down = firstRow(), across = firstColumn();
    if (x.s.way != Elements && !g.pre.data && g.activation == NoActivation && p.column + TILE_COLUMNS <= g.columns) {
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
          float y[4][4];
          copyGroup(y, sum[i], group);
          leaving.leave<true>(y, down + 16 * i, across + group * NEXT_GROUP);
        }
      continue;
    }
#pragma unroll 1
    for (int n = 0; n < ROWS * GROUPS; n++) {
      float y[4][4];
#pragma unroll
      for (int m = 0; m < ROWS * GROUPS; m++)
        if (m == n) copyGroup(y, sum[m / GROUPS], m % GROUPS);
      leaving.leave<false>(y, down + n / GROUPS * 16, across + n % GROUPS * NEXT_GROUP);
    }
  }
}

#if GROUPED == 0
// A block adds one of the groups that each warp has of a tile's sums.
#define JOINED(name, suffix) name##suffix
#define SUMS_OF(name) JOINED(name, _sums)
extern "C" __global__ void __launch_bounds__(THREADS) SUMS_OF(KERNEL)(const __grid_constant__ Arguments x) {
  __shared__ __align__(16) float besides[SIDE_FLOATS];
  const int tile = blockIdx.x / (ROWS * GROUPS), i = blockIdx.x / GROUPS % ROWS, group = blockIdx.x % GROUPS;
  const Piece p(x, Groups(x), x.s.whole + tile);
  Sides sides;
  sides.fetch(x, p);
  sides.keep(besides);
  constexpr int64_t EACH = ROWS * COLUMNS * THREADS;  // of a share
  const float4* from = (const float4*)x.g.partials + tile * EACH + (i * COLUMNS + 4 * group) * THREADS + threadIdx.x;
  float y[1][4][4];
  clear(y);
#pragma unroll 2
  for (int share = 0; share < x.s.shares; share++, from += (x.s.tiles - x.s.whole) * EACH)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float4 more = from[j * THREADS];
      y[0][j][0] += more.x, y[0][j][1] += more.y, y[0][j][2] += more.z, y[0][j][3] += more.w;
    }
  __syncthreads();
  Leaving(x, p, besides).leave<false>(y[0], firstRow() + 16 * i, firstColumn() + group * NEXT_GROUP);
}
#endif
