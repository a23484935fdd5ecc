// The tensor map of the driver's header of this name: see cuda_fp16.h here.
#pragma once

struct alignas(64) CUtensorMap {
  unsigned long long opaque[16];
};
