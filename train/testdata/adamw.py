"""Writes adamw.json: 20 steps of torch.optim.AdamW and SGD in float64 over given gradients.

    python3 adamw.py         (in this directory; needs PyTorch, any version with float64 on the CPU)

Two parameters, the second without weight decay; a learning rate of its own for each step; gradients clipped to a norm of
1 by torch.nn.utils.clip_grad_norm_, which a quarter of the steps exceed.
"""

import json

import torch

torch.set_default_dtype(torch.float64)
torch.manual_seed(7)

STEPS = 20
shapes = {"weight": (3, 5), "bias": (7,)}
start = {name: torch.randn(shape) for name, shape in shapes.items()}
sizes = [10 ** (-1.5 + 1.5 * ((5 * i) % STEPS) / STEPS) for i in range(STEPS)]
gradients = [{name: size * torch.randn(shape) for name, shape in shapes.items()} for size in sizes]
rates = [1e-2 * (1 + i % 4) for i in range(STEPS)]

optimisers = {
    "AdamW": lambda groups: torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8),
    "SGD": lambda groups: torch.optim.SGD(groups, lr=1, momentum=0.9, nesterov=True),
}


def run(make):
    parameters = {name: torch.nn.Parameter(x.clone()) for name, x in start.items()}
    optimiser = make([{"params": [parameters["weight"]], "weight_decay": 0.1}, {"params": [parameters["bias"]], "weight_decay": 0.0}])
    steps = []
    for rate, gradient in zip(rates, gradients):
        for name, p in parameters.items():
            p.grad = gradient[name].clone()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.step()
        steps.append({"Norm": norm.item(), "Parameters": {name: p.flatten().tolist() for name, p in parameters.items()}})
    return steps


with open("adamw.json", "w") as f:
    json.dump(
        {
            "Start": {name: x.flatten().tolist() for name, x in start.items()},
            "Rates": rates,
            "Gradients": [{name: x.flatten().tolist() for name, x in g.items()} for g in gradients],
            "Results": {name: run(make) for name, make in optimisers.items()},
        },
        f,
        indent=1,
    )
