// The backward kernels for compute capability 8.0 and newer.
//
// Backward: a block owns a tile of keys of one key head. It walks over the query heads that read it
// and their query tiles, last first, recomputes P from the saved logsumexp, and sums dK and dV in
// registers. What it adds to dQ goes to a.dQSum in float32, in the order of the accumulators;
// queryGradient turns the sums into dQ. With a.deterministic the blocks that add to one query tile
// do so in the order of their keys; because they begin with the last tile, which the last keys see,
// none waits long whatever the mask.
//
// One step, for a tile of queries and one of keys, with the warps laid out in a grid of its own for
// each product:
//
//   S = Q·Kᵀ, dP = dO·Vᵀ; P and dS in registers, then in shared memory
//   dV += Pᵀ·dO, dK += dSᵀ·Q
//   dQ  = dS·K
//
// Where a warp owns whole rows of keys it computes Sᵀ and dPᵀ instead, and only dS passes through
// shared memory: BY_KEYS.
//
// WIDE: S and dP are summed in pieces, and a block sums a part of dK, dV and dQ, D of their columns.
// It brings K of its part once, and Q and dO of its part where the pieces of a step were.
//
// BiasGradient: a block owns a tile of the elements of a bias, walks over all scores that read them
// and sums dS in registers: in a fixed order, without atomics.
#pragma once
#include "attention_sm80.cuh"

// SWIZZLED tells whether q, k, v and dO are in permuted tiles.
constexpr bool SWIZZLED = TILE_SWIZZLED;

// loadKeys starts to bring a block's rows of K and V. Floats pass through the places of q and dO
// and are settled; a barrier must follow in any case.
template <class E, int BQ, int BK, int WARPS, class Keys, class Queries>
DEVICE void loadKeys(Keys k, Keys v, Queries q, Queries dO,
                                         const Matrix& keys, const Matrix& values, int row) {
  if constexpr (E::SCALED) {
    static_assert(BK % BQ == 0);
#pragma unroll 1
    for (int first = 0; first < BK; first += BQ) {
      loadTile<E, BQ, WARPS>(q, keys, row + first);
      loadTile<E, BQ, WARPS>(dO, values, row + first);
      copyCommit();
      copyWait<0>();
      settle<E, BQ, WARPS>(q, k, first);
      settle<E, BQ, WARPS>(dO, v, first);
      __syncwarp();
    }
  } else {
    loadTile<E, BK, WARPS>(k, keys, row);
    loadTile<E, BK, WARPS>(v, values, row);
  }
}

// loadPart brings a block's rows of K of its part as loadKeys does. All of what arrives is here, but
// for a barrier.
template <class E, int BQ, int BK, int WARPS, class Keys, class Queries>
DEVICE void loadPart(Keys k, Queries q, const Matrix& keys, int row) {
  if constexpr (E::SCALED) {
    static_assert(BK % BQ == 0);
#pragma unroll 1
    for (int first = 0; first < BK; first += BQ) {
      loadTile<E, BQ, WARPS>(q, keys, row + first);
      copyCommit();
      copyWait<0>();
      settle<E, BQ, WARPS>(q, k, first);
      __syncwarp();
    }
  } else {
    loadTile<E, BK, WARPS>(k, keys, row);
    copyCommit();
  }
}

