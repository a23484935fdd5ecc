// The kernel behind backward that rounds sums of which the order must not count.
#pragma once
#include "attention_user.cuh"

// SumsArguments is exactSumsArguments in attention_score.go.
struct SumsArguments {
  const ExactSum* from;
  float* to;
  int64_t count;
};

extern "C" __global__ void attention_sums(const __grid_constant__ SumsArguments a) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at < a.count) a.to[at] = a.from[at].value();
}
