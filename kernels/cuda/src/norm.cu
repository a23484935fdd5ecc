// Layer norm and RMS norm, which is layer norm with a mean of 0 and no shift:
//
//   x ← x + other                             where there is another addend: it is rounded, and is an output too
//   x̂_c = (x_c − μ)·rstd                    y_c = x̂_c·γ_c + β_c
//   dx_c = rstd·(g_c − Σ g/C − x̂_c·Σ(g·x̂)/C)  with g_c = dy_c·γ_c, without Σ g/C where μ is none
//   dγ_c = Σ over rows of dy_c·x̂_c            dβ_c = Σ over rows of dy_c
//   Σ over rows of dx_c, where it is wanted: the gradient of a bias in x
//   dx ← dx + dSum                            where the sum x + other has a gradient of its own, to dx as it is rounded
//
// A row whose pieces of 16 bytes fit is read once and held in registers by up to 32 warps; any
// other row is read again for each sum. A module is of one norm, -DRMS_NORM for RMS norm, and of
// one type of elements.
#include "elements.cuh"

// NormArguments is the host's normArguments in norm.go.
struct NormArguments {
  Lines lines;  // of x; then y, other and sum, or dy, dx and dSum
  const void *x, *dy;
  void *y, *dx;
  const void *other, *dSum;  // null for none
  void* sum;
  Parameter gamma, beta;
  float *mean, *rstd;        // (rows); mean is null for RMS norm, and both may be in forward
  // parts: gridDim.x (or .y where columns are summed apart) rows of sums, or null
  float *dGamma, *dBeta;
  float* dxSums;             // the same, of dx; null for none, and of RMS norm
  float eps;
  int32_t warps;             // of a row
};

// slots is how many pieces of a row a thread holds.
constexpr int slots = 4;

// sumOfRow adds two sums over the warps of a row, in one order. Each call of a kernel takes the
// other half of shared.
__device__ __forceinline__ float2 sumOfRow(float2 sum, int warps, float2* shared) {
  sum = make_float2(sumOfWarp(sum.x), sumOfWarp(sum.y));
  if (warps == 1) return sum;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) shared[warp] = sum;
  __syncthreads();
  sum = lane < warps ? shared[warp / warps * warps + lane] : make_float2(0, 0);
  return make_float2(sumOfWarp(sum.x), sumOfWarp(sum.y));
}

// statistics turns the sums of a row's deviations from a centre, and of their squares, into what
// the rounded centre lacks of the mean, and the reciprocal standard deviation. The deviations are
// exact where it matters.
__device__ __forceinline__ float2 statistics(float2 sums, int length, float eps, bool centred) {
  const float shift = centred ? sums.x / length : 0;
  const float variance = fmaxf(0, sums.y / length - shift * shift);
  return make_float2(shift, 1 / sqrtf(sums.y != sums.y ? sums.y : variance + eps));
}

