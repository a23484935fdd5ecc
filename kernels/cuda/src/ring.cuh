// A place in a ring of buffers in shared memory, whose barriers tell when one is full or empty.
#pragma once
#include "hopper.cuh"

// Ring is a place in a ring of buffers, with the parity of the phase that a wait there waits for.
template <int Stages> struct Ring {
  uint32_t stage = 0, parity;
  DEVICE Ring(uint32_t parity) : parity(parity) {}
  DEVICE void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  DEVICE void advance(uint32_t n) {
    const uint32_t to = stage + n;
    parity ^= to / Stages & 1;
    stage = to % Stages;
  }
};
