// The forward kernel for compute capability 8.0 and newer: O and the logsumexp of a tile of query
// rows of one head.
//
// A warp owns 16 or 32 rows: their scores, probabilities and outputs stay in its registers. K and V
// pass through shared memory a tile at a time. While a tile's scores are computed its V is on the
// way, and the next K while its probabilities are; where operands take less room than what arrives,
// or one more tile has room, both are on the way all the time.
//
// The softmax is online. A row's reference (the maximum that its exponentials are taken against)
// moves only when a score exceeds it by more than 2^8: the outputs are then rescaled, otherwise
// left alone; float32 has room for the difference.
//
// WIDE: Q and K arrive in pieces, and a block computes a part of O, D of its columns.
#pragma once
#include "attention_sm80.cuh"

template <class E, int D, int BQ, int BK, int WARPS, class Score> struct Forward {
  static constexpr int ROWS = BQ / WARPS / 16, KEYS = BK / 8, OUT = D / 8;
  static_assert(BQ == ROWS * 16 * WARPS);
  // Floats of one part arrive in a tile of their own; others become operands where they are.
  static constexpr bool STAGED = !WIDE && OPERAND<E> < E::BYTES;
  // With a third place for K and V the next K and V arrive during two phases instead of one.
  static constexpr bool THREE = TILE_PLACES == 3;
  // Whether q, k and v are in permuted tiles.
  static constexpr bool SWIZZLED = TILE_SWIZZLED;
  // Whether the loop has a shorter way for tiles of keys that all rows see: without the branches of
  // the other one ptxas orders instructions better, up to 17 % of the time.
  static constexpr bool SPLIT = !E::SCALED && !Score::CHANGES;
  // Whether scores are cleared before their product clears them. It changes no result; ptxas spills
  // less, up to 7 % of the time, and at the other sizes more, up to 10 %.
  static constexpr bool CLEARS = !E::SCALED && (!SPLIT || D != 64 && D != 96);
  using Raw = Tile<E, D, E::BYTES, SWIZZLED>;
  using Operand = Tile<E, D, STAGED ? OPERAND<E> : E::BYTES, SWIZZLED>;
  using Products = Pieces<E, BQ, BK, WARPS, false>;

  const AttentionArguments& a;
  const View<Score> view;
  const int head, row;  // row: the tile's first
  const int mine;       // the warp's first row within the tile
  const Operand q;
  Operand k, v, free;  // of three places, the one that the next K arrives in
  const Raw rawK, rawV;  // where k and v arrive

  // WIDE
  const int part;     // of O
  Products products;  // where q and k arrive
  Matrix queries;
  int next;    // the tile of keys after this one
  bool fresh;  // this is the first one

  float o[ROWS][OUT][4];
  float reference[ROWS][2];  // in units of the scores
  float sum[ROWS][2];        // of this lane's exponentials
  float unit;                // of o, if that has one: multiplyAccumulator

  DEVICE Forward(const AttentionArguments& a, int sequence, int head, int tile, int part)
      : a(a), view(a, sequence), head(head), row(tile * BQ), mine(warp() * ROWS * 16), q{sharedBase()},
        k{q.base + BQ * Operand::STRIDE}, v{WIDE ? q.base + 2 * Products::BYTES : k.base + BK * Operand::STRIDE},
        free{v.base + BK * Operand::STRIDE}, rawK{STAGED ? v.base + BK * Operand::STRIDE : k.base},
        rawV{rawK.base + BK * Raw::STRIDE}, part(part),
        products(q.base, 2 * Products::BYTES + BK * Operand::STRIDE) {}

  DEVICE void run() {
    const Sequence& s = view.s;
    if (row >= s.sq) return;
    const int keyHead = head / (a.heads / a.keyHeads);
    const Matrix queries = matrixOf<E>(a.q, s.batch, head, s.q0, s.sq, a.d);
    const Matrix keys = matrixOf<E>(a.k, s.batch, keyHead, s.k0, s.sk, a.d);
    const Matrix values = valuesOf(matrixOf<E>(a.v, s.batch, keyHead, s.k0, s.sk, a.dv));
    const Tiles tiles = keyTiles<BK>(view.mask, row, BQ);
    // Scores times exponent are logarithms to base 2.
    const float exponent = Score::template factorOf<E::BYTES == 4>(a) * LOG2E;

    clear();
    if (!tiles.empty()) begin(queries, keys, values, tiles.first);
#pragma unroll 1
    for (int tile = tiles.first; tile < tiles.end; tile++) {
      const bool another = tile + 1 < tiles.end;
      if (WIDE) next = tile + 1;
      if (SPLIT && view.mask.whole(row, BQ, tile * BK, BK)) step<true>(keys, values, tile, another, exponent);
      else step<false>(keys, values, tile, another, exponent);
    }
    finish(exponent);
  }

  // valuesOf is this part of v or o.
  DEVICE Matrix valuesOf(const Matrix& m) const {
    if constexpr (WIDE) return columnsOf<E>(m, part * D, D);
    return m;
  }

  // begin brings q, and starts to bring the first tile of keys.
  DEVICE void begin(const Matrix& queries, const Matrix& keys, const Matrix& values, int tile) {
    if constexpr (WIDE) {
      this->queries = queries;
      fresh = true;
      products.fetch(0, queries, row, keys, tile * BK, 0, 0, true);
      return;
    }
    loadQueries(queries);
    loadTile<E, BK, WARPS>(rawK, keys, tile * BK);
    copyCommit();
    if constexpr (STAGED || THREE) {
      loadTile<E, BK, WARPS>(rawV, values, tile * BK);
      copyCommit();
    }
  }

  // addPieces computes the products of a tile of keys in pieces, and brings its V and the first
  // piece of the next one.
  DEVICE void addPieces(float (&x)[ROWS][KEYS][4], const Matrix& keys, const Matrix& values, int tile, bool another, bool idle) {
    const int count = Products::count(a.d);
    ::clear(x);
#pragma unroll 1
    for (int piece = 0; piece < count; piece++) {
      products.arrive(piece);
      if (piece == 0) {  // every warp is done with V
        loadTile<E, BK, WARPS>(v, values, tile * BK);
        copyCommit();
      }
      const bool last = piece + 1 == count;
      const int after = last ? 0 : piece + 1;
      if (!last || another) products.fetch(products.place ^ 1, queries, row, keys, (last ? next : tile) * BK, after, after, fresh && !last);
      else copyCommit();
      if (!idle) products.add(x, mine, 0, piece);
      products.place ^= 1;
    }
    fresh = false;
    copyWait<1>();
    settle<E, BK, WARPS>(v, v);
    __syncthreads();  // V is here
  }

  // step takes a tile of keys. PLAIN: its products need nothing but the scale to be scores, for all
  // rows of the block.
  template <bool PLAIN>
  DEVICE void step(const Matrix& keys, const Matrix& values, int tile, bool another, float exponent) {
    if constexpr (WIDE) {
      float x[ROWS][KEYS][4];
      const bool idle = __all_sync(0xffffffff, view.mask.none(row + mine, 16 * ROWS, tile * BK, BK));
      addPieces(x, keys, values, tile, another, idle);
      if (!idle) add<PLAIN>(x, tile, exponent, v);
      return;
    }
    copyWait<STAGED || THREE>();
    settle<E, BK, WARPS>(rawK, k);
    if (STAGED && another) loadTile<E, BK, WARPS>(rawK, keys, (tile + 1) * BK);
    if (STAGED) copyCommit();
    __syncthreads();  // K is here, and every warp is done with V
    if constexpr (THREE) {
      if (another) loadTile<E, BK, WARPS>(free, keys, (tile + 1) * BK);
      copyCommit();
    } else if constexpr (!STAGED) {
      loadTile<E, BK, WARPS>(rawV, values, tile * BK);
      copyCommit();
    }
    float x[ROWS][KEYS][4];
    if constexpr (CLEARS) ::clear(x);
    const bool idle = !PLAIN && view.mask.none(row + mine, 16 * ROWS, tile * BK, BK);
    if (!idle) multiplyTransposed<E, D>(x, q, mine, k, 0);
    copyWait<STAGED || THREE>();
    settle<E, BK, WARPS>(rawV, v);
    if (STAGED && another) loadTile<E, BK, WARPS>(rawV, values, (tile + 1) * BK);
    if (STAGED) copyCommit();
    __syncthreads();  // V is here, and every warp is done with K
    const Operand here = v;
    if constexpr (THREE) {
      if (another) loadTile<E, BK, WARPS>(k, values, (tile + 1) * BK);
      copyCommit();
      v.base = k.base, k.base = free.base, free.base = here.base;
    } else if constexpr (!STAGED) {
      if (another) loadTile<E, BK, WARPS>(rawK, keys, (tile + 1) * BK);
      copyCommit();
    }
    if (!idle) add<PLAIN>(x, tile, exponent, here);
  }

  // add adds a tile of keys, of which x are the products, to the sums and to o.
  template <bool PLAIN> DEVICE void add(float (&x)[ROWS][KEYS][4], int tile, float exponent, Operand values) {
    if constexpr (!PLAIN) score(x, tile * BK);
    exponentials(x, exponent);
    if constexpr (Score::CHANGES) drop(x, tile * BK);
    multiplyAccumulator<E, BK>(o, x, values, unit);
  }

  // loadQueries brings q: floats are settled, what is staged through the places where k and v
  // arrive. A barrier must follow.
  DEVICE void loadQueries(const Matrix& queries) const {
    if constexpr (STAGED) {
      static_assert(BQ % (2 * BK) == 0);
#pragma unroll 1
      for (int first = 0; first < BQ; first += 2 * BK) {
        loadTile<E, BK, WARPS>(rawK, queries, row + first);
        loadTile<E, BK, WARPS>(rawV, queries, row + first + BK);
        copyCommit();
        copyWait<0>();
        settle<E, BK, WARPS>(rawK, q, first);
        settle<E, BK, WARPS>(rawV, q, first + BK);
      }
    } else {
      loadTile<E, BQ, WARPS>(q, queries, row);
      if constexpr (E::SCALED) {
        copyCommit();
        copyWait<0>();
        settle<E, BQ, WARPS>(q, q);
      }
    }
  }

  DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      reference[i][0] = reference[i][1] = -INFINITE;
      sum[i][0] = sum[i][1] = 0;
    }
    ::clear(o);
    unit = 0;
  }

  // rowOf and columnOf place an accumulator element in the sequence.
  DEVICE int rowOf(int i, int e) const { return row + mine + 16 * i + lane() / 4 + e / 2 * 8; }
  DEVICE int columnOf(int first, int j, int e) const { return first + 8 * j + lane() % 4 * 2 + e % 2; }

  // score makes scores of products, but for the factor that the exponent has, and hides what the
  // mask hides.
  DEVICE void score(float (&x)[ROWS][KEYS][4], int first) const {
    const WarpTile<E, ROWS, KEYS> block(x, row + mine, first, view.s, head);
    Score::change(a, block);
    if (!view.mask.whole(row + mine, 16 * ROWS, first, BK)) view.mask.hide(block, -INFINITE);
  }

  // exponentials turns scores into exponentials against the rows' references, moving these and
  // rescaling o where needed.
  DEVICE void exponentials(float (&x)[ROWS][KEYS][4], float exponent) {
    float most[ROWS][2];
    bool moves = false;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float& m = most[i][half];
        m = x[i][0][2 * half];
#pragma unroll
        for (int j = 0; j < KEYS; j++) m = fmaxf(m, fmaxf(x[i][j][2 * half], x[i][j][2 * half + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, 2));
        moves |= (m - reference[i][half]) * exponent > 8;
        if (Score::ADDS && !EXACT) moves |= isFar<false>(reference[i][half] * exponent);
      }
    float base[ROWS][2] = {};  // what is subtracted from scores first
    if (__any_sync(0xffffffff, moves)) {
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float before = reference[i][half], after = fmaxf(before, most[i][half]);
          const float factor = after == -INFINITE ? 1 : exp2Fast((before - after) * exponent);
          reference[i][half] = after;
          sum[i][half] *= factor;
#pragma unroll
          for (int j = 0; j < OUT; j++) o[i][j][2 * half] *= factor, o[i][j][2 * half + 1] *= factor;
          if (Score::ADDS && !EXACT) {
            const float start = zeroPoint(after, 1);
            base[i][half] = isFar<false>(start * exponent) ? start : 0;
          }
        }
      if (Score::ADDS && !EXACT) subtract(x, base);
    }
    if (Score::ADDS && EXACT) {
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) base[i][half] = zeroPoint(reference[i][half], 1);
      subtract(x, base);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float zero = Score::ADDS ? (zeroPoint(reference[i][half], 1) - base[i][half]) * exponent : zeroPoint(reference[i][half], exponent);
