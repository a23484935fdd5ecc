// Optimisers over a list of parameters in one launch, and the decision about a step. A block works
// on one chunk of one tensor; a table in the device's memory says where the chunks are. All are
// bound by memory: a thread moves four neighbouring elements at once where the addresses allow it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>

#include "arguments.cuh"

constexpr int Threads = 256;

// Chunk is the host's chunk in optimizer.go: at most `chunkElements` elements of a parameter, and
// of what goes with it.
struct Chunk {
  float* data[4];  // weights, gradients and the states; or one tensor alone
  int32_t count, tensor;
  // of the weight in 16 bits, which is written with it; null for none
  uint16_t* copy;
  // the chunk's first element in the weight; the weight's columns; from row to row of the copy, and
  // from column to column
  uint32_t first, columns, stride, alongRow;
  int32_t element, reserved;        // Element of the copy
};

// Places in a control vector, as kernels/optimizer.go lists them.
enum { Steps, Skipped, SkippedInARow, Norm, Verdict, Rate, Scale, LossScale, GoodSteps, FirstRate, Rates, RateWindow = 4, ControlSize = Rates + RateWindow };
constexpr double StepMade = -1, NoRate = -2, StepAbandoned = -3;
constexpr double LargestNorm = 0x1p64;

// Update is the host's update in optimizer.go. With a control vector, its rate and scale are
// factors of that one's.
struct Update {
  const Chunk* chunks;
  const double* control;
  double rate, weightDecay, scale;
  double beta1, beta2, epsilon;  // beta1 is the momentum of SGD
  int32_t step, clear, nesterov, decoupled;
};

struct Four { float x[4]; };

__device__ __forceinline__ Four load(const __half* at, int n, bool aligned) {
  Four f = {};
  if (aligned && n == 4) {
    const uint2 v = *(const uint2*)at;
    const float2 low = __half22float2(*(const __half2*)&v.x), high = __half22float2(*(const __half2*)&v.y);
    f.x[0] = low.x, f.x[1] = low.y, f.x[2] = high.x, f.x[3] = high.y;
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) if (i < n) f.x[i] = __half2float(at[i]);
  }
  return f;
}

__device__ __forceinline__ void store(__half* at, const Four& f, int n, bool aligned) {
  if (aligned && n == 4) {
    const __half2 low = __floats2half2_rn(f.x[0], f.x[1]), high = __floats2half2_rn(f.x[2], f.x[3]);
    *(uint2*)at = make_uint2(*(const uint32_t*)&low, *(const uint32_t*)&high);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) if (i < n) at[i] = __float2half_rn(f.x[i]);
  }
}

__device__ __forceinline__ Four load(const float* at, int n, bool aligned) {
  Four f = {};
  if (aligned && n == 4) {
    const float4 v = *(const float4*)at;
    f.x[0] = v.x, f.x[1] = v.y, f.x[2] = v.z, f.x[3] = v.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) if (i < n) f.x[i] = at[i];
  }
  return f;
}

__device__ __forceinline__ void store(float* at, const Four& f, int n, bool aligned) {
  if (aligned && n == 4) {
    *(float4*)at = make_float4(f.x[0], f.x[1], f.x[2], f.x[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) if (i < n) at[i] = f.x[i];
  }
}

// storeCopy writes up to four neighbouring elements of the chunk, from `at` on, to the copy. They
// lie in one row of it.
__device__ __forceinline__ void storeCopy(const Chunk& c, int at, const Four& f, int n) {
  const uint32_t i = c.first + at, row = i / c.columns;
  uint16_t* to = c.copy + (int64_t)row * c.stride + (int64_t)(i - row * c.columns) * c.alongRow;
  ushort4 x;
  if (c.element == ElementBF16) {
    const auto rounded = [](float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); };
    x = make_ushort4(rounded(f.x[0]), rounded(f.x[1]), rounded(f.x[2]), rounded(f.x[3]));
  } else {
    const auto rounded = [](float v) { return __half_as_ushort(__float2half_rn(v)); };
    x = make_ushort4(rounded(f.x[0]), rounded(f.x[1]), rounded(f.x[2]), rounded(f.x[3]));
  }
  if (n == 4 && c.alongRow == 1) {
    *(ushort4*)to = x;
    return;
  }
  to[0] = x.x;
  if (n > 1) to[c.alongRow] = x.y;
  if (n > 2) to[2 * (int64_t)c.alongRow] = x.z;
  if (n > 3) to[3 * (int64_t)c.alongRow] = x.w;
}

