// What puts together attention that was computed in parts:
//
//   L = log(exp LSE + exp lse)    O ← O·exp(LSE − L) + o·exp(lse − L)    LSE ← L      a row, over the keys of both
#include "arguments.cuh"
#include "elements.cuh"

// MergeArguments is the host's mergeArguments in attention_merge.go.
struct MergeArguments {
  Rows sum, part;          // float32, and of any type
  Rows sumLSE, partLSE;    // the same of values, one a row, whose neighbours lie side by side
  int64_t count;           // of rows
  int32_t heads, length, size;
  int32_t lanes;           // neighbouring threads that share a row: a power of two up to 32
  int32_t aligned;         // rows start at multiples of 16 bytes and have a whole number of them
  int32_t reserved;
};

template <int n, class T> __device__ __forceinline__ void mergeRow(float* to, const T* from, int size, int lane, int lanes, float own, float other) {
  for (int c = lane * n; c < size; c += lanes * n) {
    float x[n], y[n];
    load<n>(from + c, y);
    load<n>((const float*)to + c, x);
#pragma unroll
    for (int i = 0; i < n; i++) x[i] = own == 0 ? y[i] * other : x[i] * own + y[i] * other;
    store<n>(to + c, x);
  }
}

// merge gives a row to a few lanes.
template <class T> __device__ __forceinline__ void merge(const MergeArguments& a) {
  const int64_t thread = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  const int64_t row = thread / a.lanes;
  const int lane = (int)(thread % a.lanes);
  float own = 0, other = 0, joined = 0;
  float* lse = nullptr;
  const int64_t plane = row / a.length, batch = plane / a.heads;
  const int64_t i = row - plane * a.length, head = plane - batch * a.heads;
  if (row < a.count) {
    lse = (float*)a.sumLSE.data + batch * a.sumLSE.batch + head * a.sumLSE.head + i;
    const float x = *lse, y = ((const float*)a.partLSE.data)[batch * a.partLSE.batch + head * a.partLSE.head + i];
    if (y == -INFINITY) {
      lse = nullptr;  // the row stays what it is
    } else if (x == -INFINITY) {
      joined = y, other = 1;
    } else {
      const float most = x > y ? x : y;
      joined = most + logf(expf(x - most) + expf(y - most));
      own = expf(x - joined), other = expf(y - joined);
    }
  }
  __syncwarp();  // all lanes have read the logsumexp
  if (!lse) return;
  if (lane == 0) *lse = joined;
  float* to = (float*)a.sum.data + batch * a.sum.batch + head * a.sum.head + i * a.sum.row;
  const T* from = (const T*)a.part.data + batch * a.part.batch + head * a.part.head + i * a.part.row;
  if (a.aligned)
    mergeRow<4>(to, from, a.size, lane, a.lanes, own, other);
  else
    mergeRow<1>(to, from, a.size, lane, a.lanes, own, other);
}

#define MERGE(suffix, T) \
  extern "C" __global__ void attention_merge_##suffix(const __grid_constant__ MergeArguments a) { merge<T>(a); }
FOR_EACH_ELEMENT(MERGE)
