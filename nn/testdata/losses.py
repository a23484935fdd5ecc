"""Writes losses.json: losses, and functions of one tensor, by PyTorch, in float64.

    python3 losses.py          (in this directory)
"""

import torch
import torch.nn.functional as F

from golden import rounded, values, write


def x_and_targets(scale=1):
    return (scale * values("x", 3, 4, 5)).requires_grad_(), values("targets", 3, 4, 5).requires_grad_()


def loss(f, scale=1, unit=False, **options):
    x, targets = x_and_targets(scale)
    if unit:
        targets = ((1 + targets.detach()) / 2).requires_grad_()
    y = f(x, targets, **options)
    y.backward()
    return {"Out": [y.item()], "Gradients": {"x": rounded(x.grad), "targets": rounded(targets.grad)}}


def logsumexp(dim, scale=1):
    x, _ = x_and_targets(scale)
    y = torch.logsumexp(x, dim)
    (y * values("out", *y.shape)).sum().backward()
    return {"Out": rounded(y), "Gradients": {"x": rounded(x.grad)}}


def of_x(f):
    x, _ = x_and_targets()
    y = f(x)
    (y * values("out", *y.shape)).sum().backward()
    return {"Out": rounded(y), "Gradients": {"x": rounded(x.grad)}}


def scattered(x):
    v, i = x.topk(3)
    return torch.zeros(3, 4, 7, dtype=x.dtype).scatter_add(-1, i, v * x.square().gather(-1, i))


bce = F.binary_cross_entropy_with_logits

write("losses.json", {
    "mse": loss(F.mse_loss),
    "l1": loss(F.l1_loss),
    "huber 0.5": loss(F.huber_loss, delta=0.5),
    "huber 1": loss(F.huber_loss, delta=1.0),
    "huber 3 of 100": loss(F.huber_loss, 100, delta=3.0),
    "huber 1000": loss(F.huber_loss, delta=1000.0),
    "bce": loss(bce, unit=True),
    "bce of 10000": loss(bce, 10000, unit=True),
    "bce weight 3": loss(bce, 4, unit=True, pos_weight=torch.tensor(3.0)),
    "bce weights": loss(bce, 4, unit=True, pos_weight=torch.tensor([0.5, 1.0, 2.0, 3.0, 4.0])),
    "logsumexp 0": logsumexp(0),
    "logsumexp 1": logsumexp(1),
    "logsumexp -1": logsumexp(-1),
    "logsumexp -1 of 30": logsumexp(-1, 30),
    "softmax 1": of_x(lambda x: x.softmax(1)),
    "max 1": of_x(lambda x: x.max(1).values),
    "max 0 2": of_x(lambda x: x.amax((0, 2))),
    "exp log sqrt": of_x(lambda x: (x.exp() + 1).log().sqrt()),
    "abs div": of_x(lambda x: x.abs() / (2 + x)),
    "topk gather scatter": of_x(scattered),
})
