// Attention backward for sm_90a: dK and dV of each tile of keys, and dQ as float32 sums over the
// tiles of keys.
//
// A block is one producer warpgroup and two consumer warpgroups. It owns a tile of keys, whose K
// and V stay in shared memory, and walks over the query tiles that see it, from the last to the
// first, for each head of the group that shares the keys:
//
//   S  = K·Qᵀ     P  = 2^(S − LSE)        dV += P·dO
//   dP = V·dOᵀ    dS = P∘(dP − δ)         dK += dS·Q       dQᵀ = Kᵀ·dS
//
// All scores are kept transposed, a row a key: so P and dS are the left operands of dV and dK right
// where they were computed, in registers, and only dS goes through shared memory, for dQ. dQ is
// computed one step late, when both warpgroups have long written their half of dS, so that they
// need not walk in step. It is added to sums in global memory straight from the registers, in their
// order; attention_dq then scales and rounds the sums. Heads of more than 128 with tiles of 64 keys
// divide the work otherwise: see attention_backward_wide_sm90.cuh. Where tiles of smaller heads are
// 64 keys, one consumer warpgroup has them, and computes dQ in the same step: two such blocks run at
// a time.
//
// The first tile of keys that sees a query tile writes its sums, so that nobody needs to clear
// them, and the others wait for it. Where sums must be the same from run to run, all of them wait
// for each other in the order of the keys. Blocks are persistent and draw tiles of keys from a
// counter, in that order too, so that none waits for a tile that nobody has begun.
//
// Of the producer warpgroup, warp 0 loads by TMA, warp 1 brings LSE and δ, warp 2 waits for the
// turn to add, warp 3 tells that it is over. Kernels with options have a fourth warpgroup: see
// BackwardHelpers.
#pragma once
#include "attention_backward_helpers_sm90.cuh"
#include "attention_backward_narrow_sm90.cuh"
#include "attention_backward_producer_sm90.cuh"
#include "attention_backward_wide_sm90.cuh"

// attentionBackward is a block's part. Shapes without options need no map of the bias.
template <class Shape>
DEVICE void attentionBackward(const CUtensorMap* q, const CUtensorMap* k, const CUtensorMap* v, const CUtensorMap* o,
                              const CUtensorMap* bias, const CUtensorMap* dBias, const AttentionArguments& a) {
  extern __shared__ uint8_t memory[];
  const uint32_t shared = (sharedAddress(memory) + 1023) & ~1023u;
  const BackwardBarriers<Shape> barriers = {shared + Shape::BarriersAt};
  if (threadIdx.x == 0) {
    barriers.init(a);
    prefetchMap(q);
    prefetchMap(k);
    prefetchMap(v);
    prefetchMap(o);
  }
  if constexpr (Shape::Slants) BackwardSlants<Shape>(shared).begin();
  __syncthreads();
  const int role = warpgroupIndex();
  if (role == 0) {
    fewerRegisters<Shape::ProducerRegisters>();
    const int warp = threadIdx.x / 32;
    const bool leader = threadIdx.x % 32 == 0;
    if (leader && warp == 0) backwardLoader<Shape>(q, k, v, o, bias, a, shared, barriers);
    if (warp == 1) backwardStats<Shape>(a, shared, barriers);
    if (leader && warp == 2) backwardTurns<Shape>(a, barriers);
    if (leader && warp == 3) backwardAdded<Shape>(dBias, a, shared, barriers);
  } else if (!Shape::Modified || role < 3) {
    moreRegisters<Shape::ConsumerRegisters>();
    if constexpr (Shape::Wide)
      BackwardWideConsumer<Shape>(a, shared).run();
    else
      BackwardNarrowConsumer<Shape>(a, shared).run();
  } else if constexpr (Shape::Modified) {
    fewerRegisters<24>();
    BackwardHelpers<Shape>(a, shared).run();
  }
}