// step is what a rule needs of an update: the same for all elements.
struct Step {
  double rate, scale, decay;  // decay is the factor of the weights
  double steps;
  bool made;
};

__device__ __forceinline__ Step decided(const Update& u) {
  Step s = {u.rate, u.scale, 1, (double)u.step, true};
  if (u.control) {
    s.rate *= u.control[Rate];
    s.scale *= u.control[Scale];
    s.steps = u.control[Steps];
    s.made = u.control[Verdict] == StepMade;
  }
  s.decay = 1 - s.rate * u.weightDecay;
  return s;
}

// A rule has its numbers from prepare, which one thread of a block calls, and changes an element:
// the weight w, the states m and v, by the gradient g.

//   m ← m + (1 − β₁)(g − m)      v ← β₂·v + (1 − β₂)·g²      w ← (1 − η·λ)·w − η/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
struct AdamW {
  static constexpr int states = 2;
  float scale, rest1, beta2, rest2, root, epsilon, decay, rate;
  __device__ void prepare(const Update& u, const Step& s) {
    scale = (float)s.scale, rest1 = (float)(1 - u.beta1), beta2 = (float)u.beta2, rest2 = (float)(1 - u.beta2);
    root = (float)(1 / sqrt(1 - pow(u.beta2, s.steps))), epsilon = (float)u.epsilon;
    decay = (float)s.decay, rate = (float)(s.rate / (1 - pow(u.beta1, s.steps)));
  }
  __device__ __forceinline__ void apply(float& w, float g, float& m, float& v) const {
    g *= scale;
    m += rest1 * (g - m);
    v = beta2 * v + rest2 * g * g;
    w = decay * w - rate * m / (sqrtf(v) * root + epsilon);
  }
};

//   g ← g + λ·w   unless decoupled      m ← μ·m + g      w ← (1 − η·λ)·w − η·m,   or − η·(g + μ·m) if it is Nesterov's
struct Momentum {
  static constexpr int states = 1;
  float scale, pull, momentum, decay, along, ahead;
  __device__ void prepare(const Update& u, const Step& s) {
    scale = (float)s.scale, pull = u.decoupled ? 0 : (float)u.weightDecay, momentum = (float)u.beta1;
    decay = u.decoupled ? (float)s.decay : 1;
    along = u.nesterov ? (float)s.rate : 0, ahead = (float)(u.nesterov ? s.rate * u.beta1 : s.rate);
  }
  __device__ __forceinline__ void apply(float& w, float g, float& m, float&) const {
    g = scale * g + pull * w;
    m = momentum * m + g;
    w = decay * w - (along * g + ahead * m);
  }
};

//   w ← (1 − η·λ)·w − η·g      with g ← g + λ·w first unless decoupled
struct Plain {
  static constexpr int states = 0;
  float scale, pull, decay, rate;
  __device__ void prepare(const Update& u, const Step& s) {
    scale = (float)s.scale, pull = u.decoupled ? 0 : (float)u.weightDecay;
    decay = u.decoupled ? (float)s.decay : 1, rate = (float)s.rate;
  }
  __device__ __forceinline__ void apply(float& w, float g, float&, float&) const {
    w = decay * w - rate * (scale * g + pull * w);
  }
};

//   w ← (1 − η·λ)·w − η·sign(β₁·m + (1 − β₁)·g)      m ← β₂·m + (1 − β₂)·g
struct Lion {
  static constexpr int states = 1;
  float scale, beta1, rest1, beta2, rest2, decay, rate;
  __device__ void prepare(const Update& u, const Step& s) {
    scale = (float)s.scale, beta1 = (float)u.beta1, rest1 = (float)(1 - u.beta1);
    beta2 = (float)u.beta2, rest2 = (float)(1 - u.beta2), decay = (float)s.decay, rate = (float)s.rate;
  }
  __device__ __forceinline__ void apply(float& w, float g, float& m, float&) const {
    g *= scale;
    const float direction = beta1 * m + rest1 * g;
    const float sign = direction > 0 ? 1 : direction < 0 ? -1 : direction;
    w = decay * w - rate * sign;
    m = beta2 * m + rest2 * g;
  }
};

