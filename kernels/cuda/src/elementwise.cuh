// What kernels that take tensors element by element are told, and how they go through them.
#pragma once
#include "elements.cuh"

// Elementwise is the host's elementwise in elementwise.go. The host joins axes that lie end to end,
// so that tensors without gaps have one.
struct Elementwise {
  void* data[5];          // the outputs, then the inputs
  int64_t strides[5][6];  // in elements
  int64_t dims[6];
  int64_t count;          // of groups, each of `width` elements along the last axis
  int32_t axes, width;    // width is what the kernel takes at once, or 1
  float factor;
  int32_t mode;           // what the kernel is to do, where it can do several things
  uint64_t bits;          // of one element
};

// offsets finds where group n of each of the first `tensors` operands starts.
template <int tensors> __device__ __forceinline__ void offsets(const Elementwise& e, int64_t n, int64_t at[tensors]) {
  if (e.axes == 1) {
#pragma unroll
    for (int t = 0; t < tensors; t++) at[t] = n * e.width * e.strides[t][0];
    return;
  }
#pragma unroll
  for (int t = 0; t < tensors; t++) at[t] = 0;
#pragma unroll 1
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

// eachGroup calls f with the number of elements of a group, as a Count, and the offsets of the
// group in each tensor. f loads and computes, and returns a function that stores: a thread loads
// all of its `ahead` groups before it stores the first, so that enough of memory's latency is
// hidden. Groups of one element are taken as they come.
template <int tensors, int width, class F> __device__ __forceinline__ void eachGroup(const Elementwise& e, F f) {
  constexpr int ahead = tensors < 3 ? 4 : 2;
  const int64_t first = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
  int64_t n = first;
  if (e.width == width && e.axes == 1) {
    for (; n + (ahead - 1) * step < e.count; n += ahead * step) {
      int64_t at[ahead][tensors];
#pragma unroll
      for (int k = 0; k < ahead; k++) offsets<tensors>(e, n + k * step, at[k]);
      if constexpr (ahead == 4) {
        const auto a = f(Count<width>{}, at[0]), b = f(Count<width>{}, at[1]), c = f(Count<width>{}, at[2]), d = f(Count<width>{}, at[3]);
        a(), b(), c(), d();
      } else {
        const auto a = f(Count<width>{}, at[0]), b = f(Count<width>{}, at[1]);
        a(), b();
      }
    }
  }
  int64_t at[tensors];
  if (e.width == width) {
    for (; n < e.count; n += step) {
      offsets<tensors>(e, n, at);
      f(Count<width>{}, at)();
    }
  } else {
    for (; n < e.count; n += step) {
      offsets<tensors>(e, n, at);
      f(Count<1>{}, at)();
    }
  }
}

// ofEach writes the elements x of one tensor as f changes them.
template <class T, class F> __device__ __forceinline__ void ofEach(const Elementwise& e, F f) {
  eachGroup<2, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float x[n];
    load<n>((const T*)e.data[1] + at[1], x);
#pragma unroll
    for (int i = 0; i < n; i++) f(x[i]);
    return storing<n>((T*)e.data[0] + at[0], x);
  });
}

// ofPairs writes the elements a of the first of two tensors as f(a, b) changes them. As many are taken at once as 16 bytes hold
// of the first one's type, which is that of the result.
template <class T, class B, class F> __device__ __forceinline__ void ofPairs(const Elementwise& e, F f) {
  eachGroup<3, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float a[n], b[n];
    load<n>((const T*)e.data[1] + at[1], a);
    load<n>((const B*)e.data[2] + at[2], b);
#pragma unroll
    for (int i = 0; i < n; i++) f(a[i], b[i]);
    return storing<n>((T*)e.data[0] + at[0], a);
  });
}

// fill writes one element everywhere.
template <class T> __device__ __forceinline__ void fill(const Elementwise& e, T x) {
  eachGroup<1, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    Stored<T, n> s;
    s.to = (T*)e.data[0] + at[0];
#pragma unroll
    for (int i = 0; i < n; i++) s.piece.x[i] = x;
    return s;
  });
}
