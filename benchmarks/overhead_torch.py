"""The PyTorch side of `benchmarks.overhead --convolutions`, which starts it; needs torch, and nothing of mvcl.

A request is a line of JSON on stdin, `{"layer": [images, side, channels, features, kernel, stride]}` or `{"network":
[images, side, channels, widths], "last": BOOL}`, no widths for ResNet-18. The answer is a line with the CPU seconds
and those of a clock of value and gradient, of the input too where a layer has more than 3 channels.
"""

import json
import sys
import time
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn


def conv(channels: int, features: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, features, size, stride, size // 2, bias=False)


def normed(*layer: int) -> nn.Sequential:
    return nn.Sequential(conv(*layer), nn.BatchNorm2d(layer[1]))


class Block(nn.Module):
    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = normed(channels, features, 3, stride), normed(features, features)
        self.skip = normed(channels, features, 1, stride) if channels != features else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.b(torch.relu(self.a(x))) + self.skip(x))


def network(channels: int, widths: list[int]) -> nn.Module:
    if widths:
        sizes = zip([channels, *widths], widths)
        layers = [[normed(a, b, 3, 1 if a == channels else 2), nn.ReLU()] for a, b in sizes]
        return nn.Sequential(*(part for layer in layers for part in layer))
    body: list[nn.Module] = [normed(channels, 64), nn.ReLU()]
    for a, b in [(64, 64), (64, 128), (128, 256), (256, 512)]:
        body += [Block(a, b, 1 if a == b else 2), Block(b, b, 1)]
    return nn.Sequential(*body)


@cache
def program(request: str) -> Any:
    of = json.loads(request)
    kind = torch.channels_last if of["last"] else torch.contiguous_format
    images, side, channels, *rest = of.get("layer") or of["network"]
    module = (conv(channels, *rest) if "layer" in of else network(channels, *rest)).to(memory_format=kind)
    x = torch.randn(images, channels, side, side).contiguous(memory_format=kind)
    x.requires_grad_("layer" in of and channels > 3)

    def run() -> None:
        module.zero_grad()
        x.grad = None
        module(x).square().sum().backward()

    run()
    return run


def timed(run: Any, calls: int = 1) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        run()
    return (time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls


for line in sys.stdin:
    run = program(line)
    print(*timed(run, max(1, int(0.2 / timed(run)[1]))), flush=True)
