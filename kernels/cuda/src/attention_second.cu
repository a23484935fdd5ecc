// The gradients of attention's gradients, for compute capability 8.0 and newer.
// kernels/attention_second.go has the formulas.
//
// second_queries owns a tile of queries of one head. It goes over the keys twice: first it sums up,
// online as the forward kernel does, what a row needs of all its keys (the logsumexp, δ, R and H),
// then it sums dq and ddO. second_keys owns a tile of keys of one key head, goes over the query
// heads that read it and their rows, and sums dk and dv. All sums but those of a bias that scores
// share are in one order.
//
//   S = Q·Kᵀ, T = UQ·Kᵀ + Q·UKᵀ, dP = dO·Vᵀ, Y = dO·UVᵀ     both, for a tile of queries and one of keys
//   dq += M·K + W·UK, ddO += X·V + P·UV                      second_queries; W = c·dS
//   dk += Mᵀ·Q + Wᵀ·UQ, dv += Xᵀ·dO                          second_keys
//
// A warp owns 16 rows of the block's tile: what it computes of pairs stays in registers,
// second_keys computes all four turned around. The other side's tiles pass through shared memory,
// TILE_K rows at a time; with TILE_STAGES of 2 the next ones arrive while these are computed with.
// Where large heads leave no room for all sums, it goes over the other side once for each part of
// them.
#include "attention_sm80.cuh"
#include "mma_signed.cuh"

// SecondArguments is the host's secondArguments in attention_second.go.
struct SecondArguments {
  AttentionArguments a;
  Rows uq, uk, uv, dDO;    // without data: zeros
  const float* dLSE;       // null for zeros
  float* dDLSE;            // null for none
  float* rows;             // scratch: LSE to base 2, δ, R and H of each row of (batch, heads, sq)
  float* sinkTerms;        // scratch: what each row adds to the gradient of its head's sink, or null
  const void* uBias;       // null for zeros, of the bias' type
  const float* uSinks;     // null for zeros
  int64_t uBiasSequence, uBiasHead, uBiasRow;
  int32_t uBiasColumn, reserved;
};

// matrixOrZeros is matrixOf, or no rows where a tensor is left out.
template <class E> DEVICE Matrix matrixOrZeros(const SecondArguments& g, const Rows& t, int batch, int head, int first, int rows, int columns) {
  if (!t.data) return {g.a.q.data, 0, 0, columns};
  return matrixOf<E>(t, batch, head, first, rows, columns);
}

// addTransposed adds A·Bᵀ.
template <class E, int K, int COLUMNS, int C>
DEVICE void addTransposed(float (&c)[1][COLUMNS][4], Tile<E, C> a, int rowA, Tile<E, C> b) {
  if constexpr (E::SCALED) {
    float part[1][COLUMNS][4];
    multiplyTransposed<E, K>(part, a, rowA, b, 0);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[0][j][e] += part[0][j][e];
  } else {
#pragma unroll
    for (int k = 0; k < K; k += STEP) transposedStep<E>(c, a, rowA, b, 0, k);
  }
}

