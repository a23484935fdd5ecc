// Copies, conversions, sums and factors of tensors with any strides. All are bound by memory, so what counts is that a
// thread moves four neighbouring elements at once wherever the tensors' strides and addresses allow it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

// Elementwise is the host's elementwise in elementwise.go. The host joins axes that lie end to end, so that tensors
// without gaps have one.
struct Elementwise {
  void* data[3];          // the output, then the inputs
  int64_t strides[3][6];  // in elements
  int64_t dims[6];
  int64_t count;          // of groups, each of `width` elements along the last axis
  int32_t axes, width;    // width is 4, or 1
  union {
    float factor;
    uint64_t bits;        // of the element that fill writes
  };
};

// offsets finds where group n of each of the first `tensors` operands starts.
template <int tensors> __device__ __forceinline__ void offsets(const Elementwise& e, int64_t n, int64_t at[tensors]) {
#pragma unroll
  for (int t = 0; t < tensors; t++) at[t] = 0;
  for (int axis = e.axes - 1; axis >= 0; axis--) {
    const int64_t size = axis == e.axes - 1 ? e.dims[axis] / e.width : e.dims[axis];
    int64_t i = n;
    if (axis > 0) {
      const int64_t outer = e.count >> 31 ? n / size : (uint32_t)n / (uint32_t)size;
      i = n - outer * size;
      n = outer;
    }
    if (axis == e.axes - 1) i *= e.width;
#pragma unroll
    for (int t = 0; t < tensors; t++) at[t] += i * e.strides[t][axis];
  }
}

template <class T> struct alignas(4 * sizeof(T)) Four { T x[4]; };

// convert rounds to nearest, ties to even; float64 goes to a 16-bit type by way of float32.
__device__ __forceinline__ float narrow(float x) { return x; }
__device__ __forceinline__ float narrow(double x) { return (float)x; }
__device__ __forceinline__ float narrow(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float narrow(__half x) { return __half2float(x); }
template <class From> __device__ __forceinline__ void convert(float& to, From from) { to = narrow(from); }
template <class From> __device__ __forceinline__ void convert(double& to, From from) { to = narrow(from); }
template <class From> __device__ __forceinline__ void convert(__nv_bfloat16& to, From from) { to = __float2bfloat16_rn(narrow(from)); }
template <class From> __device__ __forceinline__ void convert(__half& to, From from) { to = __float2half_rn(narrow(from)); }
template <class T> __device__ __forceinline__ void move(T& to, T from) { to = from; }
template <class To, class From> __device__ __forceinline__ void move(To& to, From from) { convert(to, from); }

// Copies are several copies in one launch: one for each row of blocks.
struct Copies {
  Elementwise list[4];
};

template <class To, class From> __device__ __forceinline__ void copy(const Elementwise& e) {
  To* to = (To*)e.data[0];
  const From* from = (const From*)e.data[1];
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < e.count; n += (int64_t)gridDim.x * blockDim.x) {
    int64_t at[2];
    offsets<2>(e, n, at);
    if (e.width == 4) {
      const Four<From> in = *(const Four<From>*)(from + at[1]);
      Four<To> out;
#pragma unroll
      for (int i = 0; i < 4; i++) move(out.x[i], in.x[i]);
      *(Four<To>*)(to + at[0]) = out;
    } else {
      move(to[at[0]], from[at[1]]);
    }
  }
}

#define COPY(name, To, From) \
  extern "C" __global__ void name(const __grid_constant__ Copies c) { copy<To, From>(c.list[blockIdx.y]); }
COPY(copy_2, uint16_t, uint16_t)
COPY(copy_4, uint32_t, uint32_t)
COPY(copy_8, uint64_t, uint64_t)
COPY(copy_f32_f64, float, double)
COPY(copy_f32_bf16, float, __nv_bfloat16)
COPY(copy_f32_f16, float, __half)
COPY(copy_f64_f32, double, float)
COPY(copy_f64_bf16, double, __nv_bfloat16)
COPY(copy_f64_f16, double, __half)
COPY(copy_bf16_f32, __nv_bfloat16, float)
COPY(copy_bf16_f64, __nv_bfloat16, double)
COPY(copy_bf16_f16, __nv_bfloat16, __half)
COPY(copy_f16_f32, __half, float)
COPY(copy_f16_f64, __half, double)
COPY(copy_f16_bf16, __half, __nv_bfloat16)

