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

// EmbeddingBackward is the host's embeddingBackward in embedding.go.
struct EmbeddingBackward {
  EmbeddingArguments arguments;
  int32_t* list;    // the ids of all positions, -1 where it is none
  int32_t* order;   // the positions of frequent rows, ascending, one row's behind another's
  int32_t* starts;  // where in order those of each frequent row are
  int32_t* rows;    // the rows that are looked up, in whatever order
  // of rows, of positions in order, and of what was taken by frequentRows, clearRows and rare; zero at first
  int32_t* counts;
  int32_t adds;  // whether sums are added to what the gradient holds
};

// mostPlaces is how many positions are noted of a row, a warp's lanes.
constexpr int mostPlaces = 32;

// warps is how many warps a block of the backward kernels has, and `most` how many elements are
// moved at once.
constexpr int warps = 16, most = 16 / (sizeof(TABLE) > sizeof(ROWS) ? sizeof(TABLE) : sizeof(ROWS));

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
// order, which rows have any, and which have more.
extern "C" __global__ void embedding_find(const __grid_constant__ EmbeddingBackward b) {
  const EmbeddingArguments& a = b.arguments;
  const int lane = threadIdx.x % 32;
  for (int64_t first = blockIdx.x * (int64_t)blockDim.x; first < a.lines.count; first += (int64_t)gridDim.x * blockDim.x) {
    const int64_t i = first + threadIdx.x;
    int64_t id = 0;
    int place = -1;
    if (i < a.lines.count) {
      id = a.ids[a.lines.at(1, i)];
      if (id < 0 || id >= a.vocabulary) {
        a.fault.report(i, id, a.vocabulary);
      } else {
        place = atomicAdd(&a.found[id], 1);
        if (place < mostPlaces) a.places[id * mostPlaces + place] = (int)i;
        if (place == mostPlaces) a.frequent[1 + atomicAdd(a.frequent, 1)] = (int)id;
      }
      b.list[i] = place < 0 ? -1 : (int)id;
    }
    const unsigned some = __ballot_sync(~0u, place == 0);
    int at = 0;
    if (lane == 0 && some) at = atomicAdd(b.counts, __popc(some));
    at = __shfl_sync(~0u, at, 0);
    if (place == 0) b.rows[at + __popc(some & ((1u << lane) - 1))] = (int)id;
  }
}

// orderRow gives a block a frequent row, whose positions it writes into order. Each warp looks
// through its share of a tile of ids.
__device__ __forceinline__ void orderRow(const EmbeddingBackward& b, int k) {
  const EmbeddingArguments& a = b.arguments;
  constexpr int share = 32, tile = 32 * warps * share;  // ids of a thread, and of a block
  __shared__ int counts[2][warps], start;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, id = a.frequent[1 + k];
  if (threadIdx.x == 0) b.starts[k] = start = atomicAdd(b.counts + 1, a.found[id]);
  int32_t* to = nullptr;
  int turn = 0;
  for (int64_t first = 0; first < a.lines.count; first += tile, turn ^= 1) {
    const int64_t mine = first + warp * 32 * share + lane;
    unsigned match = 0;
#pragma unroll
    for (int j = 0; j < share; j++) match |= (unsigned)(b.list[min(mine + 32 * j, a.lines.count - 1)] == id) << j;
    const int64_t there = (a.lines.count - mine + 31) / 32;  // of the thread's share
    if (there < share) match &= there > 0 ? (1u << there) - 1 : 0;
    const int count = sumOfWarp(__popc(match));
    if (lane == 0) counts[turn][warp] = count;
    __syncthreads();
    if (first == 0) to = b.order + start;
    int before = 0, all = 0;  // of this warp, and of the block
#pragma unroll
    for (int w = 0; w < warps; w++) {
      before += w < warp ? counts[turn][w] : 0;
      all += counts[turn][w];
    }
#pragma unroll 1
    for (int j = 0; count > 0 && j < share; j++) {
      const bool is = match >> j & 1;
      const unsigned matches = __ballot_sync(~0u, is);
      if (is) to[before + __popc(matches & ((1u << lane) - 1))] = (int)(mine + 32 * j);
      before += __popc(matches);
    }
    to += all;
  }
  __syncthreads();
}