// Second is what both kernels share. OWN rows are those of the block, OTHER those of a tile that
// passes.
template <class E, int D, int WARPS, int OTHER, int STAGES, bool BY_KEYS, class Score> struct Second {
  static constexpr int OWN = 16 * WARPS, COLUMNS = OTHER / 8;
  // The sums that there is room for: of both results or of one, and of so many columns at a time.
  static constexpr bool BOTH = D <= (E::SCALED ? 64 : 128);
  static constexpr int WIDTH = E::SCALED && D > 128 ? 128 : D;
  using Sums = float[1][WIDTH / 8][4];
  using Operand = Tile<E, D>;
  using Block = float[1][COLUMNS][4];

  const SecondArguments& g;
  const AttentionArguments& a;
  const Sequence s;
  const BandMask mask;

  DEVICE Second(const SecondArguments& g, int sequence) : g(g), a(g.a), s(sequenceOf(g.a, sequence)), mask(BandMask::of(g.a, s)) {}

  DEVICE int64_t statistic(int head) const { return ((int64_t)s.batch * a.heads + head) * a.sq + s.q0; }

  template <int ROWS> DEVICE void loadQueries(Operand q, Operand u, Operand dO, int head, int row) const {
    loadTile<E, ROWS, WARPS>(q, matrixOf<E>(a.q, s.batch, head, s.q0, s.sq, a.d), row);
    loadTile<E, ROWS, WARPS>(u, matrixOrZeros<E>(g, g.uq, s.batch, head, s.q0, s.sq, a.d), row);
    loadTile<E, ROWS, WARPS>(dO, matrixOf<E>(a.dO, s.batch, head, s.q0, s.sq, a.dv), row);
  }
  template <int ROWS> DEVICE void loadKeys(Operand k, Operand u, Operand v, Operand w, int keyHead, int row) const {
    const int batch = a.k.batch ? s.batch : 0;
    loadTile<E, ROWS, WARPS>(k, matrixOf<E>(a.k, batch, keyHead, s.k0, s.sk, a.d), row);
    loadTile<E, ROWS, WARPS>(u, matrixOrZeros<E>(g, g.uk, batch, keyHead, s.k0, s.sk, a.d), row);
    loadTile<E, ROWS, WARPS>(v, matrixOf<E>(a.v, batch, keyHead, s.k0, s.sk, a.dv), row);
    loadTile<E, ROWS, WARPS>(w, matrixOrZeros<E>(g, g.uv, batch, keyHead, s.k0, s.sk, a.dv), row);
  }

  // pass goes through steps whose tiles fetch(step, stage) starts to bring, for settled(stage) and
  // then compute(step, stage).
  template <class Fetch, class Settle, class Compute> static DEVICE void pass(int steps, Fetch fetch, Settle settled, Compute compute) {
    __syncthreads();  // every warp is done with what was there
    if (STAGES > 1 && steps > 0) fetch(0, 0);
    if (STAGES > 1) copyCommit();
    int stage = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      if (STAGES == 1) {
        fetch(step, 0);
        copyCommit();
      }
      copyWait<0>();
      settled(stage);
      __syncthreads();  // the tiles are here, and every warp is done with the last
      if (STAGES > 1) {
        if (step + 1 < steps) fetch(step + 1, stage ^ 1);
        copyCommit();
      }
      compute(step, stage);
      if (STAGES == 1) __syncthreads();
      else stage ^= 1;
    }
    __syncthreads();  // every warp is done with the tiles
  }

  template <class T> static DEVICE float elementOf(const void* data, int64_t at) { return widen(((const T*)data)[at]); }
  DEVICE float biasOf(const void* data, int64_t at) const {
    return a.biasElement == ElementF32 ? elementOf<float>(data, at) : elementOf<typename E::Stored>(data, at);
  }

  // points turns the products of a block into the scores to base 2, −∞ where nothing is visible,
  // and into r, dP and y. own and other are where the warp's rows and the columns begin. kept is
  // what keeps gives, capped the hyperbolic tangent of a capped score.
  DEVICE void points(int head, int own, int other, Block& x, Block& r, Block& dP, Block& y, uint32_t& kept, Block& capped, Block& t) const {
    const float slope = Score::CHANGES && a.slopes ? a.slopes[head] : 0;
    const int64_t bias = s.index * a.biasSequence + head * a.biasHead, uBias = s.index * g.uBiasSequence + head * g.uBiasHead;
    if constexpr (Score::CHANGES) kept = keeps(head, own, other);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int mine = own + lane() / 4 + e / 2 * 8, others = other + 8 * j + lane() % 4 * 2 + e % 2;
        const int i = BY_KEYS ? others : mine, key = BY_KEYS ? mine : others;
        const bool shown = i < s.sq && key < s.sk && key >= i + mask.lo && key < i + mask.hi;
        float score = a.scale * x[0][j][e];
        const float turn = a.scale * t[0][j][e];
        t[0][j][e] = turn;
        r[0][j][e] = turn;
        if constexpr (Score::CHANGES) {
          if (a.softCap > 0) {
            const float c = capped[0][j][e] = tanhf(score / a.softCap);
            score = a.softCap * c;
            r[0][j][e] *= 1 - c * c;
          }
          if (a.slopes) score -= slope * fabsf((float)(i + s.sk - s.sq - key));
          if (a.bias && shown) score += biasOf(a.bias, bias + i * a.biasRow + key * a.biasColumn);
          if (g.uBias && shown) r[0][j][e] += biasOf(g.uBias, uBias + i * g.uBiasRow + key * g.uBiasColumn);
          dP[0][j][e] *= keptOf(kept, j, e), y[0][j][e] *= keptOf(kept, j, e);
        }
        x[0][j][e] = shown ? score * LOG2E : -INFINITE;
      }
  }

  // keeps has a bit for each of the lane's pairs of a block, set if dropout keeps it.
  DEVICE uint32_t keeps(int head, int own, int other) const {
    if (!a.dropThreshold) return ~0u;
    static_assert(COLUMNS <= 8, "a word has a bit for each pair");
    const Dropper dropper(a, s, head);
    uint32_t bits = 0;
#pragma unroll 1
    for (int n = 0; n < 4 * COLUMNS; n++) {
      const int mine = own + lane() / 4 + n % 4 / 2 * 8, others = other + n / 4 * 8 + lane() % 4 * 2 + n % 2;
      const int i = BY_KEYS ? others : mine, key = BY_KEYS ? mine : others;
      uint4 counter[1] = {dropper.counter(i, key)};
      dropper.draw(counter);
      const uint4 w = counter[0];
      const uint32_t word = key & 4 ? (key & 2 ? w.w : w.z) : (key & 2 ? w.y : w.x);
      bits |= (dropper.kept(word) & (key & 1 ? 0x80000000 : 0x8000) ? 1u : 0u) << n;
    }
    return bits;
  }
  DEVICE float keptOf(uint32_t bits, int j, int e) const { return bits >> (4 * j + e) & 1 ? a.keepScale : 0; }

  // Row is what a query row needs of all its keys.
  struct Row {
    float lse, delta, R, H;  // lse to base 2, +∞ for a row without keys
  };

  // gradients turns what points has left into M, W, X and P, the last two times what dropout gives.
  // t becomes the gradient of what is added to scores. rowOf gives the Row of a pair.
  template <class F>
  DEVICE void gradients(F rowOf, Block& x, Block& r, Block& dP, Block& y, uint32_t kept, const Block& capped, Block& t) const {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const Row& row = rowOf(j, e);
        const float p = exp2Fast(x[0][j][e] - row.lse);
        const float off = r[0][j][e] - row.R, dS = p * (dP[0][j][e] - row.delta);
        float N = dS * off + p * (y[0][j][e] - row.H), W = dS, X = p * off, P = p, M = N;
        if constexpr (Score::CHANGES) {
          if (a.softCap > 0) {
            const float tangent = capped[0][j][e], c = 1 - tangent * tangent;
            M = c * (N - 2 * tangent / a.softCap * dS * t[0][j][e]), W *= c;
          }
          X *= keptOf(kept, j, e), P *= keptOf(kept, j, e);
          t[0][j][e] = p == 0 ? 0 : N;
        }
        const bool none = p == 0;  // what is hidden may be NaN
        x[0][j][e] = none ? 0 : M, r[0][j][e] = none ? 0 : W, dP[0][j][e] = none ? 0 : X, y[0][j][e] = none ? 0 : P;
      }
  }

  // finish writes the warp's sums times a factor, columns from column on. Elements of 16 bits pass
  // through its rows of a tile.
  DEVICE void finish(Sums& c, float factor, Operand tile, const Matrix& to, int row, int column) const {
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[0][j][e] *= factor;
    if constexpr (E::SCALED) {
      storeFloats(c, to, row + 16 * warp(), column);
    } else {
      __syncwarp();
      storeAccumulator<E>(c, tile, 16 * warp(), 0);
      __syncwarp();
      storeRows<E, 32>(tile, 16 * warp(), 16, to, row + 16 * warp(), lane());
      __syncwarp();
    }
  }
};

