// Cross-entropy of logits z (rows, V), and its gradient. With n the number of rows that count and ε the label smoothing,
//
//   LSE_i = log Σ_v exp z_iv        loss_i = LSE_i − (1 − ε)·z_it − ε·Σ_v z_iv/V
//   dz_iv = (exp(z_iv − LSE_i) − (1 − ε)·[v = t] − ε/V)·dLoss/n, without /n for a sum
//
// A block takes a row. Rows may start anywhere: a row's first elements, up to a multiple of 16 bytes, and its last go singly.
#include <float.h>

#include "elements.cuh"

// CrossEntropyArguments is the host's crossEntropyArguments in crossentropy.go.
struct CrossEntropyArguments {
  Lines lines;        // of the logits, of their gradient, and of the targets as rows of one element
  Indices targets;
  Fault fault;
  const void* logits;
  void* dLogits;
  float* lse;         // (rows)
  float* losses;      // (rows): zero where a row does not count
  float* scale;       // what a row's loss is multiplied by, and its gradient: two numbers
  float* loss;        // the sum of the losses, scaled; or null
  const float* dLoss; // null for 1
  int64_t ignored;    // the target of rows that do not count, if ignores
  int32_t ignores, mean;
  float smoothing;
  int32_t reserved;
};

// Cut is how a row is cut where it does not begin with a line of the cache, nor its pieces of 16 bytes with it.
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

