// The warpgroup of attention backward for sm_90a that only kernels with options have.
#pragma once
#include "attention_backward_barriers_sm90.cuh"

// BackwardHelpers is what the warpgroup does that only kernels with options have: it draws which
// elements dropout drops, and stores dS, rounded as it lies in shared memory, as the gradient of
// the bias.
template <class Shape> struct BackwardHelpers {
  using Steps = BackwardSteps<Shape>;
  static constexpr int TileQ = Shape::TileQ, TileK = Shape::TileK;

  const AttentionArguments& a;
  const uint32_t shared;
  const int thread, lane, warp;
  uint32_t n = 0;

  DEVICE BackwardHelpers(const AttentionArguments& a, uint32_t shared)
      : a(a), shared(shared), thread(threadIdx.x % 128), lane(threadIdx.x % 32), warp(threadIdx.x / 32 % 4) {}
  DEVICE BackwardBarriers<Shape> barriers() const { return {shared + Shape::BarriersAt}; }

  DEVICE void run() {
    const BackwardOptions<Shape> options(a);
    if (!options.dropping && !options.storing) return;
    Ring<2> slot(0);
    for (;;) {
      const BackwardRecord<Shape> record = barriers().getRecord(slot);
      if (record.sequenceIndex() < 0) return;
      Steps steps(a, record);
      if (steps.left) {
        if (options.dropping) draw(steps);
        n++;
        // The next step is drawn for before this one's dS is waited for.
        for (steps.next(); steps.left; steps.next()) {
          if (options.dropping) draw(steps);
          if (options.storing) store(steps.record, steps.before());
          n++;
        }
        if (options.storing) store(steps.record, steps.before());
      }
      __syncwarp();
      barriers().releaseRecord(slot, lane == 0);
    }
  }

  // draw leaves, for each 16 bytes of four words, the bits of four keys (every other one of eight,
  // since these have the same half of a counter's words) and of two neighbouring queries in each
  // eight, what is dropped. Of a block of 16 keys and 64 queries a lane draws eight keys (r = lane
  // / 8 mod 2) and four queries 8·i + pair + e, for i of one half of the eight (lane / 16). Word
  // 2·r + i/4 has queries with e = 0 in its lower half, e = 1 in its upper one, where drop looks
  // for them.
  DEVICE void draw(const Steps& steps) const {
    constexpr int Halves = TileQ / 64, Blocks = TileK / 16 * Halves / 4;
    static_assert(4 % Halves == 0, "a warp's blocks have the same queries");
    const int e = lane / 4 % 2, r = lane / 8 % 2, upper = lane / 16;
    const Dropper dropper(a, Sequence{steps.record.sequenceIndex()}, steps.head);
    const int key = steps.record.key() + 8 * r + warp / Halves * 16;
    const int query = steps.m * TileQ + warp % Halves * 64 + 32 * upper + lane % 4 * 2 + e;
    uint32_t drawn[Blocks];
    if (dropper.dropsFew())
      drawBlocks<true>(dropper, query, key, drawn);
    else
      drawBlocks<false>(dropper, query, key, drawn);
    barrierWait(barriers().emptyBits(), n & 1 ^ 1);
#pragma unroll
    for (int b = 0; b < Blocks; b++) {
      const int block = warp + 4 * b, quad = block / Halves * 8 + lane % 4;
      const uint32_t to = shared + Shape::BitsAt + (quad * Halves + block % Halves) * 16 + r * 8 + upper * 4 + e * 2;
      storeShared2(to, drawn[b]);
      storeShared2(to + 4 * Halves * 16, drawn[b] >> 16);
    }
    __syncwarp();
    if (lane == 0) barrierArrive(barriers().fullBits());
  }
  // drawBlocks draws for four rows, eight apart, and the eight columns of each block. Of each half
  // of drawn, a byte is for the first and the third word of the counters, and one for the other
  // two, with two bits a row.
  template <bool Few, int Blocks> static DEVICE void drawBlocks(const Dropper& dropper, int i, int j, uint32_t (&drawn)[Blocks]) {
    constexpr int apart = TileK / Blocks;
#pragma unroll
    for (int b = 0; b < Blocks; b++) drawn[b] = 0;
#pragma unroll 1
    for (int part = 3; part >= 0; part--) {
#pragma unroll
      for (int b = 0; b < Blocks; b++) {
        uint4 words[1] = {dropper.counter(i + 8 * part, j + apart * b)};
        dropper.draw(words);
        const uint32_t w0 = dropper.keptOf<Few>(words[0].x), w1 = dropper.keptOf<Few>(words[0].y);
        const uint32_t w2 = dropper.keptOf<Few>(words[0].z), w3 = dropper.keptOf<Few>(words[0].w);
        drawn[b] = drawn[b] >> 2 | ~__byte_perm(w0, w1, 0x7351) & 0x80808080;
        drawn[b] |= ~__byte_perm(w2, w3, 0x7351) >> 1 & 0x40404040;
      }
    }
  }

  // store stores dS of step n - 1, or adds it where several scores share an element.
  DEVICE void store(const BackwardRecord<Shape>& record, BackwardStep step) const {
    const uint32_t buffer = (n - 1) % 2, from = shared + Shape::DSAt + buffer * Shape::DSBytes;
    const int rows = min(TileQ, record.sq() - step.m * TileQ), keys = min(TileK, record.sk() - record.key());
    const int64_t plane = record.sequenceIndex() * a.dBiasSequence + step.head * a.dBiasHead;
    const int64_t at = plane + step.m * TileQ * a.dBiasRow + record.key() * a.dBiasColumn;
    barrierWait(barriers().fullDS(buffer), (n - 1) / 2 & 1);
    if (a.dBiasSums && a.dBiasColumn == 0)
      addRows((float*)a.dBias + at, from, rows, keys);
    else if (a.dBiasSums && a.dBiasRow == 0)
      addColumns((float*)a.dBias + at, from, rows, keys);
    else if (a.dBiasSums || a.biasElement == ElementF32)
      storeRows((float*)a.dBias + at, from, rows, keys);
    else
      storeRows((Scalar*)a.dBias + at, from, rows, keys);
    __syncwarp();
    if (lane == 0) barrierArrive(barriers().emptyDS(buffer));
  }
  // addColumns adds the sums over the rows. A thread has two columns, for some of the rows.
  DEVICE void addColumns(float* to, uint32_t from, int rows, int keys) const {
    constexpr int Parts = 128 / (TileK / 2);
    const int column = thread % (TileK / 2) * 2;
    float x = 0, y = 0;
#pragma unroll 8
    for (int row = thread / (TileK / 2); row < rows; row += Parts) {
      const float2 both = unpack(loadShared4(from + place(row, column)));
      x += both.x;
      y += both.y;
    }
    if (column < keys) atomicAdd(to + column, x);
    if (column + 1 < keys) atomicAdd(to + column + 1, y);
  }
  // addRows adds the sums over the keys. A thread has a row, or more of them.
  DEVICE void addRows(float* to, uint32_t from, int rows, int keys) const {
    for (int row = thread; row < rows; row += 128) {
      float x = 0;
#pragma unroll 4
      for (int column = 0; column < keys; column += 2) {
        const float2 both = unpack(loadShared4(from + place(row, column)));
        x += both.x + (column + 1 < keys ? both.y : 0);
      }
      atomicAdd(to + row * a.dBiasRow, x);
    }
  }
  static DEVICE uint32_t place(int row, int column) {
    return column / 64 * Shape::QChunk + row * 128 + ((column % 64 / 8 ^ row % 8) << 4) + column % 8 * 2;
  }
  // storeRows gives each lane 16 bytes of a row, and neighbouring lanes neighbouring ones.
  template <class Element> DEVICE void storeRows(Element* to, uint32_t from, int rows, int keys) const {
    constexpr int Columns = 16 / sizeof(Element), Lanes = 64 / Columns, Step = 128 / Lanes, Batch = 2;
    static_assert(Step % 8 == 0 && TileQ % (Step * Batch) == 0, "a thread's rows must be swizzled alike");
    const bool aligned = (uint64_t)to % 16 == 0 && a.dBiasRow * sizeof(Element) % 16 == 0;
    const int first = thread / Lanes;
#pragma unroll 1
    for (int i = 0; i < TileK / 64 * TileQ; i += Step * Batch) {
      const int column = i / TileQ * 64 + thread % Lanes * Columns, row = i % TileQ + first;
      const uint32_t source = from + place(row, column);
      Element* line = to + row * a.dBiasRow + column;
      Words<Columns / 2> x[Batch];
#pragma unroll
      for (int n = 0; n < Batch; n++) x[n].load(source + n * Step * 128);
#pragma unroll
      for (int n = 0; n < Batch; n++, line += Step * a.dBiasRow) {
        if (row + n * Step >= rows || column >= keys) continue;
        if (aligned && column + Columns <= keys)
          put(line, x[n].words);
        else
          putSome(line, x[n].words, keys - column);
      }
    }
  }
  template <int N> struct Words {
    uint32_t words[N];
    DEVICE void load(uint32_t from) {
      if constexpr (N == 4) {
        const uint4 x = loadShared16(from);
        words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
      } else {
        const float2 x = loadShared8(from);
        words[0] = __float_as_uint(x.x), words[1] = __float_as_uint(x.y);
      }
    }
  };
  DEVICE void put(Scalar* to, const uint32_t (&x)[4]) const { __stcs((uint4*)to, make_uint4(x[0], x[1], x[2], x[3])); }
  DEVICE void put(float* to, const uint32_t (&x)[2]) const {
    const float2 p = unpack(x[0]), q = unpack(x[1]);
    if (a.dBiasSums)
      addFloats4(to, p.x, p.y, q.x, q.y);
    else
      __stcs((float4*)to, make_float4(p.x, p.y, q.x, q.y));
  }
  template <class Element, int N> DEVICE void putSome(Element* to, const uint32_t (&x)[N], int count) const {
#pragma unroll
    for (int e = 0; e < 2 * N; e++) {
      const float2 both = unpack(x[e / 2]);
      if (e < count) putOne(to + e, e % 2 ? both.y : both.x);
    }
  }
  DEVICE void putOne(Scalar* to, float x) const { *to = Scalar(x); }
  DEVICE void putOne(float* to, float x) const {
    if (a.dBiasSums)
      atomicAdd(to, x);
    else
      *to = x;
  }
};