// Scores is what a warp recomputes of a tile of queries and keys: 16·ROWS rows from row on and
// 8·KEYS columns from column on, both counted within the sequence. With BIAS it is the gradient of
// the bias that is asked for.
template <class E, int D, int ROWS, int KEYS, class Score, bool BIAS = false> struct Scores {
  using Queries = Tile<E, D, E::BYTES, SWIZZLED>;
  using Keys = Tile<E, D, OPERAND<E>, SWIZZLED>;
  float p[ROWS][KEYS][4], dS[ROWS][KEYS][4];
  float lse[ROWS][2], delta[ROWS][2];  // of the lane's rows; lse to base 2, or as keptLSE
  bool adds = true;                    // whether it adds to the gradients of what scores look up
  static constexpr bool EXACT = E::BYTES == 4;

  // rows reads what the forward kernel left. A row that does not exist or saw no key gets +inf: its
  // P is 0.
  DEVICE void rows(const AttentionArguments& a, const View<Score>& view, int head, int row) {
    const int64_t first = ((int64_t)view.s.batch * a.heads + head) * a.sq + view.s.q0;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int r = row + 16 * i + lane() / 4 + 8 * half;
        const bool exists = r < view.s.sq;
        const float x = exists ? a.lse[first + r] : INFINITE;
        lse[i][half] = x == -INFINITE ? INFINITE : Score::ADDS ? keptLSE<EXACT>(x) : x * LOG2E;
        delta[i][half] = exists ? a.delta[first + r] : 0;
      }
  }

  // GainTile is a WarpTile that keeps gains.
  template <bool GAINS> struct GainTile : WarpTile<E, ROWS, KEYS> {
    float (&gains)[GAINS ? WarpTile<E, ROWS, KEYS>::SIZE : 1];
    template <class F> DEVICE void eachWithGain(F f) {
      int n = 0;
      this->each([&](float& x, int i, int j) {
        const float gain = f(x, i, j);
        if constexpr (GAINS) gains[n++] = gain;
      });
    }
  };

  // compute fills p with the kept probabilities, without the factor 1/(1 - drop), and dS with the
  // gradients of the scaled scores (with BIAS: of the changed scores). rowInTile and columnInTile
  // are row and column within the tiles q, dO and k, v.
  DEVICE void compute(const AttentionArguments& a, const View<Score>& view, int head, Queries q, Keys k, Queries dO,
                      Keys v, int rowInTile, int columnInTile, int row, int column) {
    multiplyTransposed<E, D>(p, q, rowInTile, k, columnInTile);
    multiplyTransposed<E, D>(dS, dO, rowInTile, v, columnInTile);
    fromProducts(a, view, head, row, column);
  }

  // fromProducts does so where p and dS are the products already.
  DEVICE void fromProducts(const AttentionArguments& a, const View<Score>& view, int head, int row, int column) {
    const bool whole = view.mask.whole(row, 16 * ROWS, column, 8 * KEYS);
    if (!BIAS && Score::hasGains(a)) gradients<true, Score::CHANGES && !BIAS>(a, view, head, row, column);
    else if (whole) gradients<false, false>(a, view, head, row, column);
    else gradients<true, false>(a, view, head, row, column);
  }

  template <bool MASKED, bool GAINS>
  DEVICE void gradients(const AttentionArguments& a, const View<Score>& view, int head, int row, int column) {
    float exponent = Score::template factorOf<EXACT>(a) * LOG2E;
    float gains[GAINS ? 4 * ROWS * KEYS : 1];
    GainTile<GAINS> tile{{p, row, column, view.s, head}, gains};
    Score::change(a, tile);
    if (EXACT ? Score::ADDS : Score::adds(a)) centre(Score::template factorOf<EXACT>(a), exponent);
    if (MASKED) {
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < KEYS; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) p[i][j][e] = probability(i, j, e, exponent);
      view.mask.hide(tile, 0);
    }
    if (Score::CHANGES && a.dropThreshold) weigh<MASKED, true>(a, view, head, row, column, exponent);
    else weigh<MASKED, false>(a, view, head, row, column, exponent);
    if constexpr (!BIAS)
      if (!WIDE || adds) Score::addGradients(a, WarpTile<E, ROWS, KEYS>(dS, row, column, view.s, head));
    if constexpr (GAINS) {
      int n = 0;
      WarpTile<E, ROWS, KEYS>(dS, row, column, view.s, head).each([&](float& x, int, int) {
        x = x == 0 ? 0 : x * gains[n];  // the gain of what the mask hides may be NaN
        n++;
      });
    }
  }

  // centre makes the scores powers of two, by which P is taken against nothing, where some row's
  // logsumexp is far from zero.
  DEVICE void centre(float factor, float& exponent) {
    bool far = false;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) far |= isFar<EXACT>(lse[i][half]) && lse[i][half] != INFINITE;
    if (!EXACT && !__any_sync(0xffffffff, far)) return;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[i][j][e] = powerOf<EXACT>(p[i][j][e], factor, lse[i][e / 2]);
#pragma unroll
    for (int i = 0; i < ROWS; i++) lse[i][0] = lse[i][1] = 0;
    exponent = 1;
  }

  DEVICE float probability(int i, int j, int e, float exponent) const { return exp2Fast(p[i][j][e] * exponent - lse[i][e / 2]); }

  // weigh makes dS, and p of the scores where no mask had to have it before: exponentials then
  // stand among the integers of dropout, which other units compute. One branch a tile asks for
  // dropout, since one a score would keep it all in order.
  template <bool MASKED, bool DROPS>
  DEVICE void weigh(const AttentionArguments& a, const View<Score>& view, int head, int row, int column, float exponent) {
    static_assert(!Score::CHANGES || KEYS % 2 == 0, "blocks are drawn for in pairs");
    const Dropper dropper(a, view.s, head);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      uint32_t kept[2][2];
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        if (DROPS && j % 2 == 0) {
          dropWords(dropper, row + lane() / 4 + 16 * i, column + lane() % 4 * 2 + 8 * j, kept);
#pragma unroll
          for (int n = 0; n < 4; n++) kept[n / 2][n % 2] = dropper.kept(kept[n / 2][n % 2]);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float x = MASKED ? p[i][j][e] : probability(i, j, e, exponent);
          const bool keep = !DROPS || kept[j % 2][e / 2] & (e % 2 ? 0x80000000 : 0x8000);
          p[i][j][e] = keep ? x : 0;
          if (DROPS) dS[i][j][e] = keep ? dS[i][j][e] * a.keepScale : 0;
          dS[i][j][e] = x * (dS[i][j][e] - delta[i][e / 2]);
          if (MASKED && x == 0) dS[i][j][e] = 0;
        }
      }
    }
  }
};

