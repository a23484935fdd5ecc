// Copies and conversions of tensors with any strides. A module has the conversions from and to
// float64, -DFLOAT64, or all others.
#include "elementwise.cuh"

// Copies are several copies in one launch: one for each row of blocks.
struct Copies {
  Elementwise list[4];
};

// copy takes as many elements at once as 16 bytes hold of the larger type. It rounds to nearest,
// ties to even; float64 goes to a 16-bit type by way of float32.
template <class To, class From> __device__ __forceinline__ void copy(const Elementwise& e) {
  constexpr int width = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  eachGroup<2, width>(e, [&](auto n, const int64_t* at) {
    To* to = (To*)e.data[0] + at[0];
    const From* from = (const From*)e.data[1] + at[1];
    if constexpr (std::is_same<To, From>::value) {
      return Stored<To, n>{to, *(const Piece<To, n>*)from};
    } else {
      float x[n];
      load<n>(from, x);
      return storing<n>(to, x);
    }
  });
}

#define COPY(name, To, From) \
  extern "C" __global__ void name(const __grid_constant__ Copies c) { copy<To, From>(c.list[blockIdx.y]); }
#ifdef FLOAT64
COPY(copy_f32_f64, float, double)
COPY(copy_f64_f32, double, float)
COPY(copy_f64_bf16, double, __nv_bfloat16)
COPY(copy_f64_f16, double, __half)
COPY(copy_bf16_f64, __nv_bfloat16, double)
COPY(copy_f16_f64, __half, double)
#else
COPY(copy_2, uint16_t, uint16_t)
COPY(copy_4, uint32_t, uint32_t)
COPY(copy_8, uint64_t, uint64_t)
COPY(copy_f32_bf16, float, __nv_bfloat16)
COPY(copy_f32_f16, float, __half)
COPY(copy_bf16_f32, __nv_bfloat16, float)
COPY(copy_f16_f32, __half, float)
COPY(copy_bf16_f16, __nv_bfloat16, __half)
COPY(copy_f16_bf16, __half, __nv_bfloat16)

#define FILL(name, T) \
  extern "C" __global__ void name(const __grid_constant__ Elementwise e) { fill<T>(e, (T)e.bits); }
FILL(fill_2, uint16_t)
FILL(fill_4, uint32_t)
FILL(fill_8, uint64_t)
#endif
