// Adds new tokens to a cache, and turns queries and keys by where the tokens are. Item b of the call
// is item i = state[0] + b of the cache, which holds n = state[1 + i] tokens; S are the new ones:
//
//   keys, values (i, h, n + s) = RoPE(k), v (b, h, s)      turned (b, h, s) = RoPE(q) (b, h, s)      n ← n + S
//
// with y1 = amplitude·(x1·cos θ − x2·sin θ), y2 = amplitude·(x2·cos θ + x1·sin θ), θ = (offset + n +
// s)·frequency. An item whose state[1 + items + i] is 0 is left alone. A block has an item.
#include "arguments.cuh"
#include "dependent.cuh"
#include "elements.cuh"

// AppendArguments is the host's appendArguments in cache_append.go. Rows begin at multiples of 16
// bytes.
struct AppendArguments {
  Rows q, k, v, turned, keys, values;  // turned.data is null where nothing is turned
  const double* frequencies;           // (dim/2)
  int32_t* state;
  int32_t items;                       // of the cache
  int32_t heads, keyHeads, length;     // length: S
  int32_t d, dv, dim;                  // dim of a head's d dimensions are turned
  int32_t interleaved, offset;
  float amplitude;
};

constexpr int MOST_ANGLES = 2048;  // of all rows

template <class T> __device__ __forceinline__ T* rowAt(const Rows& t, int64_t batch, int head, int row) {
  return (T*)t.data + batch * t.batch + head * t.head + row * t.row;
}

template <class T> __device__ __forceinline__ void append(const AppendArguments& a) {
  constexpr int WIDTH = perAccess<T>;
  __shared__ float2 angles[MOST_ANGLES];
  awaitBefore();
  beginDependents();
  const int b = blockIdx.x, item = a.state[0] + b, held = a.state[1 + item];
  const bool takes = a.state[1 + a.items + item];
  if (!takes) return;
  const int half = a.dim / 2;
  for (int i = threadIdx.x; i < a.length * half; i += blockDim.x) {
    // The angle may be many turns, which float32 could not hold; within one turn it can.
    constexpr double turn = 6.283185307179586476925;
    const double theta = (a.offset + held + i / half) * a.frequencies[i % half];
    float2 of;
    sincosf((float)(theta - turn * rint(theta / turn)), &of.y, &of.x);
    angles[i] = make_float2(a.amplitude * of.x, a.amplitude * of.y);
  }
  __syncthreads();
  if (threadIdx.x == 0) a.state[1 + item] = held + a.length;

  // A unit is 16 bytes of a row that is copied, or two pieces of 16 bytes that are turned.
  const bool turns = a.turned.data != nullptr;
  const int rotated = turns ? (a.interleaved ? a.dim : half) / WIDTH : 0, unitsOfRow = rotated + (a.d - (turns ? a.dim : 0)) / WIDTH;
  const int queries = turns ? a.heads * unitsOfRow : 0, keys = a.keyHeads * unitsOfRow, values = a.keyHeads * (a.dv / WIDTH);
  const int ofToken = queries + keys + values;
  for (int n = threadIdx.x; n < a.length * ofToken; n += blockDim.x) {
    const int s = n / ofToken;
    int unit = n % ofToken;
    if (unit >= queries + keys) {
      unit -= queries + keys;
      const int head = unit / (a.dv / WIDTH), column = unit % (a.dv / WIDTH) * WIDTH;
      *(uint4*)(rowAt<T>(a.values, item, head, held + s) + column) = *(const uint4*)(rowAt<T>(a.v, b, head, s) + column);
      continue;
    }
    const bool isKey = unit >= queries;
    if (isKey) unit -= queries;
    const int head = unit / unitsOfRow, at = unit % unitsOfRow;
    const T* from = isKey ? rowAt<T>(a.k, b, head, s) : rowAt<T>(a.q, b, head, s);
    T* to = isKey ? rowAt<T>(a.keys, item, head, held + s) : rowAt<T>(a.turned, b, head, s);
    if (at >= rotated) {
      const int column = (turns ? a.dim : 0) + (at - rotated) * WIDTH;
      *(uint4*)(to + column) = *(const uint4*)(from + column);
    } else if (a.interleaved) {
      float x[WIDTH];
      load<WIDTH>(from + at * WIDTH, x);
#pragma unroll
      for (int i = 0; i < WIDTH; i += 2) {
        const float2 of = angles[s * half + (at * WIDTH + i) / 2];
        const float y = x[i] * of.x - x[i + 1] * of.y;
        x[i + 1] = x[i + 1] * of.x + x[i] * of.y;
        x[i] = y;
      }
      store<WIDTH>(to + at * WIDTH, x);
    } else {
      float x1[WIDTH], x2[WIDTH];
      load<WIDTH>(from + at * WIDTH, x1);
      load<WIDTH>(from + half + at * WIDTH, x2);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        const float2 of = angles[s * half + at * WIDTH + i];
        const float y = x1[i] * of.x - x2[i] * of.y;
        x2[i] = x2[i] * of.x + x1[i] * of.y;
        x1[i] = y;
      }
      store<WIDTH>(to + at * WIDTH, x1);
      store<WIDTH>(to + half + at * WIDTH, x2);
    }
  }
}

extern "C" __global__ void cache_append_bf16(const __grid_constant__ AppendArguments a) { append<__nv_bfloat16>(a); }
extern "C" __global__ void cache_append_f16(const __grid_constant__ AppendArguments a) { append<__half>(a); }
