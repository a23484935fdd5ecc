"""PyTorch as a peer of Stheno's benchmarks: reads a request a line from stdin and answers each with a line, both JSON.

See peer.go for the requests. Numbers come and go as raw little-endian files.
"""

import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not come between the answers


def read(folder, name, shape, dtype=torch.float32):
    with open(os.path.join(folder, name), "rb") as f:
        return torch.frombuffer(bytearray(f.read()), dtype=dtype).reshape(shape).clone()


def timed(work, times):
    start = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - start


def timed_on_gpu(work, times):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


class Attention:
    """scaled_dot_product_attention, and its gradients of q, k and v for a given dO."""

    def __init__(self, r):
        if r["Window"]:
            raise ValueError("scaled_dot_product_attention has no window")
        queries = (r["Batch"], r["Heads"], r["Length"], r["Size"])
        keys = (r["Batch"], r["KeyHeads"], r["Length"], r["Size"])
        self.inputs = [read(r["Folder"], n, s).requires_grad_() for n, s in (("q", queries), ("k", keys), ("v", keys))]
        self.dout = read(r["Folder"], "do", queries)
        self.options = {"is_causal": r["Causal"], "enable_gqa": r["Heads"] != r["KeyHeads"]}
        self.out = F.scaled_dot_product_attention(*self.inputs, **self.options)
        self.gradients = None

    def forward(self):
        with torch.no_grad():
            self.latest = F.scaled_dot_product_attention(*self.inputs, **self.options)

    def backward(self):
        self.gradients = torch.autograd.grad(self.out, self.inputs, self.dout, retain_graph=True)

    def run(self, name, times):
        return timed(lambda: getattr(self, name)(), times)

    def write(self, folder, name):
        results = {"o": self.out.detach()} if name == "forward" else dict(zip(("dq", "dk", "dv"), self.gradients))
        for file, value in results.items():
            value.contiguous().numpy().tofile(os.path.join(folder, file))


class Product:
    """A product of two matrices, of which one may lie transposed."""

    def __init__(self, r):
        def matrix(name, rows, columns, transposed):
            if transposed:
                return read(r["Folder"], name, (columns, rows)).t()
            return read(r["Folder"], name, (rows, columns))

        self.a = matrix("a", r["Rows"], r["Depth"], r["TransposeA"])
        self.b = matrix("b", r["Depth"], r["Columns"], r["TransposeB"])
        self.c = torch.empty(r["Rows"], r["Columns"])

    def run(self, _, times):
        return timed(lambda: torch.mm(self.a, self.b, out=self.c), times)

    def write(self, folder, _):
        self.c.numpy().tofile(os.path.join(folder, "c"))


class Grouped:
    """Products of groups of rows, each with its own matrix, one after the other, as transformers computes experts."""

    def __init__(self, r):
        begins = r["Groups"]
        a = read(r["Folder"], "a", (r["Rows"], r["Depth"]))
        b = read(r["Folder"], "b", (len(begins) - 1, r["Depth"], r["Columns"]))
        self.c = torch.empty(r["Rows"], r["Columns"])
        self.parts = [(a[i:j], w, self.c[i:j]) for i, j, w in zip(begins, begins[1:], b)]

    def multiply(self):
        for a, b, c in self.parts:
            torch.mm(a, b, out=c)

    def run(self, _, times):
        return timed(self.multiply, times)

    def write(self, folder, _):
        self.c.numpy().tofile(os.path.join(folder, "c"))


