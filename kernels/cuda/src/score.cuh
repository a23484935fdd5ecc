// What happens to a score between the product q·k and the exponential, and on the way back.
//
// Kernels take a policy, which says how scores change and what is visible:
//
//   CHANGES                  whether scores need more than a factor
//   ADDS                     whether something may be added to scores: they may then be far from zero
//   adds(a)                  whether something is
//   DROPS                    whether there may be dropout
//   Mask                     what is visible: see BandMask; attention_tiles.cuh goes over its tiles
//   factorOf<EXACT>(a)       positive; what change leaves of a tile, EXACT or not, times it, is the score
//   change(a, tile)          makes scores of products, for all places of a ScoreTile
//   hasGains(a)              whether change has a derivative other than 1, which then goes to tile.eachWithGain
//   addGradients(a, tile)    adds a tile of dS, before it is multiplied by that derivative, to the gradients of what was looked up
//
// What they make of places beyond the sequence means nothing, but they read nothing there.
#pragma once
#include "attention_mask.cuh"

// ScoreTile is a thread's part of a warp's scores, in the order of the matrix units' accumulators:
// of ROWS·16 rows and COLUMNS·8 columns, number 4·(COLUMNS·i + j) + 2·r + e has row 16·i + 8·r and
// column 8·j + e, counted from the thread's first. Rows are queries; by keys it is the other way
// round. What kernels derive from it says more of where and what the tile is.
template <int ROWS, int COLUMNS, bool KEYS> struct ScoreTile {
  static constexpr bool BY_KEYS = KEYS;
  static constexpr int SIZE = 4 * ROWS * COLUMNS, WIDTH = 8 * COLUMNS;
  float (&x)[SIZE];
  int query, key;  // the thread's first

  // each calls f for every score, with how many queries and keys it lies behind the thread's first:
  // query by query, or nearly so, since what is looked up lies in rows of keys.
  template <class F> DEVICE void each(F f) {
    eachPair([&](float& x, float& y, int i, int j) {
      f(x, i, j);
      f(y, i + KEYS, j + !KEYS);
    });
  }
  // eachPair does so for neighbouring columns.
  template <class F> DEVICE void eachPair(F f) {
    constexpr int OUTER = KEYS ? COLUMNS : 2, INNER = KEYS ? 2 : COLUMNS;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int n = 0; n < OUTER; n++)
#pragma unroll
        for (int m = 0; m < INNER; m++) {
          const int j = KEYS ? n : m, r = KEYS ? m : n, row = 16 * i + 8 * r;
          float* const two = x + 4 * (COLUMNS * i + j) + 2 * r;
          f(two[0], two[1], KEYS ? 8 * j : row, KEYS ? row : 8 * j);
        }
  }
  // eachWithGain is each; what f returns is the derivative, which tiles of a backward kernel keep.
  template <class F> DEVICE void eachWithGain(F f) { each([&](float& x, int i, int j) { f(x, i, j); }); }
};

// ScoreTileOf is a ScoreTile of one head of a sequence. T is the type that elements of 16 bits
// have.
template <class T, bool IS_EXACT, int ROWS, int COLUMNS> struct ScoreTileOf : ScoreTile<ROWS, COLUMNS, false> {
  using Element = T;
  static constexpr bool EXACT = IS_EXACT;  // to float32's last places
  const Sequence& s;
  const int head;

  DEVICE ScoreTileOf(float (&x)[ScoreTile<ROWS, COLUMNS, false>::SIZE], int query, int key, const Sequence& s, int head)
      : ScoreTile<ROWS, COLUMNS, false>{x, query, key}, s(s), head(head) {}
  DEVICE int sequence() const { return s.index; }
  DEVICE int sq() const { return s.sq; }
  DEVICE int sk() const { return s.sk; }
  // addMappedBias does what OptionScore::addBias does where the bias comes through shared memory,
  // and reports whether it does.
  DEVICE bool addMappedBias(float factor) { return false; }
};

// PlainScore is a score that is the product times a positive scale.
struct PlainScore {
  static constexpr bool CHANGES = false, ADDS = false, DROPS = false;
  using Mask = BandMask;
  template <bool EXACT = false> static DEVICE float factorOf(const AttentionArguments& a) { return a.scale; }
  static DEVICE bool adds(const AttentionArguments&) { return false; }
  static DEVICE bool hasGains(const AttentionArguments&) { return false; }
  template <class Tile> static DEVICE void change(const AttentionArguments&, Tile) {}
  template <class Tile> static DEVICE void addGradients(const AttentionArguments&, Tile) {}
};

