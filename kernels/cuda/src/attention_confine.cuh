// Outputs and gradients of attention that a number which is not finite reached from where its mask
// hides it.
//
// The matrix units multiply what a mask hides by zero, and zero times NaN is NaN. It then stands in
// the same column of all rows that they computed together, at least 16 neighbouring ones. So a warp
// looks at the first of 16 rows. Where that is finite nothing has reached the others. Otherwise it
// computes the elements of these rows that are not finite once more, a visible pair at a time: those
// that see what is not finite stay so.
//
//   outputs:  O                a warp for 16 queries
//   queries:  dQ               a warp for 16 queries
//   keys:     dK and dV        a warp for 16 keys
//
// It takes long where much is not finite, and otherwise as long as it takes to read every 16th row:
// blocks have few registers, so that many rows are on their way.
// Compiled with -DTILE_WIDE=1, so that recomputed scores leave other gradients alone.
#pragma once
#include "attention_backward_sm80.cuh"

template <class Score> struct Confine {
  using E = Arithmetic;
  using Stored = typename E::Stored;
  static constexpr bool EXACT = E::BYTES == 4;
  static constexpr int ROWS = 16, WIDTH = 64, EACH = WIDTH / 32;  // columns that a warp computes at a time, and a lane
  static constexpr int TOGETHER = 8, LANES = 32 / TOGETHER;       // pieces that a warp looks at, and lanes for each
  static constexpr int FEW = 64;  // so many queries may be rows of several heads to those that computed them

  // weights has what a row's weight of the other side's rows is, and hidden which of them it does
  // not see.
  struct Shared {
    float weights[ROWS][ROWS + 1], factors[ROWS];
    bool hidden[ROWS][ROWS + 4];
  };
  using Block = WarpTile<E, 1, 2>;
  using Values = float[1][2][4];
  using Sums = float[ROWS][EACH];

  const AttentionArguments& a;
  Shared& shared;

  static DEVICE bool isFinite(float x) { return fabsf(x) < INFINITE; }
  static DEVICE float element(const Matrix& m, int row, int column) {
    return row < m.rows && column < m.columns ? widen(((const Stored*)m.data)[row * m.stride + column]) : 0;
  }

  // finiteRow reports whether a lane's part of a row is finite, of LANES that share it.
  static DEVICE bool finiteRow(const Matrix& m, int row) {
    const Stored* const from = (const Stored*)m.data + row * m.stride;
    constexpr int UNIT = 16 / E::BYTES;
    bool odd = false;
    if (m.aligned<E>() && m.columns % UNIT == 0) {
#pragma unroll 4
      for (int c = lane() % LANES * UNIT; c < m.columns; c += LANES * UNIT) {
        const uint4 words = *(const uint4*)(from + c);
#pragma unroll
        for (int n = 0; n < UNIT; n++) odd |= !isFinite(widen(((const Stored*)&words)[n]));
      }
    } else {
#pragma unroll 4
      for (int c = lane() % LANES; c < m.columns; c += LANES) odd |= !isFinite(widen(from[c]));
    }
    return !odd;
  }

  // products are those of 16 rows of each of two matrices, in the order of accumulators.
  static DEVICE void products(Values& x, const Matrix& left, int row, const Matrix& right, int column) {
    const int i = row + lane() / 4, j = column + lane() % 4 * 2;
    clear(x);
#pragma unroll 1
    for (int d = 0; d < left.columns; d++) {
      const float mine[2] = {element(left, i, d), element(left, i + 8, d)};
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float other = element(right, j + 8 * n + e, d);
          x[0][n][e] = fmaf(mine[0], other, x[0][n][e]);
          x[0][n][2 + e] = fmaf(mine[1], other, x[0][n][2 + e]);
        }
    }
  }

  // keep leaves weights in shared memory, those of a query in a row, or of a key.
  template <bool BY_KEYS> DEVICE void keep(const View<Score>& view, Values& weights, int head, int row, int column) const {
    Values hidden;
    clear(hidden);
    if (!view.mask.whole(row, ROWS, column, ROWS)) view.mask.hide(Block(hidden, row, column, view.s, head), 1);
    __syncwarp();  // all have read what was there
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int i = lane() / 4 + e / 2 * 8, j = lane() % 4 * 2 + 8 * n + e % 2;
        const bool none = hidden[0][n][e] != 0 || row + i >= view.s.sq || column + j >= view.s.sk;
        shared.weights[BY_KEYS ? j : i][BY_KEYS ? i : j] = weights[0][n][e];
        shared.hidden[BY_KEYS ? j : i][BY_KEYS ? i : j] = none;
      }
    __syncwarp();
  }
  // add adds the weighted rows of a matrix from row on that are visible.
  DEVICE void add(Sums& sums, const Matrix& m, int row, int first) const {
#pragma unroll 1
    for (int j = 0; j < ROWS && row + j < m.rows; j++) {
      float x[EACH];
#pragma unroll
      for (int n = 0; n < EACH; n++) x[n] = element(m, row + j, first + lane() + 32 * n);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        if (shared.hidden[r][j]) continue;
#pragma unroll
        for (int n = 0; n < EACH; n++) sums[r][n] = fmaf(shared.weights[r][j], x[n], sums[r][n]);
      }
    }
  }

  // oddOf has a bit for each of the lane's elements of 16 rows that is not finite.
  static DEVICE uint32_t oddOf(const Matrix& m, int row, int first) {
    uint32_t odd = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int n = 0; n < EACH; n++)
        if (!isFinite(element(m, row + r, first + lane() + 32 * n))) odd |= 1u << (r * EACH + n);
    return odd;
  }
  static constexpr uint32_t OF_ROW = (1u << EACH) - 1, OF_COLUMN = ~0u / OF_ROW;  // bits of a row, and of the first column

  // Much is often not finite because of what all 16 rows see. What follows finds that without
  // computing anything.
  //
  // isSpoilt reports whether a query sees what makes its probabilities NaN, or its δ.
  DEVICE bool isSpoilt(const Sequence& s, int head, int row, bool byDelta) const {
    const int64_t at = ((int64_t)s.batch * a.heads + head) * a.sq + s.q0 + row;
    return isnan(a.lse[at]) || byDelta && isnan(a.delta[at]);
  }
  // unspoilt is odd without the rows of spoilt queries.
  DEVICE uint32_t unspoilt(uint32_t odd, const Sequence& s, int head, int row, bool byDelta) const {
    for (int r = 0; r < min(ROWS, s.sq - row); r++)
      if (isSpoilt(s, head, row + r, byDelta)) odd &= ~(OF_ROW << (r * EACH));
    return odd;
  }
  // unseen is odd without the columns in which a value that all rows see is not finite.
  static DEVICE uint32_t unseen(uint32_t odd, const Matrix& v, const Tiles& tiles, int first) {
#pragma unroll 1
    for (int key = tiles.cleanFirst * ROWS; key < tiles.cleanEnd * ROWS && __any_sync(~0u, odd != 0); key++)
#pragma unroll
      for (int n = 0; n < EACH; n++)
        if (!isFinite(element(v, key, first + lane() + 32 * n))) odd &= ~(OF_COLUMN << n);
    return odd;
  }
  // seenBySpoilt reports whether a spoilt query sees all keys of 16.
  DEVICE bool seenBySpoilt(const Sequence& s, int keyHead, const Tiles& tiles, bool byDelta) const {
#pragma unroll 1
    for (int head = keyHead * group(); head < (keyHead + 1) * group(); head++)
#pragma unroll 1
      for (int row = tiles.cleanFirst * ROWS; row < tiles.cleanEnd * ROWS; row += 32) {
        const int mine = row + lane();
        if (__any_sync(~0u, mine < tiles.cleanEnd * ROWS && isSpoilt(s, head, mine, byDelta))) return true;
      }
    return false;
  }
  // put writes the elements that were not finite.
  static DEVICE void put(const Matrix& m, int row, int first, uint32_t odd, const Sums& sums, float factor) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int n = 0; n < EACH; n++)
        if (odd >> (r * EACH + n) & 1) round((Stored*)m.data + (row + r) * m.stride + first + lane() + 32 * n, sums[r][n] * factor);
  }
  static DEVICE void clearSums(Sums& sums) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int n = 0; n < EACH; n++) sums[r][n] = 0;
  }

  DEVICE Matrix queriesOf(const Sequence& s, int head) const { return matrixOf<E>(a.q, s.batch, head, s.q0, s.sq, a.d); }
  DEVICE Matrix keysOf(const Sequence& s, int keyHead) const { return matrixOf<E>(a.k, s.batch, keyHead, s.k0, s.sk, a.d); }
  DEVICE Matrix valuesOf(const Sequence& s, int keyHead) const { return matrixOf<E>(a.v, s.batch, keyHead, s.k0, s.sk, a.dv); }
  DEVICE Matrix gradientsOf(const Sequence& s, int head) const { return matrixOf<E>(a.dO, s.batch, head, s.q0, s.sq, a.dv); }
  DEVICE int group() const { return a.heads / a.keyHeads; }

  // outputs computes O of 16 queries.
  DEVICE void outputs(const View<Score>& view, const Matrix& o, int head, int row) const {
    const Sequence& s = view.s;
    const Matrix q = queriesOf(s, head), k = keysOf(s, head / group()), v = valuesOf(s, head / group());
    const float factor = Score::template factorOf<EXACT>(a);
    const Tiles tiles = keyTiles<ROWS>(view.mask, row, ROWS);
#pragma unroll 1
    for (int first = 0; first < o.columns; first += WIDTH) {
      uint32_t odd = oddOf(o, row, first);
      if (a.lse) odd = unspoilt(odd, s, head, row, false);
      odd = unseen(odd, v, tiles, first);
      if (!__any_sync(~0u, odd != 0)) continue;
      Sums sums;
      clearSums(sums);
      float most[2] = {-INFINITE, -INFINITE}, total[2] = {0, 0};  // of the lane's rows; total: of its columns
#pragma unroll 1
      for (int tile = tiles.first; tile < tiles.end; tile++) {
        const int column = tile * ROWS;
        Values x;
        products(x, q, row, k, column);
        const Block block(x, row, column, s, head);
        Score::change(a, block);
        if (!view.mask.whole(row, ROWS, column, ROWS)) view.mask.hide(block, -INFINITE);
        exponentials(x, factor, most, total);
        drop(x, s, head, row, column);
        keep<false>(view, x, head, row, column);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
          for (int n = 0; n < EACH; n++) sums[r][n] *= shared.factors[r];
        add(sums, v, column, first);
      }
      finish(sums, head, most, total);
      put(o, row, first, odd, sums, 1);
    }
  }
  // exponentials turns scores into exponentials against their rows' maxima, and leaves in shared
  // memory what sums are multiplied by where these have moved.
  DEVICE void exponentials(Values& x, float factor, float (&most)[2], float (&total)[2]) const {
    __syncwarp();  // all have read the factors that were there
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = most[half];
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          x[0][n][e] = x[0][n][e] == -INFINITE ? -INFINITE : x[0][n][e] * factor;
          top = fmaxf(top, x[0][n][e]);
        }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float shrink = top == most[half] ? 1 : exp2Fast((most[half] - top) * LOG2E), base = top == -INFINITE ? 0 : top;
      most[half] = top;
      total[half] *= shrink;
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          x[0][n][e] = exp2Fast((x[0][n][e] - base) * LOG2E);
          total[half] += x[0][n][e];
        }
      if (lane() % 4 == 0) shared.factors[lane() / 4 + 8 * half] = shrink;
    }
  }
  DEVICE void drop(Values& x, const Sequence& s, int head, int row, int column) const {
    if (!a.dropThreshold) return;
    const Dropper dropper(a, s, head);
    uint32_t words[2][2];
    dropWords(dropper, row + lane() / 4, column + lane() % 4 * 2, words);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (!(dropper.kept(words[n][e / 2]) & (e % 2 ? 0x80000000 : 0x8000))) x[0][n][e] = 0;
  }
  // finish divides by the sums of exponentials, with the sink in them.
  DEVICE void finish(Sums& sums, int head, const float (&most)[2], const float (&totals)[2]) const {
    const float sink = a.sinks ? a.sinks[head] : -INFINITE;
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float total = totals[half], shrink = 1;
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      if (sink != -INFINITE) {
        const float top = fmaxf(most[half], sink);
        shrink = most[half] == -INFINITE ? 0 : exp2Fast((most[half] - top) * LOG2E);
        total = total * shrink + exp2Fast((sink - top) * LOG2E);
      }
      if (lane() % 4 == 0) shared.factors[lane() / 4 + 8 * half] = total == 0 ? 0 : shrink * a.keepScale / total;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int n = 0; n < EACH; n++) sums[r][n] *= shared.factors[r];
  }

  // scoresOf recomputes P and dS of 16 queries and 16 keys.
  using Recomputed = Scores<E, WIDTH, 1, 2, Score>;
  DEVICE void scoresOf(Recomputed& scores, const View<Score>& view, int head, int row, int column) const {
    const Sequence& s = view.s;
    products(scores.p, queriesOf(s, head), row, keysOf(s, head / group()), column);
    products(scores.dS, gradientsOf(s, head), row, valuesOf(s, head / group()), column);
    scores.adds = false;
    scores.fromProducts(a, view, head, row, column);
  }

  // queries computes dQ of 16 queries.
  DEVICE void queries(const View<Score>& view, const Matrix& dQ, int head, int row) const {
    const Matrix k = keysOf(view.s, head / group());
    const Tiles tiles = keyTiles<ROWS>(view.mask, row, ROWS);
#pragma unroll 1
    for (int first = 0; first < dQ.columns; first += WIDTH) {
      const uint32_t odd = unspoilt(oddOf(dQ, row, first), view.s, head, row, tiles.cleanFirst < tiles.cleanEnd);
      if (!__any_sync(~0u, odd != 0)) continue;
      Sums sums;
      clearSums(sums);
#pragma unroll 1
      for (int tile = tiles.first; tile < tiles.end; tile++) {
        Recomputed scores;
        scores.rows(a, view, head, row);
        scoresOf(scores, view, head, row, tile * ROWS);
        keep<false>(view, scores.dS, head, row, tile * ROWS);
        add(sums, k, tile * ROWS, first);
      }
      put(dQ, row, first, odd, sums, a.scale);
    }
  }

  // keys computes dK of 16 keys, or dV.
  DEVICE void keys(const View<Score>& view, bool values, const Matrix& gradient, int keyHead, int column) const {
    const Tiles tiles = queryTiles<ROWS, true>(view.mask, column, ROWS);
    // A probability that is NaN makes dV so unless it is dropped.
    if (!(values && a.dropThreshold) && seenBySpoilt(view.s, keyHead, tiles, !values)) return;
#pragma unroll 1
    for (int first = 0; first < gradient.columns; first += WIDTH) {
      const uint32_t odd = oddOf(gradient, column, first);
      if (!__any_sync(~0u, odd != 0)) continue;
      Sums sums;
      clearSums(sums);
#pragma unroll 1
      for (int head = keyHead * group(); head < (keyHead + 1) * group(); head++) {
        const Matrix other = values ? gradientsOf(view.s, head) : queriesOf(view.s, head);
#pragma unroll 1
        for (int tile = tiles.first; tile < tiles.end; tile++) {
          Recomputed scores;
          scores.rows(a, view, head, tile * ROWS);
          scoresOf(scores, view, head, tile * ROWS, column);
          keep<true>(view, values ? scores.p : scores.dS, head, tile * ROWS, column);
          add(sums, other, tile * ROWS, first);
        }
      }
      put(gradient, column, first, odd, sums, values ? a.keepScale : a.scale);
    }
  }

  // Pieces are the pieces of 16 rows of all heads of some sequences, none with more rows than
  // longest. A warp looks at TOGETHER neighbouring ones.
  struct PiecesOf {
    int sequences, heads, each;
    DEVICE PiecesOf(int sequences, int heads, int longest) : sequences(sequences), heads(heads), each(ceilDiv(longest, ROWS)) {}
    DEVICE int count() const { return each * heads * sequences; }
    DEVICE int warps() const { return ceilDiv(count(), TOGETHER); }
    DEVICE int sequence(int at) const { return at / each / heads; }
    DEVICE int head(int at) const { return at / each % heads; }
    DEVICE int row(int at) const { return at % each * ROWS; }
  };
  // eachOdd calls f for those of the warp's pieces that have a row which is not finite, among so
  // many of its first. matrixOf gives the rows of a head of a sequence.
  template <class M, class F> DEVICE void eachOdd(const PiecesOf& pieces, int warp, int rows, M matrixOf, F f) const {
    const int mine = warp * TOGETHER + lane() / LANES;
    bool odd = false;
    if (mine < pieces.count()) {
      const Matrix m = matrixOf(sequenceOf(a, pieces.sequence(mine)), pieces.head(mine));
      const int row = pieces.row(mine);
#pragma unroll 1
      for (int r = row; r < min(row + rows, m.rows); r++) odd |= !finiteRow(m, r);
    }
    uint32_t left = __ballot_sync(~0u, odd);
    while (left) {
      const int n = (__ffs(left) - 1) / LANES, at = warp * TOGETHER + n;
      left &= ~(((1u << LANES) - 1) << n * LANES);
      const View<Score> view(a, pieces.sequence(at));
      f(view, matrixOf(view.s, pieces.head(at)), pieces.head(at), pieces.row(at));
    }
  }

  DEVICE void forward(int at) const {
    eachOdd({a.sequences, a.heads, a.longestQ}, at, a.longestQ <= FEW ? ROWS : 1,
            [&](const Sequence& s, int head) { return matrixOf<E>(a.o, s.batch, head, s.q0, s.sq, a.dv); },
            [&](const View<Score>& view, const Matrix& o, int head, int row) { outputs(view, o, head, row); });
  }
  // backward looks at all rows where a single one of dK or dV may not be finite: what scores are
  // multiplied by on their way back may be so, and `all` says that kernels had queries which do not
  // exist, whose scores are zero times a key.
  __device__ __noinline__ void backward(int at, bool all) const {
    const int rows = Score::hasGains(a) ? ROWS : 1, rowsOfKeys = all ? ROWS : rows;
    const PiecesOf ofQueries(a.sequences, a.heads, a.longestQ), ofKeys(a.sequences, a.keyHeads, a.longestK);
    if (at < ofQueries.warps()) {
      eachOdd(ofQueries, at, rows, [&](const Sequence& s, int head) { return matrixOf<E>(a.dQ, s.batch, head, s.q0, s.sq, a.d); },
              [&](const View<Score>& view, const Matrix& dQ, int head, int row) { queries(view, dQ, head, row); });
      return;
    }
    at -= ofQueries.warps();
    const bool values = at >= ofKeys.warps();
    eachOdd(ofKeys, values ? at - ofKeys.warps() : at, rowsOfKeys,
            [&](const Sequence& s, int head) {
              return values ? matrixOf<E>(a.dV, s.batch, head, s.k0, s.sk, a.dv) : matrixOf<E>(a.dK, s.batch, head, s.k0, s.sk, a.d);
            },
            [&](const View<Score>& view, const Matrix& gradient, int keyHead, int column) { keys(view, values, gradient, keyHead, column); });
  }
};

// CONFINE_KERNELS are the entry points, for arguments of a type.
#define CONFINE_KERNELS(ARGUMENTS)                                                       \
  CONFINE_KERNEL(KERNEL, ARGUMENTS, forward(at))                                         \
  CONFINE_KERNEL(attention_confine_gradients, ARGUMENTS, backward(at, false))            \
  CONFINE_KERNEL(attention_confine_all_gradients, ARGUMENTS, backward(at, true))
#define CONFINE_KERNEL(NAME, ARGUMENTS, PASS)                                            \
  extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1024 / BLOCK_THREADS)      \
  NAME(const __grid_constant__ ARGUMENTS a) {                                            \
    constexpr int WARPS = BLOCK_THREADS / 32;                                            \
    __shared__ Confine<Score>::Shared shared[WARPS];                                     \
    const int at = blockIdx.x * WARPS + warp();                                          \
    Confine<Score>{a, shared[warp()]}.PASS;                                              \
  }
