"""Networks of speech, music and other signals."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.end_to_end.architectures.networks.layers import (
    WAVE,
    WIDTH,
    Attention,
    Block,
    floats,
    ids,
    joined,
    mlp,
    network,
    split,
    waves,
)

FRAMES = floats("x", "batch", "samples", 20)


@network(WAVE)
class WaveUNet(nn.Module):
    """Separates sources: halves the length, doubles it again, cuts off what is too much."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (1, 6, 8, 12)
        self.down = nn.ModuleList(nn.Conv1d(one, other, 5, padding=2) for one, other in pairwise(sizes))
        self.up = nn.ModuleList(
            nn.Conv1d(one + other, other, 5, padding=2) for one, other in ((12, 12), (12, 8), (8, 6))
        )
        self.last = nn.Conv1d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, kept = x[:, None], []
        for layer in self.down:
            x = functional.leaky_relu(layer(x))
            kept.append(x)
            x = x[..., ::2]
        for layer in self.up:
            skip = kept.pop()
            x = functional.interpolate(x, scale_factor=2, mode="linear")[..., : skip.shape[-1]]
            x = functional.leaky_relu(layer(torch.cat([x, skip], 1)))
        return torch.tanh(self.last(x))


@network(WAVE)
class Demucs(nn.Module):
    """Pads to a length that strides divide, cuts the result to the length that came."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList([nn.Conv1d(1, 8, 8, 4), nn.Conv1d(4, 16, 8, 4)])
        self.middle = nn.LSTM(8, 8, batch_first=True)
        self.decoder = nn.ModuleList([nn.ConvTranspose1d(8, 4, 8, 4), nn.ConvTranspose1d(4, 1, 8, 4)])

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        mean, scale = x.mean(-1, True), x.std(-1, keepdim=True) + 1e-5
        pad = (-(length - 8)) % 16 + 16
        x, kept = functional.pad(((x - mean) / scale)[:, None], (pad // 2, pad - pad // 2)), []
        for layer in self.encoder:
            x = functional.glu(layer(x), 1)
            kept.append(x)
        x = self.middle(x.transpose(1, 2))[0].transpose(1, 2)
        for layer in self.decoder:
            skip = kept.pop()
            x = functional.relu(layer(x[..., : skip.shape[-1]] + skip[..., : x.shape[-1]]))
        return x[:, 0, pad // 2 : pad // 2 + length] * scale + mean


@network(FRAMES)
class Conformer(nn.Module):
    """Halves the frames twice; attention with relative positions, a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.ReLU())
        self.proj, self.qkv, self.pos, self.out = (
            nn.Linear(16, WIDTH),
            nn.Linear(WIDTH, 48),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.point, self.depth, self.after = (
            nn.Conv1d(WIDTH, 32, 1),
            nn.Conv1d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH),
            nn.BatchNorm1d(WIDTH),
        )
        self.u, self.v, self.feed = (
            nn.Parameter(torch.randn(2, 1, 8)),
            nn.Parameter(torch.randn(2, 1, 8)),
            mlp(WIDTH, 32, WIDTH),
        )

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (split(one) for one in self.qkv(x).chunk(3, -1))
        length = x.shape[1]
        turns = torch.arange(length - 1, -length, -1)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-9.2 / WIDTH))
        places = split(self.pos(torch.cat([turns.sin(), turns.cos()], -1))[None])
        moved = (q + self.v) @ places.transpose(-1, -2)
        moved = functional.pad(moved, (1, 0)).view(x.shape[0], 2, -1, length)[:, :, 1:].view(x.shape[0], 2, length, -1)
        scores = ((q + self.u) @ k.transpose(-1, -2) + moved[..., :length]) / math.sqrt(8)
        return self.out(joined(scores.softmax(-1) @ v))

    def forward(self, x: Tensor) -> Tensor:
        x = self.sub(x[:, None])
        x = self.proj(x.transpose(1, 2).flatten(2))
        x = x + 0.5 * self.feed(self.norms[0](x))
        x = x + self.attention(self.norms[1](x))
        inner = functional.glu(self.point(self.norms[2](x).transpose(1, 2)), 1)
        return x + functional.silu(self.after(self.depth(inner))).transpose(1, 2)


