// The producer warpgroup of attention backward for sm_90a, a role a warp: loading, statistics, and
// the order of the sums of dQ.
#pragma once
#include "attention_backward_slants_sm90.cuh"

// KeyRows is where a tile's keys begin in memory: in as many pieces, of equal size, as lie apart.
template <class Shape> struct KeyRows {
  static constexpr int Pieces = 1;
  const int first;
  DEVICE KeyRows(const BackwardRecord<Shape>& record) : first(record.k0() + record.key()) {}
  DEVICE int operator[](int) const { return first; }
};

// backwardLoader is one thread's part: it draws the tiles and loads K, V, Q and dO.
template <class Shape>
DEVICE void backwardLoader(const CUtensorMap* qMap, const CUtensorMap* kMap, const CUtensorMap* vMap, const CUtensorMap* oMap,
                           const CUtensorMap* biasMap, const AttentionArguments& a, uint32_t shared, const BackwardBarriers<Shape>& barriers) {
  const BackwardQueue<Shape> queue(a);
  Ring<2> slot(1);
  Ring<Shape::Stages> q(1), o(1);
  uint32_t parity = 1, biasParity = 1;
  const bool mapped = BackwardOptions<Shape>(a).mapped;
  for (int index = blockIdx.x;; index = queue.draw()) {
    const BackwardTile t = queue.at(index);
    if (t.tile >= 0 && t.tile * Shape::TileK >= sequenceOf(a, t.sequence).sk) continue;
    barrierWait(barriers.emptyTile(slot.stage), slot.parity);
    const BackwardRecord<Shape> record = barriers.record(slot.stage);
    record.put(a, t);
    barrierArrive(barriers.fullTile(slot.stage));
    slot.advance();
    if (t.tile < 0) return queue.finish();

    BackwardSteps<Shape> steps(a, record);
    if (!steps.left) continue;
    const int batch = record.batch(), keyBatch = keyBatchOf(a, batch), q0 = record.q0();
    const KeyRows<Shape> keys(record);
    const auto loadQ = [&]() {
      barrierWait(barriers.emptyQ(q.stage), q.parity);
      barrierExpect(barriers.fullQ(q.stage), Shape::QBytes);
      for (int c = 0; c < Shape::Chunks; c++)
        loadBox(shared + Shape::QAt + q.stage * Shape::QBytes + c * Shape::QChunk, qMap, barriers.fullQ(q.stage), c * 64,
                q0 + steps.m * Shape::TileQ, steps.head, batch);
      q.advance();
    };
    const auto loadO = [&]() {
      barrierWait(barriers.emptyO(o.stage), o.parity);
      barrierExpect(barriers.fullO(o.stage), Shape::OBytes);
      for (int c = 0; c < Shape::ChunksV; c++)
        loadBox(shared + Shape::OAt + o.stage * Shape::OBytes + c * Shape::QChunk, oMap, barriers.fullO(o.stage), c * 64,
                q0 + steps.m * Shape::TileQ, steps.head, batch);
      o.advance();
    };
    const auto loadKeys = [&](const CUtensorMap* map, uint32_t full, int to, int chunks) {
      constexpr int rows = Shape::TileK / KeyRows<Shape>::Pieces;
      barrierExpect(full, chunks * Shape::KChunk);
      for (int n = 0; n < KeyRows<Shape>::Pieces; n++)
        for (int c = 0; c < chunks; c++)
          loadBox(shared + to + c * Shape::KChunk + n * rows * 128, map, full, c * 64, keys[n], t.keyHead, keyBatch);
    };
    const auto loadBias = [&]() {
      if (!mapped) return;
      barrierWait(barriers.emptyBias(), biasParity);
      biasParity ^= 1;
      barrierExpect(barriers.fullBias(), a.biasRow == 0 ? Shape::TileK / 64 * 128 : Shape::BiasBytes);
      BackwardSteps<Shape> ahead = steps;
      ahead.next();
      for (int c = 0; c < Shape::TileK / 64; c++) {
        const int column = t.tile * Shape::TileK + c * 64, sequence = a.biasSequence ? t.sequence : 0;
        const auto rowOf = [&](const BackwardSteps<Shape>& s) { return a.biasRow == 0 ? 0 : s.m * Shape::TileQ; };
        loadBoxOnce(shared + Shape::BiasAt + c * Shape::QChunk, biasMap, barriers.fullBias(), column, rowOf(steps),
                    a.biasHead ? steps.head : 0, sequence);
        if (ahead.left) prefetchBox(biasMap, column, rowOf(ahead), a.biasHead ? ahead.head : 0, sequence);
      }
    };
    loadQ();
    barrierWait(barriers.emptyKV(), parity);
    parity ^= 1;
    loadKeys(kMap, barriers.fullK(), Shape::KAt, Shape::Chunks);
    loadBias();
    loadO();
    loadKeys(vMap, barriers.fullV(), Shape::VAt, Shape::ChunksV);
    for (steps.next(); steps.left; steps.next()) {
      loadQ();
      loadBias();
      loadO();
    }
  }
}

