"""Compares Stheno's matrix product with NumPy's OpenBLAS, turn by turn. See README.md."""

import ctypes
import statistics
import sys
import time

import numpy as np

SHAPES = [  # m, n, k, A stored transposed, B stored transposed
    (64, 64, 64, 0, 0), (128, 128, 128, 0, 0), (256, 256, 256, 0, 0), (512, 512, 512, 0, 0), (1024, 1024, 1024, 0, 0),
    (1000, 1000, 1000, 0, 0), (768, 3072, 768, 0, 0), (768, 3072, 768, 0, 1), (768, 768, 3072, 0, 0), (768, 768, 3072, 1, 0),
    (768, 384, 128, 0, 0), (768, 512, 128, 0, 0), (768, 128, 512, 0, 0), (512, 65, 128, 0, 0), (128, 512, 768, 1, 0),
    (1, 3072, 768, 0, 0), (1, 3072, 768, 0, 1), (8, 3072, 768, 0, 0), (3072, 1, 768, 0, 0),
]

library, threads = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
library.stheno_sgemm.argtypes = [ctypes.c_longlong] * 3 + [ctypes.c_bool] * 2 + [ctypes.c_void_p] * 3 + [ctypes.c_longlong]
library.stheno_sgemm.restype = ctypes.c_bool
library.stheno_peak.argtypes, library.stheno_peak.restype = [ctypes.c_longlong], ctypes.c_float
clock = time.thread_time if threads == 1 else time.perf_counter


def measure(shape):
    m, n, k, ta, tb = shape
    random = np.random.default_rng(1)
    a = random.standard_normal((k, m) if ta else (m, k), dtype=np.float32)
    b = random.standard_normal((n, k) if tb else (k, n), dtype=np.float32)
    ours, theirs = np.zeros((m, n), np.float32), np.zeros((m, n), np.float32)
    flops = 2 * m * n * k

    def stheno():
        assert library.stheno_sgemm(m, n, k, ta, tb, a.ctypes.data, b.ctypes.data, ours.ctypes.data, threads)

    def openblas():
        np.matmul(a.T if ta else a, b.T if tb else b, out=theirs)

    def peak():
        library.stheno_peak(200000)

    calls = max(1, int(3e7 / flops))  # so that a turn is long beside the clock's step
    rates = {stheno: [], openblas: [], peak: []}
    for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else max(15, min(100, int(2e10 / flops / calls)))):
        for f, work in ((peak, 384 * 200000), (stheno, flops), (openblas, flops)):
            repeat = 1 if f is peak else calls
            start = clock()
            for _ in range(repeat):
                f()
            rates[f].append(work * repeat / (clock() - start))
    scale = np.abs(theirs).max()
    assert np.abs(ours - theirs).max() <= 1e-4 * scale, "the products differ"
    ratio = statistics.median(s / o for s, o in zip(rates[stheno], rates[openblas]))
    best = {f: max(r) for f, r in rates.items()}
    top = best[peak] * threads
    print(f"| {m}×{n}×{k}{' Aᵀ' if ta else ''}{' Bᵀ' if tb else ''} | {best[stheno]/1e9:.1f} | {100*best[stheno]/top:.0f}% "
          f"| {best[openblas]/1e9:.1f} | {100*best[openblas]/top:.0f}% | {best[stheno]/best[openblas]:.2f} | {ratio:.2f} |", flush=True)


print("| m×n×k | Stheno GFLOP/s | of peak | OpenBLAS GFLOP/s | of peak | ratio of bests | median of ratios |")
print("|---|---|---|---|---|---|---|")
for shape in SHAPES:
    measure(shape)
