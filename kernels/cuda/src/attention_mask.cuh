// Which pairs of a query and a key are visible: the parts of a problem, and the mask of a part as
// kernels ask for it.
#pragma once
#include "arguments.cuh"
#include "instructions.cuh"

// Sequence is one independent part of a problem: a batch item, or one of the packed sequences.
struct Sequence {
  int index, batch;  // index counts sequences, batch is the place on the tensors' batch axis
  int q0, k0;        // where it starts on the length axes
  int sq, sk;
};

DEVICE Sequence sequenceOf(const AttentionArguments& a, int index) {
  if (!a.qLens) return {index, index, 0, 0, a.sq, a.keyLengths ? a.keyLengths[index] : a.sk};
  const int q0 = a.qLens[index], k0 = a.kvLens[index];
  return {index, 0, q0, k0, a.qLens[index + 1] - q0, a.kvLens[index + 1] - k0};
}

// keyBatchOf is the place of a sequence's keys on the batch axis of k and v.
DEVICE int keyBatchOf(const AttentionArguments& a, int batch) { return a.k.batch == 0 ? 0 : batch; }

// keysEndEarly reports whether there may be rows of k and v behind those of a sequence, which are
// not its own.
DEVICE bool keysEndEarly(const AttentionArguments& a) { return a.kvLens || a.keyLengths; }

// BandMask is the mask of a sequence as two diagonals: row i sees the columns from max(0, i + lo)
// up to, not including, min(sk, i + hi). attention_tiles.cuh says which tiles it shows.
struct BandMask {
  int sq, sk, lo, hi;

  static DEVICE BandMask of(const AttentionArguments& a, const Sequence& s) {
    constexpr int unlimited = 1 << 29;
    const int off = s.sk - s.sq;
    BandMask m = {s.sq, s.sk, -unlimited, unlimited};
    if (a.causal == CausalBottomRight) m.hi = off + 1;
    if (a.causal == CausalTopLeft) m.hi = 1;
    if (a.left >= 0) m.lo = off + a.shift - min(a.left, unlimited / 2);
    if (a.right >= 0) m.hi = min(m.hi, off + a.shift + min(a.right, unlimited / 2) + 1);
    return m;
  }

  // none reports whether no row of a tile sees any of the columns.
  DEVICE bool none(int row, int rows, int column, int columns) const {
    return column >= row + rows - 1 + hi || column + columns <= row + lo;
  }
  // whole reports whether every row of a tile exists and sees every column.
  DEVICE bool whole(int row, int rows, int column, int columns) const {
    return row + rows <= sq && column + columns <= sk && column >= row + rows - 1 + lo && column + columns <= row + hi;
  }

  // hide gives a value to what is hidden in a ScoreTile: behind the columns that a row sees, and
  // before them. A tile by keys hides rows beyond the end too.
  template <class Tile> DEVICE void hide(Tile t, float value, bool before = true, bool behind = true) const {
    if constexpr (Tile::BY_KEYS) {
      t.each([&](float& x, int i, int j) {
        const int key = t.key + j, from = key - hi + 1, to = min(key - lo, sq - 1);
        const uint32_t width = key < sk ? max(0, to - from + 1) : 0;
        if ((uint32_t)(t.query + i - from) >= width) x = value;
      });
    } else {
      if (behind)
        t.each([&](float& x, int i, int j) {
          if (j >= min(sk, t.query + i + hi) - t.key) x = value;
        });
      if (before)
        t.each([&](float& x, int i, int j) {
          if (j < t.query + i + lo - t.key) x = value;
        });
    }
  }
};
