"""Products by algorithms of cuBLASLt that one chooses, where torch.mm takes the one that it finds best: the peer of kernels that any
device since Ampere can run is the quickest algorithm that does not use Hopper's instructions."""
import ctypes, re, statistics
import torch

MMA_SYNC = 21  # an algorithm's number: the quickest of 16-bit operands on an H200 among those for older devices
TILES = {"128x128": 20, "128x256": 23, "256x128": 24}
STAGES = range(7, 25)  # from 32 to 128 of the depth, 1 to 6 of each
SHARES = (1, 2, 3, 4, 5, 6, 8, 11)  # of the depth
BF16, FLOAT32, COMPUTE_FLOAT32, WORKSPACE = 14, 0, 68, 256 << 20
TRANSPOSE_A, TRANSPOSE_B = 3, 4                       # attributes of a product
TILE, SHARE_COUNT, ADD_SHARES, STAGE = 1, 2, 3, 6     # of an algorithm
ADD_IN_FLOAT32 = 2


def library():
    torch.mm(torch.ones(8, 8, device="cuda"), torch.ones(8, 8, device="cuda"))  # which loads it
    with open("/proc/self/maps") as maps:
        return ctypes.CDLL(re.search(r"\S*/libcublasLt\.so\S*", maps.read())[0])


class Product:
    """C = A·B of bfloat16 matrices, each of which lies by rows or transposed, and C by rows: to a library of columns, Cᵀ = Bᵀ·Aᵀ."""

    def __init__(self):
        self.lib, self.handle = library(), ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))
        self.workspace = torch.empty(WORKSPACE, device="cuda", dtype=torch.uint8)

    def call(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: status {status}")

    def layout(self, matrix):
        rows, columns, transposed = (*matrix.shape, matrix.stride(1) != 1)
        at, across, along = ctypes.c_void_p(), matrix.stride(1 if transposed else 0), rows if transposed else columns
        self.call("cublasLtMatrixLayoutCreate", ctypes.byref(at), BF16, ctypes.c_uint64(along), ctypes.c_uint64(columns if transposed else rows),
                  ctypes.c_int64(across))
        return at, transposed

    def fastest(self, sets, timed):
        """Returns the milliseconds of the quickest form of the algorithm, and which it is. sets are tuples of A, B and C, that calls
        take turns among; timed times a function."""
        a, b, c = sets[0]
        (of_a, a_lies), (of_b, b_lies), (of_c, _) = self.layout(a), self.layout(b), self.layout(c)
        problem = ctypes.c_void_p()
        self.call("cublasLtMatmulDescCreate", ctypes.byref(problem), COMPUTE_FLOAT32, FLOAT32)
        for attribute, transposed in ((TRANSPOSE_A, b_lies), (TRANSPOSE_B, a_lies)):
            value = ctypes.c_int32(transposed)
            self.call("cublasLtMatmulDescSetAttribute", problem, attribute, ctypes.byref(value), ctypes.c_size_t(4))
        one, zero, turn = ctypes.c_float(1), ctypes.c_float(0), [0]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def form(tile, stage, shares):
            """Returns a function that runs a form of the algorithm, or nothing where there is no such form."""
            algorithm, result = (ctypes.c_uint64 * 8)(), (ctypes.c_uint64 * 16)()
            self.call("cublasLtMatmulAlgoInit", self.handle, COMPUTE_FLOAT32, FLOAT32, BF16, BF16, BF16, BF16, MMA_SYNC, algorithm)
            for attribute, number in ((TILE, tile), (STAGE, stage), (SHARE_COUNT, shares), (ADD_SHARES, ADD_IN_FLOAT32 if shares > 1 else 0)):
                value = ctypes.c_int32(number)
                if self.lib.cublasLtMatmulAlgoConfigSetAttribute(algorithm, attribute, ctypes.byref(value), ctypes.c_size_t(4)):
                    return None
            if self.lib.cublasLtMatmulAlgoCheck(self.handle, problem, of_b, of_a, of_c, of_c, algorithm, result) or result[8] > WORKSPACE:
                return None

            def run():
                a, b, c = sets[turn[0] % len(sets)]
                turn[0] += 1
                pointer = lambda t: ctypes.c_void_p(t.data_ptr())
                self.call("cublasLtMatmul", self.handle, problem, ctypes.byref(one), pointer(b), of_b, pointer(a), of_a, ctypes.byref(zero), pointer(c), of_c,
                          pointer(c), of_c, algorithm, pointer(self.workspace), ctypes.c_size_t(WORKSPACE), stream)
            return run

        def best(forms):
            found = []
            for which in forms:
                run = form(*which)
                if run:
                    found.append((timed(run, together=2, rounds=3, warm=0.002), which, run))
            return sorted(found, key=lambda x: x[0])[:3]
        few = best([(tile, stage, 1) for tile in TILES.values() for stage in STAGES])
        if a_lies:  # gradients of weights are deep
            few = best([(tile, stage, shares) for _, (tile, stage, _), _ in few for shares in SHARES])
        return min((timed(run), which) for _, which, run in few)
