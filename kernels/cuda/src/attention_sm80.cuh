// What the mma.sync attention kernels share: the arithmetic they are compiled for, masks of tiles,
// dropout in the accumulators' layout.
//
// A variant is compiled with -DKERNEL (the name of its entry point), -DHEAD_DIM, -DTILE_Q,
// -DTILE_K, -DBLOCK_THREADS and one of -DELEMENT_BF16, -DELEMENT_F16, -DELEMENT_F32 (operands of
// two parts) and -DELEMENT_TF32, and with -DSCORE, a policy of score.cuh; those that change scores
// know dropout too. How shared memory is laid out comes with -DTILE_PLACES, -DTILE_SWIZZLED and
// -DTILE_BY_KEYS, and -DTILE_WIDE for heads of any size. variants_sm80.go lists the variants.
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
// GROUP_BLOCKS blocks, four waves of a large GPU: where a mask makes the first tiles longer, the
// last long blocks are followed by short ones. A group has only so many planes, so that what their
// blocks share stays in the second level cache. In a group the planes are fastest: blocks that add
// to one tile of dQ start one after another and wait little for each other.
struct Place {
  static constexpr int GROUP_BLOCKS = 1024;
  int tile, plane;

  // tiles is how many a plane has at most, and most how many planes a group has.
  DEVICE explicit Place(int tiles, int most = 0x7fffffff) {
    const int planes = gridDim.x / tiles, groups = max(1, (int)gridDim.x / GROUP_BLOCKS), together = min(ceilDiv(planes, groups), most);
    const int first = blockIdx.x / (together * tiles) * together, here = min(together, planes - first);
    const int within = blockIdx.x - first * tiles;
    tile = within / here, plane = first + within % here;
  }
};

// planesTogether is how many planes a group of blocks has at most: one where no mask makes some
// blocks longer and none waits for its turn.
template <class Score> DEVICE int planesTogether(const AttentionArguments& a) {
  const bool even = std::is_same<typename Score::Mask, BandMask>::value && a.causal == NotCausal && a.left < 0 && a.right < 0;
  return even && !a.deterministic ? 1 : 16;
}

// Whether heads may have more columns than a block holds. Products over all columns of two tiles
// are then summed in Pieces, and a block computes a part of the results: HEAD_DIM of their columns.
#ifndef TILE_WIDE
#define TILE_WIDE 0
#endif
constexpr bool WIDE = TILE_WIDE;

// columnsOf is a matrix's columns from first on, so many at most. It may have none.
template <class E> DEVICE Matrix columnsOf(const Matrix& m, int first, int most) {
  return {(typename E::Stored*)m.data + first, m.stride, m.rows, min(m.columns - first, most)};
}

// Pieces bring WIDTH columns of A rows and of B rows at a time, to two places in turn. All threads
// take part; while one piece is multiplied, the next one is on its way. One of the two operands is
// the same in all steps of a block, B if FIXED_B: as many of its pieces as shared memory has room
// for arrive once, and stay. What is `fresh` is for the first step.
template <class E, int A, int B, int WARPS, bool FIXED_B> struct Pieces {
  static constexpr int WIDTH = 64;
  using Piece = Tile<E, WIDTH>;
  static constexpr int BYTES = (A + B) * Piece::STRIDE;                 // of one place
  static constexpr int KEPT_BYTES = (FIXED_B ? B : A) * Piece::STRIDE;  // of a piece that stays
  uint32_t base, kept;  // where pieces arrive, and where they stay
  int most;             // how many stay
  int place = 0;        // of the piece that arrives next

  // Behind so many bytes of shared memory pieces may stay.
  DEVICE Pieces(uint32_t base, int before) : base(base), kept(sharedBase() + before), most(0) {
    uint32_t bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    if (!E::SCALED) most = max(0, (int)bytes - before) / KEPT_BYTES;
  }

  static DEVICE int count(int columns) { return ceilDiv(columns, WIDTH); }
  DEVICE bool stays(int index) const { return !E::SCALED && index < most; }
  // ofA and ofB are where a piece is; index counts those of the operand that is the same.
  DEVICE Piece ofA(int place, int index) const {
    return {!FIXED_B && stays(index) ? kept + index * KEPT_BYTES : base + place * BYTES};
  }
  DEVICE Piece ofB(int place, int index) const {
    return {FIXED_B && stays(index) ? kept + index * KEPT_BYTES : base + place * BYTES + A * Piece::STRIDE};
  }

  // fetch starts to bring a piece behind those that are here or on their way.
  DEVICE void fetch(int to, const Matrix& a, int rowA, const Matrix& b, int rowB, int piece, int index, bool fresh) const {
    const bool here = !fresh && stays(index);
    if (FIXED_B || !here) loadTile<E, A, WARPS>(ofA(to, index), columnsOf<E>(a, piece * WIDTH, WIDTH), rowA);
    if (!FIXED_B || !here) loadTile<E, B, WARPS>(ofB(to, index), columnsOf<E>(b, piece * WIDTH, WIDTH), rowB);
    copyCommit();
  }
  // arrive waits for all copies; every warp is done with the piece before.
  DEVICE void arrive(int index) const {
    copyWait<0>();
    settle<E, A, WARPS>(ofA(place, index), ofA(place, index));
    settle<E, B, WARPS>(ofB(place, index), ofB(place, index));
    __syncthreads();
  }
  // add adds the piece's product: rows of a from rowA on against rows of b from rowB on.
  template <int ROWS, int COLUMNS> DEVICE void add(float (&x)[ROWS][COLUMNS][4], int rowA, int rowB, int index) const {
    const Piece a = ofA(place, index), b = ofB(place, index);
    if constexpr (E::SCALED) {
      float product[ROWS][COLUMNS][4];
      multiplyTransposed<E, WIDTH>(product, a, rowA, b, rowB);
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) x[i][j][e] += product[i][j][e];
    } else {
#pragma unroll
      for (int k = 0; k < WIDTH; k += STEP) transposedStep<E>(x, a, rowA, b, rowB, k);
    }
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
