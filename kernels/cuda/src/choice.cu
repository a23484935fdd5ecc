// The choice of the next token of each text by its logits. kernels/choice.go has the equations. All
// sums that decide are of whole numbers, and what is rounded is rounded as kernels.ChoiceWeight
// does, so that a choice is the host's.
//
// A cluster of blocks has a text, each block a part of its tokens, which lie in shared memory, or
// where they are too many in scratch memory of the device. Compile for compute_80, where a cluster
// is one block, or with -DCLUSTERS for sm_90a.
#include <float.h>

#include "elements.cuh"
#include "instructions.cuh"

// ChoiceArguments is the host's choiceArguments in choice.go.
struct ChoiceArguments {
  const float *logits, *settings;  // (texts, tokens), (texts, Settings)
  const int64_t* random;           // (texts)
  const int32_t* earlier;          // where the pairs of each text begin and the last ones end, and the pairs
  int64_t* ids;                    // (texts)
  float *logProbs, *scratch;       // (texts), (texts, tokens) or null
  int64_t logitsRow, settingsRow;  // elements from one row to the next
  int32_t texts, tokens, pairs;
  int32_t part;                    // tokens of a block, a multiple of 32
};

enum Settings { Temperature, TopK, TopP, MinP, Repetition, Presence, Frequency, Tokens, LogProb };

constexpr int THREADS = 1024, WARPS = 32, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;
// A list has so many tokens, to each of which SHARE threads belong.
constexpr int LISTED = 256, SHARE = THREADS / LISTED;

template <int CLUSTER> DEVICE void clusterSync() {
  if constexpr (CLUSTER > 1)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
}

// loadOf reads what lies at the place in another block of the cluster that an address has in this.
template <int CLUSTER> DEVICE uint64_t loadOf(const uint64_t* address, int block) {
  if constexpr (CLUSTER == 1) return *(const volatile uint64_t*)address;
  uint64_t v;
  asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %1, %2;\nld.shared::cluster.b64 %0, [remote];\n}\n"
               : "=l"(v) : "r"(sharedAddress(address)), "r"(block) : "memory");
  return v;
}

// keyOf is a number that is larger for a larger x, and the same for both zeros. numberOf is the x.
DEVICE uint32_t keyOf(float x) {
  const uint32_t key = __float_as_uint(__fadd_rn(x, 0));
  return key >> 31 ? ~key : key | 1u << 31;
}
DEVICE float numberOf(uint32_t key) { return __uint_as_float(key >> 31 ? key & ~(1u << 31) : ~key); }

// weightOf is kernels.ChoiceWeight.
DEVICE uint64_t weightOf(float x, float largest, float temperature) {
  const float power = __fmul_rn(__fdiv_rn(__fsub_rn(x, largest), temperature), 1.44269504088896341f);
  if (!(power > -41)) return 0;
  const float whole = floorf(power), f = __fsub_rn(power, whole);
  constexpr float powers[] = {0x1.ee382ep-10f, 0x1.260a28p-7f, 0x1.c9686ep-5f, 0x1.ebd53cp-3f, 0x1.62e4e2p-1f, 1};
  float y = powers[0];
#pragma unroll
  for (int i = 1; i < 6; i++) y = __fadd_rn(__fmul_rn(y, f), powers[i]);
  const uint64_t significant = (uint32_t)__fmul_rn(y, 1 << 23);
  const int shift = 40 - 23 + (int)whole;
  return shift >= 0 ? significant << shift : significant >> -shift;
}

DEVICE uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

struct Exponentials { float most, sum; };  // Σ exp(z − most)

DEVICE Exponentials joined(Exponentials a, Exponentials b) {
  const float most = fmaxf(a.most, b.most);
  return {most, a.sum * __expf(a.most - most) + b.sum * __expf(b.most - most)};
}

