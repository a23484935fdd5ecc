"""The models of nn/models_test.go and examples/dit as one writes them in PyTorch. The test of package
bench counts the lines of both. Here each computes a loss and its gradients, so that what is counted
runs:

    python3 bench/models/twins.py
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn


# ViT


class VisionTransformer(nn.Module):
    def __init__(self, size=8, patch=4, dim=16, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, dim))
        self.body, self.head = encoder(dim), nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.body(x).mean(1))


def encoder(dim, layers=2):
    layer = nn.TransformerEncoderLayer(
        dim, 2, 4 * dim, dropout=0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dim))


# masked BERT


class MaskedBERT(nn.Module):
    def __init__(self, vocab=20, context=6, dim=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.norm, self.out = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.body, self.transform = encoder(dim), nn.Linear(dim, dim)
        self.predict = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.predict(self.hidden(tokens))

    def hidden(self, tokens):
        x = self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]])
        return self.out(F.gelu(self.transform(self.body(x))))


# T5


class Attention(nn.Module):
    def __init__(self, dim, heads, scale=None):
        super().__init__()
        self.heads, self.scale = heads, scale
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x, context=None, bias=None, causal=False):
        context = x if context is None else context
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(context).chunk(2, -1)
        mask = bias
        if causal and bias is not None:
            mask, causal = bias + torch.full(bias.shape[-2:], -torch.inf).triu(1), False
        y = F.scaled_dot_product_attention(
            split(self.q(x)), split(k), split(v), mask, is_causal=causal, scale=self.scale
        )
        return self.o(y.transpose(1, 2).flatten(2))


def relative_bias(table, rows, columns, causal):
    buckets, farthest = len(table), 128
    distance = torch.arange(columns)[None] - torch.arange(rows)[:, None]
    first = 0
    if causal:
        distance = (-distance).clamp(min=0)
    else:
        buckets //= 2
        first, distance = buckets * (distance > 0), distance.abs()
    exact = buckets // 2
    far = torch.log(distance.clamp(min=1) / exact) / torch.log(torch.tensor(farthest / exact))
    far = (exact + far * (buckets - exact)).long().clamp(max=buckets - 1)
    return table[first + torch.where(distance < exact, distance, far)].permute(2, 0, 1)


class T5Block(nn.Module):
    def __init__(self, dim, causal):
        super().__init__()
        self.causal, self.attn = causal, Attention(dim, 2, 1)
        self.norm1, self.norm2, self.norm3 = (nn.RMSNorm(dim) for _ in range(3))
        self.cross = Attention(dim, 2, 1) if causal else None
        self.up, self.down = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x, bias, context=None):
        x = x + self.attn(self.norm1(x), bias=bias, causal=self.causal)
        if self.cross:
            x = x + self.cross(self.norm2(x), context)
        return x + self.down(F.relu(self.up(self.norm3(x))))


class T5(nn.Module):
    def __init__(self, vocab=20, dim=16):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.read, self.write = (nn.Parameter(0.1 * torch.randn(32, 2)) for _ in range(2))
        self.encoder = nn.ModuleList(T5Block(dim, False) for _ in range(2))
        self.decoder = nn.ModuleList(T5Block(dim, True) for _ in range(2))
        self.context, self.norm = nn.RMSNorm(dim), nn.RMSNorm(dim)

    def forward(self, source, said):
        h, x, dim = self.words(source), self.words(said), self.words.embedding_dim
        for block in self.encoder:
            h = block(h, relative_bias(self.read, h.shape[1], h.shape[1], False))
        for block in self.decoder:
            x = block(x, relative_bias(self.write, x.shape[1], x.shape[1], True), self.context(h))
        return self.norm(x) / dim**0.5 @ self.words.weight.T


# DiT


def modulate(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift


class DiTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ada, self.attn = nn.Linear(dim, 6 * dim), Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        nn.init.zeros_(self.ada.weight), nn.init.zeros_(self.ada.bias)

    def forward(self, x, c):
        m = self.ada(c).unsqueeze(1).chunk(6, -1)
        x = x + m[2] * self.attn(modulate(x, m[0], m[1]))
        return x + m[5] * self.mlp(modulate(x, m[3], m[4]))


class DiT(nn.Module):
    def __init__(self, length=16, channels=8, dim=64, heads=4):
        super().__init__()
        self.t1, self.t2 = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.enter, self.out = nn.Linear(channels, dim), nn.Linear(dim, channels)
        self.places = nn.Parameter(0.02 * torch.randn(length, dim))
        self.blocks = nn.ModuleList(DiTBlock(dim, heads) for _ in range(3))
        nn.init.zeros_(self.out.weight), nn.init.zeros_(self.out.bias)

    def forward(self, x, t):
        c, x = F.silu(self.t2(F.silu(self.t1(t)))), self.enter(x) + self.places
        for block in self.blocks:
            x = block(x, c)
        return self.out(F.layer_norm(x, x.shape[-1:]))


# mixture of experts


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gateup, self.down = nn.Linear(dim, 2 * hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.gateup(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Mixture(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, 8) for _ in range(experts))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            *places, j = torch.where(chosen == e)
            places = tuple(places)
            y[places] += weights[places + (j, None)] * expert(x[places])
        return y


class MoE(nn.Module):
    def __init__(self, vocab=20, context=6, dim=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.attn = nn.ModuleList(Attention(dim, 2) for _ in range(2))
        self.moe = nn.ModuleList(Mixture(dim, 3) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(5))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for i, (attn, moe) in enumerate(zip(self.attn, self.moe)):
            x = x + attn(self.norms[2 * i](x), causal=True)
            x = x + moe(self.norms[2 * i + 1](x))
        return self.head(self.norms[4](x))


# Whisper


class Whisper(nn.Module):
    def __init__(self, vocab=20, sounds=5, length=6, context=6, dim=16):
        super().__init__()
        self.conv1 = nn.Conv1d(sounds, dim, 3, padding=1)
        self.conv2 = nn.Conv1d(dim, dim, 3, stride=2, padding=1)
        self.sound = nn.Parameter(0.02 * torch.randn(length, dim))
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        layer = nn.TransformerDecoderLayer(
            dim, 2, 4 * dim, dropout=0, activation="gelu", batch_first=True, norm_first=True
        )
        self.read, self.write = encoder(dim, 1), nn.TransformerDecoder(layer, 1, nn.LayerNorm(dim))
        self.head = nn.Linear(dim, vocab)

    def forward(self, sound, said):
        x = F.gelu(self.conv2(F.gelu(self.conv1(sound.transpose(1, 2)))))
        x = self.read(x.transpose(1, 2) + self.sound)
        h = self.words(said) + self.places.weight[: said.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(said.shape[1])
        return self.head(self.write(h, x, mask, tgt_is_causal=True))


# CLIP


class CLIP(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.vision, self.words = VisionTransformer(), MaskedBERT()
        self.picture, self.text = nn.Linear(10, dim, bias=False), nn.Linear(20, dim, bias=False)
        self.scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, images, tokens):
        picture = F.normalize(self.picture(self.vision(images)), dim=-1)
        text = F.normalize(self.text(self.words(tokens).mean(1)), dim=-1)
        logits, rows = picture @ text.T * self.scale.exp(), torch.arange(len(images))
        return (F.cross_entropy(logits, rows) + F.cross_entropy(logits.T, rows)) / 2


# DPO


class GPT(nn.Module):
    def __init__(self, vocab=20, context=8, dim=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.body = encoder(dim, 1)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.body(x, mask, is_causal=True) @ self.words.weight.T


def dpo(policy, reference, tokens, targets):
    def logp(model):
        logits = model(tokens).transpose(1, 2)
        return -F.cross_entropy(logits, targets, reduction="none").sum(1)

    with torch.no_grad():
        base = logp(reference)
    better, worse = (logp(policy) - base).chunk(2)
    return -F.logsigmoid(0.1 * (better - worse)).mean()


# Muon with EMA


def muon_with_ema(model, batches, validation, steps=100):
    hidden = lambda name, p: p.ndim == 2 and not name.startswith(("words", "places"))
    named = list(model.named_parameters())
    optimizers = [
        torch.optim.Muon([p for n, p in named if hidden(n, p)], lr=0.02, weight_decay=0.1),
        torch.optim.AdamW([p for n, p in named if not hidden(n, p)], lr=0.002),
    ]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, steps) for o in optimizers]
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95))
    of = lambda model, tokens, targets: F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    for tokens, targets in batches:
        of(model, tokens, targets).backward()
        for o, schedule in zip(optimizers, schedules):
            o.step(), o.zero_grad(), schedule.step()
        averaged.update_parameters(model)
    with torch.no_grad():
        return sum(of(averaged, *b) for b in validation) / len(validation)


# convolution and LSTM


class ConvolutionalLSTM(nn.Module):
    def __init__(self, sounds=5, dim=8, classes=10):
        super().__init__()
        self.conv = nn.Conv1d(sounds, dim, 3, padding=1)
        self.lstm, self.head = nn.LSTM(dim, dim, batch_first=True), nn.Linear(dim, classes)

    def forward(self, sound):
        x = F.relu(self.conv(sound.transpose(1, 2))).transpose(1, 2)
        return self.head(self.lstm(x)[0][:, -1])


# end


def main():
    torch.manual_seed(0)
    ids = lambda *shape: torch.randint(0, 20, shape)
    of = lambda logits, targets: F.cross_entropy(logits.flatten(0, -2), targets.flatten())
    policy = GPT()
    losses = {
        "ViT": lambda: of(VisionTransformer()(torch.randn(2, 3, 8, 8)), ids(2) % 10),
        "masked BERT": lambda: of(MaskedBERT()(ids(2, 6)), ids(2, 6)),
        "T5": lambda: of(T5()(ids(2, 6), ids(2, 5)), ids(2, 5)),
        "DiT": lambda: (DiT()(torch.randn(2, 16, 8), torch.randn(2, 64)) - 1).square().mean(),
        "mixture of experts": lambda: of(MoE()(ids(2, 6)), ids(2, 6)),
        "Whisper": lambda: of(Whisper()(torch.randn(2, 12, 5), ids(2, 6)), ids(2, 6)),
        "CLIP": lambda: CLIP()(torch.randn(3, 3, 8, 8), ids(3, 6)),
        "DPO": lambda: dpo(policy, copy.deepcopy(policy), ids(4, 8), ids(4, 8)),
        "convolution and LSTM": lambda: of(ConvolutionalLSTM()(torch.randn(2, 7, 5)), ids(2) % 10),
    }
    same = [(ids(4, 8), ids(4, 8))]
    print(f"Muon with EMA: {muon_with_ema(GPT(), 100 * same, same).item():.3f}")
    for name, loss in losses.items():
        value = loss()
        value.backward()
        print(f"{name}: {value.item():.3f}")


if __name__ == "__main__":
    main()
