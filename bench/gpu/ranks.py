"""Steps of training in PyTorch on several GPUs of one machine, to hold beside BenchmarkRanks of train.

    torchrun --nproc-per-node N ranks.py MODEL...      models of step.py, each on so many tokens a GPU, in bfloat16

For each it prints, in the names of BenchmarkRanks:

    alone            each GPU for itself, while the others train too
    copied           DDP: weights, gradients and state on every GPU
    state            DDP, and an optimiser whose state is sharded (ZeRO-1)
    weights          FSDP2: weights, gradients and state are sharded, block by block
    weights-in-Ks    FSDP2 within groups of K GPUs, with a copy in each group

and milliseconds of a step (the median over 30 of rank 0's, between two events), tokens a second of all GPUs, the share of what
as many GPUs have alone, and the peak of rank 0's memory. A step is forward, backward, clipping at 1 and fused AdamW, with
autocast and torch.compile: of the whole model, or with FSDP2 of each block and of the head with its loss. --how takes some of
the names, such as weights-in-2s; by default K is half of the GPUs. Without a GPU it runs on the CPU, which shows that it works:
GPT2-tiny is for that.
"""
import argparse, os, re, statistics, time
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from step import MODELS, Model

WARM, COUNT = 10, 30


def sharded(model, group, device):
    """FSDP2 over groups of so many ranks, which each have a copy."""
    size = dist.get_world_size()
    shape, names = ((size,), ("shard",)) if group == size else ((size // group, group), ("copy", "shard"))
    mesh = init_device_mesh(device, shape, mesh_dim_names=names)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model.ending = torch.compile(model.ending)
    for b in model.blocks:
        b.compile()
        fully_shard(b, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def prepared(name, how, device):
    """What runs a model, the model, and its optimiser."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.device(device):  # of billions of parameters the host would make for minutes
        model = Model(name)
    if how.startswith("weights"):
        model = run = sharded(model, group_of(how), device)
    elif how == "alone":
        run = torch.compile(model)
    else:
        on = [torch.cuda.current_device()] if device == "cuda" else None
        run = torch.compile(DistributedDataParallel(model, device_ids=on, gradient_as_bucket_view=True))
    settings = dict(lr=6e-4, fused=True)
    if how == "state":
        return run, model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **settings)
    return run, model, torch.optim.AdamW(model.parameters(), **settings)


def group_of(how):
    found = re.fullmatch(r"weights(-in-(\d+)s)?", how)
    return int(found[2] or dist.get_world_size())


def times_of(step, device):
    """The milliseconds of steps."""
    for _ in range(WARM):
        step()
    if device == "cpu":
        begins = []
        for _ in range(COUNT + 1):
            begins.append(time.perf_counter())
            step()
        return [1e3 * (b - a) for a, b in zip(begins, begins[1:])]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(COUNT + 1)]
    for e in events[:-1]:
        e.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def measure(name, how, device, alone):
    """Prints a line and returns the tokens a second."""
    run, model, optimizer = prepared(name, how, device)
    vocabulary, length, batch = MODELS[name][5:8]
    torch.manual_seed(1 + dist.get_rank())
    x, y = (torch.randint(0, vocabulary, (batch, length), device=device) for _ in range(2))

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    size = dist.get_world_size()
    dist.barrier()
    ms = statistics.median(times_of(step, device))
    rates = torch.tensor([batch * length / ms * 1e3], device=device)
    if how == "alone":
        dist.all_reduce(rates)
        rate = rates.item()
    else:
        dist.broadcast(rates, 0)
        rate = size * rates.item()
    if dist.get_rank() == 0:
        linear = f" {100 * rate / alone:.1f}%-linear" if alone else ""
        peak = f" {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB-peak" if device == "cuda" else ""
        print(f"PyTorch {torch.__version__} {name} {size}-{how}: {ms:.2f} ms/step {rate:.0f} tokens/s{linear}{peak}", flush=True)
    return rate


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="+", choices=sorted(MODELS))
    arguments.add_argument("--how", nargs="+")
    options = arguments.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.set_float32_matmul_precision("high")
    size = dist.get_world_size()
    hows = options.how or ["alone", "copied", "state", "weights"] + ([f"weights-in-{size // 2}s"] if size > 2 else [])
    for how in hows:
        if how not in ("alone", "copied", "state") and not (re.fullmatch(r"weights(-in-[1-9]\d*s)?", how) and size % group_of(how) == 0):
            arguments.error(f"--how is {how}, it needs to be alone, copied, state, weights or weights-in-Ks, where K divides the {size} ranks")
    for name in options.models:
        alone = 0
        for how in hows:
            rate = measure(name, how, device, alone)
            if how == "alone":
                alone = rate
            if device == "cuda":
                torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
