//go:build gpu

package driver

// What gorgonia.org/cu does not offer: a launch whose arguments are tensor maps and a struct by
// value, and the limit of dynamic shared memory. Each function sets the context itself: a call from
// Go runs on any thread.

/*
#include <stdint.h>
#include <string.h>
#include <cuda.h>

// A tensor as boxes of rows × columns: four axes from the innermost, strides in bytes from the
// second.
typedef struct {
  uint64_t data, dims[4], strides[3];
  uint32_t columns, rows, swizzle, type;
} TensorMap;

enum { MaxMaps = 8 };

// encode makes the 128 bytes that the GPU reads of a description. They need an alignment that Go
// does not promise.
static CUresult encode(CUcontext context, const TensorMap* m, unsigned char* to) {
  _Alignas(128) CUtensorMap map;
  const cuuint32_t box[4] = {m->columns, m->rows, 1, 1}, ones[4] = {1, 1, 1, 1};
  CUresult result = cuCtxSetCurrent(context);
  if (result) return result;
  result = cuTensorMapEncodeTiled(&map,
      (CUtensorMapDataType)m->type, 4, (void*)(uintptr_t)m->data,
      (const cuuint64_t*)m->dims, (const cuuint64_t*)m->strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      m->swizzle == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : m->swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  memcpy(to, &map, sizeof map);
  return result;
}

// launch passes the encoded maps by value, then the struct at arguments by value.
static CUresult launch(CUcontext context, CUfunction f, uint32_t x, uint32_t y, uint32_t z, uint32_t threads,
                       uint32_t sharedBytes, int dependent, int together, int cluster, CUstream stream, const unsigned char* maps, int count, void* arguments) {
  _Alignas(128) CUtensorMap aligned[MaxMaps];
  void* pointers[MaxMaps + 1];
  const CUresult result = cuCtxSetCurrent(context);
  if (result) return result;
  if (count) memcpy(aligned, maps, count * sizeof(CUtensorMap));
  for (int i = 0; i < count; i++) pointers[i] = &aligned[i];
  pointers[count] = arguments;
  if (!dependent && !together && !cluster) return cuLaunchKernel(f, x, y, z, threads, 1, 1, sharedBytes, stream, pointers, 0);
  CUlaunchAttribute attributes[2];
  memset(attributes, 0, sizeof attributes);
  int used = 0;
  if (together) {
    attributes[used].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[used++].value.cooperative = 1;
  } else if (dependent) {
    attributes[used].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[used++].value.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster) {
    attributes[used].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[used].value.clusterDim.x = cluster;
    attributes[used].value.clusterDim.y = attributes[used].value.clusterDim.z = 1;
    used++;
  }
  const CUlaunchConfig config = {x, y, z, threads, 1, 1, sharedBytes, stream, attributes, used};
  return cuLaunchKernelEx(&config, f, pointers, 0);
}

static CUresult limitSharedMemory(CUcontext context, CUfunction f, int bytes) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static CUresult preferSharedMemory(CUcontext context, CUfunction f) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
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
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// driverError is a result of the driver's other than success, by the name that its manual has for
// it.
type driverError C.CUresult

func (e driverError) Error() string { return C.GoString(C.nameOf(C.CUresult(e))) }

// check makes a result of the driver's an error that says of which call it is.
func (g *GPU) check(call string, result C.CUresult) error {
	if result == 0 {
		return nil
	}
	return g.explain(call, driverError(result))
}

// TensorMap describes a tensor to the unit that copies boxes of it into shared memory. It has four
// axes, from the innermost, whose elements lie side by side.
type TensorMap struct {
	Data    Address
	Type    MapType
	Dims    [4]int
	Strides [3]int // of the other axes, in bytes
	// A box has so many rows of so many columns. Swizzle is a row's bytes.
	Rows, Columns, Swizzle int
}

// MapType is a type of elements as tensor maps know it.
type MapType uint32

// The types of elements.
const (
	MapFloat32  MapType = C.CU_TENSOR_MAP_DATA_TYPE_FLOAT32
	MapBFloat16 MapType = C.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
	MapFloat16  MapType = C.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
	MapBytes    MapType = C.CU_TENSOR_MAP_DATA_TYPE_UINT8
)

// EncodedMap is a tensor map as the GPU reads it.
type EncodedMap [C.sizeof_CUtensorMap]byte

// tensorMaps are maps that were encoded: encoding one takes longer than finding it, and a step of
// training asks for those of the step before.
type tensorMaps struct {
	sync.Mutex
	encoded map[TensorMap]EncodedMap
}

// mostMaps is how many maps a device remembers before it begins anew.
const mostMaps = 1 << 12

// Encode finds a map, or encodes it.
func (g *GPU) Encode(t TensorMap) (EncodedMap, error) {
	m := &g.maps
	m.Lock()
	defer m.Unlock()
	if e, ok := m.encoded[t]; ok {
		return e, nil
	}
	e, err := encode(g.context, t)
	if err != nil {
		return e, err
	}
	if m.encoded == nil || len(m.encoded) == mostMaps {
		m.encoded = map[TensorMap]EncodedMap{}
	}
	m.encoded[t] = e
	return e, nil
}

// encode makes a map of its description.
func encode(context cu.CUContext, t TensorMap) (encoded EncodedMap, err error) {
	m := C.TensorMap{data: C.uint64_t(t.Data), columns: C.uint32_t(t.Columns), rows: C.uint32_t(t.Rows),
		swizzle: C.uint32_t(t.Swizzle), _type: C.uint32_t(t.Type)}
	for i, n := range t.Dims {
		m.dims[i] = C.uint64_t(n)
	}
	for i, stride := range t.Strides {
		m.strides[i] = C.uint64_t(stride)
	}
	if result := C.encode(rawContext(context), &m, (*C.uchar)(&encoded[0])); result != 0 {
		return encoded, fmt.Errorf("cuTensorMapEncodeTiled(%+v): %w", t, driverError(result))
	}
	return encoded, nil
}

// launchKernel queues a kernel, which may begin while the one before it runs or not. arguments
// points to the struct that it takes by value after the maps.
func launchKernel(context cu.CUContext, f cu.Function, stream cu.Stream, l *Launch, mayBegin bool, maps []EncodedMap, arguments unsafe.Pointer) error {
	dependent, together := C.int(0), C.int(0)
	if mayBegin {
		dependent = 1
	}
	if l.Together {
		together = 1
	}
	result := C.launch(rawContext(context), rawFunction(f), C.uint32_t(l.Grid[0]), C.uint32_t(l.Grid[1]), C.uint32_t(l.Grid[2]),
		C.uint32_t(l.Threads), C.uint32_t(l.SharedBytes), dependent, together, C.int(l.Cluster), rawStream(stream), firstOf(maps), C.int(len(maps)), arguments)
	if result != 0 {
		return fmt.Errorf("cuLaunchKernel of %v: %w", l, driverError(result))
	}
	return nil
}

func firstOf(maps []EncodedMap) *C.uchar {
	if len(maps) == 0 {
		return nil
	}
	return (*C.uchar)(&maps[0][0])
}

// limitSharedMemory allows a kernel more dynamic shared memory than the 48 KiB that every kernel
// may have.
func limitSharedMemory(context cu.CUContext, f cu.Function, bytes int) error {
	if result := C.limitSharedMemory(rawContext(context), rawFunction(f), C.int(bytes)); result != 0 {
		return fmt.Errorf("cuFuncSetAttribute(%d bytes of dynamic shared memory): %w", bytes, driverError(result))
	}
	return nil
}

// preferSharedMemory gives a kernel's multiprocessors as much shared memory as they have. Kernels
// that overlap need one division of it and the cache: another one waits until a multiprocessor is
// empty.
func preferSharedMemory(context cu.CUContext, f cu.Function) error {
	if result := C.preferSharedMemory(rawContext(context), rawFunction(f)); result != 0 {
		return fmt.Errorf("cuFuncSetAttribute(the most shared memory): %w", driverError(result))
	}
	return nil
}

// cu keeps its handles to itself. Each of these types is a struct of one handle.
func rawContext(c cu.CUContext) C.CUcontext  { return *(*C.CUcontext)(unsafe.Pointer(&c)) }
func rawFunction(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }
func rawStream(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func rawEvent(e cu.Event) C.CUevent          { return *(*C.CUevent)(unsafe.Pointer(&e)) }