// A score and its row's maximum or logsumexp may be so far from zero that rounding them as powers
// of two changes their difference: with a bias of -1e9 by 18. So what is far is subtracted before
// it is a power; where float32's last places count, everything is.
constexpr float FAR = 0x1p11f;
template <bool EXACT> DEVICE bool isFar(float power) { return EXACT || fabsf(power) > FAR; }

// keptLSE is a row's logsumexp as backward kernels keep it: as a power of two, or, if it is far,
// twice itself, which is far too. A row that sees no key has +inf: its P is 0.
template <bool EXACT> DEVICE float keptLSE(float lse) {
  const float power = lse * LOG2E, kept = isFar<EXACT>(power) ? 2 * lse : power;
  return kept == -INFINITY ? INFINITY : kept;
}
// powerOf is the power of two that P is. x times factor is the score.
template <bool EXACT> DEVICE float powerOf(float x, float factor, float kept) {
  return isFar<EXACT>(kept) ? (__fmul_rn(x, factor) - kept / 2) * LOG2E : fmaf(x, factor * LOG2E, -kept);
}

DEVICE float widen(float x) { return x; }
DEVICE float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
DEVICE float widen(__half x) { return __half2float(x); }
DEVICE float2 widenTwo(const float* p) { return __ldg((const float2*)p); }
template <class T> DEVICE float2 widenTwo(const T* p) { return unpacked<T>(__ldg((const uint32_t*)p)); }
DEVICE void round(float* to, float x) { *to = x; }
template <class T> DEVICE void round(T* to, float x) { *to = T(x); }

// hyperbolicTangent is exact to float32's last places, or to 1e-7, which does for operands of 16
// bits.
template <bool EXACT> DEVICE float hyperbolicTangent(float x, float factor) {
  if (EXACT) return tanhf(x * factor);
  return 1 - __fdividef(2, 1 + exp2Fast(x * (2 * LOG2E * factor)));
}
// cappingTangent is exact, or the hardware's own: within 2^-11 of itself, which is half of what
// rounding a score to bfloat16 changes, and as much as rounding it to float16 does.
template <bool EXACT> DEVICE float cappingTangent(float x, float factor) {
  if (EXACT) return tanhf(x * factor);
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x * factor));
  return y;
}
// quotient is x/y within a unit of the last place, and at most 2^100, without a branch for odd
// ones.
DEVICE float quotient(float x, float y) {
  const float inverse = __fdividef(1, y), near = x * inverse;
  return fabsf(near) < 0x1p100f ? fmaf(fmaf(-near, y, x), inverse, near) : copysignf(0x1p100f, near);
}

