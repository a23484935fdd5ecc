// A bias alone, which kernels for sm_90a bring and whose gradient they write by tensor maps.
#pragma once
#include "score.cuh"

// BiasScore is what OptionScore is with a bias that a map describes, and nothing else.
struct BiasScore {
  static constexpr bool CHANGES = true, ADDS = true, DROPS = false;
  using Mask = BandMask;
  template <bool EXACT = false> static DEVICE float factorOf(const AttentionArguments&) { return 1; }
  static DEVICE bool adds(const AttentionArguments&) { return true; }
  static DEVICE bool hasGains(const AttentionArguments&) { return false; }
  template <class Tile> static DEVICE void change(const AttentionArguments& a, Tile t) { t.addMappedBias(a.scale); }
  template <class Tile> static DEVICE void addGradients(const AttentionArguments&, Tile) {}
};

// isBias reports whether a policy is BiasScore.
template <class Score> constexpr bool isBias = false;
template <> inline constexpr bool isBias<BiasScore> = true;
