//go:build gpu

// The functions of NCCL, from a libnccl.so.2 that is looked for when a program first joins others: one that runs on a single GPU
// needs none. The declarations are NCCL's own, which its major version 2 keeps.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nccl_linux.h"

// Hidden names do not take the place of NCCL's own.
#pragma GCC visibility push(hidden)

typedef struct {
  char bytes[128];
} UniqueId;

static struct {
  NcclResult (*GetVersion)(int*);
  NcclResult (*GetUniqueId)(UniqueId*);
  NcclResult (*CommInitRank)(void**, int, UniqueId, int);
  NcclResult (*CommDestroy)(void*);
  NcclResult (*CommAbort)(void*);
  NcclResult (*CommGetAsyncError)(void*, NcclResult*);
  NcclResult (*GroupStart)(void);
  NcclResult (*GroupEnd)(void);
  NcclResult (*AllReduce)(const void*, void*, size_t, int, int, void*, CUstream);
  NcclResult (*ReduceScatter)(const void*, void*, size_t, int, int, void*, CUstream);
  NcclResult (*Reduce)(const void*, void*, size_t, int, int, int, void*, CUstream);
  NcclResult (*AllGather)(const void*, void*, size_t, int, void*, CUstream);
  NcclResult (*Broadcast)(const void*, void*, size_t, int, int, void*, CUstream);
  NcclResult (*Send)(const void*, size_t, int, int, void*, CUstream);
  NcclResult (*Recv)(void*, size_t, int, int, void*, CUstream);
  const char* (*GetErrorString)(NcclResult);
  const char* (*GetLastError)(void*);
} nccl;

enum { Sum = 0, ContextFailed = -1 };

const char* networkOpen(const char* path) {
  static char problem[512];
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(problem, sizeof problem, "%s", dlerror());
    return problem;
  }
#define FUNCTION(name) {"nccl" #name, (void**)&nccl.name}
  const struct {
    const char* name;
    void** at;
  } functions[] = {
      FUNCTION(GetVersion), FUNCTION(GetUniqueId), FUNCTION(CommInitRank), FUNCTION(CommDestroy), FUNCTION(CommAbort),
      FUNCTION(CommGetAsyncError), FUNCTION(GroupStart), FUNCTION(GroupEnd), FUNCTION(AllReduce), FUNCTION(ReduceScatter),
      FUNCTION(Reduce), FUNCTION(AllGather), FUNCTION(Broadcast), FUNCTION(Send), FUNCTION(Recv), FUNCTION(GetErrorString), FUNCTION(GetLastError),
  };
#undef FUNCTION
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (!(*functions[i].at = dlsym(library, functions[i].name))) {
      snprintf(problem, sizeof problem, "it has no %s", functions[i].name);
      dlclose(library);
      return problem;
    }
  }
  return 0;
}

int networkVersion(void) {
  int version = 0;
  return nccl.GetVersion(&version) ? 0 : version;
}

const char* networkText(NcclResult result) { return result == ContextFailed ? "the device's context is lost" : nccl.GetErrorString(result); }

const char* networkDetails(void* communicator) { return nccl.GetLastError(communicator); }

NcclResult networkKey(char key[128]) {
  UniqueId id;
  const NcclResult result = nccl.GetUniqueId(&id);
  memcpy(key, id.bytes, sizeof id.bytes);
  return result;
}

NcclResult networkJoin(CUcontext context, void** communicator, int size, const char key[128], int rank) {
  UniqueId id;
  memcpy(id.bytes, key, sizeof id.bytes);
  if (cuCtxSetCurrent(context)) return ContextFailed;
  return nccl.CommInitRank(communicator, size, id, rank);
}

static NcclResult queue(void* communicator, CUstream stream, const Transfer* t) {
  switch (t->operation) {
    case AllReduce: return nccl.AllReduce(t->from, t->to, t->count, t->type, Sum, communicator, stream);
    case ReduceScatter: return nccl.ReduceScatter(t->from, t->to, t->count, t->type, Sum, communicator, stream);
    case Reduce: return nccl.Reduce(t->from, t->to, t->count, t->type, Sum, t->rank, communicator, stream);
    case AllGather: return nccl.AllGather(t->from, t->to, t->count, t->type, communicator, stream);
    case Send: return nccl.Send(t->from, t->count, t->type, t->rank, communicator, stream);
    case Receive: return nccl.Recv(t->to, t->count, t->type, t->rank, communicator, stream);
    default: return nccl.Broadcast(t->from, t->to, t->count, t->type, t->rank, communicator, stream);
  }
}

// networkTransfer queues a list in one group, which NCCL carries in as few kernels as it can.
NcclResult networkTransfer(CUcontext context, void* communicator, CUstream stream, const Transfer* list, int count) {
  if (cuCtxSetCurrent(context)) return ContextFailed;
  NcclResult result = nccl.GroupStart();
  if (result) return result;
  for (int i = 0; i < count && !result; i++) result = queue(communicator, stream, &list[i]);
  const NcclResult ended = nccl.GroupEnd();
  return result ? result : ended;
}

NcclResult networkBeside(CUcontext context, void* communicator, CUstream stream, CUstream beside, CUevent begin, CUevent end,
                         const Transfer* list, int count) {
  if (cuCtxSetCurrent(context) || cuEventRecord(begin, stream) || cuStreamWaitEvent(beside, begin, 0)) return ContextFailed;
  const NcclResult result = networkTransfer(context, communicator, beside, list, count);
  return result ? result : cuEventRecord(end, beside) ? ContextFailed : 0;
}

NcclResult networkState(void* communicator) {
  NcclResult state = 0;
  const NcclResult result = nccl.CommGetAsyncError(communicator, &state);
  return result ? result : state;
}

NcclResult networkLeave(CUcontext context, void* communicator, int abort) {
  if (cuCtxSetCurrent(context)) return ContextFailed;
  return abort ? nccl.CommAbort(communicator) : nccl.CommDestroy(communicator);
}

#pragma GCC visibility pop
