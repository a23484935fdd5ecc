//go:build gpu

package cuda

// What gorgonia.org/cu does not offer: a launch whose arguments are tensor maps and a struct by value, and the limit of
// dynamic shared memory. Each function sets the context itself: a call from Go runs on any thread.

/*
#include <stdint.h>
#include <string.h>
#include <cuda.h>

// A tensor as boxes of rows × columns: four axes from the innermost, strides in bytes from the second.
typedef struct {
  uint64_t data, dims[4], strides[3];
  uint32_t columns, rows, swizzle, type;
} TensorMap;

enum { MaxMaps = 5 };

// encode makes the 128 bytes that the GPU reads of a description. They need an alignment that Go does not promise.
static CUresult encode(CUcontext context, const TensorMap* m, unsigned char* to) {
  _Alignas(128) CUtensorMap map;
  const cuuint32_t box[4] = {m->columns, m->rows, 1, 1}, ones[4] = {1, 1, 1, 1};
  CUresult result = cuCtxSetCurrent(context);
  if (result) return result;
  result = cuTensorMapEncodeTiled(&map,
      (CUtensorMapDataType)m->type, 4, (void*)(uintptr_t)m->data,
      (const cuuint64_t*)m->dims, (const cuuint64_t*)m->strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      m->swizzle == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  memcpy(to, &map, sizeof map);
  return result;
}

// launch passes the encoded maps by value, then the struct at arguments by value.
static CUresult launch(CUcontext context, CUfunction f, uint32_t x, uint32_t y, uint32_t z, uint32_t threads,
                       uint32_t sharedBytes, CUstream stream, const unsigned char* maps, int count, void* arguments) {
  _Alignas(128) CUtensorMap aligned[MaxMaps];
  void* pointers[MaxMaps + 1];
  const CUresult result = cuCtxSetCurrent(context);
  if (result) return result;
  if (count) memcpy(aligned, maps, count * sizeof(CUtensorMap));
  for (int i = 0; i < count; i++) pointers[i] = &aligned[i];
  pointers[count] = arguments;
  return cuLaunchKernel(f, x, y, z, threads, 1, 1, sharedBytes, stream, pointers, 0);
}

static CUresult limitSharedMemory(CUcontext context, CUfunction f, int bytes) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static const char* nameOf(CUresult result) {
  const char* name = 0;
  cuGetErrorName(result, &name);
  return name ? name : "an unknown error";
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// driverError is a result of the driver's other than success, by the name that its manual has for it.
type driverError C.CUresult

func (e driverError) Error() string { return C.GoString(C.nameOf(C.CUresult(e))) }

// check makes a result of the driver's an error that says of which call it is.
func (d *Device) check(call string, result C.CUresult) error {
	if result == 0 {
		return nil
	}
	return d.explain(call, driverError(result))
}

// tensorMap describes a tensor to the unit that copies boxes of it into shared memory.
type tensorMap = C.TensorMap

// encodedMap is a tensor map as the GPU reads it.
type encodedMap [C.sizeof_CUtensorMap]byte

// newTensorMap describes a tensor of (batch, heads, length, size) in boxes of so many rows of rowBytes.
func newTensorMap(t rows, shape [4]int, rowBytes, boxRows int, e element) tensorMap {
	kind, size := mapTypes[e].kind, mapTypes[e].size
	m := tensorMap{data: C.uint64_t(t.data), columns: C.uint32_t(rowBytes / size), rows: C.uint32_t(boxRows),
		swizzle: C.uint32_t(rowBytes), _type: kind}
	for i, n := range []int{shape[3], shape[2], shape[1], shape[0]} {
		m.dims[i] = C.uint64_t(n)
	}
	for i, stride := range []int64{t.row, t.head, t.batch} {
		m.strides[i] = C.uint64_t(int(stride) * size)
	}
	return m
}

// mapTypes are the types of elements as tensor maps know them, and their bytes.
var mapTypes = [...]struct {
	kind C.uint32_t
	size int
}{
	elementF32:  {C.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4},
	elementBF16: {C.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2},
	elementF16:  {C.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2},
}

// encode makes a map of its description.
func encode(context cu.CUContext, m tensorMap) (encoded encodedMap, err error) {
	if result := C.encode(rawContext(context), &m, (*C.uchar)(&encoded[0])); result != 0 {
		return encoded, fmt.Errorf("cuTensorMapEncodeTiled(%+v): %w", m, driverError(result))
	}
	return encoded, nil
}

// launchKernel queues a kernel. arguments points to the struct that it takes by value after the maps.
func launchKernel(context cu.CUContext, f cu.Function, stream cu.Stream, s launchShape, maps []encodedMap, arguments unsafe.Pointer) error {
	var first *C.uchar
	if len(maps) > 0 {
		first = (*C.uchar)(&maps[0][0])
	}
	result := C.launch(rawContext(context), rawFunction(f), C.uint32_t(s.grid[0]), C.uint32_t(s.grid[1]), C.uint32_t(s.grid[2]),
		C.uint32_t(s.threads), C.uint32_t(s.sharedBytes), rawStream(stream), first, C.int(len(maps)), arguments)
	if result != 0 {
		return fmt.Errorf("cuLaunchKernel of %v: %w", &s, driverError(result))
	}
	return nil
}

// limitSharedMemory allows a kernel more dynamic shared memory than the 48 KiB that every kernel may have.
func limitSharedMemory(context cu.CUContext, f cu.Function, bytes int) error {
	if result := C.limitSharedMemory(rawContext(context), rawFunction(f), C.int(bytes)); result != 0 {
		return fmt.Errorf("cuFuncSetAttribute(%d bytes of dynamic shared memory): %w", bytes, driverError(result))
	}
	return nil
}

// cu keeps its handles to itself. Each of these types is a struct of one handle.
func rawContext(c cu.CUContext) C.CUcontext  { return *(*C.CUcontext)(unsafe.Pointer(&c)) }
func rawFunction(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }
func rawStream(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func rawEvent(e cu.Event) C.CUevent          { return *(*C.CUevent)(unsafe.Pointer(&e)) }
