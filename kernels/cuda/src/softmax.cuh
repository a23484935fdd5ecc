// What a softmax and its logarithm share: how a block takes a row. Arguments is the struct of
// either, with the same fields.
#pragma once
#include "exponentials.cuh"

// valuesOf writes value(x) of a row's elements x. A Value is made of the row's exponentials.
template <class T, class Value, class Arguments> __device__ __forceinline__ void valuesOf(const Arguments& a) {
  const int64_t row = blockIdx.x;
  const T* x = (const T*)a.x + a.lines.at(0, row);
  T* y = (T*)a.y + a.lines.at(1, row);
  const Exponentials e = exponentials(x, a.lines.length);
  __syncthreads();  // y may be x
  const Value value(e);
  for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) y[at] = fromFloat<T>(value(asFloat(x[at])));
}

// gradientsOf writes gradient(y, dy, i, Σ term(y, dy, j)) of a row's elements i, where the sum goes
// over all elements j. parts holds a number for each warp of the block.
template <class T, class Arguments, class Term, class Gradient>
__device__ __forceinline__ void gradientsOf(const Arguments& a, float* parts, Term term, Gradient gradient) {
  const int64_t row = blockIdx.x;
  const T* y = (const T*)a.x + a.lines.at(0, row);
  const T* dy = (const T*)a.dy + a.lines.at(1, row);
  T* dx = (T*)a.y + a.lines.at(2, row);
  float sum = 0;
  for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) sum += term(y, dy, at);
  sum = sumOfWarp(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = sumOfWarp(threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0);
  for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) dx[at] = fromFloat<T>(gradient(y, dy, at, sum));
}
