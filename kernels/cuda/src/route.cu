// Routers of experts: which experts each token has, the rows of tokens in the order of their experts,
// and the sums of what experts have made of them. kernels/route.go says what is computed.
#include "elements.cuh"

// RouteArguments is the host's routeArguments in route.go.
struct RouteArguments {
  const void* logits;  // (tokens, count)
  void* dLogits;
  const float* bias;   // (count), or null
  float* weights;      // (tokens, chosen); backward only reads their gradient
  int32_t* experts;    // (tokens, chosen)
  int64_t step, dStep;  // from one row of logits to the next, in elements
  int64_t tokens;
  int32_t count, chosen;
  int32_t sigmoid, normalize, bestTwo;
  int32_t groups, kept;
  float epsilon, scale;
  int32_t reserved;
};

// A warp has a token. What it knows of the experts lies in shared memory, `rows` floats an expert.
struct Token {
  const int lane, warps;
  int64_t token;
  float* scores;

  __device__ __forceinline__ Token(int count, int rows) : lane(threadIdx.x % 32), warps(blockDim.x / 32) {
    extern __shared__ float memory[];
    token = blockIdx.x * (int64_t)warps + threadIdx.x / 32;
    scores = memory + threadIdx.x / 32 * rows * count;
  }
};

__device__ __forceinline__ float mostOfWarp(float x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, other));
  return x;
}

// scoresOf computes the scores of a row of logits.
template <class T> __device__ __forceinline__ void scoresOf(const T* logits, int count, bool sigmoid, int lane, float* scores) {
  if (sigmoid) {
    for (int e = lane; e < count; e += 32) scores[e] = 1 / (1 + expf(-asFloat(logits[e])));
    __syncwarp();
    return;
  }
  float most = -INFINITY, sum = 0;
  for (int e = lane; e < count; e += 32) most = fmaxf(most, asFloat(logits[e]));
  most = mostOfWarp(most);
  for (int e = lane; e < count; e += 32) {
    scores[e] = expf(asFloat(logits[e]) - most);
    sum += scores[e];
  }
  sum = sumOfWarp(sum);
  for (int e = lane; e < count; e += 32) scores[e] /= sum;
  __syncwarp();
}

// rank makes a value an integer of the same order: NaN comes behind all numbers, and -∞, which marks
// what was taken, behind that.
__device__ __forceinline__ uint32_t rank(float x) {
  if (x != x) return 1;
  if (x == -INFINITY) return 0;
  const uint32_t bits = __float_as_uint(x == 0 ? 0 : x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// takeBest returns the first of the largest of some values, to all lanes, and marks it.
__device__ __forceinline__ int takeBest(float* values, int count, int lane) {
  uint32_t best = 0;
  int at = INT32_MAX;
  for (int e = lane; e < count; e += 32) {
    const uint32_t r = rank(values[e]);
    if (at == INT32_MAX || r > best) best = r, at = e;
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    const uint32_t r = __shfl_xor_sync(~0u, best, other);
    const int e = __shfl_xor_sync(~0u, at, other);
    if (e != INT32_MAX && (at == INT32_MAX || r > best || r == best && e < at)) best = r, at = e;
  }
  __syncwarp();
  if (lane == 0) values[at] = -INFINITY;
  __syncwarp();
  return at;
}

// keepGroups marks the values of all but the best groups, whose values it needs room for.
__device__ __forceinline__ void keepGroups(const RouteArguments& a, float* values, float* groups, int lane) {
  const int size = a.count / a.groups;
  for (int g = lane; g < a.groups; g += 32) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; e++) {
      const float x = values[e];
      if (x > first) second = first, first = x;
      else if (x > second) second = x;
    }
    groups[g] = a.bestTwo ? first + second : first;
  }
  __syncwarp();
  for (int n = 0; n < a.kept; n++) takeBest(groups, a.groups, lane);
  for (int e = lane; e < a.count; e += 32)
    if (groups[e / size] != -INFINITY) values[e] = -INFINITY;
  __syncwarp();
}

template <class T> __device__ __forceinline__ void choose(const RouteArguments& a) {
  const Token t(a.count, 3);
  if (t.token >= a.tokens) return;
  float *values = t.scores + a.count, *groups = values + a.count;
  scoresOf((const T*)a.logits + t.token * a.step, a.count, a.sigmoid, t.lane, t.scores);
  for (int e = t.lane; e < a.count; e += 32) values[e] = t.scores[e] + (a.bias ? a.bias[e] : 0);
  __syncwarp();
  if (a.groups > 0) keepGroups(a, values, groups, t.lane);
  float divisor = a.normalize ? a.epsilon : 1;
  for (int j = 0; j < a.chosen; j++) {
    const int e = takeBest(values, a.count, t.lane);
    if (t.lane == 0) a.experts[t.token * a.chosen + j] = e;
    if (a.normalize) divisor += t.scores[e];
  }
  __syncwarp();
  for (int j = t.lane; j < a.chosen; j += 32) {
    const int64_t at = t.token * a.chosen + j;
    a.weights[at] = a.scale * t.scores[a.experts[at]] / divisor;
  }
}

