// SwiGLU and its derivatives, of one element: silu(gate)·up.
#pragma once

// Numbers that are rounded to 16 bits take the exponential and the quotient of the special function
// unit.
template <bool exact> __device__ __forceinline__ float sigmoid(float x) {
  return exact ? 1 / (1 + expf(-x)) : __fdividef(1, 1 + __expf(-x));
}

// complement is 1 − σ(x), of which s is σ(x).
template <bool exact> __device__ __forceinline__ float complement(float x, float s) { return exact ? sigmoid<exact>(-x) : 1 - s; }

template <bool exact> __device__ __forceinline__ float swigluOf(float gate, float up) { return up * (gate * sigmoid<exact>(gate)); }

// swigluGradients puts the gradient of gate into up, and that of up into gate.
template <bool exact> __device__ __forceinline__ void swigluGradients(float& gate, float& up, float dy) {
  const float s = sigmoid<exact>(gate), silu = gate * s;
  up *= dy * (s + silu * complement<exact>(gate, s));
  gate = dy * silu;
}
