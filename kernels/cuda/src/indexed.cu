// The largest elements of rows, and elements that are taken from rows or added to them by indices.
// kernels/indexed.go has the equations.
#include "elements.cuh"

// IndexedArguments is the host's indexedArguments in indexed.go.
struct IndexedArguments {
  Lines lines;    // of what is written; of the ids; of x
  Indices ids;    // top_k writes them
  Fault fault;
  const void* x;
  void* y;        // top_k's values
  float* sums;    // scatter's, where y is of 16 bits: (rows, n)
  int32_t n, k;   // elements of a row, and how many of them ids name
  int32_t group;  // threads that go through a row together: a power of two up to a warp, or a block
  // rows of x of top_k, and of y of scatter, start at multiples of 16 bytes and have a whole number of them
  int32_t aligned;
};

// Found is an element of a row: a key that orders as the elements do, with NaN above all numbers,
// and the index.
struct Found {
  int32_t key, index;

  // before tells whether it comes before another in the order of the largest.
  __device__ __forceinline__ bool before(const Found& other) const {
    return key > other.key || (key == other.key && index < other.index);
  }
};

__device__ __forceinline__ int32_t keyOf(float x) {
  const int32_t bits = __float_as_int(x + 0.0f);  // −0 is 0
  return x != x ? INT32_MAX : bits ^ (bits >> 31 & INT32_MAX);
}

// first is what comes first of what a group's threads have found.
__device__ __forceinline__ Found first(Found f, int group) {
  for (int other = min(group, 32) / 2; other > 0; other /= 2) {
    const Found theirs = {__shfl_xor_sync(~0u, f.key, other), __shfl_xor_sync(~0u, f.index, other)};
    if (theirs.before(f)) f = theirs;
  }
  if (group <= 32) return f;
  __shared__ Found shared[32];
  __syncthreads();  // the round before has read it
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = f;
  __syncthreads();
  for (int warp = 0; warp < group / 32; warp++)
    if (shared[warp].before(f)) f = shared[warp];
  return f;
}

// topK finds one element a round: the first behind that of the round before. A thread loads n
// elements at once.
template <class T, int n> __device__ __forceinline__ void topK(const IndexedArguments& a) {
  const int lane = threadIdx.x % a.group;
  const int64_t own = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / a.group;
  const int64_t row = own < a.lines.count ? own : a.lines.count - 1;  // a warp's threads stay together
  const T* x = (const T*)a.x + a.lines.at(2, row);
  T* values = (T*)a.y + a.lines.at(0, row);
  const int64_t ids = a.lines.at(1, row);
  Found last = {INT32_MAX, -1};
  for (int j = 0; j < a.k; j++) {
    Found best = {INT32_MIN, INT32_MAX};
#pragma unroll 4
    for (int at = lane * n; at < a.n; at += a.group * n) {
      float v[n];
      load<n>(x + at, v);
#pragma unroll
      for (int i = 0; i < n; i++) {
        const Found f = {keyOf(v[i]), at + i};
        if (f.key > best.key && last.before(f)) best = f;  // those that come later are not before it
      }
    }
    last = first(best, a.group);
    if (lane == 0 && own == row) {
      values[j] = x[last.index];
      if (a.ids.wide) ((int64_t*)a.ids.data)[ids + j] = last.index;
      else ((int32_t*)a.ids.data)[ids + j] = last.index;
    }
  }
}

template <class T> __device__ __forceinline__ void gather(const IndexedArguments& a) {
  const int64_t count = a.lines.count * a.k;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t row = i / a.k;
    const int j = (int)(i - row * a.k);
    const int64_t id = a.ids[a.lines.at(1, row) + j];
    if (id < 0 || id >= a.n) {
      a.fault.report(i, id, a.n);
      continue;
    }
    ((T*)a.y)[a.lines.at(0, row) + j] = ((const T*)a.x)[a.lines.at(2, row) + id];
  }
}

// few is how many indices a thread of scatterFew keeps.
constexpr int few = 8;

// scatterFew gives each row a group of threads, which keep all of its indices and write n elements
// at once.
template <class T, int n> __device__ __forceinline__ void scatterFew(const IndexedArguments& a) {
  const int lane = threadIdx.x % a.group;
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / a.group;
  if (row >= a.lines.count) return;
  const int64_t ids = a.lines.at(1, row);
  const T* x = (const T*)a.x + a.lines.at(2, row);
  T* y = (T*)a.y + a.lines.at(0, row);
  int id[few];
  float v[few];
#pragma unroll
  for (int j = 0; j < few; j++) {
    const int64_t given = j < a.k ? a.ids[ids + j] : 0;
    const bool there = j < a.k && given >= 0 && given < a.n;
    if (j < a.k && !there && lane == 0) a.fault.report(row * a.k + j, given, a.n);
    id[j] = there ? (int)given : INT32_MAX;
    v[j] = there ? asFloat(x[j]) : 0;
  }
  for (int at = lane * n; at < a.n; at += a.group * n) {
    float sum[n] = {};
#pragma unroll
    for (int j = 0; j < few; j++) {
      if ((unsigned)(id[j] - at) >= n) continue;
#pragma unroll
      for (int i = 0; i < n; i++) sum[i] += id[j] - at == i ? v[j] : 0;
    }
    store<n>(y + at, sum);
  }
}

// scatter gives each row a warp. It takes 32 indices a round; of those that are equal, the first
// lane adds the elements of all, in order.
template <class T> __device__ __forceinline__ void scatter(const IndexedArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= a.lines.count) return;
  const int64_t ids = a.lines.at(1, row);
  const T* x = (const T*)a.x + a.lines.at(2, row);
  T* y = (T*)a.y + a.lines.at(0, row);
  volatile float* sums = std::is_same<T, float>::value ? (float*)y : a.sums + row * a.n;
  for (int i = lane; i < a.n; i += 32) sums[i] = 0;
  __syncwarp();
  for (int from = 0; from < a.k; from += 32) {
    const int j = from + lane;
    int64_t id = j < a.k ? a.ids[ids + j] : -1;
    const float mine = j < a.k ? asFloat(x[j]) : 0;
    if (j < a.k && (id < 0 || id >= a.n)) {
      a.fault.report(row * a.k + j, id, a.n);
      id = -1;
    }
    const unsigned alike = __match_any_sync(~0u, (long long)id);
    const bool leads = id >= 0 && lane == __ffs(alike) - 1;
    float sum = leads ? sums[id] : 0;
    for (int other = 0; other < 32; other++) {
      const float theirs = __shfl_sync(~0u, mine, other);
      if (alike >> other & 1) sum += theirs;
    }
    if (leads) sums[id] = sum;
    __syncwarp();
  }
  if constexpr (!std::is_same<T, float>::value) {
    for (int i = lane; i < a.n; i += 32) y[i] = fromFloat<T>(sums[i]);
  }
}

#define INDEXED(name, T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(256) top_k_##name(const __grid_constant__ IndexedArguments a) {      \
    a.aligned ? topK<T, perAccess<T>>(a) : topK<T, 1>(a);                                                            \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256) gather_##name(const __grid_constant__ IndexedArguments a) { gather<T>(a); } \
  extern "C" __global__ void __launch_bounds__(256) scatter_few_##name(const __grid_constant__ IndexedArguments a) { \
    a.aligned ? scatterFew<T, perAccess<T>>(a) : scatterFew<T, 1>(a);                                                \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256) scatter_##name(const __grid_constant__ IndexedArguments a) { scatter<T>(a); }
FOR_EACH_ELEMENT(INDEXED)
