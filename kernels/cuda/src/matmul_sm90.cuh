// Matrix products for sm_90a: C = act(A·B + bias) of 16-bit or 8-bit operands, summed in float32.
//
// A block is one producer warp and two consumer warpgroups. The producer brings slices of the depth
// (128 bytes: 64 or 128 numbers), TileRows rows of A and TileColumns columns of B, into a ring of
// Stages buffers by TMA; the consumers multiply them (wgmma) into registers.
//
//   Together: both warpgroups have half the rows of one tile of C. Large tiles read the least.
//   In turns: each has a tile of its own, so that one's way out, bias, activation and stores, goes
//   on beside the other's products.
//
// What leaves goes through shared memory, 16 rows of a warp at a time, and from there by TMA beside
// what comes next. Two blocks of a cluster have tiles below each other: each brings half of B's
// slice for both. Where there is one row of tiles, they have tiles beside each other, and each
// brings what it needs. Those that share A have tiles beside each other too, and each brings half
// of A's slice for both; B's columns are then tile by tile to its map, whose inner axis counts
// tiles.
//
// Blocks are persistent. Clusters take whole tiles in turns; where these do not come out even, the
// last of them are streamed: their slices are dealt out evenly, so that a tile's depth may be cut
// between clusters. The one that has the beginning of the depth, which it does last, waits for the
// sums of those that follow, and adds them in order.
//
// Further factors are added to the product: their depth follows that of A and B, slices of their own,
// by maps of their own. What a slice has beyond their depth are zeros.
//
// Operands that were split from float32 (matmul_split.cu) have one or two parts, and a scale for
// each row of A and column of B, which results are multiplied by. Of two parts, hi·hi + hi·lo +
// lo·hi are summed; the tensor cores cut sums off instead of rounding them, so each slice's are
// added to the others by ordinary additions.
//
// Operands of 8 bits (float8.cu) have such scales too. Tensor cores keep some 14 bits of their
// sums, so those of two slices are added to the others by ordinary additions.
//
// Grouped products (grouped.cuh) have groups of A's rows, or of the depth, whose sizes are on the
// device. Clusters find their tiles there: each takes whole ones, which begin where the group does.
// Rows of A behind the group's end are multiplied and do not leave; of the depth they become zeros.
//
// What becomes of the sums of a tile is an epilogue's to say: matmul_epilogue_sm90.cuh.
#pragma once
#include "float8.cuh"
#include "grouped.cuh"
#include "ring.cuh"
#include "wgmma_float8.cuh"

// Operands are what tensor cores multiply: Depth numbers in the 128 bytes of a slice's row, their
// Product of a warpgroup, and the Scale of a row or column, if it has one. SumSlices is how many
// slices they sum, 0 for all.
struct Words {
  static constexpr int Depth = 64, SumSlices = 0;
  using Scale = ::Scale;
  template <int Columns> using Product = Wgmma<Columns>;
};
struct Float8 {
  static constexpr int Depth = 128, SumSlices = 2;
  using Scale = Float8Scale;
  template <int Columns> using Product = WgmmaFloat8<Columns>;
};

// RowBlocks is how many times 64 rows a warpgroup has; Buffers is how many a warp has for what
// leaves; SplitParts is 0 where operands are not split; ShareA is whether the blocks of a cluster
// do. EpilogueOf says what it needs of a shape:
//
//   TWO_FACTORS  half of a tile's columns are of A·B, the other half the same ones of A·BUp, and
//                each block of a cluster brings one of them. B and BUp are places of the inner axis
//                of one map
//   BRINGS       something comes into the buffers from which C leaves, and arrives at barriers of
//                its own
//   Of<Shape>    what a warp knows of its tiles
//     beside(consumer, leaving)      is called beside the products of each slice
//     deliver(consumer, p, leaving)  finishes a tile whose sums are complete, and lets it leave
//     end(consumer, leaving)         is called after the last tile
//
// GroupsOf is what belongs to groups.
enum GroupedBy { Ungrouped = 0, GroupsOfRows = 1, GroupsOfDepth = 2 };
template <bool InTurns, int RowBlocks, int Columns, int RingStages, int Buffers, int ClusterBlocks, int SplitParts, bool ShareA, class OperandsOf, class EpilogueOf,
          GroupedBy GroupsOf>