template <class T, bool centred> __device__ __forceinline__ void forward(const NormArguments& a) {
  constexpr int width = perAccess<T>;
  __shared__ float2 shared[2][32];
  const int step = a.warps * 32, thread = threadIdx.x % step, pieces = a.lines.length / width;
  const int64_t row = blockIdx.x * (int64_t)(blockDim.x / step) + threadIdx.x / step;
  const bool there = row < a.lines.count;
  const T* x = (const T*)a.x + (there ? a.lines.at(0, row) : 0);
  Piece<T, width> values[slots];
  float sum = 0;
#pragma unroll
  for (int s = 0; s < slots; s++) {
    const int piece = thread + s * step;
    if (there && piece < pieces) values[s] = ((const Piece<T, width>*)x)[piece];
  }
  if (a.other && there) {  // all of which is on its way before the first sum is stored
    const Piece<T, width>* from = (const Piece<T, width>*)((const T*)a.other + a.lines.at(2, row));
    Piece<T, width>* to = (Piece<T, width>*)((T*)a.sum + a.lines.at(3, row));
    Piece<T, width> other[slots];
#pragma unroll
    for (int s = 0; s < slots; s++) {
      const int piece = thread + s * step;
      if (piece < pieces) other[s] = from[piece];
    }
#pragma unroll
    for (int s = 0; s < slots; s++) {
      const int piece = thread + s * step;
      if (piece >= pieces) continue;
#pragma unroll
      for (int i = 0; i < width; i++) values[s].x[i] = fromFloat<T>(asFloat(values[s].x[i]) + asFloat(other[s].x[i]));
      to[piece] = values[s];
    }
  }
#pragma unroll
  for (int s = 0; s < slots; s++) {
    if (!there || thread + s * step >= pieces) continue;
#pragma unroll
    for (int i = 0; i < width; i++) sum += asFloat(values[s].x[i]);
  }
  const float centre = centred ? sumOfRow(make_float2(sum, 0), a.warps, shared[0]).x / a.lines.length : 0;
  float2 sums = make_float2(0, 0);
#pragma unroll
  for (int s = 0; s < slots; s++) {
    if (!there || thread + s * step >= pieces) continue;
#pragma unroll
    for (int i = 0; i < width; i++) {
      const float deviation = asFloat(values[s].x[i]) - centre;
      sums.x += deviation;
      sums.y += deviation * deviation;
    }
  }
  const float2 shiftAndRStd = statistics(sumOfRow(sums, a.warps, shared[1]), a.lines.length, a.eps, centred);
  if (!there) return;
  const float shift = shiftAndRStd.x, rstd = shiftAndRStd.y;
  if (thread == 0 && a.rstd) {
    if (centred) a.mean[row] = centre + shift;
    a.rstd[row] = rstd;
  }
  T* y = (T*)a.y + a.lines.at(1, row);
#pragma unroll
  for (int s = 0; s < slots; s++) {
    const int piece = thread + s * step;
    if (piece >= pieces) continue;
    float gamma[width], beta[width], out[width];
    load<T, width>(a.gamma, piece * width, 1, gamma);
    load<T, width>(a.beta, piece * width, 0, beta);
#pragma unroll
    for (int i = 0; i < width; i++) out[i] = ((asFloat(values[s].x[i]) - centre) - shift) * rstd * gamma[i] + beta[i];
    store<width>(y + piece * width, out);
  }
}

// forwardAny gives a block a row of any length and alignment.
template <class T, bool centred> __device__ __forceinline__ void forwardAny(const NormArguments& a) {
  __shared__ float2 shared[2][32];
  const int warps = blockDim.x / 32, length = a.lines.length;
  const int64_t row = blockIdx.x;
  const T* x = (const T*)a.x + a.lines.at(0, row);
  T* y = (T*)a.y + a.lines.at(1, row);
  if (a.other) {  // each thread reads what it has written
    const T* other = (const T*)a.other + a.lines.at(2, row);
    T* sum = (T*)a.sum + a.lines.at(3, row);
#pragma unroll 4
    for (int c = threadIdx.x; c < length; c += blockDim.x) sum[c] = fromFloat<T>(asFloat(x[c]) + asFloat(other[c]));
    x = sum;
  }
  float centre = 0;
  if (centred) {
    float sum = 0;
#pragma unroll 4
    for (int c = threadIdx.x; c < length; c += blockDim.x) sum += asFloat(x[c]);
    centre = sumOfRow(make_float2(sum, 0), warps, shared[0]).x / length;
  }
  float2 sums = make_float2(0, 0);
#pragma unroll 4
  for (int c = threadIdx.x; c < length; c += blockDim.x) {
    const float deviation = asFloat(x[c]) - centre;
    sums.x += deviation;
    sums.y += deviation * deviation;
  }
  const float2 shiftAndRStd = statistics(sumOfRow(sums, warps, shared[1]), length, a.eps, centred);
  const float shift = shiftAndRStd.x, rstd = shiftAndRStd.y;
  if (threadIdx.x == 0 && a.rstd) {
    if (centred) a.mean[row] = centre + shift;
    a.rstd[row] = rstd;
  }
#pragma unroll 4
  for (int c = threadIdx.x; c < length; c += blockDim.x) {
    float gamma[1], beta[1];
    load<T, 1>(a.gamma, c, 1, gamma);
    load<T, 1>(a.beta, c, 0, beta);
    y[c] = fromFloat<T>(((asFloat(x[c]) - centre) - shift) * rstd * gamma[0] + beta[0]);
  }
}