template <class E, int D, int WARPS, int KEYS, int STAGES, class Score> struct SecondQueries : Second<E, D, WARPS, KEYS, STAGES, false, Score> {
  using Base = Second<E, D, WARPS, KEYS, STAGES, false, Score>;
  using Base::a;
  using Base::g;
  using Base::s;
  using Base::COLUMNS;
  using typename Base::Block;
  using typename Base::Operand;
  using typename Base::Row;
  using typename Base::Sums;
  static constexpr int ROWS = Base::OWN;

  const int head, keyHead, row;  // row: the tile's first
  const Operand q, u, dO, k, uk, v, uv;
  Row mine[2];  // of the lane's rows

  DEVICE SecondQueries(const SecondArguments& g, int sequence, int head, int tile)
      : Base(g, sequence), head(head), keyHead(head / (g.a.heads / g.a.keyHeads)), row(tile * ROWS), q{sharedBase()}, u{q.base + ROWS * Operand::STRIDE},
        dO{u.base + ROWS * Operand::STRIDE}, k{dO.base + ROWS * Operand::STRIDE}, uk{k.base + KEYS * Operand::STRIDE},
        v{uk.base + KEYS * Operand::STRIDE}, uv{v.base + KEYS * Operand::STRIDE} {}

  DEVICE void run() {
    if (row >= s.sq) return;
    this->template loadQueries<ROWS>(q, u, dO, head, row);
    copyCommit();
    copyWait<0>();
    settle<E, ROWS, WARPS>(q, q);
    settle<E, ROWS, WARPS>(u, u);
    settle<E, ROWS, WARPS>(dO, dO);
    const Tiles tiles = keyTiles<KEYS>(this->mask, row, ROWS);
    sumRows(tiles);
    const Matrix dQ = matrixOf<E>(a.dQ, s.batch, head, s.q0, s.sq, a.d), dDO = matrixOf<E>(g.dDO, s.batch, head, s.q0, s.sq, a.dv);
#pragma unroll 1
    for (int column = 0; column < D; column += Base::WIDTH) {
      Sums ofQ, ofDO;
      if constexpr (Base::BOTH) {
        sumResults<true, true>(tiles, column, ofQ, ofDO);
        this->finish(ofQ, a.scale, q, dQ, row, column);
        this->finish(ofDO, 1, dO, dDO, row, column);
      } else {
        sumResults<true, false>(tiles, column, ofQ, ofDO);
        this->finish(ofQ, a.scale, k, dQ, row, column);  // the queries are needed again
        sumResults<false, true>(tiles, column, ofQ, ofDO);
        this->finish(ofDO, 1, k, dDO, row, column);
      }
    }
  }

  // at is a tile of keys in a stage.
  static DEVICE Operand at(Operand first, int stage) { return {first.base + stage * 4 * KEYS * Operand::STRIDE}; }

  // eachTile computes with each of the tiles of keys.
  template <class F> DEVICE void eachTile(const Tiles& tiles, F compute) const {
    this->pass(
        tiles.end - tiles.first,
        [&](int n, int stage) {
          this->template loadKeys<KEYS>(at(k, stage), at(uk, stage), at(v, stage), at(uv, stage), keyHead, (tiles.first + n) * KEYS);
        },
        [&](int stage) {
          settle<E, KEYS, WARPS>(at(k, stage), at(k, stage));
          settle<E, KEYS, WARPS>(at(uk, stage), at(uk, stage));
          settle<E, KEYS, WARPS>(at(v, stage), at(v, stage));
          settle<E, KEYS, WARPS>(at(uv, stage), at(uv, stage));
        },
        [&](int n, int stage) { compute((tiles.first + n) * KEYS, stage); });
  }

  DEVICE void products(Block& x, Block& t, Block& dP, Block& y, int stage) const {
    multiplyTransposed<E, D>(x, q, 16 * warp(), at(k, stage), 0);
    multiplyTransposed<E, D>(t, u, 16 * warp(), at(k, stage), 0);
    addTransposed<E, D>(t, q, 16 * warp(), at(uk, stage));
    multiplyTransposed<E, D>(dP, dO, 16 * warp(), at(v, stage), 0);
    multiplyTransposed<E, D>(y, dO, 16 * warp(), at(uv, stage), 0);
  }

  DEVICE void sumRows(const Tiles& tiles) {
    float most[2] = {-INFINITE, -INFINITE}, sums[4][2] = {};  // of P, P·dP, P·r and P·(dP·r + y)
    eachTile(tiles, [&](int key, int stage) {
      Block x, t, dP, y, r, capped;
      uint32_t kept;
      products(x, t, dP, y, stage);
      this->points(head, row + 16 * warp(), key, x, r, dP, y, kept, capped, t);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float m = most[half];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) m = fmaxf(m, fmaxf(x[0][j][2 * half], x[0][j][2 * half + 1]));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
        const float factor = m == -INFINITE ? 1 : exp2Fast(most[half] - m), base = m == -INFINITE ? 0 : m;
        most[half] = m;
#pragma unroll
        for (int n = 0; n < 4; n++) sums[n][half] *= factor;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; e++) {
            const float p = exp2Fast(x[0][j][e] - base);
            if (p == 0) continue;  // what is hidden may be NaN
            sums[0][half] += p;
            sums[1][half] += p * dP[0][j][e];
            sums[2][half] += p * r[0][j][e];
            sums[3][half] += p * fmaf(dP[0][j][e], r[0][j][e], y[0][j][e]);
          }
      }
    });
