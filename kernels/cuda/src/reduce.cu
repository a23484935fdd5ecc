// Sums: of all elements of a tensor, and of its rows. Each has two stages, the second of which adds
// what blocks of the first found, so the order of a sum depends on the shape and the device alone.
#include "elementwise.cuh"

// sumOfBlock adds up what the 256 threads of a block have, in one order; thread 0 has the result.
__device__ __forceinline__ double sumOfBlock(double sum) {
  __shared__ double parts[8];
  sum = sumOfWarp(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  for (int i = 1; i < 8 && threadIdx.x == 0; i++) sum += parts[i];
  return sum;
}

// sum gives the second tensor a float64 sum for each block, and sum_f64 adds those up and
// multiplies by the factor.
template <class T> __device__ __forceinline__ void sum(const Elementwise& e) {
  double sum = 0;
  eachGroup<1, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float x[n];
    load<n>((const T*)e.data[0] + at[0], x);
    double part = 0;
#pragma unroll
    for (int i = 0; i < n; i++) part += x[i];
    return [&sum, part] { sum += part; };
  });
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) ((double*)e.data[1])[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) sum_f64(const __grid_constant__ Elementwise e) {
  double sum = 0;
  for (int64_t n = threadIdx.x; n < e.count; n += blockDim.x) sum += ((const double*)e.data[1])[n];
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) *(float*)e.data[0] = (float)(sum * e.factor);
}

// SumRowsArguments is the host's sumRowsArguments in reduce.go.
struct SumRowsArguments {
  Lines lines;   // of x
  const void* x;
  float* parts;  // (gridDim.y, length)
};

// sumRows gives a block some columns, `n` a lane, and the rows of one part; its eight warps take
// the rows in turns.
template <class T, int n> __device__ __forceinline__ void sumRows(const SumRowsArguments& a) {
  __shared__ float shared[8][32 * n];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t column = ((int64_t)blockIdx.x * 32 + lane) * n;
  float sum[n] = {};
  if (column < a.lines.length) {
    const int64_t perPart = (a.lines.count + gridDim.y - 1) / gridDim.y, from = blockIdx.y * perPart;
    const int64_t to = from + perPart < a.lines.count ? from + perPart : a.lines.count;
    const auto add = [&](const T* from) {
      float x[n];
      load<n>(from, x);
#pragma unroll
      for (int i = 0; i < n; i++) sum[i] += x[i];
    };
    int64_t row = from + warp;
    if (a.lines.axes <= 1) {  // several rows are on their way, since no loop finds their places
      constexpr int several = 4;
      const int64_t step = a.lines.strides[0][0];
      const T* x = (const T*)a.x + column;
      for (; row + (several - 1) * 8 < to; row += several * 8) {
        Piece<T, n> pieces[several];
#pragma unroll
        for (int k = 0; k < several; k++) pieces[k] = *(const Piece<T, n>*)(x + (row + k * 8) * step);
#pragma unroll
        for (int k = 0; k < several; k++) add(pieces[k].x);
      }
    }
    for (; row < to; row += 8) add((const T*)a.x + a.lines.at(0, row) + column);
  }
#pragma unroll
  for (int i = 0; i < n; i++) shared[warp][i * 32 + lane] = sum[i];
  __syncthreads();
  for (int i = warp; i < n; i += 8) {
    float total = 0;
    for (int w = 0; w < 8; w++) total += shared[w][i * 32 + lane];
    if (column < a.lines.length) a.parts[blockIdx.y * (int64_t)a.lines.length + column + i] = total;
  }
}

// SumPartsArguments is the host's sumPartsArguments in reduce.go.
struct SumPartsArguments {
  const float* parts[3];  // (count, columns) each; a row of blocks takes one
  void* out[3];           // (columns)
  int32_t element[3];     // of out: 0 float32, 1 bfloat16, 2 float16
  int32_t accumulate;     // add to out
  int64_t step;           // from one row of parts to the next
  int32_t count, columns;
};

template <class T> __device__ __forceinline__ void finish(void* out, int64_t at, float sum, bool accumulate) {
  T* to = (T*)out + at;
  *to = fromFloat<T>(accumulate ? asFloat(*to) + sum : sum);
}

// sum_parts adds up the parts of 32 columns, each of 32 warps some of them.
extern "C" __global__ void __launch_bounds__(1024) sum_parts(const __grid_constant__ SumPartsArguments a) {
  __shared__ float shared[32][33];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, which = blockIdx.y;
  const int64_t column = (int64_t)blockIdx.x * 32 + lane;
  float sum = 0;
  if (column < a.columns) {
#pragma unroll 8
    for (int part = warp; part < a.count; part += 32) sum += a.parts[which][part * a.step + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  sum = sumOfWarp(shared[lane][warp]);  // a warp takes a column
  const int64_t own = (int64_t)blockIdx.x * 32 + warp;
  if (lane > 0 || own >= a.columns) return;
  switch (a.element[which]) {
    case 0: finish<float>(a.out[which], own, sum, a.accumulate); break;
    case 1: finish<__nv_bfloat16>(a.out[which], own, sum, a.accumulate); break;
    default: finish<__half>(a.out[which], own, sum, a.accumulate);
  }
}

#define REDUCE(name, T)                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256) sum_##name(const __grid_constant__ Elementwise e) { sum<T>(e); }       \
  extern "C" __global__ void __launch_bounds__(256) sum_rows_##name(const __grid_constant__ SumRowsArguments a) {          \
    sumRows<T, perAccess<T>>(a);                                                                                           \
  }                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(256) sum_rows_any_##name(const __grid_constant__ SumRowsArguments a) {      \
    sumRows<T, 1>(a);                                                                                                      \
  }
FOR_EACH_ELEMENT(REDUCE)
