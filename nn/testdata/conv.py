"""Writes conv.json: convolutions and pooling by PyTorch, in float64.

    python3 conv.py          (in this directory)
"""

import torch
import torch.nn.functional as F

from golden import rounded, values, write


def tensor(name, *shape):
    return values(name, *shape).requires_grad_()


def last(x):  # channels second to last
    return x.movedim(1, -1).contiguous()


def convolution(axes, groups=1, **options):
    sizes = (3, 2)[:axes]
    x = tensor("x", 2, *(9, 7)[:axes], 4)
    k = torch.Size(sizes).numel()
    weight = tensor("weight", groups, k * 4 // groups, 6 // groups)
    bias = tensor("bias", 6)
    theirs = weight.reshape(groups, *sizes, 4 // groups, 6 // groups).movedim(-1, 1).movedim(-1, 2).reshape(6, 4 // groups, *sizes)
    y = last((F.conv1d, F.conv2d)[axes - 1](x.movedim(-1, 1), theirs, bias, groups=groups, **options))
    return result(y, x=x, weight=weight, bias=bias)


def pool(f, **options):
    x = tensor("x", 2, 9, 7, 4)
    return result(last(f(x.movedim(-1, 1), 3, **options)), x=x)


def result(y, **inputs):
    (y * values("out", *y.shape)).sum().backward()
    return {"Shape": list(y.shape), "Out": rounded(y), "Gradients": {name: rounded(x.grad) for name, x in inputs.items()}}


write("conv.json", {
    "conv1d": convolution(1),
    "conv1d stride 2 padding 1": convolution(1, stride=2, padding=1),
    "conv1d stride 3 padding 2 dilation 2": convolution(1, stride=3, padding=2, dilation=2),
    "conv1d groups 2 padding 1": convolution(1, groups=2, padding=1),
    "conv2d": convolution(2),
    "conv2d stride 2 padding 1": convolution(2, stride=2, padding=1),
    "conv2d dilation 2 padding 1 groups 2": convolution(2, dilation=2, padding=1, groups=2),
    "mean pool stride 3": pool(F.avg_pool2d, stride=3),
    "mean pool stride 2 padding 1": pool(F.avg_pool2d, stride=2, padding=1),
    "max pool stride 3": pool(F.max_pool2d, stride=3),
    "max pool stride 2 padding 1": pool(F.max_pool2d, stride=2, padding=1),
})
