// Which tiles a kernel visits, and which of them need the mask: for a tile of queries those of
// keys, and the other way round.
#pragma once
#include "attention_mask.cuh"

// Tiles are the tiles [first, end), of which those in [cleanFirst, cleanEnd) are seen whole.
struct Tiles {
  int first, end, cleanFirst, cleanEnd;

  DEVICE bool empty() const { return first == end; }
  DEVICE bool clean(int n) const { return n >= cleanFirst && n < cleanEnd; }
};

// keyTiles are the tiles of SIZE keys that some row of [row, row + rows) sees; clean ones are seen
// whole by each of them.
template <int SIZE> DEVICE Tiles keyTiles(const BandMask& m, int row, int rows) {
  const int last = min(row + rows, m.sq) - 1;
  const int from = max(0, row + m.lo), to = min(m.sk, last + m.hi);
  if (row >= m.sq || to <= from) return {0, 0, 0, 0};
  return {from / SIZE, (to + SIZE - 1) / SIZE, (max(0, last + m.lo) + SIZE - 1) / SIZE, max(0, min(m.sk, row + m.hi)) / SIZE};
}

// queryTiles are the tiles of SIZE rows of which some sees a key of [key, key + keys): a tile of
// queries is among them exactly if the keys are among its keyTiles. All rows of clean ones see all
// of the keys; where ROWS_EXIST, they all exist.
template <int SIZE, bool ROWS_EXIST> DEVICE Tiles queryTiles(const BandMask& m, int key, int keys) {
  const int from = max(0, key - m.hi + 1), to = min(m.sq, min(key + keys, m.sk) - m.lo);
  if (to <= from) return {0, 0, 0, 0};
  const int seeing = key - m.lo + 1;  // rows before it see the first key
  return {from / SIZE, (to + SIZE - 1) / SIZE, (max(0, key + keys - m.hi) + SIZE - 1) / SIZE,
          key + keys > m.sk || seeing < 0 ? 0 : (ROWS_EXIST ? min(seeing, m.sq) : seeing) / SIZE};
}

// firstKeyTile is the first of a query tile's keyTiles, and firstOf the query tile from which on a
// tile of keys is that.
template <int SIZE> DEVICE int firstKeyTile(int lo, int row) { return max(0, row + lo) / SIZE; }
template <int SIZE> DEVICE int firstOf(int lo, int key) { return key == 0 ? 0 : max(0, key - lo + SIZE - 1) / SIZE; }
