// Positions of tokens behind those of padding. With n_bs the number of ids_bt ≠ padding for t ≤ s:
//
//   positions_bs = padding + n_bs if ids_bs ≠ padding, otherwise padding
//
// ids and positions are (B, S). A block has a row, and takes as many of its columns at a time as it
// has threads.
#include <stdint.h>

// PositionArguments is the host's positionArguments in positions.go.
struct PositionArguments {
  const void* ids;
  void* positions;
  int64_t idRow, row;     // elements from one row to the next
  int64_t padding;
  int32_t length, bytes;  // columns, and the size of an element
};

template <class T> __device__ __forceinline__ void count(const PositionArguments& a) {
  __shared__ int shared[2][32];
  const T *ids = (const T*)a.ids + blockIdx.x * a.idRow, padding = (T)a.padding;
  T* positions = (T*)a.positions + blockIdx.x * a.row;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  T before = padding;  // and how many tokens there are in the columns before
  for (int first = 0, turn = 0; first < a.length; first += blockDim.x, turn ^= 1) {
    const int column = first + threadIdx.x;
    const bool there = column < a.length && ids[column] != padding;
    const uint32_t tokens = __ballot_sync(~0u, there);
    if (lane == 0) shared[turn][warp] = __popc(tokens);
    __syncthreads();
    int inside = __popc(tokens & (~0u >> (31 - lane))), all = 0;
    for (int other = 0; other < warps; other++) {
      inside += other < warp ? shared[turn][other] : 0;
      all += shared[turn][other];
    }
    if (column < a.length) positions[column] = there ? before + inside : padding;
    before += all;
  }
}

extern "C" __global__ void token_positions(const __grid_constant__ PositionArguments a) {
  a.bytes == 4 ? count<int32_t>(a) : count<int64_t>(a);
}
