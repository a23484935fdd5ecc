// Attention to listed keys, forward, for sm_90a, where many heads share a list: O and the logsumexp.
//
// It is attention_forward_sm90.cuh for a problem in which each query is a sequence, whose rows are
// the heads of a key head's group and whose keys are those of the list. Only the producer differs:
// four warps bring the rows of K and V that the list names, 16 bytes a lane at a time. Lists have been made
// dense, so that a.keyLengths says how many keys each has, and a.sk is how far they lie apart.
//
// Compile with -arch=compute_90a and what attention_forward_sm90.cu takes.
#include "attention_forward_sm90.cuh"

// ListedRows is the host's listedRows in listedkeys_rows.go.
struct ListedRows {
  AttentionArguments attention;
  const int32_t* lists;
};

using Shape = ForwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q / 64, TILE_K, STAGES, STAGES_Q>;
static_assert(Shape::SharedBytes == SHARED_BYTES && Shape::Threads == BLOCK_THREADS, "variants_listedkeys.go describes another kernel");

constexpr int LOADERS = 4;  // warps

// init has each lane of the loaders announce its part of a tile of K or V.
template <> DEVICE void ForwardBarriers<Shape>::init() const {
  constexpr int warps = 4 * Shape::Groups;
  for (int i = 0; i < Shape::StagesQ; i++) {
    barrierInit(fullQ(i), 1);
    barrierInit(emptyQ(i), warps);
  }
  for (int i = 0; i < Shape::Stages; i++) {
    barrierInit(fullK(i), 32 * LOADERS);
    barrierInit(emptyK(i), warps);
    barrierInit(fullV(i), 32 * LOADERS);
    barrierInit(emptyV(i), warps);
  }
  barrierInitDone();
}

// copyRow starts to bring 16 bytes, or as many zeros where bytes is 0.
DEVICE void copyRow(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// announce arrives at a barrier when what the lane has started to bring is there.
DEVICE void announce(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Consumers show rows that lanes have brought to the matrix units.
using Consumer = ForwardConsumer<Shape, PlainScore>;
template <> DEVICE void Consumer::startScores() {
  const uint64_t keys = moved(kAt, k.stage * Shape::KBytes);
  sharedToAsync();
  productFence();
#pragma unroll
  for (int i = 0; i < D / 16; i++)
    Wgmma<TileK>::template ss<0, 0>(s, moved(queries, i / 4 * Shape::QChunk + i % 4 * 32), moved(keys, i / 4 * Shape::KChunk + i % 4 * 32),
                                    i != 0);
  productCommit();
}
template <> DEVICE void Consumer::startOutput() {
  const uint64_t values = moved(vAt, v.stage * Shape::VBytes);
  sharedToAsync();
  productFence();
#pragma unroll
  for (int i = 0; i < TileK / 16; i++) Wgmma<DV>::template rs<1>(o, p + 4 * i, moved(values, i * 2048), 1);
  productCommit();
}

// ListedLoader is a loading warp's part: SHARE rows of each tile. The first one also loads Q.
struct ListedLoader {
  static constexpr int SHARE = Shape::TileK / LOADERS;
  static_assert(SHARE <= 32, "a lane knows the key of a row");

  const AttentionArguments& a;
  const int32_t* lists;
  const CUtensorMap* qMap;
  const uint32_t shared;
  const ForwardBarriers<Shape>& barriers;
  const int warp, lane;
  Ring<Shape::Stages> k{1}, v{1};

  DEVICE void run() {
    ForwardProducer<Shape, PlainScore> queries{a, qMap, nullptr, nullptr, nullptr, shared, barriers};
    const bool leader = warp == 0 && lane == 0;
    const int parts = (a.sq + Shape::TileQ - 1) / Shape::TileQ, tiles = a.sequences * parts;
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
      const int query = t / parts;
      if (leader) queries.loadQ({{query, 0, t % parts * Shape::TileQ}, query, 0, 0, 0, 0, {0, 0, 0, 0}});
      __syncwarp();
      load(lists + (int64_t)query * a.sk, a.keyLengths[query]);
    }
    if (leader) queries.loadQ({{0, 0, -1}, 0, 0, 0, 0, 0, {0, 0, 0, 0}});
  }

  DEVICE void load(const int32_t* list, int count) {
    const auto keyOf = [&](int tile) {
      const int at = tile * Shape::TileK + warp * SHARE + lane;
      return tile >= 0 && lane < SHARE && at < count ? __ldg(list + at) : -1;
    };
    const int last = (count + Shape::TileK - 1) / Shape::TileK - 1;
    int key = keyOf(last);
#pragma unroll 1
    for (int j = last; j >= 0; j--) {
      const int next = keyOf(j - 1);
      barrierWait(barriers.emptyK(k.stage), k.parity);
      bring<Shape::Chunks>(shared + Shape::KAt + k.stage * Shape::KBytes, a.k, a.d, key);
      announce(barriers.fullK(k.stage));
      k.advance();
      barrierWait(barriers.emptyV(v.stage), v.parity);
      bring<Shape::ChunksV>(shared + Shape::VAt + v.stage * Shape::VBytes, a.v, a.dv, key);
      announce(barriers.fullV(v.stage));
      v.advance();
      key = next;
    }
  }

  // bring starts to bring the warp's rows, whose numbers the lanes hold. Those of −1 lie behind the
  // list's end, where consumers look at nothing.
  template <int Chunks> DEVICE void bring(uint32_t to, const Rows& t, int columns, int key) const {
    constexpr int UNITS = 8 * Chunks, TOGETHER = 32 / UNITS;
    static_assert(32 % UNITS == 0 && SHARE % TOGETHER == 0, "lanes share rows");
    const int unit = lane % UNITS, first = warp * SHARE + lane / UNITS;
    const bool exists = 8 * unit < columns;
    const Scalar* const from = (const Scalar*)t.data + (exists ? 8 * unit : 0);
    to += unit / 8 * Shape::KChunk;
#pragma unroll 4
    for (int n = 0; n < SHARE; n += TOGETHER) {
      const int at = __shfl_sync(~0u, key, n + lane / UNITS), row = first + n;
      if (at >= 0) copyRow(to + row * 128 + ((unit ^ row) & 7) * 16, from + at * t.row, exists ? 16 : 0);
    }
  }
};

extern "C" __global__ void __launch_bounds__(Shape::Threads, Shape::Blocks)
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ ListedRows a) {
  extern __shared__ uint8_t memory[];
  const uint32_t shared = (sharedAddress(memory) + 1023) & ~1023u;
  const ForwardBarriers<Shape> barriers = {shared + Shape::BarriersAt};
  if (threadIdx.x == 0) {
    barriers.init();
    prefetchMap(&q);
  }
  __syncthreads();
  if (threadIdx.x < 32 * LOADERS) {
    fewerRegisters<Shape::ProducerRegisters>();
    ListedLoader{a.attention, a.lists, &q, shared, barriers, __shfl_sync(~0u, (int)threadIdx.x / 32, 0), (int)threadIdx.x % 32}.run();
  } else {
    moreRegisters<Shape::ConsumerRegisters>();
    Consumer(a.attention, barriers, shared).run();
  }
}