// KeyScores is Scores turned around: 16·ROWS rows of keys from column on and 8·QUERIES columns of
// queries from row on. P and dS are then operands of dV and dK where they are. Scores do not
// change.
template <class E, int D, int ROWS, int QUERIES, class Score> struct KeyScores {
  using Operand = Tile<E, D>;
  float p[ROWS][QUERIES][4], dS[ROWS][QUERIES][4];

  // compute is as Scores::compute. values has two logsumexps, to base 2, and two δ for each pair of
  // the tile's queries.
  template <class Values>
  DEVICE void compute(const AttentionArguments& a, const View<Score>& view, Operand q, Operand k, Operand dO, Operand v,
                                          Values values, int rowInTile, int columnInTile, int row, int column) {
    multiplyTransposed<E, D>(p, k, columnInTile, q, rowInTile);
    multiplyTransposed<E, D>(dS, v, columnInTile, dO, rowInTile);
    if (view.mask.whole(row, 8 * QUERIES, column, 16 * ROWS)) gradients<false>(a, view, values, rowInTile, row, column);
    else gradients<true>(a, view, values, rowInTile, row, column);
  }

  template <bool MASKED, class Values>
  DEVICE void gradients(const AttentionArguments& a, const View<Score>& view, Values values, int rowInTile, int row,
                                            int column) {
    const float exponent = Score::template factorOf<E::BYTES == 4>(a) * LOG2E;
#pragma unroll
    for (int j = 0; j < QUERIES; j++) {
      const uint4 words = loadShared16(values.power(rowInTile / 2 + 4 * j + lane() % 4));
      const float lse[2] = {__uint_as_float(words.x), __uint_as_float(words.y)};
      const float delta[2] = {__uint_as_float(words.z), __uint_as_float(words.w)};
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          p[i][j][e] = exp2Fast(p[i][j][e] * exponent - lse[e % 2]);
          dS[i][j][e] -= delta[e % 2];
        }
    }
    using Block = ScoreTile<ROWS, QUERIES, true>;
    if (MASKED) view.mask.hide(Block{*(float(*)[Block::SIZE])p, row + lane() % 4 * 2, column + lane() / 4}, 0);
#pragma unroll
    for (int j = 0; j < QUERIES; j++)
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) dS[i][j][e] = MASKED && p[i][j][e] == 0 ? 0 : p[i][j][e] * dS[i][j][e];
  }
};

// querySlot numbers the query tiles of all sequences and heads: where a tile's sums lie in a.dQSum,
// in units of BQ·D, and its counter. Packed sequences leave at most one slot between them unused.
template <int BQ> DEVICE int64_t querySlot(const AttentionArguments& a, const Sequence& s, int head, int tile) {
  const int first = a.qLens ? s.q0 / BQ + s.index : s.index * ceilDiv(a.sq, BQ);
  return (int64_t)(first + tile) * a.heads + head;
}

// partsOf is how many parts of so many columns the gradients of a head have.
DEVICE int partsOf(const AttentionArguments& a, int columns) { return WIDE ? ceilDiv(max(a.d, a.dv), columns) : 1; }

// addPieces computes the products of Scores in pieces, of which the first is on its way: rows of
// q and dO from row on against those of k and v from column on. Every warp is then done with them.
template <class Products, class Scores>
DEVICE void addPieces(Products& products, Scores& scores, const Matrix& q, const Matrix& k, const Matrix& dO, const Matrix& v,
                      int rowInTile, int columnInTile, int row, int column, bool fresh) {
  const int columns = Products::count(q.columns), count = columns + Products::count(v.columns);
  clear(scores.p);
#pragma unroll 1
  for (int piece = 0; piece < columns; piece++) {
    products.arrive(piece);
    if (piece + 1 < columns) products.fetch(products.place ^ 1, q, row, k, column, piece + 1, piece + 1, fresh);
    else products.fetch(products.place ^ 1, dO, row, v, column, 0, columns, fresh);
    products.add(scores.p, rowInTile, columnInTile, piece);
    products.place ^= 1;
  }
  clear(scores.dS);
#pragma unroll 1
  for (int piece = columns; piece < count; piece++) {
    products.arrive(piece);
    if (piece + 1 < count) products.fetch(products.place ^ 1, dO, row, v, column, piece + 1 - columns, piece + 1, fresh);
    products.add(scores.dS, rowInTile, columnInTile, piece);
    products.place ^= 1;
  }
  __syncthreads();
}

// QuerySums is how a tile of dQ is spread over a block: a grid of GRID warps along the rows and
// WARPS/GRID along the columns.
template <class E, int D, int BQ, int WARPS> struct QuerySums {
  static constexpr int GRID = 2;
  static constexpr int THREADS = 32 * WARPS, ROWS = BQ / GRID / 16, WIDTH = D / (WARPS / GRID), COLUMNS = WIDTH / 8;
  static_assert(BQ == ROWS * GRID * 16 && D == COLUMNS * 8 * (WARPS / GRID));
  static DEVICE int row() { return warp() % GRID * 16 * ROWS; }
  static DEVICE int column() { return warp() / GRID * WIDTH; }
};

// QueryWalk is the way over the tiles of BQ queries that see something of a tile of BK keys, from the
// last one down. It has so many steps for the heads together, of which head is the first.
template <class Score, int BQ, int BK> struct QueryWalk {
  static constexpr bool SKIPS = false;  // tiles between the first and the last one
  const Tiles tiles;
  const int steps;
  DEVICE QueryWalk(const AttentionArguments&, const View<Score>& view, int tile, int head, int heads)
      : tiles(queryTiles<BQ, true>(view.mask, tile * BK, BK)), steps((tiles.end - tiles.first) * heads) {}
  DEVICE int first() const { return tiles.first; }
  DEVICE int last() const { return tiles.end - 1; }
  DEVICE int below(int queryTile) const { return queryTile - 1; }
};

