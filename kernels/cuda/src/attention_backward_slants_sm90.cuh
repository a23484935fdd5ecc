// How slopes come to the scores of attention backward for sm_90a: by one more step of the product
// K·Qᵀ, where all keys of a step lie on one side of all its queries. There
//
//   −slope·|i − j| = −slope·nearest + p·(keys from j to the tile's last) + w_i
//
// where nearest is the distance of the nearest two, p is the slope with the side's sign, and w_i is
// the rest of row i. The left operand has the keys' distances and ones, always the same. The right
// one has p and w_i, each as three numbers of 16 bits, which backwardStats brings with the
// logsumexp. The first term goes into that. In other steps the right operand is zero, and scores are
// changed one by one.
#pragma once
#include "attention_backward_barriers_sm90.cuh"
#include "attention_slopes_sm90.cuh"

// BackwardSlants are a block's operands, as unswizzled describes them: of each row, the second eight
// columns are zero.
template <class Shape> struct BackwardSlants {
  static constexpr int TileQ = Shape::TileQ, TileK = Shape::TileK;
  uint32_t at;

  DEVICE BackwardSlants(uint32_t shared) : at(shared + Shape::SlantsAt) {}

  // begin prepares shared memory; the whole block calls it.
  DEVICE void begin() const {
    for (int n = threadIdx.x; n < 2 * (TileK + Shape::Stages * TileQ); n += blockDim.x) storeShared16(at + n * 16, make_uint4(0, 0, 0, 0));
    __syncthreads();
    for (int n = threadIdx.x; n < TileK; n += blockDim.x) {
      const float behind = TileK - 1 - n;
      storeShared16(rowOf(at, n), make_uint4(pack(behind, behind), pack(behind, 0), pack(1, 1), pack(1, 0)));
    }
    sharedToAsync();
  }
  static DEVICE uint32_t rowOf(uint32_t operand, int n) { return operand + n / 8 * 256 + n % 8 * 16; }
  DEVICE uint32_t queries(int stage) const { return at + 32 * (TileK + stage * TileQ); }

  // The operands' matrix descriptors: of a group's 64 keys, and of a step's queries.
  DEVICE uint64_t left(int group) const { return unswizzled(at + group * 64 * 32); }
  DEVICE uint64_t right(int stage) const { return unswizzled(queries(stage)); }

  // put writes a query's row of the right operand: p, and w.
  DEVICE void put(int stage, int query, uint2 p, uint2 w) const {
    storeShared16(rowOf(queries(stage), query), make_uint4(p.x, p.y, w.x, w.y));
  }
  // parts are three numbers of 16 bits whose sum is x.
  static DEVICE uint2 parts(float x) {
    const float head = widen(Scalar(x)), middle = widen(Scalar(x - head));
    return make_uint2(pack(head, middle), pack(x - head - middle, 0));
  }

  // What backwardStats tells of a step: some logsumexp is far from zero, or scores are to be changed
  // one by one.
  static constexpr uint32_t SomeFar = 1, OneByOne = 2;
  DEVICE uint32_t told(int stage) const { return at + Shape::BarriersAt - Shape::SlantsAt + 248 + 4 * stage; }
};

// BackwardSlant is a step's part, for the warp that brings the logsumexp. Without slants it is
// nothing.
template <class Shape, bool Slants = Shape::Slants> struct BackwardSlant {
  DEVICE BackwardSlant(const AttentionArguments&, const BackwardRecord<Shape>&, const BackwardSteps<Shape>&) {}
  DEVICE float lse(float x) const { return x; }
  template <int N> DEVICE void put(uint32_t shared, int stage, const float (&kept)[N]) const {}
};
template <class Shape> struct BackwardSlant<Shape, true> {
  bool oneByOne;   // keys lie on both sides of some query, or the slope is steep
  float missing;   // the first term, negated
  float p, first;  // w is first for the tile's first query, and p more for each behind it

  DEVICE BackwardSlant(const AttentionArguments& a, const BackwardRecord<Shape>& record, const BackwardSteps<Shape>& steps) {
    const float slope = Shape::Score::byProduct(a, steps.head);
    const int query = steps.m * Shape::TileQ + record.sk() - record.sq(), key = record.key();
    const int before = query - (key + Shape::TileK - 1), behind = key - (query + Shape::TileQ - 1), nearest = max(before, behind);
    oneByOne = slope == 0 || nearest < 0;
    missing = oneByOne ? 0.f : a.slopes[steps.head] * nearest;
    p = oneByOne ? 0.f : behind > before ? slope : -slope;
    first = behind > before ? -p * (Shape::TileK + Shape::TileQ - 2) : 0.f;
  }
  // lse is a query's logsumexp less what its scores lack.
  DEVICE float lse(float x) const { return x + missing; }
  // put brings the right operand and tells consumers of the step; kept are the warp's logsumexps.
  template <int N> DEVICE void put(uint32_t shared, int stage, const float (&kept)[N]) const {
    const BackwardSlants<Shape> slants(shared);
    const int lane = threadIdx.x & 31;
    const uint2 front = slants.parts(p);
    bool far = false;
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int query = i * 32 + lane;
      far |= isFar<false>(kept[i]) && kept[i] != INFINITY;
      if (query < Shape::TileQ) slants.put(stage, query, front, slants.parts(fmaf(p, query, first)));
    }
    far = __any_sync(~0u, far);
    if (lane == 0) storeShared4(slants.told(stage), (far ? slants.SomeFar : 0) | (oneByOne ? slants.OneByOne : 0));
    sharedToAsync();
  }
};
