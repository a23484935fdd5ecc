// The barriers by which the roles of attention backward for sm_90a wait for each other.
#pragma once
#include "attention_backward_tiles_sm90.cuh"
#include "ring.cuh"

// BackwardBarriers are the addresses of the block's barriers in shared memory, and behind them the
// records of the two tiles last drawn.
template <class Shape> struct BackwardBarriers {
  uint32_t base;
  DEVICE uint32_t fullK() const { return base; }
  DEVICE uint32_t fullV() const { return base + 8; }
  DEVICE uint32_t emptyKV() const { return base + 16; }
  DEVICE uint32_t fullTile(int slot) const { return base + 24 + 8 * slot; }
  DEVICE uint32_t emptyTile(int slot) const { return base + 40 + 8 * slot; }
  DEVICE uint32_t fullDS(int buffer) const { return base + 56 + 8 * buffer; }
  DEVICE uint32_t emptyDS(int buffer) const { return base + 72 + 8 * buffer; }
  DEVICE uint32_t turn() const { return base + 88; }   // dQ may be added to the sums
  DEVICE uint32_t added() const { return base + 96; }  // it has been
  DEVICE uint32_t fullBits() const { return base + 104; }
  DEVICE uint32_t emptyBits() const { return base + 112; }
  DEVICE uint32_t fullQ(int stage) const { return base + 120 + 8 * stage; }
  DEVICE uint32_t emptyQ(int stage) const { return fullQ(Shape::Stages + stage); }
  DEVICE uint32_t fullO(int stage) const { return fullQ(2 * Shape::Stages + stage); }
  DEVICE uint32_t emptyO(int stage) const { return fullQ(3 * Shape::Stages + stage); }
  DEVICE uint32_t fullStats(int stage) const { return fullQ(4 * Shape::Stages + stage); }
  // P between the warpgroups of wide shapes.
  DEVICE uint32_t fullP(int buffer) const { return base + 200 + 8 * buffer; }
  DEVICE uint32_t emptyP(int buffer) const { return base + 216 + 8 * buffer; }
  DEVICE uint32_t fullBias() const { return base + 232; }
  DEVICE uint32_t emptyBias() const { return base + 240; }
  DEVICE BackwardRecord<Shape> record(int slot) const {
    return {base + Shape::RecordsAt - Shape::BarriersAt + BackwardRecord<Shape>::Bytes * slot};
  }

  DEVICE void init(const AttentionArguments& a) const {
    static_assert(120 + 5 * 8 * Shape::Stages <= 200, "barriers overlap");
    constexpr int warps = Shape::Consumers;
    const BackwardOptions<Shape> options(a);
    const int helpers = options.dropping || options.storing ? 4 : 0;
    barrierInit(fullK(), 1);
    barrierInit(fullV(), 1);
    barrierInit(emptyKV(), warps);
    for (int i = 0; i < 2; i++) {
      barrierInit(fullTile(i), 1);
      barrierInit(emptyTile(i), warps + 3 + helpers);
      barrierInit(fullDS(i), Shape::Wide ? warps / 2 : warps);
      barrierInit(emptyDS(i), warps + (options.storing ? 4 : options.sending ? 1 : 0));
      barrierInit(fullP(i), warps / 2);
      barrierInit(emptyP(i), warps / 2);
    }
    for (int i = 0; i < Shape::Stages; i++) {
      barrierInit(fullQ(i), 1);
      barrierInit(emptyQ(i), warps);
      barrierInit(fullO(i), 1);
      barrierInit(emptyO(i), warps);
      barrierInit(fullStats(i), 32);
    }
    barrierInit(turn(), 2);
    barrierInit(added(), warps);
    barrierInit(fullBits(), 4);
    barrierInit(emptyBits(), Shape::Wide ? warps / 2 : warps);
    barrierInit(fullBias(), 1);
    barrierInit(emptyBias(), Shape::Wide ? warps / 2 : warps);
    barrierInitDone();
  }
  // getRecord waits for the next tile's record; one thread of each warp that does so gives it back
  // when it is done.
  DEVICE BackwardRecord<Shape> getRecord(const Ring<2>& slot) const {
    barrierWait(fullTile(slot.stage), slot.parity);
    return record(slot.stage);
  }
  DEVICE void releaseRecord(Ring<2>& slot, bool leader) const {
    if (leader) barrierArrive(emptyTile(slot.stage));
    slot.advance();
  }
};
