// What a user's mask shows, in the tiles of one kernel: which of them hold something visible, and
// which are visible as a whole.
//
// The queries, or for the backward pass the keys, are cut into lines, and the other axis into
// cells. attention_user_lists.cu finds of each line a bit for each cell, and what tiles of some
// lines together need to know. A kernel goes over the cells that its tile sees and meets no others.
// Bits of a line are as many as cells, but no more than 2048: in sequences of more cells each has
// several. So lists grow with the length of the queries or the keys, and with the product of both
// only up to 2048 cells.
//
// Kernels are compiled with -DUSER_LISTS, whether they go by lists, and if so with -DUSER_LINE and
// -DUSER_CELL, their sizes. A mask that differs from head to head has lists for each head, or for
// each group that reads the same keys: planes. Memory at a.lists has, for the lines of all sequences
// one after the other (packed sequences leave one between them unused), plane by plane:
//
//   UserList list[]          of tiles of queries one for each line, of tiles of keys one a tile, where its first line would have it
//   uint32_t bits[][words]   of tiles, in the same places: cells of which some pair is visible
#pragma once
#include "attention_user.cuh"

// UserLines are what lines are of: of keys, a tile's need not be neighbours unless InPlace.
enum UserLines : int32_t { OfQueries, OfKeys, InPlace };

// UserList is what kernels know of a tile's cells.
//
// Of queries: the tile sees `count` cells, and none from `start` on, where it goes down from;
// `beyond` is a cell that does not exist. The line itself sees something of the first-th up to, not
// including, the end-th of these cells, and of those from cleanFirst to cleanEnd everything.
//
// Of keys: the tile has the keys of the line0-th and the line1-th line of its sequence; one that
// does not exist is behind all others. It sees `count` cells, from first up to, not including, end;
// those among them from cleanFirst to cleanEnd as a whole.
struct UserList {
  int count;
  union {
    int start, line0;
  };
  union {
    int beyond, line1;
  };
  int reserved;
  int first, end, cleanFirst, cleanEnd;
};

// UserLists finds lists, by the number of a line or of a tile's first line among those of all
// sequences.
struct UserLists {
  const UserArguments& a;
  int inPlane, lines;  // of all sequences, in a plane and in all of them

  // rows are those of all sequences together, on the axis of lines.
  DEVICE UserLists(const UserArguments& a, int rows, int line)
      : a(a), inPlane(a.qLens ? rows / line + a.sequences : (rows + line - 1) / line * a.sequences),
        lines(USER_MASK_BY_HEAD ? inPlane * a.planes : inPlane) {}
  DEVICE int planeOf(int head) const { return USER_MASK_BY_HEAD ? head / a.group : 0; }
  // before is how many lines a plane's sequences, and the planes before it, have before a sequence
  // that begins at first.
  DEVICE int before(int plane, int index, int rows, int first, int line) const {
    return plane * inPlane + (a.qLens ? first / line + index : (rows + line - 1) / line * index);
  }
  DEVICE const UserList* list(int n) const { return (const UserList*)a.lists + n; }
  DEVICE const uint32_t* bits(int n) const { return (const uint32_t*)list(lines) + (int64_t)n * a.words; }
};

// userBelow is the last cell before `at` of those that bits show; there is one.
DEVICE int userBelow(const uint32_t* bits, int shift, int at) {
  const int bit = (at - 1) >> shift;
  int n = bit / 32;
  uint32_t word = __ldg(bits + n) & ((2u << bit % 32) - 1);
  while (!word) word = __ldg(bits + --n);
  const int found = 32 * n + 31 - __clz(word);
  return found == bit ? at - 1 : ((found + 1) << shift) - 1;
}
// userFrom is the first one from `at` on; there is one.
DEVICE int userFrom(const uint32_t* bits, int shift, int at) {
  const int bit = at >> shift;
  int n = bit / 32;
  uint32_t word = __ldg(bits + n) & (~0u << bit % 32);
  while (!word) word = __ldg(bits + ++n);
  const int found = 32 * n + __ffs(word) - 1;
  return found == bit ? at : found << shift;
}
