// Cross-entropy of logits z (rows, V), and its gradient. With w the weights of the classes, n the
// sum of those of the rows' targets, and ε the label smoothing,
//
//   LSE_i = log Σ_v exp z_iv        loss_i = (1 − ε)·w_t·(LSE_i − z_it) + ε·Σ_v w_v·(LSE_i − z_iv)/V
//   dz_iv = (exp(z_iv − LSE_i)·((1 − ε)·w_t + ε·Σ w/V) − (1 − ε)·w_t·[v = t] − ε·w_v/V)·dLoss/n
//
// without /n for a sum, and with a dLoss a row for no reduction.
//
// A block takes a row. Rows may start anywhere: a row's first elements, up to a multiple of 16
// bytes, and its last go singly.
#include "exponentials.cuh"

// CrossEntropyArguments is the host's crossEntropyArguments in crossentropy.go.
struct CrossEntropyArguments {
  Lines lines;        // of the logits, of their gradient, and of the targets as rows of one element
  Indices targets;
  Fault fault;
  const void* logits;
  void* dLogits;
  float* lse;         // (rows)
  float* losses;      // (rows): zero where a row does not count
  // what a row's loss is multiplied by, and its gradient, and the mean of the weights: three
  // numbers
  float* scale;
  float* loss;        // the sum of the losses, scaled; or null
  const float* dLoss; // null for 1
  const float* weights;  // (V), null for 1
  int64_t ignored;    // the target of rows that do not count, if ignores
  int32_t ignores, mean;
  float smoothing;
  int32_t perRow;     // dLoss has a number for each row
};

// targetOf is the target of a row, −1 where the row does not count. What is no target at all does
// not count either; cross_entropy_scale, which every call runs, reports it.
__device__ __forceinline__ int64_t targetOf(const CrossEntropyArguments& a, int64_t row, bool report = false) {
  const int64_t target = a.targets[a.lines.at(2, row)];
  if (a.ignores && target == a.ignored) return -1;
  if (target >= 0 && target < a.lines.length) return target;
  if (report) a.fault.report(row, target, a.lines.length);
  return -1;
}

// weightedBelow is Σ w_v·(most − z_v) of a row; thread 0 has the result.
template <class T> __device__ float weightedBelow(const CrossEntropyArguments& a, const T* z, float most) {
  __shared__ float parts[32];
  float sum = 0;
  for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) sum += a.weights[at] * (most - asFloat(z[at]));
  sum = sumOfWarp(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return 0;
  return sumOfWarp(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0);
}

// lossOf is the loss of a row, which thread 0 has, given the target's logit and, where classes
// weigh, weightedBelow. It takes what the target's logit, or with smoothing the mean one, lacks of
// the greatest before it adds the logarithm, so that logits far from 0 cost no digits.
__device__ __forceinline__ float lossOf(const CrossEntropyArguments& a, float zOfTarget, int64_t target, const Exponentials& e, float below) {
  const bool weighs = a.weights && a.smoothing > 0;
  const float smoothed = weighs ? below / a.lines.length : e.most - e.sumZ / a.lines.length;
  if (target < 0 || threadIdx.x > 0) return 0;
  const float logSum = logf(e.sum);
  float loss = (1 - a.smoothing) * (e.most - zOfTarget + logSum);
  if (a.weights) loss *= a.weights[target];
  if (a.smoothing > 0) loss += a.smoothing * (smoothed + (weighs ? a.scale[2] : 1) * logSum);
  return loss;
}

// lossOf is the loss of the logits at z.
template <class T> __device__ __forceinline__ float lossOf(const CrossEntropyArguments& a, const T* z, int64_t target, const Exponentials& e) {
  const float below = a.weights && a.smoothing > 0 ? weightedBelow(a, z, e.most) : 0;
  return lossOf(a, threadIdx.x == 0 && target >= 0 ? asFloat(z[target]) : 0, target, e, below);
}

