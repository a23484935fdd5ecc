// What a user's mask shows of each USER_HULL queries, and of each USER_HULL keys: the hulls that UserMask reads.
//
// A block has one of these and goes over all keys, or queries, with a thread for each. What is seen as a whole is found 32 at a time.
//
// Before the hulls lies the version of what the mask looks up, behind them for each the version that it was found for, plus one.
#include "attention_user.cuh"

constexpr int HULL_THREADS = 128, WORDS = HULL_THREADS / 32;

// HullArguments are those of a forward kernel: heads, lengths and the band count.
extern "C" __global__ void __launch_bounds__(HULL_THREADS) KERNEL(const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  __shared__ uint32_t seen[WORDS], whole[WORDS];
  const bool byKeys = blockIdx.z;
  const Sequence s = sequenceOf(a, blockIdx.y);
  const UserMask mask = UserMask::of(a, s);
  const int first = blockIdx.x * USER_HULL, rows = byKeys ? s.sk : s.sq, columns = byKeys ? s.sq : s.sk;
  if (first >= rows) return;
  const int end = min(first + USER_HULL, rows), heads = USER_MASK_BY_HEAD ? a.heads : 1;
  int4* const hulls = (int4*)(byKeys ? mask.hullsOfKeys() : mask.hullsOfQueries()) + blockIdx.x;
  const int version = *(const int*)(a.hulls - 1) + 1, count = UserMask::slots(a, a.sq) + UserMask::slots(a, a.sk);
  int* const found = (int*)(a.hulls + count) + (hulls - a.hulls);
  if (*found == version) return;

  int4 hull = {INT32_MAX, 0, 0, 0};
  int run = 0;  // where the words that are seen whole begin, up to here
  for (int column = 0; column < columns; column += HULL_THREADS) {
    const int own = column + threadIdx.x;
    bool some = false, all = own < columns;
    if (own < columns)
      for (int row = first; row < end; row++) {
        const int query = byKeys ? own : row, key = byKeys ? row : own;
        bool visible = key >= query + mask.lo && key < query + mask.hi;
        if (visible)
          for (int head = 0; head < heads; head++) {
            const bool here = userVisible(a, UserPair{0, s.index, head, head / (a.heads / a.keyHeads), query, key, s.sq, s.sk});
            some |= here, visible &= here;
          }
        all &= visible;
      }
    const uint32_t someOf = __ballot_sync(~0u, some), allOf = __ballot_sync(~0u, all);
    if (threadIdx.x % 32 == 0) seen[threadIdx.x / 32] = someOf, whole[threadIdx.x / 32] = allOf;
    __syncthreads();
    if (threadIdx.x == 0)
      for (int n = 0; n < WORDS; n++) {
        const int at = column + 32 * n;
        if (seen[n]) hull.x = min(hull.x, at + __ffs(seen[n]) - 1), hull.y = at + 32 - __clz(seen[n]);
        if (whole[n] != ~0u) run = at + 32;
        else if (at + 32 - run > hull.w - hull.z) hull.z = run, hull.w = at + 32;
      }
    __syncthreads();
  }
  if (threadIdx.x == 0) *hulls = hull, *found = version;
}

// LookedUpArguments is lookedUpArguments in attention_score.go.
struct LookedUpArguments {
  const uint32_t* table;
  uint32_t* copy;
  int* version;
  int64_t words;
};

// attention_looked_up copies a table that a mask looks up, and raises the version where it is not what the copy was.
extern "C" __global__ void attention_looked_up(const __grid_constant__ LookedUpArguments a) {
  bool differs = false;
  for (int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; at < a.words; at += gridDim.x * (int64_t)blockDim.x) {
    const uint32_t word = a.table[at];
    if (a.copy[at] == word) continue;
    a.copy[at] = word;
    differs = true;
  }
  if (differs) atomicAdd(a.version, 1);
}
