"""Writes the golden files of package nn's tests: losses, outputs and gradients in float64, from plain PyTorch operations.

    python3 golden.py        (in this directory; needs PyTorch, any version with float64 on the CPU)

The models are written from their equations, without PyTorch's own attention, layer or loss functions. Parameters and
inputs follow from their names by a formula that the tests repeat, so the files hold results alone.
"""

import json
import math
import zlib

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def word(name, i):
    """A well mixed 32-bit word for element i of what has that name."""
    x = (zlib.crc32(name.encode()) + i * 2654435761) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def values(name, *shape):
    """Numbers in [-1, 1) with 20 fractional bits, which float32 holds exactly."""
    n = math.prod(shape)
    return torch.tensor([((word(name, i) >> 11) - (1 << 20)) / (1 << 20) for i in range(n)]).reshape(shape)


def integers(name, limit, *shape):
    n = math.prod(shape)
    return torch.tensor([word(name, i) % limit for i in range(n)]).reshape(shape)


class Weights(dict):
    """Parameters by name, made on first use: weights in [-1/2, 1/2), the scales of norms around 1."""

    def get(self, name, *shape, scale=False):
        if name not in self:
            w = values(name, *shape)
            self[name] = (1 + w / 4 if scale else w / 2).requires_grad_()
        assert self[name].shape == shape, name
        return self[name]

    def linear(self, name, x, out, biased=True):
        y = x @ self.get(name + ".weight", x.shape[-1], out)
        return y + self.get(name + ".bias", out) if biased else y

    def layernorm(self, name, x):
        c = x - x.mean(-1, keepdim=True)
        y = c / torch.sqrt((c * c).mean(-1, keepdim=True) + 1e-5)
        n = x.shape[-1]
        return y * self.get(name + ".weight", n, scale=True) + self.get(name + ".bias", n)

    def rmsnorm(self, name, x):
        y = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        return y * self.get(name + ".weight", x.shape[-1], scale=True)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + torch.exp(-x))