#pragma unroll
        for (int j = 0; j < KEYS; j++)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; e++) {
            x[i][j][e] = exp2Fast(x[i][j][e] * exponent - zero);
            sum[i][half] += x[i][j][e];
          }
      }
  }

  static constexpr bool EXACT = E::BYTES == 4;
  static DEVICE void subtract(float (&x)[ROWS][KEYS][4], const float (&base)[ROWS][2]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[i][j][e] -= base[i][e / 2];
  }

  // zeroPoint is the reference to base 2. A row that saw no key yet has none: any number does.
  static DEVICE float zeroPoint(float reference, float exponent) {
    return reference == -INFINITE ? 0 : reference * exponent;
  }

  DEVICE void drop(float (&x)[ROWS][KEYS][4], int first) const {
    if (!a.dropThreshold) return;
    const Dropper dropper(a, view.s, head);
    static_assert(KEYS % 2 == 0, "blocks are drawn for in pairs");
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j += 2) {
        uint32_t words[2][2];
        dropWords(dropper, rowOf(i, 0), columnOf(first, j, 0), words);
#pragma unroll
        for (int n = 0; n < 8; n++) {
          const int block = n / 4, e = n % 4;
          if (!(dropper.kept(words[block][e / 2]) & (e % 2 ? 0x80000000 : 0x8000))) x[i][j + block][e] = 0;
        }
      }
  }

  // finish divides by the sums, with the sink in them, and writes O and the logsumexp. O of 16 bits
  // passes through this warp's rows of q.
  DEVICE void finish(float exponent) {
    const Sequence& s = view.s;
    const float sink = a.sinks ? a.sinks[head] : -INFINITE;
    float* lse = a.lse ? a.lse + ((int64_t)s.batch * a.heads + head) * a.sq + s.q0 : nullptr;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float total = sum[i][half];
        total += __shfl_xor_sync(0xffffffff, total, 1);
        total += __shfl_xor_sync(0xffffffff, total, 2);
        float top = reference[i][half] * exponent * LN2, factor = 1;
        if (Score::ADDS) top = reference[i][half] * Score::template factorOf<EXACT>(a);
        if (sink != -INFINITE) {
          const float before = top;
          top = fmaxf(before, sink);
          factor = before == -INFINITE ? 0 : exp2Fast((before - top) * LOG2E);
          total = total * factor + exp2Fast((sink - top) * LOG2E);
        }
        factor *= total == 0 ? 0 : (Score::CHANGES && a.dropThreshold ? a.keepScale : 1) / total;
        if (E::SCALED && E::PARTS == 1) factor *= unit;
#pragma unroll
        for (int j = 0; j < OUT; j++) o[i][j][2 * half] *= factor, o[i][j][2 * half + 1] *= factor;
        const int r = rowOf(i, 2 * half);
        if (lse && (!WIDE || part == 0) && lane() % 4 == 0 && r < s.sq) lse[r] = total == 0 ? -INFINITE : top + logf(total);
      }
    const Matrix outputs = valuesOf(matrixOf<E>(a.o, s.batch, head, s.q0, s.sq, a.dv));
    if constexpr (E::SCALED) {
      storeFloats(o, outputs, row + mine, 0);
    } else {
      if constexpr (WIDE) __syncthreads();  // every warp is done with the last V, where o passes through
      else __syncwarp();
      storeAccumulator<E>(o, q, mine, 0);
      __syncwarp();
      storeRows<E, 32>(q, mine, 16 * ROWS, outputs, row + mine, lane());
    }
  }
};