//   w ← w + g      of sums of gradients
struct Sum {
  static constexpr int states = 0;
  __device__ void prepare(const Update&, const Step&) {}
  __device__ __forceinline__ void apply(float& w, float g, float&, float&) const { w += g; }
};

// Gradient is float, or __half of gradients that are not to be cleared.
template <class Rule, class Gradient = float> __device__ __forceinline__ void update(const Update& u) {
  __shared__ Rule shared;
  __shared__ bool made;
  const Chunk c = u.chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    const Step s = decided(u);
    made = s.made;
    if (s.made) shared.prepare(u, s);
  }
  __syncthreads();
  bool aligned = true;
#pragma unroll
  for (int i = 0; i < 2 + Rule::states; i++) aligned = aligned && (uintptr_t)c.data[i] % 16 == 0;
  if (!made) {
    for (int at = 4 * threadIdx.x; u.clear && at < c.count; at += 4 * Threads) store(c.data[1] + at, Four{}, min(4, c.count - at), aligned);
    return;
  }
  const Rule rule = shared;
#pragma unroll 2
  for (int at = 4 * threadIdx.x; at < c.count; at += 4 * Threads) {
    const int n = min(4, c.count - at);
    Four w = load(c.data[0] + at, n, aligned), m = {}, v = {};
    const Four g = load((const Gradient*)c.data[1] + at, n, aligned);
    if (Rule::states > 0) m = load(c.data[2] + at, n, aligned);
    if (Rule::states > 1) v = load(c.data[3] + at, n, aligned);
#pragma unroll
    for (int i = 0; i < 4; i++) rule.apply(w.x[i], g.x[i], m.x[i], v.x[i]);
    store(c.data[0] + at, w, n, aligned);
    if (c.copy) storeCopy(c, at, w, n);
    if (Rule::states > 0) store(c.data[2] + at, m, n, aligned);
    if (Rule::states > 1) store(c.data[3] + at, v, n, aligned);
    if (u.clear) store(c.data[1] + at, Four{}, n, aligned);
  }
}

extern "C" __global__ void __launch_bounds__(Threads) adamw(const __grid_constant__ Update u) { update<AdamW>(u); }
extern "C" __global__ void __launch_bounds__(Threads) sgd(const __grid_constant__ Update u) { update<Plain>(u); }
extern "C" __global__ void __launch_bounds__(Threads) sgd_f16(const __grid_constant__ Update u) { update<Plain, __half>(u); }
extern "C" __global__ void __launch_bounds__(Threads) sgd_momentum(const __grid_constant__ Update u) { update<Momentum>(u); }
extern "C" __global__ void __launch_bounds__(Threads) lion(const __grid_constant__ Update u) { update<Lion>(u); }
extern "C" __global__ void __launch_bounds__(Threads) accumulate(const __grid_constant__ Update u) { update<Sum>(u); }

// Sums is the host's sumSquares in optimizer.go.
struct Sums {
  const Chunk* chunks;
  const int32_t* firsts;  // the first chunk of each tensor; the number of chunks behind the last
  double* parts;          // a sum for each chunk
  double* sums;           // a sum for each tensor
};

// sumOfBlock adds up what the threads of a block have, in one order; thread 0 has the result.
__device__ __forceinline__ double sumOfBlock(double sum) {
  __shared__ double parts[Threads / 32];
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  for (int i = 1; i < Threads / 32 && threadIdx.x == 0; i++) sum += parts[i];
  return sum;
}