// Shared is what a block shares beside its part of the logits.
struct Shared {
  // Of either turn: what the tokens of each digit count, in halves, and what warps and blocks hand
  // on. What is read in one turn is written again after the next.
  uint32_t low[2][DIGITS], high[2][DIGITS];
  uint64_t warps[2][WARPS], block[2], digits[2][2];
  // Of the first block: keys and inverted ids, and weights, of the tokens in the list.
  uint64_t listed[LISTED], weights[2][LISTED];
  uint32_t inList;
};

// append puts an element into the list of the cluster's first block.
template <int CLUSTER> DEVICE void append(Shared& shared, uint64_t element) {
  if constexpr (CLUSTER == 1) {
    shared.listed[atomicAdd(&shared.inList, 1)] = element;
  } else {
    asm volatile("{\n.reg .b32 count, list, at;\nmapa.shared::cluster.u32 count, %0, 0;\nmapa.shared::cluster.u32 list, %1, 0;\n"
                 "atom.relaxed.cluster.shared::cluster.add.u32 at, [count], 1;\nmad.lo.u32 list, at, 8, list;\nst.shared::cluster.b64 [list], %2;\n}\n"
                 ::"r"(sharedAddress(&shared.inList)), "r"(sharedAddress(shared.listed)), "l"(element) : "memory");
  }
}

