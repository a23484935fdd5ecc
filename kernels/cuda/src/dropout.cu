// Dropout of a tensor seen as rows: y = x·keep·scale, where a thread takes the eight columns of a
// counter.
#include "elements.cuh"
#include "philox.cuh"

// DropoutArguments is the host's dropoutArguments in dropout.go.
struct DropoutArguments {
  Lines lines;  // of y and x
  void* y;
  const void* x;
  uint32_t threshold, key0, key1, step;
  float scale;
  uint32_t firstRow;
};

template <class T> __device__ __forceinline__ void dropout(const DropoutArguments& a) {
  constexpr int columns = 8, width = perAccess<T>;
  const int64_t perRow = (a.lines.length + columns - 1) / columns, count = a.lines.count * perRow;
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < count; n += (int64_t)gridDim.x * blockDim.x) {
    const int64_t row = count >> 31 ? n / perRow : (uint32_t)n / (uint32_t)perRow;
    const int group = (int)(n - row * perRow), column = group * columns;
    uint4 words[1] = {make_uint4(a.step, 0, (uint32_t)row + a.firstRow, (uint32_t)group)};
    philox(a.key0, a.key1, words);
    const uint32_t word[columns / 2] = {words[0].x, words[0].y, words[0].z, words[0].w};
    float factor[columns];
#pragma unroll
    for (int i = 0; i < columns; i++) factor[i] = (word[i / 2] >> i % 2 * 16 & 0xFFFF) >= a.threshold ? a.scale : 0;
    const T* x = (const T*)a.x + a.lines.at(1, row) + column;
    T* y = (T*)a.y + a.lines.at(0, row) + column;
    if (a.lines.aligned && column + columns <= a.lines.length) {
#pragma unroll
      for (int piece = 0; piece < columns; piece += width) {
        float values[width];
        load<width>(x + piece, values);
#pragma unroll
        for (int i = 0; i < width; i++) values[i] = factor[piece + i] == 0 ? 0 : values[i] * factor[piece + i];
        store<width>(y + piece, values);
      }
    } else {
#pragma unroll
      for (int i = 0; i < columns; i++) {
        if (column + i < a.lines.length) y[i] = fromFloat<T>(factor[i] == 0 ? 0 : asFloat(x[i]) * factor[i]);
      }
    }
  }
}

#define DROPOUT(name, T) \
  extern "C" __global__ void dropout_##name(const __grid_constant__ DropoutArguments a) { dropout<T>(a); }
FOR_EACH_ELEMENT(DROPOUT)