// rareChunks is how many pieces of a row's columns a warp adds at once.
constexpr int rareChunks = 3;

// rareRow gives a warp one of the table's rows that few positions look up, and 32·n·rareChunks
// columns of it: it puts the positions into ascending order and adds. Several are loaded at once, the
// last one again for those behind it: a load that depends on a condition would wait until its row is
// added.
template <class To, class From, int n> __device__ __forceinline__ void rareRow(const EmbeddingBackward& b, int64_t id, int first) {
  constexpr int ahead = 4;
  const EmbeddingArguments& a = b.arguments;
  const int lane = threadIdx.x % 32, found = a.found[id], noted = a.places[id * mostPlaces + lane];
  if (found > mostPlaces) return;
  const int mine = lane < found ? noted : INT32_MAX;
  int rank = 0, sorted = 0;
  for (int other = 0; other < found; other++) rank += __shfl_sync(~0u, mine, other) < mine;
  for (int i = 0; i < found; i++) {
    const int from = __ffs(__ballot_sync(~0u, lane < found && rank == i)) - 1;
    const int position = __shfl_sync(~0u, mine, from);
    if (lane == i) sorted = position;
  }
  const int64_t row = lane < found ? a.lines.at(0, sorted) : 0;
  const auto column = [&](int chunk) { return first + (chunk * 32 + lane) * n; };
  float sum[rareChunks][n] = {};
  for (int i = 0; i < found; i += ahead) {
    Piece<From, n> x[ahead][rareChunks];
#pragma unroll
    for (int k = 0; k < ahead; k++) {
      const From* from = (const From*)a.from + __shfl_sync(~0u, row, min(i + k, found - 1));
#pragma unroll
      for (int c = 0; c < rareChunks; c++) x[k][c] = *(const Piece<From, n>*)(from + min(column(c), a.lines.length - n));
    }
#pragma unroll
    for (int k = 0; k < ahead; k++)
#pragma unroll
      for (int c = 0; c < rareChunks; c++)
#pragma unroll
        for (int e = 0; e < n; e++) sum[c][e] += i + k < found ? asFloat(x[k][c].x[e]) : 0;
  }
#pragma unroll
  for (int c = 0; c < rareChunks; c++) {
    if (column(c) >= a.lines.length) continue;
    To* to = (To*)a.to + id * a.step + column(c);
    if (b.adds) {
      const Piece<To, n> before = *(const Piece<To, n>*)to;
#pragma unroll
      for (int e = 0; e < n; e++) sum[c][e] += asFloat(before.x[e]);
    }
    store<n>(to, sum[c]);
  }
}

// frequentRow gives a block a frequent row and 32·n columns of it. Each of its warps adds its share
// of the positions, as rareRow does; then the warps' sums are added in order.
template <class To, class From, int n> __device__ __forceinline__ void frequentRow(const EmbeddingBackward& b, int k, int first) {
  constexpr int ahead = 12;
  __shared__ float shared[warps][32 * n];
  const EmbeddingArguments& a = b.arguments;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = first + lane * n, inside = min(column, a.lines.length - n);
  const int64_t id = a.frequent[1 + k];
  const int found = a.found[id], share = (found + warps - 1) / warps, end = min(found, (warp + 1) * share);
  const int32_t* order = b.order + b.starts[k];
  float sum[n] = {};
  for (int at = warp * share; at < end; at += 32) {
    const int count = min(32, end - at);
    const int64_t row = lane < count ? a.lines.at(0, order[at + lane]) : 0;
    for (int i = 0; i < count; i += ahead) {
      Piece<From, n> x[ahead];
#pragma unroll
      for (int j = 0; j < ahead; j++)
        x[j] = *(const Piece<From, n>*)((const From*)a.from + __shfl_sync(~0u, row, min(i + j, count - 1)) + inside);
#pragma unroll
      for (int j = 0; j < ahead; j++)
#pragma unroll
        for (int e = 0; e < n; e++) sum[e] += i + j < count ? asFloat(x[j].x[e]) : 0;
    }
  }
#pragma unroll
  for (int i = 0; i < n; i++) shared[warp][i * 32 + lane] = sum[i];
  __syncthreads();
  for (int i = warp; i < n; i += warps) {
    float total = 0;
    for (int w = 0; w < warps; w++) total += shared[w][i * 32 + lane];
    if (column >= a.lines.length) continue;
    To* to = (To*)a.to + id * a.step + column + i;
    *to = fromFloat<To>(b.adds ? asFloat(*to) + total : total);
  }
  __syncthreads();
}

