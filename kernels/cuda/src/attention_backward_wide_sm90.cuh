// Attention backward for sm_90a, heads of more than 128: a tile is 64 keys, and the consumer
// warpgroups divide the work by what it is for, since dK and dV of 64 keys fill the registers of
// one each.
//
//   warpgroup 0: S, P, dV          P goes through shared memory to
//   warpgroup 1: dP, dS, dK        dS goes through shared memory to both, for dQ one step late
//
// Slices of dQ alternate between them.
#pragma once
#include "attention_backward_scores_sm90.cuh"

template <class Shape> struct BackwardWideConsumer : BackwardScores<Shape> {
  using Base = BackwardScores<Shape>;
  using typename Base::Record;
  using typename Base::Steps;
  using typename Base::Sums;
  using Base::a, Base::barriers, Base::group, Base::keysParity, Base::lane, Base::n, Base::shared, Base::slot, Base::TileQ;
  using Base::parityOf, Base::stageOf;
  using Base::thread, Base::Changes, Base::Modified;

  using Base::Base;

  DEVICE void run() {
    for (;;) {
      const Record record = barriers().getRecord(slot);
      if (record.sequenceIndex() < 0) return;
      Steps steps(a, record);
      this->begin(steps);
      if (group == 0) {
        float dv[Shape::DV / 2];
#pragma unroll
        for (int i = 0; i < Shape::DV / 2; i++) dv[i] = 0;
        float s[TileQ / 2];
        if (steps.left) {
          this->waitK(steps);
          this->waitQ(steps, n);
          this->startScores(s, n);
          productWait<0>();
          pin(s);
          walk(steps, [&](auto masked, auto first) { stepValues(steps, s, dv, masked, first); });
        }
        this->store(dv, a.dV, record, a.dv, Modified && a.dropThreshold ? a.keepScale : 1.f);
      } else {
        float dk[Shape::D / 2];
#pragma unroll
        for (int i = 0; i < Shape::D / 2; i++) dk[i] = 0;
        float dp[TileQ / 2];
        if (steps.left) {
          this->waitK(steps);
          barrierWait(barriers().fullV(), keysParity);
          this->waitO(steps, n);
          this->startOutputs(dp, n);
          productWait<0>();
          pin(dp);
          if (lane() == 0) barrierArrive(barriers().emptyO(stageOf(n)));
          walk(steps, [&](auto masked, auto first) { stepKeys(steps, dp, dk, masked, first); });
        }
        this->store(dk, a.dK, record, a.d, Modified ? a.scale * keepScaleAfter(a) : a.scale);
      }
      __syncwarp();
      barriers().releaseRecord(slot, lane() == 0);
    }
  }

  template <class Step> DEVICE void walk(Steps& steps, Step step) {
    keysParity ^= 1;
    step(Yes{}, Yes{});
    const int cleanFirst = steps.cleanFirst(), cleanEnd = steps.cleanEnd();
    while (steps.left) {
      // Two loops, so that the one over whole tiles has no code for the mask.
#pragma unroll 1
      while (steps.left && (steps.m < cleanFirst || steps.m >= cleanEnd)) step(Yes{}, No{});
#pragma unroll 1
      while (steps.left && steps.m >= cleanFirst && steps.m < cleanEnd) step(No{}, No{});
    }
    // dQ of the last step.
    this->waitDS(n - 1);
    for (int slice = group; slice < Sums::Slices; slice += 2) {
      float dq[Sums::Registers];
      this->startSlice(dq, n - 1, slice);
      productWait<0>();
      pin(dq);
      if (slice + 2 >= Sums::Slices) this->releaseDS(n - 1);
      this->add(dq, n - 1, steps.before(), slice);
    }
    if (lane() == 0) barrierArrive(barriers().emptyKV());
  }

  // stepValues does one query tile, whose S is there, for dV; it does its slices of dQ of the step
  // before, and the next S.
  template <class Masked, class First>
  DEVICE void stepValues(Steps& steps, float (&s)[TileQ / 2], float (&dv)[Shape::DV / 2], Masked, First) {
    this->settle();
    const uint32_t stage = stageOf(n);
    uint32_t p[TileQ / 4];
    uint32_t dropped[Modified ? TileQ / 4 : 1];  // P without what dropout drops
    uint32_t(&forValues)[TileQ / 4] = this->values(p, dropped);
    barrierWait(barriers().fullStats(stage), parityOf(n));
    this->probabilities(s, p, forValues, steps, Masked{});
    putP(p);
    if (lane() == 0) barrierArrive(barriers().emptyQ(stage));

    this->waitO(steps, n);
    pin(forValues);
    pin(dv);
    this->startGradient(dv, forValues, shared + Shape::OAt + stage * Shape::OBytes);
    float dq[Sums::Registers];
    if (!First::value) {
      this->waitDS(n - 1);
      this->startSlice(dq, n - 1, 0);
      productWait<1>();
    } else {
      productWait<0>();
    }
    pin(dv);
    pin(forValues);
    if (lane() == 0) barrierArrive(barriers().emptyO(stage));
    const BackwardStep before = steps.before();
    n++;
    steps.next();
    // After the last step this multiplies old data, in vain: a product under a condition would be
    // serialised.
    if (steps.left) this->waitQ(steps, n);
    this->startScores(s, n);
    if (!First::value) addSlices(dq, before, 0);
    productWait<0>();
    pin(s);
  }

  // stepKeys does one query tile, whose dP is there, for dK; it does its slices of dQ of the step
  // before, and the next dP.
  template <class Masked, class First>
  DEVICE void stepKeys(Steps& steps, float (&dp)[TileQ / 2], float (&dk)[Shape::D / 2], Masked, First) {
    this->settle();
    const uint32_t stage = stageOf(n);
    uint32_t p[TileQ / 4], packed[TileQ / 4];
    barrierWait(barriers().fullStats(stage), parityOf(n));
    getP(p);
    this->gradients(dp, p, p, dp, packed, steps, Masked{});
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().emptyP(bufferP()));
    this->putDS(packed);

    this->waitQ(steps, n);
    pin(packed);
    pin(dk);
    this->startGradient(dk, packed, shared + Shape::QAt + stage * Shape::QBytes);
    float dq[Sums::Registers];
    if (!First::value) {
      this->waitDS(n - 1);
      this->startSlice(dq, n - 1, 1);
      productWait<1>();
    } else {
      productWait<0>();
    }
    pin(dk);
    pin(packed);
    if (lane() == 0) barrierArrive(barriers().emptyQ(stage));
    const BackwardStep before = steps.before();
    n++;
    steps.next();
    if (steps.left) this->waitO(steps, n);
    this->startOutputs(dp, n);
    if (!First::value) addSlices(dq, before, 1);
    productWait<0>();
    pin(dp);
    if (steps.left && lane() == 0) barrierArrive(barriers().emptyO(stageOf(n)));
  }

  // addSlices adds the slice of dQ that has been started, behind which the next S or dP is under
  // way, and the group's others.
  template <int N> DEVICE void addSlices(float (&dq)[N], BackwardStep before, int first) {
    productWait<1>();
    pin(dq);
    if (first + 2 >= Sums::Slices) this->releaseDS(n - 2);
    this->add(dq, n - 2, before, first);
#pragma unroll
    for (int slice = first + 2; slice < Sums::Slices; slice += 2) {
      this->startSlice(dq, n - 2, slice);
      productWait<0>();
      pin(dq);
      if (slice + 2 >= Sums::Slices) this->releaseDS(n - 2);
      this->add(dq, n - 2, before, slice);
    }
  }

  // With options P goes through the first buffer alone, since the second has another use.
  DEVICE uint32_t bufferP() const { return Changes ? 0 : n % 2; }
  DEVICE uint32_t parityP() const { return (Changes ? n : n / 2) & 1; }

  DEVICE void putP(const uint32_t (&p)[TileQ / 4]) {
    barrierWait(barriers().emptyP(bufferP()), parityP() ^ 1);
    const uint32_t to = shared + Shape::PAt + bufferP() * Shape::PBytes + thread() * 16;
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++)
      storeShared16(to + i * 2048, make_uint4(p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]));
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().fullP(bufferP()));
  }
  // getP's buffer is given back after gradients, which reads the gains beside it.
  DEVICE void getP(uint32_t (&p)[TileQ / 4]) {
    barrierWait(barriers().fullP(bufferP()), parityP());
    const uint32_t from = shared + Shape::PAt + bufferP() * Shape::PBytes + thread() * 16;
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++) load(p + 4 * i, from + i * 2048);
  }
  static DEVICE void load(uint32_t* to, uint32_t from) {
    const uint4 x = loadShared16(from);
    to[0] = x.x;
    to[1] = x.y;
    to[2] = x.z;
    to[3] = x.w;
  }
};
