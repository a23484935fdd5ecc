"""Times products of experts beside one matrix for all rows, ours and PyTorch's torch._grouped_mm, in turns on one GPU.

    go test -c -tags gpu -o cuda.test ./kernels/cuda && python3 bench/gpu/experts.py cuda.test [--rounds 2]

bfloat16, experts with uneven rows, forward and the gradients of the rows (dx) and of the weights (dw). Rates are TFLOP/s, the best
of the rounds, of the multiplications of rows with their own experts alone. PyTorch has the better of two layouts of the weights.
"""
import argparse, re, subprocess
import torch

arguments = argparse.ArgumentParser()
arguments.add_argument("test")
arguments.add_argument("--rounds", type=int, default=2)
options = arguments.parse_args()
grouped = getattr(torch, "_grouped_mm", None) or torch.nn.functional.grouped_mm
passes = ["forward", "dx", "dw"]


def ours():
    """What BenchmarkExperts prints."""
    output = subprocess.run(
        [options.test, "-test.run=XXX", "-test.bench=BenchmarkExperts/(16|128)-groups/(16384|32768)x.*/^(dense-)?(forward|dx|dw)$",
         "-test.benchtime=300x"], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"/(\d+)-groups/\S+/((?:dense-)?(?:forward|dx|dw))(?:-\d+)?\s.*?([\d.]+) TFLOP/s", output)
    return {(int(groups), name): float(rate) for groups, name, rate in found}


def seconds(run, together=200):
    for _ in range(5):
        run()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(together):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / together / 1e3


def noise(*shape):
    """The numbers of BenchmarkExperts: products of equal ones take less power."""
    i = torch.arange(2048, device="cuda", dtype=torch.float64)
    return torch.sin(i * i).bfloat16().repeat(torch.Size(shape).numel() // 2048).view(*shape).contiguous()


def theirs():
    rates = {}
    for groups, rows, k, n in [(16, 16384, 2048, 2816), (128, 32768, 2048, 1536)]:
        ends = [i * rows // groups + (rows // groups // 3 * (i % 3 - 1) if i < groups else 0) for i in range(1, groups + 1)]
        offsets = torch.tensor(ends, device="cuda", dtype=torch.int32)
        x, w, y = noise(rows, k), noise(groups, k, n), noise(rows, n)
        turned = w.transpose(1, 2).contiguous()
        for name, *ways in [
                ("dense-forward", lambda: x @ w[0]), ("dense-dx", lambda: y @ w[0].t()), ("dense-dw", lambda: x.t() @ y),
                ("forward", lambda: grouped(x, w, offs=offsets), lambda: grouped(x, turned.transpose(1, 2), offs=offsets)),
                ("dx", lambda: grouped(y, w.transpose(1, 2), offs=offsets), lambda: grouped(y, turned, offs=offsets)),
                ("dw", lambda: grouped(x.t(), y, offs=offsets))]:
            rates[groups, name] = 2e-12 * rows * k * n / min(map(seconds, ways))
    torch.cuda.empty_cache()
    return rates


print("PyTorch", torch.__version__, torch.cuda.get_device_name())
ours()  # the clocks follow the load
best = {}, {}
for _ in range(options.rounds):
    for rates, measure in zip(best, (ours, theirs)):
        for case, rate in measure().items():
            rates[case] = max(rates.get(case, 0), rate)
for groups in 16, 128:
    for name in passes:
        (a, dense), (b, other) = [(rates[groups, name], rates[groups, "dense-" + name]) for rates in best]
        print(f"{groups:3} experts, {name:7}: ours {a:.0f}, one matrix {dense:.0f}: {a / dense:.2f}; PyTorch {b:.0f}, {other:.0f}: {b / other:.2f}; "
              f"ours over PyTorch's {a / b:.2f}")
