// Looking up rows of a table, and the sums of the gradients of the rows that were looked up.
// Compile with -DTABLE= and -DROWS=, the types of the elements of the table and its gradient, and
// of the rows that are looked up and theirs.
#include "elements.cuh"

// EmbeddingArguments is the host's embeddingArguments in embedding.go.
struct EmbeddingArguments {
  Lines lines;   // of y or dy; then of the ids, as rows of one element
  Indices ids;
  Fault fault;
  const void* from;  // the table, or dy
  void* to;          // y, or the table's gradient
  int64_t step;      // from one of the table's rows to the next, in elements
  int32_t vocabulary;
  int32_t width;     // elements that are moved at once, or 1
  int32_t* found;    // (vocabulary): how many positions look a row up; zero at first
  int32_t* places;   // (vocabulary, mostPlaces): some of those positions
  // how many rows more positions look up than a row of places holds, and which rows these are
  int32_t* frequent;
};

// mostPlaces is how many positions are noted of a row, a warp's lanes.
constexpr int mostPlaces = 32;

// warps is how many warps a block of the backward kernel has, and `most` how many elements are
// moved at once.
constexpr int warps = 32, most = 16 / (sizeof(TABLE) > sizeof(ROWS) ? sizeof(TABLE) : sizeof(ROWS));

// converted is an element in another type, or as it is.
template <class To, class From> __device__ __forceinline__ To converted(From x) {
  if constexpr (std::is_same<To, From>::value) return x;
  else return fromFloat<To>(asFloat(x));
}

// forward copies the table's row of each id, `n` elements of it a thread at a time, with several on
// their way at once. As many threads as fit it take a row, a warp at most. An id outside the table
// is reported and its row left as it was.
template <class To, class From, int n> __device__ __forceinline__ void forward(const EmbeddingArguments& a) {
  constexpr int ahead = 4;
  const int perRow = a.lines.length / n;
  int together = 32;
  while (together / 2 >= perRow && together > 1) together /= 2;
  const int64_t step = (int64_t)gridDim.x * blockDim.x / together;
  int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / together;
  const int first = threadIdx.x % together;
  int64_t next = row < a.lines.count ? a.ids[a.lines.at(1, row)] : 0;
  for (; row < a.lines.count; row += step) {
    const int64_t id = next;
    if (row + step < a.lines.count) next = a.ids[a.lines.at(1, row + step)];
    if (id < 0 || id >= a.vocabulary) {
      if (first == 0) a.fault.report(row, id, a.vocabulary);
      continue;
    }
    const Piece<From, n>* from = (const Piece<From, n>*)((const From*)a.from + id * a.step);
    To* to = (To*)a.to + a.lines.at(0, row);
    for (int piece = first; piece < perRow; piece += ahead * together) {
      Piece<From, n> x[ahead];
#pragma unroll
      for (int k = 0; k < ahead; k++)
        if (piece + k * together < perRow) x[k] = from[piece + k * together];
#pragma unroll
      for (int k = 0; k < ahead; k++) {
        if (piece + k * together >= perRow) continue;
        Piece<To, n> y;
#pragma unroll
        for (int i = 0; i < n; i++) y.x[i] = converted<To>(x[k].x[i]);
        ((Piece<To, n>*)to)[piece + k * together] = y;
      }
    }
  }
}

// embedding_find notes the first positions to come by for each of the table's rows, in whatever
// order, and which rows have more.
extern "C" __global__ void embedding_find(const __grid_constant__ EmbeddingArguments a) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < a.lines.count; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t id = a.ids[a.lines.at(1, i)];
    if (id < 0 || id >= a.vocabulary) {
      a.fault.report(i, id, a.vocabulary);
      continue;
    }
    const int place = atomicAdd(&a.found[id], 1);
    if (place < mostPlaces) a.places[id * mostPlaces + place] = (int)i;
    if (place == mostPlaces) a.frequent[1 + atomicAdd(a.frequent, 1)] = (int)id;
  }
}

// addRow adds n elements of a row of dy.
template <class From, int n> __device__ __forceinline__ void addRow(const EmbeddingArguments& a, int64_t row, int column, float (&sum)[n]) {
  float x[n];
  load<n>((const From*)a.from + a.lines.at(0, row) + column, x);
#pragma unroll
  for (int i = 0; i < n; i++) sum[i] += x[i];
}

// chunks is how many times 32·n columns a warp adds up together.
constexpr int chunks = 3;