// frequentRows takes parts of frequent rows until none is left.
template <class To, class From, int n> __device__ __forceinline__ void frequentRows(const EmbeddingBackward& b) {
  const int perRow = (b.arguments.lines.length + 32 * n - 1) / (32 * n), parts = b.arguments.frequent[0] * perRow;
  __shared__ int next;
  while (true) {
    if (threadIdx.x == 0) next = atomicAdd(b.counts + 2, 1);
    __syncthreads();
    const int part = next;
    if (part >= parts) return;
    frequentRow<To, From, n>(b, part / perRow, part % perRow * 32 * n);
  }
}

// clearRows has each warp take 32 rows of the table, and clear those that nothing looks up, until
// none are left.
template <class To, int n> __device__ __forceinline__ void clearRows(const EmbeddingBackward& b) {
  const EmbeddingArguments& a = b.arguments;
  const int lane = threadIdx.x % 32, lots = (a.vocabulary - 1) / 32 + 1;
  Piece<To, n> zero;
#pragma unroll
  for (int i = 0; i < n; i++) zero.x[i] = fromFloat<To>(0);
  while (true) {
    int lot = 0;
    if (lane == 0) lot = atomicAdd(b.counts + 3, 1);
    lot = __shfl_sync(~0u, lot, 0);
    if (lot >= lots) return;
    const int64_t first = lot * (int64_t)32;
    for (unsigned left = __ballot_sync(~0u, first + lane < a.vocabulary && a.found[first + lane] == 0); left; left &= left - 1) {
      Piece<To, n>* to = (Piece<To, n>*)((To*)a.to + (first + __ffs(left) - 1) * a.step);
      for (int i = lane; i < a.lines.length / n; i += 32) to[i] = zero;
    }
  }
}

// rare puts the positions of frequent rows in order. Warps that have none, or are done, take parts of
// the rows that few look up until none is left.
template <class To, class From, int n> __device__ __forceinline__ void rare(const EmbeddingBackward& b) {
  for (int k = blockIdx.x; k < b.arguments.frequent[0]; k += gridDim.x) orderRow(b, k);
  constexpr int width = 32 * n * rareChunks;
  const int perRow = (b.arguments.lines.length + width - 1) / width, parts = b.counts[0] * perRow;
  while (true) {
    int part = 0;
    if (threadIdx.x % 32 == 0) part = atomicAdd(b.counts + 4, 1);
    part = __shfl_sync(~0u, part, 0);
    if (part >= parts) return;
    rareRow<To, From, n>(b, b.rows[part / perRow], part % perRow * width);
  }
}

// frequent adds up frequent rows, which is to wait for memory, while every second block clears rows,
// which is to keep it busy; none does where sums are added to what rows hold.
template <class To, class From, int n> __device__ __forceinline__ void frequent(const EmbeddingBackward& b) {
  if (b.adds || blockIdx.x % 2 == 0) frequentRows<To, From, n>(b);
  if (b.adds) return;
  clearRows<To, n>(b);
  if (blockIdx.x % 2 != 0) frequentRows<To, From, n>(b);
}

extern "C" __global__ void embedding_forward(const __grid_constant__ EmbeddingArguments a) {
  a.width > 1 ? forward<ROWS, TABLE, most>(a) : forward<ROWS, TABLE, 1>(a);
}

extern "C" __global__ void __launch_bounds__(32 * warps, 2) embedding_rare(const __grid_constant__ EmbeddingBackward b) {
  b.arguments.width > 1 ? rare<TABLE, ROWS, most>(b) : rare<TABLE, ROWS, 1>(b);
}

extern "C" __global__ void __launch_bounds__(32 * warps, 2) embedding_frequent(const __grid_constant__ EmbeddingBackward b) {
  b.arguments.width > 1 ? frequent<TABLE, ROWS, most>(b) : frequent<TABLE, ROWS, 1>(b);
}
