// Attention's second derivatives for heads of up to 256 on sm_90a. A block owns 64 rows, and its
// two warpgroups share the work of each pair: the first one makes P and r − R of Q, K, UQ and UK,
// the second one what needs dP and Y. Each then has room for one sum of 64 × 256. What the second
// needs of the first passes through shared memory. LOADERS warps bring tiles, UQ and Q or K and UK
// two steps at a time, and what dP and Y need one step.

// PairsGiven pass between warpgroups: each thread gives to the one of the same number.
template <int VECTORS> struct PairsGiven {
  static constexpr int BYTES = VECTORS * 128 * 16;
  uint32_t base;
  DEVICE uint32_t at(int n) const { return base + (n * 128 + threadIdx.x % 128) * 16; }
  DEVICE void give(int n, const float (&x)[4]) const {
    storeShared16(at(n), make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])));
  }
  DEVICE void take(int n, float (&x)[4]) const {
    const uint4 w = loadShared16(at(n));
    x[0] = __uint_as_float(w.x), x[1] = __uint_as_float(w.y), x[2] = __uint_as_float(w.z), x[3] = __uint_as_float(w.w);
  }
};

// WideFlow is the block's barriers: of its own tiles, of those that pass and of what warpgroups
// give each other.
struct WideFlow {
  static constexpr int WARPS = 8;  // of both warpgroups
  static constexpr int LOADING_REGISTERS = 56;
  Pipe<1> own;
  Pipe<2> first;   // of which scores are made
  Pipe<1> second;  // of which dP and Y are made
  Pipe<1> given;
  Pipe<2> later;  // second, in a second pass
  uint32_t turn;  // the loaders' to start that
  DEVICE explicit WideFlow(uint32_t base)
      : own(base), first(base + own.BYTES), second(first.base + first.BYTES), given(second.base + second.BYTES), later(given.base + given.BYTES),
        turn(later.base + later.BYTES) {}

  // start is false in warps that load.
  DEVICE bool start() {
    if (threadIdx.x == 0) {
      own.init(32 * LOADERS, WARPS);
      first.init(32 * LOADERS, WARPS);
      second.init(32 * LOADERS, WARPS);
      given.init(WARPS / 2, WARPS / 2);
      later.init(32 * LOADERS, WARPS / 2);
      barrierInit(turn, WARPS);
      barrierInitDone();
    }
    __syncthreads();
    if (warp() < LOADERS) {
      startLoading<LOADING_REGISTERS>();
      return false;
    }
    startComputing<LOADING_REGISTERS>();
    own.await();
    sharedToAsync();
    return true;
  }
  DEVICE static void together() { groupSync(1, 32 * WARPS); }
  // makesScores tells which of the warpgroups this is.
  DEVICE static bool makesScores() { return warpgroupIndex() == LOADERS / 4; }
  template <int STAGES> DEVICE static void await(Pipe<STAGES>& tiles) {
    tiles.await();
    sharedToAsync();
  }
};