// sum_squares computes the sums of the chunks, sum_parts of these those of the tensors. Which
// elements meet where depends on the shapes alone.
extern "C" __global__ void __launch_bounds__(Threads) sum_squares(const __grid_constant__ Sums s) {
  const Chunk c = s.chunks[blockIdx.x];
  const bool aligned = (uintptr_t)c.data[0] % 16 == 0;
  double sum = 0;
#pragma unroll 4
  for (int at = 4 * threadIdx.x; at < c.count; at += 4 * Threads) {
    const Four f = load(c.data[0] + at, min(4, c.count - at), aligned);
    double squares = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) squares += (double)f.x[i] * f.x[i];
    sum += squares;
  }
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) s.parts[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(Threads) sum_parts(const __grid_constant__ Sums s) {
  double sum = 0;
  for (int i = s.firsts[blockIdx.x] + threadIdx.x; i < s.firsts[blockIdx.x + 1]; i += Threads) sum += s.parts[i];
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) s.sums[blockIdx.x] = sum;
}

// MomentumStep is the host's momentumStep in optimizer.go. Of a chunk, data are y, g and m.
struct MomentumStep {
  Update u;
  double* parts;  // a sum of squares of y for each chunk, or null
};

// momentum computes m ← μ·m + γ·g and y = −m, or −(γ·g + μ·m) if it is Nesterov's. Squares are added
// in the order of sum_squares.
extern "C" __global__ void __launch_bounds__(Threads) momentum(const __grid_constant__ MomentumStep a) {
  __shared__ float scale;
  __shared__ bool made;
  const Chunk c = a.u.chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    const Step s = decided(a.u);
    made = s.made, scale = (float)s.scale;
  }
  __syncthreads();
  bool aligned = true;
#pragma unroll
  for (int i = 0; i < 3; i++) aligned = aligned && (uintptr_t)c.data[i] % 16 == 0;
  const float by = scale, momentum = (float)a.u.beta1;
  double sum = 0;
#pragma unroll 2
  for (int at = 4 * threadIdx.x; at < c.count; at += 4 * Threads) {
    const int n = min(4, c.count - at);
    Four y = {};
    if (made) {
      const Four g = load(c.data[1] + at, n, aligned);
      Four m = load(c.data[2] + at, n, aligned);
      double squares = 0;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float gradient = by * g.x[i];
        m.x[i] = momentum * m.x[i] + gradient;
        y.x[i] = a.u.nesterov ? -(gradient + momentum * m.x[i]) : -m.x[i];
        squares += (double)y.x[i] * y.x[i];
      }
      sum += squares;
      store(c.data[2] + at, m, n, aligned);
    }
    store(c.data[0] + at, y, n, aligned);
    if (a.u.clear) store(c.data[1] + at, Four{}, n, aligned);
  }
  if (!a.parts) return;
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) a.parts[blockIdx.x] = sum;
}

// Normalizing is the host's normalizing in optimizer.go. Of a chunk, data are x and y.
struct Normalizing {
  const Chunk* chunks;
  const double* sums;
  double factor;
};

// normalize computes y = x·factor/√sum, and zeros where the sum is zero.
template <class To> __device__ __forceinline__ void normalized(const Normalizing& a) {
  const Chunk c = a.chunks[blockIdx.x];
  const double sum = a.sums[c.tensor], by = sum > 0 ? a.factor / sqrt(sum) : 0;
  const bool aligned = (uintptr_t)c.data[0] % 16 == 0 && (uintptr_t)c.data[1] % 16 == 0;
#pragma unroll 4
  for (int at = 4 * threadIdx.x; at < c.count; at += 4 * Threads) {
    const int n = min(4, c.count - at);
    Four x = load(c.data[0] + at, n, aligned);
#pragma unroll
    for (int i = 0; i < 4; i++) x.x[i] = (float)(x.x[i] * by);
    store((To*)c.data[1] + at, x, n, aligned);
  }
}

extern "C" __global__ void __launch_bounds__(Threads) normalize(const __grid_constant__ Normalizing a) { normalized<float>(a); }
extern "C" __global__ void __launch_bounds__(Threads) normalize_f16(const __grid_constant__ Normalizing a) { normalized<__half>(a); }

// Plan is the host's plan in optimizer.go.
struct Plan {
  const double* sums;
  double* control;
  const volatile int32_t* abandoned;  // in the host's memory; null where no network can be aborted
  double limit, runs, growth, backoff;
  int32_t count, interval;
};