template <class E, int D, int BQ, int BK, int WARPS, class Score> struct Backward {
  // Whether a warp computes the scores of whole rows of keys, those whose dK and dV it sums:
  // neither P nor dS then pass through shared memory on their way into these.
  static constexpr bool BY_KEYS = TILE_BY_KEYS;
  static_assert(!BY_KEYS || !E::SCALED && !Score::CHANGES);
  static constexpr int TOGETHER = 32;  // queries whose scores are in registers at a time
  // warps along the rows of S, and of dK and dV
  static constexpr int GRID_S = 2, GRID_K = BY_KEYS ? WARPS : BK >= 128 ? 4 : 2;
  static constexpr int THREADS = 32 * WARPS;
  // a warp's part of S
  static constexpr int ROWS = BQ / GRID_S / 16, KEYS = BK / (WARPS / GRID_S) / 8;
  // of dK and dV
  static constexpr int OUT_ROWS = BK / GRID_K / 16, OUT_WIDTH = D / (WARPS / GRID_K), OUT = OUT_WIDTH / 8;
  static_assert(BQ == ROWS * GRID_S * 16 && BK == KEYS * 8 * (WARPS / GRID_S) && BK == OUT_ROWS * GRID_K * 16);
  static_assert(!E::SCALED || 8 * KEYS % (16 * OUT_ROWS) == 0, "a warp of dK and dV reads one cell a row");
  using Queries = typename Scores<E, D, ROWS, KEYS, Score>::Queries;
  using Keys = typename Scores<E, D, ROWS, KEYS, Score>::Keys;
  using Square = typename std::conditional<BY_KEYS, Tile<E, BQ>, Tile<E, BK, OPERAND<E>>>::type;
  using Sums = QuerySums<E, D, BQ, WARPS>;
  // How many tiles of q and dO there is room for. Four bring a step's tiles during the one before,
  // three its q; with two they arrive while dQ is computed.
  static constexpr int PLACES = TILE_PLACES;
  // Whether a barrier more, between dK and dV, lets q arrive while dV is computed.
  static constexpr bool EARLY_Q = !WIDE && E::SCALED && D > 64;
  // Scaled dS, and P of two parts, consist of a cell a warp. P of one part is in a unit of dV, the
  // same in every warp.
  static constexpr int CELL_ROWS = E::SCALED ? 16 * ROWS : 0;
  static constexpr bool IN_UNIT = E::SCALED && E::PARTS == 1;
  using Products = Pieces<E, BQ, BK, WARPS, true>;
  static_assert(!WIDE || PLACES == 2 && Products::BYTES <= BQ * Queries::STRIDE, "pieces are where q and dO are");

  const AttentionArguments& a;
  const View<Score> view;
  const int keyHead, tile, part;
  const Keys k, v;  // WIDE: v is where q and dO are, and dV passes through it
  Queries q, dO, nextQ, nextDO;  // where this step's tiles are, and where the next one's arrive
  // the last two hold the same with the powers of q or k; without powers they are one
  const Square p, dS, dSForKeys;
  Products products;

  DEVICE Backward(const AttentionArguments& a, int sequence, int keyHead, int tile, int part)
      : a(a), view(a, sequence), keyHead(keyHead), tile(tile), part(part), k{sharedBase()}, v{k.base + BK * Keys::STRIDE},
        q{WIDE ? v.base : v.base + BK * Keys::STRIDE}, dO{q.base + BQ * Queries::STRIDE},
        nextQ{q.base + (PLACES > 2 ? 2 * BQ * Queries::STRIDE : 0)},
        nextDO{PLACES == 3 ? q.base : dO.base + (PLACES > 2 ? 2 * BQ * Queries::STRIDE : 0)},
        p{q.base + PLACES * BQ * Queries::STRIDE}, dS{BY_KEYS ? p.base : p.base + BQ * Square::STRIDE},
        dSForKeys{dS.base + (E::SCALED ? BQ * Square::STRIDE : 0)}, products(q.base, dSForKeys.base + BQ * Square::STRIDE - k.base) {}

  // ofPart is this block's part of a matrix.
  DEVICE Matrix ofPart(const Matrix& m) const {
    if constexpr (WIDE) return columnsOf<E>(m, part * D, D);
    return m;
  }

  // queriesOf and the like are the tensors of a head.
  DEVICE Matrix queriesOf(int head) const { return matrixOf<E>(a.q, view.s.batch, head, view.s.q0, view.s.sq, a.d); }
  DEVICE Matrix outputsOf(int head) const { return matrixOf<E>(a.dO, view.s.batch, head, view.s.q0, view.s.sq, a.dv); }
  DEVICE Matrix keys() const { return matrixOf<E>(a.k, view.s.batch, keyHead, view.s.k0, view.s.sk, a.d); }
  DEVICE Matrix values() const { return matrixOf<E>(a.v, view.s.batch, keyHead, view.s.k0, view.s.sk, a.dv); }

  // fetchQ and fetchDO start the loads of a tile of queries, if there is one.
  DEVICE void fetchQ(bool exists, Queries to, int head, int queryTile) const {
    if (exists) loadTile<E, BQ, WARPS>(to, ofPart(queriesOf(head)), queryTile * BQ);
    copyCommit();
  }
  DEVICE void fetchDO(bool exists, Queries to, int head, int queryTile) const {
    if (exists) loadTile<E, BQ, WARPS>(to, ofPart(outputsOf(head)), queryTile * BQ);
    copyCommit();
  }

  // turn makes the next step's places this one's.
  DEVICE void turn() {
    if constexpr (PLACES == 4) {
      const Queries oldQ = q, oldDO = dO;
      q = nextQ, dO = nextDO, nextQ = oldQ, nextDO = oldDO;
    } else if constexpr (PLACES == 3) {
      const Queries oldDO = dO;
      dO = q, q = nextQ, nextQ = oldDO, nextDO = q;
    }
  }

  // rowValue reads what this thread brings of a tile's rows BY_KEYS: the logsumexp of one, or δ.
  DEVICE float rowValue(int head, int queryTile) const {
    const Sequence& s = view.s;
    const int row = queryTile * BQ + threadIdx.x % BQ;
    if (threadIdx.x >= 2 * BQ || row >= s.sq) return threadIdx.x < BQ ? -INFINITE : 0;
    return (threadIdx.x < BQ ? a.lse : a.delta)[((int64_t)s.batch * a.heads + head) * a.sq + s.q0 + row];
  }

  // storeRowValue puts it into the padding of dS. A row that does not exist or saw no key gets
  // +inf: its P is 0.
  DEVICE void storeRowValue(float x) const {
    const int row = threadIdx.x % BQ, kind = threadIdx.x / BQ;
    if (kind == 0) x = x == -INFINITE ? INFINITE : x * LOG2E;
    if (kind < 2) storeShared4(dS.power(row / 2, row % 2 + 2 * kind), __float_as_uint(x));
  }

  DEVICE void run() {
    const Sequence& s = view.s;
    const int column = tile * BK;
    if (column >= s.sk) return;
    const int group = a.heads / a.keyHeads, firstHead = keyHead * group;
    using Walk = QueryWalk<Score, BQ, BK>;
    const Walk walk(a, view, tile, firstHead, group);
    const int steps = walk.steps;
    const int rowS = warp() % GRID_S * 16 * ROWS, columnS = warp() / GRID_S * 8 * KEYS;
    const int rowK = warp() % GRID_K * 16 * OUT_ROWS, columnK = warp() / GRID_K * OUT_WIDTH;

    float sumK[OUT_ROWS][OUT][4] = {}, sumV[OUT_ROWS][OUT][4] = {};
    float unitV = 0;
    if (WIDE && steps > 0) {
      loadPart<E, BQ, BK, WARPS>(k, q, ofPart(keys()), column);
      if (E::SCALED) __syncthreads();  // every warp is done with q
      products.fetch(0, queriesOf(firstHead), walk.last() * BQ, keys(), column, 0, 0, true);
    } else if (steps > 0) {
      loadKeys<E, BQ, BK, WARPS>(k, v, q, dO, matrixOf<E>(a.k, s.batch, keyHead, s.k0, s.sk, a.d),
                                 matrixOf<E>(a.v, s.batch, keyHead, s.k0, s.sk, a.dv), column);
      fetchQ(true, q, firstHead, walk.last());
      fetchDO(true, dO, firstHead, walk.last());
    }
    float value = BY_KEYS && steps > 0 ? rowValue(firstHead, walk.last()) : 0;
    int head = firstHead, queryTile = walk.last();
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      const int row = queryTile * BQ, thisHead = head, thisTile = queryTile;
      const bool another = step + 1 < steps;
      if constexpr (Walk::SKIPS) {
        if (queryTile == walk.first()) queryTile = walk.last(), head++;
        else queryTile = walk.below(queryTile);
      } else {
        queryTile = walk.below(queryTile);
        if (queryTile < walk.first()) queryTile = walk.last(), head++;
      }
      if constexpr (BY_KEYS) {
        storeRowValue(value);
        copyWait<0>();
        __syncthreads();  // the tiles are here, and every warp is done with the last step
        if (PLACES > 2) fetchQ(another, nextQ, head, queryTile);
        if (another) value = rowValue(head, queryTile);
#pragma unroll
        for (int first = 0; first < BQ; first += TOGETHER) {
          KeyScores<E, D, OUT_ROWS, TOGETHER / 8, Score> scores;
          scores.compute(a, view, q, k, dO, v, dS, first, rowK, row + first, column + rowK);
          storeAccumulator<E>(scores.dS, dS, rowK, first);
          float none;
          multiplyAccumulator<E, TOGETHER>(sumV, scores.p, Queries{dO.base + first * Queries::STRIDE}, none);
          multiplyAccumulator<E, TOGETHER>(sumK, scores.dS, Queries{q.base + first * Queries::STRIDE}, none);
        }
        __syncthreads();  // dS is complete, and every warp is done with Q and dO
        if (PLACES == 2) fetchQ(another, nextQ, head, queryTile);
        fetchDO(another, nextDO, head, queryTile);
      } else {
        {
          Scores<E, D, ROWS, KEYS, Score> scores;
          scores.rows(a, view, thisHead, row + rowS);
          if constexpr (WIDE) {
            scores.adds = part == 0;
            addPieces(products, scores, queriesOf(thisHead), keys(), outputsOf(thisHead), values(), rowS, columnS, row, column, step == 0);
            fetchQ(true, q, thisHead, thisTile);
            fetchDO(true, dO, thisHead, thisTile);
            scores.fromProducts(a, view, thisHead, row + rowS, column + columnS);
          }
          copyWait<0>();
          settle<E, BQ, WARPS>(q, q);
          settle<E, BQ, WARPS>(dO, dO);
          __syncthreads();  // the tiles are here, and every warp is done with the last step
          if (PLACES == 4) fetchQ(another, nextQ, head, queryTile), fetchDO(another, nextDO, head, queryTile);
          if constexpr (!WIDE) scores.compute(a, view, thisHead, q, k, dO, v, rowS, columnS, row + rowS, column + columnS);
          storeScores(scores, rowS, columnS, sumV, unitV);
        }
        __syncthreads();  // P and dS are complete
        if (EARLY_Q) {
          multiplyColumns<E, BQ, CELL_ROWS>(sumK, dS, rowK, rowK / (8 * KEYS), q, columnK);
          __syncthreads();  // every warp is done with Q
          fetchQ(another, nextQ, head, queryTile);
        }
        multiplyColumns<E, BQ, IN_UNIT ? 0 : CELL_ROWS>(sumV, p, rowK, rowK / (8 * KEYS), dO, columnK);
        if (!EARLY_Q) multiplyColumns<E, BQ, CELL_ROWS>(sumK, dS, rowK, rowK / (8 * KEYS), q, columnK);
        if (WIDE) {
          __syncthreads();  // every warp is done with Q and dO
          if (another) products.fetch(products.place, queriesOf(head), queryTile * BQ, keys(), column, 0, 0, false);
        } else if (PLACES == 2) {
          __syncthreads();  // every warp is done with Q and dO
          if (!EARLY_Q) fetchQ(another, nextQ, head, queryTile);
          fetchDO(another, nextDO, head, queryTile);
        }
      }
      addQueries(thisHead, thisTile);
      turn();
    }
    scaleBy(sumK, a.scale);
    scaleBy(sumV, (Score::CHANGES && a.dropThreshold ? a.keepScale : 1) * (IN_UNIT ? unitV : 1));
    const Matrix dK = ofPart(matrixOf<E>(a.dK, s.batch, keyHead, s.k0, s.sk, a.d));
    const Matrix dV = ofPart(matrixOf<E>(a.dV, s.batch, keyHead, s.k0, s.sk, a.dv));
    if constexpr (E::SCALED) {
      storeFloats(sumK, dK, column + rowK, columnK);
      storeFloats(sumV, dV, column + rowK, columnK);
    } else {
      __syncthreads();  // every warp is done with K and V, whose place the results pass through
      storeAccumulator<E>(sumK, k, rowK, columnK);
      storeAccumulator<E>(sumV, v, rowK, columnK);
      __syncthreads();
      storeRows<E, THREADS>(k, 0, BK, dK, column, threadIdx.x);
      storeRows<E, THREADS>(v, 0, BK, dV, column, threadIdx.x);
    }
  }

  // storeScores makes operands of P and dS, which it leaves changed.
  DEVICE void storeScores(Scores<E, D, ROWS, KEYS, Score>& scores, int rowS, int columnS,
                                              float (&sumV)[OUT_ROWS][OUT][4], float& unitV) const {
    if constexpr (E::SCALED) {
      const int cell = warp() / GRID_S;
      if constexpr (IN_UNIT) {
        followUnit<BQ>(sumV, dO, 1, unitV);
        withRowPowers(scores.p, scores.p, dO, rowS, 1 / unitV);
        storeAccumulator<E>(scores.p, p, rowS, columnS);
      } else {
        withRowPowers(scores.p, scores.p, dO, rowS);
        storeCell<E>(scores.p, p, rowS, columnS, cell);
      }
      withRowPowers(scores.p, scores.dS, q, rowS);
      storeCell<E>(scores.p, dS, rowS, columnS, cell);
      withColumnPowers(scores.dS, scores.dS, k, columnS);
      storeCell<E>(scores.dS, dSForKeys, rowS, columnS, cell);
    } else {
      storeAccumulator<E>(scores.p, p, rowS, columnS);
      storeAccumulator<E>(scores.dS, dS, rowS, columnS);
    }
  }

  static DEVICE void scaleBy(float (&c)[OUT_ROWS][OUT][4], float factor) {
#pragma unroll
    for (int i = 0; i < OUT_ROWS; i++)
#pragma unroll
      for (int j = 0; j < OUT; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) c[i][j][e] *= factor;
  }

  // add adds accumulators of dQ, from column block first on, to the sums at to.
  template <int COLUMNS>
  static DEVICE void add(float* to, const float (&c)[Sums::ROWS][COLUMNS][4], int first) {
#pragma unroll
    for (int i = 0; i < Sums::ROWS; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) atomicAdd(to + ((i * Sums::COLUMNS + first + j) * 4 + e) * THREADS, c[i][j][e]);
  }

  // addQueries adds dS·K to the query tile's sums: neighbouring lanes to neighbouring addresses.
  // Where the order counts it waits for the block's turn, and then makes it the next one's, or the
  // counter zero again.
  DEVICE void addQueries(int head, int queryTile) const {
    const int64_t slot = querySlot<BQ>(a, view.s, head, queryTile) * partsOf(a, D) + part;
    volatile int32_t* counter = a.counters + slot;
    const bool ordered = a.deterministic && threadIdx.x == 0;
    int now = 0, turn = 0, next = 0;
    if (ordered) {
      const Tiles tiles = keyTiles<BK>(view.mask, queryTile * BQ, BQ);
      turn = tile - tiles.first, next = tile + 1 == tiles.end ? 0 : turn + 1;
      now = *counter;  // often its turn already: read while the product is computed
    }
    float* to = a.dQSum + slot * (BQ * D) + threadIdx.x;
    const auto await = [&] {
      if (!a.deterministic) return;
      while (now != turn) now = *counter;
      __syncthreads();
    };
    if constexpr (E::SCALED) {
      float c[Sums::ROWS][Sums::COLUMNS][4] = {};
      static_assert(Sums::ROWS == ROWS, "a warp of dQ reads whole cells");
      multiplyRows<E, BK, 8 * KEYS>(c, dSForKeys, Sums::row(), k, Sums::column());
      await();
      add(to, c, 0);
    } else {
      // Some columns at a time: what is added is on its way while the next are computed.
      constexpr int PART = D == 128 || Sums::COLUMNS % 4 ? 2 : 4;
      Fragment<E, 4> rows[BK / STEP][Sums::ROWS];
#pragma unroll
      for (int step = 0; step < BK / STEP; step++)
#pragma unroll
        for (int i = 0; i < Sums::ROWS; i++) {
          if constexpr (BY_KEYS) columnsOperand<E>(rows[step][i], dS, STEP * step, Sums::row() + 16 * i);
          else rowsOperand<E>(rows[step][i], dS, Sums::row() + 16 * i, STEP * step);
        }
#pragma unroll
      for (int part = 0; part < Sums::COLUMNS; part += PART) {
        float c[Sums::ROWS][PART][4] = {};
#pragma unroll
        for (int step = 0; step < BK / STEP; step++) accumulateRows<E>(c, rows[step], k, STEP * step, Sums::column() + 8 * part);
        if (part == 0) await();
        add(to, c, part);
      }
    }
    if (a.deterministic) {
      __syncthreads();
      if (ordered) {
        __threadfence();  // after the barrier it orders what the whole block added
        *counter = next;
      }
    }
  }
};