struct MatMulShape {
  using Operands = OperandsOf;
  using Scale = typename Operands::Scale;
  using Epilogue = EpilogueOf;
  static constexpr GroupedBy By = GroupsOf;
  static constexpr bool Turns = InTurns, SharesA = ShareA;
  static constexpr int Blocks = RowBlocks, TileColumns = Columns, Stages = RingStages, Cluster = ClusterBlocks;
  static constexpr int Groups = Turns ? 1 : 2;  // that share a tile
  static constexpr int TileRows = 64 * Blocks * Groups, Depth = Operands::Depth, Threads = 384;
  static constexpr bool Scaled = SplitParts > 0;
  static constexpr int Parts = Scaled ? SplitParts : 1;
  static constexpr int SumSlices = Parts == 2 ? 1 : Operands::SumSlices;
  // Columns of B's rows that lie side by side in shared memory, and all of them. What is more than
  // the tile's columns are zeros.
  static constexpr int BChunk = Epilogue::TWO_FACTORS ? 32 : 64, BColumns = (TileColumns + BChunk - 1) / BChunk * BChunk;
  static constexpr int ABytes = TileRows * 128, BBytes = BColumns * 128, StageBytes = Parts * (ABytes + BBytes);
  static constexpr int OutBytes = 16 * 128, OutBuffers = Buffers, OutAt = Stages * StageBytes;
  static constexpr int BiasAt = OutAt + 8 * OutBuffers * OutBytes, ScalesAt = BiasAt + 2 * TileColumns * 4, BarriersAt = ScalesAt + (Scaled ? 2 * TileColumns * 4 : 0);
  static constexpr int TurnsAt = BarriersAt + 2 * Stages * 8, ArrivedAt = TurnsAt + 2 * 8;
  static constexpr int SharedBytes = ArrivedAt + (Epilogue::BRINGS ? 8 * OutBuffers * 8 : 0);
  static constexpr int Sums = TileColumns / 2;  // of a thread in a row block
  // columns of 16-bit results that leave side by side
  static constexpr int Chunk = TileColumns % 64 == 0 && !Epilogue::TWO_FACTORS ? 64 : 32;
  // of a tile of C
  static constexpr int OutColumns = Epilogue::TWO_FACTORS ? TileColumns / 2 : TileColumns;
  // in which 16-bit results of a row block leave a warp
  static constexpr int Boxes = TileColumns / Chunk;
  // 16-bit results do, for the next tile's products to begin
  static constexpr bool Waits = !Turns && !Scaled && Blocks == 1;
};

// How the result leaves: element by element, or by TMA as 16-bit numbers, as floats, or as floats
// added to C.
enum Way : int32_t { Elements = 0, Halves = 1, Floats = 2, AddedFloats = 3 };

struct MatMulSchedule {
  int32_t whole;     // tiles of a cluster that are not streamed, which come first in order
  int32_t tiles;     // all
  int32_t across, down;  // tiles of a cluster in an item
  int32_t beside;        // whether a cluster has tiles beside each other
  int32_t band;      // tiles below each other that are visited together
  int32_t slices;    // of the depth
  int32_t way;       // Way
  int32_t period;    // of streamed slices
  int32_t second, third;  // slices at which the second and the third factors begin; none where they end
  int32_t swapped;        // of B and BUp: BUp is place 0 of the inner axis of their map
};

// Maps are those of a call. Factors that there are not have any.
struct Maps {
  const CUtensorMap *a[3], *b[3], *c, *pre;
};

// Piece is some of the depth of a tile: slices [from, to), visited from `first` on and then from
// the beginning.
struct Piece {
  int item, row, column, from, to, first;
  // Of a group: its first row, the first one behind it, and whether the tiles of the cluster are
  // beside each other.
  int begins, ends;
  bool beside;
};

// placeInBands is where a block of a cluster has a tile of an item: the number-th, of so many of a
// cluster below each other.
template <class Shape> DEVICE void placeInBands(Piece& p, const MatMulSchedule& s, int number, int down) {
  const int first = number / (s.band * s.across) * s.band, high = min(s.band, down - first);
  number -= first * s.across;
  const int below = first + number % high, across = number / high, rank = blockIdx.x % Shape::Cluster;
  p.row = (Shape::SharesA ? below : below * Shape::Cluster + rank) * Shape::TileRows;
  p.column = (Shape::SharesA ? across * Shape::Cluster + rank : across) * Shape::OutColumns;
}

// Pieces are those of a cluster, in order: the same for all its threads.
template <class Shape, bool Grouped = Shape::By != Ungrouped> struct Pieces {
  const MatMulSchedule& s;
  int began, at, end;  // slices of the streamed tiles
  int tile;
  DEVICE Pieces(const MatMulSchedule& s, const GroupedArguments*) : s(s), tile(cluster()) {
    const int64_t all = (int64_t)(s.tiles - s.whole) * s.slices;
    began = at = (int)(all * cluster() / clusters());
    end = (int)(all * (cluster() + 1) / clusters());
  }
  static DEVICE int cluster() { return blockIdx.x / Shape::Cluster; }
  static DEVICE int clusters() { return gridDim.x / Shape::Cluster; }
  // clusterOf is the one that has a slice of the streamed tiles.
  DEVICE int clusterOf(int slice) const {
    const int64_t all = (int64_t)(s.tiles - s.whole) * s.slices;
    return (int)((((int64_t)slice + 1) * clusters() - 1) / all);
  }
  DEVICE bool next(Piece& p) {
    int t;
    if (at < end) {
      t = s.whole + at / s.slices;
      p.from = at % s.slices;
      p.to = min(s.slices, p.from + end - at);
      // Clusters that are at the same slice at the same time find each other's operands in the L2
      // cache. So each begins where the slice's number fits what it has done so far, in a period
      // that is the same for all.
      const int fit = ((at - began - p.from) % s.period + s.period) % s.period;
      p.first = p.from + (fit < p.to - p.from ? fit : 0);
      at += p.to - p.from;
    } else {
      if (tile >= s.whole) return false;
      t = tile;
      tile += clusters();
      p.from = p.first = 0, p.to = s.slices;
    }
    const int each = s.across * s.down;
    p.item = t / each;
    t -= p.item * each;
    if (s.beside) {
      p.row = 0;
      p.column = (t * Shape::Cluster + blockIdx.x % Shape::Cluster) * Shape::TileColumns;
      return true;
    }
    placeInBands<Shape>(p, s, t, s.down);
    return true;
  }
};