// decide writes what is decided about a step whose squares have the given sum into c.
__device__ __forceinline__ void decide(const Plan& p, double total, double verdict, double* c) {
  if (p.abandoned && *p.abandoned) {
    c[Verdict] = StepAbandoned;
    return;
  }
  const double at = c[Steps] - c[FirstRate];
  const double rate = at >= 0 && at < RateWindow ? c[Rates + (int)at] : NAN;
  if (!isfinite(rate)) {
    c[Verdict] = NoRate;
    return;
  }
  const double runs = p.runs * c[LossScale], norm = sqrt(total) / runs;
  const double clip = p.limit > 0 ? p.limit / (norm + 1e-6) : 1;
  c[Norm] = norm, c[Verdict] = verdict, c[Rate] = rate, c[Scale] = (clip > 1 ? 1 : clip) / runs;
  if (verdict != StepMade) {
    c[Skipped]++, c[SkippedInARow]++, c[GoodSteps] = 0;
    if (p.interval > 0) c[LossScale] *= p.backoff;
    return;
  }
  c[Steps]++, c[SkippedInARow] = 0, c[GoodSteps]++;
  if (p.interval > 0 && c[GoodSteps] == p.interval) c[LossScale] *= p.growth, c[GoodSteps] = 0;
}

// plan_step decides as the host's kernel does, and adds in its order, with one block.
extern "C" __global__ void __launch_bounds__(Threads) plan_step(const __grid_constant__ Plan p) {
  constexpr int Tile = 1024;
  __shared__ double sums[Tile], control[ControlSize];
  double total = 0, verdict = StepMade;
  if (threadIdx.x < ControlSize) control[threadIdx.x] = p.control[threadIdx.x];
  for (int from = 0; from < p.count; from += Tile) {
    const int n = min(Tile, p.count - from);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += Threads) sums[i] = p.sums[from + i];
    __syncthreads();
    if (threadIdx.x > 0 || verdict != StepMade) continue;
    const double before = total, most = LargestNorm * p.runs * control[LossScale];
#pragma unroll 16
    for (int i = 0; i < n; i++) total += sums[i];
    if (total < most * most) continue;
    double sum = before;
    for (int i = 0; verdict == StepMade; i++) {
      sum += sums[i];
      if (!(sum < most * most)) verdict = from + i;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) decide(p, total, verdict, control);
  __syncthreads();
  if (threadIdx.x < ControlSize) p.control[threadIdx.x] = control[threadIdx.x];
}

// Adafactor, as kernels/adafactor.go defines it, in five launches. A block works on a tile of a
// matrix, Down rows and Across columns; a vector is a row. Sums are float64, and which elements meet
// where depends on the shapes alone.
//
//   adafactor_squares     a tile: sums of w² and, along rows and columns, of g²; v of a vector
//   adafactor_means       32 lines of a matrix, rows or columns: their means
//   adafactor_directions  a tile: sum of u²
//   adafactor_rates       a tensor: its rate
//   adafactor             a tile: weights
constexpr int Down = 64, Across = 256, Lines = 32, Warps = Threads / 32, Each = Across / 32;

// Factored is the host's factored in adafactor.go: a matrix, and where in scratch memory its sums
// are, in numbers.
struct Factored {
  float *w, *g, *rows, *columns, *v;  // of the means, a vector has v and a matrix the others
  uint16_t* copy;                     // as in Chunk
  uint32_t first, copyColumns, stride, alongRow;
  int32_t element, unused;
  int32_t height, width;
  int64_t rowSums, columnSums;        // ⌈width/Across⌉ lists for rows; ⌈height/Down⌉ for columns
  int32_t firstLines, lines;          // of the blocks of adafactor_means
  int32_t tensor, reserved;
};

// Piece is what a block works on: a matrix, and the first row and column, or the first line.
struct Piece { int32_t matrix, row, column, reserved; };

// Whole is a tensor: its tiles and the number of its elements.
struct Whole {
  int64_t elements;
  int32_t firstTile, tiles;
};

// FactoredStep is the host's factoredStep in adafactor.go.
struct FactoredStep {
  Update u;
  const Factored* matrices;
  const Piece *tiles, *lines;
  const Whole* tensors;
  double* scratch;
  int64_t ofWeights, ofDirections, ofRows, rates;  // in scratch: of tiles twice, of lines, of tensors
  double beta2Decay, clip;
};

constexpr float Tiny = 0x1p-23f;

