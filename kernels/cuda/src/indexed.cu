// The largest elements of rows, and elements that are taken from rows or added to them by indices.
// kernels/indexed.go has the equations.
#include "elements.cuh"

// IndexedArguments is the host's indexedArguments in indexed.go.
struct IndexedArguments {
  Lines lines;    // of what is written; of the ids; of x
  Indices ids;    // top_k writes them
  Fault fault;
  const void* x;
  void* y;        // top_k's values
  float* sums;    // scatter's, where y is of 16 bits: (rows, n)
  int32_t n, k;   // elements of a row, and how many of them ids name
  int32_t group;  // threads that go through a row together: a power of two up to a warp, or a block
  // rows of x of top_k, and of y of scatter, start at multiples of 16 bytes and have a whole number of them
  int32_t aligned;
};

// Found is an element of a row: a key that orders as the elements do, with NaN above all numbers,
// and the index.
struct Found {
  int32_t key, index;

  // before tells whether it comes before another in the order of the largest.
  __device__ __forceinline__ bool before(const Found& other) const {
    return key > other.key || (key == other.key && index < other.index);
  }
};

__device__ __forceinline__ int32_t keyOf(float x) {
  const int32_t bits = __float_as_int(x + 0.0f);  // −0 is 0
  return x != x ? INT32_MAX : bits ^ (bits >> 31 & INT32_MAX);
}

// first is what comes first of what a group's threads have found.
__device__ __forceinline__ Found first(Found f, int group) {
  for (int other = min(group, 32) / 2; other > 0; other /= 2) {
    const Found theirs = {__shfl_xor_sync(~0u, f.key, other), __shfl_xor_sync(~0u, f.index, other)};
    if (theirs.before(f)) f = theirs;
  }
  if (group <= 32) return f;
  __shared__ Found shared[32];
  __syncthreads();  // the round before has read it
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = f;
  __syncthreads();
  for (int warp = 0; warp < group / 32; warp++)
    if (shared[warp].before(f)) f = shared[warp];
  return f;
}

// write sets element j of a row's results to element `index` of x.
template <class T> __device__ __forceinline__ void write(const IndexedArguments& a, int64_t row, int j, const T* x, int index) {
  ((T*)a.y)[a.lines.at(0, row) + j] = x[index];
  const int64_t id = a.lines.at(1, row) + j;
  if (a.ids.wide) ((int64_t*)a.ids.data)[id] = index;
  else ((int32_t*)a.ids.data)[id] = index;
}

// topKInRounds finds one element a round: the first behind that of the round before. A thread loads
// n elements at once.
template <class T, int n> __device__ __noinline__ void topKInRounds(const IndexedArguments& a) {
  const int lane = threadIdx.x % a.group;
  const int64_t own = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / a.group;
  const int64_t row = own < a.lines.count ? own : a.lines.count - 1;  // a warp's threads stay together
  const T* x = (const T*)a.x + a.lines.at(2, row);
  Found last = {INT32_MAX, -1};
  for (int j = 0; j < a.k; j++) {
    Found best = {INT32_MIN, INT32_MAX};
#pragma unroll 4
    for (int at = lane * n; at < a.n; at += a.group * n) {
      float v[n];
      load<n>(x + at, v);
#pragma unroll
      for (int i = 0; i < n; i++) {
        const Found f = {keyOf(v[i]), at + i};
        if (f.key > best.key && last.before(f)) best = f;  // those that come later are not before it
      }
    }
    last = first(best, a.group);
    if (lane == 0 && own == row) write(a, row, j, x, last.index);
  }
}

// topKOnce takes up to mostOnce elements, and has room for some of a row's that may be among them.
constexpr int mostOnce = 64, room = 256, rowsOfBlock = 8;

__device__ __forceinline__ float greater(float a, float b) {  // NaN if one is
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}