#pragma unroll
    for (int half = 0; half < 2; half++) finishRow(half, most[half], sums);
  }

  DEVICE void finishRow(int half, float most, float (&sums)[4][2]) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
      sums[n][half] += __shfl_xor_sync(~0u, sums[n][half], 1);
      sums[n][half] += __shfl_xor_sync(~0u, sums[n][half], 2);
    }
    const float sink = a.sinks ? a.sinks[head] * LOG2E : -INFINITE, uSink = g.uSinks ? g.uSinks[head] : 0;
    const float top = fmaxf(most, sink);
    float total = 0, ofSink = 0, factor = 0;
    if (most != -INFINITE) factor = exp2Fast(most - top), total = sums[0][half] * factor;
    if (sink != -INFINITE) ofSink = exp2Fast(sink - top), total += ofSink;
    const int i = row + 16 * warp() + lane() / 4 + 8 * half;
    const int64_t at = this->statistic(head) + i;
    const float dLSE = g.dLSE && i < s.sq ? g.dLSE[at] : 0;
    Row& to = mine[half];
    to = {INFINITE, 0, 0, 0};
    if (total != 0) {
      factor /= total, ofSink /= total;
      to.lse = top + log2f(total);
      const float sum = sums[1][half] * factor;
      to.delta = sum - dLSE;
      to.R = sums[2][half] * factor + uSink * ofSink;
      to.H = sums[3][half] * factor - to.R * sum;
    }
    if (i >= s.sq || lane() % 4) return;
    *(float4*)(g.rows + 4 * at) = make_float4(to.lse, to.delta, to.R, to.H);
    if (g.dDLSE) g.dDLSE[at] = to.R;
    if (g.sinkTerms) g.sinkTerms[at] = ofSink == 0 ? 0 : ofSink * (to.delta * (to.R - uSink) - to.H);
  }

  template <bool FIRST, bool SECOND>
  DEVICE void sumResults(const Tiles& tiles, int column, Sums& ofQ, Sums& ofDO) {
    if (FIRST) clear(ofQ);
    if (SECOND) clear(ofDO);
    eachTile(tiles, [&](int key, int stage) {
      Block x, t, dP, y, r, capped;
      uint32_t kept;
      products(x, t, dP, y, stage);
      this->points(head, row + 16 * warp(), key, x, r, dP, y, kept, capped, t);
      this->gradients([&](int, int e) -> const Row& { return mine[e / 2]; }, x, r, dP, y, kept, capped, t);
      if constexpr (Score::CHANGES && FIRST)
        if (column == 0) OptionScore::addGradients(a, WarpTile<E, 1, COLUMNS>(t, row + 16 * warp(), key, s, head));
      if constexpr (FIRST) {
        addProduct<E, KEYS>(ofQ, x, at(k, stage), column);
        addProduct<E, KEYS>(ofQ, r, at(uk, stage), column);
      }
      if constexpr (SECOND) {
        addProduct<E, KEYS>(ofDO, dP, at(v, stage), column);
        addProduct<E, KEYS>(ofDO, y, at(uv, stage), column);
      }
    });
  }
};

