// Looking up rows of a packed table, in float32: y_ij = number of table_(id_i)j times its scale. A
// warp has a row, a lane eight neighbours of it at a time.
#include "packed.cuh"

// PackedLookup is the host's packedLookup in embedding.go.
struct PackedLookup {
  Packed table;
  Lines lines;  // of y; then of the ids, as rows of one element
  Indices ids;
  Fault fault;
  float* to;
};

constexpr int THREADS = 256, EIGHT = 8;

// lookUp leaves the row of an id outside the table as it was, and reports it.
template <PackedKind kind> __device__ __forceinline__ void lookUp(const PackedLookup& g) {
  __shared__ float numbers[16];
  if (threadIdx.x < 16) numbers[threadIdx.x] = g.table.numbers[threadIdx.x];
  __syncthreads();
  const int64_t warps = (int64_t)gridDim.x * (THREADS / 32);
  for (int64_t row = blockIdx.x * (int64_t)(THREADS / 32) + threadIdx.x / 32; row < g.lines.count; row += warps) {
    const int64_t id = g.ids[g.lines.at(1, row)];
    if (id < 0 || id >= g.table.rows) {
      if (threadIdx.x % 32 == 0) g.fault.report(row, id, g.table.rows);
      continue;
    }
    const uint8_t* from = g.table.data + id * g.table.rowBytes;
    float* to = g.to + g.lines.at(0, row);
    for (int column = threadIdx.x % 32 * EIGHT; column < g.table.columns; column += 32 * EIGHT) {
      float x[EIGHT];
      eightOf<kind>(g.table, numbers, from, column, x);
#pragma unroll
      for (int i = 0; i < EIGHT; i++) to[column + i] = x[i];
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) packed_embedding_int8(const __grid_constant__ PackedLookup g) { lookUp<Int8>(g); }
extern "C" __global__ void __launch_bounds__(THREADS) packed_embedding_int4(const __grid_constant__ PackedLookup g) { lookUp<Int4>(g); }
extern "C" __global__ void __launch_bounds__(THREADS) packed_embedding_nf4(const __grid_constant__ PackedLookup g) { lookUp<NF4>(g); }
