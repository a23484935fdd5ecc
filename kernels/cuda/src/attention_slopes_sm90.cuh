// Slopes alone, which kernels for sm_90a add to scores by a product where they can.
#pragma once
#include "hopper.cuh"
#include "score.cuh"

// unswizzled describes an operand in shared memory to wgmma whose rows have 16 columns: eight rows of
// eight columns lie in 128 bytes, behind them the other eight columns, then the next eight rows.
DEVICE uint64_t unswizzled(uint32_t address) { return (uint64_t)(256 >> 4) << 32 | (128 >> 4) << 16 | address >> 4; }

// SlopesScore is what OptionScore is with slopes and nothing else.
struct SlopesScore {
  static constexpr bool CHANGES = true, ADDS = true, DROPS = false;
  using Mask = BandMask;

  // Slopes are divided by the scale, which is left for later, if it is large enough.
  static DEVICE bool divides(const AttentionArguments& a) { return a.scale > 0x1p-64f; }
  template <bool EXACT = false> static DEVICE float factorOf(const AttentionArguments& a) { return divides(a) ? a.scale : 1; }
  static DEVICE bool adds(const AttentionArguments&) { return true; }
  static DEVICE bool hasGains(const AttentionArguments&) { return false; }
  template <class Tile> static DEVICE void addGradients(const AttentionArguments&, Tile) {}

  template <class Tile> static DEVICE void change(const AttentionArguments& a, Tile t) {
    if (!divides(a)) t.each([&](float& x, int, int) { x *= a.scale; });
    const float slope = quotient(a.slopes[t.head], factorOf(a)), distance = t.query + t.sk() - t.sq() - t.key;
    t.each([&](float& x, int i, int j) { x = fmaf(-slope, fabsf(distance + (i - j)), x); });
  }

  // byProduct is a head's slope, divided as above, if it is one that a product of 16 bits may add:
  // numbers of up to some 300 times it are then as exact as scores, and fit in float16. Otherwise it
  // is 0.
  static DEVICE float byProduct(const AttentionArguments& a, int head) {
    constexpr float STEEP = 128;
    const float slope = divides(a) ? quotient(a.slopes[head], a.scale) : 0.f;
    return fabsf(slope) < STEEP ? slope : 0.f;
  }
};