// exponentials goes through a row once; all threads have the result.
template <class T> __device__ __forceinline__ Exponentials exponentials(const T* z, int length) {
  constexpr int width = perAccess<T>;
  __shared__ Exponentials shared[32];
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

// targetOf is the target of a row, −1 where the row does not count. What is no target at all does not count either;
// cross_entropy_scale, which every call runs, reports it.
__device__ __forceinline__ int64_t targetOf(const CrossEntropyArguments& a, int64_t row, bool report = false) {
  const int64_t target = a.targets[a.lines.at(2, row)];
  if (a.ignores && target == a.ignored) return -1;
  if (target >= 0 && target < a.lines.length) return target;
  if (report) a.fault.report(row, target, a.lines.length);
  return -1;
}

// lossOf takes what the target's logit, or with smoothing the mean one, lacks of the greatest before it adds the logarithm, so
// that logits far from 0 cost no digits.
template <class T> __device__ __forceinline__ float lossOf(const CrossEntropyArguments& a, const T* z, int64_t target, const Exponentials& e) {
  float below = (1 - a.smoothing) * (e.most - asFloat(z[target]));
  if (a.smoothing > 0) below += a.smoothing * (e.most - e.sumZ / a.lines.length);
  return below + logf(e.sum);
}

template <class T> __device__ __forceinline__ void forward(const CrossEntropyArguments& a) {
  const int64_t row = blockIdx.x;
  const T* z = (const T*)a.logits + a.lines.at(0, row);
  const Exponentials e = exponentials(z, a.lines.length);
  if (threadIdx.x > 0) return;
  if (a.lse) a.lse[row] = e.lse();
  const int64_t target = targetOf(a, row);
  a.losses[row] = target < 0 ? 0 : lossOf(a, z, target, e);
}

// gradient writes dz of a row, whose probabilities are exp(z − offset)/whole; dz may be z.
template <class T>
__device__ __forceinline__ void gradient(const CrossEntropyArguments& a, T* dz, const T* z, int64_t target, float offset, float whole) {
  const int length = a.lines.length;
  if (target < 0) {
    for (int at = threadIdx.x; at < length; at += blockDim.x) dz[at] = fromFloat<T>(0);
    return;
  }
  const float scale = a.scale[1], less = a.smoothing / length * scale, hit = (1 - a.smoothing) * scale, factor = scale / whole;
  const auto compute = [&](auto n, int at) {
    float x[n];
    load<n>(z + at, x);
#pragma unroll
    for (int i = 0; i < n; i++) x[i] = __expf(x[i] - offset) * factor - less;
    if (target >= at && target < at + n) {
#pragma unroll
      for (int i = 0; i < n; i++) x[i] -= at + i == target ? hit : 0;
    }
    return storing<n>(dz + at, x);
  };
  constexpr int width = perAccess<T>;
  const int step = blockDim.x;
  Cut cut = cutOf(z, length);
  if ((((intptr_t)z ^ (intptr_t)dz) & 15) != 0) cut = {length, 0, length};  // no piece of one is a piece of the other
  const auto at = [&](int piece) { return cut.before + piece * width; };
  int piece = threadIdx.x;
  for (; piece + (ahead - 1) * step < cut.pieces; piece += ahead * step) {
    const auto a = compute(Count<width>{}, at(piece)), b = compute(Count<width>{}, at(piece + step));
    const auto c = compute(Count<width>{}, at(piece + 2 * step)), d = compute(Count<width>{}, at(piece + 3 * step));
    a(), b(), c(), d();
  }
  for (; piece < cut.pieces; piece += step) compute(Count<width>{}, at(piece))();
  for (int at = threadIdx.x; at < cut.before; at += step) compute(Count<1>{}, at)();
  for (int at = cut.behind + threadIdx.x; at < length; at += step) compute(Count<1>{}, at)();
}

// farLSE is the magnitude of a logsumexp from which on it is too coarse: what it lost to rounding, all exponentials of a row
// lack as a common factor, which their sum tells.
constexpr float farLSE = 64;

template <class T> __device__ __forceinline__ void backward(const CrossEntropyArguments& a) {
  const int64_t row = blockIdx.x;
  const T* z = (const T*)a.logits + a.lines.at(0, row);
  T* dz = (T*)a.dLogits + a.lines.at(1, row);
  const float lse = a.lse[row];
  const int64_t target = targetOf(a, row);
  if (fabsf(lse) <= farLSE) return gradient(a, dz, z, target, lse, 1);
  const Exponentials e = exponentials(z, a.lines.length);
  __syncthreads();  // all have read the row
  gradient(a, dz, z, target, e.most, e.sum);
}

// both computes a row's loss and, from its logits that are still in the cache, its gradient in their place.
template <class T> __device__ __forceinline__ void both(const CrossEntropyArguments& a) {
  const int64_t row = blockIdx.x;
  T* z = (T*)a.dLogits + a.lines.at(0, row);
  const Exponentials e = exponentials((const T*)z, a.lines.length);
  const int64_t target = targetOf(a, row);
  if (threadIdx.x == 0) a.losses[row] = target < 0 ? 0 : lossOf(a, (const T*)z, target, e);
  __syncthreads();  // the loss has read the target's logit
  gradient(a, z, (const T*)z, target, e.most, e.sum);
}

// sumOfBlock adds up what the 1024 threads of a block have, in one order; thread 0 has the result.
template <class T> __device__ __forceinline__ T sumOfBlock(T sum) {
  __shared__ T parts[32];
  sum = sumOfWarp(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) sum = sumOfWarp(parts[threadIdx.x]);
  return sum;
}

// cross_entropy_scale counts the rows that count, and sets the scale of the loss and that of the gradient.
extern "C" __global__ void __launch_bounds__(1024) cross_entropy_scale(const __grid_constant__ CrossEntropyArguments a) {
  int counted = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < a.lines.count; row += blockDim.x) counted += targetOf(a, row, true) >= 0;
  counted = sumOfBlock(counted);
  if (threadIdx.x > 0) return;
  a.scale[0] = a.mean ? 1 / (float)max(1, counted) : 1;
  a.scale[1] = a.scale[0] * (a.dLoss ? *a.dLoss : 1);
}

// cross_entropy_loss sums the losses, in float64.
extern "C" __global__ void __launch_bounds__(1024) cross_entropy_loss(const __grid_constant__ CrossEntropyArguments a) {
  double sum = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < a.lines.count; row += blockDim.x) sum += a.losses[row];
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) *a.loss = (float)(sum * a.scale[0]);
}

#define CROSS_ENTROPY_KERNEL(name, ...) \
  extern "C" __global__ void __launch_bounds__(512, 3) cross_entropy_##name(const __grid_constant__ CrossEntropyArguments a) { __VA_ARGS__(a); }
#define CROSS_ENTROPY(name, T)                      \
  CROSS_ENTROPY_KERNEL(forward_##name, forward<T>)   \
  CROSS_ENTROPY_KERNEL(backward_##name, backward<T>) \
  CROSS_ENTROPY_KERNEL(both_##name, both<T>)
FOR_EACH_ELEMENT(CROSS_ENTROPY)