// Of groups, pieces are whole tiles. Where a group has an odd number of tiles below each other, the
// last ones are beside each other in a cluster, and each block brings half of A's slice for both.
template <class Shape> struct Pieces<Shape, true> {
  static_assert(Shape::Cluster == 2 && Shape::TileRows == 128 && !Shape::SharesA && !Shape::Scaled);
  const MatMulSchedule& s;
  const GroupedArguments& a;
  int tile, group = 0;  // number of the tile from the group's first on
  DEVICE Pieces(const MatMulSchedule& s, const GroupedArguments* a) : s(s), a(*a), tile(blockIdx.x / 2) {}

  // all counts the tiles of a cluster that a group has of so many below each other.
  DEVICE int all(int down) const { return down / 2 * s.across + down % 2 * ((s.across + 1) / 2); }

  DEVICE bool next(Piece& p) {
    int down = s.down;
    if constexpr (Shape::By == GroupsOfDepth) {
      const int each = all(down);
      group += tile / each, tile %= each;
      if (group >= a.groups) return false;
      p.begins = __ldg(a.offsets + group), p.ends = __ldg(a.offsets + group + 1);
      p.to = max(1, (p.ends - p.begins + Shape::Depth - 1) / Shape::Depth);  // of no depth a slice of zeros
    } else {
      p.ends = __ldg(a.offsets + group);
      for (;; group++) {
        if (group >= a.groups) return false;
        p.begins = p.ends, p.ends = __ldg(a.offsets + group + 1);
        down = (p.ends - p.begins + Shape::TileRows - 1) / Shape::TileRows;
        const int each = all(down);
        if (tile < each) break;
        tile -= each;
      }
      p.to = s.slices;
    }
    p.item = group, p.from = p.first = 0;
    const int pairs = down / 2, last = tile - pairs * s.across;
    p.beside = last >= 0;
    if (p.beside) p.row = (down - 1) * Shape::TileRows, p.column = (2 * last + blockIdx.x % 2) * Shape::TileColumns;
    else placeInBands<Shape>(p, s, tile, pairs);
    if constexpr (Shape::By == GroupsOfRows) p.row += p.begins;
    tile += gridDim.x / 2;
    return true;
  }
};

// ---- clusters

template <class Shape> DEVICE void clusterSync() {
  if constexpr (Shape::Cluster > 1)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
}
// barrierArriveAt arrives at the barrier that lies at the same place in a block of the cluster.
DEVICE void barrierArriveAt(uint32_t barrier, int block) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(barrier), "r"(block) : "memory");
}
// loadBoxForAll is loadBox into all blocks of a cluster, each at the same place with the barrier
// there.
template <int Cluster>
DEVICE void loadBoxForAll(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int row, int inner, int outer) {
  if constexpr (Cluster == 1) {
    loadBox(to, map, barrier, column, row, inner, outer);
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
        "l"((uint64_t)map), "r"(barrier), "r"(column), "r"(row), "r"(inner), "r"(outer), "h"((uint16_t)((1 << Cluster) - 1))
        : "memory");
  }
}

// ---- stores by TMA, of boxes of 16 rows of 128 bytes

DEVICE void storeBox(const CUtensorMap* map, uint32_t from, int column, int row, int inner, int outer) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"((uint64_t)map),
               "r"(from), "r"(column), "r"(row), "r"(inner), "r"(outer) : "memory");
}
DEVICE void addBox(const CUtensorMap* map, uint32_t from, int column, int row, int inner, int outer) {
  asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"((uint64_t)map),
               "r"(from), "r"(column), "r"(row), "r"(inner), "r"(outer) : "memory");
}
DEVICE void storeCommit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// storeWait waits until all but the last PENDING groups of stores have read their shared memory.
template <int PENDING> DEVICE void storeWait() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory"); }
// copyToShared16 begins to copy 16 bytes for the thread, copyCommit ends a group of copies, and
// copyWait waits for all groups but the last PENDING.
DEVICE void copyToShared16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
DEVICE void copyCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void copyWait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// ---- the producer