template <int CLUSTER> struct Text {
  const ChoiceArguments& a;
  Shared& shared;
  float* x;  // of the block's tokens
  int text, rank, first, count;
  uint32_t turn = 0;
  float largest, temperature;
  // What is left: keys of at least `least`, of those of cutKey the ids up to cutID and of others
  // the larger, and weights of at least `lightest`.
  uint32_t least = 0, cutKey = 0;
  int cutID = INT32_MAX;
  uint64_t lightest = 1;

  DEVICE float setting(int which) const { return a.settings[text * a.settingsRow + which]; }

  // handOn gives each thread what the blocks of the cluster have: that of block lane % CLUSTER.
  DEVICE uint64_t handOn(uint64_t ofBlock) {
    if constexpr (CLUSTER == 1) return ofBlock;
    if (threadIdx.x == 0) shared.block[turn & 1] = ofBlock;
    clusterSync<CLUSTER>();
    return loadOf<CLUSTER>(&shared.block[turn & 1], threadIdx.x % CLUSTER);
  }

  // ofCluster joins what all threads of the cluster have; all have the result.
  template <class Join> DEVICE uint64_t ofCluster(uint64_t v, Join join) {
    turn++;
#pragma unroll
    for (int other = 16; other > 0; other /= 2) v = join(v, __shfl_xor_sync(~0u, v, other));
    if (threadIdx.x % 32 == 0) shared.warps[turn & 1][threadIdx.x / 32] = v;
    __syncthreads();
    v = shared.warps[turn & 1][threadIdx.x % 32];
#pragma unroll
    for (int other = 16; other > 0; other /= 2) v = join(v, __shfl_xor_sync(~0u, v, other));
    v = handOn(v);
#pragma unroll
    for (int other = CLUSTER / 2; other > 0; other /= 2) v = join(v, __shfl_xor_sync(~0u, v, other));
    return v;
  }
  DEVICE uint64_t sum(uint64_t v) {
    return ofCluster(v, [](uint64_t a, uint64_t b) { return a + b; });
  }

  // read takes the block's logits, and gives the logarithm of the sum of all exponentials if that
  // is asked for.
  DEVICE float read() {
    const float* z = a.logits + text * a.logitsRow + first;
    const float limited = setting(Tokens);
    const int limit = limited > 0 && limited < a.tokens ? (int)limited - first : count;
    const bool asked = setting(LogProb) != 0;
    Exponentials e = {-FLT_MAX, 0};
#pragma unroll 8
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const float v = z[i];
      x[i] = i < limit ? v : -INFINITY;
      if (asked) {
        if (v > e.most) e.sum *= __expf(e.most - v), e.most = v;
        e.sum += __expf(v - e.most);
      }
    }
    if (!asked) return 0;
    const uint64_t all = ofCluster((uint64_t)__float_as_uint(e.most) << 32 | __float_as_uint(e.sum), [](uint64_t a, uint64_t b) {
      const auto e = [](uint64_t v) { return Exponentials{__uint_as_float(v >> 32), __uint_as_float((uint32_t)v)}; };
      const Exponentials both = joined(e(a), e(b));
      return (uint64_t)__float_as_uint(both.most) << 32 | __float_as_uint(both.sum);
    });
    return __uint_as_float(all >> 32) + logf(__uint_as_float((uint32_t)all));
  }

  // penalise changes the logits of tokens that came before, and forbids what cannot be chosen.
  DEVICE void penalise() {
    const int32_t* pairs = a.earlier + a.texts + 1;
    const int end = min(a.earlier[text + 1], a.pairs);
    __syncthreads();
    for (int i = max(0, a.earlier[text]) + (int)threadIdx.x; i < end; i += THREADS) {
      const int id = pairs[2 * i], chosen = pairs[2 * i + 1];
      if (id < first || id >= first + count) continue;
      float v = x[id - first];
      if (chosen < 0) {
        v = -INFINITY;
      } else {
        const float penalty = setting(Repetition);
        if (penalty != 0) v = v > 0 ? __fdiv_rn(v, penalty) : __fmul_rn(v, penalty);
        if (chosen > 0) v = __fsub_rn(v, __fadd_rn(setting(Presence), __fmul_rn(chosen, setting(Frequency))));
      }
      x[id - first] = v;
    }
    __syncthreads();
  }

  // best is the key of the largest x and the bits of its first id inverted, or of the first id that
  // is no number or +∞, beside a key larger than any.
  DEVICE uint64_t best() {
    uint64_t most = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const float v = x[i];
      const uint32_t key = v <= FLT_MAX ? keyOf(v) : ~0u;
      most = larger(most, (uint64_t)key << 32 | ~(uint32_t)(first + i));
    }
    return ofCluster(most, larger);
  }

  // weight is that of a token, 0 for one that is not left.
  DEVICE uint64_t weight(int i) const {
    const float v = x[i];
    if (!(__fsub_rn(v, largest) >= -28.5f * temperature)) return 0;  // less than ln 2⁻⁴¹
    const uint32_t key = keyOf(v);
    if (key < least || key < cutKey || key == cutKey && first + i > cutID) return 0;
    const uint64_t w = weightOf(v, largest, temperature);
    return w < lightest ? 0 : w;
  }

  struct Found {
    uint32_t key;
    uint64_t rest;
  };

  // select finds the largest key such that what the tokens of this key and larger ones count sums
  // to enough, and how much of that those of this key need to have. enough is told what all count.
  template <class Count, class Enough> DEVICE Found select(Count counted, Enough enough) {
    Found f = {0, 0};
    int known = 32;
#pragma unroll 1
    for (int shift = 32 - DIGIT_BITS;; shift = max(0, shift - DIGIT_BITS)) {
      turn++;
      uint32_t *low = shared.low[turn & 1], *high = shared.high[turn & 1];
      for (int d = threadIdx.x; d < DIGITS; d += THREADS) low[d] = high[d] = 0;
      __syncthreads();
      const uint32_t digits = (1u << (known - shift)) - 1;
      for (int i = threadIdx.x; i < count; i += THREADS) {
        const uint32_t key = keyOf(x[i]);
        if (known < 32 && key >> known != f.key >> known) continue;
        const uint64_t n = counted(i);
        if (n == 0) continue;
        const uint32_t before = atomicAdd(&low[key >> shift & digits], (uint32_t)n);
        const uint32_t above = (uint32_t)(n >> 32) + (before + (uint32_t)n < before);
        if (above) atomicAdd(&high[key >> shift & digits], above);
      }
      clusterSync<CLUSTER>();
      // A thread has two digits, the larger first, or none.
      const int pair = DIGITS / 2 - 1 - (int)threadIdx.x;
      uint64_t of[2] = {0, 0};
#pragma unroll
      for (int block = 0; block < CLUSTER && pair >= 0; block++) {
        const uint64_t l = loadOf<CLUSTER>((const uint64_t*)low + pair, block), h = loadOf<CLUSTER>((const uint64_t*)high + pair, block);
        of[0] += (h & ~0ull << 32) + (l >> 32);
        of[1] += (h << 32) + (uint32_t)l;
      }
      const Place at = place(of[0] + of[1]);
      if (known == 32) f.rest = enough(at.total);
      if (at.before < f.rest && f.rest <= at.before + of[0] + of[1]) {
        const bool second = f.rest > at.before + of[0];
        shared.digits[turn & 1][0] = 2 * pair + !second;
        shared.digits[turn & 1][1] = f.rest - at.before - (second ? of[0] : 0);
      }
      __syncthreads();
      f.key |= (uint32_t)shared.digits[turn & 1][0] << shift;
      f.rest = shared.digits[turn & 1][1];
      known = shift;
      if (shift == 0) return f;
    }
  }

  // Place is what the threads before one have, and what all have.
  struct Place { uint64_t before, total; };

  // place counts the threads of a block.
  DEVICE Place place(uint64_t v) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint64_t through = v;
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const uint64_t other = __shfl_up_sync(~0u, through, by);
      if (lane >= by) through += other;
    }
    if (lane == 31) shared.warps[turn & 1][warp] = through;
    __syncthreads();
    uint64_t ofWarp = shared.warps[turn & 1][lane];
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const uint64_t other = __shfl_up_sync(~0u, ofWarp, by);
      if (lane >= by) ofWarp += other;
    }
    const uint64_t warpsBefore = __shfl_sync(~0u, ofWarp, max(0, warp - 1));
    return {(warp == 0 ? 0 : warpsBefore) + through - v, __shfl_sync(~0u, ofWarp, 31)};
  }

  // chooseListed is the choice among the k largest, where these and what is about as large are few:
  // the first block has a list of them. It reports whether they are. A token weighs nothing where
  // the largest is so much larger, and counts for none of the k then.
  DEVICE bool chooseListed(uint32_t k, float p, float minP, uint64_t random, float lse) {
    turn++;
    uint32_t* bins = shared.low[turn & 1];
    for (int d = threadIdx.x; d < DIGITS; d += THREADS) bins[d] = 0;
    if (threadIdx.x == 0) shared.inList = 0;
    __syncthreads();
    const float farthest = 28.5f * temperature, by = DIGITS / farthest;
    // binOf is larger for a smaller x, or the same.
    const auto binOf = [&](float x) {
      const float apart = __fsub_rn(largest, x);
      return apart <= farthest ? min((int)(apart * by), DIGITS - 1) : DIGITS;
    };
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const int bin = binOf(x[i]);
      if (bin < DIGITS) atomicAdd(bins + bin, 1);
    }
    clusterSync<CLUSTER>();
    uint32_t of[2] = {0, 0};  // two bins of a thread, or none