// Greatest is the greatest of some elements with even numbers, and of some with odd ones.
template <class T, int n> struct Greatest {
  float even = -INFINITY, odd = -INFINITY;

  __device__ __forceinline__ void take(const Piece<T, n>& p, int first) {
#pragma unroll
    for (int i = 0; i < n; i++) {
      float& most = (first + i) % 2 ? odd : even;
      most = greater(most, asFloat(p.x[i]));
    }
  }
  __device__ __forceinline__ int32_t keyOfEven() const { return keyOf(even); }
  __device__ __forceinline__ int32_t keyOfOdd() const { return keyOf(odd); }
  __device__ __forceinline__ int32_t key() const { return keyOf(greater(even, odd)); }
};

__device__ __forceinline__ uint32_t greater(uint32_t a, uint32_t b, __nv_bfloat16) {
  uint32_t most;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}

__device__ __forceinline__ uint32_t greater(uint32_t a, uint32_t b, __half) {
  uint32_t most;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}

// Of elements of 16 bits, two are compared at once.
template <class T> struct Greatest<T, 8> {
  uint32_t most = std::is_same<T, __half>::value ? 0xfc00fc00 : 0xff80ff80;  // -infinity, twice

  __device__ __forceinline__ void take(const Piece<T, 8>& p, int) {
    const uint32_t* pairs = (const uint32_t*)&p;
#pragma unroll
    for (int i = 0; i < 4; i++) most = greater(most, pairs[i], T());
  }
  __device__ __forceinline__ float at(int i) const { return asFloat(((const T*)&most)[i]); }
  __device__ __forceinline__ int32_t keyOfEven() const { return keyOf(at(0)); }
  __device__ __forceinline__ int32_t keyOfOdd() const { return keyOf(at(1)); }
  __device__ __forceinline__ int32_t key() const { return keyOf(greater(at(0), at(1))); }
};

// Part is up to `size` neighbouring elements of a row in the registers of a warp, of which a lane has
// n side by side. Bit b of a mask is element b of a lane's.
template <class T, int n> struct Part {
  static constexpr int pieces = n == 1 ? 8 : 32 / n, size = pieces * 32 * n;
  Piece<T, n> x[pieces];
  int first, length;  // of the part

  __device__ __forceinline__ Part(const T* row, int first, int length) : first(first), length(length) {
#pragma unroll
    for (int p = 0; p < pieces; p++) {
      if (has(p)) x[p] = *(const Piece<T, n>*)(row + first + at(p));
    }
  }

  __device__ __forceinline__ int at(int piece) const { return (piece * 32 + (int)threadIdx.x % 32) * n; }
  __device__ __forceinline__ bool has(int piece) const { return at(piece) < length; }
  __device__ __forceinline__ int index(int bit) const { return first + at(bit / n) + bit % n; }

  __device__ __forceinline__ Greatest<T, n> greatest() const {
    Greatest<T, n> most;
#pragma unroll
    for (int p = 0; p < pieces; p++) {
      if (has(p)) most.take(x[p], p * n);
    }
    return most;
  }

  template <class Test> __device__ __forceinline__ uint32_t mask(Test test) const {
    uint32_t mask = 0;
#pragma unroll
    for (int p = 0; p < pieces; p++) {
      if (!has(p)) continue;
#pragma unroll
      for (int i = 0; i < n; i++) mask |= test(asFloat(x[p].x[i])) ? 1u << (p * n + i) : 0;
    }
    return mask;
  }
};

// sorted puts keys of a warp into order, the greatest in lane 0.
__device__ __forceinline__ int32_t sorted(int32_t key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int size = 2; size <= 32; size *= 2) {
#pragma unroll
    for (int other = size / 2; other > 0; other /= 2) {
      const int32_t theirs = __shfl_xor_sync(~0u, key, other);
      key = ((lane & other) == 0) == ((lane & size) == 0) ? max(key, theirs) : min(key, theirs);
    }
  }
  return key;
}

// Least is a number that at least k elements of a part are not below, if it has as many. Elements
// that are below it are none of the k largest.
struct Least {
  float x;

  __device__ __forceinline__ Least(int32_t key) : x(key == INT32_MAX ? NAN : __int_as_float(key ^ (key >> 31 & INT32_MAX))) {}

