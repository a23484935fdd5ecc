"""Scores and masks that users write, in PyTorch: compiled FlexAttention on what BenchmarkAttentionScores of kernels/cuda measures.

    python score.py [HEAD_SIZE...]

16k tokens of 8192 a sequence, hidden 2048, bfloat16, in TFLOP/s a visible pair.
"""

import sys
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BATCH, LENGTH, HIDDEN, WINDOW, PREFIX = 2, 8192, 2048, 1024, 1024


def documents():
    ids, n = [], 0
    while len(ids) < LENGTH:
        ids += [n] * (300 + n * 7919 % 1500)
        n += 1
    return torch.tensor(ids[:LENGTH], device="cuda")


def milliseconds(call, rounds=3, calls=5):
    call()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / calls)
    return best


def main():
    ids = documents()
    for size in [int(x) for x in sys.argv[1:]] or [64, 128]:
        heads = HIDDEN // size
        slopes = torch.tensor([1 / 2 ** (8 * (h + 1) // heads) for h in range(heads)], device="cuda")
        relative = torch.randn(heads, 2 * LENGTH - 1, device="cuda", requires_grad=True)
        causal = lambda b, h, i, j: j <= i
        cases = {
            "plain": (None, None),
            "causal": (None, causal),
            "window": (None, lambda b, h, i, j: (j <= i) & (i - j <= WINDOW)),
            "prefix": (None, lambda b, h, i, j: (j < PREFIX) | (j <= i)),
            "documents": (None, lambda b, h, i, j: ids[i] == ids[j]),
            "fourth-key": (None, lambda b, h, i, j: j % 4 == 0),
            "cap": (lambda s, b, h, i, j: 30 * torch.tanh(s / 30), None),
            "slopes": (lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(), None),
            "slopes-causal": (lambda s, b, h, i, j: s - slopes[h] * (i - j).abs(), causal),
            "relative-bias": (lambda s, b, h, i, j: s + relative[h, i - j + LENGTH - 1], None),
        }
        for name, (score, mask) in cases.items():
            torch._dynamo.reset()
            flex = torch.compile(flex_attention)
            q, k, v = (torch.randn(BATCH, heads, LENGTH, size, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
            gradient = torch.randn_like(q)
            blocks, pairs = None, LENGTH * LENGTH
            if mask:
                blocks = create_block_mask(mask, None, None, LENGTH, LENGTH)
                row = torch.arange(LENGTH, device="cuda")
                pairs = sum(int(mask(0, 0, part[:, None], row[None, :]).expand(len(part), LENGTH).sum()) for part in row.split(1024))
            began = time.time()
            forward = lambda: flex(q, k, v, score_mod=score, block_mask=blocks)
            out = forward()
            torch.cuda.synchronize()
            first = time.time() - began
            flops = 4 * pairs * BATCH * HIDDEN
            wanted = [q, k, v] + ([relative] if name == "relative-bias" else [])
            ahead = milliseconds(forward)
            back = milliseconds(lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True))
            print(f"D={size} {name}: forward {flops / ahead / 1e9:.0f} backward {2.5 * flops / back / 1e9:.0f} TFLOP/s, first {first:.1f} s", flush=True)


main()
