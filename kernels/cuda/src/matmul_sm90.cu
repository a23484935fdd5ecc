// One variant of matrix products for sm_90a. Compile with -arch=compute_90a and
//   -DKERNEL=name -DELEMENT_BF16 or -DELEMENT_F16, -DIN_TURNS=, -DROW_BLOCKS=, -DTILE_COLUMNS=,
//   -DSTAGES=, -DOUT_BUFFERS=, -DCLUSTER=, -DSPLIT_PARTS=, -DSHARES_A=, -DOPERANDS= as MatMulShape
//   takes them,
//   -DA_COLUMNS where A's columns are contiguous rather than its rows,
//   -DB_ROWS where B's rows are rather than its columns,
//   -DEPILOGUE= as matmul_epilogue_sm90.cuh has them,
//   -DGROUPED=1 where A's rows belong to groups (grouped.cuh), 2 where the depth does.
#include "matmul_epilogue_sm90.cuh"

#ifndef GROUPED
#define GROUPED 0
#endif

using Shape = MatMulShape<IN_TURNS, ROW_BLOCKS, TILE_COLUMNS, STAGES, OUT_BUFFERS, CLUSTER, SPLIT_PARTS, SHARES_A, OPERANDS, EPILOGUE, GroupedBy(GROUPED)>;
static_assert(Shape::SharedBytes == SHARED_BYTES, "the table of variants has other tiles");
#ifdef A_COLUMNS
constexpr bool AColumns = true;
#else
constexpr bool AColumns = false;
#endif
#ifdef B_ROWS
constexpr bool BRows = true;
#else
constexpr bool BRows = false;
#endif

struct Arguments {
#if GROUPED
  GroupedArguments groups;
#else
  MatMulArguments product;
#endif
  MatMulSchedule schedule;
};

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1) __cluster_dims__(CLUSTER, 1, 1)
KERNEL(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
       const __grid_constant__ CUtensorMap pre, const __grid_constant__ CUtensorMap a2, const __grid_constant__ CUtensorMap b2,
       const __grid_constant__ CUtensorMap a3, const __grid_constant__ CUtensorMap b3, const __grid_constant__ Arguments g) {
  const Maps maps = {{&a, &a2, &a3}, {&b, &b2, &b3}, &c, &pre};
#if GROUPED
  multiply<Shape, AColumns, BRows>(maps, g.groups.g, g.schedule, &g.groups);
#else
  multiply<Shape, AColumns, BRows>(maps, g.product, g.schedule, nullptr);
#endif
}