// forgotten is how much of the means a step replaces.
__device__ __forceinline__ float forgotten(const FactoredStep& a, const Step& s) { return (float)pow(s.steps, a.beta2Decay); }

// eachRow calls work(row of the tile, first element, n) for the rows of a tile that are the warp's.
// A thread has every 32nd element from its first on, while 32·k < n.
template <class Work> __device__ __forceinline__ void eachRow(const Factored& m, const Piece& tile, Work work) {
  const int rows = min(Down, m.height - tile.row), columns = min(Across, m.width - tile.column), lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < rows; row += Warps) {
    work(row, (int64_t)(tile.row + row) * m.width + tile.column + lane, columns - lane);
  }
}

__device__ __forceinline__ double sumOfWarp(double sum) {
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  return sum;
}

extern "C" __global__ void __launch_bounds__(Threads) adafactor_squares(const __grid_constant__ FactoredStep a) {
  __shared__ double sums[Warps][Across];
  const Step s = decided(a.u);
  if (!s.made) return;
  const Piece tile = a.tiles[blockIdx.x];
  const Factored m = a.matrices[tile.matrix];
  const bool isVector = m.v != nullptr;
  const float scale = (float)s.scale, forget = isVector ? forgotten(a, s) : 0;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  double weights = 0, columns[Each] = {};
  eachRow(m, tile, [&](int row, int64_t first, int n) {
    double sum = 0;
#pragma unroll
    for (int k = 0; k < Each; k++) {
      if (32 * k >= n) continue;
      const double w = m.w[first + 32 * k];
      weights += w * w;
      const float g = scale * m.g[first + 32 * k];
      if (isVector) {
        const float v = m.v[first + 32 * k];
        m.v[first + 32 * k] = v + forget * (g * g - v);
        continue;
      }
      const double square = (double)g * g;
      sum += square, columns[k] += square;
    }
    if (isVector) return;
    sum = sumOfWarp(sum);
    if (lane == 0) a.scratch[m.rowSums + (int64_t)(tile.column / Across) * m.height + tile.row + row] = sum;
  });
  if (!isVector) {
#pragma unroll
    for (int k = 0; k < Each; k++) sums[warp][lane + 32 * k] = columns[k];
    __syncthreads();
    const int column = tile.column + threadIdx.x;
    double sum = 0;
    for (int i = 0; i < Warps; i++) sum += sums[i][threadIdx.x];
    if (column < m.width) a.scratch[m.columnSums + (int64_t)(tile.row / Down) * m.width + column] = sum;
  }
  weights = sumOfBlock(weights);
  if (threadIdx.x == 0) a.scratch[a.ofWeights + blockIdx.x] = weights;
}

extern "C" __global__ void __launch_bounds__(Threads) adafactor_means(const __grid_constant__ FactoredStep a) {
  __shared__ double sums[Warps][Lines];
  const Step s = decided(a.u);
  if (!s.made) return;
  const Piece piece = a.lines[blockIdx.x];
  const Factored m = a.matrices[piece.matrix];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t line = (int64_t)piece.row + lane;  // rows, and behind them columns
  const bool isRow = line < m.height, isThere = line < (int64_t)m.height + m.width;
  const int64_t at = isRow ? line : line - m.height, each = isRow ? m.height : m.width;
  const int64_t parts = isRow ? (m.width + Across - 1) / Across : (m.height + Down - 1) / Down;
  const double* list = a.scratch + (isRow ? m.rowSums : m.columnSums) + at;
  double sum = 0;
  if (isThere) {
#pragma unroll 4
    for (int64_t i = warp; i < parts; i += Warps) sum += list[i * each];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0) return;
  double mean = 0;
  if (isThere) {
    for (int i = 1; i < Warps; i++) sum += sums[i][lane];
    float* const state = (isRow ? m.rows : m.columns) + at;
    const float before = *state, now = before + forgotten(a, s) * ((float)(sum / (isRow ? m.width : m.height)) - before);
    *state = now;
    if (isRow) mean = now;
  }
  mean = sumOfWarp(mean);
  if (lane == 0) a.scratch[a.ofRows + blockIdx.x] = mean;
}

