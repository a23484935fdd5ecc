// The gradients of attention's gradients: kernels/attention_second.go has the formulas.
//
// second_queries owns a tile of queries of one head. It goes over the keys twice: first it sums up,
// online as the forward kernel does, what a row needs of all its keys (the logsumexp, δ, R and H),
// and with it ddO, then it sums dq. second_keys owns a tile of keys of one key head, goes over the
// query heads that read it and their rows, and sums dk and dv. All sums but those of a bias that
// scores share are in one order.
//
//   S = Q·Kᵀ, T = UQ·Kᵀ + Q·UKᵀ, dP = dO·Vᵀ, Y = dO·UVᵀ     for a tile of queries and one of keys
//   O += P·V, ddO += P∘r·V + P·UV                            second_queries, S and T alone
//   dq += M·K + W·UK                                         second_queries; W = c·dS
//   dk += Mᵀ·Q + Wᵀ·UQ, dv += Xᵀ·dO                          second_keys
//
// δ + dLSE is dO·O, and H is dO·ddO. ddO is summed without R, of which R·O is taken at the end.
//
// A warp owns 16 rows of the block's tile: what it computes of pairs stays in registers,
// second_keys computes all four turned around. The other side's tiles pass through shared memory,
// TILE_K rows of keys or TILE_Q of queries at a time; with TILE_STAGES of 2 the next ones arrive
// while these are computed with. Where large heads leave no room for two sums, it goes over the
// other side once for each, and sums the rows' values by themselves.
//
// With WARPGROUPS, for Hopper, four more warps bring the tiles, and each warpgroup goes through
// them at its own pace. Of large heads two warpgroups share the pairs of 64 rows, so that each has
// one sum: attention_second_wide_sm90.cuh.
#ifdef WARPGROUPS
#include "attention_second_sm90.cuh"
#else
#include "attention_second_sm80.cuh"
#endif

