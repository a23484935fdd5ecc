// The sum of the exponentials of a row, which a block goes through once. Rows may start anywhere.
#pragma once
#include <float.h>

#include "elements.cuh"

// Cut is how a row is cut where it does not begin with a line of the cache, nor its pieces of 16
// bytes with it.
struct Cut {
  int before, pieces, behind;  // elements, pieces, and the index of the first element behind them
};

template <class T> __device__ __forceinline__ Cut cutOf(const T* row, int length) {
  constexpr int width = perAccess<T>;
  const int before = min(length, (int)(-(intptr_t)row & 127) / (int)sizeof(T)), pieces = (length - before) / width;
  return {before, pieces, before + pieces * width};
}

// ahead is how many pieces a thread loads before it uses the first.
constexpr int ahead = 4;

// Exponentials is Σ exp(z − most), where most is the greatest z so far, and Σ z.
struct Exponentials {
  float most, sum, sumZ;

  __device__ __forceinline__ float lse() const { return most + logf(sum); }

  __device__ __forceinline__ void join(Exponentials other) {
    const float both = fmaxf(most, other.most);
    sum = sum * __expf(most - both) + other.sum * __expf(other.most - both);
    most = both;
    sumZ += other.sumZ;
  }
};

// take adds numbers of a thread.
template <int n> __device__ __forceinline__ void take(Exponentials& e, const float (&x)[n]) {
  float most = x[0];
#pragma unroll
  for (int i = 1; i < n; i++) most = fmaxf(most, x[i]);
  if (most > e.most) {
    e.sum *= __expf(e.most - most);
    e.most = most;
  }
#pragma unroll
  for (int i = 0; i < n; i++) {
    e.sum += __expf(x[i] - e.most);
    e.sumZ += x[i];
  }
}

// ofBlock joins those of a block's threads; all threads have the result.
__device__ __forceinline__ Exponentials ofBlock(Exponentials e) {
  __shared__ Exponentials shared[32];
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    e.join({__shfl_xor_sync(~0u, e.most, other), __shfl_xor_sync(~0u, e.sum, other), __shfl_xor_sync(~0u, e.sumZ, other)});
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (warps == 1) return e;
  if (lane == 0) shared[warp] = e;
  __syncthreads();
  e = lane < warps ? shared[lane] : Exponentials{-FLT_MAX, 0, 0};
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    e.join({__shfl_xor_sync(~0u, e.most, other), __shfl_xor_sync(~0u, e.sum, other), __shfl_xor_sync(~0u, e.sumZ, other)});
  }
  return e;
}

// exponentials goes through a row once; all threads have the result.
template <class T> __device__ __forceinline__ Exponentials exponentials(const T* z, int length) {
  constexpr int width = perAccess<T>;
  Exponentials e = {-FLT_MAX, 0, 0};
  const Cut cut = cutOf(z, length);
  const T* first = z + cut.before;
  const int step = blockDim.x;
  int piece = threadIdx.x;
  for (; piece + (ahead - 1) * step < cut.pieces; piece += ahead * step) {
    Piece<T, width> pieces[ahead];
#pragma unroll
    for (int k = 0; k < ahead; k++) pieces[k] = ((const Piece<T, width>*)first)[piece + k * step];
#pragma unroll
    for (int k = 0; k < ahead; k++) {
      float x[width];
#pragma unroll
      for (int i = 0; i < width; i++) x[i] = asFloat(pieces[k].x[i]);
      take(e, x);
    }
  }
  for (; piece < cut.pieces; piece += step) {
    float x[width];
    load<width>(first + piece * width, x);
    take(e, x);
  }
  for (int at = threadIdx.x; at < cut.before; at += step) take(e, {asFloat(z[at])});
  for (int at = cut.behind + threadIdx.x; at < length; at += step) take(e, {asFloat(z[at])});
  return ofBlock(e);
}
