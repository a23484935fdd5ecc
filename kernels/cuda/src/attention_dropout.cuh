// What dropout drops of attention's probabilities.
#pragma once
#include "attention_mask.cuh"
#include "philox.cuh"

// Dropper tells which probabilities of one head of one sequence are kept. Eight neighbouring
// columns, the first a multiple of eight, share a counter. Each of its words has the numbers of two
// of them, the first one's in its lower half; a number under the threshold drops its element.
struct Dropper {
  static constexpr uint32_t TOPS = 0x80008000;
  uint32_t thresholds, key0, key1, step, plane;  // thresholds: in both halves

  DEVICE Dropper(const AttentionArguments& a, const Sequence& s, int head)
      : thresholds(a.dropThreshold * 0x10001), key0(a.dropKey0), key1(a.dropKey1), step(a.dropStep), plane(s.index * a.heads + head) {}

  // counter is that of row i and eight columns, of which j is one.
  DEVICE uint4 counter(int i, int j) const { return make_uint4(step, plane, (uint32_t)i, (uint32_t)j / 8); }

  template <int N> DEVICE void draw(uint4 (&counters)[N]) const { philox(key0, key1, counters); }

  // kept has the top bit of each half set if that half of the word keeps its element; other bits
  // mean nothing. Halves whose top bit is that of the threshold are compared by subtracting, with a
  // bit that keeps the halves apart.
  DEVICE uint32_t kept(uint32_t word) const {
    const uint32_t difference = (word | TOPS) - (thresholds & ~TOPS);
    // (word & ~thresholds) | (~(word ^ thresholds) & difference), which the compiler would take
    // apart
    uint32_t kept;
    asm("lop3.b32 %0, %1, %2, %3, 0xB2;" : "=r"(kept) : "r"(word), "r"(thresholds), "r"(difference));
    return kept;
  }

#if __CUDA_ARCH__ >= 900
  // keptOfFew is kept, with one instruction less, where the probability to drop is at most a half.
  DEVICE uint32_t keptOfFew(uint32_t word) const {
    uint32_t smaller;
    asm("min.u16x2 %0, %1, %2;" : "=r"(smaller) : "r"(word), "r"(thresholds));
    return smaller + (TOPS - thresholds);
  }
  DEVICE bool dropsFew() const { return thresholds <= TOPS; }
  template <bool Few> DEVICE uint32_t keptOf(uint32_t word) const { return Few ? keptOfFew(word) : kept(word); }
#endif
};

// keepScaleAfter is the part of dropout's factor that a gradient is multiplied by when it is
// complete: all of it, unless the gradient of the bias needs dS with it.
DEVICE float keepScaleAfter(const AttentionArguments& a) { return a.dBias ? 1 : a.keepScale; }
