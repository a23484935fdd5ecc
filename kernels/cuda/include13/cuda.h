// Lets gorgonia.org/cu 0.9.6, which was written for CUDA 12, compile with the headers of CUDA 13: put this folder before the
// toolkit's in CGO_CFLAGS. CUDA 13 gave some names to newer functions; the driver still has the older ones, which the
// lines below declare again. So what is built runs on drivers since CUDA 12.
// With the headers of CUDA 12 this file changes nothing.
#pragma once
#include_next <cuda.h>

#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#undef cuEventElapsedTime
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);
#endif
