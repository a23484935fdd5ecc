// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, 2011): four random words from a key and a counter, the same on every device.
#pragma once
#include <stdint.h>

__device__ __forceinline__ uint4 philox(uint32_t key0, uint32_t key1, uint4 counter) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * counter.x, p1 = (uint64_t)0xCD9E8D57u * counter.z;
    counter = make_uint4((uint32_t)(p1 >> 32) ^ counter.y ^ key0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ counter.w ^ key1, (uint32_t)p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}