  // notBelow is which elements are not below it, and above which are above.
  template <class T, int n> __device__ __forceinline__ uint32_t notBelow(const Part<T, n>& part) const {
    if (x != x) return part.mask([](float y) { return y != y; });
    return part.mask([&](float y) { return !(y < x); });
  }
  template <class T, int n> __device__ __forceinline__ uint32_t above(const Part<T, n>& part) const {
    if (x != x) return 0;
    return part.mask([&](float y) { return !(y <= x); });
  }
};

// leastOf takes the greatest of each lane, of which the k-th is such a number; or, for more elements
// than a warp has lanes, two of each.
template <class T, int n> __device__ __forceinline__ Least leastOf(const Part<T, n>& part, int k) {
  const Greatest<T, n> most = part.greatest();
  if (k <= 32) return Least(__shfl_sync(~0u, sorted(most.key()), k - 1));
  return Least(__shfl_sync(~0u, sorted(min(most.keyOfEven(), most.keyOfOdd())), (k - 1) / 2));
}

// push notes the indices of elements that masks name behind count others, in whatever order.
template <class T, int n> __device__ __forceinline__ int push(const Part<T, n>& part, uint32_t mask, Found* list, int count) {
  const unsigned before = (1u << threadIdx.x % 32) - 1;
  for (unsigned some; (some = __ballot_sync(~0u, mask != 0)) != 0; count += __popc(some), mask &= mask - 1) {
    if (mask != 0) list[count + __popc(some & before)].index = part.index(__ffs(mask) - 1);
  }
  return count;
}

// pushFirst notes the lowest indices, up to a number of them.
template <class T, int n> __device__ __forceinline__ int pushFirst(const Part<T, n>& part, uint32_t mask, Found* list, int count, int wanted) {
  const int lane = threadIdx.x % 32;
  for (int p = 0; p < part.pieces && wanted > 0; p++) {
    uint32_t mine = mask >> p * n & ((1u << n) - 1);
    int behind = __popc(mine);  // mine and those of the lanes before
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      const int theirs = __shfl_up_sync(~0u, behind, other);
      if (lane >= other) behind += theirs;
    }
    for (int place = behind - __popc(mine); mine != 0 && place < wanted; place++, mine &= mine - 1) {
      list[count + place].index = part.index(p * n + __ffs(mine) - 1);
    }
    const int all = min(wanted, __shfl_sync(~0u, behind, 31));
    count += all, wanted -= all;
  }
  return count;
}

// topOne gives a row a warp, which goes through it once.
template <class T, int n> __device__ __forceinline__ void topOne(const IndexedArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return;
  const T* x = (const T*)a.x + a.lines.at(2, row);
  const int lane = threadIdx.x % 32;
  Found best = {INT32_MIN, 0};
  for (int first = 0; first < a.n; first += Part<T, n>::size) {
    const Part<T, n> part(x, first, min(Part<T, n>::size, a.n - first));
    const int32_t own = part.greatest().key(), key = __reduce_max_sync(~0u, own);
    if (key <= best.key) continue;
    best.key = key;
    const unsigned lanes = __ballot_sync(~0u, own == key);
    if (lanes & (lanes - 1)) {
      const uint32_t mask = Least(key).notBelow(part);
      best.index = (int)__reduce_min_sync(~0u, mask != 0 ? part.index(__ffs(mask) - 1) : INT32_MAX);
      continue;
    }
    // One lane has it: the others look at that lane's elements with it, each at one.
    const auto at = [&](int bit) { return (bit / n * 32 + __ffs(lanes) - 1) * n + bit % n; };
    const bool here = lane < part.pieces * n && at(lane) < part.length && keyOf(asFloat(x[first + at(lane)])) == key;
    best.index = first + at(__ffs(__ballot_sync(~0u, here)) - 1);
  }
  if (lane == 0) write(a, row, 0, x, best.index);
}