template <class T> __device__ __forceinline__ void backward(const RouteArguments& a) {
  const Token t(a.count, 2);
  if (t.token >= a.tokens) return;
  float* dScores = t.scores + a.count;
  scoresOf((const T*)a.logits + t.token * a.step, a.count, a.sigmoid, t.lane, t.scores);
  for (int e = t.lane; e < a.count; e += 32) dScores[e] = 0;
  __syncwarp();
  const int32_t* experts = a.experts + t.token * a.chosen;
  const float* dw = a.weights + t.token * a.chosen;
  float divisor = 1, mean = 0, sum = 0;
  if (a.normalize) {
    divisor = a.epsilon;
    for (int j = 0; j < a.chosen; j++) {
      divisor += t.scores[experts[j]];
      mean += dw[j] * t.scores[experts[j]];
    }
    mean /= divisor;
  }
  for (int j = 0; j < a.chosen; j++) {
    const int e = experts[j];
    const float d = a.scale * (dw[j] - mean) / divisor;
    sum += d * t.scores[e];
    if (t.lane == 0) dScores[e] = d;
  }
  __syncwarp();
  T* to = (T*)a.dLogits + t.token * a.dStep;
  for (int e = t.lane; e < a.count; e += 32) {
    const float s = t.scores[e];
    to[e] = fromFloat<T>(a.sigmoid ? dScores[e] * s * (1 - s) : s * (dScores[e] - sum));
  }
}

// SortArguments is the host's sortArguments in route.go.
struct SortArguments {
  const int32_t* experts;
  int32_t *offsets, *order, *places;
  int32_t choices, count;
};

// route_sort gives each expert a block, which finds where its choices begin, and places them in order.
extern "C" __global__ void __launch_bounds__(1024) route_sort(const __grid_constant__ SortArguments a) {
  __shared__ int32_t parts[33];
  const int expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  int before = 0;
  for (int i = threadIdx.x; i < a.choices; i += blockDim.x) before += a.experts[i] < expert;
  before = sumOfWarp(before);
  if (lane == 0) parts[warp] = before;
  __syncthreads();
  int next = 0;
  for (int w = 0; w < warps; w++) next += parts[w];
  if (threadIdx.x == 0) {
    a.offsets[expert] = next;
    if (expert == a.count - 1) a.offsets[a.count] = a.choices;
  }
  for (int from = 0; from < a.choices; from += blockDim.x) {
    const int i = from + threadIdx.x;
    const bool mine = i < a.choices && a.experts[i] == expert;
    const unsigned matches = __ballot_sync(~0u, mine);
    __syncthreads();
    if (lane == 0) parts[warp] = __popc(matches);
    __syncthreads();
    int at = next + __popc(matches & ((1u << lane) - 1));
    for (int w = 0; w < warps; w++) {
      if (w < warp) at += parts[w];
      next += parts[w];
    }
    if (mine) a.order[at] = i, a.places[i] = at;
  }
}

// MoveArguments is the host's moveArguments in route.go.
struct MoveArguments {
  const void *from, *other;  // of factors, dy
  void* to;
  const float* factors;      // null where they are 1
  float* dFactors;
  const int32_t* where;      // the order, or the places
  int64_t fromStep, otherStep, toStep;  // from one row to the next, in elements
  int64_t rows;              // that are written
  int32_t length, chosen, reserved[2];
};

// A warp has a row, n elements of it a lane at a time.
template <class T, int n> __device__ __forceinline__ void dispatch(const MoveArguments& a) {
  const int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  const int choice = a.where[row];
  const T* from = (const T*)a.from + choice / a.chosen * a.fromStep;
  T* to = (T*)a.to + row * a.toStep;
  const float factor = a.factors ? a.factors[choice] : 1;
  for (int at = threadIdx.x % 32 * n; at < a.length; at += 32 * n) {
    float x[n];
    load<n>(from + at, x);
#pragma unroll
    for (int i = 0; i < n; i++) x[i] *= factor;
    store<n>(to + at, x);
  }
}

template <class T, int n> __device__ __forceinline__ void combine(const MoveArguments& a) {
  const int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  T* to = (T*)a.to + row * a.toStep;
  const int32_t* places = a.where + row * a.chosen;
  for (int at = threadIdx.x % 32 * n; at < a.length; at += 32 * n) {
    float sum[n] = {};
    for (int j = 0; j < a.chosen; j++) {
      float x[n];
      load<n>((const T*)a.from + places[j] * a.fromStep + at, x);
      const float factor = a.factors ? a.factors[row * a.chosen + j] : 1;
#pragma unroll
      for (int i = 0; i < n; i++) sum[i] = fmaf(factor, x[i], sum[i]);
    }
    store<n>(to + at, sum);
  }
}