// meanOfRows is the mean of a matrix's means, for all threads of a block.
__device__ __forceinline__ float meanOfRows(const FactoredStep& a, const Factored& m) {
  __shared__ float mean;
  double sum = 0;
  for (int i = threadIdx.x; i < m.lines; i += Threads) sum += a.scratch[a.ofRows + m.firstLines + i];
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) mean = fmaxf((float)(sum / m.height), Tiny);
  __syncthreads();
  return mean;
}

// Directions are those of a thread's elements of a row.
struct Directions {
  float scale, mean;
  __device__ __forceinline__ float at(const Factored& m, const Piece& tile, int row, int64_t first, int k) const {
    const float square = m.v ? m.v[first + 32 * k] : m.rows[tile.row + row] * m.columns[tile.column + threadIdx.x % 32 + 32 * k] / mean;
    return scale * m.g[first + 32 * k] / sqrtf(fmaxf(square, Tiny * Tiny));
  }
};

extern "C" __global__ void __launch_bounds__(Threads) adafactor_directions(const __grid_constant__ FactoredStep a) {
  const Step s = decided(a.u);
  if (!s.made) return;
  const Piece tile = a.tiles[blockIdx.x];
  const Factored m = a.matrices[tile.matrix];
  const Directions directions = {(float)s.scale, m.v ? 0 : meanOfRows(a, m)};
  double sum = 0;
  eachRow(m, tile, [&](int row, int64_t first, int n) {
#pragma unroll
    for (int k = 0; k < Each; k++) {
      if (32 * k >= n) continue;
      const double u = directions.at(m, tile, row, first, k);
      sum += u * u;
    }
  });
  sum = sumOfBlock(sum);
  if (threadIdx.x == 0) a.scratch[a.ofDirections + blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(Threads) adafactor_rates(const __grid_constant__ FactoredStep a) {
  const Step s = decided(a.u);
  if (!s.made) return;
  const Whole t = a.tensors[blockIdx.x];
  double weights = 0, directions = 0;
  for (int i = t.firstTile + threadIdx.x; i < t.firstTile + t.tiles; i += Threads) {
    weights += a.scratch[a.ofWeights + i], directions += a.scratch[a.ofDirections + i];
  }
  weights = sumOfBlock(weights);
  __syncthreads();
  directions = sumOfBlock(directions);
  if (threadIdx.x > 0) return;
  const double n = (double)t.elements, size = fmax(a.u.epsilon, sqrt(weights / n));
  a.scratch[a.rates + blockIdx.x] = size * fmin(s.rate, 1 / sqrt(s.steps)) / fmax(1.0, sqrt(directions / n) / a.clip);
}

// storeCopy writes an element of a matrix to the weight's copy.
__device__ __forceinline__ void storeCopy(const Factored& m, int64_t at, float w) {
  const uint32_t i = m.first + (uint32_t)at, row = i / m.copyColumns;
  m.copy[(int64_t)row * m.stride + (int64_t)(i - row * m.copyColumns) * m.alongRow] =
      m.element == ElementBF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(w)) : __half_as_ushort(__float2half_rn(w));
}

extern "C" __global__ void __launch_bounds__(Threads) adafactor(const __grid_constant__ FactoredStep a) {
  const Step s = decided(a.u);
  const Piece tile = a.tiles[blockIdx.x];
  const Factored m = a.matrices[tile.matrix];
  const Directions directions = {(float)s.scale, m.v || !s.made ? 0 : meanOfRows(a, m)};
  const float decay = (float)s.decay, rate = s.made ? (float)a.scratch[a.rates + m.tensor] : 0;
  eachRow(m, tile, [&](int row, int64_t first, int n) {
    float w[Each];
#pragma unroll
    for (int k = 0; k < Each; k++) {  // all loads come before the first store
      if (32 * k < n && s.made) w[k] = decay * m.w[first + 32 * k] - rate * directions.at(m, tile, row, first, k);
    }
#pragma unroll
    for (int k = 0; k < Each; k++) {
      if (32 * k >= n) continue;
      if (s.made) m.w[first + 32 * k] = w[k];
      if (s.made && m.copy) storeCopy(m, first + 32 * k, w[k]);
      if (a.u.clear) m.g[first + 32 * k] = 0;
    }
  });
}
