"""The models of examples/{vit,classifier,translation,lora} in PyTorch, on numbers of the same shapes: prints examples or tokens a second, and
what a step costs in processors' time, which says something on a machine that others use too.

    python3 bench/models/peers.py vit|classifier|translation|lora [steps] [threads]

Each is as its Go twin: the same sizes, pre-norm blocks, GELU by tanh (the classifier's exact), AdamW without decay, float32, two threads unless told otherwise.
"""
import sys
import time

import torch
from torch import nn

torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
torch.manual_seed(0)
rows, dim, heads = 32, 64, 4


def gelu(x):
    return nn.functional.gelu(x, approximate="tanh")


def layers(kind, count, activation):
    make = {"encoder": nn.TransformerEncoderLayer, "decoder": nn.TransformerDecoderLayer}[kind]
    stack = {"encoder": nn.TransformerEncoder, "decoder": nn.TransformerDecoder}[kind]
    layer = make(dim, heads, 4 * dim, dropout=0.0, activation=activation, batch_first=True, norm_first=True)
    return stack(layer, count, norm=nn.LayerNorm(dim))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, dim, 4, 4)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 16, dim))
        self.body, self.head = layers("encoder", 3, gelu), nn.Linear(dim, 4)

    def forward(self, images):
        return self.head(self.body(self.patches(images).flatten(2).transpose(1, 2) + self.positions).mean(1))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(40, dim), nn.Embedding(24, dim)
        self.body, self.pool, self.head = layers("encoder", 2, "gelu"), nn.Linear(dim, dim), nn.Linear(dim, 2)

    def forward(self, tokens, mask):
        h = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(torch.tanh(self.pool(self.body(h, src_key_padding_mask=~mask)[:, 0])))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.out = nn.Embedding(20, dim), nn.Embedding(8, dim), nn.Linear(dim, 20)
        self.read, self.write = layers("encoder", 2, gelu), layers("decoder", 2, gelu)

    def forward(self, source, tokens):
        embed = lambda ids: self.words(ids) + self.places.weight[: ids.shape[1]]
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        h = self.write(embed(tokens), self.read(embed(source)), causal, memory_key_padding_mask=source == 0, tgt_is_causal=True)
        return self.out(h).flatten(0, 1)


class Change(nn.Module):
    """A linear layer whose weight is frozen, and a change of rank 4."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(base.in_features, 4) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(4, base.out_features))

    def forward(self, x):
        return self.base(x) + x @ self.a @ self.b


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda *sizes: Change(nn.Linear(*sizes, bias=False))
        self.qkv, self.proj, self.fc, self.out = linear(dim, 3 * dim), linear(dim, dim), linear(dim, 4 * dim), linear(4 * dim, dim)
        self.norm1, self.norm2 = (nn.LayerNorm(dim, bias=False).requires_grad_(False) for _ in range(2))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.proj(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.out(gelu(self.fc(self.norm2(x))))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = (nn.Embedding(n, dim).requires_grad_(False) for n in (31, 16))
        self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(dim, bias=False).requires_grad_(False)

    def forward(self, tokens):
        h = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return (self.norm(self.blocks(h)) @ self.words.weight.T).flatten(0, 1)


def main(name, steps):
    ids = lambda high, *shape: torch.randint(0, high, shape)
    lengths = torch.randint(5, 25, (rows, 1))
    model, inputs, targets, count = {
        "vit": lambda: (ViT(), (torch.randn(rows, 1, 16, 16),), ids(4, rows), rows),
        "classifier": lambda: (Classifier(), (ids(40, rows, 24), torch.arange(24) < lengths), ids(2, rows), rows * 24),
        "lora": lambda: (Counter(), (ids(31, 8, 16),), ids(31, 8 * 16), 8 * 16),
        "translation": lambda: (Translator(), (ids(19, rows, 8) + 1, ids(20, rows, 8)), ids(20, rows * 8), rows * 8),
    }[name]()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3, weight_decay=0.0)
    times, costs = [], []
    for _ in range(steps):
        start, began = time.perf_counter(), time.process_time()
        nn.functional.cross_entropy(model(*inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - start)
        costs.append(time.process_time() - began)
    step, cost = sorted(times)[steps // 2], sorted(costs)[steps // 2]
    print(f"{name}: {1e3 * step:.2f} ms a step, {count / step:.0f} a second, {1e3 * cost:.2f} ms of processors' time")


main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
