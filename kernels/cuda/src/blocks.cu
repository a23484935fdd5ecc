// Tables of the blocks that lists have. kernels/blocks.go says what they are.
#include "elements.cuh"

// BlockArguments is the host's blockArguments in blocks.go.
struct BlockArguments {
  Lines lines;    // of the table, and of the lists
  Indices lists;
  Fault fault;
  int32_t* grid;
  int32_t n, count;  // indices of a list, and blocks of a row of the table
};

// list_blocks gives each list a warp, which clears its row of the table before it marks blocks.
extern "C" __global__ void __launch_bounds__(256) list_blocks(const __grid_constant__ BlockArguments a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= a.lines.count) return;
  int32_t* const to = a.grid + a.lines.at(0, row);
  for (int i = lane; i < a.count; i += 32) to[i] = 0;
  __syncwarp();
  const int64_t from = a.lines.at(1, row);
  for (int j = lane; j < a.n; j += 32) {
    const int64_t block = a.lists[from + j];
    if (block >= 0 && block < a.count) to[block] = 1;
    else if (block != -1) a.fault.report(row * a.n + j, block, a.count);
  }
}
