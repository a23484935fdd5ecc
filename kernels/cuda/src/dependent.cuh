// Kernels that overlap those before and behind them (programmatic dependent launch), where they are
// compiled for it: the launcher says so with Launch.Early, and what they read before they wait.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool DEPENDENT = true;
#else
constexpr bool DEPENDENT = false;
#endif

// awaitBefore waits until the kernels before this one have ended, and what they wrote can be seen. A
// thread calls it before it reads what any of them writes, and before it writes anything. Some thread
// of each block calls it in any case: the kernel behind this one waits for this one alone.
__device__ __forceinline__ void awaitBefore() {
  if constexpr (DEPENDENT) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// beginDependents lets the kernel behind this one begin, once all blocks have called it. It is called
// behind awaitBefore: where kernels let each other begin before that, blocks of several wait beside those
// that work, and take their room.
__device__ __forceinline__ void beginDependents() {
  if constexpr (DEPENDENT) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