template <class E, int D, int KEYS, class Score> struct WideQueries : SecondQueries<E, D, 4, KEYS, 2, Score> {
  using Base = SecondQueries<E, D, 4, KEYS, 2, Score>;
  using Base::a;
  using Base::COLUMNS;
  using Base::dO;
  using Base::g;
  using Base::head;
  using Base::keyHead;
  using Base::mine;
  using Base::q;
  using Base::row;
  using Base::s;
  using Base::u;
  using typename Base::Block;
  using typename Base::Ends;
  using typename Base::Multiply;
  using typename Base::Online;
  using typename Base::Operands;
  using typename Base::Other;
  using typename Base::Own;
  using typename Base::Pairs;
  using typename Base::RowsOfLane;
  using typename Base::Two;
  using Sums = float[1][D / 8][4];
  static constexpr int VECTORS = 2 * COLUMNS;

  WideFlow flow;
  const uint32_t pairs1, pairs2;  // where tiles of K and UK pass, and those of V and UV
  const PairsGiven<VECTORS> pairs;
  const Tiles tiles;

  DEVICE WideQueries(const SecondArguments& g, int sequence, int head, int tile)
      : Base(g, sequence, head, tile), flow(sharedBase()), pairs1(dO.base + Own::BYTES), pairs2(pairs1 + 4 * Other::BYTES),
        pairs{pairs2 + 2 * Other::BYTES}, tiles(keyTiles<KEYS>(this->mask, row, 64)) {
    static_assert(2 * Other::BYTES >= Own::BYTES, "results pass through tiles of V and UV");
    static_assert(4 * Other::BYTES >= D / 8 * 128 * 16, "O passes through tiles of K and UK");
  }

  DEVICE Other k(int stage) const { return {pairs1 + stage * 2 * Other::BYTES}; }
  DEVICE Other uk(int stage) const { return {k(stage).base + Other::NEXT}; }
  DEVICE Other v() const { return {pairs2}; }
  DEVICE Other uv() const { return {v().base + Other::NEXT}; }
  // In the second pass the first warpgroup has Q and UQ in registers, and V has their place too.
  DEVICE Other v(int stage) const { return {stage ? q.base : pairs2}; }
  DEVICE int count() const { return tiles.end - tiles.first; }
  DEVICE Pairs pairsOf(int step) const { return Base::pairs(head, row, (tiles.first + step) * KEYS); }

  DEVICE void run() {
    if (row >= s.sq) return;
    if (!flow.start()) {
      load();
    } else if (flow.makesScores()) {
      makeOutputs();
      makeWeights();
    } else {
      sumOutputs();
      sumQueries();
    }
  }

  DEVICE void load() {
    const bool aligned = this->aligned();
    this->loadQueries(q, u, dO, head, row);
    announceCopies(flow.own.full(0), aligned);
    const int batch = a.k.batch ? s.batch : 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; pass++) {
      if (pass == 1) barrierWait(flow.turn, 0);
      // Room for keys comes first in the first pass, for values in the second one.
#pragma unroll 1
      for (int n = 0; n < 2 * count(); n++) {
        const int key = (tiles.first + n / 2) * KEYS;
        if (n % 2 == pass) {
          flow.first.awaitEmpty();
          const int stage = flow.first.stage();
          k(stage).template load<LOADERS>(matrixOf<E>(a.k, batch, keyHead, s.k0, s.sk, a.d), key);
          uk(stage).template load<LOADERS>(matrixOrZeros<E>(g, g.uk, batch, keyHead, s.k0, s.sk, a.d), key);
          announceCopies(flow.first.full(stage), aligned);
        } else {
          if (pass == 0) flow.second.awaitEmpty();
          else flow.later.awaitEmpty();
          const Other values = pass == 0 ? v() : v(flow.later.stage());
          values.template load<LOADERS>(matrixOf<E>(a.v, batch, keyHead, s.k0, s.sk, a.dv), key);
          Other{values.base + Other::NEXT}.template load<LOADERS>(matrixOrZeros<E>(g, g.uv, batch, keyHead, s.k0, s.sk, a.dv), key);
          announceCopies(pass == 0 ? flow.second.full(0) : flow.later.full(flow.later.stage()), aligned);
        }
      }
    }
    copyWait<0>();
  }

  DEVICE void startScores(Block& x, Block& t, int stage) const {
    Multiply::start(x, q, k(stage));
    Multiply::start(t, u, k(stage));
    Multiply::startMore(t, q, uk(stage));
    Multiply::commit();
  }

  // makeOutputs is the first pass of the first warpgroup: it finds what rows need and sums O.
  DEVICE void makeOutputs() {
    Sums o;
    clear(o);
    Online online;
    Block x, t;
    const auto begin = [&] {
      flow.await(flow.first);
      startScores(x, t, flow.first.stage());
    };
    if (count() > 0) {
      begin();
#pragma unroll 1
      for (int step = 0;;) {
        Pairs pairs = pairsOf(step);
        Block r, none;
        Multiply::template wait<0>(x);
        Multiply::template wait<0>(t);
        flow.first.release();
        this->points(pairs, x, r, none, t);
        float factors[2];
        this->template rise<true>(online, pairs, x, r, none, none, factors);
        Operands p(x), turned(r);
        flow.given.awaitEmpty();
        give(p, turned, factors);
        flow.given.announce();
        if (__any_sync(~0u, factors[0] != 1 || factors[1] != 1)) Base::scaleSums(o, factors);
        flow.await(flow.second);
        Multiply::add(o, p, v(), 0);
        Multiply::commit();
        Multiply::template wait<0>(o);  // else ptxas puts all products in a row
        flow.second.release();
        if (++step == count()) break;
        begin();
      }
    }
    flow.together();  // nobody needs tiles
    const PairsGiven<D / 8> outputs{pairs1};
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const Ends e = this->template endsOf<true>(half, online);
      mine[half] = {e.lse, e.R, 0, 0};
      float sum = 0;
#pragma unroll
      for (int j = 0; j < D / 8; j++) {
        const float2 d = this->outputGradients(half, j);
        o[0][j][2 * half] *= e.scale, o[0][j][2 * half + 1] *= e.scale;
        sum += d.x * o[0][j][2 * half] + d.y * o[0][j][2 * half + 1];
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      pairs.give(2 * half, {e.lse, e.R, e.ofSink, sum});
      pairs.give(2 * half + 1, {e.off, e.scale, 0, 0});
    }
#pragma unroll
    for (int j = 0; j < D / 8; j++) outputs.give(j, o[0][j]);
    flow.together();
  }

  // give passes P and P·(r − shift), rounded, and what sums are multiplied with before.
  DEVICE void give(const Operands& p, const Operands& turned, const float (&factors)[2]) const {
#pragma unroll
    for (int n = 0; n < COLUMNS / 2; n++) {
      storeShared16(pairs.at(n), *(const uint4*)(p.x + 4 * n));
      storeShared16(pairs.at(n + COLUMNS / 2), *(const uint4*)(turned.x + 4 * n));
    }
    pairs.give(COLUMNS, {factors[0], factors[1], 0, 0});
  }

  // sumOutputs is the first pass of the second warpgroup: ddO.
  DEVICE void sumOutputs() {
    Sums ofDO;
    clear(ofDO);
#pragma unroll 1
    for (int step = 0; step < count(); step++) {
      Operands p, turned;
      float factors[4];
      flow.given.await();
#pragma unroll
      for (int n = 0; n < COLUMNS / 2; n++) {
        *(uint4*)(p.x + 4 * n) = loadShared16(pairs.at(n));
        *(uint4*)(turned.x + 4 * n) = loadShared16(pairs.at(n + COLUMNS / 2));
      }
      pairs.take(COLUMNS, factors);
      flow.given.release();
      flow.first.n++, flow.first.release();  // which it does not need
      const float two[2] = {factors[0], factors[1]};
      if (__any_sync(~0u, two[0] != 1 || two[1] != 1)) Base::scaleSums(ofDO, two);
      flow.await(flow.second);
      Multiply::add(ofDO, turned, v(), 0);
      Multiply::add(ofDO, p, uv(), 0);
      Multiply::commit();
      Multiply::template wait<0>(ofDO);
      flow.second.release();
    }
    flow.together();
    flow.together();  // O is there
    const PairsGiven<D / 8> outputs{pairs1};
    float H[2] = {}, ends[2][4], more[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) pairs.take(2 * half, ends[half]), pairs.take(2 * half + 1, more[half]);
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
      float out[4];
      outputs.take(j, out);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float2 d = this->outputGradients(half, j);
        float* const c = ofDO[0][j] + 2 * half;
        c[0] = c[0] * more[half][1] - more[half][0] * out[2 * half];
        c[1] = c[1] * more[half][1] - more[half][0] * out[2 * half + 1];
        H[half] += d.x * c[0] + d.y * c[1];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      H[half] += __shfl_xor_sync(~0u, H[half], 1);
      H[half] += __shfl_xor_sync(~0u, H[half], 2);
      const float* const e = ends[half];
      this->record(half, Ends{e[0], e[1], e[2], 0, 0, 0}, e[3], H[half]);
    }
    this->finish(ofDO, 1, Own{pairs2}, matrixOf<E>(g.dDO, s.batch, head, s.q0, s.sq, a.dv), row, 0);
    __syncwarp();
    if (lane() == 0) barrierArrive(flow.turn);
  }

  // makeWeights is the second pass of the first warpgroup: P and r − R.
  DEVICE void makeWeights() {
    typename Multiply::Kept ofQ, ofU;
    ofQ.load(q, 16 * Base::worker());
    ofU.load(u, 16 * Base::worker());
    __syncwarp();
    if (lane() == 0) barrierArrive(flow.turn);
#pragma unroll 1
    for (int step = 0; step < count(); step++) {
      Block x, t, r, none;
      flow.await(flow.first);
      const int stage = flow.first.stage();
      Multiply::template multiplyKept<true>(x, ofQ, k(stage));
      Multiply::template multiplyKept<true>(t, ofU, k(stage));
      Multiply::template multiplyKept<false>(t, ofQ, uk(stage));
      Multiply::commit();
      Multiply::template wait<0>(x);
      Multiply::template wait<0>(t);
      flow.first.release();
      Pairs of = pairsOf(step);
      this->weigh(of, RowsOfLane{mine}, x, r, none, t);
      flow.given.awaitEmpty();
      givePairs(pairs, x, r);
      flow.given.announce();
    }
  }

  // sumQueries is the second pass of the second warpgroup: dq.
  DEVICE void sumQueries() {
    Sums sums;
    clear(sums);
    Two outputs;
    Block &dP = outputs.first(), &y = outputs.second();
    const auto begin = [&] {
      flow.await(flow.later);
      Multiply::startTwo(outputs.c, dO, v(flow.later.stage()));
      Multiply::commit();
    };
    if (count() > 0) {
      begin();
#pragma unroll 1
      for (int step = 0;;) {
        Block p, r, none, t;
        const RowsOfLane rows{mine};
        Multiply::template wait<0>(dP);
        Multiply::template wait<0>(y);
        flow.later.release();
        flow.given.await();
        takePairs(pairs, p, r);
        flow.given.release();
        const Pairs of = pairsOf(step);
        this->toGradients(of, rows, p, r, dP, none, t);
        Operands W(dP);
        this->toSecond(of, rows, [&](int j, int e) { return p[0][j][e]; }, r, y, none, t);
        Operands M(y);
        flow.await(flow.first);
        Multiply::add(sums, W, uk(flow.first.stage()), 0);
        Multiply::add(sums, M, k(flow.first.stage()), 0);
        Multiply::commit();
        Multiply::template wait<0>(sums);
        flow.first.release();  // at once: loaders need long for the next
        if (++step == count()) break;
        begin();
      }
    }
    this->finish(sums, a.scale, Own{pairs2}, matrixOf<E>(a.dQ, s.batch, head, s.q0, s.sq, a.d), row, 0);
  }

  template <class Given> static DEVICE void givePairs(const Given& to, const Block& p, const Block& r) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) to.give(j, p[0][j]), to.give(COLUMNS + j, r[0][j]);
  }
  template <class Given> static DEVICE void takePairs(const Given& from, Block& p, Block& r) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) from.take(j, p[0][j]), from.take(COLUMNS + j, r[0][j]);
  }
};

