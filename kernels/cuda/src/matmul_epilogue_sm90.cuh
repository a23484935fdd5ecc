// What matrix products for sm_90a do with the sums of a tile before they leave. matmul_sm90.cuh
// says what an epilogue has.
//
//   Activate<act>      C = act(A·B + bias), Pre = A·B + bias     or     C ← C + A·B + bias
//   TimesSlope<act>    C = (A·B)·act'(Pre)
//   Gate               C = silu(A·B)·(A·BUp), both products are Pre
//   GateGradient       C = A·B times Up·silu'(Pre), and times silu(Pre)
#pragma once
#include "matmul_sm90.cuh"

// ---- activations, and no epilogue at all

// Waiting is a tile of C that is computed, and leaves box by box beside the products of the next
// one. A thread has what it has of a box one after the other.
template <class Shape> struct Waiting {
  uint32_t x[Shape::Sums / 2];
  int row, column, end, inner, outer;
  int next = Shape::Boxes;  // box to leave

  // leaveNext lets the next box leave, if there is one.
  DEVICE void leaveNext(const Consumer<Shape>& c, typename Consumer<Shape>::Out& leaving) {
#pragma unroll
    for (int box = 0; box < Shape::Boxes; box++)
      if (box == next) c.leaveBox(c.mapC, x + Shape::Chunk / 4 * box, leaving, column + Shape::Chunk * box, row, end, inner, outer);
    next++;
  }
  DEVICE void leaveAll(const Consumer<Shape>& c, typename Consumer<Shape>::Out& leaving) {
    while (next < Shape::Boxes) leaveNext(c, leaving);
  }
};

// Activate applies an activation to 16-bit results that leave by TMA. Output applies any to other
// results.
template <Activation act> struct Activate {
  static constexpr bool TWO_FACTORS = false, BRINGS = false;

  template <class Shape> struct Of {
    using Consumer = ::Consumer<Shape>;
    using Out = typename Consumer::Out;
    Waiting<Shape> waiting;

    DEVICE void beside(const Consumer& c, Out& leaving) {
      if constexpr (Shape::Waits) waiting.leaveNext(c, leaving);
    }
    DEVICE void end(const Consumer& c, Out& leaving) {
      if constexpr (Shape::Waits) waiting.leaveAll(c, leaving);
    }
    DEVICE void deliver(const Consumer& c, const Piece& p, Out& leaving) {
      const MatMulArguments& g = c.g;
      if (g.bias || Shape::Scaled) c.sync();
      const int outer = p.item / g.inner, inner = c.innerOf(p), end = c.endOf(p);
#pragma unroll
      for (int b = 0; b < Shape::Blocks; b++) {
        const int row = c.rowOf(p, b);
        if (row >= end) break;
        float(&sum)[Shape::Sums] = c.sum[b];
        c.scaleAndShift(b);
        if (Shape::Waits && c.s.way == Halves && !g.pre.data && act == NoActivation) {
          waiting.leaveAll(c, leaving);
#pragma unroll
          for (int i = 0; i < Shape::Sums; i += 2) waiting.x[i / 2] = pack(sum[i], sum[i + 1]);
          waiting.row = row, waiting.column = p.column, waiting.end = end, waiting.inner = inner, waiting.outer = outer, waiting.next = 0;
        } else if (c.s.way == Halves) {
          if (g.pre.data) c.leaveAsHalves(c.mapPre, sum, leaving, p.column, row, end, inner, outer);
          if constexpr (act != NoActivation) {
#pragma unroll
            for (int i = 0; i < Shape::Sums; i++) sum[i] = activated(act, sum[i]);
          }
          c.leaveAsHalves(c.mapC, sum, leaving, p.column, row, end, inner, outer);
        } else {
          c.leaveAsFloats(p, sum, leaving, row, inner, outer);
        }
      }
    }
  };
};

// ---- what comes into the buffers from which C leaves