def rope(x, base=10000.0):
    """Rotates (B, H, S, D) by position: dimension d together with d + D/2."""
    s, d = x.shape[-2:]
    angle = torch.arange(s)[:, None] * base ** (-2 * torch.arange(d // 2) / d)[None, :]
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attend(q, k, v, causal=False, window=None, softcap=0, alibi=None, bias=None, mask=None, sinks=None):
    """Attention over (B, H, S, D); gives the output and the probabilities. Rows that see nothing are zero."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    off = s.shape[-1] - s.shape[-2]
    i, j = torch.arange(s.shape[-2])[:, None] + off, torch.arange(s.shape[-1])[None, :]
    if alibi is not None:
        s = s - torch.tensor(alibi)[:, None, None] * (i - j).abs()
    if bias is not None:
        s = s + bias
    seen = torch.ones(s.shape, dtype=torch.bool)
    if causal:
        seen = seen & (j <= i)
    if window:
        seen = seen & (j >= i - window[0]) & (j <= i + window[1])
    if mask is not None:
        seen = seen & mask[:, None, None, :]
    e = torch.where(seen, torch.exp(torch.where(seen, s, torch.zeros(())) - s.detach().amax(-1, keepdim=True)), 0)
    total = e.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks[:, None, None] - s.detach().amax(-1, keepdim=True))
    p = e / torch.where(total > 0, total, 1)
    return p @ v, p


def multihead(w, name, x, heads, kv=None, head=None, context=None, use_rope=False, qknorm=False, biased=True, **options):
    """Attention between two projections; gives the output and the probabilities."""
    kv = kv or heads
    head = head or x.shape[-1] // heads
    split = lambda t: t.reshape(t.shape[0], t.shape[1], -1, head).transpose(1, 2)
    if context is None and not use_rope and not qknorm:
        qkv = w.linear(name + "qkv", x, (heads + 2 * kv) * head, biased)
        q, k, v = (split(t) for t in qkv.split([heads * head, kv * head, kv * head], -1))
    else:
        source = x if context is None else context
        q = split(w.linear(name + "q", x, heads * head, biased))
        k = split(w.linear(name + "k", source, kv * head, biased))
        v = split(w.linear(name + "v", source, kv * head, biased))
    if qknorm:
        q, k = w.rmsnorm(name + "qnorm", q), w.rmsnorm(name + "knorm", k)
    if use_rope:
        q, k = rope(q), rope(k)
    o, p = attend(q, k, v, **options)
    return w.linear(name + "proj", o.transpose(1, 2).flatten(2), x.shape[-1], biased), p


def cross_entropy(logits, targets):
    shifted = logits - logits.detach().amax(-1, keepdim=True)
    lse = torch.log(torch.exp(shifted).sum(-1))
    return (lse - shifted.gather(-1, targets[..., None]).squeeze(-1)).mean()


def gpt():
    vocab, context, dim, heads, tokens = 13, 9, 12, 3, integers("tokens", 13, 2, 7)
    w = Weights()
    x = w.get("tokens.weight", vocab, dim)[tokens] + w.get("positions.weight", context, dim)[:7]
    for layer in range(2):
        p = f"blocks.{layer}."
        x = x + multihead(w, p + "attn.", w.layernorm(p + "norm1", x), heads, causal=True)[0]
        h = gelu(w.linear(p + "mlp.fc", w.layernorm(p + "norm2", x), 4 * dim))
        x = x + w.linear(p + "mlp.proj", h, dim)
    logits = w.layernorm("norm", x) @ w["tokens.weight"].T
    return w, logits, cross_entropy(logits, integers("targets", 13, 2, 7))


def llama(kv=2, head=None, qknorm=False, tied=False):
    vocab, dim, hidden, tokens = 13, 16, 20, integers("tokens", 13, 2, 7)
    w = Weights()
    x = w.get("tokens.weight", vocab, dim)[tokens]
    for layer in range(2):
        p = f"blocks.{layer}."
        h = w.rmsnorm(p + "norm1", x)
        x = x + multihead(w, p + "attn.", h, 4, kv, head, None, True, qknorm, biased=False, causal=True)[0]
        h = w.rmsnorm(p + "norm2", x)
        h = silu(w.linear(p + "mlp.gate", h, hidden, biased=False)) * w.linear(p + "mlp.up", h, hidden, biased=False)
        x = x + w.linear(p + "mlp.down", h, dim, biased=False)
    table = w["tokens.weight"] if tied else w.get("head.weight", vocab, dim)
    logits = w.rmsnorm("norm", x) @ table.T
    return w, logits, cross_entropy(logits, integers("targets", 13, 2, 7))


def qwen():
    """Llama's shape with normalised queries and keys, heads of a size of their own, and tied weights."""
    return llama(kv=1, head=6, qknorm=True, tied=True)


def block_post():
    """A block that normalises after each residual connection, as the first transformers did."""
    w = Weights()
    x = w["x"] = values("x", 2, 5, 8).requires_grad_()
    x = w.layernorm("norm1", x + multihead(w, "attn.", x, 2)[0])
    y = w.layernorm("norm2", x + w.linear("mlp.proj", gelu(w.linear("mlp.fc", x, 32)), 8))
    return w, y, (y * values("dout", *y.shape)).sum()


def attention_cases():
    mask = integers("mask", 3, 3, 6) > 0
    mask[1] = False
    cases = {
        "self": dict(heads=2),
        "causal without bias": dict(heads=2, biased=False, causal=True),
        "gqa": dict(heads=4, kv=2),
        "mqa with wide heads": dict(heads=2, kv=1, head=6),
        "cross": dict(heads=2, context=True),
        "cross gqa": dict(heads=4, kv=2, context=True),
        "rope": dict(heads=2, use_rope=True, causal=True),
        "rope gqa qknorm": dict(heads=4, kv=2, head=4, use_rope=True, qknorm=True, biased=False, causal=True),
        "qknorm": dict(heads=2, qknorm=True),
        "padding": dict(heads=2, mask=mask),
        "padding causal rope": dict(heads=2, mask=mask, use_rope=True, causal=True),
        "padding cross": dict(heads=2, mask=mask, context=True),
        "bias": dict(heads=2, bias=(1, 2)),
        "padding and bias": dict(heads=2, mask=mask, bias=(1, 2)),
        "padding and bias of each batch item": dict(heads=2, mask=mask, bias=(3, 1)),
        "window softcap alibi": dict(heads=2, window=(2, 1), softcap=2.0, alibi=[0.5, 0.25]),
        "sinks": dict(heads=2, sinks=True, causal=True),
    }
    results = {}
    for name, c in cases.items():
        w = Weights()
        x = w["x"] = values("x", 3, 4 if c.get("context") else 6, 8).requires_grad_()
        if c.get("context"):
            c["context"] = w["context"] = values("context", 3, 6, 10).requires_grad_()
        if "bias" in c:
            c["bias"] = w["bias"] = values("bias", *c["bias"], 6, 6).requires_grad_()
        if "sinks" in c:
            c["sinks"] = w["sinks"] = values("sinks", 2).requires_grad_()
        out, p = multihead(w, "", x, **c)
        results[name] = result(w, out, (out * values("dout", *out.shape)).sum(), p)
    return results


def result(w, out, loss, weights=None):
    loss.backward()
    r = {"loss": loss.item(), "out": rounded(out)}
    if weights is not None:
        r["weights"] = rounded(weights)
    r["gradients"] = {name: rounded(t.grad) for name, t in w.items()}
    return r


def rounded(t):
    """The elements with 13 digits, a thousand times more exact than the tests ask for."""
    return [float(f"{x:.13g}") for x in t.flatten().tolist()]


def write(path, results):
    with open(path, "w") as f:
        json.dump(results, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    write("models.json", {name: result(*model()) for name, model in
                          {"gpt": gpt, "llama": llama, "qwen": qwen, "post-norm block": block_post}.items()})
    write("attention.json", attention_cases())
