"""Writes steps.json: the losses of steps of training a small GPT with AdamW, Adafactor and Muon, in float64 and in float32.

    python3 steps.py         (in this directory; needs PyTorch, any version)

The model is written from its equations. Its first weights follow from their names, and the batches from their numbers,
by formulas that the test repeats, so the file holds losses and gradient norms alone.
"""

import json
import math
import zlib

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

STEPS, WARMUP, PEAK, MIN, CLIP = 100, 10, 1e-2, 1e-3, 1.0
VOCAB, LENGTH, DIM, HEADS, LAYERS, ROWS = 17, 12, 24, 3, 2, 4


def word(name, i):
    """A well mixed 32-bit word for element i of what has that name."""
    x = (zlib.crc32(name.encode()) + i * 2654435761) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def weight(name, *shape):
    """Numbers in [-1/16, 1/16) that float32 holds exactly; the scales of norms are 1 and biases 0."""
    if "norm" in name and name.endswith("weight"):
        return torch.ones(shape)
    if name.endswith("bias"):
        return torch.zeros(shape)
    n = math.prod(shape)
    return torch.tensor([((word(name, i) >> 11) - (1 << 20)) / (1 << 24) for i in range(n)], dtype=torch.float64).reshape(shape)


def batch(n):
    """Rows that count upwards by a stride of their own, modulo the vocabulary."""
    rows = [[(word("start", ROWS * n + r) + i * (1 + word("stride", ROWS * n + r) % 3)) % VOCAB for i in range(LENGTH + 1)] for r in range(ROWS)]
    t = torch.tensor(rows)
    return t[:, :-1], t[:, 1:]


def parameters(dtype):
    shapes = {"tokens.weight": (VOCAB, DIM), "positions.weight": (LENGTH, DIM)}
    for layer in range(LAYERS):
        p = f"blocks.{layer}."
        shapes |= {
            p + "norm1.weight": (DIM,), p + "norm1.bias": (DIM,),
            p + "attn.qkv.weight": (DIM, 3 * DIM), p + "attn.qkv.bias": (3 * DIM,),
            p + "attn.proj.weight": (DIM, DIM), p + "attn.proj.bias": (DIM,),
            p + "norm2.weight": (DIM,), p + "norm2.bias": (DIM,),
            p + "mlp.fc.weight": (DIM, 4 * DIM), p + "mlp.fc.bias": (4 * DIM,),
            p + "mlp.proj.weight": (4 * DIM, DIM), p + "mlp.proj.bias": (DIM,),
        }
    shapes |= {"norm.weight": (DIM,), "norm.bias": (DIM,)}
    return {name: torch.nn.Parameter(weight(name, *shape).to(dtype)) for name, shape in shapes.items()}


def loss_of(w, tokens, targets):
    norm = lambda name, x: F.layer_norm(x, (DIM,), w[name + ".weight"], w[name + ".bias"], 1e-5)
    linear = lambda name, x: x @ w[name + ".weight"] + w[name + ".bias"]
    x = w["tokens.weight"][tokens] + w["positions.weight"][:LENGTH]
    for layer in range(LAYERS):
        p = f"blocks.{layer}."
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in linear(p + "attn.qkv", norm(p + "norm1", x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)
        scores = scores.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), -math.inf)
        x = x + linear(p + "attn.proj", (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = x + linear(p + "mlp.proj", F.gelu(linear(p + "mlp.fc", norm(p + "norm2", x)), approximate="tanh"))
    logits = norm("norm", x) @ w["tokens.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    return MIN + (PEAK - MIN) * (1 + math.cos(math.pi * min(1, (step - WARMUP) / (STEPS - WARMUP)))) / 2


def adamw(w, vectors, matrices):
    return [torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.99), eps=1e-8)]


def muon(w, vectors, matrices):
    """Muon for the matrices of blocks, AdamW with half its rate for the rest."""
    # Our matrices are (in, out), those of PyTorch (out, in): only this looks at which is which.
    torch.optim._muon._adjust_lr = lambda lr, how, shape: lr * math.sqrt(max(1, shape[1] / shape[0]))
    torch.Tensor.to = (lambda to: lambda self, *a, **k: to(self, *a, **({**k, "dtype": self.dtype} if "dtype" in k else k)))(torch.Tensor.to)
    inner = [p for name, p in w.items() if name.startswith("blocks") and p.dim() >= 2]
    rest = [p for p in matrices if all(p is not q for q in inner)]
    others = torch.optim.AdamW([{"params": rest, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.99), eps=1e-8)
    others.rate = 0.5
    return [torch.optim.Muon(inner, weight_decay=0.1), others]


def adafactor(w, vectors, matrices):
    return [torch.optim.Adafactor([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}])]


def train(dtype, make, steps):
    w = parameters(dtype)
    vectors = [p for p in w.values() if p.dim() < 2]
    matrices = [p for p in w.values() if p.dim() >= 2]
    optimizers = make(w, vectors, matrices)
    losses, norms = [], []
    average = {name: torch.zeros_like(p) for name, p in w.items()}
    for step in range(steps):
        loss = loss_of(w, *batch(step))
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = rate(step) * getattr(optimizer, "rate", 1)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), CLIP).item())
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
        for name, p in w.items():
            average[name].lerp_(p.detach(), 0.1)
    with torch.no_grad():
        averaged = loss_of({name: a / (1 - 0.9**steps) for name, a in average.items()}, *batch(0)).item()
    return {"Losses": losses, "Norms": norms, "Averaged": averaged}


golden = {}
for dtype in (torch.float64, torch.float32):
    for make in (adamw, adafactor, muon):
        golden[f"{make.__name__} {str(dtype)[6:]}"] = train(dtype, make, STEPS if make is adamw else 40)
with open("steps.json", "w") as f:
    json.dump(golden, f, indent=1)
    f.write("\n")
