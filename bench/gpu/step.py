"""Steps of training in PyTorch on one GPU, to hold beside ours.

    step.py time MODEL...      the shapes of BenchmarkStepOnTheDevice in train, compiled: ms a step, tokens/s and memory
    step.py losses FOLDER      trains in float32 from the weights and batches that TestLosses in train wrote to FOLDER with
                               -exchange, and prints how far its losses are from ours

A step is forward, backward, clipping at 1 and AdamW. Times are medians over steps between two events, with autocast to bfloat16, fused
AdamW and torch.compile; --graphs records the compiled parts in CUDA graphs, and --eager compiles nothing. With --fp8 the linear layers
of blocks multiply in 8 bits: e4m3, a scale for each row of A and column of B, by torch._scaled_mm with fast sums. With --muon
torch.optim.Muon trains the matrices of blocks.
"""
import argparse, json, os, statistics
import torch
import torch.nn.functional as F
from torch import nn

MODELS = {  # layers, heads, key heads, width, hidden, vocabulary, length, batch, dropout
    "GPT2-124M": (12, 12, 12, 768, 3072, 50304, 1024, 32, 0.0),
    "GPT2-350M": (24, 16, 16, 1024, 4096, 50304, 1024, 16, 0.0),
    "Llama-1B": (22, 32, 4, 2048, 5632, 32000, 2048, 4, 0.0),
    "Llama-8B-layers": (4, 32, 8, 4096, 14336, 1024, 4096, 4, 0.0),
    "Llama-8B": (32, 32, 8, 4096, 14336, 128256, 4096, 1, 0.0),
    "characters": (6, 6, 6, 384, 1536, 65, 256, 64, 0.2),
    "GPT2-tiny": (2, 4, 4, 64, 256, 256, 64, 2, 0.0),
}


def scaled(x, depth):
    """e4m3 of a matrix whose sides, across an axis, are scaled each, and the inverse of the scales."""
    most = x.abs().amax(depth, keepdim=True).float().clamp(min=1e-12)
    return (x * (448.0 / most)).to(torch.float8_e4m3fn), most / 448.0


def product(a, b):
    """a @ b.T of two matrices of one depth, which lies along their rows."""
    (x, of_rows), (y, of_columns) = scaled(a, 1), scaled(b, 1)
    return torch._scaled_mm(x.contiguous(), y.contiguous().t(), of_rows, of_columns.t(), out_dtype=torch.bfloat16, use_fast_accum=True)