// TimesSlope multiplies by act'(Z), Z being Pre. A box of Z comes into a buffer of the warp's, two
// boxes ahead, and the box of C takes its place. Boxes that lie beyond the edges come as zeros and
// leave for nowhere.
template <Activation act> struct TimesSlope {
  static constexpr bool TWO_FACTORS = false, BRINGS = true;

  template <class Shape> struct Of {
    using Consumer = ::Consumer<Shape>;
    using Out = typename Consumer::Out;
    uint32_t passed = 0;  // boxes through the warp's buffers

    DEVICE void beside(const Consumer&, Out&) {}
    DEVICE void end(const Consumer&, Out&) {}
    DEVICE void deliver(const Consumer& c, const Piece& p, const Out& leaving) {
      static_assert(!Shape::Scaled && Shape::OutBuffers == 4);
      constexpr int Ahead = 2, Passing = Shape::Blocks * Shape::Boxes;
      const MatMulArguments& g = c.g;
      const uint32_t buffers = leaving.buffers, arrived = c.arrivedAt();
      const int outer = p.item / g.inner, inner = p.item % g.inner, lane = threadIdx.x & 31;
      const auto rowOf = [&](int n) { return c.rowOf(p, n % Shape::Blocks); };
      const auto bring = [&](int n) {
        const uint32_t at = (passed + n) % 4;
        if (n < Passing && lane == 0) {
          storeWait<4 - Ahead - 1>();
          barrierExpect(arrived + 8 * at, Shape::OutBytes);
          loadBox(buffers + at * Shape::OutBytes, c.mapPre, arrived + 8 * at, p.column + n / Shape::Blocks * 64, rowOf(n), inner, outer);
        }
      };
      sharedToAsync();  // sums of others may have come through the buffers
      __syncwarp();
#pragma unroll
      for (int n = 0; n < Ahead; n++) bring(n);
      float total[16];
#pragma unroll
      for (int n = 0; n < Passing; n++) {
        const int box = n / Shape::Blocks, block = n % Shape::Blocks;
        bring(n + Ahead);
        const uint32_t at = (passed + n) % 4, buffer = buffers + at * Shape::OutBytes;
        barrierWait(arrived + 8 * at, (passed + n) / 4 & 1);
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
          uint32_t z[4];
          const uint32_t place = buffer + lane % 16 * 128 + ((i / 2 + lane / 16) ^ (lane & 7)) * 16;
          loadMatrix4(z, place);
#pragma unroll
          // rows of lane / 4, and those 8 below them, of two groups of 8 columns
          for (int j = 0; j < 4; j++) {
            const float2 pair = unpack(z[j]);
            const float* x = &c.sum[block][32 * box + 2 * (i + j)];
            const float low = x[0] * slope<act>(pair.x), high = x[1] * slope<act>(pair.y);
            float* to = &total[(i + j) / 2 * 2];
            const bool begins = block == 0 && j % 2 == 0;
            to[0] = begins ? low : to[0] + low, to[1] = begins ? high : to[1] + high;
            z[j] = pack(low, high);
          }
          storeMatrix4(place, z[0], z[1], z[2], z[3]);
        }
        sharedToAsync();
        __syncwarp();
        if (lane == 0) {
          storeBox(c.mapC, buffer, p.column + box * 64, rowOf(n), inner, outer);
          storeCommit();
        }
        if (block == Shape::Blocks - 1 && g.columnSums) sumColumns(c, p, box, total);
      }
      passed += Passing;
    }

    // sumColumns writes the sums of 64 columns over the warp's rows. Threads that have the same
    // columns of other rows share them out.
    static DEVICE void sumColumns(const Consumer& c, const Piece& p, int box, float (&x)[16]) {
      const int column = p.column + box * 64 + threadIdx.x % 32 * 2;
      addHalves<8>(x), addHalves<4>(x), addHalves<2>(x);
      if (p.row >= c.g.rows || column >= c.g.columns) return;
      const int64_t part = (int64_t)p.row / Shape::TileRows * 4 + threadIdx.x % 128 / 32;
      *(float2*)(c.g.columnSums + part * c.g.columns + column) = make_float2(x[0], x[1]);
    }

    // addHalves leaves a thread the sums of half of what it has, and its partner those of the other
    // half.
    template <int half> static DEVICE void addHalves(float (&x)[16]) {
      const bool upper = threadIdx.x & 2 * half;
#pragma unroll
      for (int i = 0; i < half; i++) {
        const float other = __shfl_xor_sync(~0u, upper ? x[i] : x[i + half], 2 * half);
        x[i] = (upper ? x[i + half] : x[i]) + other;
      }
    }
  };
};

// GateGradient gives the gradients of silu(Pre)·Up. Pre and Up are places 0 and 1 of the inner axis
// of their map, and so are the gradients. A box of each comes into two of the warp's buffers, while
// those before it are computed, and the gradients take their places.
struct GateGradient {
  static constexpr bool TWO_FACTORS = false, BRINGS = true;