// SecondArguments is the host's secondArguments in attention_second.go.
struct SecondArguments {
  AttentionArguments a;
  Rows uq, uk, uv, dDO;    // without data: zeros
  const float* dLSE;       // null for zeros
  float* dDLSE;            // null for none
  float* rows;             // scratch: the Row of each row of (batch, heads, sq)
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

// Second is what both kernels share. OWN rows are those of the block, OTHER those of a tile that
// passes.
template <class E, int D, int WARPS, int OTHER, int STAGES, bool BY_KEYS, class Score> struct Second {
  static constexpr int OWN = 16 * WARPS, COLUMNS = OTHER / 8, LOADING = LOADERS > 0 ? LOADERS : WARPS;
  // The sums that there is room for: of both results or of one, and of so many columns at a time.
  static constexpr bool BOTH = D <= (E::SCALED ? 64 : 128);
  static constexpr int WIDTH = E::SCALED && D > 128 ? 128 : D;
  static constexpr bool EARLY = D <= 128;  // there is room for y beside what weighs it
  static constexpr bool CROWDED = LOADERS > 0 && D > 64;  // there is none for P beside two sums
  using Multiply = Products<E, D, OWN, OTHER>;
  using Own = typename Multiply::Own;
  using Other = typename Multiply::Other;
  using Operands = Weights<E, COLUMNS>;
  using Sums = float[1][WIDTH / 8][4];
  using Block = float[1][COLUMNS][4];
  // Two are blocks that a product with a pair of tiles makes.
  struct Two {
    float c[2][COLUMNS][4];
    DEVICE Block& first() { return *(Block*)c[0]; }
    DEVICE Block& second() { return *(Block*)c[1]; }
  };

  const SecondArguments& g;
  const AttentionArguments& a;
  const Sequence s;
  const BandMask mask;
  Flow<STAGES, WARPS> flow;

  DEVICE Second(const SecondArguments& g, int sequence)
      : g(g), a(g.a), s(sequenceOf(g.a, sequence)), mask(BandMask::of(g.a, s)), flow(sharedBase()) {}

  // start is where tiles begin in shared memory.
  static DEVICE uint32_t start() {
    return (sharedBase() + Multiply::BARRIERS + Multiply::ALIGNMENT - 1) / Multiply::ALIGNMENT * Multiply::ALIGNMENT;
  }
  // worker is the warp's number among those that own rows.
  static DEVICE int worker() { return OWN == 64 ? warp() % 4 : warp() - LOADERS; }
  // aligned reports whether all rows can be brought 16 bytes at a time.
  DEVICE bool aligned() const {
    uint64_t bits = 0;
    const Rows* const all[] = {&a.q, &a.k, &a.v, &a.dO, &g.uq, &g.uk, &g.uv};
#pragma unroll
    for (int n = 0; n < 7; n++) bits |= (uint64_t)all[n]->data | (all[n]->batch | all[n]->head | all[n]->row) * E::BYTES;
    return (bits & 15) == 0;
  }

  DEVICE int64_t statistic(int head) const { return ((int64_t)s.batch * a.heads + head) * a.sq + s.q0; }

  template <class T, class U> DEVICE void loadQueries(T q, T u, U dO, int head, int row) const {
    q.template load<LOADING>(matrixOf<E>(a.q, s.batch, head, s.q0, s.sq, a.d), row);
    u.template load<LOADING>(matrixOrZeros<E>(g, g.uq, s.batch, head, s.q0, s.sq, a.d), row);
    dO.template load<LOADING>(matrixOf<E>(a.dO, s.batch, head, s.q0, s.sq, a.dv), row);
  }
  template <class T> DEVICE void loadKeys(T k, T u, T v, T w, int keyHead, int row) const {
    const int batch = a.k.batch ? s.batch : 0;
    k.template load<LOADING>(matrixOf<E>(a.k, batch, keyHead, s.k0, s.sk, a.d), row);
    u.template load<LOADING>(matrixOrZeros<E>(g, g.uk, batch, keyHead, s.k0, s.sk, a.d), row);
    v.template load<LOADING>(matrixOf<E>(a.v, batch, keyHead, s.k0, s.sk, a.dv), row);
    w.template load<LOADING>(matrixOrZeros<E>(g, g.uv, batch, keyHead, s.k0, s.sk, a.dv), row);
  }
  // settle makes operands of tiles that are here.
  template <class T, class... Ts> static DEVICE void settle(T first, Ts... others) {
    first.template settle<WARPS>();
    if constexpr (sizeof...(Ts) > 0) settle(others...);
  }

  template <class T> static DEVICE float elementOf(const void* data, int64_t at) { return widen(((const T*)data)[at]); }
  DEVICE float biasOf(const void* data, int64_t at) const {
    return a.biasElement == ElementF32 ? elementOf<float>(data, at) : elementOf<typename E::Stored>(data, at);
  }

  // Pairs are those of the warp's rows and a tile's: own and other are where these begin.
  struct Pairs {
    int head, own, other;
    bool whole;  // all are visible
    uint32_t kept;
    DEVICE int mine(int e) const { return own + lane() / 4 + e / 2 * 8; }
    DEVICE int others(int j, int e) const { return other + 8 * j + lane() % 4 * 2 + e % 2; }
    DEVICE int query(int j, int e) const { return BY_KEYS ? others(j, e) : mine(e); }
    DEVICE int key(int j, int e) const { return BY_KEYS ? mine(e) : others(j, e); }
  };
  DEVICE Pairs pairs(int head, int own, int other) const {
    own += 16 * worker();
    const bool whole = BY_KEYS ? mask.whole(other, OTHER, own, 16) : mask.whole(own, 16, other, OTHER);
    return {head, own, other, whole, 0};
  }

  DEVICE bool shown(int i, int key) const { return i < s.sq && key < s.sk && key >= i + mask.lo && key < i + mask.hi; }

  // points turns products into the scores to base 2, −∞ where nothing is visible, and into r. pairs
  // learns what keeps gives, capped is the hyperbolic tangent of a capped score, t is multiplied by
  // the scale.
  DEVICE void points(Pairs& pairs, Block& x, Block& r, Block& capped, Block& t) const {
    if (pairs.whole) points<true>(pairs, x, r, capped, t);
    else points<false>(pairs, x, r, capped, t);
  }
  template <bool WHOLE> DEVICE void points(Pairs& pairs, Block& x, Block& r, Block& capped, Block& t) const {
    const float slope = Score::CHANGES && a.slopes ? a.slopes[pairs.head] : 0;
    const int64_t bias = s.index * a.biasSequence + pairs.head * a.biasHead, uBias = s.index * g.uBiasSequence + pairs.head * g.uBiasHead;
    if constexpr (Score::CHANGES) pairs.kept = keeps(pairs);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int i = pairs.query(j, e), key = pairs.key(j, e);
        const bool shown = WHOLE || this->shown(i, key);
        r[0][j][e] = shown ? a.scale * t[0][j][e] : 0;
        if constexpr (!Score::CHANGES) {
          x[0][j][e] = shown ? (a.scale * LOG2E) * x[0][j][e] : -INFINITE;
        } else {
          float score = shown ? a.scale * x[0][j][e] : 0;
          t[0][j][e] = r[0][j][e];
          if (a.softCap > 0) {
            const float c = capped[0][j][e] = tanhf(score / a.softCap);
            score = a.softCap * c;
            r[0][j][e] *= 1 - c * c;
          }
          if (a.slopes) score -= slope * fabsf((float)(i + s.sk - s.sq - key));
          if (a.bias && shown) score += biasOf(a.bias, bias + i * a.biasRow + key * a.biasColumn);
          if (g.uBias && shown) r[0][j][e] += biasOf(g.uBias, uBias + i * g.uBiasRow + key * g.uBiasColumn);
          x[0][j][e] = shown ? score * LOG2E : -INFINITE;
        }
      }
  }
  // hide clears of a product what is hidden, where P is 0: it may be NaN. A bias may hide anything.
  template <class P> DEVICE void hide(const Pairs& pairs, P p, Block& product) const {
    if (!Score::CHANGES && pairs.whole) return;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (p(j, e) == 0) product[0][j][e] = 0;
  }


  // keeps has a bit for each of the lane's pairs of a block, set if dropout keeps it.
  DEVICE uint32_t keeps(const Pairs& pairs) const {
    if (!a.dropThreshold) return ~0u;
    static_assert(COLUMNS <= 8, "a word has a bit for each pair");
    const Dropper dropper(a, s, pairs.head);
    uint32_t bits = 0;
#pragma unroll 1
    for (int n = 0; n < 4 * COLUMNS; n++) {
      const int i = pairs.query(n / 4, n % 4), key = pairs.key(n / 4, n % 4);
      uint4 counter[1] = {dropper.counter(i, key)};
      dropper.draw(counter);
      const uint4 w = counter[0];
      const uint32_t word = key & 4 ? (key & 2 ? w.w : w.z) : (key & 2 ? w.y : w.x);
      bits |= (dropper.kept(word) & (key & 1 ? 0x80000000 : 0x8000) ? 1u : 0u) << n;
    }
    return bits;
  }
  // keptOf multiplies what dropout keeps.
  DEVICE float keptOf(const Pairs& pairs, int j, int e) const {
    return !Score::CHANGES ? 1 : pairs.kept >> (4 * j + e) & 1 ? a.keepScale : 0;
  }