// backwardStats is a warp's part: it brings LSE, as keptLSE, and δ without keepScaleAfter.
// LSE is +∞ where P must be 0: in rows that see no keys and rows beyond the end. Where slopes come
// by product it brings what a step needs of them.
template <class Shape>
DEVICE void backwardStats(const AttentionArguments& a, uint32_t shared, const BackwardBarriers<Shape>& barriers) {
  constexpr int PerLane = (Shape::TileQ + 31) / 32;
  const int lane = threadIdx.x & 31;
  const float deltaScale = Shape::Modified ? 1 / keepScaleAfter(a) : 1;
  Ring<2> slot(0);
  Ring<Shape::Stages> ring(1);
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next()) {
      const int64_t row = ((int64_t)record.batch() * a.heads + steps.head) * a.sq + record.q0();
      const int sq = record.sq();
      float lse[PerLane], delta[PerLane];
      const BackwardSlant<Shape> slant(a, record, steps);
#pragma unroll
      for (int i = 0; i < PerLane; i++) {
        const int at = steps.m * Shape::TileQ + i * 32 + lane;
        lse[i] = at >= sq ? -INFINITY : Shape::Score::CHANGES ? keptLSE<false>(slant.lse(a.lse[row + at])) : a.lse[row + at] * LOG2E;
        delta[i] = at < sq ? a.delta[row + at] * deltaScale : 0;
        if (lse[i] == -INFINITY) lse[i] = INFINITY;
      }
      barrierWait(barriers.emptyQ(ring.stage), ring.parity);
      const uint32_t to = shared + Shape::StatsAt + ring.stage * Shape::TileQ * 8 + lane * 4;
#pragma unroll
      for (int i = 0; i < PerLane; i++)
        if (i * 32 + lane < Shape::TileQ) {
          storeShared4(to + i * 128, lse[i]);
          storeShared4(to + Shape::TileQ * 4 + i * 128, delta[i]);
        }
      slant.put(shared, ring.stage, lse);
      barrierArrive(barriers.fullStats(ring.stage));
      ring.advance();
    }
    __syncwarp();
    barriers.releaseRecord(slot, lane == 0);
  }
}

// backwardTurns is one thread's part: it says when the consumers may add a step's dQ to the sums.
// The first tile of keys writes rather than adds, so all others wait for it, and for each other
// where their order counts.
template <class Shape> DEVICE void backwardTurns(const AttentionArguments& a, const BackwardBarriers<Shape>& barriers) {
  Ring<2> slot(0);
  uint32_t n = 0;
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next(), n++) {
      const int order = record.order(steps.m), needed = a.deterministic ? order : min(order, 1);
      const int32_t* const done = a.counters + 2 + Shape::Sums::place(a, record.sequence(), steps.head, steps.m);
      if (needed)
        while (loadAcquire(done) < needed) {
        }
      if (n) barrierWait(barriers.turn(), n - 1 & 1);
      barrierArrive(barriers.turn());
    }
    barriers.releaseRecord(slot, true);
  }
}

// storeBox writes the map's box at the coordinates (column, row, head, batch), which nobody will
// read soon.
DEVICE void storeBox(const CUtensorMap* map, uint32_t from, int column, int row, int head, int batch) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3, %4, %5}], [%1], %6;" ::
               "l"((uint64_t)map), "r"(from), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(policy) : "memory");
}

// storesRead waits until all that the thread stores has been read.
DEVICE void storesRead() { asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory"); }

// backwardAdded is one thread's part: it tells other blocks that dQ has been added. One fence
// covers what all consumers did. Before a step's dQ is added its dS is there, which is the gradient
// of a bias alone.
template <class Shape>
DEVICE void backwardAdded(const CUtensorMap* dBiasMap, const AttentionArguments& a, uint32_t shared, const BackwardBarriers<Shape>& barriers) {
  const bool sending = BackwardOptions<Shape>(a).sending;
  Ring<2> slot(0);
  uint32_t n = 0;
  barrierArrive(barriers.turn());
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next(), n++) {
      const int order = record.order(steps.m);
      int32_t* const done = a.counters + 2 + Shape::Sums::place(a, record.sequence(), steps.head, steps.m);
      if constexpr (Shape::Biased) {
        if (sending) {
          constexpr uint32_t Buffers = Shape::Late + 1;
          const uint32_t buffer = n % Buffers;
          barrierWait(barriers.fullDS(buffer), n / Buffers & 1);
          for (int c = 0; c < Shape::TileK / 64; c++)
            storeBox(dBiasMap, shared + Shape::DSAt + buffer * Shape::DSBytes + c * Shape::QChunk, record.key() + c * 64,
                     steps.m * Shape::TileQ, steps.head, record.sequenceIndex());
          storesRead();
          barrierArrive(barriers.emptyDS(buffer));
        }
      }
      barrierWait(barriers.added(), n & 1);
      barrierArrive(barriers.turn());
      if (a.deterministic || order == 0) storeRelease(done, order + 1);
    }
    barriers.releaseRecord(slot, true);
  }
}
