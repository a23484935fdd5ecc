// What the chains of one row and of several have in common: what the host tells them, and how blocks
// share a product.
#pragma once
#include "arguments.cuh"
#include "elements.cuh"
#include "hopper.cuh"
#include "matmul.cuh"
#include "mma.cuh"
#include "ring.cuh"
#include "weight.cuh"

#ifdef ELEMENT_BF16
using Type = BF16;
#else
using Type = F16;
#endif

constexpr int CONSUMERS = 8, JOINING = 32 * CONSUMERS, THREADS = JOINING + 32;
constexpr int PANEL = 128, DEPTH = 64, BOX = 64 * DEPTH * 2, UNIT = 2 * BOX;
constexpr int MOST_FRAGMENTS = 12;     // that a thread adds
constexpr int MOST_ATTENTIONS = 128;   // of a chain
constexpr int MOST_GROUP = 8, TILE = 32;  // TILE: keys of a stage
// A tile of keys is boxes of 64 columns. The tile of their values follows, in boxes of 64 too.
constexpr int BOXES = HEAD_SIZE / 64, TILE_BOX = TILE * 64 * 2, ROWS_OF_TILE = BOXES * TILE_BOX;
// Words of a head's sums over a run of keys: the largest score, the sum of exponentials, o.
constexpr int PARTIAL = HEAD_SIZE + 2;
constexpr int MOST_RUNS = 64;
// Links in shared memory: this one, the next, that of slower warps, and that which is copied.
constexpr int LINKS = 4;

enum LinkKind : int32_t { Source = 0, Product = 1, Attention = 2 };
enum Packing : int32_t { NotPacked = 0, Int8 = 1, Int4 = 2 };

// ChainLink is the host's linkArguments in decode_chain.go. Words of rows have two elements each.
struct ChainLink {
  int32_t kind;
  // groups: panels, or pairs of panels where a product is gated (halves: 2)
  int32_t steps, groups, halves;
  int32_t firstMap, transposed;   // of its maps; the depth of B is contiguous
  int32_t panel1, panel2;         // where the panels of the second and the third weight begin
  int32_t slot, keyHeads;         // of attention: its place among the chain's attentions
  int32_t depth, squareCount;     // squareCount: words of squares
  // fragments: places for those of a panel; inNumber: the link that wrote `in` and `squares`
  int32_t fragments, inNumber;
  int32_t residualNumber, gammaWide;
  int32_t outElement;             // of C
  float eps;
  const uint64_t* in;
  const void* gamma;              // (depth), null for none
  const uint64_t* squares;        // null where there is no norm before
  const uint64_t* residual;       // null for none
  uint64_t* partials;
  uint64_t* out;
  uint64_t* outSquares;
  void* data;                     // of C, null where a later link writes there; of the source
  Weight weights[3];
  // Attention: in, k and v are words of what is turned and added.
  const uint64_t* k;
  const uint64_t* v;
  void* keys;
  void* values;
  const double* frequencies;      // (HEAD_SIZE / 2) or null
  int32_t* state;                 // as cache_append.cu has it
  int64_t keysBatch, keysHead, keysRow, valuesBatch, valuesHead, valuesRow;
  int32_t items, heads, offset;
  float amplitude, scale;         // scale: of scores, times log2 e
  int32_t blocks;                 // that share a product's steps
  int32_t packed;                 // a Packing: each weight has two maps then
  // 1 if blocks have whole columns, in groups of 16, 2 if there is a norm before such a product
  int32_t whole;
};

// ChainState counts launches.
struct ChainState {
  uint32_t launches, ended;  // ended: blocks of this launch
};

struct ChainArguments {
  const ChainLink* links;
  const CUtensorMap* maps;
  ChainState* state;
  int32_t count;
  int32_t flight;  // steps on their way at most
};

// Run is a block's steps of a product.
struct Run {
  int total, blocks, from, to;

  template <class Link> DEVICE Run(const Link& l) : Run(l.groups * l.halves * l.steps, l.blocks) {}
  DEVICE Run(int total, int blocks) : total(total), blocks(blocks) {
    const int block = blockIdx.x;
    from = block < blocks ? block * total / blocks : 0, to = block < blocks ? (block + 1) * total / blocks : 0;
  }
  // blockOf is the block that has a step.
  DEVICE int blockOf(int step) const { return ((step + 1) * blocks - 1) / total; }
};

struct Place {
  int weight, column;  // of the weight
  template <class Link> DEVICE Place(const Link& l, int group, int columns = PANEL) : weight(group >= l.panel2 ? 2 : group >= l.panel1 ? 1 : 0) {
    column = (group - (weight == 2 ? l.panel2 : weight == 1 ? l.panel1 : 0)) * columns;
  }
};

// boxed is the address of 8 neighbouring elements of a box's row of 64.
DEVICE uint32_t boxed(uint32_t box, int row, int eighth) { return box + row * 128 + ((eighth ^ row & 7) << 4); }
// tiled is that of 8 neighbouring elements of a key or a value.
DEVICE uint32_t tiled(uint32_t rows, int row, int eighth) { return boxed(rows + eighth / 8 * TILE_BOX, row, eighth % 8); }

// Joined is sums over some keys, relative to the largest score.
struct Joined {
  float most = -INFINITY, total = 0, o[2] = {0, 0};

  DEVICE void add(const Joined& x) {
    const float now = fmaxf(most, x.most);
    if (now == -INFINITY) return;
    const float own = exp2Fast(most - now), other = exp2Fast(x.most - now);
    most = now, total = total * own + x.total * other;
#pragma unroll
    for (int n = 0; n < 2; n++) o[n] = o[n] * own + x.o[n] * other;
  }
  // addLanes adds those of the warp's lanes whose number is the same modulo APART.
  template <int APART> DEVICE void addLanes() {
#pragma unroll
    for (int by = APART; by < 32; by *= 2) {
      Joined x;
      x.most = __shfl_xor_sync(~0u, most, by), x.total = __shfl_xor_sync(~0u, total, by);
#pragma unroll
      for (int n = 0; n < 2; n++) x.o[n] = __shfl_xor_sync(~0u, o[n], by);
      add(x);
    }
  }
};
