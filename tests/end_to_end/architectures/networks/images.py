"""Networks that say something of images of any size: classes, boxes, places, text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.end_to_end.architectures.networks.layers import (
    IMAGE,
    WIDTH,
    Block,
    conv,
    floats,
    mlp,
    network,
    pyramid,
    tokens,
)


@network(IMAGE)
class Detr(nn.Module):
    """Queries that look at the pixels of the last stage; positions are sums along rows and columns."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.encoder, self.decoder = pyramid(), Block(), Block()
        self.queries, self.classes, self.boxes = (
            nn.Parameter(torch.randn(7, WIDTH)),
            nn.Linear(WIDTH, 5),
            mlp(WIDTH, 16, 4),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for stage in self.stages:
            x = stage(x)
        here = torch.ones_like(x[:, 0])
        rows, columns = here.cumsum(1), here.cumsum(2)
        rows, columns = rows / (rows[:, -1:] + 1e-6) * 6.28, columns / (columns[:, :, -1:] + 1e-6) * 6.28
        scale = 10 ** (-torch.arange(4) / 2)
        parts = [one[..., None] * scale for one in (rows, columns)]
        places = torch.cat([f(part) for part in parts for f in (torch.sin, torch.cos)], -1).flatten(1, 2)
        memory = self.encoder(tokens(x) + places)
        found = self.decoder(self.queries.expand(x.shape[0], -1, -1), memory)
        return self.classes(found), self.boxes(found).sigmoid()


@network(IMAGE)
class Yolo(nn.Module):
    """Two scales, boxes by anchors on grids, all in one list."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.pool = pyramid((3, 8, 12, 16, 16)), nn.MaxPool2d(5, 1, 2)
        self.mixed, self.up, self.heads = (
            conv(64, 16, 1),
            conv(32, 16),
            nn.ModuleList(nn.Conv2d(16, 2 * 9, 1) for _ in range(2)),
        )
        self.anchors = nn.Parameter(torch.rand(2, 2, 2))

    def head(self, x: Tensor, number: int, stride: int) -> Tensor:
        height, width = x.shape[-2:]
        found = self.heads[number](x).view(-1, 2, 9, height, width).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack([columns, rows], -1).view(1, 1, height, width, 2).float()
        place = (found[..., :2] * 2 - 0.5 + grid) * stride
        size = (found[..., 2:4] * 2) ** 2 * self.anchors[number].view(1, 2, 1, 1, 2)
        return torch.cat([place, size, found[..., 4:]], -1).view(x.shape[0], -1, 9)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        pooled = [x]
        for _ in range(3):
            pooled.append(self.pool(pooled[-1]))
        small = self.mixed(torch.cat(pooled, 1))
        large = self.up(torch.cat([functional.interpolate(small, scale_factor=2.0, mode="nearest"), kept[-2]], 1))
        return torch.cat([self.head(large, 0, 8), self.head(small, 1, 16)], 1)


@network(IMAGE)
class CenterNet(nn.Module):
    """The ten highest peaks of a heat map, with the sizes at their places."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.heat, self.size = pyramid((3, 8, 16)), nn.Conv2d(16, 3, 1), nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for stage in self.stages:
            x = stage(x)
        heat, size = self.heat(x).sigmoid(), self.size(x)
        heat = heat * (functional.max_pool2d(heat, 3, 1, 1) == heat)
        scores, places = heat.flatten(1).topk(10)
        area = heat.shape[-1] * heat.shape[-2]
        pixels = places - torch.div(places, area, rounding_mode="floor") * area
        return scores, size.flatten(2).transpose(1, 2).gather(1, pixels[..., None].expand(-1, -1, 2))


@network(IMAGE)
class SqueezeNet(nn.Module):
    """Fire modules and pools that round up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.squeeze = nn.Conv2d(3, 12, 3, 2), nn.ModuleList(nn.Conv2d(size, 4, 1) for size in (12, 16, 16))
        self.narrow, self.wide = (
            nn.ModuleList(nn.Conv2d(4, 8, 1) for _ in range(3)),
            nn.ModuleList(nn.Conv2d(4, 8, 3, padding=1) for _ in range(3)),
        )
        self.last = nn.Conv2d(16, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first(x))
        for squeeze, narrow, wide in zip(self.squeeze, self.narrow, self.wide, strict=True):
            x = functional.relu(squeeze(functional.max_pool2d(x, 3, 2, ceil_mode=True)))
            x = torch.cat([narrow(x), wide(x)], 1).relu()
        return functional.avg_pool2d(self.last(x), 3, 2, 1, ceil_mode=True, count_include_pad=False).mean((2, 3))


@network(IMAGE)
class ShuffleNet(nn.Module):
    """Channels in groups, shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.groups, self.depth = (
            conv(3, 16, stride=2),
            nn.Conv2d(16, 16, 1, groups=4),
            nn.Conv2d(16, 16, 3, 2, 1, groups=16),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.groups(self.first(x))
        batch, _, height, width = x.shape
        x = x.view(batch, 4, 4, height, width).transpose(1, 2).reshape(batch, 16, height, width)
        return self.depth(x).mean((2, 3))


@network(IMAGE)
class EfficientNetSame(nn.Module):
    """Padding as TensorFlow's `same`, by the size; squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.depth = nn.Conv2d(3, 12, 3, 2, bias=False), nn.Conv2d(12, 12, 5, 2, groups=12, bias=False)
        self.gate, self.out = (
            nn.Sequential(nn.Conv2d(12, 4, 1), nn.SiLU(), nn.Conv2d(4, 12, 1), nn.Sigmoid()),
            nn.Conv2d(12, 16, 1),
        )

    def same(self, layer: nn.Conv2d, x: Tensor) -> Tensor:
        pads = []
        for extent, window in zip(x.shape[:1:-1], layer.kernel_size, strict=True):
            more = max((-(-extent // 2) - 1) * 2 + window - extent, 0)
            pads += [more // 2, more - more // 2]
        return layer(functional.pad(x, pads))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.silu(self.same(self.depth, functional.silu(self.same(self.first, x))))
        return self.out(x * self.gate(functional.adaptive_avg_pool2d(x, 1))).mean((2, 3))


@network(IMAGE)
class DenseNet(nn.Module):
    """Each layer sees all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layers, self.next = (
            conv(3, 8, 7, 2),
            nn.ModuleList(conv(8 + 4 * one, 4) for one in range(3)),
            nn.Conv2d(20, 8, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.first(x), 3, 2, 1)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return functional.avg_pool2d(self.next(x), 2).amax((2, 3))


@network(IMAGE)
class VitAnySize(nn.Module):
    """Positions of 4 x 4 patches, resized to the patches that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.places, self.token, self.block = (
            nn.Conv2d(3, WIDTH, 8, 8),
            nn.Parameter(torch.randn(1, WIDTH, 4, 4)),
            nn.Parameter(torch.randn(1, 1, WIDTH)),
            Block(),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        places = functional.interpolate(self.places, size=x.shape[-2:], mode="bicubic", align_corners=False)
        return self.block(torch.cat([self.token.expand(x.shape[0], -1, -1), tokens(x + places)], 1))[:, 0]


@network(floats("x", "batch", 1, 32, "width"))
class Crnn(nn.Module):
    """Reads a line of text: columns are steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.lstm, self.out = (
            pyramid((1, 8, 16)),
            nn.LSTM(16 * 8, 12, bidirectional=True),
            nn.Linear(24, 30),
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.out(self.lstm(x.flatten(1, 2).permute(2, 0, 1))[0]).log_softmax(-1)


@network(IMAGE)
class Hourglass(nn.Module):
    """Places of key points: the mean place under a softmax of each map."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.out = pyramid((3, 8, 12)), nn.Conv2d(12, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        heat = self.out(x)
        chance = heat.flatten(2).softmax(-1).view(heat.shape)
        columns = (chance.sum(2) * torch.arange(heat.shape[3])).sum(-1)
        rows = (chance.sum(3) * torch.arange(heat.shape[2])).sum(-1)
        return torch.stack([columns, rows], -1)


@network(IMAGE)
class DeformableAttention(nn.Module):
    """Queries that sample a few places of each of two maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.queries = pyramid((3, WIDTH, WIDTH)), nn.Parameter(torch.randn(5, WIDTH))
        self.places, self.weights = nn.Linear(WIDTH, 2 * 3 * 2), nn.Linear(WIDTH, 2 * 3)

    def forward(self, x: Tensor) -> Tensor:
        places, weights = (
            self.places(self.queries).view(5, 2, 3, 2).tanh(),
            self.weights(self.queries).softmax(-1).view(5, 2, 3),
        )
        total = torch.zeros(())
        for number, stage in enumerate(self.stages):
            x = stage(x)
            found = functional.grid_sample(x, places[:, number].expand(x.shape[0], -1, -1, -1), align_corners=False)
            total = total + (found * weights[:, number]).sum(-1)
        return total.transpose(1, 2)
