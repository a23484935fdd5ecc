"""Writes steps.json: the losses of 100 steps of training a small GPT with AdamW, in float64 and in float32.

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


def train(dtype):
    w = parameters(dtype)
    vectors = [p for p in w.values() if p.dim() < 2]
    matrices = [p for p in w.values() if p.dim() >= 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.99), eps=1e-8)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss = loss_of(w, *batch(step))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), CLIP).item())
        optimizer.step()
        losses.append(loss.item())
    return {"Losses": losses, "Norms": norms}


with open("steps.json", "w") as f:
    json.dump({"float64": train(torch.float64), "float32": train(torch.float32)}, f, indent=1)
    f.write("\n")
