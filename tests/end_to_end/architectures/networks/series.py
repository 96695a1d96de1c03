"""Networks of series of numbers: forecasts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.end_to_end.architectures.networks.layers import (
    SERIES,
    WIDTH,
    Block,
    joined,
    mlp,
    network,
    split,
    waves,
)


@network(SERIES)
class PatchTst(nn.Module):
    """Patches of 16 samples that overlap, of each channel, the last sample repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.block, self.out = nn.Linear(16, WIDTH), Block(), nn.Linear(WIDTH, 24)

    def forward(self, x: Tensor) -> Tensor:
        mean, scale = x.mean(1, True), x.std(1, keepdim=True) + 1e-5
        x = functional.pad(((x - mean) / scale).transpose(1, 2), (0, 8), "replicate").unfold(-1, 16, 8)
        batch, channels, count, _ = x.shape
        x = self.block(self.patch(x).view(-1, count, WIDTH) + waves(count)).mean(1)
        return self.out(x).view(batch, channels, -1).transpose(1, 2) * scale + mean


@network(SERIES)
class Informer(nn.Module):
    """The queries that differ most look; the others take the mean; then half as many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.qkv, self.less = (
            nn.Linear(3, WIDTH),
            nn.Linear(WIDTH, 48),
            nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(one) for one in self.qkv(self.first(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(8)
        top = (scores.amax(-1) - scores.mean(-1)).topk(6)[1]
        taken = top[..., None].expand(-1, -1, -1, 8)
        found = scores.gather(2, top[..., None].expand(-1, -1, -1, scores.shape[-1])).softmax(-1) @ v
        y = joined(v.mean(2, True).expand_as(v).scatter(2, taken, found))
        return functional.max_pool2d(functional.elu(self.less(y.transpose(1, 2)))[:, :, None], (1, 3), (1, 2), (0, 1))[
            :, :, 0
        ]


@network(SERIES)
class Autoformer(nn.Module):
    """A moving mean apart; delays by correlations from Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.qkv = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 48)

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.cat([x[:, :1].repeat(1, 4, 1), x, x[:, -1:].repeat(1, 4, 1)], 1).transpose(1, 2)
        trend = functional.avg_pool1d(padded, 9, 1).transpose(1, 2)
        q, k, v = self.qkv(self.first(x - trend)).chunk(3, -1)
        length = x.shape[1]
        one, other = torch.view_as_real(torch.fft.rfft(q, dim=1)), torch.view_as_real(torch.fft.rfft(k, dim=1))
        product = torch.complex((one * other).sum(-1), one[..., 1] * other[..., 0] - one[..., 0] * other[..., 1])
        likeness = torch.fft.irfft(product, length, 1).mean(-1)
        weights, delays = likeness.topk(3, 1)
        places = torch.arange(length)[None, :, None] + delays[:, None]
        found = torch.cat([v, v], 1)[torch.arange(x.shape[0])[:, None, None], places]
        return (found * weights.softmax(-1)[:, None, :, None]).sum(2) + self.first(trend)


@network(SERIES)
class TemporalConvolutions(nn.Module):
    """Causal dilated convolutions, and weights of the variables for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weights, self.layers, self.out = (
            mlp(3, 8, 3),
            nn.ModuleList([nn.Conv1d(3, 8, 3, dilation=1), nn.Conv1d(8, 8, 3, dilation=2)]),
            nn.LSTM(8, 8, 2, batch_first=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = (x * self.weights(x).softmax(-1)).transpose(1, 2)
        for layer in self.layers:
            x = layer(functional.pad(x, (2 * layer.dilation[0], 0))).relu()
        out, (last, _) = self.out(x.transpose(1, 2))
        return out[:, -1] + last[-1]


@network(SERIES)
class NBeats(nn.Module):
    """Blocks that explain what is left of the last 24 samples."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(mlp(24, 16, 24 + 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x, total = x[:, -24:].transpose(1, 2), 0
        for block in self.blocks:
            back, ahead = block(x).split([24, 6], -1)
            x, total = x - back, total + ahead
        return total
