"""Scores and masks that users write, beside compiled FlexAttention: what BenchmarkAttentionScores of kernels/cuda measures.

    go test -c -tags gpu -o cuda.test ./kernels/cuda
    python score.py compile [ROW...]            as many rows at a time as there are processors, which fills Triton's cache
    python score.py time cuda.test [ROW...]     ours and theirs in turns, row by row; without compile it takes minutes

A row is a size of heads and a name, as 64/causal. 16k tokens of 8192 a sequence, hidden 2048, bfloat16, in TFLOP/s a visible pair,
forward/backward; the backward pass has δ and all gradients. Where a kernel of Triton has no room with the blocks of its choice, smaller
ones are tried, and the row says so.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

BATCH, LENGTH, HIDDEN, WINDOW, PREFIX = 2, 8192, 2048, 1024, 1024
NAMES = ["plain", "causal", "window", "prefix", "documents", "fourth-key", "blocks", "cap", "slopes", "slopes-causal", "relative-bias"]
ROWS = [f"{size}/{name}" for size in (64, 128) for name in NAMES]
BLOCKS = [
    {},
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_M1": 32, "BLOCK_N1": 64, "BLOCK_M2": 64, "BLOCK_N2": 32},
    {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_M1": 32, "BLOCK_N1": 32, "BLOCK_M2": 32, "BLOCK_N2": 32, "num_stages": 1},
]


def documents(torch):
    ids, n = [], 0
    while len(ids) < LENGTH:
        ids += [n] * (300 + n * 7919 % 1500)
        n += 1
    return torch.tensor(ids[:LENGTH], device="cuda")


class Row:
    """A row's tensors and functions, and the first of BLOCKS that it compiles with."""

    def __init__(self, row):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        self.torch = torch
        size, name = int(row.split("/")[0]), row.split("/")[1]
        heads = HIDDEN // size
        ids = documents(torch)
        slopes = torch.tensor([1 / 2 ** (8 * (h + 1) // heads) for h in range(heads)], device="cuda")
        relative = torch.randn(heads, 2 * LENGTH - 1, device="cuda", requires_grad=True)
        causal = lambda b, h, i, j: j <= i
        sloped = lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()
        self.score, mask = {
            "plain": (None, None),
            "causal": (None, causal),
            "window": (None, lambda b, h, i, j: (j <= i) & (i - j <= WINDOW)),
            "prefix": (None, lambda b, h, i, j: (j < PREFIX) | (j <= i)),
            "documents": (None, lambda b, h, i, j: ids[i] == ids[j]),
            "fourth-key": (None, lambda b, h, i, j: j % 4 == 0),
            "blocks": (None, lambda b, h, i, j: (j // 64 % 4 == 0) | (j >= LENGTH - 256)),
            "cap": (lambda s, b, h, i, j: 30 * torch.tanh(s / 30), None),
            "slopes": (sloped, None),
            "slopes-causal": (sloped, causal),
            "relative-bias": (lambda s, b, h, i, j: s + relative[h, i - j + LENGTH - 1], None),
        }[name]
        torch._dynamo.reset()
        self.flex = torch.compile(flex_attention, dynamic=False)
        self.q, self.k, self.v = (
            torch.randn(BATCH, heads, LENGTH, size, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
        )
        self.gradient = torch.randn_like(self.q)
        self.wanted = [self.q, self.k, self.v] + ([relative] if name == "relative-bias" else [])
        self.mask, pairs = None, LENGTH * LENGTH
        if mask:
            self.mask = create_block_mask(mask, None, None, LENGTH, LENGTH)
            at = torch.arange(LENGTH, device="cuda")
            pairs = sum(int(mask(0, 0, part[:, None], at[None, :]).expand(len(part), LENGTH).sum()) for part in at.split(1024))
        self.flops = 4 * pairs * BATCH * HIDDEN
        for self.blocks in range(len(BLOCKS)):
            try:
                self.out = self.forward()
                self.backward()
                torch.cuda.synchronize()
                return
            except Exception as e:
                print(f"{row} with blocks {BLOCKS[self.blocks]}: {str(e).strip().splitlines()[-1][:150]}", flush=True)
                torch._dynamo.reset()
        raise SystemExit(f"{row}: nothing fits")

    def forward(self):
        return self.flex(self.q, self.k, self.v, score_mod=self.score, block_mask=self.mask, kernel_options=BLOCKS[self.blocks] or None)

    def backward(self):
        return self.torch.autograd.grad(self.out, self.wanted, self.gradient, retain_graph=True)

    def milliseconds(self, call, rounds=3, calls=5):
        Event, best = self.torch.cuda.Event, float("inf")
        for _ in range(rounds):
            begin, end = Event(enable_timing=True), Event(enable_timing=True)
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            self.torch.cuda.synchronize()
            best = min(best, begin.elapsed_time(end) / calls)
        return best


def ours(program, row):
    size, name = row.split("/")
    name = {"plain": "built-in-plain"}.get(name, name)
    out = subprocess.run(
        [program, "-test.run", "XXX", "-test.bench", f"AttentionScores/D={size}/^(built-in-)?{name}$", "-test.benchtime", "1x"],
        capture_output=True, text=True,
    ).stdout
    found = {}
    for line in out.splitlines():
        at = re.search(rf"D={size}/(\S+?)(-\d+)?\s", line)
        metrics = {unit: float(x) for x, unit in re.findall(r"([\d.e+-]+) (\S+/s|s-first)", line)}
        if at and metrics:
            found[at[1]] = metrics
    if not found:
        print(out)
    return found


def main():
    action, rest = sys.argv[1], sys.argv[2:]
    if action == "one":
        Row(rest[0])
    elif action == "compile":
        def one(row):
            subprocess.run([sys.executable, __file__, "one", row])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(one, rest or ROWS))
    else:
        for row in rest[1:] or ROWS:
            mine = ours(rest[0], row)
            try:
                theirs = Row(row)
            except (SystemExit, Exception) as e:
                print(f"{row}: {mine}, FlexAttention: {e}", flush=True)
                continue
            ahead, back = theirs.flops / theirs.milliseconds(theirs.forward) / 1e9, 2.5 * theirs.flops / theirs.milliseconds(theirs.backward) / 1e9
            line = f"{row}: FlexAttention {ahead:.0f}/{back:.0f}" + (f" with {BLOCKS[theirs.blocks]}" if theirs.blocks else "")
            for name, m in mine.items():
                f, b = m["forward-TFLOP/s"], m["backward-TFLOP/s"]
                line += f"; {name} {f:.0f}/{b:.0f}, first {m['s-first']:.2f} s, over FlexAttention {f / ahead:.2f}/{b / back:.2f}"
            print(line, flush=True)


main()
