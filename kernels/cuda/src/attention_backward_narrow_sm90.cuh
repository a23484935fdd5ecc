// Attention backward for sm_90a, heads of up to 128, and of 192 with values of 128 where a tile has
// few queries: each consumer warpgroup has dK and dV of 64 of the tile's 128 keys, and computes one
// of the two slices of dQ. A third slice both compute, each for half of the queries. Of tiles of 64
// keys one warpgroup has all, and computes both slices.
#pragma once
#include "attention_backward_scores_sm90.cuh"

template <class Shape> struct BackwardNarrowConsumer : BackwardScores<Shape> {
  using Base = BackwardScores<Shape>;
  using typename Base::Record;
  using typename Base::Steps;
  using typename Base::Sums;
  using Base::a, Base::barriers, Base::group, Base::keysParity, Base::lane, Base::n, Base::shared, Base::slot, Base::TileQ;
  using Base::Modified, Base::parityOf, Base::stageOf;
  static constexpr int Late = Shape::Late;
  static constexpr bool Shares = Shape::Groups == 2 && Sums::Slices == 3;  // the third slice
  static constexpr int SharedRegisters = Shares ? Base::SharedRegisters : 1;

  float s[TileQ / 2], dk[Shape::D / 2], dv[Shape::DV / 2];

  using Base::Base;

  DEVICE void run() {
    for (;;) {
      const Record record = barriers().getRecord(slot);
      if (record.sequenceIndex() < 0) return;
      Steps steps(a, record);
      this->begin(steps);
#pragma unroll
      for (int i = 0; i < Shape::D / 2; i++) dk[i] = 0;
#pragma unroll
      for (int i = 0; i < Shape::DV / 2; i++) dv[i] = 0;
      if (steps.left) walk(steps);
      this->store(dv, a.dV, record, a.dv, Modified && a.dropThreshold ? a.keepScale : 1.f);
      this->store(dk, a.dK, record, a.d, Modified ? a.scale * keepScaleAfter(a) : a.scale);
      __syncwarp();
      barriers().releaseRecord(slot, lane() == 0);
    }
  }

  DEVICE void walk(Steps& steps) {
    this->waitK(steps);
    this->waitQ(steps, n);
    this->startScores(s, n);
    productWait<0>();
    pin(s);
    barrierWait(barriers().fullV(), keysParity);
    keysParity ^= 1;
    step(steps, Yes{}, Yes{});
    const int cleanFirst = steps.cleanFirst(), cleanEnd = steps.cleanEnd();
    while (steps.left) {
      // Two loops, so that the one over whole tiles has no code for the mask.
#pragma unroll 1
      while (steps.left && (steps.m < cleanFirst || steps.m >= cleanEnd)) step(steps, Yes{}, No{});
#pragma unroll 1
      while (steps.left && steps.m >= cleanFirst && steps.m < cleanEnd) step(steps, No{}, No{});
    }
    if constexpr (Late == 0) {
      if (lane() == 0) barrierArrive(barriers().emptyKV());
      return;
    }
    // dQ of the last step.
    float dq[Sums::Registers], common[SharedRegisters];
    this->waitDS(n - 1);
    startSlices(dq, common, n - 1);
    productWait<0>();
    pin(dq);
    if constexpr (Shares) pin(common);
    this->releaseDS(n - 1);
    if (lane() == 0) barrierArrive(barriers().emptyKV());
    addSlices(dq, common, n - 1, steps.before());
  }

  // step does one query tile, whose S is there, except for its dQ; it does the dQ of the step
  // before, and the next S.
  template <class Masked, class First> DEVICE void step(Steps& steps, Masked, First) {
    this->settle();
    const uint32_t stage = stageOf(n);
    this->waitO(steps, n);
    float dp[TileQ / 2];
    uint32_t p[TileQ / 4], packed[TileQ / 4];    // P and dS, rounded
    uint32_t dropped[Modified ? TileQ / 4 : 1];  // P without what dropout drops
    uint32_t(&forValues)[TileQ / 4] = this->values(p, dropped);
    this->startOutputs(dp, n);
    barrierWait(barriers().fullStats(stage), parityOf(n));
    this->probabilities(s, p, forValues, steps, Masked{});
    productWait<0>();
    pin(dp);

    pin(forValues);
    pin(dv);
    this->startGradient(dv, forValues, shared + Shape::OAt + stage * Shape::OBytes);
    this->gradients(s, p, forValues, dp, packed, steps, Masked{});
    this->putDS(packed);

    float dq[Sums::Registers], common[SharedRegisters];
    // A second slice of a warpgroup alone is computed beside the next S.
    constexpr bool adds = Late == 0 || !First::value, second = Shape::Groups < Sums::Slices && !Shares;
    if (adds) {
      this->waitDS(n - Late);
      startSlices(dq, common, n - Late);
    }
    pin(packed);
    pin(dk);
    this->startGradient(dk, packed, shared + Shape::QAt + stage * Shape::QBytes);
    productWait<1>();
    pin(dv);
    pin(forValues);
    if (adds) {
      pin(dq);
      if constexpr (Shares) pin(common);
      if (!second) this->releaseDS(n - Late);
      addSlices(dq, common, n - Late, stepOfSums(steps));
    }
    const BackwardStep same = stepOfSums(steps);
    if (second) this->startSlice(dq, n - Late, group + Shape::Groups);
    // The next S runs beside dK where there are registers for both.
    if constexpr (Shape::RoundedP) waitGradient<second>(packed);
    n++;
    steps.next();
    // After the last step this multiplies old data, in vain: a product under a condition would be
    // serialised.
    if (steps.left) this->waitQ(steps, n);
    this->startScores(s, n);
    if constexpr (!Shape::RoundedP) waitGradient<1>(packed);
    if constexpr (second) {
      productWait<1>();
      pin(dq);
      this->releaseDS(n - 1);
      this->add(dq, n - 1, same, group + Shape::Groups);
    }
    if (lane() == 0) {
      barrierArrive(barriers().emptyO(stage));
      barrierArrive(barriers().emptyQ(stage));
    }
    // Nothing may be in flight over a loop's back edge: the compiler would make all products wait.
    productWait<0>();
    pin(s);
  }

  // startSlices starts the group's slice of dQ of step n and its part of one that is shared,
  // addSlices adds them.
  DEVICE void startSlices(float (&dq)[Sums::Registers], float (&common)[SharedRegisters], uint32_t n) const {
    this->startSlice(dq, n, group);
    if constexpr (Shares) this->startSharedSlice(common, n, 2);
  }
  DEVICE void addSlices(const float (&dq)[Sums::Registers], const float (&common)[SharedRegisters], uint32_t n, BackwardStep step) const {
    if constexpr (Shares) {
      this->add(dq, n, step, group, false);
      this->add(common, n, step, 2, true);
    } else {
      this->add(dq, n, step, group);
    }
  }

  // stepOfSums is the step whose dQ is added.
  static DEVICE BackwardStep stepOfSums(const Steps& steps) {
    if constexpr (Late == 0)
      return {steps.m, steps.head};
    else
      return steps.before();
  }

  // waitGradient waits for dK, behind which Behind products are under way.
  template <int Behind = 0> DEVICE void waitGradient(uint32_t (&packed)[TileQ / 4]) {
    productWait<Behind>();
    pin(dk);
    pin(packed);
  }
};