template <class Shape, bool AColumns, bool BRows>
DEVICE void produce(const Maps& maps, const MatMulArguments& g, const MatMulSchedule& s, const GroupedArguments* groups, uint32_t shared) {
  // of B's columns, that this block brings
  constexpr int Part = Shape::TileColumns / Shape::Cluster;
  const uint32_t full = shared + Shape::BarriersAt, empty = full + 8 * Shape::Stages;
  const int mine = blockIdx.x % Shape::Cluster * Part;
  prefetchMap(maps.a[0]);
  prefetchMap(maps.b[0]);
  Ring<Shape::Stages> ring(1);
  Pieces<Shape> pieces(s, groups);
  for (Piece p; pieces.next(p);) {
    const int outer = p.item / g.inner, inner = p.item % g.inner;
    const auto beside = [&] { return Shape::By == Ungrouped ? s.beside : p.beside; };
    const int firstDepth = Shape::By == GroupsOfDepth ? p.begins : 0;
    // A batch axis that an operand broadcasts has one place in its map.
    const int outerA = g.a.outer ? outer : 0, innerA = g.a.inner ? inner : 0, outerB = g.b.outer ? outer : 0, innerB = g.b.inner ? inner : 0;
    for (int left = p.to - p.from, slice = p.first; left > 0; left--, ring.advance(1), slice = slice + 1 < p.to ? slice + 1 : p.from) {
      const uint32_t barrier = full + 8 * ring.stage;
      barrierWait(empty + 8 * ring.stage, ring.parity);
      barrierExpect(barrier, Shape::StageBytes);
      const CUtensorMap *mapA = maps.a[0], *mapB = maps.b[0];
      int ofFactors = slice;
      if (!Shape::Scaled && !Shape::SharesA && Shape::By == Ungrouped && slice >= s.second) {
        const bool third = slice >= s.third;
        mapA = third ? maps.a[2] : maps.a[1], mapB = third ? maps.b[2] : maps.b[1];
        ofFactors -= third ? s.third : s.second;
      }
#pragma unroll
      for (int part = 0; part < Shape::Parts; part++) {
        const uint32_t a = shared + ring.stage * Shape::StageBytes + part * Shape::ABytes;
        const uint32_t b = shared + ring.stage * Shape::StageBytes + Shape::Parts * Shape::ABytes + part * Shape::BBytes;
        const int depth = firstDepth + ofFactors * Shape::Depth + part * g.lowDepth;
        if constexpr (Shape::SharesA) {
          static_assert(AColumns && Shape::TileRows == 64 * Shape::Cluster);
          const int row = blockIdx.x % Shape::Cluster * 64;
          loadBoxForAll<Shape::Cluster>(a + row * 128, mapA, barrier, p.row + row, depth, innerA, outerA);
        } else if (Shape::By != Ungrouped && p.beside) {
          const int row = blockIdx.x % Shape::Cluster * 64;
          if constexpr (AColumns) loadBoxForAll<Shape::Cluster>(a + row * 128, mapA, barrier, p.row + row, depth, innerA, outerA);
          else loadBoxForAll<Shape::Cluster>(a + row * 128, mapA, barrier, depth, p.row + row, innerA, outerA);
        } else if constexpr (AColumns) {
#pragma unroll
          for (int n = 0; n < Shape::TileRows; n += 64) loadBox(a + n * 128, mapA, barrier, p.row + n, depth, innerA, outerA);
        } else {
          constexpr int Rows = Shape::By == Ungrouped ? Shape::TileRows : 64;  // of a box
#pragma unroll
          for (int n = 0; n < Shape::TileRows; n += Rows) loadBox(a + n * 128, mapA, barrier, depth, p.row + n, innerA, outerA);
        }
        if constexpr (Shape::SharesA) {
          static_assert(BRows);
#pragma unroll
          for (int n = 0; n < Shape::TileColumns; n += Shape::BChunk)
            loadBox(b + n * 128, mapB, barrier, n, depth, p.column / Shape::TileColumns, 0);
        } else if constexpr (Shape::Epilogue::TWO_FACTORS) {
          static_assert(Shape::Cluster == 2);
          const int place = blockIdx.x % 2 ^ (slice < s.second ? s.swapped : 0);
          if constexpr (BRows) {
#pragma unroll
            for (int n = 0; n < Part; n += Shape::BChunk)
              loadBoxForAll<Shape::Cluster>(b + (mine + n) * 128, mapB, barrier, p.column + n, depth, place, 0);
          } else {
            loadBoxForAll<Shape::Cluster>(b + mine * 128, mapB, barrier, depth, p.column, place, 0);
          }
        } else if constexpr (BRows) {
          // A box is 64 columns of the slice's depth, or of half of it where a block's part is no
          // multiple of 64 columns.
          constexpr int Deep = Part % 64 == 0 ? 64 : 32, Boxes = Part / Deep;
          static_assert(Boxes * Deep == Part);
          if (beside()) {
#pragma unroll
            for (int box = 0; box < Boxes * Shape::Cluster; box++) {
              const int column = box * Deep / 64 * 64, k = box * Deep % 64;
              loadBox(b + column * 128 + k * 128, mapB, barrier, p.column + column, depth + k, innerB, outerB);
            }
            continue;
          }
#pragma unroll
          for (int n = 0; n < Boxes; n++) {
            const int box = blockIdx.x % Shape::Cluster * Boxes + n, column = box * Deep / 64 * 64, k = box * Deep % 64;
            loadBoxForAll<Shape::Cluster>(b + column * 128 + k * 128, mapB, barrier, p.column + column, depth + k, innerB, outerB);
          }
        } else if (beside()) {
#pragma unroll
          for (int n = 0; n < Shape::TileColumns; n += Part) loadBox(b + n * 128, mapB, barrier, depth, p.column + n, innerB, outerB);
        } else {
          loadBoxForAll<Shape::Cluster>(b + mine * 128, mapB, barrier, depth, p.column + mine, innerB, outerB);
        }
      }
    }
  }
}

// ---- the consumers

// Swizzle64 makes a descriptor's swizzle one of 64 bytes, which chunks of 32 columns have.
constexpr uint64_t Swizzle64 = 1ull << 62;

// Leaving is a warp's way out of registers: of 16 rows, through its buffers in shared memory.
template <int Buffers> struct Leaving {
  uint32_t buffers, turn = 0;
  DEVICE Leaving(uint32_t buffers) : buffers(buffers) {}

  // begin gives a buffer that is free.
  DEVICE uint32_t begin() {
    if ((threadIdx.x & 31) == 0) storeWait<Buffers - 1>();
    __syncwarp();
    const uint32_t buffer = buffers + turn * 2048;
    turn = (turn + 1) % Buffers;
    return buffer;
  }
  // put16 and put32 write a row's bytes for 8 columns under a swizzle of RowBytes, or of 128: of
  // four 8×8 matrices, or of a pair of floats.
  template <int RowBytes> static DEVICE void put16(uint32_t buffer, int unit, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const int lane = threadIdx.x & 31;
    storeMatrix4(buffer + swizzled<RowBytes>(lane % 16, unit + lane / 16), a, b, c, d);
  }
  // swizzled is where 16 bytes of a row lie.
  template <int RowBytes> static DEVICE uint32_t swizzled(int row, int unit) {
    const uint32_t at = row * RowBytes + unit * 16;
    return at ^ (at >> 3 & (RowBytes - 16));
  }
  static DEVICE void put32(uint32_t buffer, int group, int half, float x, float y) {
    const int lane = threadIdx.x & 31, row = lane / 4 + 8 * half, unit = 2 * group + lane % 4 / 2;
    storeShared8(buffer + row * 128 + (unit ^ (row & 7)) * 16 + lane % 2 * 8, x, y);
  }
};

