// What every attention kernel is told about its problem. The host's mirror is arguments.go: a field
// changes in both.
//
// Tensors are (batch, heads, length, head size) with any strides and a contiguous last axis. Packed
// sequences lie end to end along the length axis of a batch of one.
#pragma once
#include <stdint.h>

// Rows is a tensor whose last axis is contiguous; strides are in elements. A batch stride of 0 says
// that all of q's batch items share one of k and v.
struct Rows {
  void* data;
  int64_t batch, head, row;
};

enum Causal : int32_t { NotCausal = 0, CausalBottomRight = 1, CausalTopLeft = 2 };
enum Element : int32_t { ElementF32 = 0, ElementBF16 = 1, ElementF16 = 2 };

struct AttentionArguments {
  Rows q, k, v, o;        // o: forward only
  Rows dO, dQ, dK, dV;    // backward only
  // (batch, heads, sq) row-major, natural logarithms; forward may be given none
  float* lse;
  const float* delta;     // (batch, heads, sq) row-major; backward only
  // backward's scratch: float32 sums of dQ in an order that the kernels agree on, zero at launch
  float* dQSum;
  int32_t* counters;      // scratch for schedulers and ordered sums, zero at launch and left zero

  // null for none; element (n, h, i, j) lies at n·biasSequence + h·biasHead + i·biasRow +
  // j·biasColumn
  const void* bias;
  // null for none; laid out by dBiasSequence, ..., float32 sums if dBiasSums
  void* dBias;
  const float* sinks;     // (heads), null for none
  const float* slopes;    // (heads), null for none
  const int32_t* qLens;   // (sequences + 1) cumulative lengths, null where sequences are not packed
  const int32_t* kvLens;
  // (sequences) rows of k and v that each batch item has, null for sk and where packed
  const int32_t* keyLengths;

  // in elements, 0 along an axis that the bias broadcasts
  int64_t biasSequence, biasHead, biasRow;
  int64_t dBiasSequence, dBiasHead, dBiasRow;
  int32_t biasColumn, dBiasColumn;             // 1, or 0 where all keys share an element

  int32_t sequences;      // batch, or the number of packed sequences
  int32_t heads, keyHeads;
  // rows of the tensors' length axes: all sequences together where they are packed
  int32_t sq, sk;
  int32_t longestQ, longestK; // of one sequence
  int32_t d, dv;          // sizes of a head; kernels made for larger ones see zeros beyond

  float scale, softCap;   // softCap 0 for none
  float scaleInCap;       // scale / softCap
  int32_t causal;         // Causal
  int32_t left, right;    // window, -1 unlimited
  int32_t shift;          // of the window along the keys
  uint32_t dropThreshold; // a random number of 16 bits under it drops its element; 0 for no dropout
  uint32_t dropKey0, dropKey1, dropStep;
  float keepScale;        // 1/(1-p)
  int32_t biasElement;    // Element of bias, and of dBias where it is not summed
  int32_t dBiasSums;      // dBias is float32 and several scores add to one element
  int32_t deterministic;
  int32_t biasMapped;     // a tensor map describes the bias, for kernels that take one
};