// topKOnce gives a row a warp, which goes through it once. Of each part it notes the elements that
// can be among the k largest, which mostly are not many more than k. The place of one is the number
// of those that come before it. Where there is no room, the row takes as many rounds as k.
template <class T, int n> __device__ __noinline__ void topKOnce(const IndexedArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return;
  __shared__ Found shared[rowsOfBlock][room + mostOnce];
  Found *list = shared[threadIdx.x / 32], *best = list + room;
  const int lane = threadIdx.x % 32;
  const T* x = (const T*)a.x + a.lines.at(2, row);
  int have = 0;  // of the best
  for (int first = 0; first < a.n; first += Part<T, n>::size) {
    const Part<T, n> part(x, first, min(Part<T, n>::size, a.n - first));
    const Least least = leastOf(part, a.k);
    uint32_t mask = least.notBelow(part);
    if (have == a.k) {
      const int32_t last = best[a.k - 1].key;
      mask &= part.mask([&](float y) { return keyOf(y) > last; });
    }
    for (int j = lane; j < have; j += 32) list[j] = best[j];
    if (have + (int)__reduce_add_sync(~0u, __popc(mask)) <= room) {
      have = push(part, mask, list, have);
    } else {
      const uint32_t more = mask & least.above(part);
      const int many = __reduce_add_sync(~0u, __popc(more));
      if (have + max(a.k, many) > room) return topKInRounds<T, n>(a);
      have = push(part, more, list, have);
      have = pushFirst(part, mask & ~more, list, have, a.k - many);
    }
    __syncwarp();
    for (int i = lane; i < have; i += 32) list[i].key = keyOf(asFloat(x[list[i].index]));
    __syncwarp();
    for (int i = lane; i < have; i += 32) {
      const Found f = list[i];
      int place = 0;
#pragma unroll 4
      for (int other = 0; other < have; other++) place += list[other].before(f);
      if (place < a.k) best[place] = f;
    }
    __syncwarp();
    have = min(have, a.k);
  }
  for (int j = lane; j < a.k; j += 32) write(a, row, j, x, best[j].index);
}

// Keys are up to `size` neighbouring elements of a row, of 16 bits each, in the registers of a warp:
// two a word, as integers of 15 bits that order as the elements do, with NaN above all numbers. Of
// elements that differ in the last bit alone the keys may be equal. Above each stands a bit that a
// difference from a bound takes away where the key is below the bound.
template <class T> struct Keys {
  static constexpr int n = 8, pieces = 4, words = pieces * n / 2, size = pieces * 32 * n;
  alignas(16) uint32_t x[words];
  int used;  // pieces

  // ordered is two elements as integers of 16 bits.
  static __device__ __forceinline__ uint32_t ordered(uint32_t two) {
    uint32_t same, negative;
    if constexpr (std::is_same<T, __half>::value) {  // −0 becomes 0, and any NaN 0x7fff
      asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(same) : "r"(two), "r"(0x3c003c00), "r"(0));
    } else {
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(same) : "r"(two), "r"(0x3f803f80), "r"(0));
    }
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(negative) : "r"(same));  // the sign in all bits of each
    return same ^ (negative | 0x80008000);
  }

  static __device__ __forceinline__ uint32_t key(uint32_t two) { return (ordered(two) >> 1 & 0x7fff7fff) | 0x80008000; }

  // load takes elements from an address on, and gives the greatest of the lane's even and odd ones.
  __device__ __forceinline__ uint32_t load(const T* from, int length) {
    used = (length + 32 * n - 1) / (32 * n);
    const uint4* mine = (const uint4*)from + threadIdx.x % 32;
    uint4 (&pieceOf)[pieces] = (uint4(&)[pieces])x;
#pragma unroll
    for (int p = 0; p < pieces; p++) {
      if (at(p) < length) pieceOf[p] = mine[p * 32];
    }
    Greatest<T, n> most;
#pragma unroll
    for (int p = 0; p < pieces; p++) {
      const bool there = at(p) < length;
#pragma unroll
      for (int i = p * n / 2; i < (p + 1) * n / 2; i++) {
        if (there) most.most = greater(most.most, x[i], T());
        x[i] = there ? key(x[i]) : 0x80008000;
      }
    }
    return key(most.most);
  }

  __device__ __forceinline__ int at(int piece) const { return (piece * 32 + (int)threadIdx.x % 32) * n; }

  // notBelow is which of the lane's elements have keys that are not below a bound: even ones in the
  // lower half, with the last word in the highest bit.
  __device__ __forceinline__ uint32_t notBelow(uint32_t bound) const {
    uint32_t mask = 0;
#pragma unroll
    for (int p = 0; p < pieces; p++) {
      if (p >= used) break;
#pragma unroll
      for (int i = 0; i < n / 2; i++) mask = mask >> 1 | ((x[p * n / 2 + i] - bound * 0x10001) & 0x80008000);
    }
    return mask;
  }
  __device__ __forceinline__ int index(int bit) const {
    const int word = (bit & 15) - 16 + used * n / 2;
    return at(word / (n / 2)) + word % (n / 2) * 2 + bit / 16;
  }
};