#pragma unroll
    for (int block = 0; block < CLUSTER && threadIdx.x < DIGITS / 2; block++) {
      const uint64_t both = loadOf<CLUSTER>((const uint64_t*)bins + threadIdx.x, block);
      of[0] += (uint32_t)both, of[1] += (uint32_t)(both >> 32);
    }
    const Place at = place(of[0] + of[1]);
    if (at.total < k && threadIdx.x == 0) shared.digits[turn & 1][0] = DIGITS - 1, shared.digits[turn & 1][1] = at.total;
    if (at.before < k && k <= at.before + of[0] + of[1]) {
      const bool second = k > at.before + of[0];
      shared.digits[turn & 1][0] = 2 * threadIdx.x + second;
      shared.digits[turn & 1][1] = at.before + of[0] + (second ? of[1] : 0);
    }
    __syncthreads();
    const int last = (int)shared.digits[turn & 1][0], n = (int)shared.digits[turn & 1][1];
    if (n > LISTED) return false;
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const float v = x[i];
      if (binOf(v) <= last) append<CLUSTER>(shared, (uint64_t)keyOf(v) << 32 | ~(uint32_t)(first + i));
    }
    clusterSync<CLUSTER>();
    if (rank > 0) return true;
    // Elements are larger for larger keys, and of those of a key for smaller ids.
    const int own = threadIdx.x / SHARE;
    const uint64_t element = own < n ? shared.listed[own] : 0;
    const uint32_t key = (uint32_t)(element >> 32), id = ~(uint32_t)element;
    const auto sumOf = [&](auto term) {
      uint64_t sum = 0;
      if (own < n)
        for (int i = threadIdx.x % SHARE; i < n; i += SHARE) sum += term(i);
#pragma unroll
      for (int other = 1; other < SHARE; other *= 2) sum += __shfl_xor_sync(~0u, sum, other);
      return sum;
    };
    const bool isLeft = sumOf([&](int i) { return (uint64_t)((uint32_t)(shared.listed[i] >> 32) > key); }) < k;
    uint64_t weight = own < n && isLeft ? weightOf(numberOf(key), largest, temperature) : 0;
    if (threadIdx.x % SHARE == 0) shared.weights[0][own] = weight;
    __syncthreads();
    if (p > 0 && p < 1) {
      const uint64_t part = (uint64_t)((double)p * 4294967296.0), enough = larger(1, __umul64hi(part << 32, sumOf([&](int i) { return shared.weights[0][i]; })));
      if (sumOf([&](int i) { return shared.listed[i] > element ? shared.weights[0][i] : 0; }) >= enough) weight = 0;
    }
    if (minP > 0 && weight < larger(1, (uint64_t)((double)fminf(minP, 1) * 1099511627776.0))) weight = 0;
    if (threadIdx.x % SHARE == 0) shared.weights[1][own] = weight;
    __syncthreads();
    const uint64_t total = sumOf([&](int i) { return shared.weights[1][i]; }), wanted = __umul64hi(random, total);
    const uint64_t before = sumOf([&](int i) { return ~(uint32_t)shared.listed[i] < id ? shared.weights[1][i] : 0; });
    if (weight > 0 && threadIdx.x % SHARE == 0 && before <= wanted && wanted < before + weight) write(id, lse);
    return true;
  }

  // cutTop leaves the first tokens whose weights sum to a part of the sum.
  DEVICE void cutTop(float part) {
    const Found f = select([&](int i) { return weight(i); }, [&](uint64_t total) {
      const uint64_t of = (uint64_t)((double)part * 4294967296.0);
      return larger(1, __umul64hi(of << 32, total));
    });
    const uint64_t each = weightOf(numberOf(f.key), largest, temperature), wanted = (f.rest + each - 1) / each;
    const auto equals = [&](int last) {
      uint64_t n = 0;
      for (int i = threadIdx.x; i < count && first + i <= last; i += THREADS) n += keyOf(x[i]) == f.key;
      return sum(n);
    };
    if (equals(INT32_MAX) > wanted) {
      int low = 0, high = a.tokens - 1;  // the last id that is left is among these
      while (low < high) {
        const int middle = (low + high) / 2;
        if (equals(middle) >= wanted) high = middle;
        else low = middle + 1;
      }
      cutID = low;
    }
    cutKey = f.key;
  }

  // draw chooses among the tokens that are left. One thread of the cluster has the id, others −1.
  DEVICE int draw(uint64_t random) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, ofWarp = a.part / WARPS;
    const int begin = warp * ofWarp, end = min(count, begin + ofWarp);
    uint64_t mine = 0;
    for (int i = begin + lane; i < end; i += 32) mine += weight(i);
    turn++;
    const Place at = place(mine);
    uint64_t before = 0, total = 0;
    const uint64_t other = handOn(at.total);
