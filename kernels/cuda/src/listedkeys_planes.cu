// What kernels make of lists of keys.
//
// listed_planes makes a bias for full attention: 0 where a list has the key, −∞ elsewhere. Full
// attention computes with all pairs, which pays where lists have a good part of the keys.
//
// It does not give what the lists ask for where a list has a key twice, or where a pair that no
// list has gives a NaN: a.gather is then set to 1, and the kernels that gather keys compute the
// problem after it.
#include "arguments.cuh"
#include "elements.cuh"

// ListedPlanes is the host's listedPlanes in listedkeys_dense.go.
struct ListedPlanes {
  Indices lists;
  Fault fault;
  // of batch items, key heads and queries, in elements: 0 along an axis that is shared
  int64_t strides[3];
  uint16_t* bias;              // (batch items, heads, rows, stride), a part of the problem
  int32_t* gather;
  int32_t first[3];            // of the part: its batch item, key head and query
  int32_t heads, rows;         // of the part
  int32_t listHeads, queries;  // of all lists
  int32_t keys, n, stride;     // n is the length of a list
  int32_t hidden;              // −∞ in the bias's type
  int32_t reserved;
};

// A block has a list. It marks the keys in bits, so many keys at a time.
constexpr int THREADS = 256, PIECE = 1 << 17;

extern "C" __global__ void __launch_bounds__(THREADS) listed_planes(const __grid_constant__ ListedPlanes a) {
  __shared__ uint32_t bits[PIECE / 32];
  const int batch = a.first[0] + blockIdx.y / a.heads, head = a.first[1] + blockIdx.y % a.heads, query = a.first[2] + blockIdx.x;
  const int64_t list = batch * a.strides[0] + head * a.strides[1] + query * a.strides[2];
  const int64_t plane = (a.strides[0] ? (int64_t)batch : 0) * a.listHeads + (a.strides[1] ? head : 0);
  uint16_t* const to = a.bias + ((int64_t)blockIdx.y * a.rows + blockIdx.x) * a.stride;
  const uint32_t hidden = a.hidden;
  bool twice = false;
  for (int first = 0; first < a.keys; first += PIECE) {
    const int count = min(PIECE, a.keys - first);
    for (int i = threadIdx.x; i < (count + 31) / 32; i += THREADS) bits[i] = 0;
    __syncthreads();
    for (int at = threadIdx.x; at < a.n; at += THREADS) {
      const int64_t key = a.lists[list + at];
      if (key >= first && key < first + count) {
        const uint32_t bit = 1u << (key - first) % 32;
        twice |= (atomicOr(&bits[(key - first) / 32], bit) & bit) != 0;
      } else if (first == 0 && (key < -1 || key >= a.keys)) {
        a.fault.report((plane * a.queries + query) * a.n + at, key, a.keys);
      }
    }
    __syncthreads();
    for (int i = 8 * threadIdx.x; i < count; i += 8 * THREADS) {
      const uint32_t shown = bits[i / 32] >> i % 32;
      const auto two = [=](int j) { return (shown >> j & 1 ? 0 : hidden) | (shown >> (j + 1) & 1 ? 0 : hidden << 16); };
      *(uint4*)(to + first + i) = make_uint4(two(0), two(2), two(4), two(6));
    }
    __syncthreads();
  }
  if (twice) *a.gather = 1;
}

// ListedNumbers is the host's listedNumbers: rows to look through.
struct ListedNumbers {
  Rows rows;
  int32_t heads, length, size;
  int32_t count;   // of pieces
  int32_t each;    // elements of a piece: 8 that 16 bytes hold, or 1
  uint32_t large;  // the bits of the least magnitude that is too large
  int32_t wide;    // float32 and not 16 bits
  int32_t reserved;
};

// ListedExtremes is the host's listedExtremes.
struct ListedExtremes {
  ListedNumbers list[5];
  int32_t* gather;
};

// listed_extremes has a row of blocks for each tensor. Numbers of such magnitudes may give a NaN in
// pairs that no list has, and so may what is not finite.
extern "C" __global__ void __launch_bounds__(THREADS) listed_extremes(const __grid_constant__ ListedExtremes a) {
  const ListedNumbers& t = a.list[blockIdx.y];
  const int pieces = t.size / t.each;
  bool found = false;
  for (int64_t i = blockIdx.x * THREADS + threadIdx.x; i < t.count; i += gridDim.x * THREADS) {
    const int at = (int)i, row = at / pieces, plane = row / t.length;
    const int64_t place = plane / t.heads * t.rows.batch + plane % t.heads * t.rows.head + row % t.length * t.rows.row + at % pieces * t.each;
    if (t.wide) {
      found |= (((const uint32_t*)t.rows.data)[place] & 0x7fffffff) >= t.large;
    } else if (t.each == 1) {
      found |= (((const uint16_t*)t.rows.data)[place] & 0x7fff) >= t.large;
    } else {
      const uint4 x = *(const uint4*)((const uint16_t*)t.rows.data + place);
      for (uint32_t two : {x.x, x.y, x.z, x.w}) found |= (two & 0x7fff) >= t.large || (two >> 16 & 0x7fff) >= t.large;
    }
  }
  if (__any_sync(~0u, found) && threadIdx.x % 32 == 0) *a.gather = 1;
}

// ListedCompact is the host's listedCompact in listedkeys_rows.go.
struct ListedCompact {
  Indices lists;
  Fault fault;
  int64_t listBatch, listHead, listRow;  // strides in elements
  int64_t count;                         // of lists
  int32_t* to;                           // (lists, n)
  int32_t* lengths;                      // (lists)
  int32_t heads, queries, keys, n;       // of all lists
};

// listed_compact gives a list a warp, which leaves out what is no key.
extern "C" __global__ void __launch_bounds__(THREADS) listed_compact(const __grid_constant__ ListedCompact a) {
  const int64_t list = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32, plane = list / a.queries;
  const int lane = threadIdx.x % 32;
  if (list >= a.count) return;
  const int64_t from = plane / a.heads * a.listBatch + plane % a.heads * a.listHead + list % a.queries * a.listRow;
  int length = 0;
  for (int first = 0; first < a.n; first += 32) {
    const int at = first + lane;
    const int64_t key = at < a.n ? a.lists[from + at] : -1;
    const bool there = key >= 0 && key < a.keys;
    if (!there && key != -1) a.fault.report(list * a.n + at, key, a.keys);
    const uint32_t all = __ballot_sync(~0u, there);
    if (there) a.to[list * a.n + length + __popc(all & (1u << lane) - 1)] = (int32_t)key;
    length += __popc(all);
  }
  if (lane == 0) a.lengths[list] = length;
}