// Sorted is 32·registers numbers of a warp, the greatest first: number registers·lane + i is
// register i of a lane.
template <int registers> struct Sorted {
  uint32_t x[registers];

  // exchange puts number i before number i^distance, or behind it in every second run of `size`.
  template <int distance, int size> __device__ __forceinline__ void exchange() {
    const auto behind = [](int i) { return ((threadIdx.x % 32 * registers + i) & size) != 0; };
#pragma unroll
    for (int i = 0; i < registers; i++) {
      if constexpr (distance >= registers) {
        const int other = distance / registers;
        const bool keeps = ((threadIdx.x & other) == 0) != behind(i);
        const uint32_t theirs = __shfl_xor_sync(~0u, x[i], other);
        if ((theirs > x[i]) == keeps) x[i] = theirs;
      } else if (!(i & distance)) {
        const uint32_t most = max(x[i], x[i + distance]), least = min(x[i], x[i + distance]);
        x[i] = behind(i) ? least : most, x[i + distance] = behind(i) ? most : least;
      }
    }
  }
  // merge sorts runs of 2·distance numbers that rise and then fall, or fall and then rise.
  template <int distance, int size> __device__ __forceinline__ void merge() {
    exchange<distance, size>();
    if constexpr (distance > 1) merge<distance / 2, size>();
  }
  template <int size = 2> __device__ __forceinline__ void sort() {
    merge<size / 2, size>();
    if constexpr (size < 32 * registers) sort<size * 2>();
  }
  // take keeps the greatest of these and others.
  __device__ __forceinline__ void take(const Sorted& others) {
#pragma unroll
    for (int i = 0; i < registers; i++) x[i] = max(x[i], __shfl_sync(~0u, others.x[registers - 1 - i], 31 - threadIdx.x % 32));
    merge<16 * registers, 32 * registers>();
  }
  // number is number i of them, for an i of each lane.
  __device__ __forceinline__ uint32_t number(int i) const {
    uint32_t found = 0;
#pragma unroll
    for (int j = 0; j < registers; j++) {
      const uint32_t theirs = __shfl_sync(~0u, x[j], i / registers);
      if (i % registers == j) found = theirs;
    }
    return found;
  }
};