  // Row is what a query row needs of all its keys: LSE to base 2, +∞ for a row without keys, R, δ
  // and H.
  struct Row {
    float lse, R, delta, H;
  };

  // each calls f for every pair, with what of(j, n) gives for its row: the n-th of the lane's two
  // rows, by keys of two neighbouring ones behind 8·j.
  template <class Of, class F> static DEVICE void each(Of of, F f) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const auto row = of(j, n);
#pragma unroll
        for (int m = 0; m < 2; m++) f(row, j, BY_KEYS ? n + 2 * m : 2 * n + m);
      }
  }

  // weigh turns products into P and r − R, and does else what points does. rows has the values of a
  // pair's row.
  template <class Rows> DEVICE void weigh(Pairs& pairs, Rows rows, Block& x, Block& r, Block& capped, Block& t) const {
    if constexpr (Score::CHANGES) points(pairs, x, r, capped, t);
    const float ofX = Score::CHANGES ? 1 : a.scale * LOG2E, ofT = Score::CHANGES ? 1 : a.scale;
    each([&](int j, int n) { return rows.first(j, n); }, [&](float2 row, int j, int e) {
      x[0][j][e] = exp2Fast(fmaf(ofX, x[0][j][e], -row.x));
      r[0][j][e] = fmaf(ofT, Score::CHANGES ? r[0][j][e] : t[0][j][e], -row.y);
    });
    if (Score::CHANGES || pairs.whole) return;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (!shown(pairs.query(j, e), pairs.key(j, e))) x[0][j][e] = r[0][j][e] = 0;
  }
  // turned gives X, times what dropout gives, and kept gives P so.
  DEVICE void turned(const Pairs& pairs, const Block& p, const Block& off, Block& X) const {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) X[0][j][e] = p[0][j][e] * off[0][j][e] * keptOf(pairs, j, e);
  }
  // drop clears what dropout drops.
  DEVICE void drop(const Pairs& pairs, Block& p) const {
    if constexpr (Score::CHANGES)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (!(pairs.kept >> (4 * j + e) & 1)) p[0][j][e] = 0;
  }
  DEVICE void kept(const Pairs& pairs, Block& p) const {
    if constexpr (Score::CHANGES)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[0][j][e] *= keptOf(pairs, j, e);
  }
  // toGradients turns dP into W, with what weigh has left, and r into what M has of dS. t becomes
  // what the soft cap takes from M.
  template <class Rows>
  DEVICE void toGradients(const Pairs& pairs, Rows rows, const Block& p, Block& r, Block& dP, const Block& capped, Block& t) const {
    hide(pairs, [&](int j, int e) { return p[0][j][e]; }, dP);
    each([&](int j, int n) { return rows.delta(j, n); }, [&](float delta, int j, int e) {
      float dS = p[0][j][e] * (dP[0][j][e] * keptOf(pairs, j, e) - delta);
      r[0][j][e] *= dS;
      if constexpr (Score::CHANGES) {
        if (a.softCap > 0) {
          const float tangent = capped[0][j][e];
          t[0][j][e] *= 2 * tangent / a.softCap * dS;
          dS *= 1 - tangent * tangent;
        }
      }
      dP[0][j][e] = dS;
    });
  }
  // Held is P while y is computed: rounded to 16 bits where registers are short, as P is anyway where
  // it multiplies values.
  template <bool ROUNDED> struct Held {
    float x[ROUNDED ? 1 : COLUMNS][4];
    uint32_t words[ROUNDED ? 2 * COLUMNS : 1];
    DEVICE Held(const Block& p) {
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          if constexpr (!ROUNDED) x[j][e] = p[0][j][e];
          else if (e % 2) words[2 * j + e / 2] = packed<typename E::Part>(p[0][j][e - 1], p[0][j][e]);
        }
    }
    DEVICE float operator()(int j, int e) const {
      if constexpr (!ROUNDED) return x[j][e];
      const float2 two = unpacked<typename E::Part>(words[2 * j + e / 2]);
      return e % 2 ? two.y : two.x;
    }
  };
  // toSecond turns y into M, with what toGradients has left. t becomes the gradient of what is added
  // to scores.
  template <class Rows, class P>
  DEVICE void toSecond(const Pairs& pairs, Rows rows, P p, const Block& r, Block& y, const Block& capped, Block& t) const {
    hide(pairs, p, y);
    each([&](int j, int n) { return rows.H(j, n); }, [&](float H, int j, int e) {
      const float N = r[0][j][e] + p(j, e) * (y[0][j][e] * keptOf(pairs, j, e) - H);
      y[0][j][e] = N;
      if constexpr (Score::CHANGES) {
        if (a.softCap > 0) y[0][j][e] = (1 - capped[0][j][e] * capped[0][j][e]) * (N - t[0][j][e]);
        t[0][j][e] = N;
      }
    });
  }

  // finish writes the warp's sums times a factor, columns from column on. Elements of 16 bits pass
  // through its rows of a tile.
  DEVICE void finish(Sums& c, float factor, Own tile, const Matrix& to, int row, int column) const {
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[0][j][e] *= factor;
    if constexpr (E::SCALED) {
      storeFloats(c, to, row + 16 * worker(), column);
    } else {
      __syncwarp();
      tile.pass(c, to, row, 16 * worker());
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
  using typename Base::Multiply;
  using typename Base::Operands;
  using typename Base::Other;
  using typename Base::Own;
  using typename Base::Pairs;
  using typename Base::Row;
  using typename Base::Sums;
  using typename Base::Two;
  static constexpr int ROWS = Base::OWN;
  // Whether rows and ddO are summed together.
  static constexpr bool TOGETHER = Base::BOTH && !E::SCALED;

  const int head, keyHead, row;  // row: the tile's first
  const Own q, u, dO, passing;   // passing: for results, where tiles of keys were
  const Other k, uk, v, uv;
  Row mine[2];  // of the lane's rows

  struct RowsOfLane {
    const Row (&mine)[2];
    DEVICE float2 first(int, int n) const { return make_float2(mine[n].lse, mine[n].R); }
    DEVICE float delta(int, int n) const { return mine[n].delta; }
    DEVICE float H(int, int n) const { return mine[n].H; }
  };

  DEVICE SecondQueries(const SecondArguments& g, int sequence, int head, int tile)
      : Base(g, sequence), head(head), keyHead(head / (g.a.heads / g.a.keyHeads)), row(tile * ROWS), q{Base::start()}, u{q.base + Own::BYTES},
        dO{u.base + Own::BYTES}, passing{dO.base + Own::BYTES}, k{passing.base}, uk{k.base + Other::NEXT}, v{k.base + 2 * Other::BYTES},
        uv{v.base + Other::NEXT} {
    static_assert(E::SCALED || STAGES * 4 * KEYS >= ROWS, "results pass through the tiles of keys");
  }

  DEVICE void run() {
    if (row >= s.sq) return;
    const Tiles tiles = keyTiles<KEYS>(this->mask, row, ROWS);
    const int count = tiles.end - tiles.first;
    if (!this->flow.start([&] { this->loadQueries(q, u, dO, head, row); }, [&] { this->settle(q, u, dO); }, this->aligned(), 2 * count,
                          [&](int step, int stage) { fetch(tiles.first + step % count, stage); }))
      return;
    const Matrix dQ = matrixOf<E>(a.dQ, s.batch, head, s.q0, s.sq, a.d), dDO = matrixOf<E>(g.dDO, s.batch, head, s.q0, s.sq, a.dv);
    if constexpr (TOGETHER) {
      Sums o, ofDO;
      sumRows<true>(tiles, o, ofDO);
      this->finish(ofDO, 1, results(), dDO, row, 0);
      this->flow.letGo();
    } else {
      Sums none;
      sumRows<false>(tiles, none, none);
    }
#pragma unroll 1
    for (int column = 0; column < D; column += Base::WIDTH) {
      Sums sums;
      sumQueries(tiles, column, sums);
      this->finish(sums, a.scale, results(), dQ, row, column);
      if constexpr (!TOGETHER) {
        sumOutputs(tiles, column, sums);
        this->finish(sums, 1, results(), dDO, row, column);
      }
    }
  }

  // at is a tile of keys in a stage.
  static DEVICE Other at(Other first, int stage) { return {first.base + stage * 4 * Other::BYTES}; }
  DEVICE Own results() const { return {passing.base + this->flow.held() * 4 * Other::BYTES}; }
  DEVICE void fetch(int tile, int stage) const {
    this->loadKeys(at(k, stage), at(uk, stage), at(v, stage), at(uv, stage), keyHead, tile * KEYS);
  }

  // eachTile computes with each of the tiles of keys: see Flow.
  template <class Begin, class F, class Finish> DEVICE void eachTile(const Tiles& tiles, Begin begin, F compute, Finish finish) {
    this->flow.pass(
        tiles.end - tiles.first, [&](int n, int stage) { fetch(tiles.first + n, stage); },
        [&](int stage) { this->settle(at(k, stage), at(uk, stage), at(v, stage), at(uv, stage)); },
        begin, [&](int n, int stage) { compute(this->pairs(head, row, (tiles.first + n) * KEYS), stage); }, finish);
  }

  // startScores starts the products of S and T, startOutputs that of dP, startSecond that of Y
  // and startBoth these two.
  DEVICE void startScores(Block& x, Block& t, int stage) const {
    Multiply::start(x, q, at(k, stage));
    Multiply::start(t, u, at(k, stage));
    Multiply::startMore(t, q, at(uk, stage));
    Multiply::commit();
  }
  DEVICE void startOutputs(Block& dP, int stage) const {
    Multiply::start(dP, dO, at(v, stage));
    Multiply::commit();
  }
#ifdef WARPGROUPS
  DEVICE void startBoth(Two& of, int stage) const {
    Multiply::startTwo(of.c, dO, at(v, stage));
    Multiply::commit();
  }
#endif
  DEVICE void startSecond(Block& y, int stage) const {
    Multiply::start(y, dO, at(uv, stage));
    Multiply::commit();
  }

  // Online is what two rows have of the keys so far: the largest score, and sums of P, P·dP, P·r and
  // P·(dP·r + y). With OUTPUTS of P, P as it is rounded for products, P·(r − shift), and that rounded.
  struct Online {
    float most[2] = {-INFINITE, -INFINITE}, sums[4][2] = {}, shift[2] = {};
  };

  // sumRows finds what rows need. With OUTPUTS it sums P·V and ddO, else dP and y are computed.
  template <bool OUTPUTS> DEVICE void sumRows(const Tiles& tiles, Sums& o, Sums& ofDO) {
    Online online;
    if constexpr (OUTPUTS) clear(o), clear(ofDO);
    Block x, t;
    const auto begin = [&](int stage) {
      startScores(x, t, stage);
      if constexpr (OUTPUTS) {
        Multiply::template wait<1>(o);
        Multiply::template wait<1>(ofDO);
      }
    };
    const auto finish = [&] {
      if constexpr (OUTPUTS) {
        Multiply::template wait<0>(o);
        Multiply::template wait<0>(ofDO);
      }
    };
    const auto compute = [&](Pairs pairs, int stage) {
      Block dP, y, r, capped;
      Multiply::template wait<0>(x);
      Multiply::template wait<0>(t);
      if constexpr (!OUTPUTS) {
        startOutputs(dP, stage);
        startSecond(y, stage);
      }
      this->points(pairs, x, r, capped, t);
      if constexpr (!OUTPUTS) {
        Multiply::template wait<0>(dP);
        Multiply::template wait<0>(y);
      }
      float factors[2];
      rise<OUTPUTS>(online, pairs, x, r, dP, y, factors);
      if constexpr (OUTPUTS) {
        this->drop(pairs, x);
        this->drop(pairs, r);
        if (__any_sync(~0u, factors[0] != 1 || factors[1] != 1)) {
          scaleSums(o, factors);
          scaleSums(ofDO, factors);
        }
        Operands p(x), turned(r);
        Multiply::add(ofDO, turned, at(v, stage), 0);
        Multiply::add(o, p, at(v, stage), 0);
        Multiply::add(ofDO, p, at(uv, stage), 0);
        Multiply::commit();
        finish();
      }
    };
    eachTile(tiles, begin, compute, finish);
#pragma unroll
    for (int half = 0; half < 2; half++) finishRow<OUTPUTS>(half, online, o, ofDO);
  }

  // rise takes a tile into sums, which factors multiply before. x becomes P. With OUTPUTS r becomes
  // P·(r − shift), and both are rounded.
  template <bool OUTPUTS>
  DEVICE void rise(Online& online, const Pairs& pairs, Block& x, Block& r, const Block& dP, const Block& y, float (&factors)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float m = online.most[half];
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) m = fmaxf(m, fmaxf(x[0][j][2 * half], x[0][j][2 * half + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float factor = factors[half] = m == -INFINITE ? 1 : exp2Fast(online.most[half] - m), base = m == -INFINITE ? 0 : m;
      const bool first = online.most[half] == -INFINITE;
      online.most[half] = m;
#pragma unroll
      for (int n = 0; n < 4; n++) online.sums[n][half] *= factor;
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          const float p = exp2Fast(x[0][j][e] - base);
          x[0][j][e] = p;
          online.sums[0][half] += p;
          if constexpr (!OUTPUTS) {
            const float keep = this->keptOf(pairs, j, e);
            online.sums[2][half] += p * r[0][j][e];
            if (p != 0) {  // what is hidden may be NaN
              online.sums[1][half] += p * dP[0][j][e] * keep;
              online.sums[3][half] += p * keep * fmaf(dP[0][j][e], r[0][j][e], y[0][j][e]);
            }
          }
        }
      if constexpr (OUTPUTS) {
        if (__any_sync(~0u, first)) shiftOf(half, first, x, r, online.shift[half]);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
          float* const p = x[0][j] + 2 * half;
          float* const turned = r[0][j] + 2 * half;
          turned[0] = p[0] * (turned[0] - online.shift[half]), turned[1] = p[1] * (turned[1] - online.shift[half]);
          online.sums[2][half] += turned[0] + turned[1];
          online.sums[1][half] += toRounded(p);
          online.sums[3][half] += toRounded(turned);
        }
      }
    }
  }

  // shiftOf is r of the first tile that a row sees, on average: what is summed then lies near zero.
  static DEVICE void shiftOf(int half, bool first, const Block& p, const Block& r, float& shift) {
    float sum = 0, total = 0;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) sum += p[0][j][e] * r[0][j][e], total += p[0][j][e];
    sum += __shfl_xor_sync(~0u, sum, 1), total += __shfl_xor_sync(~0u, total, 1);
    sum += __shfl_xor_sync(~0u, sum, 2), total += __shfl_xor_sync(~0u, total, 2);
    if (first && total > 0) shift = sum / total;
  }
  // toRounded rounds two numbers as operands are, and adds them.
  static DEVICE float toRounded(float* x) {
    const float2 two = unpacked<typename E::Part>(packed<typename E::Part>(x[0], x[1]));
    x[0] = two.x, x[1] = two.y;
    return two.x + two.y;
  }

  static DEVICE void scaleSums(Sums& c, const float (&factors)[2]) {
#pragma unroll
    for (int j = 0; j < Base::WIDTH / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[0][j][e] *= factors[e / 2];
  }

  // Ends is what a row's sums come to: the logsumexp to base 2, R, what of P the sink has, and the
  // factor of its sums. With OUTPUTS O is scale times P·V, and ddO is scale times its sum less off·O.
  struct Ends {
    float lse, R, ofSink, factor, off, scale;
  };
  template <bool OUTPUTS> DEVICE Ends endsOf(int half, Online& online) const {
    float sums[4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
      sums[n] = online.sums[n][half];
      sums[n] += __shfl_xor_sync(~0u, sums[n], 1);
      sums[n] += __shfl_xor_sync(~0u, sums[n], 2);
    }
    online.sums[1][half] = sums[1], online.sums[3][half] = sums[3];
    const float most = online.most[half], shift = online.shift[half];
    const float sink = a.sinks ? a.sinks[head] * LOG2E : -INFINITE, uSink = g.uSinks ? g.uSinks[head] : 0;
    const float top = fmaxf(most, sink);
    float total = 0, ofSink = 0, factor = 0;
    if (most != -INFINITE) factor = exp2Fast(most - top), total = sums[0] * factor;
    if (sink != -INFINITE) ofSink = exp2Fast(sink - top), total += ofSink;
    const float lse = total != 0 ? top + log2f(total) : INFINITE;
    if (total != 0) factor /= total, ofSink /= total;
    float R = sums[2] * factor + uSink * ofSink, off = 0, scale = 0;
    if constexpr (OUTPUTS) {
      R += shift * sums[0] * factor;
      // What is rounded counts against the mean of values: a row that sees one key has no error.
      off = R - shift, scale = factor * (a.dropThreshold ? a.keepScale : 1);
      if (sums[0] > 0) off += (sums[3] - sums[2]) / sums[0], scale *= sums[0] / sums[1];
    }
    return {lse, R, ofSink, factor, off, scale};
  }
  // record notes what a row needs.
  DEVICE void record(int half, const Ends& e, float sum, float H) {
    const int i = row + placeOf(half);
    const int64_t at = this->statistic(head) + i;
    const float dLSE = g.dLSE && i < s.sq ? g.dLSE[at] : 0;
    Row& to = mine[half];
    to = {INFINITE, 0, 0, 0};
    if (e.lse != INFINITE) to = {e.lse, e.R, sum - dLSE, H};
    if (i >= s.sq || lane() % 4) return;
    *(float4*)(g.rows + 4 * at) = make_float4(to.lse, to.R, to.delta, to.H);
    if (g.dDLSE) g.dDLSE[at] = to.R;
    const float uSink = g.uSinks ? g.uSinks[head] : 0;
    if (g.sinkTerms) g.sinkTerms[at] = e.ofSink == 0 ? 0 : e.ofSink * (to.delta * (to.R - uSink) - to.H);
  }
  // placeOf is a row of the lane in the tile.
  static DEVICE int placeOf(int half) { return 16 * Base::worker() + lane() / 4 + 8 * half; }

  template <bool OUTPUTS> DEVICE void finishRow(int half, Online& online, Sums& o, Sums& ofDO) {
    const Ends ends = endsOf<OUTPUTS>(half, online);
    float sum, H;
    if constexpr (OUTPUTS) {
      sum = H = 0;
#pragma unroll
      for (int j = 0; j < D / 8; j++) {
        const float2 d = outputGradients(half, j);
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          const float out = o[0][j][e] * ends.scale;
          ofDO[0][j][e] = ofDO[0][j][e] * ends.scale - ends.off * out;
          sum += (e % 2 ? d.y : d.x) * out, H += (e % 2 ? d.y : d.x) * ofDO[0][j][e];
        }
      }
      sum += __shfl_xor_sync(~0u, sum, 1), H += __shfl_xor_sync(~0u, H, 1);
      sum += __shfl_xor_sync(~0u, sum, 2), H += __shfl_xor_sync(~0u, H, 2);
    } else {
      sum = online.sums[1][half] * ends.factor;
      H = online.sums[3][half] * ends.factor - ends.R * sum;
    }
    record(half, ends, sum, H);
  }
  // outputGradients are two neighbouring elements of dO.
  DEVICE float2 outputGradients(int half, int j) const {
    return unpacked<typename E::Stored>(loadShared4(dO.at(placeOf(half), 8 * j + lane() % 4 * 2)));
  }

  // beginWith begins a step whose results are sums.
  DEVICE auto beginWith(Block& x, Block& t, Sums& sums) const {
    return [&](int stage) {
      startScores(x, t, stage);
      Multiply::template wait<1>(sums);
    };
  }

  DEVICE void sumQueries(const Tiles& tiles, int column, Sums& sums) {
    clear(sums);
    Block x, t;
    const auto compute = [&](Pairs pairs, int stage) {
#ifdef WARPGROUPS
      Two outputs;
      Block &dP = outputs.first(), &y = outputs.second(), r, capped;
#else
      Block dP, y, r, capped;
#endif
      const RowsOfLane rows{mine};
      Multiply::template wait<0>(x);
      Multiply::template wait<0>(t);
#ifdef WARPGROUPS
      startBoth(outputs, stage);
#else
      startOutputs(dP, stage);
      if constexpr (Base::EARLY) startSecond(y, stage);
#endif
      this->weigh(pairs, rows, x, r, capped, t);
      Multiply::template wait<0>(dP);
      if constexpr (Base::EARLY) Multiply::template wait<0>(y);
      this->toGradients(pairs, rows, x, r, dP, capped, t);
      Operands W(dP);
      if constexpr (!Base::EARLY) startSecond(y, stage);
      Multiply::add(sums, W, at(uk, stage), column);
      Multiply::commit();
      if constexpr (!Base::EARLY) Multiply::template wait<1>(y);
      this->toSecond(pairs, rows, [&](int j, int e) { return x[0][j][e]; }, r, y, capped, t);
      if constexpr (Score::CHANGES)
        if (column == 0) OptionScore::addGradients(a, WarpTile<E, 1, COLUMNS>(t, pairs.own, pairs.other, s, head));
      Operands M(y);
      Multiply::add(sums, M, at(k, stage), column);
      Multiply::commit();
    };
    eachTile(tiles, beginWith(x, t, sums), compute, [&] { Multiply::template wait<0>(sums); });
  }

  DEVICE void sumOutputs(const Tiles& tiles, int column, Sums& sums) {
    clear(sums);
    Block x, t;
    const auto compute = [&](Pairs pairs, int stage) {
      Block r, capped, X;
      Multiply::template wait<0>(x);
      Multiply::template wait<0>(t);
      this->weigh(pairs, RowsOfLane{mine}, x, r, capped, t);
      this->turned(pairs, x, r, X);
      this->kept(pairs, x);
      Operands turned(X), p(x);
      Multiply::add(sums, turned, at(v, stage), column);
      Multiply::add(sums, p, at(uv, stage), column);
      Multiply::commit();
    };
    eachTile(tiles, beginWith(x, t, sums), compute, [&] { Multiply::template wait<0>(sums); });
  }
};

