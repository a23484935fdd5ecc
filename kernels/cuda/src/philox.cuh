// Philox4x32 (Salmon, Moraes, Dror, Shaw, 2011) with the seven rounds that dropout draws with: four
// random words from a key and a counter, the same on every device. kernels/philox.go is the
// definition.
#pragma once
#include <stdint.h>

// philox turns counters into their random words. Rounds of several go side by side, since those of
// one only wait for each other.
template <int N> __device__ __forceinline__ void philox(uint32_t key0, uint32_t key1, uint4 (&counters)[N]) {
#pragma unroll
  for (int round = 0; round < 7; round++) {
#pragma unroll
    for (int n = 0; n < N; n++) {
      uint4& c = counters[n];
      const uint64_t p0 = (uint64_t)0xD2511F53u * c.x, p1 = (uint64_t)0xCD9E8D57u * c.z;
      c = make_uint4((uint32_t)(p1 >> 32) ^ c.y ^ key0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c.w ^ key1, (uint32_t)p0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}