// topKByKeys gives a row a warp, which goes through it once, for elements of 16 bits and less than
// 32·registers of them. Of each part it looks for a bound that at least k keys are not below, and no
// more than there is room for, by halving what is between a bound that is too low and one that is too
// high. These elements are sorted as numbers of their 16 bits and their indices. It gives up where
// too many are equal.
template <class T, int registers> __device__ __forceinline__ bool topKByKeys(const IndexedArguments& a) {
  constexpr int room = 32 * registers;
  __shared__ uint16_t lists[rowsOfBlock][room];
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return true;
  uint16_t* list = lists[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  const T* x = (const T*)a.x + a.lines.at(2, row);
  Sorted<registers> best;
  for (int first = 0; first < a.n; first += Keys<T>::size) {
    Keys<T> keys;
    const uint32_t greatest = keys.load(x + first, min(keys.size, a.n - first));
    const uint32_t even = greatest & 0x7fff, odd = greatest >> 16 & 0x7fff;
    uint32_t below, above = __reduce_max_sync(~0u, max(even, odd)) + 1, bound;
    if (first == 0) {
      below = max(1, __reduce_min_sync(~0u, registers == 1 ? max(even, odd) : min(even, odd)));
      bound = (below + above) / 2;
    } else {
      bound = below = best.number(a.k - 1) >> 17;  // of the last so far
    }
    uint32_t mask;
    int count;
    while (true) {
      mask = keys.notBelow(bound);
      count = __reduce_add_sync(~0u, __popc(mask));
      if (count <= room && (count >= a.k || bound == below)) break;
      if (above - below <= 1) return false;
      if (count > room) below = bound;
      else above = bound;
      bound = (below + above) / 2;
    }
    int behind = __popc(mask);  // the lane's elements and those of the lanes before
#pragma unroll
    for (int other = 1; other < 32; other *= 2) {
      const int theirs = __shfl_up_sync(~0u, behind, other);
      if (lane >= other) behind += theirs;
    }
    for (uint16_t* to = list + behind - __popc(mask); mask != 0; mask &= mask - 1) *to++ = keys.index(__ffs(mask) - 1);
    __syncwarp();
    Sorted<registers> some;
#pragma unroll
    for (int i = 0; i < registers; i++) {
      some.x[i] = 0;
      if (i * 32 + lane < count) {
        const int index = first + list[i * 32 + lane];
        some.x[i] = keys.ordered(((const uint16_t*)x)[index]) << 16 | (0xffff - index);
      }
    }
    __syncwarp();
    some.sort();
    if (first == 0) best = some;
    else best.take(some);
  }
#pragma unroll
  for (int i = 0; i < registers; i++) {
    const int j = i * 32 + lane, index = 0xffff - (best.number(j) & 0xffff);
    if (j < a.k) write(a, row, j, x, index);
  }
  return true;
}

// topKSorted is topKByKeys, or topKOnce where that gives up.
template <class T, int registers> __device__ __forceinline__ void topKSorted(const IndexedArguments& a) {
  if (topKByKeys<T, registers>(a)) return;
  topKOnce<T, perAccess<T>>(a);
}

template <class T> __device__ __forceinline__ void gather(const IndexedArguments& a) {
  const int64_t count = a.lines.count * a.k;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t row = i / a.k;
    const int j = (int)(i - row * a.k);
    const int64_t id = a.ids[a.lines.at(1, row) + j];
    if (id < 0 || id >= a.n) {
      a.fault.report(i, id, a.n);
      continue;
    }
    ((T*)a.y)[a.lines.at(0, row) + j] = ((const T*)a.x)[a.lines.at(2, row) + id];
  }
}

// few is how many indices a thread of scatterFew keeps.
constexpr int few = 8;

// scatterFew gives each row a group of threads, which keep all of its indices and write n elements
// at once.
template <class T, int n> __device__ __forceinline__ void scatterFew(const IndexedArguments& a) {
  const int lane = threadIdx.x % a.group;
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / a.group;
  if (row >= a.lines.count) return;
  const int64_t ids = a.lines.at(1, row);
  const T* x = (const T*)a.x + a.lines.at(2, row);
  T* y = (T*)a.y + a.lines.at(0, row);
  int id[few];
  float v[few];
#pragma unroll
  for (int j = 0; j < few; j++) {
    const int64_t given = j < a.k ? a.ids[ids + j] : 0;
    const bool there = j < a.k && given >= 0 && given < a.n;
    if (j < a.k && !there && lane == 0) a.fault.report(row * a.k + j, given, a.n);
    id[j] = there ? (int)given : INT32_MAX;
    v[j] = there ? asFloat(x[j]) : 0;
  }
  for (int at = lane * n; at < a.n; at += a.group * n) {
    float sum[n] = {};
#pragma unroll
    for (int j = 0; j < few; j++) {
      if ((unsigned)(id[j] - at) >= n) continue;
#pragma unroll
      for (int i = 0; i < n; i++) sum[i] += id[j] - at == i ? v[j] : 0;
    }
    store<n>(y + at, sum);
  }
}

