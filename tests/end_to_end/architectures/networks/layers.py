"""The table of the networks, and the layers that several of them have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.end_to_end.architectures.inputs import Input


@dataclass(frozen=True)
class Network:
    """What makes a network, and what it takes."""

    build: Callable[[], Any]
    inputs: tuple[Input, ...]


NETWORKS: dict[str, Network] = {}
WIDTH, HEADS = 16, 2


def network(*inputs: Input) -> Callable[[type], type]:
    """Put a class of modules into the table, by its name."""

    def added(made: type) -> type:
        assert made.__name__ not in NETWORKS, made.__name__
        NETWORKS[made.__name__] = Network(made, inputs)
        return made

    return added


def floats(name: str, *shape: str | int) -> Input:
    """Return an input of normal numbers."""
    return Input(name, "floats", shape)


def ids(name: str, *shape: str | int, high: int = 100) -> Input:
    """Return an input of whole numbers."""
    return Input(name, "ids", shape, high)


IMAGE, TEXT, WAVE = (
    floats("x", "batch", 3, "height", "width"),
    ids("x", "batch", "length"),
    floats("x", "batch", "samples"),
)
SERIES = floats("x", "batch", "samples", 3)


def conv(inside: int, outside: int, window: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution of images with its normalization and activation."""
    layer = nn.Conv2d(inside, outside, window, stride, window // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outside), nn.SiLU())


def mlp(*sizes: int) -> nn.Sequential:
    """Return linear layers with activations in between."""
    layers = [layer for one, other in pairwise(sizes) for layer in (nn.Linear(one, other), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def split(x: Tensor, heads: int = HEADS) -> Tensor:
    """Return rows as [batch, head, length, size]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """Return heads as rows."""
    return x.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Attention, to itself or to other rows."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS) -> None:
        super().__init__()
        self.heads, self.q, self.kv, self.out = (
            heads,
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor, other: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        keys, values = self.kv(x if other is None else other).chunk(2, -1)
        q, k, v = (split(one, self.heads) for one in (self.q(x), keys, values))
        return self.out(joined(functional.scaled_dot_product_attention(q, k, v, mask)))


class Block(nn.Module):
    """A layer of a transformer, with attention to other rows where they are given."""

    def __init__(self, width: int = WIDTH, mixer: Any = None) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.mixer, self.cross, self.feed = (
            mixer or Attention(width),
            Attention(width),
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
        )

    def forward(self, x: Tensor, other: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        inner = self.norms[0](x)
        x = x + (self.mixer(inner) if mask is None else self.mixer(inner, None, mask))
        if other is not None:
            x = x + self.cross(self.norms[2](x), other)
        return x + self.feed(self.norms[1](x))


def waves(length: Tensor | int, width: int = WIDTH) -> Tensor:
    """Return sines and cosines of the positions below a length."""
    turns = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-9.2 / width))
    return torch.cat([torch.sin(turns), torch.cos(turns)], -1)


def tokens(x: Tensor) -> Tensor:
    """Return an image as rows of pixels."""
    return x.flatten(2).transpose(1, 2)


def pyramid(sizes: Sequence[int] = (3, 8, 12, 16)) -> nn.ModuleList:
    """Return convolutions that each halve the image."""
    return nn.ModuleList(conv(one, other, stride=2) for one, other in pairwise(sizes))


def resized(x: Tensor, other: Tensor, mode: str = "bilinear") -> Tensor:
    """Return an image of the size of another one."""
    options = {} if mode == "nearest" else {"align_corners": False}
    return functional.interpolate(x, size=other.shape[-2:], mode=mode, **options)


def image_places(height: int, width: int) -> Tensor:
    """Return sines and cosines of rows and columns, [height * width, WIDTH]."""
    rows, columns = waves(height, WIDTH // 2), waves(width, WIDTH // 2)
    both = torch.cat([rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)], -1)
    return both.reshape(-1, WIDTH)