@network(WAVE)
class MelFrontEnd(nn.Module):
    """Logarithms of mel bands, each band normalized along time."""

    def __init__(self) -> None:
        super().__init__()
        self.bands = nn.Parameter(torch.rand(33, 12))
        self.register_buffer("window", torch.hann_window(64))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.view_as_real(torch.stft(x, 64, 16, window=self.window, return_complex=True)).pow(2).sum(-1)
        mel = (spectrum.transpose(1, 2) @ self.bands).clamp(min=1e-5).log()
        return (mel - mel.mean(1, keepdim=True)) / (mel.std(1, keepdim=True) + 1e-3)


@network(WAVE)
class SpeechEnhancement(nn.Module):
    """A mask for the spectrum by a causal convolution; back by overlapping and adding."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.first, self.mask = nn.Conv1d(17, 12, 3), nn.Linear(12, 17)
        turns = 2 * math.pi * torch.outer(torch.arange(17), torch.arange(32)) / 32
        self.register_buffer("back", torch.cat([turns.cos(), -turns.sin()])[:, None] / 32 * self.window)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        spectrum = torch.view_as_real(torch.stft(x, 32, 8, window=self.window, return_complex=True))
        size = (spectrum.pow(2).sum(-1) + 1e-9).sqrt()
        mask = (
            self.mask(self.first(functional.pad(size, (2, 0))).relu().transpose(1, 2))
            .sigmoid()
            .transpose(1, 2)[..., None]
        )
        kept = (spectrum * mask).permute(0, 3, 1, 2).flatten(1, 2)
        return functional.conv_transpose1d(kept, self.back, stride=8)[:, 0, 16 : 16 + length]


@network(floats("mel", "batch", 12, "length"))
class HifiGan(nn.Module):
    """Mel bands to samples, four and then two for each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(12, 16, 7, padding=3), nn.Conv1d(4, 1, 7, padding=3)
        self.ups = nn.ModuleList([nn.ConvTranspose1d(16, 8, 8, 4, 2), nn.ConvTranspose1d(8, 4, 4, 2, 1)])
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(size, size, 3, padding=rate, dilation=rate) for rate in (1, 3, 5))
            for size in (8, 4)
        )

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, block in zip(self.ups, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            for layer in block:
                x = x + layer(functional.leaky_relu(x, 0.1))
        return torch.tanh(self.last(functional.leaky_relu(x))).squeeze(1)


@network(WAVE)
class ConvTasNet(nn.Module):
    """Two speakers by masks of a learned transform."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, 12, 8, 4, bias=False), nn.ConvTranspose1d(12, 1, 8, 4, bias=False)
        self.norm, self.mask = nn.GroupNorm(1, 12), nn.Conv1d(12, 24, 1)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(12, 16, 1),
                nn.PReLU(),
                nn.GroupNorm(1, 16),
                nn.Conv1d(16, 16, 3, padding=rate, dilation=rate, groups=16),
                nn.PReLU(),
                nn.Conv1d(16, 12, 1),
            )
            for rate in (1, 2, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        inner = functional.relu(self.encoder(functional.pad(x[:, None], (4, 4 + (-length) % 4))))
        y = self.norm(inner)
        for layer in self.layers:
            y = y + layer(y)
        masked = self.mask(y).sigmoid().unflatten(1, (2, 12)) * inner[:, None]
        return self.decoder(masked.flatten(0, 1)).unflatten(0, (-1, 2))[:, :, 0, 4 : 4 + length]


@network(ids("x", "batch", "length"))
class FastSpeech(nn.Module):
    """Each token is repeated as long as it lasts, by a matrix of comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block, self.length, self.out, self.after = (
            nn.Embedding(100, WIDTH),
            Block(),
            nn.Linear(WIDTH, 1),
            nn.Linear(WIDTH, 12),
            Block(),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.embed(x) + waves(x.shape[1]))
        lasts = (self.length(x)[..., 0].abs() * 3).round() + 1
        ends = lasts.cumsum(-1)
        frames = torch.arange(3 * x.shape[1])[:, None]
        taken = ((frames >= (ends - lasts)[:, None]) & (frames < ends[:, None])).float()
        return self.out(self.after(taken @ x))


@network(FRAMES, ids("y", "batch", "target"))
class Transducer(nn.Module):
    """All pairs of frames and tokens (RNN-T)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.predict = (
            nn.LSTM(20, 8, batch_first=True, bidirectional=True),
            nn.GRU(8, 16, batch_first=True),
        )
        self.embed, self.joint = nn.Embedding(100, 8), nn.Linear(16, 30)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        frames, rows = self.encoder(x)[0], self.predict(self.embed(functional.pad(y[:, :-1], (1, 0))))[0]
        return self.joint(torch.tanh(frames[:, :, None] + rows[:, None])).log_softmax(-1)


@network(WAVE)
class WaveNet(nn.Module):
    """Gated causal convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 16, 1)
        self.layers = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=rate) for rate in (1, 2, 4, 8))
        self.skips = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.first(x[:, None]), 0
        for layer, skip in zip(self.layers, self.skips, strict=True):
            a, b = layer(functional.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            y = a.tanh() * b.sigmoid()
            x, total = x + y, total + skip(y)
        return self.last(functional.relu(total))


@network(FRAMES)
class EcapaTdnn(nn.Module):
    """A speaker's vector: convolutions in parts, squeeze and excitation, statistics by attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.parts = (
            nn.Conv1d(20, 16, 5, padding=2),
            nn.ModuleList(nn.Conv1d(4, 4, 3, padding=2, dilation=2) for _ in range(3)),
        )
        self.gate, self.score, self.out = (
            mlp(16, 8, 16),
            nn.Sequential(nn.Conv1d(48, 8, 1), nn.Tanh(), nn.Conv1d(8, 16, 1)),
            nn.Linear(32, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first(x.transpose(1, 2)))
        parts = list(x.chunk(4, 1))
        for number, layer in enumerate(self.parts, 1):
            parts[number] = functional.relu(layer(parts[number] + (parts[number - 1] if number > 1 else 0)))
        y = torch.cat(parts, 1)
        x = x + y * self.gate(y.mean(-1)).sigmoid()[..., None]
        mean, deviation = x.mean(-1, True).expand_as(x), (x.var(-1, keepdim=True) + 1e-5).sqrt().expand_as(x)
        weights = self.score(torch.cat([x, mean, deviation], 1)).softmax(-1)
        mean = (x * weights).sum(-1)
        deviation = ((x * x * weights).sum(-1) - mean * mean).clamp(min=1e-4).sqrt()
        return functional.normalize(self.out(torch.cat([mean, deviation], 1)), dim=-1)


@network(WAVE)
class SincNet(nn.Module):
    """Filters that are computed from their frequencies, pools that are wide."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.band, self.out = (
            nn.Parameter(torch.rand(8, 1) * 0.2),
            nn.Parameter(torch.rand(8, 1) * 0.2),
            nn.Conv1d(8, 8, 5),
        )
        self.register_buffer("places", torch.arange(-15, 16).float())

    def forward(self, x: Tensor) -> Tensor:
        high = self.low.abs() + self.band.abs()
        filters = 2 * high * torch.sinc(2 * high * self.places) - 2 * self.low * torch.sinc(2 * self.low * self.places)
        x = functional.avg_pool1d(functional.conv1d(x[:, None], filters[:, None]).abs(), 3)
        return functional.avg_pool1d(self.out(x), 3, ceil_mode=True).amax(-1)


@network(FRAMES)
class SpectrogramTransformer(nn.Module):
    """Patches of 16 x 16 that overlap, a token for the class in front."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token, self.block = (
            nn.Conv2d(1, WIDTH, 16, 10),
            nn.Parameter(torch.randn(1, 1, WIDTH)),
            Block(),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x[:, None]).flatten(2).transpose(1, 2)
        return self.block(torch.cat([self.token.expand(x.shape[0], -1, -1), x + waves(x.shape[1])], 1))[:, 0]


@network(FRAMES)
class ChunkedEncoder(nn.Module):
    """Attention within chunks of 8 frames, the last one padded (a streaming encoder)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention = nn.Linear(20, WIDTH), Attention()

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        x = functional.pad(self.first(x), (0, 0, 0, (-length) % 8))
        return self.attention(x.reshape(-1, 8, WIDTH)).reshape(batch, -1, WIDTH)[:, :length]


@network(WAVE)
class SpectralGate(nn.Module):
    """A transform of the whole signal and back, along an axis of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.view_as_real(torch.fft.rfft(x))
        size = (spectrum.pow(2).sum(-1, True) + 1e-9).sqrt()
        return size[..., 0] * self.gate(size)[..., 0].sigmoid()