// fetch begins to copy 16 bytes into shared memory; what a thread fetched is there for it once it
// has waited.
__device__ __forceinline__ void fetch(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from));
}
__device__ __forceinline__ void endFetches() { asm volatile("cp.async.commit_group;"); }
__device__ __forceinline__ void waitForAllButLast() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

// backward gives the warps of a block the rows that are gridDim.x·(rows of a block) apart. While a
// row is computed, the next one is on its way to shared memory: a thread fetches what it will use.
// The sums of dγ and dβ over its rows stay in registers until it has no more; then those of all
// rows of the block meet in shared memory.
template <class T, bool centred, bool sumsOfDX> __device__ __forceinline__ void backward(const NormArguments& a) {
  constexpr int width = perAccess<T>;
  __shared__ float2 shared[2][32];
  // γ; then, of two turns and each row of the block, a row of x, one of dy and, if there is one, of
  // dSum. In the end, dγ and dβ of each row of the block.
  extern __shared__ __align__(16) float dynamic[];
  const int step = a.warps * 32, thread = threadIdx.x % step, group = threadIdx.x / step, groups = blockDim.x / step;
  const int length = a.lines.length, pieces = length / width;
  const float part = 1.0f / length;
  const int ofTurn = (a.dSum ? 3 : 2) * pieces;
  // x, dy and dSum of a turn, then those of the other
  Piece<T, width>* rows = (Piece<T, width>*)(dynamic + length) + group * 2 * ofTurn;
  // γ lies four by four, so that no two threads of a warp meet in a bank.
  float4* gammas = (float4*)dynamic;
  for (int piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
    float gamma[width];
    load<T, width>(a.gamma, piece * width, 1, gamma);
#pragma unroll
    for (int i = 0; i < width; i += 4) gammas[i / 4 * pieces + piece] = make_float4(gamma[i], gamma[i + 1], gamma[i + 2], gamma[i + 3]);
  }
  const auto gammaOf = [&](int piece, float (&gamma)[width]) {
#pragma unroll
    for (int i = 0; i < width; i += 4) {
      const float4 x = gammas[i / 4 * pieces + piece];
      gamma[i] = x.x, gamma[i + 1] = x.y, gamma[i + 2] = x.z, gamma[i + 3] = x.w;
    }
  };
  float nextMean = 0, nextRStd = 0;
  const auto begin = [&](int64_t row, int turn) {
    if (row < a.lines.count) {
      const Piece<T, width>* xs = (const Piece<T, width>*)((const T*)a.x + a.lines.at(0, row));
      const Piece<T, width>* dys = (const Piece<T, width>*)((const T*)a.dy + a.lines.at(1, row));
      Piece<T, width>* to = rows + turn * ofTurn;
#pragma unroll
      for (int s = 0; s < slots; s++) {
        const int piece = thread + s * step;
        if (piece >= pieces) continue;
        fetch(to + piece, xs + piece);
        fetch(to + pieces + piece, dys + piece);
      }
      if (a.dSum) {
        const Piece<T, width>* dSums = (const Piece<T, width>*)((const T*)a.dSum + a.lines.at(3, row));
#pragma unroll
        for (int s = 0; s < slots; s++) {
          const int piece = thread + s * step;
          if (piece < pieces) fetch(to + 2 * pieces + piece, dSums + piece);
        }
      }
      if (centred) nextMean = a.mean[row];
      nextRStd = a.rstd[row];
    }
    endFetches();
  };
  float dGamma[slots][width] = {}, dBeta[centred ? slots : 1][width] = {}, dxSum[sumsOfDX ? slots : 1][width] = {};
  const int64_t stride = gridDim.x * (int64_t)groups;
  int turn = 0;
  begin(blockIdx.x * (int64_t)groups + group, 0);
  __syncthreads();  // γ is there
  for (int64_t first = blockIdx.x * (int64_t)groups; first < a.lines.count; first += stride, turn ^= 1) {
    const int64_t row = first + group;
    const bool there = row < a.lines.count;
    const float mean = nextMean, rstd = nextRStd;
    begin(row + stride, turn ^ 1);
    waitForAllButLast();
    const Piece<T, width>*x = rows + turn * ofTurn, *dy = x + pieces;
    float2 sums = make_float2(0, 0);  // of g, and of g·(x − μ)
#pragma unroll
    for (int s = 0; s < slots; s++) {
      const int piece = thread + s * step;
      if (!there || piece >= pieces) continue;
      float gamma[width], xs[width], dys[width];
      gammaOf(piece, gamma);
      load<width>((const T*)(x + piece), xs);
      load<width>((const T*)(dy + piece), dys);
#pragma unroll
      for (int i = 0; i < width; i++) {
        const float product = dys[i] * (xs[i] - mean);
        sums.x += dys[i] * gamma[i];
        sums.y += product * gamma[i];
        dGamma[s][i] += product * rstd;
        if constexpr (centred) dBeta[s][i] += dys[i];
      }
    }
    sums = sumOfRow(sums, a.warps, shared[turn]);
    if (!there) continue;
    const float meanOfG = centred ? sums.x * part : 0, factor = sums.y * part * rstd * rstd;
    T* dx = (T*)a.dx + a.lines.at(2, row);
#pragma unroll
    for (int s = 0; s < slots; s++) {
      const int piece = thread + s * step;
      if (piece >= pieces) continue;
      float gamma[width], xs[width], dys[width];
      gammaOf(piece, gamma);
      load<width>((const T*)(x + piece), xs);
      load<width>((const T*)(dy + piece), dys);
#pragma unroll
      for (int i = 0; i < width; i++) dys[i] = rstd * (dys[i] * gamma[i] - ((xs[i] - mean) * factor + meanOfG));
      if (a.dSum) {
        load<width>((const T*)(dy + pieces + piece), xs);
#pragma unroll
        for (int i = 0; i < width; i++) dys[i] = asFloat(fromFloat<T>(dys[i])) + xs[i];
      }
      store<width>(dx + piece * width, dys);
      if constexpr (sumsOfDX) {
#pragma unroll
        for (int i = 0; i < width; i++) dxSum[s][i] += dys[i];
      }
    }
  }
  __syncthreads();  // the rows in shared memory are done with
  // of a group, dγ, then dβ, then those of dx, four by four as γ was
  float4* sums = (float4*)dynamic;
  const int each = (1 + centred + sumsOfDX) * length / 4;
#pragma unroll
  for (int s = 0; s < slots; s++) {
    const int piece = thread + s * step;
    if (piece >= pieces) continue;
#pragma unroll
    for (int i = 0; i < width; i += 4) {
      float4* to = sums + group * each + i / 4 * pieces + piece;
      to[0] = make_float4(dGamma[s][i], dGamma[s][i + 1], dGamma[s][i + 2], dGamma[s][i + 3]);
      if constexpr (centred) to[length / 4] = make_float4(dBeta[s][i], dBeta[s][i + 1], dBeta[s][i + 2], dBeta[s][i + 3]);
      if constexpr (sumsOfDX) to[length / 2] = make_float4(dxSum[s][i], dxSum[s][i + 1], dxSum[s][i + 2], dxSum[s][i + 3]);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < each; i += blockDim.x) {
    float4 total = sums[i];
    for (int other = 1; other < groups; other++) {
      const float4 x = sums[other * each + i];
      total.x += x.x, total.y += x.y, total.z += x.z, total.w += x.w;
    }
    const int at = i % (length / 4), column = at % pieces * width + at / pieces * 4;
    float* to = (i < length / 4 ? a.dGamma : i < length / 2 ? a.dBeta : a.dxSums) + blockIdx.x * (int64_t)length + column;
    *(float4*)to = total;
  }
}

// backwardRows computes dx of one row a group of warps, which hold it in registers.
template <class T, bool centred> __device__ __forceinline__ void backwardRows(const NormArguments& a) {
  constexpr int width = perAccess<T>;
  __shared__ float2 shared[32];
  const int step = a.warps * 32, thread = threadIdx.x % step, length = a.lines.length, pieces = length / width;
  const int64_t row = blockIdx.x * (int64_t)(blockDim.x / step) + threadIdx.x / step;
  const bool there = row < a.lines.count;
  const T* xs = (const T*)a.x + (there ? a.lines.at(0, row) : 0);
  const T* dys = (const T*)a.dy + (there ? a.lines.at(1, row) : 0);
  const float mean = centred && there ? a.mean[row] : 0, rstd = there ? a.rstd[row] : 0;
  Piece<T, width> x[slots], dy[slots];
#pragma unroll
  for (int s = 0; s < slots; s++) {
    const int piece = thread + s * step;
    if (!there || piece >= pieces) continue;
    x[s] = ((const Piece<T, width>*)xs)[piece];
    dy[s] = ((const Piece<T, width>*)dys)[piece];
  }
  float2 sums = make_float2(0, 0);
#pragma unroll
  for (int s = 0; s < slots; s++) {
    const int piece = thread + s * step;
    if (!there || piece >= pieces) continue;
    float gamma[width];
    load<T, width>(a.gamma, piece * width, 1, gamma);
#pragma unroll
    for (int i = 0; i < width; i++) {
      const float g = asFloat(dy[s].x[i]) * gamma[i];
      sums.x += g;
      sums.y += g * ((asFloat(x[s].x[i]) - mean) * rstd);
    }
  }
  sums = sumOfRow(sums, a.warps, shared);
  if (!there) return;
  const float meanOfG = centred ? sums.x / length : 0, meanOfGX = sums.y / length;
  T* dx = (T*)a.dx + a.lines.at(2, row);
  const T* dSum = a.dSum ? (const T*)a.dSum + a.lines.at(3, row) : nullptr;
#pragma unroll
  for (int s = 0; s < slots; s++) {
    const int piece = thread + s * step;
    if (piece >= pieces) continue;
    float gamma[width], out[width];
    load<T, width>(a.gamma, piece * width, 1, gamma);
#pragma unroll
    for (int i = 0; i < width; i++) {
      out[i] = rstd * (asFloat(dy[s].x[i]) * gamma[i] - meanOfG - (asFloat(x[s].x[i]) - mean) * rstd * meanOfGX);
    }
    if (dSum) {
      float more[width];
      load<width>(dSum + piece * width, more);
#pragma unroll
      for (int i = 0; i < width; i++) out[i] = asFloat(fromFloat<T>(out[i])) + more[i];
    }
    store<width>(dx + piece * width, out);
  }
}

// backwardAny computes dx of rows of any length and alignment, one a block.
template <class T, bool centred> __device__ __forceinline__ void backwardAny(const NormArguments& a) {
  __shared__ float2 shared[32];
  const int length = a.lines.length;
  const int64_t row = blockIdx.x;
  const T* x = (const T*)a.x + a.lines.at(0, row);
  const T* dy = (const T*)a.dy + a.lines.at(1, row);
  T* dx = (T*)a.dx + a.lines.at(2, row);
  const T* dSum = a.dSum ? (const T*)a.dSum + a.lines.at(3, row) : nullptr;
  const float mean = centred ? a.mean[row] : 0, rstd = a.rstd[row];
  float2 sums = make_float2(0, 0);
#pragma unroll 4
  for (int c = threadIdx.x; c < length; c += blockDim.x) {
    float gamma[1];
    load<T, 1>(a.gamma, c, 1, gamma);
    const float g = asFloat(dy[c]) * gamma[0];
    sums.x += g;
    sums.y += g * ((asFloat(x[c]) - mean) * rstd);
  }
  sums = sumOfRow(sums, blockDim.x / 32, shared);
  const float meanOfG = centred ? sums.x / length : 0, meanOfGX = sums.y / length;
#pragma unroll 4
  for (int c = threadIdx.x; c < length; c += blockDim.x) {
    float gamma[1];
    load<T, 1>(a.gamma, c, 1, gamma);
    const float own = rstd * (asFloat(dy[c]) * gamma[0] - meanOfG - (asFloat(x[c]) - mean) * rstd * meanOfGX);
    dx[c] = fromFloat<T>(dSum ? asFloat(fromFloat<T>(own)) + asFloat(dSum[c]) : own);
  }
}

// columnsOf computes parts of dγ and dβ: a block takes some columns, `n` a lane, and the rows of
// one part, its eight warps in turns.
template <class T, bool centred, int n> __device__ __forceinline__ void columnsOf(const NormArguments& a) {
  __shared__ float shared[2][8][32 * n];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, length = a.lines.length;
  const int64_t column = ((int64_t)blockIdx.x * 32 + lane) * n;
  float dGamma[n] = {}, dBeta[n] = {};
  if (column < length) {
    const int64_t perPart = (a.lines.count + gridDim.y - 1) / gridDim.y, from = blockIdx.y * perPart;
    const int64_t to = from + perPart < a.lines.count ? from + perPart : a.lines.count;
#pragma unroll 2
    for (int64_t row = from + warp; row < to; row += 8) {
      float x[n], dy[n];
      load<n>((const T*)a.x + a.lines.at(0, row) + column, x);
      load<n>((const T*)a.dy + a.lines.at(1, row) + column, dy);
      const float mean = centred ? a.mean[row] : 0, rstd = a.rstd[row];
#pragma unroll
      for (int i = 0; i < n; i++) {
        dGamma[i] += dy[i] * ((x[i] - mean) * rstd);
        dBeta[i] += dy[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < n; i++) {
    shared[0][warp][i * 32 + lane] = dGamma[i];
    shared[1][warp][i * 32 + lane] = dBeta[i];
  }
  __syncthreads();
  for (int i = warp; i < 2 * n; i += 8) {
    const int which = i / n, at = i % n;
    float total = 0;
    for (int w = 0; w < 8; w++) total += shared[which][w][at * 32 + lane];
    float* parts = which ? a.dBeta : a.dGamma;
    if (column < length && parts) parts[blockIdx.y * (int64_t)length + column + at] = total;
  }
}

#define NORM_KERNEL(name, threads, blocks, ...) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ NormArguments a) { __VA_ARGS__(a); }
#define NORM_OF(kind, centred, name, T)                                                        \
  NORM_KERNEL(kind##_forward_##name, 1024, 1, forward<T, centred>)                             \
  NORM_KERNEL(kind##_forward_any_##name, 256, 1, forwardAny<T, centred>)                       \
  NORM_KERNEL(kind##_backward_##name, 128, 4, backward<T, centred, false>)                     \
  NORM_KERNEL(kind##_backward_rows_##name, 1024, 1, backwardRows<T, centred>)                  \
  NORM_KERNEL(kind##_backward_any_##name, 256, 1, backwardAny<T, centred>)                     \
  NORM_KERNEL(kind##_columns_##name, 256, 1, columnsOf<T, centred, perAccess<T>>)              \
  NORM_KERNEL(kind##_columns_any_##name, 256, 1, columnsOf<T, centred, 1>)
#ifdef RMS_NORM
#define NORM(name, T) NORM_OF(rms_norm, false, name, T)
#else
#define NORM(name, T) \
  NORM_OF(layer_norm, true, name, T) \
  NORM_KERNEL(layer_norm_backward_sums_##name, 128, 3, backward<T, true, true>)
#endif
FOR_EACH_ELEMENT(NORM)
