// The rotary position embedding of (batch, heads, length, head size), forward and, with the
// opposite direction, backward:
//
//   y1 = amplitude·(x1·cos θ − x2·sin θ)      y2 = amplitude·(x2·cos θ + x1·sin θ)      θ = direction·(offset + position)·frequency
//
// A thread rotates the same pairs of several heads, for the angles of which it computes sine and
// cosine once.
#include "elements.cuh"

// RoPEArguments is the host's ropeArguments in rope.go.
struct RoPEArguments {
  const void* x;
  void* y;
  const double* frequencies;  // (dim/2)
  Indices positions;          // (batch, length), or null: the row's index
  int64_t itemPositions;      // elements from one batch item's positions to the next's
  int64_t from[3], to[3];     // strides of x and y: batch, head, position
  int64_t count;              // of threads: batch · shares · length · units, the last fastest
  int32_t length, heads;
  int32_t shares;             // threads that share the heads of a position
  int32_t d, dim;             // the head size, and how much of it is rotated
  // threads for a row: of `width` pairs (half split) or half as many (interleaved), then of copies
  int32_t units;
  int32_t rotated;            // units that rotate
  int32_t width;              // elements that are moved at once, or 1
  int32_t offset;             // the position of the first row
  float direction, amplitude;
  int32_t reserved;
};

__device__ __forceinline__ float2 angle(const RoPEArguments& a, int64_t position, int pair) {
  // The angle may be many turns, which float32 could not hold; within one turn it can.
  constexpr double turn = 6.283185307179586476925;
  const double theta = (a.offset + position) * a.frequencies[pair];
  float2 result;
  sincosf(a.direction * (float)(theta - turn * rint(theta / turn)), &result.y, &result.x);
  return make_float2(a.amplitude * result.x, a.amplitude * result.y);
}

__device__ __forceinline__ void rotate(float& x1, float& x2, float2 angle) {
  const float y1 = x1 * angle.x - x2 * angle.y;
  x2 = x2 * angle.x + x1 * angle.y;
  x1 = y1;
}

// rope moves n elements at once.
template <class T, bool interleaved, int n> __device__ __forceinline__ void rope(const RoPEArguments& a) {
  constexpr int pairs = interleaved && n > 1 ? n / 2 : n;
  for (int64_t thread = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; thread < a.count; thread += (int64_t)gridDim.x * blockDim.x) {
    int64_t rest = thread / a.units;
    const int unit = (int)(thread - rest * a.units);
    int64_t outer = rest / a.length;
    const int64_t position = rest - outer * a.length, batch = outer / a.shares;
    const int share = (int)(outer - batch * a.shares);
    const int64_t at = a.positions.data ? a.positions[batch * a.itemPositions + position] : position;
    const T* x = (const T*)a.x + batch * a.from[0] + position * a.from[2];
    T* y = (T*)a.y + batch * a.to[0] + position * a.to[2];
    if (unit >= a.rotated) {
      const int copied = a.dim + (unit - a.rotated) * n;
      for (int head = share; head < a.heads; head += a.shares) {
        *(Piece<T, n>*)(y + head * a.to[1] + copied) = *(const Piece<T, n>*)(x + head * a.from[1] + copied);
      }
      continue;
    }
    float2 angles[pairs];
#pragma unroll
    for (int i = 0; i < pairs; i++) angles[i] = angle(a, at, unit * pairs + i);
    for (int head = share; head < a.heads; head += a.shares) {
      const T* from = x + head * a.from[1];
      T* to = y + head * a.to[1];
      if constexpr (interleaved && n > 1) {
        float values[n];
        load<n>(from + unit * n, values);
#pragma unroll
        for (int i = 0; i < pairs; i++) rotate(values[2 * i], values[2 * i + 1], angles[i]);
        store<n>(to + unit * n, values);
      } else {
        const int first = interleaved ? 2 * unit : unit * n, second = interleaved ? first + 1 : first + a.dim / 2;
        float x1[n], x2[n];
        load<n>(from + first, x1);
        load<n>(from + second, x2);
#pragma unroll
        for (int i = 0; i < n; i++) rotate(x1[i], x2[i], angles[i]);
        store<n>(to + first, x1);
        store<n>(to + second, x2);
      }
    }
  }
}

#define ROPE(name, T)                                                                                     \
  extern "C" __global__ void rope_half_split_##name(const __grid_constant__ RoPEArguments a) {            \
    a.width > 1 ? rope<T, false, perAccess<T>>(a) : rope<T, false, 1>(a);                                 \
  }                                                                                                       \
  extern "C" __global__ void rope_interleaved_##name(const __grid_constant__ RoPEArguments a) {           \
    a.width > 1 ? rope<T, true, perAccess<T>>(a) : rope<T, true, 1>(a);                                   \
  }
FOR_EACH_ELEMENT(ROPE)