// OptionScore is a score with any of the options that change it, in this order:
//
//   x  = scale · q·k
//   x  ← cap · tanh(x / cap)             softCap
//   x  ← x − slope_h · |i + off − j|     slopes
//   x  ← x + bias_ij                     bias
//
// i and j are the row and the column within their sequence, off = sk − sq of that sequence. An
// option that is not used costs one branch a tile. Where not BIASED, there is neither a bias nor
// dropout.
template <bool BIASED> struct OptionScoreOf {
  static constexpr bool CHANGES = true, ADDS = true, DROPS = BIASED;
  using Mask = BandMask;

  template <bool EXACT = false> static DEVICE float factorOf(const AttentionArguments& a) {
    return hasBias(a) || EXACT && a.slopes || !divides(a) ? 1 : outer(a);
  }
  // outer is what multiplies a score before anything is added to it. Where it divides, and
  // float32's last places do not count, slopes are divided by it, and the factor is left for later.
  static DEVICE float outer(const AttentionArguments& a) { return a.softCap > 0 ? a.softCap : a.scale; }
  static DEVICE bool divides(const AttentionArguments& a) { return outer(a) > (a.slopes ? 0x1p-64f : 0); }
  static DEVICE bool hasBias(const AttentionArguments& a) { return BIASED && a.bias; }
  static DEVICE bool adds(const AttentionArguments& a) { return a.slopes || hasBias(a); }
  static DEVICE bool hasGains(const AttentionArguments& a) { return a.softCap > 0; }

  template <class Tile> static DEVICE void change(const AttentionArguments& a, Tile t) {
    if (a.scale > 0 && a.softCap == 0 && !a.slopes && !hasBias(a)) return;
    if (a.softCap > 0)
      t.eachWithGain([&](float& x, int, int) {
        x = cappingTangent<Tile::EXACT>(x, a.scaleInCap);
        return 1 - x * x;
      });
    float factor = outer(a);  // what is still to be multiplied by
    if (a.slopes) {
      if (!Tile::EXACT && !divides(a)) {
        t.each([&](float& x, int, int) { x *= factor; });
        factor = 1;
      }
      const float given = a.slopes[t.head];
      const float slope = Tile::EXACT ? given : quotient(given, factor), distance = t.query + t.sk() - t.sq() - t.key;
      if constexpr (Tile::EXACT) {
        t.each([&](float& x, int i, int j) { x = fmaf(x, factor, -slope * fabsf(distance + (i - j))); });
        factor = 1;
      } else {
        t.each([&](float& x, int i, int j) { x = fmaf(-slope, fabsf(distance + (i - j)), x); });
      }
    }
    if (hasBias(a)) {
      if (!t.addMappedBias(factor)) addBias(a, t, factor);
    } else if (factor <= 0) {
      t.each([&](float& x, int, int) { x *= factor; });
    }
  }

  template <class Tile> static DEVICE void addBias(const AttentionArguments& a, Tile& t, float factor) {
    const int64_t plane = t.sequence() * a.biasSequence + t.head * a.biasHead;
    if (a.biasElement == ElementF32)
      addBiasOf(a, (const float*)a.bias + plane, t, factor);
    else if constexpr (sizeof(typename Tile::Element) == 2)
      addBiasOf(a, (const typename Tile::Element*)a.bias + plane, t, factor);
  }
  // addBiasOf does x = factor·x + bias. Rows and columns beyond the sequence read the last one's.
  // Loads of neighbouring columns, of which the first is even, go together where they can. No
  // thread decides that by itself: what follows would lose its uniform registers.
  template <class T, class Tile> static DEVICE void addBiasOf(const AttentionArguments& a, const T* bias, Tile& t, float factor) {
    const int lastQuery = t.sq() - 1, lastKey = t.sk() - 1;
    const bool paired = !Tile::BY_KEYS && ((uint64_t)bias | a.biasRow * sizeof(T)) % (2 * sizeof(T)) == 0;
    if (a.biasColumn == 0) {
      t.each([&](float& x, int i, int) { x = fmaf(x, factor, widen(bias[min(t.query + i, lastQuery) * a.biasRow])); });
    } else if (Tile::BY_KEYS && a.biasRow == 0) {
      t.each([&](float& x, int, int j) { x = fmaf(x, factor, widen(bias[min(t.key + j, lastKey)])); });
    } else if (paired && __all_sync(~0u, t.key + Tile::WIDTH <= t.sk())) {
      t.eachPair([&](float& x, float& y, int i, int j) {
        const float2 two = widenTwo(bias + min(t.query + i, lastQuery) * a.biasRow + t.key + j);
        x = fmaf(x, factor, two.x);
        y = fmaf(y, factor, two.y);
      });
    } else {
      t.each([&](float& x, int i, int j) {
        x = fmaf(x, factor, widen(bias[min(t.query + i, lastQuery) * a.biasRow + min(t.key + j, lastKey)]));
      });
    }
  }

  // addGradients stores the gradient of the bias, or adds to it where several scores share an
  // element.
  template <class Tile> static DEVICE void addGradients(const AttentionArguments& a, Tile t) {
    if (!a.dBias) return;
    const int64_t at = t.sequence() * a.dBiasSequence + t.head * a.dBiasHead + t.query * a.dBiasRow + t.key * a.dBiasColumn;
    const int rows = t.sq() - t.query, keys = t.sk() - t.key;
    const auto eachWithin = [&](auto f) {
      t.each([&](float x, int i, int j) {
        if (i < rows && j < keys) f(i * a.dBiasRow + j * a.dBiasColumn, x);
      });
    };
    using Element = typename Tile::Element;
    if (a.dBiasSums)
      eachWithin([&](int64_t place, float x) {
        if (x != 0) atomicAdd((float*)a.dBias + at + place, x);
      });
    else if (a.biasElement == ElementF32)
      eachWithin([&](int64_t place, float x) { round((float*)a.dBias + at + place, x); });
    else if constexpr (sizeof(Element) == 2)
      eachWithin([&](int64_t place, float x) { round((Element*)a.dBias + at + place, x); });
  }
};
using OptionScore = OptionScoreOf<true>;
// UnbiasedScore is an OptionScore without bias and dropout.
using UnbiasedScore = OptionScoreOf<false>;