template <class E, int D, int WARPS, int ROWS, int STAGES, class Score> struct SecondKeys : Second<E, D, WARPS, ROWS, STAGES, true, Score> {
  using Base = Second<E, D, WARPS, ROWS, STAGES, true, Score>;
  using Base::a;
  using Base::g;
  using Base::s;
  using Base::COLUMNS;
  using typename Base::Block;
  using typename Base::Operand;
  using typename Base::Row;
  using typename Base::Sums;
  static constexpr int KEYS = Base::OWN;

  const int keyHead, key;  // key: the tile's first
  const Operand k, uk, v, uv, q, u, dO;
  Row* const rows;  // of the tiles of queries

  DEVICE SecondKeys(const SecondArguments& g, int sequence, int keyHead, int tile)
      : Base(g, sequence), keyHead(keyHead), key(tile * KEYS), k{sharedBase()}, uk{k.base + KEYS * Operand::STRIDE},
        v{uk.base + KEYS * Operand::STRIDE}, uv{v.base + KEYS * Operand::STRIDE}, q{uv.base + KEYS * Operand::STRIDE},
        u{q.base + ROWS * Operand::STRIDE}, dO{u.base + ROWS * Operand::STRIDE}, rows((Row*)(sharedMemory + (4 * KEYS + STAGES * 3 * ROWS) * Operand::STRIDE)) {}

  DEVICE void run() {
    if (key >= s.sk) return;
    this->template loadKeys<KEYS>(k, uk, v, uv, keyHead, key);
    copyCommit();
    copyWait<0>();
    settle<E, KEYS, WARPS>(k, k);
    settle<E, KEYS, WARPS>(uk, uk);
    settle<E, KEYS, WARPS>(v, v);
    settle<E, KEYS, WARPS>(uv, uv);
    const Matrix dK = matrixOf<E>(a.dK, s.batch, keyHead, s.k0, s.sk, a.d), dV = matrixOf<E>(a.dV, s.batch, keyHead, s.k0, s.sk, a.dv);
#pragma unroll 1
    for (int column = 0; column < D; column += Base::WIDTH) {
      Sums ofK, ofV;
      if constexpr (Base::BOTH) {
        sumResults<true, true>(column, ofK, ofV);
        this->finish(ofK, a.scale, k, dK, key, column);
        this->finish(ofV, 1, v, dV, key, column);
      } else {
        static_assert(E::SCALED || STAGES * 3 * ROWS >= KEYS, "results pass through the tiles of queries");
        sumResults<true, false>(column, ofK, ofV);
        this->finish(ofK, a.scale, q, dK, key, column);  // the keys are needed again
        sumResults<false, true>(column, ofK, ofV);
        this->finish(ofV, 1, q, dV, key, column);
      }
    }
  }

  // at is a tile of queries in a stage.
  static DEVICE Operand at(Operand first, int stage) { return {first.base + stage * 3 * ROWS * Operand::STRIDE}; }

  DEVICE void fetch(int head, int tile, int stage) const {
    this->template loadQueries<ROWS>(at(q, stage), at(u, stage), at(dO, stage), head, tile * ROWS);
    for (int i = threadIdx.x; i < ROWS; i += 32 * WARPS) {
      const float4 x = tile * ROWS + i < s.sq ? *(const float4*)(g.rows + 4 * (this->statistic(head) + tile * ROWS + i)) : make_float4(INFINITE, 0, 0, 0);
      rows[stage * ROWS + i] = {x.x, x.y, x.z, x.w};
    }
  }

  template <bool FIRST, bool SECOND> DEVICE void sumResults(int column, Sums& ofK, Sums& ofV) {
    if (FIRST) clear(ofK);
    if (SECOND) clear(ofV);
    const Tiles tiles = queryTiles<ROWS, true>(this->mask, key, KEYS);
    const int count = tiles.end - tiles.first, group = a.heads / a.keyHeads;
    const auto headOf = [&](int n) { return keyHead * group + n / count; };
    const auto tileOf = [&](int n) { return tiles.first + n % count; };
    this->pass(
        count * group, [&](int n, int stage) { fetch(headOf(n), tileOf(n), stage); },
        [&](int stage) {
          settle<E, ROWS, WARPS>(at(q, stage), at(q, stage));
          settle<E, ROWS, WARPS>(at(u, stage), at(u, stage));
          settle<E, ROWS, WARPS>(at(dO, stage), at(dO, stage));
        },
        [&](int n, int stage) {
          const Operand q = at(this->q, stage), u = at(this->u, stage), dO = at(this->dO, stage);
          Block x, t, dP, y, r, capped;
          uint32_t kept;
          multiplyTransposed<E, D>(x, k, 16 * warp(), q, 0);
          multiplyTransposed<E, D>(t, uk, 16 * warp(), q, 0);
          addTransposed<E, D>(t, k, 16 * warp(), u);
          multiplyTransposed<E, D>(dP, v, 16 * warp(), dO, 0);
          multiplyTransposed<E, D>(y, uv, 16 * warp(), dO, 0);
          this->points(headOf(n), key + 16 * warp(), tileOf(n) * ROWS, x, r, dP, y, kept, capped, t);
          const Row* const of = rows + stage * ROWS;
          this->gradients([&](int j, int e) -> const Row& { return of[8 * j + lane() % 4 * 2 + e % 2]; }, x, r, dP, y, kept, capped, t);
          if constexpr (FIRST) {
            addProduct<E, ROWS>(ofK, x, q, column);
            addProduct<E, ROWS>(ofK, r, u, column);
          }
          if constexpr (SECOND) addProduct<E, ROWS>(ofV, dP, dO, column);
        });
  }
};

