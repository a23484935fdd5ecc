// Hopper's instructions (sm_90a) as the attention kernels use them: one thin function each, named
// for what it does. Barriers in shared memory, the tensor memory accelerator (TMA), the warpgroup's
// matrix product, and some small things.
#pragma once
#include <cuda.h>

#include "instructions.cuh"
#include "wgmma.cuh"

// Scalar is the element type that the module is compiled for.
#ifdef ELEMENT_BF16
using Scalar = __nv_bfloat16;
#else
using Scalar = __half;
#endif

// Yes and No choose a form of a generic lambda at compile time.
struct Yes { static constexpr bool value = true; };
struct No { static constexpr bool value = false; };

// ---- Barriers in shared memory (8 bytes each). A barrier's phase completes when the arrivals it
// was made for and all the bytes it was told to expect have come. A wait names the parity of the
// phase it waits for: 0 for the first, then 1, 0, ... A wait for parity 1 on a fresh barrier
// returns at once, which is how producers find empty buffers at the start.

DEVICE void barrierInit(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// barrierInitDone makes initialised barriers visible to the TMA; __syncthreads then shows them to
// the block.
DEVICE void barrierInitDone() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrierArrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// barrierExpect arrives and announces bytes that copies will bring.
DEVICE void barrierExpect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// barrierWait blocks the thread. Compiled with BOUNDED_WAITS, a barrier that never completes traps
// instead of hanging.
DEVICE void barrierWait(uint32_t barrier, uint32_t parity) {
#ifdef BOUNDED_WAITS
  for (int tries = 0;; tries++) {
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    if (done) return;
    if (tries > 1 << 22) __trap();
  }
#else
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(barrier), "r"(parity) : "memory");
#endif
}

// ---- Named barriers 1 to 15 (0 is __syncthreads) among `threads` threads, a multiple of 32.

DEVICE void groupSync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// ---- The tensor memory accelerator: one thread starts a copy of a whole box. Elements outside the
// tensor read as zero and are not written.

// loadBox brings the map's box at the coordinates (column, row, head, batch) and counts its bytes
// on the barrier.
DEVICE void loadBox(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"((uint64_t)map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}
// loadBoxOnce does so for what nobody will read again: it leaves the L2 cache first.
DEVICE void loadBoxOnce(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int row, int head, int batch) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"((uint64_t)map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(policy) : "memory");
}
// prefetchBox brings the box into the L2 cache.
DEVICE void prefetchBox(const CUtensorMap* map, int column, int row, int head, int batch) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"((uint64_t)map), "r"(column), "r"(row),
               "r"(head), "r"(batch) : "memory");
}
DEVICE void prefetchMap(const CUtensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)map) : "memory"); }
// sharedToAsync shows the thread's ordinary writes to shared memory to the TMA and to matrix
// products that start after it.
DEVICE void sharedToAsync() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- The warpgroup's matrix product (wgmma.cuh has the product itself). Products run
// asynchronously from the commit on; their registers must not be touched before the wait, and
// pinned after it, so that the compiler moves no access across.

DEVICE void productFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void productCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEVICE void productWait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N> DEVICE void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> DEVICE void pin(uint32_t (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

// forget tells the compiler that what the registers hold is not needed any more. The product names
// its accumulators as read even where it starts them at zero, so they would stay occupied until
// then.
template <int N> DEVICE void forget(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "=f"(d[i]));
}

// descriptor describes an operand in shared memory to wgmma: rows of 128 bytes (64 elements) under
// the 128-byte swizzle, at an address that is a multiple of 1,024 (plus the steps below). Strides
// are in bytes.
//   K contiguous:  stride1 unused, stride8 = 1024 between groups of 8 rows; a step of 16 along K is 32 bytes within the 64
//                  columns, the next 64 columns are a chunk of their own.
//   M/N contiguous: stride1 between chunks of 64 columns, stride8 = 1024 between groups of 8 along K; a step of 16 along K
//                  is 2,048 bytes.
DEVICE uint64_t descriptor(uint32_t address, uint32_t stride1, uint32_t stride8) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | ((uint64_t)(stride1 >> 4) << 16) | ((uint64_t)(stride8 >> 4) << 32) | (1ull << 62);
}
// moved is the descriptor of an operand so many bytes, a multiple of 16, farther on.
DEVICE uint64_t moved(uint64_t descriptor, uint32_t bytes) {
  return descriptor & 0xFFFFFFFF00000000ull | (uint32_t)descriptor + (bytes >> 4);
}
// warpgroupIndex counts the block's warpgroups; it is computed so that the compiler knows it to be
// the same in a warp.
DEVICE int warpgroupIndex() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

// ---- The rest.

// moreRegisters and fewerRegisters move registers between warpgroups. The sum must stay within what
// the launch reserved: 168 a thread for 384 threads (24 + 2·240, 40 + 2·232), 128 for 512 (32 +
// 3·160); beyond it the kernel hangs.
template <int N> DEVICE void moreRegisters() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEVICE void fewerRegisters() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// pack rounds two floats to a register of two Scalars, low one first; unpack is its inverse.
DEVICE uint32_t pack(float low, float high) { return packed<Scalar>(low, high); }
DEVICE float2 unpack(uint32_t x) { return unpacked<Scalar>(x); }
// storeMatrix4 writes four 8×8 matrices of Scalars from registers in accumulator order; lane l
// gives the address of row l%8 of matrix l/8.
DEVICE void storeMatrix4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
// storeMatrix4Transposed writes each of the four matrices transposed: lane l gives the address of
// what was column l%8.
DEVICE void storeMatrix4Transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
// positive replaces the negative ones of two Scalars by 0.
DEVICE uint32_t positive(uint32_t x) {
  uint32_t y;
#ifdef ELEMENT_BF16
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(0));
#else
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(0));
#endif
  return y;
}

// addFloats4 adds four neighbouring floats in global memory, 16-byte aligned, in no fixed order
// with other additions.
DEVICE void addFloats4(float* to, float x, float y, float z, float w) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}
// storeOrAddFloats4 does so too, or stores them.
DEVICE void storeOrAddFloats4(bool store, float* to, float x, float y, float z, float w) {
  asm volatile(
      "{\n.reg .pred store;\nsetp.ne.b32 store, %0, 0;\n"
      "@store st.global.v4.f32 [%1], {%2, %3, %4, %5};\n"
      "@!store red.relaxed.gpu.global.add.v4.f32 [%1], {%2, %3, %4, %5};\n}\n" ::"r"((int)store), "l"(to), "f"(x), "f"(y), "f"(z), "f"(w)
      : "memory");
}
// storeRelease shows what the thread has seen and done so far to whoever reads the value with
// loadAcquire.
DEVICE int32_t loadAcquire(const int32_t* p) {
  int32_t v;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
DEVICE void storeRelease(int32_t* p, int32_t v) { asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
