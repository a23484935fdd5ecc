// What the mma.sync attention kernels share: the arithmetic they are compiled for, masks of tiles,
// dropout in the accumulators' layout.
//
// A variant is compiled with -DKERNEL (the name of its entry point), -DHEAD_DIM, -DTILE_Q,
// -DTILE_K, -DBLOCK_THREADS and one of -DELEMENT_BF16, -DELEMENT_F16, -DELEMENT_F32 (operands of
// two parts) and -DELEMENT_TF32, and with -DSCORE, a policy of score.cuh; those that change scores
// know dropout too. How shared memory is laid out comes with -DTILE_PLACES, -DTILE_SWIZZLED and
// -DTILE_BY_KEYS. variants_sm80.go lists the variants.
#pragma once
#include "attention_dropout.cuh"
#include "attention_tiles.cuh"
#include "mma.cuh"
#include "score.cuh"

#if defined(ELEMENT_BF16)
using Arithmetic = BF16;
#elif defined(ELEMENT_F16)
using Arithmetic = F16;
#elif defined(ELEMENT_F32)
using Arithmetic = F32;
#elif defined(ELEMENT_TF32)
using Arithmetic = TF32;
#endif

using Score = SCORE;

extern __shared__ __align__(128) uint8_t sharedMemory[];
DEVICE uint32_t sharedBase() { return sharedAddress(sharedMemory); }

// ceilDiv rounds up; n is not negative.
__host__ __device__ constexpr int ceilDiv(int n, int d) { return (n + d - 1) / d; }

// Place is where a block of the grid works: on a tile of a plane, one head of one sequence. Blocks
// start in their order, so it decides which run at the same time. Planes come in groups of about
// GROUP_BLOCKS blocks, four waves of a large GPU: few enough to share what they read in the second
// level cache; enough that, where a mask makes the first tiles longer, the last long blocks are
// followed by short ones. In a group the planes are fastest: blocks that add to one tile of dQ
// start one after another and wait little for each other.
struct Place {
  static constexpr int GROUP_BLOCKS = 1024;
  int tile, plane;

  // tiles is how many a plane has at most.
  DEVICE explicit Place(int tiles) {
    const int planes = gridDim.x / tiles, groups = max(1, (int)gridDim.x / GROUP_BLOCKS), together = ceilDiv(planes, groups);
    const int first = blockIdx.x / (together * tiles) * together, here = min(together, planes - first);
    const int within = blockIdx.x - first * tiles;
    tile = within / here, plane = first + within % here;
  }
};

// View is a sequence with its mask.
template <class Score> struct View {
  Sequence s;
  typename Score::Mask mask;

  DEVICE View(const AttentionArguments& a, int index) : s(sequenceOf(a, index)), mask(Score::Mask::of(a, s)) {}
};

// dropWords gives the words that decide about two neighbouring accumulator blocks:
// words[block][half] has the two columns that this lane holds of the half's row. row and column are
// those of the first block's first element in this lane. Four neighbouring lanes share four
// counters, of two rows and two blocks: each draws one, and gives the others a word of it.
DEVICE void dropWords(const Dropper& d, int row, int column, uint32_t (&words)[2][2]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  uint4 own[1] = {d.counter(odd ? row + 8 : row, upper ? column + 8 : column)};
  d.draw(own);
  const uint4 w = own[0];
  // Words of this lane's half of the four lanes: of its counter, and of that of the lane two away,
  // which is the other block's.
  const uint32_t other0 = __shfl_xor_sync(0xffffffff, upper ? w.x : w.z, 2), other1 = __shfl_xor_sync(0xffffffff, upper ? w.y : w.w, 2);
  const uint32_t mine0 = upper ? w.z : w.x, mine1 = upper ? w.w : w.y;
  const uint32_t block[2][2] = {{upper ? other0 : mine0, upper ? other1 : mine1}, {upper ? mine0 : other0, upper ? mine1 : other1}};
#pragma unroll
  for (int b = 0; b < 2; b++) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? block[b][0] : block[b][1], 1);
    words[b][0] = odd ? got : block[b][0];
    words[b][1] = odd ? block[b][1] : got;
  }
}

// WarpTile is a warp's block of scores of ROWS·16 queries and KEYS·8 keys.
template <class E, int ROWS, int KEYS> struct WarpTile : ScoreTileOf<typename E::Stored, E::BYTES == 4, ROWS, KEYS> {
  // row and column are where the block begins in the sequence.
  DEVICE WarpTile(float (&x)[ROWS][KEYS][4], int row, int column, const Sequence& s, int head)
      : ScoreTileOf<typename E::Stored, E::BYTES == 4, ROWS, KEYS>(*(float(*)[4 * ROWS * KEYS])x, row + lane() / 4, column + lane() % 4 * 2, s, head) {}
};