// scatter gives each row a warp. It takes 32 indices a round; of those that are equal, the first
// lane adds the elements of all, in order.
template <class T> __device__ __forceinline__ void scatter(const IndexedArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= a.lines.count) return;
  const int64_t ids = a.lines.at(1, row);
  const T* x = (const T*)a.x + a.lines.at(2, row);
  T* y = (T*)a.y + a.lines.at(0, row);
  volatile float* sums = std::is_same<T, float>::value ? (float*)y : a.sums + row * a.n;
  for (int i = lane; i < a.n; i += 32) sums[i] = 0;
  __syncwarp();
  for (int from = 0; from < a.k; from += 32) {
    const int j = from + lane;
    int64_t id = j < a.k ? a.ids[ids + j] : -1;
    const float mine = j < a.k ? asFloat(x[j]) : 0;
    if (j < a.k && (id < 0 || id >= a.n)) {
      a.fault.report(row * a.k + j, id, a.n);
      id = -1;
    }
    const unsigned alike = __match_any_sync(~0u, (long long)id);
    const bool leads = id >= 0 && lane == __ffs(alike) - 1;
    float sum = leads ? sums[id] : 0;
    for (int other = 0; other < 32; other++) {
      const float theirs = __shfl_sync(~0u, mine, other);
      if (alike >> other & 1) sum += theirs;
    }
    if (leads) sums[id] = sum;
    __syncwarp();
  }
  if constexpr (!std::is_same<T, float>::value) {
    for (int i = lane; i < a.n; i += 32) y[i] = fromFloat<T>(sums[i]);
  }
}

#define INDEXED(name, T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(256) top_k_##name(const __grid_constant__ IndexedArguments a) {      \
    a.aligned ? topKInRounds<T, perAccess<T>>(a) : topKInRounds<T, 1>(a);                                            \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 4) top_one_##name(const __grid_constant__ IndexedArguments a) {     \
    topOne<T, perAccess<T>>(a);                                                                                      \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 4) top_one_any_##name(const __grid_constant__ IndexedArguments a) { \
    topOne<T, 1>(a);                                                                                                 \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 4) top_k_once_##name(const __grid_constant__ IndexedArguments a) { \
    topKOnce<T, perAccess<T>>(a);                                                                                    \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 4) top_k_once_any_##name(const __grid_constant__ IndexedArguments a) { \
    topKOnce<T, 1>(a);                                                                                               \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256) gather_##name(const __grid_constant__ IndexedArguments a) { gather<T>(a); } \
  extern "C" __global__ void __launch_bounds__(256) scatter_few_##name(const __grid_constant__ IndexedArguments a) { \
    a.aligned ? scatterFew<T, perAccess<T>>(a) : scatterFew<T, 1>(a);                                                \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256) scatter_##name(const __grid_constant__ IndexedArguments a) { scatter<T>(a); }
FOR_EACH_ELEMENT(INDEXED)

// The number in a name is how many elements are sorted.
#define SORTED(name, T)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256, 5) top_k_32_##name(const __grid_constant__ IndexedArguments a) {         \
    topKSorted<T, 1>(a);                                                                                                    \
  }                                                                                                                         \
  extern "C" __global__ void __launch_bounds__(256, 5) top_k_64_##name(const __grid_constant__ IndexedArguments a) {         \
    topKSorted<T, 2>(a);                                                                                                    \
  }                                                                                                                         \
  extern "C" __global__ void __launch_bounds__(256, 4) top_k_128_##name(const __grid_constant__ IndexedArguments a) {        \
    topKSorted<T, 4>(a);                                                                                                    \
  }
#if !defined(ELEMENT_F32)
FOR_EACH_ELEMENT(SORTED)
#endif
