// What kernels of grouped products are told: matrix products whose rows of A, or whose depth, belong to
// groups. The host's mirror is in grouped.go.
#pragma once
#include "matmul.cuh"

struct GroupedArguments {
  // Of groups of rows, A and C are one matrix, and items are those of B; of groups of the depth, A and B
  // are one matrix, and items are those of C.
  MatMulArguments g;
  const int32_t* offsets;  // (groups + 1): where each begins
  int64_t biasStep;        // from the bias of one group to the next, in elements
  int32_t groups, reserved;
};

// GroupOfTile finds, for a warp at a time, which group the number-th tile of `side` rows belongs to,
// where tiles of one group follow those of another. Behind the last tile the group is `groups`.
struct GroupOfTile {
  int group, row, end;

  __device__ __forceinline__ GroupOfTile(const GroupedArguments& a, int number, int side) : group(a.groups), row(0), end(0) {
    const int lane = threadIdx.x % 32;
    for (int base = 0; base < a.groups; base += 32) {
      const int i = base + lane, from = i < a.groups ? a.offsets[i] : 0, to = i < a.groups ? a.offsets[i + 1] : 0;
      const int tiles = (to - from + side - 1) / side;
      int sum = tiles;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += before;
      }
      const unsigned beyond = __ballot_sync(~0u, number < sum);
      if (beyond) {
        const int found = __ffs(beyond) - 1;
        const int begins = __shfl_sync(~0u, sum - tiles, found);
        group = base + found, row = __shfl_sync(~0u, from, found) + (number - begins) * side, end = __shfl_sync(~0u, to, found);
        return;
      }
      number -= __shfl_sync(~0u, sum, 31);
    }
  }
};
