// The integers that our kernels use: see cuda_fp16.h here.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define INT32_MAX 0x7fffffff

// The compiler knows neither of these.
constexpr float __builtin_huge_valf() { return __builtin_bit_cast(float, 0x7f800000); }
#define INFINITY __builtin_huge_valf()