// A warp has a choice.
template <class T, int n> __device__ __forceinline__ void combineFactors(const MoveArguments& a) {
  const int64_t choice = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32;
  if (choice >= a.rows) return;
  const T *from = (const T*)a.from + a.where[choice] * a.fromStep, *other = (const T*)a.other + choice / a.chosen * a.otherStep;
  float sum = 0;
  for (int at = threadIdx.x % 32 * n; at < a.length; at += 32 * n) {
    float x[n], y[n];
    load<n>(from + at, x);
    load<n>(other + at, y);
#pragma unroll
    for (int i = 0; i < n; i++) sum = fmaf(x[i], y[i], sum);
  }
  sum = sumOfWarp(sum);
  if (threadIdx.x % 32 == 0) a.dFactors[choice] = sum;
}

// BalanceArguments is the host's balanceArguments in route.go.
struct BalanceArguments {
  const void* logits;      // (tokens, count)
  void* dLogits;
  const int32_t* offsets;  // (layers, count + 1)
  float *loss, *parts;     // backward reads the gradient of the loss; a number a block
  int64_t step, dStep;     // from one row of logits to the next, in elements
  int64_t tokens;
  int32_t count, layers, blocks, reserved;
};

// A block has every blocks-th set of as many tokens as it has warps. Behind the warps' probabilities
// in shared memory lie the factors of the mean probabilities.
template <class T, bool gradient> __device__ __forceinline__ void balance(const BalanceArguments& a) {
  extern __shared__ float memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float *factors = memory + warps * a.count, *p = memory + warp * a.count;
  __shared__ float sums[32];
  for (int e = threadIdx.x; e < a.count; e += blockDim.x) {
    int n = 0;
    for (int layer = 0; layer < a.layers; layer++) {
      const int32_t* offsets = a.offsets + (int64_t)layer * (a.count + 1);
      n += offsets[e + 1] - offsets[e];
    }
    factors[e] = (float)n * a.count / a.tokens;
  }
  __syncthreads();
  float total = 0;
  for (int64_t token = blockIdx.x * (int64_t)warps + warp; token < a.tokens; token += (int64_t)gridDim.x * warps) {
    scoresOf((const T*)a.logits + token * a.step, a.count, false, lane, p);
    float sum = 0;
    for (int e = lane; e < a.count; e += 32) sum = fmaf(p[e], factors[e], sum);
    sum = sumOfWarp(sum);
    total += sum;
    if (gradient) {
      const float scale = *a.loss / a.tokens;
      T* to = (T*)a.dLogits + token * a.dStep;
      for (int e = lane; e < a.count; e += 32) to[e] = fromFloat<T>(scale * p[e] * (factors[e] - sum));
    }
    __syncwarp();
  }
  if (gradient) return;
  if (lane == 0) sums[warp] = total;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int w = 0; w < warps; w++) sum += sums[w];
    a.parts[blockIdx.x] = sum;
  }
}

extern "C" __global__ void balance_sum(const __grid_constant__ BalanceArguments a) {
  double sum = 0;
  for (int i = threadIdx.x; i < a.blocks; i += 32) sum += a.parts[i];
  sum = sumOfWarp(sum);
  if (threadIdx.x == 0) *a.loss = (float)(sum / a.tokens);
}

#define ROUTE(name, T)                                                                                        \
  extern "C" __global__ void route_choose_##name(const __grid_constant__ RouteArguments a) { choose<T>(a); }   \
  extern "C" __global__ void route_backward_##name(const __grid_constant__ RouteArguments a) { backward<T>(a); } \
  extern "C" __global__ void balance_forward_##name(const __grid_constant__ BalanceArguments a) { balance<T, false>(a); } \
  extern "C" __global__ void balance_backward_##name(const __grid_constant__ BalanceArguments a) { balance<T, true>(a); } \
  extern "C" __global__ void dispatch_##name(const __grid_constant__ MoveArguments a) { dispatch<T, 1>(a); }   \
  extern "C" __global__ void dispatch_wide_##name(const __grid_constant__ MoveArguments a) { dispatch<T, perAccess<T>>(a); } \
  extern "C" __global__ void combine_##name(const __grid_constant__ MoveArguments a) { combine<T, 1>(a); }     \
  extern "C" __global__ void combine_wide_##name(const __grid_constant__ MoveArguments a) { combine<T, perAccess<T>>(a); } \
  extern "C" __global__ void combine_factors_##name(const __grid_constant__ MoveArguments a) { combineFactors<T, 1>(a); } \
  extern "C" __global__ void combine_factors_wide_##name(const __grid_constant__ MoveArguments a) { combineFactors<T, perAccess<T>>(a); }
FOR_EACH_ELEMENT(ROUTE)