template <class E, int D, int WARPS, int ROWS, int STAGES, class Score> struct SecondKeys : Second<E, D, WARPS, ROWS, STAGES, true, Score> {
  using Base = Second<E, D, WARPS, ROWS, STAGES, true, Score>;
  using Base::a;
  using Base::g;
  using Base::s;
  using Base::COLUMNS;
  using typename Base::Block;
  using typename Base::Multiply;
  using typename Base::Operands;
  using typename Base::Other;
  using typename Base::Own;
  using typename Base::Pairs;
  using typename Base::Row;
  using typename Base::Sums;
  using Single = typename Multiply::Single;
  static constexpr int KEYS = Base::OWN;

  const int keyHead, key;  // key: the tile's first
  const Own k, uk, v, uv, passing;
  const Other q, u;
  const Single dO;
  const uint32_t rows;  // of the tiles of queries

  // RowsOfTile are read where they are needed: all of them are too many to keep.
  struct RowsOfTile {
    uint32_t base;
    DEVICE uint32_t at(int j, int n) const { return base + (8 * j + lane() % 4 * 2 + n) * (int)sizeof(Row); }
    DEVICE float2 first(int j, int n) const { return loadShared8(at(j, n)); }
    DEVICE float delta(int j, int n) const { return loadSharedFloat(at(j, n) + 8); }
    DEVICE float H(int j, int n) const { return loadSharedFloat(at(j, n) + 12); }
  };

  DEVICE SecondKeys(const SecondArguments& g, int sequence, int keyHead, int tile)
      : Base(g, sequence), keyHead(keyHead), key(tile * KEYS), k{Base::start()}, uk{k.base + Own::BYTES}, v{uk.base + Own::BYTES},
        uv{v.base + Own::BYTES}, passing{uv.base + Own::BYTES}, q{passing.base}, u{q.base + Other::NEXT}, dO{q.base + 2 * Other::BYTES},
        rows(q.base + STAGES * 3 * Other::BYTES) {
    static_assert(E::SCALED || STAGES * 3 * ROWS >= KEYS, "results pass through the tiles of queries");
  }

  DEVICE void run() {
    if (key >= s.sk) return;
    const Tiles tiles = queryTiles<ROWS, true>(this->mask, key, KEYS);
    if (!this->flow.start([&] { this->loadKeys(k, uk, v, uv, keyHead, key); }, [&] { this->settle(k, uk, v, uv); }, this->aligned(),
                          (tiles.end - tiles.first) * (a.heads / a.keyHeads), [&](int step, int stage) { fetch(tiles, step, stage); }))
      return;
    const Matrix dK = matrixOf<E>(a.dK, s.batch, keyHead, s.k0, s.sk, a.d), dV = matrixOf<E>(a.dV, s.batch, keyHead, s.k0, s.sk, a.dv);
#pragma unroll 1
    for (int column = 0; column < D; column += Base::WIDTH) {
      Sums ofK, ofV;
      if constexpr (Base::BOTH) {
        sumResults<true, true>(tiles, column, ofK, ofV);
        this->finish(ofK, a.scale, results(), dK, key, column);
        this->finish(ofV, 1, results(), dV, key, column);
      } else {
        sumResults<true, false>(tiles, column, ofK, ofV);
        this->finish(ofK, a.scale, results(), dK, key, column);
        sumResults<false, true>(tiles, column, ofK, ofV);
        this->finish(ofV, 1, results(), dV, key, column);
      }
    }
  }

  // at is a tile of queries in a stage.
  template <class T> static DEVICE T at(T first, int stage) { return {first.base + stage * 3 * Other::BYTES}; }

  DEVICE Own results() const { return {passing.base + this->flow.held() * 3 * Other::BYTES}; }

  // headOf and tileOf say which tile of queries passes in a step.
  DEVICE int headOf(const Tiles& tiles, int step) const { return keyHead * (a.heads / a.keyHeads) + step / (tiles.end - tiles.first); }
  static DEVICE int tileOf(const Tiles& tiles, int step) { return tiles.first + step % (tiles.end - tiles.first); }

  DEVICE void fetch(const Tiles& tiles, int step, int stage) const {
    const int head = headOf(tiles, step), row = tileOf(tiles, step) * ROWS;
    this->loadQueries(at(q, stage), at(u, stage), at(dO, stage), head, row);
    fetchRows(rows + stage * ROWS * (int)sizeof(Row), head, row);
  }
  DEVICE void fetchRows(uint32_t to, int head, int row) const {
    for (int i = threadIdx.x; i < ROWS; i += 32 * Base::LOADING) {
      const bool exists = row + i < s.sq;
      copyAsync(to + i * (int)sizeof(Row), g.rows + (exists ? 4 * (this->statistic(head) + row + i) : 0), exists ? 16 : 0);
    }
  }

  template <bool OF_KEYS, bool OF_VALUES> DEVICE void sumResults(const Tiles& tiles, int column, Sums& ofK, Sums& ofV) {
    if (OF_KEYS) clear(ofK);
    if (OF_VALUES) clear(ofV);
    Block x, t;
    const auto begin = [&](int stage) {
      Multiply::start(x, k, at(q, stage));
      Multiply::start(t, uk, at(q, stage));
      Multiply::startMore(t, k, at(u, stage));
      Multiply::commit();
      if constexpr (OF_KEYS) Multiply::template wait<1>(ofK);
      if constexpr (OF_VALUES) Multiply::template wait<1>(ofV);
    };
    const auto finish = [&] {
      if constexpr (OF_KEYS) Multiply::template wait<0>(ofK);
      if constexpr (OF_VALUES) Multiply::template wait<0>(ofV);
    };
    this->flow.pass(
        (tiles.end - tiles.first) * (a.heads / a.keyHeads), [&](int step, int stage) { fetch(tiles, step, stage); },
        [&](int stage) { this->settle(at(q, stage), at(u, stage), at(dO, stage)); }, begin,
        [&](int step, int stage) {
          const Other q = at(this->q, stage), u = at(this->u, stage);
          const Single dO = at(this->dO, stage);
          Pairs pairs = this->pairs(headOf(tiles, step), key, tileOf(tiles, step) * ROWS);
          Block dP, y, r, capped, X;
          const RowsOfTile rows{this->rows + stage * ROWS * (int)sizeof(Row)};
          Multiply::template wait<0>(x);
          Multiply::template wait<0>(t);
          this->weigh(pairs, rows, x, r, capped, t);
          if constexpr (OF_VALUES) {
            this->turned(pairs, x, r, X);
            Operands turned(X);
            Multiply::add(ofV, turned, dO, column);
            Multiply::commit();
          }
          if constexpr (OF_KEYS) {
            Multiply::start(dP, v, dO);
            Multiply::commit();
            Multiply::template wait<0>(dP);
            this->toGradients(pairs, rows, x, r, dP, capped, t);
            Operands W(dP);
            const typename Base::template Held<Base::CROWDED> p(x);
            Multiply::start(y, uv, dO);
            Multiply::commit();
            Multiply::add(ofK, W, u, column);
            Multiply::commit();
            Multiply::template wait<1>(y);
            this->toSecond(pairs, rows, p, r, y, capped, t);
            Operands M(y);
            Multiply::add(ofK, M, q, column);
            Multiply::commit();
          }
        },
        finish);
  }
};