// With a causal mask the first tiles of keys are the longest: they come first. A block waits only
// for blocks before it.
template <class E, int D, int BQ, int BK, int WARPS, class Score>
DEVICE void attentionBackward(const AttentionArguments& a) {
  const Place place(ceilDiv(a.longestK, BK), planesTogether<Score>(a));
  const int parts = partsOf(a, D), plane = place.plane / parts;
  Backward<E, D, BQ, BK, WARPS, Score> kernel(a, plane / a.keyHeads, plane % a.keyHeads, place.tile, place.plane % parts);
  kernel.run();
}

// queryGradient turns the sums of a query tile into dQ. The grid is, fastest first: query tiles of
// a sequence, parts, heads, sequences. A tile whose rows see no key was never added to and is zero.
template <class E, int D, int BQ, int WARPS> DEVICE void queryGradient(const AttentionArguments& a) {
  using Sums = QuerySums<E, D, BQ, WARPS>;
  const int parts = partsOf(a, D), tiles = ceilDiv(a.longestQ, BQ), tile = blockIdx.x % tiles;
  const int part = blockIdx.x / tiles % parts, plane = blockIdx.x / tiles / parts, head = plane % a.heads;
  const Sequence s = sequenceOf(a, plane / a.heads);
  if (tile * BQ >= s.sq) return;
  const float* from = a.dQSum + (querySlot<BQ>(a, s, head, tile) * parts + part) * (BQ * D) + threadIdx.x;
  float c[Sums::ROWS][Sums::COLUMNS][4];
#pragma unroll
  for (int i = 0; i < Sums::ROWS; i++)
#pragma unroll
    for (int j = 0; j < Sums::COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[i][j][e] = a.scale * from[((i * Sums::COLUMNS + j) * 4 + e) * Sums::THREADS];
  Matrix dQ = matrixOf<E>(a.dQ, s.batch, head, s.q0, s.sq, a.d);
  if constexpr (WIDE) dQ = columnsOf<E>(dQ, part * D, D);
  if constexpr (E::SCALED) {
    storeFloats(c, dQ, tile * BQ + Sums::row(), Sums::column());
  } else {
    const Tile<E, D> out{sharedBase()};
    storeAccumulator<E>(c, out, Sums::row(), Sums::column());
    __syncthreads();
    storeRows<E, Sums::THREADS>(out, 0, BQ, dQ, tile * BQ, threadIdx.x);
  }
}

// BiasGradient sums dS over everything that reads one tile of a bias: the sequences, heads and rows
// along which it broadcasts. dBias is float32; its strides, 0 where it broadcasts, tell over what
// to sum.
template <class E, int D, int BQ, int BK, int WARPS, class Score> struct BiasGradient {
  using Kernel = Backward<E, D, BQ, BK, WARPS, Score>;
  static constexpr int GRID_S = Kernel::GRID_S, ROWS = Kernel::ROWS, KEYS = Kernel::KEYS;
  using Queries = typename Kernel::Queries;
  using Keys = typename Kernel::Keys;

  const AttentionArguments& a;
  const Keys k, v;
  const Queries q, dO;
  const int row, column;  // the warp's, within the tile
  float sum[ROWS][KEYS][4];

  DEVICE BiasGradient(const AttentionArguments& a)
      : a(a), k{sharedBase()}, v{k.base + BK * Keys::STRIDE}, q{v.base + BK * Keys::STRIDE},
        dO{q.base + BQ * Queries::STRIDE}, row(warp() % GRID_S * 16 * ROWS), column(warp() / GRID_S * 8 * KEYS) {}

  DEVICE void run() {
    const bool sequencesShare = a.dBiasSequence == 0, headsShare = a.dBiasHead == 0, rowsShare = a.dBiasRow == 0;
    const bool keysShare = a.dBiasColumn == 0;
    const int keyTiles = keysShare ? 1 : ceilDiv(a.longestK, BK), rowTiles = rowsShare ? 1 : ceilDiv(a.longestQ, BQ);
    const int keyTile = blockIdx.x % keyTiles, rowTile = blockIdx.x / keyTiles % rowTiles;
    const int plane = blockIdx.x / keyTiles / rowTiles;
    const int heads = headsShare ? 1 : a.heads;
    const int firstSequence = sequencesShare ? 0 : plane / heads, firstHead = headsShare ? 0 : plane % heads;
    const int group = a.heads / a.keyHeads;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] = 0;

#pragma unroll 1
    for (int sequence = firstSequence; sequence < (sequencesShare ? a.sequences : firstSequence + 1); sequence++) {
      const View<Score> view(a, sequence);
      const int all = ceilDiv(view.s.sk, BK), lastKeys = keysShare ? all : min(all, keyTile + 1);
#pragma unroll 1
      for (int keys = keyTile; keys < lastKeys; keys++) {
        const Tiles seeing = queryTiles<BQ, true>(view.mask, keys * BK, BK);
        const int first = rowsShare ? seeing.first : max(seeing.first, rowTile), end = rowsShare ? seeing.end : min(seeing.end, rowTile + 1);
#pragma unroll 1
        for (int head = firstHead; head < (headsShare ? a.heads : firstHead + 1); head++)
#pragma unroll 1
          for (int tile = first; tile < end; tile++)
            add(view, head, tile, keys, tile == first && (head == firstHead || head % group == 0));
      }
    }
    if (rowsShare) addRows();
    if (keysShare) addColumns();
    store(plane / heads, plane % heads, rowTile * BQ, keyTile * BK, rowsShare, keysShare);
  }

  DEVICE void add(const View<Score>& view, int head, int tile, int keyTile, bool newKeys) {
    const Sequence& s = view.s;
    const int keyHead = head / (a.heads / a.keyHeads);
    __syncthreads();  // every warp is done with the last tiles
    Scores<E, D, ROWS, KEYS, Score, true> scores;
    if constexpr (WIDE) {
      const Matrix queries = matrixOf<E>(a.q, s.batch, head, s.q0, s.sq, a.d), keys = matrixOf<E>(a.k, s.batch, keyHead, s.k0, s.sk, a.d);
      const Matrix outputs = matrixOf<E>(a.dO, s.batch, head, s.q0, s.sq, a.dv), values = matrixOf<E>(a.v, s.batch, keyHead, s.k0, s.sk, a.dv);
      typename Kernel::Products products(sharedBase(), 2 * Kernel::Products::BYTES);
      products.fetch(0, queries, tile * BQ, keys, keyTile * BK, 0, 0, true);
      scores.rows(a, view, head, tile * BQ + row);
      addPieces(products, scores, queries, keys, outputs, values, row, column, tile * BQ, keyTile * BK, true);
      scores.fromProducts(a, view, head, tile * BQ + row, keyTile * BK + column);
      addUp(scores);
      return;
    }
    if (newKeys)
      loadKeys<E, BQ, BK, WARPS>(k, v, q, dO, matrixOf<E>(a.k, s.batch, keyHead, s.k0, s.sk, a.d),
                                 matrixOf<E>(a.v, s.batch, keyHead, s.k0, s.sk, a.dv), keyTile * BK);
    loadTile<E, BQ, WARPS>(q, matrixOf<E>(a.q, s.batch, head, s.q0, s.sq, a.d), tile * BQ);
    loadTile<E, BQ, WARPS>(dO, matrixOf<E>(a.dO, s.batch, head, s.q0, s.sq, a.dv), tile * BQ);
    copyCommit();
    scores.rows(a, view, head, tile * BQ + row);
    copyWait<0>();
    settle<E, BQ, WARPS>(q, q);
    settle<E, BQ, WARPS>(dO, dO);
    __syncthreads();
    if constexpr (!WIDE) scores.compute(a, view, head, q, k, dO, v, row, column, tile * BQ + row, keyTile * BK + column);
    addUp(scores);
  }

  DEVICE void addUp(const Scores<E, D, ROWS, KEYS, Score, true>& scores) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] += scores.dS[i][j][e];
  }

  // addRows leaves the sums over all rows of the tile in the accumulators' first row, of the first
  // warps in the grid.
  DEVICE void addRows() {
    float* parts = (float*)sharedMemory;  // (GRID_S, BK)
    __syncthreads();
#pragma unroll
    for (int j = 0; j < KEYS; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float total = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) total += sum[i][j][e] + sum[i][j][e + 2];
        for (int distance = 4; distance < 32; distance *= 2) total += __shfl_xor_sync(0xffffffff, total, distance);
        if (lane() < 4) parts[warp() % GRID_S * BK + column + 8 * j + lane() % 4 * 2 + e] = total;
      }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < KEYS; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float total = 0;
        for (int part = 0; part < GRID_S; part++) total += parts[part * BK + column + 8 * j + lane() % 4 * 2 + e];
        sum[0][j][e] = total;
      }
  }

  // addColumns leaves the sums over all columns in the accumulators' first column, of the first
  // warps in the grid.
  DEVICE void addColumns() {
    float* parts = (float*)sharedMemory;  // (WARPS / GRID_S, BQ)
    const int first = row + lane() / 4;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float total = 0;
#pragma unroll
        for (int j = 0; j < KEYS; j++) total += sum[i][j][2 * half] + sum[i][j][2 * half + 1];
        for (int distance = 1; distance < 4; distance *= 2) total += __shfl_xor_sync(0xffffffff, total, distance);
        if (lane() % 4 == 0) parts[warp() / GRID_S * BQ + first + 16 * i + 8 * half] = total;
      }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float total = 0;
        for (int part = 0; part < WARPS / GRID_S; part++) total += parts[part * BQ + first + 16 * i + 8 * half];
        sum[i][0][2 * half] = total;
      }
  }

  // store writes what lies within the bias. Where sequences share it they may differ in length: the
  // longest one counts.
  DEVICE void store(int sequence, int head, int firstRow, int firstColumn, bool rowsShare, bool keysShare) const {
    float* to = (float*)a.dBias + sequence * a.dBiasSequence + head * a.dBiasHead;
    const bool alone = a.dBiasSequence != 0;
    const Sequence s = sequenceOf(a, sequence);
    const int rows = rowsShare ? 1 : alone ? s.sq : a.longestQ, columns = keysShare ? 1 : alone ? s.sk : a.longestK;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int r = firstRow + row + 16 * i + lane() / 4 + e / 2 * 8;
          const int c = firstColumn + column + 8 * j + lane() % 4 * 2 + e % 2;
          if (r < rows && c < columns) to[r * a.dBiasRow + c] = sum[i][j][e];
        }
  }
};