template <class T> __device__ __forceinline__ void forward(const CrossEntropyArguments& a) {
  const int64_t row = blockIdx.x;
  const T* z = (const T*)a.logits + a.lines.at(0, row);
  const Exponentials e = exponentials(z, a.lines.length);
  const float loss = lossOf(a, z, targetOf(a, row), e);
  if (threadIdx.x > 0) return;
  if (a.lse) a.lse[row] = e.lse();
  a.losses[row] = loss;
}

// gradientOf writes dz of a row, whose probabilities are exp(z − offset)/whole; dz may be z.
template <class T, bool weighs>
__device__ __forceinline__ void gradientOf(const CrossEntropyArguments& a, T* dz, const T* z, int64_t target, float offset, float whole, float dLoss) {
  const int length = a.lines.length;
  if (target < 0) {
    for (int at = threadIdx.x; at < length; at += blockDim.x) dz[at] = fromFloat<T>(0);
    return;
  }
  const float scale = a.scale[1] * dLoss, less = a.smoothing / length * scale;
  float hit = (1 - a.smoothing) * scale, all = scale;
  if (weighs) {
    hit *= a.weights[target];
    all = hit + a.smoothing * a.scale[2] * scale;
  }
  const float factor = all / whole;
  const auto compute = [&](auto n, int at) {
    float x[n];
    load<n>(z + at, x);
#pragma unroll
    for (int i = 0; i < n; i++) x[i] = __expf(x[i] - offset) * factor - (weighs ? less * a.weights[at + i] : less);
    if (target >= at && target < at + n) {
#pragma unroll
      for (int i = 0; i < n; i++) x[i] -= at + i == target ? hit : 0;
    }
    return storing<n>(dz + at, x);
  };
  constexpr int width = perAccess<T>;
  const int step = blockDim.x;
  Cut cut = cutOf(z, length);
  // no piece of one is a piece of the other
  if ((((intptr_t)z ^ (intptr_t)dz) & 15) != 0) cut = {length, 0, length};
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

template <class T>
__device__ __forceinline__ void gradient(const CrossEntropyArguments& a, T* dz, const T* z, int64_t row, int64_t target, float offset, float whole) {
  const float dLoss = a.perRow && a.dLoss ? a.dLoss[row] : 1;
  if (a.weights) return gradientOf<T, true>(a, dz, z, target, offset, whole, dLoss);
  gradientOf<T, false>(a, dz, z, target, offset, whole, dLoss);
}

// farLSE is the magnitude of a logsumexp from which on it is too coarse: what it lost to rounding,
// all exponentials of a row lack as a common factor, which their sum tells.
constexpr float farLSE = 64;

template <class T> __device__ __forceinline__ void backward(const CrossEntropyArguments& a) {
  const int64_t row = blockIdx.x;
  const T* z = (const T*)a.logits + a.lines.at(0, row);
  T* dz = (T*)a.dLogits + a.lines.at(1, row);
  const float lse = a.lse[row];
  const int64_t target = targetOf(a, row);
  if (fabsf(lse) <= farLSE) return gradient(a, dz, z, row, target, lse, 1);
  const Exponentials e = exponentials(z, a.lines.length);
  __syncthreads();  // all have read the row
  gradient(a, dz, z, row, target, e.most, e.sum);
}

// both computes a row's loss and, from its logits that are still in the cache, its gradient in
// their place.
template <class T> __device__ __forceinline__ void both(const CrossEntropyArguments& a) {
  const int64_t row = blockIdx.x;
  T* z = (T*)a.dLogits + a.lines.at(0, row);
  const Exponentials e = exponentials((const T*)z, a.lines.length);
  const int64_t target = targetOf(a, row);
  const float loss = lossOf(a, (const T*)z, target, e);
  if (threadIdx.x == 0) a.losses[row] = loss;
  __syncthreads();  // the loss has read its logits
  gradient(a, z, (const T*)z, row, target, e.most, e.sum);
}

// fetch begins to copy 16 bytes into shared memory, for the thread itself; endGroup ends a group of
// such copies, and waitForAllBut waits for all groups but the last ones.
__device__ __forceinline__ void fetch(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void endGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> __device__ __forceinline__ void waitForAllBut() { asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory"); }

// heldPieces is the most pieces that a thread may have of a row that is held, in groups of `ahead`.
constexpr int heldPieces = 16, heldGroups = heldPieces / ahead;

// heldShift is how many powers of two exponentials of at most 1 are multiplied by, so that the type
// in which they are held has as small ones of them as it can: float16 keeps 11 digits of all down
// to 2e-9, where 16-bit gradients have 8 or 11.
template <class T> constexpr float heldShift = sizeof(T) == 2 ? 15 : 0;

// powerOf2 is 2^x, or 0 where that is less than 2⁻¹²⁶.
__device__ __forceinline__ float powerOf2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// bothHeld is both of rows of whole pieces, one of which fits into shared memory, where its
// exponentials take the place of its logits: memory is read once, and each exponential computed
// once. A block goes through the rows that are gridDim.x apart. What a thread uses it has brought
// itself, and as soon as it has used a piece, that of the next row begins to come. There are no
// weights.
template <class T> __device__ __forceinline__ void bothHeld(const CrossEntropyArguments& a) {
  extern __shared__ __align__(128) char held[];
  using Held = typename std::conditional<sizeof(T) == 2, __half, T>::type;
  constexpr int width = perAccess<T>;
  constexpr float log2e = 1.4426950408889634f;
  const int pieces = a.lines.length / width, step = blockDim.x;
  const auto rowAt = [&](int64_t row) { return (T*)a.dLogits + a.lines.at(0, row); };
  const auto place = [&](int piece) { return held + piece * 16; };
  int64_t row = blockIdx.x;
  T* z = rowAt(row);
#pragma unroll
  for (int g = 0; g < heldGroups; g++) {
#pragma unroll
    for (int k = 0; k < ahead; k++) {
      const int piece = threadIdx.x + (g * ahead + k) * step;
      if (piece < pieces) fetch(place(piece), z + piece * width);
    }
    endGroup();
  }
  for (; row < a.lines.count; row += gridDim.x) {
    const int target = (int)targetOf(a, row);
    const float zOfTarget = threadIdx.x == 0 && target >= 0 ? asFloat(z[target]) : 0;
    Exponentials e = {-FLT_MAX, 0, 0};
    // of the thread's logits up to the end of a group, which its exponentials have as their unit
    float most[heldGroups];
    const auto takeGroup = [&](auto group) {
      waitForAllBut<heldGroups - 1 - group>();
      Piece<T, width> x[ahead];
      float greatest = e.most;
#pragma unroll
      for (int k = 0; k < ahead; k++) {
        const int piece = threadIdx.x + (group * ahead + k) * step;
        if (piece >= pieces) continue;
        x[k] = *(const Piece<T, width>*)place(piece);
#pragma unroll
        for (int i = 0; i < width; i++) greatest = fmaxf(greatest, asFloat(x[k].x[i]));
      }
      e.sum *= __expf(e.most - greatest);
      e.most = most[group] = greatest;
#pragma unroll
      for (int k = 0; k < ahead; k++) {
        const int piece = threadIdx.x + (group * ahead + k) * step;
        if (piece >= pieces) continue;
        float exponential[width];
#pragma unroll
        for (int i = 0; i < width; i++) {
          const float logit = asFloat(x[k].x[i]);
          exponential[i] = powerOf2(fmaf(logit - greatest, log2e, heldShift<T>));
          e.sum += exponential[i];
          e.sumZ += logit;
        }
        store<width>((Held*)place(piece), exponential);
      }
    };
    static_assert(heldGroups == 4);
    takeGroup(Count<0>{}), takeGroup(Count<1>{}), takeGroup(Count<2>{}), takeGroup(Count<3>{});
    e = ofBlock(e);
    // all have the result: the next row's may take its place, and what z was gradients
    __syncthreads();
    const float whole = e.sum;
    e.sum *= powerOf2(-heldShift<T>);
    const float loss = lossOf(a, zOfTarget, target, e, 0);
    if (threadIdx.x == 0) a.losses[row] = loss;

    const float scale = target < 0 ? 0 : a.scale[1] * (a.perRow && a.dLoss ? a.dLoss[row] : 1);
    const float less = a.smoothing / a.lines.length * scale, hit = (1 - a.smoothing) * scale;
    T* const nextZ = row + gridDim.x < a.lines.count ? rowAt(row + gridDim.x) : nullptr;
#pragma unroll
    for (int g = 0; g < heldGroups; g++) {
      const float factor = __expf(most[g] - e.most) * (scale / whole);
#pragma unroll
      for (int k = 0; k < ahead; k++) {
        const int piece = threadIdx.x + (g * ahead + k) * step, at = piece * width;
        if (piece >= pieces) continue;
        float x[width] = {};
        if (target >= 0) {
          load<width>((const Held*)place(piece), x);
#pragma unroll
          for (int i = 0; i < width; i++) x[i] = x[i] * factor - less;
          const int hitAt = target - at;
          if (hitAt >= 0 && hitAt < width) {
#pragma unroll
            for (int i = 0; i < width; i++) x[i] -= i == hitAt ? hit : 0;
          }
        }
        store<width>(z + at, x);
        if (nextZ) fetch(place(piece), nextZ + at);
      }
      endGroup();
    }
    z = nextZ;
  }
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

// cross_entropy_scale sums the weights of the rows that count, and sets the scale of the loss and
// that of the gradient.
extern "C" __global__ void __launch_bounds__(1024) cross_entropy_scale(const __grid_constant__ CrossEntropyArguments a) {
  double counted = 0, weights = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < a.lines.count; row += blockDim.x) {
    const int64_t target = targetOf(a, row, true);
    if (target >= 0) counted += a.weights ? a.weights[target] : 1;
  }
  if (a.weights) {
    for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) weights += a.weights[at];
    weights = sumOfBlock(weights);
    __syncthreads();  // its shared memory is used again
  }
  counted = sumOfBlock(counted);
  if (threadIdx.x > 0) return;
  a.scale[0] = !a.mean ? 1 : counted > 0 ? (float)(1 / counted) : 0;
  a.scale[1] = a.scale[0] * (a.dLoss && !a.perRow ? *a.dLoss : 1);
  a.scale[2] = (float)(weights / a.lines.length);
}

// cross_entropy_loss sums the losses, in float64.
extern "C" __global__ void __launch_bounds__(1024) cross_entropy_loss(const __grid_constant__ CrossEntropyArguments a) {
  double sum = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < a.lines.count; row += blockDim.x) sum += a.losses[row];
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) *a.loss = (float)(sum * a.scale[0]);
}

#define CROSS_ENTROPY_KERNEL(name, blocks, ...) \
  extern "C" __global__ void __launch_bounds__(512, blocks) cross_entropy_##name(const __grid_constant__ CrossEntropyArguments a) { __VA_ARGS__(a); }
#define CROSS_ENTROPY(name, T)                         \
  CROSS_ENTROPY_KERNEL(forward_##name, 3, forward<T>)   \
  CROSS_ENTROPY_KERNEL(backward_##name, 3, backward<T>) \
  CROSS_ENTROPY_KERNEL(both_##name, 3, both<T>)         \
  CROSS_ENTROPY_KERNEL(both_held_##name, 2, bothHeld<T>)
FOR_EACH_ELEMENT(CROSS_ENTROPY)