extern "C" __global__ void add_f32(const __grid_constant__ Elementwise e) {
  float* sum = (float*)e.data[0];
  const float *a = (const float*)e.data[1], *b = (const float*)e.data[2];
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < e.count; n += (int64_t)gridDim.x * blockDim.x) {
    int64_t at[3];
    offsets<3>(e, n, at);
    if (e.width == 4) {
      const float4 x = *(const float4*)(a + at[1]), y = *(const float4*)(b + at[2]);
      *(float4*)(sum + at[0]) = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    } else {
      sum[at[0]] = a[at[1]] + b[at[2]];
    }
  }
}

extern "C" __global__ void scale_f32(const __grid_constant__ Elementwise e) {
  float* x = (float*)e.data[0];
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < e.count; n += (int64_t)gridDim.x * blockDim.x) {
    int64_t at[1];
    offsets<1>(e, n, at);
    for (int i = 0; i < e.width; i++) x[at[0] + i] *= e.factor;
  }
}

// spread_f32 sets an output to a number in memory times the factor.
extern "C" __global__ void spread_f32(const __grid_constant__ Elementwise e) {
  float* x = (float*)e.data[0];
  const float value = *(const float*)e.data[1] * e.factor;
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < e.count; n += (int64_t)gridDim.x * blockDim.x) {
    int64_t at[1];
    offsets<1>(e, n, at);
    for (int i = 0; i < e.width; i++) x[at[0] + i] = value;
  }
}

// fill sets an output to the element whose bits it is given.
template <class T> __device__ __forceinline__ void fill(const Elementwise& e) {
  T* x = (T*)e.data[0];
  Four<T> four;
#pragma unroll
  for (int i = 0; i < 4; i++) four.x[i] = (T)e.bits;
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < e.count; n += (int64_t)gridDim.x * blockDim.x) {
    int64_t at[1];
    offsets<1>(e, n, at);
    if (e.width == 4) {
      *(Four<T>*)(x + at[0]) = four;
    } else {
      x[at[0]] = four.x[0];
    }
  }
}

extern "C" __global__ void fill_2(const __grid_constant__ Elementwise e) { fill<uint16_t>(e); }
extern "C" __global__ void fill_4(const __grid_constant__ Elementwise e) { fill<uint32_t>(e); }
extern "C" __global__ void fill_8(const __grid_constant__ Elementwise e) { fill<uint64_t>(e); }

// sumOfBlock adds up what the 256 threads of a block have, in one order; thread 0 has the result.
__device__ __forceinline__ double sumOfBlock(double sum) {
  __shared__ double parts[8];
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  for (int i = 1; i < 8 && threadIdx.x == 0; i++) sum += parts[i];
  return sum;
}

// sum_f32 gives the first output a float64 sum for each block, and sum_f64 adds those up and multiplies by the factor.
extern "C" __global__ void __launch_bounds__(256) sum_f32(const __grid_constant__ Elementwise e) {
  const float* x = (const float*)e.data[0];
  double sum = 0;
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < e.count; n += (int64_t)gridDim.x * blockDim.x) {
    int64_t at[1];
    offsets<1>(e, n, at);
    if (e.width == 4) {
      const float4 four = *(const float4*)(x + at[0]);
      sum += ((double)four.x + four.y) + ((double)four.z + four.w);
    } else {
      sum += x[at[0]];
    }
  }
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) ((double*)e.data[1])[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) sum_f64(const __grid_constant__ Elementwise e) {
  double sum = 0;
  for (int64_t n = threadIdx.x; n < e.count; n += blockDim.x) sum += ((const double*)e.data[1])[n];
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) *(float*)e.data[0] = (float)(sum * e.factor);
}
