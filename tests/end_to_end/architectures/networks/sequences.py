"""Networks of text: caches, states, long sequences."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.end_to_end.architectures.networks.layers import (
    TEXT,
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


class _Text(nn.Module):
    """Tokens, one layer with a mixer of its own, scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.proj, self.norm, self.head = (
            nn.Embedding(100, WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 100),
        )

    def mixed(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def heads(self, x: Tensor) -> list[Tensor]:
        return [split(one) for one in self.qkv(x).chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.head(x + self.proj(self.mixed(self.norm(x))))


@network(ids("x", "batch", "length"), *(floats(one, "batch", 2, "past", 8) for one in ("past_keys", "past_values")))
class CachedDecoder(_Text):
    """One step, or a prompt, behind keys and values that are kept; rotary positions from the past on."""

    def forward(self, x: Tensor, past_keys: Tensor, past_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(x)
        q, k, v = self.heads(self.norm(x))
        past, length = past_keys.shape[2], x.shape[1]
        turns = torch.arange(past, past + length)[:, None] * torch.exp(torch.arange(4) * -2.3)
        sine, cosine = turns.sin(), turns.cos()
        q, k = (
            torch.cat([one[..., :4] * cosine - one[..., 4:] * sine, one[..., 4:] * cosine + one[..., :4] * sine], -1)
            for one in (q, k)
        )
        k, v = torch.cat([past_keys, k], 2), torch.cat([past_values, v], 2)
        mask = torch.ones(length, past + length, dtype=torch.bool).tril(past)
        x = x + self.proj(joined(functional.scaled_dot_product_attention(q, k, v, mask)))
        return self.head(x[:, -1:]), k, v


@network(
    ids("x", "batch", "length"),
    floats("past_keys", "batch", 2, "past", 8),
    floats("past_values", "batch", 2, "past", 8),
)
class SlidingCache(_Text):
    """A cache that keeps the last 8 rows alone."""

    def forward(self, x: Tensor, past_keys: Tensor, past_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(x)
        q, k, v = self.heads(self.norm(x))
        k, v = torch.cat([past_keys, k], 2), torch.cat([past_values, v], 2)
        places = torch.arange(k.shape[2])
        distance = places[-x.shape[1] :, None] - places[None]
        mask = (distance >= 0) & (distance < 8)
        x = x + self.proj(joined(functional.scaled_dot_product_attention(q, k, v, mask)))
        return self.head(x), k[:, :, -8:], v[:, :, -8:]


@network(ids("x", "batch", 1), floats("state", "batch", WIDTH), floats("total", "batch", WIDTH))
class RwkvStep(_Text):
    """A step of a linear recurrence."""

    def forward(self, x: Tensor, state: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(x[:, 0])
        r, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        state, total = state * 0.9 + k.exp() * v, total.abs() * 0.9 + k.exp()
        return self.head(x + self.proj(r.sigmoid() * state / total)), state, total


@network(TEXT)
class RetNet(_Text):
    """Products that decay with the distance; no softmax."""

    def mixed(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        places = torch.arange(x.shape[1]).float()
        distance = places[:, None] - places[None]
        decay = torch.where(distance >= 0, torch.tensor([0.9, 0.8]).view(2, 1, 1) ** distance, 0.0)
        return joined((q @ k.transpose(-1, -2) * decay) @ v)


@network(TEXT)
class Mamba(_Text):
    """A selective scan by sums along time, in chunks of 4, the last one padded."""

    def mixed(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        a, b, v = self.qkv(x).chunk(3, -1)
        parts = [
            functional.pad(one, (0, 0, 0, -length % 4)).view(batch, -1, 4, WIDTH)
            for one in (functional.logsigmoid(a), b, v)
        ]
        decay = parts[0].cumsum(2)
        inner = decay.exp() * (parts[1] * parts[2] * (-decay).exp()).cumsum(2)
        whole = parts[0].sum(2).cumsum(1)
        ends = functional.pad(inner[:, :, -1], (0, 0, 1, 0))[:, :-1]
        spread = (whole[:, :, None] - whole[:, None]).tril().exp()[..., :1].tril(-1).sum(2)
        return (inner + decay.exp() * (ends * spread)[:, :, None]).reshape(batch, -1, WIDTH)[:, :length]


@network(TEXT)
class LinearAttention(_Text):
    """Sums of outer products, along the sequence."""

    def mixed(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
        states = (k[..., :, None] * v[..., None, :]).cumsum(2)
        return joined(torch.einsum("bhld,bhlde->bhle", q, states) / (q * k.cumsum(2)).sum(-1, True))


@network(TEXT)
class Hyena(_Text):
    """A convolution as long as the sequence, by Fourier transforms of twice the length."""

    def mixed(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        a, b, v = self.qkv(x).chunk(3, -1)
        window = torch.exp(-0.3 * torch.arange(length))[:, None] * torch.sin(
            torch.arange(length)[:, None] * torch.arange(1, WIDTH + 1)
        )
        signal, shape = (
            torch.view_as_real(torch.fft.rfft(b * v, 2 * length, 1)),
            torch.view_as_real(torch.fft.rfft(window, 2 * length, 0)),
        )
        real = signal[..., 0] * shape[..., 0] - signal[..., 1] * shape[..., 1]
        imaginary = signal[..., 0] * shape[..., 1] + signal[..., 1] * shape[..., 0]
        return a * torch.fft.irfft(torch.complex(real, imaginary), 2 * length, 1)[:, :length]


@network(TEXT)
class LocalAttention(_Text):
    """Blocks of 4 that look at the block before, too (Longformer's chunks)."""

    def mixed(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = self.heads(functional.pad(x, (0, 0, 0, -length % 4)))
        q, k, v = (one.unflatten(2, (-1, 4)) for one in (q, k, v))
        k, v = (torch.cat([functional.pad(one, (0, 0, 0, 0, 1, 0))[:, :, :-1], one], 3) for one in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(8)
        return joined((scores.softmax(-1) @ v).flatten(2, 3))[:, :length]


@network(TEXT)
class LandmarkAttention(_Text):
    """Means of the rows of each of 4 parts; the inverse by six products (Nystromformer)."""

    def mixed(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = self.heads(functional.pad(x, (0, 0, -length % 4, 0)))
        near, far = (one.unflatten(2, (4, -1)).mean(3) for one in (q, k))
        one, two, three = (
            (q @ far.transpose(-1, -2)).softmax(-1),
            (near @ far.transpose(-1, -2)).softmax(-1),
            (near @ k.transpose(-1, -2)).softmax(-1),
        )
        inverse = two.transpose(-1, -2) / two.sum(-2).max()
        for _ in range(3):
            product = two @ inverse
            inverse = inverse @ (2 * torch.eye(4) - product)
        return joined(one @ inverse @ (three @ v))[:, -length:]


@network(TEXT)
class AlibiAndBuckets(_Text):
    """Biases by distance, both straight and in buckets that widen (ALiBi, T5)."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(16, 2)

    def mixed(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        places = torch.arange(x.shape[1])
        distance = places[None] - places[:, None]
        far = (4 + (distance.abs().float().clamp(min=1) / 4).log() / math.log(8) * 4).long().clamp(max=7)
        bucket = (distance > 0).long() * 8 + torch.where(distance.abs() < 4, distance.abs(), far)
        bias = self.bias(bucket).permute(2, 0, 1) - distance.abs() * torch.tensor([0.5, 0.25]).view(2, 1, 1)
        return joined((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v)


@network(TEXT)
class Experts(_Text):
    """Two of four experts for each token, by scatter and by gathered weights."""

    def __init__(self) -> None:
        super().__init__()
        self.route, self.up, self.down = (
            nn.Linear(WIDTH, 4),
            nn.Parameter(torch.randn(4, WIDTH, 24) * 0.1),
            nn.Parameter(torch.randn(4, 24, WIDTH) * 0.1),
        )

    def mixed(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, WIDTH)
        weights, chosen = self.route(rows).softmax(-1).topk(2)
        gates = torch.zeros(rows.shape[0], 4).scatter(1, chosen, weights / weights.sum(-1, True))
        inner = functional.silu(torch.einsum("nd,edf->enf", rows, self.up))
        return torch.einsum("enf,efd,ne->nd", inner, self.down, gates).view(x.shape)


@network(TEXT)
class Hashed(_Text):
    """Rows in the order of their hash, attention within chunks, back in order (Reformer)."""

    def mixed(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        x = functional.pad(x, (0, 0, 0, -length % 4))
        order = (x * torch.arange(WIDTH)).sum(-1).argsort(-1)
        x = x.gather(1, order[..., None].expand_as(x)).reshape(-1, 4, WIDTH)
        q, k, v = self.heads(x)
        x = joined((q @ k.transpose(-1, -2)).softmax(-1) @ v).reshape(order.shape[0], -1, WIDTH)
        return x.gather(1, order.argsort(-1)[..., None].expand_as(x))[:, :length]


@network(TEXT)
class Perceiver(nn.Module):
    """Few latent rows read many; the many read them again."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.latents, self.read, self.block, self.write = (
            nn.Embedding(100, WIDTH),
            nn.Parameter(torch.randn(5, WIDTH)),
            Attention(),
            Block(),
            Attention(),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + waves(x.shape[1])
        latents = self.block(self.read(self.latents.expand(x.shape[0], -1, -1), x))
        return self.write(x, latents)


@network(TEXT)
class TextCnn(nn.Module):
    """Windows of three widths, the greatest of each; a highway of characters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers, self.out = (
            nn.Embedding(100, WIDTH),
            nn.ModuleList(nn.Conv1d(WIDTH, 8, size) for size in (2, 3, 4)),
            mlp(24, 16, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).transpose(1, 2)
        return self.out(torch.cat([layer(x).relu().amax(-1) for layer in self.layers], 1))


@network(TEXT, ids("y", "batch", "target"))
class Bidaf(nn.Module):
    """Attention both ways between a text and a question."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.score, self.out = (
            nn.Embedding(100, 8),
            nn.LSTM(8, 8, batch_first=True, bidirectional=True),
            nn.Linear(48, 1),
            nn.Linear(64, 2),
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = self.lstm(self.embed(x))[0], self.lstm(self.embed(y))[0]
        one, other = x[:, :, None].expand(-1, -1, y.shape[1], -1), y[:, None].expand(-1, x.shape[1], -1, -1)
        scores = self.score(torch.cat([one, other, one * other], -1))[..., 0]
        read = scores.softmax(2) @ y
        back = scores.amax(2).softmax(1)[:, None] @ x
        return self.out(torch.cat([x, read, x * read, x * back], -1)).softmax(1)