template <class Shape> struct Consumer {
  const CUtensorMap *mapC, *mapPre;
  const MatMulArguments& g;
  const MatMulSchedule& s;
  const GroupedArguments* groups;
  uint32_t shared;
  using Out = Leaving<Shape::OutBuffers>;
  int group;  // 0 or 1
  float (&sum)[Shape::Blocks][Shape::Sums];
  uint32_t rowMost[Shape::Blocks][2];  // of this thread's two rows of a block of split operands

  // partial is where a block's sums of a tile's part are, this thread's first four.
  DEVICE float4* partial(int block) const {
    const int64_t each = Shape::TileRows * Shape::TileColumns / 4;
    return (float4*)g.partials + block * each + (Shape::Turns ? 0 : group) * (each / Shape::Groups) + threadIdx.x % 128;
  }
  DEVICE int32_t* flag(int block) const { return g.flags + 2 * block + (Shape::Turns ? 0 : group); }
  DEVICE void sync() const { groupSync(1 + group, 128); }

  // hand gives the sums to whoever has the beginning of the tile's depth.
  DEVICE void hand() const {
    float4* to = partial(blockIdx.x);
#pragma unroll
    for (int b = 0; b < Shape::Blocks; b++)
#pragma unroll
      for (int i = 0; i < Shape::Sums; i += 4)
        __stcg(to + 32 * (b * Shape::Sums + i), make_float4(sum[b][i], sum[b][i + 1], sum[b][i + 2], sum[b][i + 3]));
    __threadfence();
    sync();
    if (threadIdx.x % 128 == 0) storeRelease(flag(blockIdx.x), 1);
  }
  // collect adds what the clusters after this one have of the same tile, the last of which is
  // `last`. It comes by way of the warp's buffers, a thread's own sums several buffers ahead,
  // because sums leave few registers for what is on its way.
  DEVICE void collect(int last, const Out& leaving) const {
    constexpr int Ahead = Shape::OutBuffers, OfBuffer = 4, Rounds = Shape::Blocks * Shape::Sums / (4 * OfBuffer);
    const uint32_t mine = leaving.buffers + threadIdx.x % 32 * 16;
    if ((threadIdx.x & 31) == 0) storeWait<0>();
    __syncwarp();
    for (int other = Pieces<Shape>::cluster() + 1; other <= last; other++) {
      const int block = other * Shape::Cluster + blockIdx.x % Shape::Cluster;
      if (threadIdx.x % 128 == 0)
        while (!loadAcquire(flag(block))) {}
      sync();
      const float4* from = partial(block);
      const auto fetch = [&](int round) {
#pragma unroll
        for (int n = 0; n < OfBuffer && round < Rounds; n++)
          copyToShared16(mine + (round % Ahead * OfBuffer + n) * 512, from + 128 * (round * OfBuffer + n));
        copyCommit();
      };
#pragma unroll
      for (int round = 0; round < Ahead; round++) fetch(round);
#pragma unroll
      for (int round = 0; round < Rounds; round++) {
        copyWait<Ahead - 1>();
#pragma unroll
        for (int n = 0; n < OfBuffer; n++) {
          const uint4 x = loadShared16(mine + (round % Ahead * OfBuffer + n) * 512);
          const int at = 4 * (round * OfBuffer + n);
          float* to = &sum[at / Shape::Sums][at % Shape::Sums];
          to[0] += __uint_as_float(x.x), to[1] += __uint_as_float(x.y), to[2] += __uint_as_float(x.z), to[3] += __uint_as_float(x.w);
        }
        fetch(round + Ahead);
      }
      copyWait<0>();
      sync();
      if (threadIdx.x % 128 == 0) *flag(block) = 0;
    }
  }

  // Columns are the bias of the tile's columns, and their scales, on the way, beside rowMost: what
  // comes from memory before the products begin need not be there before they have.
  static constexpr int OfThread = (Shape::TileColumns + 127) / 128;
  struct Columns {
    uint32_t bias[OfThread], most[OfThread];
  };
  DEVICE Columns fetch(const Piece& p) {
    Columns x = {};
    if constexpr (Shape::Scaled) {
#pragma unroll
      for (int b = 0; b < Shape::Blocks; b++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int row = rowOf(p, b) + threadIdx.x % 32 / 4 + 8 * half;
          rowMost[b][half] = row < g.rows ? g.rowMost[itemOf(g.a, p.item) * g.rows + row] : 0;
        }
    }
#pragma unroll
    for (int n = 0; n < OfThread; n++) {
      const int column = p.column + 128 * n + threadIdx.x % 128;
      if (column >= g.columns) break;
      const int64_t at = biasOf(p) + column;
      if (g.bias) x.bias[n] = g.biasElement == ElementF32 ? ((const uint32_t*)g.bias)[at] : ((const uint16_t*)g.bias)[at];
      if constexpr (Shape::Scaled) x.most[n] = g.columnMost[itemOf(g.b, p.item) * g.columns + column];
    }
    return x;
  }
  // keep puts them into shared memory, for which the epilogue waits.
  DEVICE void keep(const Columns& x) const {
    if (!g.bias && !Shape::Scaled) return;
    sync();  // the tile before has been through
#pragma unroll
    for (int n = 0; n < OfThread; n++) {
      const int i = 128 * n + threadIdx.x % 128;
      if (i >= Shape::TileColumns) break;
      storeShared4(biasAt() + 4 * i, loadElement(&x.bias[n], 0, g.biasElement));
      if constexpr (Shape::Scaled) storeShared4(scalesAt() + 4 * i, typename Shape::Scale(x.most[n]).down);
    }
  }
  DEVICE uint32_t biasAt() const { return shared + Shape::BiasAt + group * Shape::TileColumns * 4; }
  DEVICE uint32_t scalesAt() const { return shared + Shape::ScalesAt + group * Shape::TileColumns * 4; }

  // endOf is the first row behind those of C that a tile has some of, innerOf C's place on its inner
  // axis, and biasOf where the bias begins.
  DEVICE int endOf(const Piece& p) const { return Shape::By == GroupsOfRows ? p.ends : g.rows; }
  DEVICE int innerOf(const Piece& p) const { return Shape::By == GroupsOfRows ? 0 : p.item % g.inner; }
  DEVICE int64_t biasOf(const Piece& p) const {
    if constexpr (Shape::By == GroupsOfRows) return p.item * groups->biasStep;
    return 0;
  }
  // ends reports whether 16 rows from one on are more than a group's, which have rows of the next one
  // behind them.
  static DEVICE bool ends(int row, int end) { return Shape::By == GroupsOfRows && row + 16 > end; }

  // rowOf is the warp's first row of a row block of its tile.
  DEVICE int rowOf(const Piece& p, int block) const {
    return p.row + ((Shape::Turns ? 0 : group) * Shape::Blocks + block) * 64 + threadIdx.x % 128 / 32 * 16;
  }
  // arrivedAt is where the barriers of the warp's buffers are.
  DEVICE uint32_t arrivedAt() const {
    return shared + Shape::ArrivedAt + (group * 4 + threadIdx.x % 128 / 32) * Shape::OutBuffers * 8;
  }

  // scaleAndShift multiplies a row block of split operands by their scales, and adds the bias.
  DEVICE void scaleAndShift(int block) const {
    const int lane = threadIdx.x & 31;
    float(&x)[Shape::Sums] = sum[block];
    if constexpr (Shape::Scaled) {
      using Scale = typename Shape::Scale;
      const float upper = Scale(rowMost[block][0]).down, lower = Scale(rowMost[block][1]).down;
#pragma unroll
      for (int i = 0; i < Shape::Sums; i += 4) {
        const float2 scale = loadShared8(scalesAt() + 8 * i + lane % 4 * 8);
        x[i] *= upper * scale.x, x[i + 1] *= upper * scale.y, x[i + 2] *= lower * scale.x, x[i + 3] *= lower * scale.y;
      }
    }
    if (g.bias) {
#pragma unroll
      for (int i = 0; i < Shape::Sums; i += 4) {
        const float2 bias = loadShared8(biasAt() + 8 * i + lane % 4 * 8);
        x[i] += bias.x, x[i + 1] += bias.y, x[i + 2] += bias.x, x[i + 3] += bias.y;
      }
    }
  }

  // leaveAsFloats lets a row block leave by TMA, as it is or added to C, or element by element.
  DEVICE void leaveAsFloats(const Piece& p, const float (&x)[Shape::Sums], Out& leaving, int row, int inner, int outer) const {
    const int lane = threadIdx.x & 31;
    const Output out(g, p.item);
#pragma unroll
    for (int first = 0; first < Shape::Sums; first += 16) {
      const int column = p.column + 2 * first;
      if (column >= g.columns) break;
      const uint32_t buffer = leaving.begin();
#pragma unroll
      for (int n = 0; n < 4; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) Out::put32(buffer, n, half, x[first + 4 * n + 2 * half], x[first + 4 * n + 2 * half + 1]);
      if (s.way == Elements || ends(row, endOf(p))) {
        __syncwarp();
#pragma unroll 1
        for (int r = 0; r < min(16, endOf(p) - row); r++) {
          const float sum = __int_as_float(loadShared4(buffer + r * 128 + (lane / 4 ^ (r & 7)) * 16 + lane % 4 * 4));
          if (column + lane < g.columns) out.put(row + r, column + lane, sum);
        }
        if (Shape::By == GroupsOfRows && lane == 0) storeCommit();  // of nothing, for the count
      } else {
        sharedToAsync();
        __syncwarp();
        if (lane == 0) {
          if (s.way == Floats) storeBox(mapC, buffer, column, row, inner, outer);
          else addBox(mapC, buffer, column, row, inner, outer);
          storeCommit();
        }
      }
    }
  }
  DEVICE void leaveAsHalves(const CUtensorMap* map, const float (&x)[Shape::Sums], Out& leaving, int column, int row, int end, int inner,
                            int outer) const {
#pragma unroll
    for (int box = 0; box < Shape::Boxes; box++) {
      constexpr int OfBox = Shape::Chunk / 4;
      uint32_t y[OfBox];
#pragma unroll
      for (int i = 0; i < OfBox; i++) y[i] = pack(x[2 * (OfBox * box + i)], x[2 * (OfBox * box + i) + 1]);
      leaveBox(map, y, leaving, column + Shape::Chunk * box, row, end, inner, outer);
    }
  }
  // leaveBox lets 16 rows of a chunk of columns leave, or those before the end of a group.
  DEVICE void leaveBox(const CUtensorMap* map, const uint32_t* x, Out& leaving, int column, int row, int end, int inner, int outer) const {
    if (column >= g.columns) return;
    const uint32_t buffer = leaving.begin();
#pragma unroll
    for (int n = 0; n < Shape::Chunk / 4; n += 4) Out::template put16<2 * Shape::Chunk>(buffer, n / 2, x[n], x[n + 1], x[n + 2], x[n + 3]);
    if (ends(row, end)) {
      leaveRows(buffer, column, row, end);
      if ((threadIdx.x & 31) == 0) storeCommit();  // of nothing, for the count
      return;
    }
    sharedToAsync();
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
      storeBox(map, buffer, column, row, inner, outer);
      storeCommit();
    }
  }
  // leaveRows writes the rows of a box before the end to C, 16 bytes of a lane at a time.
  DEVICE void leaveRows(uint32_t buffer, int column, int row, int end) const {
    constexpr int Units = Shape::Chunk / 8;
    __syncwarp();
#pragma unroll 1
    for (int n = threadIdx.x & 31; n < (end - row) * Units; n += 32) {
      const int first = column + n % Units * 8;
      const uint4 x = loadShared16(buffer + Out::template swizzled<2 * Shape::Chunk>(n / Units, n % Units));
      uint16_t* to = (uint16_t*)g.c.data + (row + n / Units) * g.c.row + first;
      if (first + 8 <= g.columns) {
        *(uint4*)to = x;
        continue;
      }
      const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int e = 0; e < 8; e++)
        if (first + e < g.columns) to[e] = (uint16_t)(words[e / 2] >> e % 2 * 16);
    }
  }
};

