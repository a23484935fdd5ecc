#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

// Transfer is one collective operation on one tensor.
typedef struct {
  const void* from;
  void* to;
  size_t count;
  int type, operation, rank;  // a Nccl type, an Operation, and the rank that a reduction or a broadcast has for its root
} Transfer;

enum Operation { AllReduce, ReduceScatter, Reduce, AllGather, Broadcast };

// What NCCL says: 0 for success, otherwise its own number, for networkText.
typedef int NcclResult;

const char* networkOpen(const char* path);  // null, or why the library does not serve
int networkVersion(void);
const char* networkText(NcclResult result);
const char* networkDetails(void* communicator);
NcclResult networkKey(char key[128]);
NcclResult networkJoin(CUcontext context, void** communicator, int size, const char key[128], int rank);
NcclResult networkTransfer(CUcontext context, void* communicator, CUstream stream, const Transfer* list, int count);
NcclResult networkState(void* communicator);
NcclResult networkLeave(CUcontext context, void* communicator, int abort);
