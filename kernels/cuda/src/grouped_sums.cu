// The sums of the rows of each group. A block has a group and 32 columns, whose rows its warps share.
#include "arguments.cuh"
#include "elements.cuh"
#include "matmul.cuh"

// GroupedSumsArguments is the host's groupedSumsArguments in grouped.go.
struct GroupedSumsArguments {
  const void* x;           // (rows, columns)
  void* out;               // (groups, columns)
  const int32_t* offsets;
  int64_t step;            // from one row of x to the next, in elements
  int32_t columns, element;  // Element of out
};

template <class T> __device__ __forceinline__ void sums(const GroupedSumsArguments& a) {
  __shared__ float parts[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane, group = blockIdx.y;
  float sum = 0;
  if (column < a.columns)
    for (int row = a.offsets[group] + warp; row < a.offsets[group + 1]; row += 8) sum += asFloat(((const T*)a.x)[row * a.step + column]);
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= a.columns) return;
  for (int w = 1; w < 8; w++) sum += parts[w][lane];
  storeElement(a.out, (int64_t)group * a.columns + column, a.element, sum);
}

#define SUMS(name, T) \
  extern "C" __global__ void __launch_bounds__(256) grouped_sums_##name(const __grid_constant__ GroupedSumsArguments a) { sums<T>(a); }
FOR_EACH_ELEMENT(SUMS)
