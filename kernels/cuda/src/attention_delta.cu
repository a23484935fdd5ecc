// The small sums around attention's backward kernel:
//
//   delta_i = Σ_d O_id·dO_id − dLSE_i          before it: one value a query row
//   dsink_h = −Σ_i exp(sink_h − LSE_i)·delta_i  beside it: one value a head
//   dK = Σ_b dK_b, dV likewise                  after it, where batch items share their keys
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "arguments.cuh"

// DeltaArguments is the host's deltaArguments in attention_delta.go.
struct DeltaArguments {
  Rows o, dO;
  const float* dLSE;  // null for none
  float* delta;       // (batch, heads, length) row-major, like dLSE
  int64_t count;      // of rows
  int32_t heads, length, size;
  int32_t lanes;      // neighbouring threads that share a row: a power of two up to 32
  int32_t aligned;    // rows start at multiples of 16 bytes and have a whole number of them
  int32_t reserved;
};

__device__ __forceinline__ float asFloat(float x) { return x; }
__device__ __forceinline__ float asFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float asFloat(__half x) { return __half2float(x); }

// delta gives a row to a few lanes, each of which reads 16 bytes at a time.
template <class T> __device__ __forceinline__ void delta(const DeltaArguments& a) {
  constexpr int width = 16 / sizeof(T);
  struct alignas(16) Piece { T x[width]; };
  const int64_t thread = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  const int64_t row = thread / a.lanes;
  const int lane = (int)(thread % a.lanes);
  float sum = 0;
  if (row < a.count) {
    const int64_t plane = row / a.length, batch = plane / a.heads;
    const int64_t i = row - plane * a.length, head = plane - batch * a.heads;
    const T* o = (const T*)a.o.data + batch * a.o.batch + head * a.o.head + i * a.o.row;
    const T* dO = (const T*)a.dO.data + batch * a.dO.batch + head * a.dO.head + i * a.dO.row;
    if (a.aligned) {
      for (int c = lane * width; c < a.size; c += a.lanes * width) {
        const Piece x = *(const Piece*)(o + c), y = *(const Piece*)(dO + c);
#pragma unroll
        for (int n = 0; n < width; n++) sum += asFloat(x.x[n]) * asFloat(y.x[n]);
      }
    } else {
      for (int c = lane; c < a.size; c += a.lanes) sum += asFloat(o[c]) * asFloat(dO[c]);
    }
  }
  for (int other = a.lanes / 2; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (row < a.count && lane == 0) a.delta[row] = sum - (a.dLSE ? a.dLSE[row] : 0);
}

extern "C" __global__ void attention_delta_f32(const __grid_constant__ DeltaArguments a) { delta<float>(a); }
extern "C" __global__ void attention_delta_bf16(const __grid_constant__ DeltaArguments a) { delta<__nv_bfloat16>(a); }
extern "C" __global__ void attention_delta_f16(const __grid_constant__ DeltaArguments a) { delta<__half>(a); }

// SinksArguments is the host's sinksArguments in attention_delta.go.
struct SinksArguments {
  const float *sinks, *lse, *delta;  // (heads), and (batch, heads, length) row-major
  float* dSinks;                     // (heads)
  int32_t batch, heads, length, reserved;
};

// attention_dsinks sums with one block a head, in an order that depends on the shape alone.
extern "C" __global__ void __launch_bounds__(1024) attention_dsinks(const __grid_constant__ SinksArguments a) {
  __shared__ float parts[32];
  const int head = blockIdx.x;
  const float sink = a.sinks[head];
  float sum = 0;
  if (sink != -INFINITY) {  // such a sink takes nothing, also from a row that sees no key
    for (int batch = 0; batch < a.batch; batch++) {
      const int64_t plane = ((int64_t)batch * a.heads + head) * a.length;
      for (int i = threadIdx.x; i < a.length; i += blockDim.x) {
        const float lse = a.lse[plane + i];
        if (lse == -INFINITY) continue;  // the row is behind the last sequence
        const float x = sink - lse;      // above 0 where lse was rounded
        sum -= expf(x > 0 ? 0 : x) * a.delta[plane + i];
      }
    }
  }
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = parts[threadIdx.x];
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (threadIdx.x == 0) a.dSinks[head] = sum;
}

// SharedArguments is the host's sharedArguments in attention_delta.go.
struct SharedArguments {
  Rows from, to;  // (batch, heads, length, size); to has a batch of one
  int64_t count;  // of elements of to
  int32_t batch, heads, length, size;
};

// addBatch gives an element to a thread, which sums in the order of the batch.
template <class T> __device__ __forceinline__ void addBatch(const SharedArguments& a) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= a.count) return;
  const int64_t row = at / a.size, head = row / a.length, i = row - head * a.length, column = at - row * a.size;
  const T* from = (const T*)a.from.data + head * a.from.head + i * a.from.row + column;
  float sum = 0;
  for (int b = 0; b < a.batch; b++) sum += asFloat(from[b * a.from.batch]);
  ((T*)a.to.data)[head * a.to.head + i * a.to.row + column] = T(sum);
}

extern "C" __global__ void attention_shared_f32(const __grid_constant__ SharedArguments a) { addBatch<float>(a); }
extern "C" __global__ void attention_shared_bf16(const __grid_constant__ SharedArguments a) { addBatch<__nv_bfloat16>(a); }
extern "C" __global__ void attention_shared_f16(const __grid_constant__ SharedArguments a) { addBatch<__half>(a); }