template <class Shape, bool AColumns, bool BRows>
DEVICE void consume(const CUtensorMap* mapC, const CUtensorMap* mapPre, const MatMulArguments& g, const MatMulSchedule& s,
                    const GroupedArguments* groups, uint32_t shared, int group) {
  using Product = typename Shape::Operands::template Product<Shape::TileColumns>;
  const uint32_t full = shared + Shape::BarriersAt, empty = full + 8 * Shape::Stages;
  float sum[Shape::Blocks][Shape::Sums];
  Consumer<Shape> consumer = {mapC, mapPre, g, s, groups, shared, group, sum, {}};
  typename Consumer<Shape>::Out leaving(shared + Shape::OutAt + (group * 4 + threadIdx.x % 128 / 32) * Shape::OutBuffers * Shape::OutBytes);
  // release gives a stage back to the producers that fill it.
  const auto release = [&](uint32_t stage) {
    if (threadIdx.x % 128 < Shape::Cluster) {
      if constexpr (Shape::Cluster == 1) barrierArrive(empty + 8 * stage);
      else barrierArriveAt(empty + 8 * stage, threadIdx.x % 128);
    }
  };
  // In turns, a warpgroup begins to wait for slices when the other one has all of its own: a wait
  // tells one phase of a barrier from the next, but not from the one after that.
  const uint32_t turns = shared + Shape::TurnsAt;
  uint32_t turn = group == 0;
  const auto begun = [&] {
    if (Shape::Turns && threadIdx.x % 128 == 0) barrierArrive(turns + 8 * (1 - group));
  };
  Ring<Shape::Stages> ring(0);
  typename Shape::Epilogue::template Of<Shape> epilogue;
  Pieces<Shape> pieces(s, groups);
  Piece p;
  for (int n = 0; pieces.next(p); n++) {
    if constexpr (Shape::Turns) {
      if (n % 2 != group) {
        ring.advance(p.to - p.from);
        continue;
      }
      barrierWait(turns + 8 * group, turn);
      turn ^= 1;
    }
    // trim makes zeros of the rows that a group's last slice has of the next group.
    const auto trim = [&](int slice) {
      if constexpr (Shape::By == GroupsOfDepth) {
        static_assert(AColumns && BRows && Shape::BChunk == 64);
        const int rest = p.ends - p.begins - slice * Shape::Depth;
        if (rest >= Shape::Depth) return;
        barrierWait(full + 8 * ring.stage, ring.parity);
        const uint32_t stage = shared + ring.stage * Shape::StageBytes + threadIdx.x % 8 * 16;
        const uint32_t a = stage + (Shape::Turns ? 0 : group) * Shape::Blocks * 8192, b = stage + Shape::ABytes;
#pragma unroll 1
        for (int row = rest + threadIdx.x % 128 / 8; row < Shape::Depth; row += 16) {
#pragma unroll
          for (int n = 0; n < Shape::Blocks; n++) storeShared16(a + n * 8192 + row * 128, make_uint4(0, 0, 0, 0));
#pragma unroll
          for (int n = 0; n < Shape::BColumns / 64; n++) storeShared16(b + n * 8192 + row * 128, make_uint4(0, 0, 0, 0));
        }
        sharedToAsync();
        consumer.sync();
      }
    };
    // begin starts the products of a slice, and returns the stage that they read.
    const auto begin = [&](float(&to)[Shape::Blocks][Shape::Sums], auto isFirst) {
      constexpr bool first = decltype(isFirst)::value;
      const uint32_t a = shared + ring.stage * Shape::StageBytes + (Shape::Turns ? 0 : group) * Shape::Blocks * 8192;
      const uint32_t b = shared + ring.stage * Shape::StageBytes + Shape::Parts * Shape::ABytes;
      const uint64_t left = descriptor(a, 8192, 1024);
      const uint64_t right = Shape::BChunk == 64 || !BRows ? descriptor(b, 8192, 1024) : descriptor(b, 4096, 512) + Swizzle64;
      barrierWait(full + 8 * ring.stage, ring.parity);
      productFence();
#pragma unroll
      // the small ones first
      for (int product = Shape::Parts == 2 ? 0 : 2; product < 3; product++) {
        const int ofA = product == 0 ? Shape::ABytes : 0, ofB = product == 1 ? Shape::BBytes : 0;
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
          for (int block = 0; block < Shape::Blocks; block++)
            Product::template ss<AColumns, BRows>(to[block], moved(left, ofA + block * 8192 + k * (AColumns ? 2048 : 32)),
                                                  moved(right, ofB + k * (BRows ? 32 * Shape::BChunk : 32)),
                                                  !first || k > 0 || product > (Shape::Parts == 2 ? 0 : 2));
      }
      productCommit();
      const uint32_t stage = ring.stage;
      ring.advance(1);
      return stage;
    };
    const auto columns = consumer.fetch(p);
    if constexpr (Shape::SumSlices == 0) {
#pragma unroll
      for (int block = 0; block < Shape::Blocks; block++) forget(sum[block]);
      trim(p.from);
      uint32_t before = begin(sum, Yes());
      consumer.keep(columns);
#pragma unroll 1
      for (int slice = p.from + 1; slice < p.to; slice++) {
        trim(slice);
        const uint32_t stage = begin(sum, No());
        epilogue.beside(consumer, leaving);
        productWait<1>();
        release(before);
        before = stage;
      }
      begun();
      productWait<0>();
#pragma unroll
      for (int block = 0; block < Shape::Blocks; block++) pin(sum[block]);
      release(before);
    } else {
      static_assert(!Shape::Turns && !Shape::Waits);
#pragma unroll
      for (int block = 0; block < Shape::Blocks; block++)
#pragma unroll
        for (int i = 0; i < Shape::Sums; i++) sum[block][i] = 0;
      // some multiplies SumSlices slices and adds their sums to the others.
      const auto some = [&](int slice, auto isFirst) {
        float part[Shape::Blocks][Shape::Sums];
#pragma unroll
        for (int block = 0; block < Shape::Blocks; block++) forget(part[block]);
        uint32_t before = begin(part, Yes());
        if constexpr (decltype(isFirst)::value) consumer.keep(columns);
#pragma unroll
        for (int n = 1; n < Shape::SumSlices; n++) {
          if (slice + n >= p.to) break;
          const uint32_t stage = begin(part, No());
          productWait<1>();
          release(before);
          before = stage;
        }
        productWait<0>();
#pragma unroll
        for (int block = 0; block < Shape::Blocks; block++) pin(part[block]);
        release(before);
#pragma unroll
        for (int block = 0; block < Shape::Blocks; block++)
#pragma unroll
          for (int i = 0; i < Shape::Sums; i++) sum[block][i] += part[block][i];
      };
      some(p.from, Yes());
#pragma unroll 1
      for (int slice = p.from + Shape::SumSlices; slice < p.to; slice += Shape::SumSlices) some(slice, No());
    }
    if constexpr (Shape::By == Ungrouped) {
      if (p.from > 0) {
        consumer.hand();
        continue;
      }
      if (p.to < s.slices) consumer.collect(pieces.clusterOf((pieces.at + s.slices - 1) / s.slices * s.slices - 1), leaving);
    }
    epilogue.deliver(consumer, p, leaving);
  }
  epilogue.end(consumer, leaving);
  if ((threadIdx.x & 31) == 0) storeWait<0>();
}

