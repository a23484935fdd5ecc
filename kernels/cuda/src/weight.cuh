// One of the matrices that lie side by side in a product's B.
#pragma once
#include "elements.cuh"

// Weight is the host's rowsWeight in matmul_rows.go.
struct Weight {
  const void* bias;        // (columns) or null
  int32_t first, columns;  // of C
  int32_t biasElement, reserved;
};