  template <class Shape> struct Of {
    using Consumer = ::Consumer<Shape>;
    using Out = typename Consumer::Out;
    uint32_t passed = 0;  // pairs of boxes through the warp's buffers

    DEVICE void beside(const Consumer&, Out&) {}
    DEVICE void end(const Consumer&, Out&) {}
    DEVICE void deliver(const Consumer& c, const Piece& p, const Out& leaving) {
      static_assert(!Shape::Scaled && Shape::OutBuffers == 4);
      constexpr int Passing = Shape::Blocks * Shape::Boxes;
      const uint32_t buffers = leaving.buffers, arrived = c.arrivedAt();
      const int lane = threadIdx.x & 31;
      const auto rowOf = [&](int n) { return c.rowOf(p, n % Shape::Blocks); };
      const auto columnOf = [&](int n) { return p.column + n / Shape::Blocks * 64; };
      const auto bring = [&](int n) {
        const uint32_t pair = (passed + n) % 2;
        if (n < Passing && lane == 0) {
          storeWait<0>();
          barrierExpect(arrived + 8 * pair, 2 * Shape::OutBytes);
          for (int of = 0; of < 2; of++)
            loadBox(buffers + (2 * pair + of) * Shape::OutBytes, c.mapPre, arrived + 8 * pair, columnOf(n), rowOf(n), of, 0);
        }
        __syncwarp();
      };
      sharedToAsync();  // sums of others may have come through the buffers
      __syncwarp();
      bring(0);
#pragma unroll
      for (int n = 0; n < Passing; n++) {
        const int box = n / Shape::Blocks, block = n % Shape::Blocks;
        const uint32_t pair = (passed + n) % 2, buffer = buffers + 2 * pair * Shape::OutBytes;
        barrierWait(arrived + 8 * pair, (passed + n) / 2 & 1);
        bring(n + 1);
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
          uint32_t pre[4], up[4];
          const uint32_t place = buffer + lane % 16 * 128 + ((i / 2 + lane / 16) ^ (lane & 7)) * 16;
          loadMatrix4(pre, place);
          loadMatrix4(up, place + Shape::OutBytes);
#pragma unroll
          for (int j = 0; j < 4; j++) {
            const float2 z = unpack(pre[j]), u = unpack(up[j]);
            const float* x = &c.sum[block][32 * box + 2 * (i + j)];
            const float low = sigmoid(-1.4426950409f * z.x), high = sigmoid(-1.4426950409f * z.y);
            pre[j] = pack(x[0] * u.x * slopeOf(low, z.x), x[1] * u.y * slopeOf(high, z.y));
            up[j] = pack(x[0] * (z.x * low), x[1] * (z.y * high));
          }
          storeMatrix4(place, pre[0], pre[1], pre[2], pre[3]);
          storeMatrix4(place + Shape::OutBytes, up[0], up[1], up[2], up[3]);
        }
        sharedToAsync();
        __syncwarp();
        if (lane == 0) {
          for (int of = 0; of < 2; of++) storeBox(c.mapC, buffer + of * Shape::OutBytes, columnOf(n), rowOf(n), of, 0);
          storeCommit();
        }
      }
      passed += Passing;
    }
  };
};

// ---- two factors

// Gate lets both products leave as Pre, places 0 and 1 of the inner axis of its map. A thread has
// both sums of an element of C.
struct Gate {
  static constexpr bool TWO_FACTORS = true, BRINGS = false;

  template <class Shape> struct Of {
    using Consumer = ::Consumer<Shape>;
    using Out = typename Consumer::Out;

    DEVICE void beside(const Consumer&, Out&) {}
    DEVICE void end(const Consumer&, Out&) {}
    DEVICE void deliver(const Consumer& c, const Piece& p, Out& leaving) {
      constexpr int OfBox = Shape::Chunk / 2, Half = Shape::Sums / 2;
#pragma unroll
      for (int b = 0; b < Shape::Blocks; b++) {
        const int row = c.rowOf(p, b), end = c.endOf(p);
        if (row >= end) break;
#pragma unroll
        for (int box = 0; box < Shape::Boxes / 2; box++) {
          const float *gate = &c.sum[b][OfBox * box], *up = gate + Half;
          const int column = p.column + Shape::Chunk * box;
          uint32_t x[OfBox / 2];
#pragma unroll
          for (int i = 0; i < OfBox / 2; i++) x[i] = pack(gate[2 * i], gate[2 * i + 1]);
          c.leaveBox(c.mapPre, x, leaving, column, row, end, 0, 0);
#pragma unroll
          for (int i = 0; i < OfBox / 2; i++) x[i] = pack(up[2 * i], up[2 * i + 1]);
          c.leaveBox(c.mapPre, x, leaving, column, row, end, 1, 0);
#pragma unroll
          for (int i = 0; i < OfBox / 2; i++) x[i] = pack(silu(gate[2 * i]) * up[2 * i], silu(gate[2 * i + 1]) * up[2 * i + 1]);
          c.leaveBox(c.mapC, x, leaving, column, row, end, 0, 0);
        }
      }
    }
  };
};