class Float8Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x, w = x.to(torch.bfloat16), weight.to(torch.bfloat16)
        ctx.save_for_backward(x, w)
        return product(x, w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return product(dy, w.t()), product(dy.t(), x.t()).float()


class Float8Linear(nn.Linear):
    def forward(self, x):
        y = Float8Product.apply(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias.to(y.dtype)


class Block(nn.Module):
    linear = nn.Linear

    def __init__(self, name, heads, key_heads, width, hidden, dropout):
        super().__init__()
        self.llama, self.heads, self.key_heads, self.size, self.dropout = name.startswith("Llama"), heads, key_heads, width // heads, dropout
        bias = name.startswith("GPT2")
        norm = (lambda: nn.RMSNorm(width, eps=1e-5)) if self.llama else (lambda: nn.LayerNorm(width, bias=bias))
        self.norm1, self.norm2 = norm(), norm()
        self.qkv = self.linear(width, (heads + 2 * key_heads) * self.size, bias=bias)
        self.proj = self.linear(width, width, bias=bias)
        self.up = self.linear(width, (2 if self.llama else 1) * hidden, bias=bias)
        self.down = self.linear(hidden, width, bias=bias)
        self.gelu = nn.GELU(approximate="tanh" if bias else "none")

    def attend(self, x, turn):
        b, t, _ = x.shape
        parts = self.qkv(x).split([n * self.size for n in (self.heads, self.key_heads, self.key_heads)], 2)
        q, k, v = (z.view(b, t, -1, self.size).transpose(1, 2) for z in parts)
        if self.llama:
            q, k = turned(q, *turn), turned(k, *turn)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p, enable_gqa=self.heads != self.key_heads)
        return self.proj(y.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x, turn):
        x = x + F.dropout(self.attend(self.norm1(x), turn), self.dropout, self.training)
        h = self.up(self.norm2(x))
        if self.llama:
            gate, up = h.chunk(2, 2)
            h = F.silu(gate) * up
        else:
            h = self.gelu(h)
        return x + F.dropout(self.down(h), self.dropout, self.training)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        layers, heads, key_heads, width, hidden, vocabulary, length, _, self.dropout = MODELS[name]
        self.llama = name.startswith("Llama")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = None if self.llama else nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(name, heads, key_heads, width, hidden, self.dropout) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5) if self.llama else nn.LayerNorm(width, bias=name.startswith("GPT2"))
        self.head = nn.Linear(width, vocabulary, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if not self.llama:
            self.head.weight = self.tokens.weight
        angles = torch.outer(torch.arange(length).float(), 10000 ** (-torch.arange(0, width // heads, 2) / (width // heads))).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, y):
        h = self.tokens(x)
        if self.positions is not None:
            h = F.dropout(h + self.positions.weight[: x.shape[1]], self.dropout, self.training)
        for b in self.blocks:
            h = b(h, (self.cos, self.sin))
        return self.ending(h, y)

    def ending(self, h, y):
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


def optimizers(model, muon):
    of_muon = {id(p): p for p in model.blocks.parameters() if muon and p.dim() == 2}
    rest = [p for p in model.parameters() if id(p) not in of_muon]
    list = [torch.optim.AdamW(rest, 6e-4, fused=True)]
    if muon:
        list.append(torch.optim.Muon(of_muon.values(), 6e-4, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"))
    return list


def measure(name, how, layers, muon):
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    vocabulary, length, batch = MODELS[name][5:8]
    model = Model(name).cuda()
    updates = optimizers(model, muon)
    run = model if how == "eager" else torch.compile(model, mode="reduce-overhead" if how == "graphs" else "default")
    x, y = (torch.randint(0, vocabulary, (batch, length), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in updates:
            optimizer.step()
            optimizer.zero_grad(set_to_none=how != "graphs")

    for _ in range(8):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(31)]
    for e in events[:-1]:
        e.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    ms = statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    print(f"PyTorch {torch.__version__} {name} {how}{layers}{', Muon' if muon else ''}: {ms:.2f} ms/step {batch * length / ms * 1e3:.0f} tokens/s "
          f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB-peak", flush=True)


def losses(folder):
    """A GPT whose matrices are (in, out), as ours are."""
    torch.set_float32_matmul_precision("highest")
    about = json.load(open(os.path.join(folder, "about.json")))
    read = lambda name, shape, dtype: torch.frombuffer(bytearray(open(os.path.join(folder, name), "rb").read()), dtype=dtype).reshape(shape).cuda()
    p = {n: read(n, s, torch.float32).requires_grad_() for n, s in about["Parameters"].items()}
    batches = read("batches", (-1, 2, about["Rows"], about["Length"]), torch.int64)
    optimizer = torch.optim.AdamW(p.values(), about["Rate"], betas=(0.9, 0.999), eps=1e-8, weight_decay=about["Decay"])
    linear = lambda n, x: x @ p[n + ".weight"] + p[n + ".bias"]
    norm = lambda n, x: F.layer_norm(x, x.shape[-1:], p[n + ".weight"], p[n + ".bias"], 1e-5)
    worst = 0.0
    for step, (x, y) in enumerate(batches):
        h = F.embedding(x, p["tokens.weight"]) + p["positions.weight"][: x.shape[1]]
        for i in range(about["Layers"]):
            n = f"blocks.{i}."
            parts = linear(n + "attn.qkv", norm(n + "norm1", h)).chunk(3, 2)
            q, k, v = (z.view(*z.shape[:2], about["Heads"], -1).transpose(1, 2) for z in parts)
            h = h + linear(n + "attn.proj", F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            h = h + linear(n + "mlp.proj", F.gelu(linear(n + "mlp.fc", norm(n + "norm2", h)), approximate="tanh"))
        loss = F.cross_entropy((norm("norm", h) @ p["tokens.weight"].t()).flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        worst = max(worst, abs(about["Losses"][step] / loss.item() - 1))
    print(f"{len(batches)} steps in float32: losses from {about['Losses'][0]:.4f} to {about['Losses'][-1]:.4f}, at most {worst:.2g} from PyTorch's, relative")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=["time", "losses"])
    arguments.add_argument("names", nargs="+")
    arguments.add_argument("--graphs", action="store_true")
    arguments.add_argument("--eager", action="store_true")
    arguments.add_argument("--fp8", action="store_true")
    arguments.add_argument("--muon", action="store_true")
    options = arguments.parse_args()
    if options.fp8:
        Block.linear = Float8Linear
    for name in options.names:
        if options.what == "losses":
            losses(name)
        else:
            measure(name, "graphs" if options.graphs else "eager" if options.eager else "compiled", ", 8 bits" if options.fp8 else "", options.muon)