template <class E, int D, int ROWS, class Score> struct WideKeys : SecondKeys<E, D, 4, ROWS, 2, Score> {
  using Base = SecondKeys<E, D, 4, ROWS, 2, Score>;
  using Base::a;
  using Base::COLUMNS;
  using Base::g;
  using Base::k;
  using Base::key;
  using Base::keyHead;
  using Base::s;
  using Base::uk;
  using Base::uv;
  using Base::v;
  using typename Base::Block;
  using typename Base::Multiply;
  using typename Base::Operands;
  using typename Base::Other;
  using typename Base::Own;
  using typename Base::Pairs;
  using typename Base::Row;
  using typename Base::RowsOfTile;
  using typename Base::Single;
  using Sums = float[1][D / 8][4];

  WideFlow flow;
  const uint32_t first, second;  // where tiles of Q and UQ pass, and those of dO
  const PairsGiven<2 * COLUMNS> pairs;
  const uint32_t rows;
  const Tiles tiles;

  DEVICE WideKeys(const SecondArguments& g, int sequence, int keyHead, int tile)
      : Base(g, sequence, keyHead, tile), flow(sharedBase()), first(uv.base + Own::BYTES), second(first + 4 * Other::BYTES),
        pairs{second + Other::BYTES}, rows(pairs.base + pairs.BYTES), tiles(queryTiles<ROWS, true>(this->mask, key, 64)) {
    static_assert(4 * Other::BYTES >= 2 * Own::BYTES, "both results pass through tiles of Q and UQ");
  }

  DEVICE Other q(int stage) const { return {first + stage * 2 * Other::BYTES}; }
  DEVICE Other u(int stage) const { return {q(stage).base + Other::NEXT}; }
  DEVICE Single dO() const { return {second}; }
  DEVICE int count() const { return (tiles.end - tiles.first) * (a.heads / a.keyHeads); }
  DEVICE RowsOfTile rowsOf(int stage) const { return {rows + stage * ROWS * (int)sizeof(Row)}; }
  DEVICE Pairs pairsOf(int step) const { return Base::pairs(this->headOf(tiles, step), key, this->tileOf(tiles, step) * ROWS); }

  DEVICE void run() {
    if (key >= s.sk) return;
    if (!flow.start()) load();
    else if (flow.makesScores()) sumValues();
    else sumKeys();
  }

  DEVICE void load() {
    const bool aligned = this->aligned();
    this->loadKeys(k, uk, v, uv, keyHead, key);
    announceCopies(flow.own.full(0), aligned);
#pragma unroll 1
    for (int step = 0; step < count(); step++) {
      const int head = this->headOf(tiles, step), row = this->tileOf(tiles, step) * ROWS;
      flow.first.awaitEmpty();
      const int stage = flow.first.stage();
      q(stage).template load<LOADERS>(matrixOf<E>(a.q, s.batch, head, s.q0, s.sq, a.d), row);
      u(stage).template load<LOADERS>(matrixOrZeros<E>(g, g.uq, s.batch, head, s.q0, s.sq, a.d), row);
      this->fetchRows(rowsOf(stage).base, head, row);
      announceCopies(flow.first.full(stage), aligned);
      flow.second.awaitEmpty();
      dO().template load<LOADERS>(matrixOf<E>(a.dO, s.batch, head, s.q0, s.sq, a.dv), row);
      announceCopies(flow.second.full(0), aligned);
    }
    copyWait<0>();
  }

  // sumValues is the first warpgroup's: dv.
  DEVICE void sumValues() {
    Sums ofV;
    clear(ofV);
    Block x, t;
    const auto begin = [&] {
      flow.await(flow.first);
      const int stage = flow.first.stage();
      Multiply::start(x, k, q(stage));
      Multiply::start(t, uk, q(stage));
      Multiply::startMore(t, k, u(stage));
      Multiply::commit();
    };
    if (count() > 0) {
      begin();
#pragma unroll 1
      for (int step = 0;;) {
        Block r, none;
        Multiply::template wait<0>(x);
        Multiply::template wait<0>(t);
        Pairs of = pairsOf(step);
        this->weigh(of, rowsOf(flow.first.stage()), x, r, none, t);
        flow.first.release();
        flow.given.awaitEmpty();
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) pairs.give(j, x[0][j]), pairs.give(COLUMNS + j, r[0][j]);
        flow.given.announce();
        this->turned(of, x, r, x);
        Operands turned(x);
        flow.await(flow.second);
        Multiply::add(ofV, turned, dO(), 0);
        Multiply::commit();
        Multiply::template wait<0>(ofV);
        flow.second.release();
        if (++step == count()) break;
        begin();
      }
    }
    flow.together();  // nobody needs tiles
    this->finish(ofV, 1, Own{first}, matrixOf<E>(a.dV, s.batch, keyHead, s.k0, s.sk, a.dv), key, 0);
  }

  // sumKeys is the second one's: dk.
  DEVICE void sumKeys() {
    Sums ofK;
    clear(ofK);
    Block dP, y;
    const auto begin = [&] {
      flow.await(flow.second);
      Multiply::start(dP, v, dO());
      Multiply::start(y, uv, dO());
      Multiply::commit();
    };
    if (count() > 0) {
      begin();
#pragma unroll 1
      for (int step = 0;;) {
        Block p, r, none, t;
        Multiply::template wait<0>(dP);
        Multiply::template wait<0>(y);
        flow.second.release();
        flow.await(flow.first);
        const int stage = flow.first.stage();
        flow.given.await();
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) pairs.take(j, p[0][j]), pairs.take(COLUMNS + j, r[0][j]);
        flow.given.release();
        const Pairs of = pairsOf(step);
        this->toGradients(of, rowsOf(stage), p, r, dP, none, t);
        Operands W(dP);
        this->toSecond(of, rowsOf(stage), [&](int j, int e) { return p[0][j][e]; }, r, y, none, t);
        Operands M(y);
        Multiply::add(ofK, W, u(stage), 0);
        Multiply::add(ofK, M, q(stage), 0);
        Multiply::commit();
        Multiply::template wait<0>(ofK);
        flow.first.release();
        if (++step == count()) break;
        begin();
      }
    }
    flow.together();
    this->finish(ofK, a.scale, Own{first + Own::BYTES}, matrixOf<E>(a.dK, s.batch, keyHead, s.k0, s.sk, a.d), key, 0);
  }
};
