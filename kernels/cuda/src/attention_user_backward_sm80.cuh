// What a user's score and mask make of a warp's scores in the backward kernels for compute
// capability 8.0 and newer.
#pragma once
#include "attention_user.cuh"

#include "attention_backward_sm80.cuh"

template <class E, int D, int ROWS, int KEYS, bool BIAS>
struct Scores<E, D, ROWS, KEYS, UserScore, BIAS> : Scores<E, D, ROWS, KEYS, OptionScore, BIAS> {
  using Options = Scores<E, D, ROWS, KEYS, OptionScore, BIAS>;
  using typename Options::Keys;
  using typename Options::Queries;
  using Options::adds, Options::delta, Options::dS, Options::lse, Options::p;
  using Block = WarpTile<E, ROWS, KEYS>;
  static constexpr int SIZE = Block::SIZE;

  DEVICE void rows(const AttentionArguments& a, const View<UserScore>& view, int head, int row) {
    Options::rows(a, View<OptionScore>(a, view.s.index), head, row);
  }

  // compute is as that of other scores.
  DEVICE void compute(const AttentionArguments& arguments, const View<UserScore>& view, int head, Queries q, Keys k, Queries dO,
                      Keys v, int rowInTile, int columnInTile, int row, int column) {
    multiplyTransposed<E, D>(p, q, rowInTile, k, columnInTile);
    multiplyTransposed<E, D>(dS, dO, rowInTile, v, columnInTile);
    fromProducts(arguments, view, head, row, column);
  }

  DEVICE void fromProducts(const AttentionArguments& arguments, const View<UserScore>& view, int head, int row, int column) {
    const UserArguments& a = (const UserArguments&)arguments;
    float gains[USER_OPTIONS && !BIAS ? SIZE : 1], slopes[USER_SCORE ? SIZE : 1], before[USER_SLOPES_BY_SCORE ? SIZE : 1];
    const Block scores(p, row, column, view.s, head);
    if constexpr (USER_OPTIONS) {
      typename Options::template GainTile<!BIAS> tile{scores, gains};
      if (!BIAS && !OptionScore::hasGains(a))
        for (int n = 0; n < SIZE; n++) gains[n] = 1;
      OptionScore::change(a, optionTile(a, tile));
    }
    const float factor = UserScore::innerFactor<Block::EXACT>(a);
    const UserPairsOf pairs(a, scores);
    int n = 0;
    Block(scores).each([&](float& x, int i, int j) {
      const UserPair pair = pairs.at(i, j, x * factor);
      if constexpr (USER_SLOPES_BY_SCORE) before[n] = pair.score;
      if constexpr (USER_SCORE) x = userScore<Block::EXACT>(a, pair, slopes[n]);
      if (USER_MASK && !userVisible(a, pair)) x = -INFINITY;
      n++;
    });
    const float outer = UserScore::factorOf<Block::EXACT>(a);
    float exponent = outer * LOG2E;
    this->centre(outer, exponent);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[i][j][e] = exp2Fast(p[i][j][e] * exponent - lse[i][e / 2]);
    const BandMask& band = view.mask;
    if (!band.whole(row, 16 * ROWS, column, 8 * KEYS)) band.hide(scores, 0);
    gradients(a, view, head, row, column);

    const bool adding = !WIDE || adds;
    if constexpr (!BIAS) {
      if (adding) eachUserLookup([&](auto lookup) { this->template addLookup<decltype(lookup)>(a, view, head, row, column, before); });
    }
    if constexpr (USER_SCORE) multiply(slopes);
    if constexpr (!BIAS)
      if (adding) OptionScore::addGradients(a, Block(dS, row, column, view.s, head));
    if constexpr (USER_OPTIONS && !BIAS) multiply(gains);
  }

  // gradients turns dP into dS, and leaves out of p what dropout drops.
  DEVICE void gradients(const UserArguments& a, const View<UserScore>& view, int head, int row, int column) {
    const Dropper dropper(a, view.s, head);
    static_assert(KEYS % 2 == 0, "blocks are drawn for in pairs");
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      uint32_t words[2][2];
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        if (a.dropThreshold && j % 2 == 0) dropWords(dropper, row + lane() / 4 + 16 * i, column + lane() % 4 * 2 + 8 * j, words);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float probability = p[i][j][e];
          if (a.dropThreshold) {
            const bool keep = dropper.kept(words[j % 2][e / 2]) & (e % 2 ? 0x80000000 : 0x8000);
            p[i][j][e] = keep ? probability : 0;
            dS[i][j][e] = keep ? dS[i][j][e] * a.keepScale : 0;
          }
          dS[i][j][e] = probability == 0 ? 0 : probability * (dS[i][j][e] - delta[i][e / 2]);
        }
      }
    }
  }

  // multiply multiplies dS by derivatives, which may be NaN where dS is 0 because the mask hides
  // it.
  DEVICE void multiply(const float (&gains)[SIZE]) {
    int n = 0;
    ScoreTile<ROWS, KEYS, false>{*(float(*)[SIZE])dS, 0, 0}.each([&](float& x, int, int) {
      x = x == 0 ? 0 : x * gains[n];
      n++;
    });
  }

  template <class Lookup, int N>
  DEVICE void addLookup(const UserArguments& a, const View<UserScore>& view, int head, int row, int column, const float (&before)[N]) {
    if (!a.sums[Lookup::TABLE]) return;
    const Block block(dS, row, column, view.s, head);
    const UserPairsOf pairs(a, block);
    using Sums = UserSums<Lookup, ROWS, KEYS, false>;
    Sums(a, pairs).addTerms([&](int i, int j, int e) {
      const float x = dS[i][j][e], score = before[N > 1 ? placeOf(i, j, e) : 0];
      return x == 0 ? 0 : x * Lookup::template slope<Block::EXACT>(a, Sums::pairAt(pairs, 16 * i + e / 2 * 8, 8 * j + e % 2, score));
    });
  }
  // placeOf is the number of an element in the order of ScoreTile::each.
  static DEVICE constexpr int placeOf(int i, int j, int e) { return ((2 * i + e / 2) * KEYS + j) * 2 + e % 2; }
};