template <class Shape, bool AColumns, bool BRows>
DEVICE void multiply(const Maps& maps, const MatMulArguments& g, const MatMulSchedule& s, const GroupedArguments* groups) {
  extern __shared__ __align__(1024) char memory[];
  const uint32_t shared = sharedAddress(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::Stages; i++) {
      barrierInit(shared + Shape::BarriersAt + 8 * i, 1);
      barrierInit(shared + Shape::BarriersAt + 8 * (Shape::Stages + i), Shape::Groups * Shape::Cluster);
    }
    barrierInit(shared + Shape::TurnsAt, 1);
    barrierInit(shared + Shape::TurnsAt + 8, 1);
    if constexpr (Shape::Epilogue::BRINGS)
      for (int i = 0; i < 8 * Shape::OutBuffers; i++) barrierInit(shared + Shape::ArrivedAt + 8 * i, 1);
    barrierInitDone();
  }
  clusterSync<Shape>();
  const int group = warpgroupIndex();
  if (group == 0) {
    fewerRegisters<40>();
    if (threadIdx.x == 0) produce<Shape, AColumns, BRows>(maps, g, s, groups, shared);
  } else {
    moreRegisters<232>();
    consume<Shape, AColumns, BRows>(maps.c, maps.pre, g, s, groups, shared, group - 1);
  }
  __syncwarp();
  clusterSync<Shape>();
}
