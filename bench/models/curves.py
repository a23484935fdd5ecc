"""Trains the models of twins.py on the batches of nn/curves_test.go, and compares the losses with those
that it wrote, and those of DiT and of Muon with EMA:

    for p in nn examples/dit train; do go test ./$p -run TestCurves -curves /tmp/$(basename $p).json; done
    python3 bench/models/curves.py bench/results/curves /tmp/nn.json /tmp/dit.json /tmp/train.json

It prints means and standard deviations over seeds, of the first and the last steps, and writes the
losses of both, by step: mean and standard deviation. Of Muon with EMA it has what trainings of
several lengths end at.
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import twins

ROWS, STEPS = 32, 300
LENGTHS = 25, 50, 100, 200  # of trainings by Muon


def word(name, i):
    x = np.uint32(zlib.crc32(name.encode())) + np.asarray(i, np.uint32) * np.uint32(2654435761)
    for _ in range(2):
        x = (x ^ x >> np.uint32(16)) * np.uint32(0x45D9F3B)
    return x ^ x >> np.uint32(16)


def value(name, i):
    return ((word(name, i) >> np.uint32(11)).astype(np.int64) - (1 << 20)) / (1 << 20)


class Batch:
    def __init__(self, name):
        self.name, self.row = name, np.arange(ROWS)

    def drawn(self, what, row, limit):
        return (word(self.name + what, row) % np.uint32(limit)).astype(np.int64)

    def noisy(self, name, classes, *shape):
        each = int(np.prod(shape))
        i = np.arange(each)
        classes = np.broadcast_to(np.stack([classes(self.row, k) for k in i], 1), (ROWS, each))
        looks = np.stack([[value(f"class{c}", k) for c, k in zip(row, i)] for row in classes])
        noise = value(self.name + name, self.row[:, None] * each + i)
        return torch.tensor(looks + 1.5 * noise, dtype=torch.float32).reshape(ROWS, *shape)

    def ids(self, of, length=None):
        if length is None:
            return torch.tensor(of(self.row, 0))
        return torch.tensor(np.stack([of(self.row, i) for i in range(length)], 1))

    def counted(self, row, i):
        return (self.drawn("start", row, 19) + i * (1 + self.drawn("step", row, 3))) % 19


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def vit(b):
    label = lambda row, _: b.drawn("label", row, 10)
    images, labels = b.noisy("images", label, 3, 8, 8), b.ids(label)
    return lambda m: cross_entropy(m(images), labels)


def masked_bert(b):
    hidden = lambda row, i: np.where(b.drawn("mask", row, 6) == i, 19, b.counted(row, i))
    tokens, targets = b.ids(hidden, 6), b.ids(b.counted, 6)
    return lambda m: cross_entropy(m(tokens), targets)


def t5(b):
    source = lambda row, i: 1 + b.drawn("source", row * 6 + i, 19)
    read = b.ids(source, 6)
    said = b.ids(lambda row, i: source(row, 6 - i) if i else 0 * row, 5)
    targets = b.ids(lambda row, i: source(row, 5 - i), 5)
    return lambda m: cross_entropy(m(read, said), targets)


def mixture(b):
    tokens, targets = b.ids(b.counted, 6), b.ids(lambda row, i: b.counted(row, i + 1), 6)
    return lambda m: cross_entropy(m(tokens), targets)


def whisper(b):
    sound = b.noisy("sound", lambda row, i: b.counted(row, i // 10), 12, 5)
    said = b.ids(lambda row, i: b.counted(row, i - 1) if i else 0 * row + 19, 6)
    targets = b.ids(b.counted, 6)
    return lambda m: cross_entropy(m(sound, said), targets)


def clip(b):
    classes = lambda row, _: row + ROWS * b.drawn("class", row, 4)
    images = b.noisy("images", classes, 3, 8, 8)
    each = classes(b.row, 0)
    tokens = torch.tensor(np.stack([(word(f"words{c}", np.arange(6)) % np.uint32(19)).astype(np.int64) for c in each]))
    return lambda m: m(images, tokens)


def dpo(b):
    token = lambda row, i: np.where(row < ROWS // 2, b.counted(row, i), b.drawn("any", row * 9 + i, 20))
    tokens, targets = b.ids(token, 8), b.ids(lambda row, i: token(row, i + 1), 8)
    return lambda m: twins.dpo(m[0], m[1], tokens, targets)


def convolution(b):
    label = lambda row, _: b.drawn("label", row, 10)
    sound, labels = b.noisy("sound", label, 7, 5), b.ids(label)
    return lambda m: cross_entropy(m(sound), labels)


def dit(b):
    rows, length, channels, dim = ROWS, 16, 8, 64
    time, phase = (1 + value(b.name + "time", b.row)) / 2, np.pi * value(b.name + "phase", b.row)
    angle = 1000 * time[:, None] * 1e4 ** (-np.arange(dim // 2) / (dim / 2))
    noise = np.sqrt(3) * value(b.name + "noise", np.arange(rows * length * channels)).reshape(rows, length, channels)
    wave = np.sin(phase[:, None] + np.arange(length * channels) / 5).reshape(rows, length, channels)
    x = np.sqrt(1 - time)[:, None, None] * wave + np.sqrt(time)[:, None, None] * noise
    x, t, noise = (torch.tensor(y, dtype=torch.float32) for y in (x, np.concatenate([np.cos(angle), np.sin(angle)], 1), noise))
    return lambda m: F.mse_loss(m(x, t), noise)


TASKS = {
    "ViT": (twins.VisionTransformer, vit),
    "masked BERT": (twins.MaskedBERT, masked_bert),
    "T5": (twins.T5, t5),
    "DiT": (twins.DiT, dit),
    "mixture of experts": (twins.MoE, mixture),
    "Whisper": (twins.Whisper, whisper),
    "CLIP": (twins.CLIP, clip),
    "DPO": (lambda: torch.nn.ModuleList([twins.GPT(), twins.GPT()]), dpo),
    "convolution and LSTM": (twins.ConvolutionalLSTM, convolution),
}


def losses(make, batches, seed, rate):
    torch.manual_seed(seed)
    model = make()
    trained = model[0] if isinstance(model, torch.nn.ModuleList) else model
    optimizer = torch.optim.AdamW(trained.parameters(), lr=rate, weight_decay=0)
    found = []
    for batch in batches:
        loss = batch(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def counted_batch(n):
    row, i = np.arange(ROWS)[:, None], np.arange(9)
    tokens = torch.tensor((row * 7 + n * 5 + i * (1 + (row + n) % 3)) % 19)
    return tokens[:, :-1], tokens[:, 1:]


def muon(seed):
    ends = []
    for steps in LENGTHS:
        torch.manual_seed(seed)
        batches = [counted_batch(n) for n in range(steps)]
        ends.append(twins.muon_with_ema(twins.GPT(), batches, batches[:4], steps).item())
    return ends


def main():
    torch.set_num_threads(1)  # the models are small
    folder, ours = Path(sys.argv[1]).absolute(), {}
    for path in sys.argv[2:]:
        ours |= json.loads(Path(path).read_text())
    folder.mkdir(parents=True, exist_ok=True)
    print("| model | steps | here | PyTorch |\n| --- | --- | --- | --- |")

    def show(name, label, both):
        cells = [f"{x.mean():.3f} ± {x.std(ddof=1):.3f}" for x in both]
        print("|", " | ".join([name, label, *cells]), "|", flush=True)

    def write(name, steps, both):
        columns = np.stack([f(x) for x in both for f in (lambda x: x.mean(0), lambda x: x.std(0, ddof=1))], 1)
        header = "step,here,its deviation,PyTorch,its deviation"
        rows = [f"{i}," + ",".join(f"{x:.4f}" for x in row) for i, row in zip(steps, columns)]
        (folder / f"{name.replace(' ', '-')}.csv").write_text("\n".join([header, *rows]) + "\n")

    for name, (make, task) in TASKS.items():
        if name not in ours:
            continue
        batches, rate = [task(Batch(f"{name}{n}")) for n in range(STEPS)], 1e-3 if name == "DiT" else 3e-3
        seeds = range(1, len(ours[name]) + 1)
        both = [np.array(ours[name]), np.array([losses(make, batches, seed, rate) for seed in seeds])]
        for label, part in (("1–50", slice(0, 50)), ("101–150", slice(100, 150)), ("251–300", slice(250, 300))):
            show(name, label, [x[:, part].mean(1) for x in both])
        write(name, range(1, STEPS + 1), both)
    if name := next((n for n in ours if n.startswith("Muon")), None):
        both = [np.array(ours[name]), np.array([muon(seed) for seed in range(1, len(ours[name]) + 1)])]
        for i, steps in enumerate(LENGTHS):
            show(name, f"after {steps}", [x[:, i] for x in both])
        write(name, LENGTHS, both)


if __name__ == "__main__":
    np.seterr(over="ignore")
    main()