// rare gives a warp a part of one of the table's rows that few positions look up, or none: it puts
// them into ascending order and adds.
template <class To, class From, int n> __device__ __forceinline__ void rare(const EmbeddingArguments& a, int64_t id, int part, int parts) {
  const int found = a.found[id], lane = threadIdx.x % 32;
  if (found > mostPlaces) return;
  const int mine = lane < found ? a.places[id * mostPlaces + lane] : INT32_MAX;
  int rank = 0;
  for (int other = 0; other < found; other++) rank += __shfl_sync(~0u, mine, other) < mine;
  int sorted = 0;
  for (int i = 0; i < found; i++) {
    const int from = __ffs(__ballot_sync(~0u, lane < found && rank == i)) - 1;
    const int position = __shfl_sync(~0u, mine, from);
    if (lane == i) sorted = position;
  }
  constexpr int width = 32 * n * chunks;
  for (int first = part * width; first < a.lines.length; first += parts * width) {
    const auto column = [&](int chunk) { return first + (chunk * 32 + lane) * n; };
    float sum[chunks][n] = {};
#pragma unroll 4
    for (int i = 0; i < found; i++) {
      const int position = __shfl_sync(~0u, sorted, i);
#pragma unroll
      for (int c = 0; c < chunks; c++)
        if (column(c) < a.lines.length) addRow<From, n>(a, position, column(c), sum[c]);
    }
#pragma unroll
    for (int c = 0; c < chunks; c++)
      if (column(c) < a.lines.length) store<n>((To*)a.to + id * a.step + column(c), sum[c]);
  }
}

// frequentRow gives a block one of the table's rows and 32·n columns of it. Each of its warps goes
// through its share of all ids, in order, and adds where it finds the row, several at a time; then
// the warps' sums are added in order.
template <class To, class From, int n> __device__ __forceinline__ void frequentRow(const EmbeddingArguments& a, int64_t id, int first) {
  // ids that a warp looks at before it adds, and rows that it loads at once
  constexpr int scanned = 256, ahead = 8;
  __shared__ float shared[warps][32 * n];
  __shared__ uint8_t lists[warps][scanned];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = first + lane * n;
  const bool there = column < a.lines.length;
  const int64_t perWarp = (a.lines.count + warps - 1) / warps, from = warp * perWarp;
  const int64_t to = from + perWarp < a.lines.count ? from + perWarp : a.lines.count;
  uint8_t* list = lists[warp];
  float sum[n] = {};
  for (int64_t at = from; at < to; at += scanned) {
    bool match[scanned / 32];
#pragma unroll
    for (int k = 0; k < scanned / 32; k++) {
      const int64_t i = at + k * 32 + lane;
      match[k] = i < to && a.ids[a.lines.at(1, i)] == id;
    }
    int count = 0;
#pragma unroll
    for (int k = 0; k < scanned / 32; k++) {
      const unsigned matches = __ballot_sync(~0u, match[k]);
      if (match[k]) list[count + __popc(matches & ((1u << lane) - 1))] = (uint8_t)(k * 32 + lane);
      count += __popc(matches);
    }
    __syncwarp();
    for (int i = 0; there && i < count; i += ahead) {
      float x[ahead][n];
#pragma unroll
      for (int k = 0; k < ahead; k++) {
        if (i + k < count) load<n>((const From*)a.from + a.lines.at(0, at + list[i + k]) + column, x[k]);
      }
#pragma unroll
      for (int k = 0; k < ahead; k++) {
#pragma unroll
        for (int c = 0; c < n; c++) sum[c] += i + k < count ? x[k][c] : 0;
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < n; i++) shared[warp][i * 32 + lane] = sum[i];
  __syncthreads();
  for (int i = warp; i < n; i += warps) {
    float total = 0;
    for (int w = 0; w < warps; w++) total += shared[w][i * 32 + lane];
    if (there) ((To*)a.to)[id * a.step + column + i] = fromFloat<To>(total);
  }
  __syncthreads();
}

// backward gives the first blocks what many positions look up, so that it is begun first, and
// `parts` warps of the others a row.
template <class To, class From, int n> __device__ __forceinline__ void backward(const EmbeddingArguments& a, int frequentBlocks, int parts) {
  if (blockIdx.x >= frequentBlocks) {
    const uint32_t unit = (blockIdx.x - frequentBlocks) * warps + threadIdx.x / 32, id = unit / parts;
    if (id < a.vocabulary) rare<To, From, n>(a, id, unit - id * parts, parts);
    return;
  }
  const int perRow = (a.lines.length + 32 * n - 1) / (32 * n);
  const int64_t count = (int64_t)a.frequent[0] * perRow;
  for (int64_t i = blockIdx.x; i < count; i += frequentBlocks) {
    frequentRow<To, From, n>(a, a.frequent[1 + i / perRow], (int)(i % perRow) * 32 * n);
  }
}

// EmbeddingBackward is the host's embeddingBackward in embedding.go.
struct EmbeddingBackward {
  EmbeddingArguments arguments;
  int32_t frequentBlocks, parts;
};

extern "C" __global__ void embedding_forward(const __grid_constant__ EmbeddingArguments a) {
  a.width > 1 ? forward<ROWS, TABLE, most>(a) : forward<ROWS, TABLE, 1>(a);
}

extern "C" __global__ void __launch_bounds__(32 * warps) embedding_backward(const __grid_constant__ EmbeddingBackward b) {
  b.arguments.width > 1 ? backward<TABLE, ROWS, most>(b.arguments, b.frequentBlocks, b.parts)
                        : backward<TABLE, ROWS, 1>(b.arguments, b.frequentBlocks, b.parts);
}