// With a causal mask the last tiles of queries are the longest, and the first ones of keys: they
// come first.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) second_queries(const __grid_constant__ SecondArguments g) {
  constexpr int WARPS = BLOCK_THREADS / 32;
  const int tiles = ceilDiv(g.a.longestQ, 16 * WARPS);
  const Place place(tiles);
  SecondQueries<Arithmetic, HEAD_DIM, WARPS, TILE_K, TILE_STAGES, Score> kernel(g, place.plane / g.a.heads, place.plane % g.a.heads, tiles - 1 - place.tile);
  kernel.run();
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) second_keys(const __grid_constant__ SecondArguments g) {
  constexpr int WARPS = BLOCK_THREADS / 32;
  const Place place(ceilDiv(g.a.longestK, 16 * WARPS));
  SecondKeys<Arithmetic, HEAD_DIM, WARPS, TILE_K, TILE_STAGES, Score> kernel(g, place.plane / g.a.keyHeads, place.plane % g.a.keyHeads, place.tile);
  kernel.run();
}

// SecondSinks is the host's secondSinks in attention_second.go.
struct SecondSinks {
  const float* terms;  // (batch, heads, length) row-major
  float* dSinks;       // (heads)
  int32_t batch, heads, length, reserved;
};

// second_sinks sums with one block a head, in an order that depends on the shape alone.
extern "C" __global__ void __launch_bounds__(1024) second_sinks(const __grid_constant__ SecondSinks a) {
  __shared__ float parts[32];
  float sum = 0;
  for (int batch = 0; batch < a.batch; batch++)
    for (int i = threadIdx.x; i < a.length; i += blockDim.x) sum += a.terms[((int64_t)batch * a.heads + blockIdx.x) * a.length + i];
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = parts[threadIdx.x];
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (threadIdx.x == 0) a.dSinks[blockIdx.x] = sum;
}