// ForwardPlace is a Place whose last groups are one of FINAL_BLOCKS blocks or more: the longest
// blocks of a small group would begin when little else is left to do.
struct ForwardPlace {
  static constexpr int FINAL_BLOCKS = 768;
  int tile, plane;

  DEVICE ForwardPlace(int tiles, int most) {
    const int planes = gridDim.x / tiles, groups = max(1, (int)gridDim.x / Place::GROUP_BLOCKS), together = min(ceilDiv(planes, groups), most);
    const int before = together > 1 ? max(0, planes - ceilDiv(FINAL_BLOCKS, tiles)) / together : planes;  // groups that are not the last
    const int group = min((int)blockIdx.x / (together * tiles), before), first = group * together;
    const int here = group == before ? planes - first : min(together, planes - first);
    const int within = blockIdx.x - first * tiles;
    tile = within / here, plane = first + within % here;
  }
};

// With a causal mask the last tiles of rows are the longest: they come first.
template <class E, int D, int BQ, int BK, int WARPS, class Score>
DEVICE void attentionForward(const AttentionArguments& a) {
  const int tiles = ceilDiv(a.longestQ, BQ);
  const ForwardPlace place(tiles, planesTogether<Score>(a));
  const int parts = WIDE ? ceilDiv(a.dv, D) : 1, plane = place.plane / parts;
  Forward<E, D, BQ, BK, WARPS, Score> kernel(a, plane / a.heads, plane % a.heads, tiles - 1 - place.tile, place.plane % parts);
  kernel.run();
}
