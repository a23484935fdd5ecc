#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

// Transfer is one operation on one tensor.
typedef struct {
  const void* from;
  void* to;
  size_t count;
  // A Nccl type, an Operation, and the rank that a reduction or a broadcast has for its root, or that is sent to or received from.
  int type, operation, rank;
} Transfer;

enum Operation { AllReduce, ReduceScatter, Reduce, AllGather, Broadcast, Send, Receive };

// What NCCL says: 0 for success, otherwise its own number, for networkText.
typedef int NcclResult;

const char* networkOpen(const char* path);  // null, or why the library does not serve
int networkVersion(void);
const char* networkText(NcclResult result);
const char* networkDetails(void* communicator);
NcclResult networkKey(char key[128]);
NcclResult networkJoin(CUcontext context, void** communicator, int size, const char key[128], int rank);
NcclResult networkTransfer(CUcontext context, void* communicator, CUstream stream, const Transfer* list, int count);
// networkBeside queues a list on a stream of its own, behind what the other stream has by now, and records its end.
NcclResult networkBeside(CUcontext context, void* communicator, CUstream stream, CUstream beside, CUevent begin, CUevent end,
                         const Transfer* list, int count);
NcclResult networkState(void* communicator);
NcclResult networkLeave(CUcontext context, void* communicator, int abort);