#pragma unroll
    for (int block = 0; block < CLUSTER; block++) {
      const uint64_t v = __shfl_sync(~0u, other, block);
      before += block < rank ? v : 0;
      total += v;
    }
    const uint64_t wanted = __umul64hi(random, total);
    before += __shfl_sync(~0u, at.before, 0);
    uint64_t all = mine;
#pragma unroll
    for (int by = 16; by > 0; by /= 2) all += __shfl_xor_sync(~0u, all, by);
    if (wanted < before || wanted >= before + all) return -1;
    for (int base = begin; base < end; base += 32) {
      uint64_t through = base + lane < end ? weight(base + lane) : 0;
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        const uint64_t other = __shfl_up_sync(~0u, through, by);
        if (lane >= by) through += other;
      }
      const uint32_t behind = __ballot_sync(~0u, wanted < before + through);
      if (behind) return lane == __ffs(behind) - 1 ? first + base + lane : -1;
      before += __shfl_sync(~0u, through, 31);
    }
    return -1;
  }

  DEVICE void choose() {
    const float lse = read();
    penalise();
    const uint64_t most = best();
    const uint32_t key = (uint32_t)(most >> 32);
    const int id = (int)~(uint32_t)most;
    largest = numberOf(key), temperature = setting(Temperature);
    if (key == ~0u || largest == -INFINITY || !(temperature > 0)) {
      const bool none = key != ~0u && largest == -INFINITY;
      if (rank == 0 && threadIdx.x == 0) write(key == ~0u ? -1 - id : none ? -1 - a.tokens : id, lse);
      return;
    }
    const float k = setting(TopK), p = setting(TopP), least = setting(MinP);
    if (k >= 1 && k <= LISTED && k < a.tokens && chooseListed((uint32_t)k, p, least, (uint64_t)a.random[text], lse)) return;
    if (k >= 1 && k < a.tokens) {
      const uint64_t enough = (uint64_t)k;
      this->least = select([](int) { return (uint64_t)1; }, [=](uint64_t) { return enough; }).key;
    }
    if (p > 0 && p < 1) cutTop(p);
    if (least > 0) lightest = larger(1, (uint64_t)((double)fminf(least, 1) * 1099511627776.0));
    const int chosen = draw((uint64_t)a.random[text]);
    if (chosen >= 0) write(chosen, lse);
  }

  DEVICE void write(int id, float lse) const {
    a.ids[text] = id;
    a.logProbs[text] = id >= 0 && setting(LogProb) != 0 ? a.logits[text * a.logitsRow + id] - lse : 0;
  }
};

template <int CLUSTER> DEVICE void chooseTokens(const ChoiceArguments& a) {
  extern __shared__ __align__(16) float part[];
  __shared__ Shared shared;
  const int text = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER, first = min(a.tokens, rank * a.part);
  float* x = a.scratch ? a.scratch + (int64_t)text * a.tokens + first : part;
  Text<CLUSTER>{a, shared, x, text, rank, first, min(a.part, a.tokens - first)}.choose();
  if constexpr (CLUSTER > 1) clusterSync<CLUSTER>();  // others may still read this block's memory
}

#ifdef CLUSTERS
#define ENTRY(blocks)                                                                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS) __cluster_dims__(blocks, 1, 1) choose_##blocks(const __grid_constant__ ChoiceArguments a) { \
    chooseTokens<blocks>(a);                                                                                                                      \
  }
ENTRY(2)
ENTRY(4)
ENTRY(8)
#else
extern "C" __global__ void __launch_bounds__(THREADS) choose_1(const __grid_constant__ ChoiceArguments a) { chooseTokens<1>(a); }
#endif