class Step:
    """A training step of a GPT in the way of nanoGPT, from weights that are given by name, (in, out) for matrices."""

    def __init__(self, r):
        self.heads, self.layers, self.clip = r["Heads"], r["Layers"], r["Clip"]
        self.half = r["DType"] == "bfloat16"
        shape = (r["Batch"], r["Length"])
        self.tokens, self.targets = (read(r["Folder"], n, shape, torch.int64) for n in ("tokens", "targets"))
        # Linear layers keep (out, in) as PyTorch's own do.
        self.p = {}
        for w in r["Parameters"]:
            value = read(r["Folder"], w["Name"], w["Shape"])
            if value.dim() == 2 and not w["Name"].startswith(("tokens", "positions")):
                value = value.t().contiguous()
            self.p[w["Name"]] = value.requires_grad_()
        matrices = [v for v in self.p.values() if v.dim() >= 2]
        vectors = [v for v in self.p.values() if v.dim() < 2]
        groups = [{"params": matrices, "weight_decay": r["Decay"]}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=r["Rate"], betas=(0.9, r["Beta2"]), eps=1e-8)
        self.losses = []

    def linear(self, name, x):
        return F.linear(x, self.p[name + ".weight"], self.p[name + ".bias"])

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.p[name + ".weight"], self.p[name + ".bias"], 1e-5)

    def block(self, name, x):
        b, t, c = x.shape
        qkv = self.linear(name + ".attn.qkv", self.norm(name + ".norm1", x)).split(c, 2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.linear(name + ".attn.proj", y)
        y = F.gelu(self.linear(name + ".mlp.fc", self.norm(name + ".norm2", x)), approximate="tanh")
        return x + self.linear(name + ".mlp.proj", y)

    def run(self, _, times):
        return timed(self.step, times)

    def loss(self):
        h = F.embedding(self.tokens, self.p["tokens.weight"]) + self.p["positions.weight"][: self.tokens.shape[1]]
        for i in range(self.layers):
            h = self.block(f"blocks.{i}", h)
        logits = F.linear(self.norm("norm", h), self.p["tokens.weight"])
        return F.cross_entropy(logits.flatten(0, 1).float(), self.targets.flatten())

    def step(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            loss = self.loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.p.values(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())


class GPUAttention:
    """Attention on the GPU by one of PyTorch's kernels: cudnn, flash, efficient, or flex, which it compiles."""

    def __init__(self, r):
        queries = (r["Batch"], r["Heads"], r["Length"], r["Size"])
        keys = (r["Batch"], r["KeyHeads"], r["Length"], r["Size"])
        noise = read(r["Folder"], "noise", (-1,)).cuda()

        def tensor(i, shape):
            start, n = i * r["NoiseStep"] % len(noise), math.prod(shape)
            list = noise.repeat((start + n) // len(noise) + 1)[start : start + n]
            return list.reshape(shape).to(getattr(torch, r["DType"]), copy=True)  # at an address of its own: kernels want 16 bytes

        self.inputs = [tensor(i, s).requires_grad_() for i, s in enumerate((queries, keys, keys))]
        self.dout = tensor(3, queries)
        grouped = r["Heads"] != r["KeyHeads"]
        if r["Kernel"] == "flex":
            from torch.nn.attention import flex_attention as flex

            window = r["Window"]
            mask = None
            if window:
                visible = lambda b, h, i, j: (i >= j) & (i - j <= window)
            elif r["Causal"]:
                visible = lambda b, h, i, j: i >= j
            if r["Causal"] or window:
                mask = flex.create_block_mask(visible, None, None, r["Length"], r["Length"], device="cuda")
            compiled = torch.compile(flex.flex_attention, dynamic=False)
            self.attend = lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=grouped)
        else:
            from torch.nn.attention import SDPBackend, sdpa_kernel

            if r["Window"]:
                raise ValueError("scaled_dot_product_attention has no window")
            names = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
            backend = getattr(SDPBackend, names[r["Kernel"]])

            def attend(q, k, v):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=r["Causal"], enable_gqa=grouped)

            self.attend = attend
        # Autograd launches on the stream where forward was launched, which has to be the one that is recorded.
        self.stream = torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.out = self.attend(*self.inputs)
        self.gradients = None
        self.recorded = {}

    def forward(self):
        with torch.no_grad():
            self.latest = self.attend(*self.inputs)

    def backward(self):
        self.gradients = torch.autograd.grad(self.out, self.inputs, self.dout, retain_graph=True)

    def run(self, name, times):
        if name not in self.recorded:
            self.recorded[name] = self.record(getattr(self, name))
        return timed_on_gpu(self.recorded[name].replay, times)

    def record(self, work):
        """The launches of work as a CUDA graph: one by one, short kernels would wait for Python."""
        with torch.cuda.stream(self.stream):
            for _ in range(3):  # what is compiled or tuned on the way must not be recorded
                work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            work()
        return graph

    def write(self, folder, name):
        """Writes the last head of the last batch item, as float32."""
        results = {"o": self.out.detach()} if name == "forward" else dict(zip(("dq", "dk", "dv"), self.gradients))
        for file, value in results.items():
            value[-1, -1].float().contiguous().cpu().numpy().tofile(os.path.join(folder, file))


class GEMM:
    """A large product of bfloat16 matrices on the GPU."""

    def __init__(self, r):
        self.a, self.b = (torch.randn(r["Size"], r["Size"], device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def run(self, _, times):
        return timed_on_gpu(lambda: self.a @ self.b, times)


def problem_of(r):
    if r["Do"] == "step":
        return Step(r)
    if r["Do"] == "product":
        return Grouped(r) if r["Groups"] else Product(r)
    if r["Device"] == "cuda" and not torch.cuda.is_available():
        raise ValueError("this PyTorch finds no GPU")
    if r["Do"] == "gemm":
        return GEMM(r)
    return GPUAttention(r) if r["Device"] == "cuda" else Attention(r)


def answer(r, state):
    do = r["Do"]
    if do == "hello":
        gpu = ", " + torch.cuda.get_device_name() if torch.cuda.is_available() else ""
        return {"Version": f"PyTorch {torch.__version__}{gpu}"}
    if do in ("attention", "product", "step", "gemm"):
        if r["Threads"]:
            torch.set_num_threads(r["Threads"])
        state[r["Problem"]] = problem_of(r)
    elif do == "run":
        problem = state[r["Problem"]]
        seconds = problem.run(r["Pass"], r["Times"])
        losses = getattr(problem, "losses", [])
        result = {"Seconds": seconds, "Losses": list(losses)}
        losses.clear()
        return result
    elif do == "write":
        state[r["Problem"]].write(r["Folder"], r["Pass"])
    elif do == "close":
        state.pop(r["Problem"], None)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    else:
        raise ValueError(f"there is no request {do!r}")
    return {}


def main():
    state = {}
    for line in sys.stdin:
        try:
            result = answer(json.loads(line), state)
        except Exception as e:  # the other side decides what to do about it
            result = {"Error": f"{type(e).__name__}: {e}"}
        print(json.dumps(result), file=answers, flush=True)


main()
