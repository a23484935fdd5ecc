// What both kinds of consumers of attention backward for sm_90a do with scores: products, P, dS,
// and the sums of dQ.
#pragma once
#include "attention_backward_slants_sm90.cuh"

// BackwardScores is what a consumer warpgroup does with a tile of S and dP of 64 keys, whatever it
// is for. A thread holds two rows, that is keys, (r = 0, 1: row and row + 8) in the accumulators'
// order: element (r, 8·i + pair + e) is number 4·i + 2·r + e, pair being 2·(lane mod 4).
template <class Shape> struct BackwardScores {
  using Record = BackwardRecord<Shape>;
  using Steps = BackwardSteps<Shape>;
  using Sums = typename Shape::Sums;
  using Score = typename Shape::Score;
  static constexpr int D = Shape::D, DV = Shape::DV, TileQ = Shape::TileQ, Stages = Shape::Stages;
  static constexpr bool Modified = Shape::Modified, Changes = Score::CHANGES;

  const AttentionArguments& a;
  const uint32_t shared;
  const int group;
  int place;              // of the thread among the consumers
  const int tilesOfHead;  // of the sums of dQ
  int tilesBefore;        // of them, those of the sequences before this one
  int leads;              // the query tile from which on this tile of keys writes the sums

  Ring<2> slot{0};
  uint32_t keysParity = 0;
  uint32_t n = 0;  // steps done since the kernel's start: they tell places in all rings

  DEVICE BackwardScores(const AttentionArguments& a, uint32_t shared)
      : a(a), shared(shared), group(__shfl_sync(~0u, threadIdx.x / 128, 0) - 1), place(threadIdx.x - 128),
        tilesOfHead(Sums::tiles(a)) {}

  DEVICE BackwardBarriers<Shape> barriers() const { return {shared + Shape::BarriersAt}; }
  DEVICE int thread() const { return place % 128; }
  DEVICE int lane() const { return place % 32; }
  DEVICE int pair() const { return place % 4 * 2; }
  // The thread's first key within the tile.
  DEVICE int row() const { return (Shape::Wide ? thread() : place) / 32 * 16 + lane() / 4; }
  // settle keeps the compiler from computing addresses before the loops: they would take the
  // registers of the accumulators.
  DEVICE void settle() { asm volatile("" : "+r"(place)); }

  static DEVICE uint32_t stageOf(uint32_t n) { return n % Stages; }
  static DEVICE uint32_t parityOf(uint32_t n) { return n / Stages & 1; }
  // The buffer of dS of step n and the parity of its phase.
  static DEVICE uint32_t bufferOf(uint32_t n) { return n % (Shape::Late + 1); }
  static DEVICE uint32_t bufferParity(uint32_t n) { return n / (Shape::Late + 1) & 1; }

  // operand describes rows of 128 bytes for a product, as descriptor() does, at an address plus an
  // offset that is known at compile time; `along` is the distance of chunks where columns of more
  // than one are contiguous. It is made from 32 bits, since the other half is constant.
  static DEVICE uint64_t operand(uint32_t at, uint32_t offset, uint32_t along = 0) {
    uint64_t d;
    asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"((at >> 4) + (offset >> 4) + (along << 12)), "n"(1024 >> 4 | 1 << 30));
    return d;
  }

  // begin prepares for the tile that steps belong to.
  DEVICE void begin(Steps& steps) {
    steps.share();
    tilesBefore = __shfl_sync(~0u, Sums::before(a, steps.record.sequence()), 0);
    leads = __shfl_sync(~0u, steps.record.leads(), 0);
  }

  // startProduct starts a product of 64 rows of `left` and the rows of `right`, which both have
  // Columns contiguous columns, with what more adds.
  template <int Columns, class More>
  static DEVICE void startProduct(float (&x)[TileQ / 2], uint32_t left, int leftChunk, uint32_t right, More more) {
    productFence();
#pragma unroll
    for (int i = 0; i < Columns / 16; i++)
      Wgmma<TileQ>::template ss<0, 0>(x, operand(left, i / 4 * leftChunk + i % 4 * 32),
                                      operand(right, i / 4 * Shape::QChunk + i % 4 * 32), i != 0);
    more();
    productCommit();
  }
  // ownRows is where the group's keys begin in a chunk of K or V.
  DEVICE uint32_t ownRows() const { return Shape::Wide ? 0 : group * 64 * 128; }
  // startScores starts S = K·Qᵀ.
  DEVICE void startScores(float (&s)[TileQ / 2], uint32_t n) const {
    forget(s);
    startProduct<D>(s, shared + Shape::KAt + ownRows(), Shape::KChunk, shared + Shape::QAt + stageOf(n) * Shape::QBytes, [&]() {
      if constexpr (Shape::Slants) {
        const BackwardSlants<Shape> slants(shared);
        Wgmma<TileQ>::template ss<0, 0>(s, slants.left(Shape::Wide ? 0 : group), slants.right(stageOf(n)), 1);
      }
    });
  }
  // startOutputs starts dP = V·dOᵀ.
  DEVICE void startOutputs(float (&dp)[TileQ / 2], uint32_t n) const {
    forget(dp);
    startProduct<DV>(dp, shared + Shape::VAt + ownRows(), Shape::KChunk, shared + Shape::OAt + stageOf(n) * Shape::OBytes, []() {});
  }
  // startGradient starts adding weights·rows to the gradient of the group's keys: P·dO or dS·Q.
  template <int N>
  static DEVICE void startGradient(float (&sum)[N], const uint32_t (&weights)[TileQ / 4], uint32_t rows) {
    // A product of 256 columns takes more registers than ptxas allows where a thread has 128 at the
    // start.
    constexpr int Parts = Modified && N == 128 ? 2 : 1;
    productFence();
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++)
#pragma unroll
      for (int part = 0; part < Parts; part++)
        Wgmma<N * 2 / Parts>::template rs<1>(*(float(*)[N / Parts])(sum + part * (N / Parts)), weights + 4 * i,
                                             operand(rows, i * 2048 + part * (N / 32 * Shape::QChunk / Parts), Shape::QChunk), 1);
    productCommit();
  }
  // startSlice starts a slice of dQ of step n: of dQᵀ = Kᵀ·dS, or of dQ = dSᵀ·K.
  DEVICE void startSlice(float (&dq)[Sums::Registers], uint32_t n, int slice) const {
    const uint32_t dsAt = shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes;
    forget(dq);
    productFence();
#pragma unroll
    for (int i = 0; i < Shape::TileK / 16; i++) {
      constexpr int step = 2048;
      const int scores = i / 4 * Shape::QChunk + i % 4 * 32;
      if constexpr (Sums::Transposed)
        Wgmma<TileQ>::template ss<1, 0>(dq, operand(shared + Shape::KAt + slice * Shape::KChunk, i * step, Shape::KChunk),
                                        operand(dsAt, scores), i != 0);
      else
        Wgmma<D>::template ss<0, 1>(dq, operand(dsAt + slice * 64 * 128, scores),
                                    operand(shared + Shape::KAt, i * step, Shape::KChunk), i != 0);
    }
    productCommit();
  }
  // startSharedSlice starts the slice that both groups compute, each for half of the queries.
  static constexpr int SharedRegisters = Sums::Registers / 2;
  DEVICE void startSharedSlice(float (&dq)[SharedRegisters], uint32_t n, int slice) const {
    static_assert(Sums::Transposed && TileQ % 16 == 0, "a half is whole groups of eight queries");
    const uint32_t dsAt = shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes + group * (TileQ / 2 * 128);
    forget(dq);
    productFence();
#pragma unroll
    for (int i = 0; i < Shape::TileK / 16; i++)
      Wgmma<TileQ / 2>::template ss<1, 0>(dq, operand(shared + Shape::KAt + slice * Shape::KChunk, i * 2048, Shape::KChunk),
                                          operand(dsAt, i / 4 * Shape::QChunk + i % 4 * 32), i != 0);
    productCommit();
  }
  DEVICE void waitDS(uint32_t n) const { barrierWait(barriers().fullDS(bufferOf(n)), bufferParity(n)); }
  DEVICE void releaseDS(uint32_t n) const {
    if (lane() == 0) barrierArrive(barriers().emptyDS(bufferOf(n)));
  }

  // waitQ and waitO wait for Q and dO of a step, waitK for K.
  DEVICE void waitQ(const Steps& steps, uint32_t n) const {
    barrierWait(barriers().fullQ(stageOf(n)), parityOf(n));
    if (Shape::Slants) barrierWait(barriers().fullStats(stageOf(n)), parityOf(n));
    clearQ(Shape::QAt + stageOf(n) * Shape::QBytes, Shape::Chunks, steps);
  }
  DEVICE void waitO(const Steps& steps, uint32_t n) const {
    barrierWait(barriers().fullO(stageOf(n)), parityOf(n));
    clearQ(Shape::OAt + stageOf(n) * Shape::OBytes, Shape::ChunksV, steps);
  }
  DEVICE void waitK(const Steps& steps) const {
    barrierWait(barriers().fullK(), keysParity);
    if (keysEndEarly(a)) clear(Shape::KAt, Shape::Chunks, Shape::KChunk, steps.record.sk() - steps.record.key(), Shape::TileK);
  }
  DEVICE void clearQ(uint32_t at, int chunks, const Steps& steps) const {
    if (a.qLens) clear(at, chunks, Shape::QChunk, steps.record.sq() - steps.m * TileQ, TileQ);
  }
  // clear zeroes the rows of a buffer from `rows` on. Beyond the end of a sequence within the
  // tensor lie others; P and dS are zero there, but zero times NaN is not. Beyond the end of the
  // tensor TMA has put zeros. Both warpgroups clear all.
  DEVICE void clear(uint32_t at, int chunks, int chunkBytes, int rows, int tileRows) const {
    if (rows >= tileRows) return;
#pragma unroll 1
    for (int i = thread(); i < (tileRows - rows) * chunks * 8; i += 128) {
      const int line = rows + i / (chunks * 8), part = i % (chunks * 8);
      storeShared16(shared + at + part / 8 * chunkBytes + line * 128 + part % 8 * 16, make_uint4(0, 0, 0, 0));
    }
    sharedToAsync();
    groupSync(1 + group, 128);
  }

  DEVICE float2 stats(int which, int i) const {
    return loadShared8(shared + Shape::StatsAt + stageOf(n) * TileQ * 8 + which * TileQ * 4 + (8 * i + pair()) * 4);
  }

  // gainAt is where the thread keeps the gains of 16 queries, as pairs of halves. Outside of wide
  // shapes that is where its warp will write dS.
  DEVICE uint32_t gainAt(int i) const {
    if (Shape::Wide) return shared + Shape::PAt + Shape::PBytes + i * 2048 + thread() * 16;
    const int line = 16 * i + lane() / 2, part = thread() / 32 * 2 + lane() % 2;
    return shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes + group * Shape::QChunk + line * 128 + ((part ^ line % 8) << 4);
  }
  DEVICE void waitGains() const {
    if (Shape::Wide)
      barrierWait(barriers().emptyP(0), n & 1 ^ 1);
    else
      barrierWait(barriers().emptyDS(bufferOf(n)), bufferParity(n) ^ 1);
  }

  // Tile is a step's S or dS.
  struct Tile : ScoreTile<1, TileQ / 8, true> {
    using Element = Scalar;
    static constexpr bool EXACT = false;
    BackwardScores& c;
    const Record record;
    const int head;

    DEVICE Tile(BackwardScores& c, float (&x)[TileQ / 2], const Steps& now)
        : ScoreTile<1, TileQ / 8, true>{x, now.m * TileQ + c.pair(), now.record.key() + c.row()}, c(c), record(now.record), head(now.head) {}
    DEVICE int sequence() const { return record.sequenceIndex(); }
    DEVICE int sq() const { return record.sq(); }
    DEVICE int sk() const { return record.sk(); }

    template <class F> DEVICE void eachWithGain(F f) {
      c.waitGains();
#pragma unroll
      for (int i = 0; i < TileQ / 16; i++) {
        uint32_t gains[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int query = 16 * i + e / 2 * 8, key = e % 2 * 8;
          float* const two = this->x + 8 * i + 2 * e;
          const float gain = f(two[0], query, key);
          const __half2 both = __floats2half2_rn(gain, f(two[1], query + 1, key));
          gains[e] = *(const uint32_t*)&both;
        }
        storeShared16(c.gainAt(i), make_uint4(gains[0], gains[1], gains[2], gains[3]));
      }
    }
    DEVICE bool addMappedBias(float factor) {
      const bool mapped = BackwardOptions<Shape>(c.a).mapped;
      if (mapped) c.addMappedBias(this->x, factor);
      return mapped;
    }
  };

  // addMappedBias scales S and adds the bias, which lies in shared memory.
  DEVICE void addMappedBias(float (&s)[TileQ / 2], float factor) {
    barrierWait(barriers().fullBias(), n & 1);
    const bool same = a.biasRow == 0;  // in all rows, of which the first is there
    const uint32_t from = shared + Shape::BiasAt + (Shape::Wide ? 0 : group * Shape::QChunk) + (same ? partAt() : matrixAt(0));
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++) {
      uint32_t b[4];
      loadMatrix4Transposed(b, from + (same ? 0 : i * 2048));
#pragma unroll
      for (int x = 0; x < 4; x++) {
        const float2 both = unpack(b[x]);
        s[8 * i + 2 * x] = fmaf(s[8 * i + 2 * x], factor, both.x);
        s[8 * i + 2 * x + 1] = fmaf(s[8 * i + 2 * x + 1], factor, both.y);
      }
    }
    sharedToAsync();  // else TMA might write the next bias before this one is read
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().emptyBias());
  }
  // matrixAt is the address that the lane names for four 8×8 matrices of its warp's keys, for 16
  // queries, in a chunk whose rows are queries.
  DEVICE uint32_t matrixAt(int i) const {
    const int matrix = lane() / 8, line = lane() % 8, part = thread() / 32 * 2 + matrix % 2;
    return (16 * i + matrix / 2 * 8 + line) * 128 + ((part ^ line) << 4);
  }
  // partAt is the same where the chunk's first row is all.
  DEVICE uint32_t partAt() const { return (thread() / 32 * 2 + lane() / 8 % 2) << 4; }

  // someFar tells whether the logsumexp of some query is far from zero.
  DEVICE bool someFar() const {
    bool far = false;
#pragma unroll
    for (int i = 0; i < TileQ / 32; i++) {
      const float kept = loadSharedFloat(shared + Shape::StatsAt + stageOf(n) * TileQ * 8 + (32 * i + lane()) * 4);
      far |= isFar<false>(kept) && kept != INFINITY;
    }
    return __any_sync(~0u, far);
  }
  // exponentials turns S into P, by the powers of two of scores and their rows' logsumexps.
  template <class F> DEVICE void exponentials(float (&s)[TileQ / 2], F power) {
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++) {
      const float2 lse = stats(0, i);
#pragma unroll
      for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& x = s[4 * i + 2 * r + e];
          x = exp2Fast(power(x, e ? lse.y : lse.x));
        }
      }
    }
  }

  // probabilities turns S into P, and rounds it. What dropout drops is negative there, and missing
  // in what dV takes.
  template <class Masked>
  DEVICE void probabilities(float (&s)[TileQ / 2], uint32_t (&p)[TileQ / 4], uint32_t (&forValues)[TileQ / 4],
                            const Steps& now, Masked) {
    const float factor = Score::factorOf(a), toLog2 = factor * LOG2E;
    bool far = false, oneByOne = Changes;
    if constexpr (Shape::Slants) {
      using Slants = BackwardSlants<Shape>;
      const uint32_t told = __shfl_sync(~0u, loadShared4(Slants(shared).told(stageOf(n))), 0);
      far = told & Slants::SomeFar;
      oneByOne = told & Slants::OneByOne;
    } else if constexpr (Changes) {
      far = Score::adds(a) && someFar();  // ahead, behind which it is there
    }
    if constexpr (Changes) {
      if (oneByOne) Score::change(a, Tile(*this, s, now));
    }
    if (Changes && far) exponentials(s, [&](float x, float lse) { return powerOf<false>(x, factor, lse); });
    else exponentials(s, [&](float x, float lse) { return fmaf(x, toLog2, -lse); });
    if (Masked::value) now.record.mask().hide(Tile(*this, s, now), 0);
#pragma unroll
    for (int i = 0; i < TileQ / 4; i++) p[i] = pack(s[2 * i], s[2 * i + 1]);
    if constexpr (Modified) {
      if (a.dropThreshold) {
        barrierWait(barriers().fullBits(), n & 1);
        drop(p);
#pragma unroll
        for (int i = 0; i < TileQ / 4; i++) forValues[i] = positive(p[i]);
      } else {
#pragma unroll
        for (int i = 0; i < TileQ / 4; i++) forValues[i] = p[i];
      }
    }
  }
  // drop makes negative what dropout drops. Lanes that are eight apart share the words that
  // BackwardHelpers left.
  DEVICE void drop(uint32_t (&p)[TileQ / 4]) const {
    const int quads = thread() / 32 + (Shape::Wide ? 0 : 4 * group), quad = quads * 8 + lane() % 8;
    const int up = lane() / 8 % 2 * -8 + lane() / 16 + 8;
#pragma unroll
    for (int h = 0; h < TileQ / 64; h++) {
      const uint4 words = loadShared16(shared + Shape::BitsAt + (quad * (TileQ / 64) + h) * 16);
      const uint32_t word[4] = {words.x << up, words.y << up, words.z << up, words.w << up};
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) p[16 * h + 2 * i + r] ^= word[2 * r + i / 4] << i % 4 * 2 & 0x80008000u;
    }
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().emptyBits());
  }
  // values chooses the P that dV takes.
  static DEVICE uint32_t (&values(uint32_t (&p)[TileQ / 4], uint32_t (&dropped)[Modified ? TileQ / 4 : 1]))[TileQ / 4] {
    if constexpr (Modified)
      return dropped;
    else
      return p;
  }

  // gradients makes dS and rounds it. The bias's gradient is it without the gains; where there are
  // none, the helpers take it from shared memory.
  template <class Masked>
  DEVICE void gradients(const float (&s)[TileQ / 2], const uint32_t (&p)[TileQ / 4], const uint32_t (&forValues)[TileQ / 4],
                        float (&dp)[TileQ / 2], uint32_t (&packed)[TileQ / 4], const Steps& now, Masked) {
    if (Modified && a.dropThreshold) {
      droppedGradients(p, forValues, dp, Masked{});
    } else {
#pragma unroll
      for (int i = 0; i < TileQ / 8; i++) {
        const float2 delta = stats(1, i);
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const float2 rounded = unpack(p[2 * i + r]);
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int at = 4 * i + 2 * r + e;
            const float x = !Shape::RoundedP ? s[at] : e ? rounded.y : rounded.x;
            dp[at] = x * (dp[at] - (e ? delta.y : delta.x));
            if (Masked::value && x == 0) dp[at] = 0;
          }
        }
      }
    }
    if constexpr (Changes) {
      if (Score::hasGains(a)) {
        Score::addGradients(a, Tile(*this, dp, now));
#pragma unroll
        for (int i = 0; i < TileQ / 16; i++) {
          const uint4 four = loadShared16(gainAt(i));
          const uint32_t gains[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const float2 factor = __half22float2(*(const __half2*)&gains[e]);
            dp[8 * i + 2 * e] *= factor.x;
            dp[8 * i + 2 * e + 1] *= factor.y;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TileQ / 4; i++) packed[i] = pack(dp[2 * i], dp[2 * i + 1]);
  }

  // droppedGradients makes dS under dropout, P̃·dP − P·δ: P is negative where P̃ is zero. Both lack
  // keepScaleAfter, δ by backwardStats.
  template <class Masked>
  DEVICE void droppedGradients(const uint32_t (&p)[TileQ / 4], const uint32_t (&forValues)[TileQ / 4], float (&dp)[TileQ / 2],
                               Masked) const {
    if (a.dBias) {
#pragma unroll
      for (int i = 0; i < TileQ / 2; i++) dp[i] *= a.keepScale;
    }
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++) {
      const float2 delta = stats(1, i);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float2 all = unpack(p[2 * i + r]), left = unpack(Shape::Wide ? positive(p[2 * i + r]) : forValues[2 * i + r]);
        float* const x = dp + 4 * i + 2 * r;
        x[0] = fmaf(left.x, x[0], -fabsf(all.x) * delta.x);
        x[1] = fmaf(left.y, x[1], -fabsf(all.y) * delta.y);
        if (Masked::value && all.x == 0) x[0] = 0;
        if (Masked::value && all.y == 0) x[1] = 0;
      }
    }
  }

  // putDS writes the group's keys of dS to shared memory, a row a query.
  DEVICE void putDS(const uint32_t (&packed)[TileQ / 4]) {
    barrierWait(barriers().emptyDS(bufferOf(n)), bufferParity(n) ^ 1);
    if (Changes) __syncwarp();  // the warp has read the gains
    const uint32_t to = shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes + (Shape::Wide ? 0 : group * Shape::QChunk);
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++)
      storeMatrix4Transposed(to + matrixAt(i), packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
    sharedToAsync();
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().fullDS(bufferOf(n)));
  }
  // add adds a slice of dQ of step n, or the group's half of one, to the sums when its turn has
  // come. The group's last one tells that all are there.
  template <int N> DEVICE void add(const float (&dq)[N], uint32_t n, BackwardStep step, int slice, bool last) const {
    const int at = (step.head * tilesOfHead + tilesBefore + step.m) * Sums::Slices + slice;
    float* const to = a.dQSum + (int64_t)at * Sums::SliceFloats + thread() * 4 + (N < Sums::Registers ? group * N * 128 : 0);
    barrierWait(barriers().turn(), n & 1);
#pragma unroll
    for (int i = 0; i < N / 4; i++)
      storeOrAddFloats4(step.m >= leads, to + i * 512, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    if (last) {
      __syncwarp();
      if (lane() == 0) barrierArrive(barriers().added());
    }
  }
  // add adds one of the slices that the groups take in turn.
  DEVICE void add(const float (&dq)[Sums::Registers], uint32_t n, BackwardStep step, int slice) const {
    add(dq, n, step, slice, slice + Shape::Groups >= Sums::Slices);
  }

  // store writes dK or dV of the group's keys. Neighbouring lanes exchange halves, so that each has
  // four columns in a row: the even lane of 8·i, the odd one of 8·(i + 1).
  template <int N>
  DEVICE void store(float (&x)[N], const Rows& to, const Record& record, int columns, float factor) const {
    const bool odd = lane() & 1;
    const int sk = record.sk();
    Scalar* const data = (Scalar*)to.data + record.batch() * to.batch + record.keyHead() * to.head + record.k0() * to.row;
    const bool whole = columns % 4 == 0 && (uint64_t)data % 8 == 0 && to.row % 4 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int at = record.key() + row() + 8 * r;
      Scalar* const line = data + at * to.row;
#pragma unroll
      for (int i = 0; i < N / 4; i += 2) {
        const uint32_t even = pack(x[4 * i + 2 * r] * factor, x[4 * i + 2 * r + 1] * factor);
        const uint32_t next = pack(x[4 * i + 4 + 2 * r] * factor, x[4 * i + 5 + 2 * r] * factor);
        const uint32_t got = __shfl_xor_sync(~0u, odd ? even : next, 1);
        const uint2 four = odd ? make_uint2(got, next) : make_uint2(even, got);
        const int column = 8 * (i + odd) + (lane() & 2) * 2;
        if (at >= sk) continue;
        if (whole) {
          if (column < columns) *(uint2*)(line + column) = four;
        } else {
          const Scalar* elements = (const Scalar*)&four;
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (column + e < columns) line[column + e] = elements[e];
        }
      }
    }
  }
};
