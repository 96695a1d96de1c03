"""Small networks with the shape arithmetic that larger ones of their family have; their sizes are symbols.

Each is a few layers with small widths: what is exported of them is in `export_dynamic`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F


class UNet(nn.Module):
    """Segmentation with skip connections: float32[batch, 3, height, width] to float32[batch, 2, height, width].

    What is sampled up again is brought to the size of what it is joined with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(i, o, 3, padding=1) for i, o in ((3, 8), (8, 16), (16, 16)))
        self.up, self.join = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(24, 8, 3, padding=1)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score of each class for each pixel."""
        wide = F.relu(self.first(x))
        half = F.relu(self.second(F.max_pool2d(wide, 2)))
        deep = self.up(F.relu(self.third(F.max_pool2d(half, 2))))
        deep = F.interpolate(deep, size=half.shape[2:], mode="bilinear")
        deep = F.relu(self.join(torch.cat([deep, half], 1)))
        deep = F.interpolate(deep, size=wide.shape[2:], mode="nearest")
        return self.head(torch.cat([deep, wide], 1))


class Detector(nn.Module):
    """Detection from a pyramid: float32[batch, 3, height, width] to the 10 best scores and their boxes."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 8, 12, 16)
        self.down = nn.ModuleList(nn.Conv2d(i, o, 3, 2, 1) for i, o in pairwise(widths))
        self.side = nn.ModuleList(nn.Conv2d(width, 12, 1) for width in widths[1:])
        self.head = nn.Conv2d(12, 12, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores, float32[batch, 10], and boxes, float32[batch, 10, 4]."""
        levels = []
        for convolution in self.down:
            x = F.silu(convolution(x))
            levels.append(x)
        found, above = [], None
        for side, level in zip(reversed(self.side), reversed(levels), strict=True):
            level = side(level)
            above = level if above is None else level + F.interpolate(above, size=level.shape[-2:], mode="nearest")
            found.append(self._boxes(self.head(above)))
        boxes = torch.cat(found, 1)
        scores, places = boxes[..., 0].sigmoid().topk(10, dim=1)
        return scores, torch.gather(boxes, 1, places.unsqueeze(-1).expand(-1, -1, 4))

    @staticmethod
    def _boxes(y: torch.Tensor) -> torch.Tensor:
        batch, _, height, width = y.shape
        return y.view(batch, 3, 4, height, width).permute(0, 3, 4, 1, 2).reshape(batch, -1, 4)


class ShiftedWindows(nn.Module):
    """Attention in windows that are shifted and padded: float32[batch, height, width, 32] to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the image with each window attended to itself."""
        batch, height, width, channels = x.shape
        tall, wide = height + (4 - height % 4) % 4, width + (4 - width % 4) % 4
        x = torch.roll(F.pad(x, (0, 0, 0, wide - width, 0, tall - height)), (-2, -2), (1, 2))
        windows = x.view(batch, tall // 4, 4, wide // 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        q, k, v = self.qkv(windows.reshape(-1, 16, channels)).reshape(-1, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mixed = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 16, channels))
        y = mixed.view(batch, tall // 4, wide // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        return torch.roll(y.reshape(batch, tall, wide, channels), (2, 2), (1, 2))[:, :height, :width]


class SpeechEncoder(nn.Module):
    """Subsampling, learned positions and attention: float32[batch, 16, frames] to float32[batch, n, 32]."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(16, 32, 3, padding=1), nn.Conv1d(32, 32, 3, 2, 1)
        self.positions = nn.Parameter(torch.randn(60, 32))
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the frames, n = (frames + 1) // 2 of them."""
        y = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        y = y + self.positions[: y.shape[1]]
        q, k, v = self.qkv(self.norm(y)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return y + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class RelativePositions(nn.Module):
    """Attention with relative positions and a mask: ids and mask, int64[batch, seq], to float32[batch, 32]."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.relative = nn.Embedding(100, 32), nn.Embedding(32, 4)
        self.q, self.k, self.v = (nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the mean of the attended words."""
        x, (batch, length) = self.words(ids), ids.shape
        places = torch.arange(length)
        bias = self.relative((places[None] - places[:, None]).clamp(-16, 15) + 16).permute(2, 0, 1)[None]
        q, k, v = (layer(x).view(batch, length, 4, 8).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) + bias + (1 - mask[:, None, None, :].float()) * -1e9
        return (x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, 32)).mean(1)