#ifdef WARPGROUPS
#include "attention_second_wide_sm90.cuh"
constexpr bool BY_PARTS = HEAD_DIM > 128;  // two warpgroups share the pairs of a block
template <class E, int D, int WARPS, int OTHER, int STAGES, class Score>
using Queries = typename std::conditional<BY_PARTS, WideQueries<E, D, OTHER, Score>, SecondQueries<E, D, WARPS, OTHER, STAGES, Score>>::type;
template <class E, int D, int WARPS, int OTHER, int STAGES, class Score>
using Keys = typename std::conditional<BY_PARTS, WideKeys<E, D, OTHER, Score>, SecondKeys<E, D, WARPS, OTHER, STAGES, Score>>::type;
#else
constexpr bool BY_PARTS = false;
template <class E, int D, int WARPS, int OTHER, int STAGES, class Score> using Queries = SecondQueries<E, D, WARPS, OTHER, STAGES, Score>;
template <class E, int D, int WARPS, int OTHER, int STAGES, class Score> using Keys = SecondKeys<E, D, WARPS, OTHER, STAGES, Score>;
#endif
constexpr int OWNERS = (BLOCK_THREADS / 32 - LOADERS) / (BY_PARTS ? 2 : 1);  // warps, each with 16 rows

// With a causal mask the last tiles of queries are the longest, and the first ones of keys: they
// come first.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) second_queries(const __grid_constant__ SecondArguments g) {
  const int tiles = ceilDiv(g.a.longestQ, 16 * OWNERS);
  const Place place(tiles);
  Queries<Arithmetic, HEAD_DIM, OWNERS, TILE_K, TILE_STAGES, Score> kernel(g, place.plane / g.a.heads, place.plane % g.a.heads, tiles - 1 - place.tile);
  kernel.run();
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) second_keys(const __grid_constant__ SecondArguments g) {
  const Place place(ceilDiv(g.a.longestK, 16 * OWNERS));
  Keys<Arithmetic, HEAD_DIM, OWNERS, TILE_Q, TILE_STAGES, Score> kernel(g, place.plane / g.a.keyHeads, place.plane % g.a.keyHeads, place.tile);
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
