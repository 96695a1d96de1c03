"""Networks of images that take any size."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.architectures.networks.layers import (
    IMAGE,
    WIDTH,
    Attention,
    Block,
    conv,
    floats,
    mlp,
    network,
    pyramid,
    tokens,
    waves,
)


def _to(x: Tensor, other: Tensor, mode: str = "bilinear") -> Tensor:
    options = {} if mode == "nearest" else {"align_corners": False}
    return functional.interpolate(x, size=other.shape[-2:], mode=mode, **options)


def _places(height: int, width: int) -> Tensor:
    """Return sines and cosines of rows and columns, [height * width, WIDTH]."""
    rows, columns = waves(height, WIDTH // 2), waves(width, WIDTH // 2)
    both = torch.cat([rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)], -1)
    return both.reshape(-1, WIDTH)


@network(IMAGE, floats("time", "batch"))
class DiffusionUNet(nn.Module):
    """Noise from an image and a time; attention at the smallest size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.time = nn.Conv2d(3, 8, 3, padding=1), mlp(WIDTH, 16, 24)
        self.down = nn.ModuleList([nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1)])
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
            for a, b in ((8, 16), (16, 24), (40, 16), (24, 8))
        )
        self.attention, self.last = Attention(24), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        turns = time[:, None] * torch.exp(torch.arange(8) * -1.1)
        shift = self.time(torch.cat([turns.sin(), turns.cos()], -1))[..., None, None]
        first = self.first(x)
        second = self.blocks[0](self.down[0](first))
        y = self.blocks[1](self.down[1](second)) + shift
        y = y + self.attention(tokens(y)).transpose(1, 2).view(y.shape)
        y = self.blocks[2](torch.cat([_to(y, second, "nearest"), second], 1))
        return self.last(self.blocks[3](torch.cat([_to(y, first, "nearest"), first], 1)))


@network(floats("x", "batch", 4, "height", "width"), floats("time", "batch"))
class DiT(nn.Module):
    """Patches, layers whose norms a time moves, patches back to an image."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.time, self.out = nn.Conv2d(4, WIDTH, 4, 4), nn.Linear(WIDTH, 6 * WIDTH), nn.Linear(WIDTH, 64)
        self.norm, self.attention, self.feed = (
            nn.LayerNorm(WIDTH, elementwise_affine=False),
            Attention(),
            mlp(WIDTH, 32, WIDTH),
        )

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.patches(x)
        height, width = x.shape[-2:]
        turns = time[:, None] * torch.exp(torch.arange(8) * -1.1)
        a, b, c, d, e, f = self.time(torch.cat([turns.sin(), turns.cos()], -1))[:, None].chunk(6, -1)
        x = tokens(x) + _places(height, width)
        x = x + c * self.attention(self.norm(x) * (1 + a) + b)
        x = self.out(x + f * self.feed(self.norm(x) * (1 + d) + e))
        return x.view(-1, height, width, 4, 4, 4).permute(0, 5, 1, 3, 2, 4).reshape(-1, 4, height * 4, width * 4)


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
class DeepLab(nn.Module):
    """Dilated convolutions and the mean of the image, back to the size that came."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = pyramid()
        self.parts = nn.ModuleList(
            [nn.Conv2d(16, 8, 1), *(nn.Conv2d(16, 8, 3, padding=rate, dilation=rate) for rate in (2, 4))]
        )
        self.whole, self.last = nn.Conv2d(16, 8, 1), nn.Conv2d(32, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        image = x
        for stage in self.stages:
            x = stage(x)
        parts = [part(x) for part in self.parts]
        parts.append(_to(self.whole(functional.adaptive_avg_pool2d(x, 1)), x))
        return _to(self.last(torch.cat(parts, 1)), image).argmax(1).float()


@network(IMAGE)
class UNet(nn.Module):
    """Pools, and pads what was pooled to the size of what it is joined with."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = conv(3, 8), conv(8, 16), conv(16, 16)
        self.ups = nn.ModuleList([nn.ConvTranspose2d(16, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.mixed, self.last = conv(32, 16), nn.Conv2d(16, 2, 1)

    def up(self, layer: nn.Module, x: Tensor, skip: Tensor) -> Tensor:
        x = layer(x)
        high, wide = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
        x = functional.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return torch.cat([skip, x], 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 3, 2))
        x = self.third(functional.max_pool2d(second, 3, 2))
        return self.last(self.up(self.ups[1], self.mixed(self.up(self.ups[0], x, second)), first))


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


@network(IMAGE)
class WindowAttention(nn.Module):
    """Windows of 4 x 4, shifted, of an image that is padded to whole windows; then a grid of as many windows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention, self.grid = nn.Conv2d(3, WIDTH, 3, 3), Attention(), Attention()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        height, width = x.shape[-2:]
        x = functional.pad(x, (0, -width % 4, 0, -height % 4))
        rows, columns = x.shape[-2] // 4, x.shape[-1] // 4
        x = torch.roll(x, (-2, -2), (2, 3)).view(-1, WIDTH, rows, 4, columns, 4)
        x = self.attention(x.permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, WIDTH)).view(-1, rows, columns, 4, 4, WIDTH)
        x = torch.roll(x.permute(0, 5, 1, 3, 2, 4).reshape(-1, WIDTH, rows * 4, columns * 4), (2, 2), (2, 3))
        x = x.view(-1, WIDTH, 4, rows, 4, columns).permute(0, 3, 5, 2, 4, 1).reshape(-1, 16, WIDTH)
        x = self.grid(x).view(-1, rows, columns, 4, 4, WIDTH).permute(0, 5, 3, 1, 4, 2)
        return x.reshape(-1, WIDTH, rows * 4, columns * 4)[:, :, :height, :width]


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
class SuperResolution(nn.Module):
    """Dense residual blocks, pixels out of channels, beside the image resized."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.up, self.last = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.Conv2d(8, 32, 3, padding=1),
            nn.Conv2d(8, 3, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(functional.pad(x, (2, 2, 2, 2), "reflect"))[..., 2:-2, 2:-2]
        y = y + 0.2 * functional.leaky_relu(self.inner(y), 0.2)
        y = functional.pixel_shuffle(self.up(y), 2)
        return self.last(y) + functional.interpolate(x, scale_factor=2, mode="bicubic")


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
        columns = (chance.sum(2) * torch.linspace(0, 1, heat.shape[3])).sum(-1)
        rows = (chance.sum(3) * torch.linspace(0, 1, heat.shape[2])).sum(-1)
        return torch.stack([columns, rows], -1)


@network(IMAGE, floats("y", "batch", 3, "height", "width"))
class OpticalFlow(nn.Module):
    """Correlations of all pixels of two images, looked up around moved places (RAFT)."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.flow = pyramid((3, 8, 16)), nn.Conv2d(9, 2, 3, padding=1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for stage in self.stages:
            x, y = stage(x), stage(y)
        batch, _, height, width = x.shape
        volume = (tokens(x) @ y.flatten(2) / 4).reshape(-1, 1, height, width)
        rows, columns = torch.meshgrid(torch.arange(height).float(), torch.arange(width).float(), indexing="ij")
        near = torch.stack(torch.meshgrid(torch.arange(-1, 2), torch.arange(-1, 2), indexing="xy"), -1).float()
        grid = torch.stack([columns, rows], -1).view(-1, 1, 1, 2).repeat(batch, 1, 1, 1) + near
        scale = torch.tensor([width - 1, height - 1])
        found = functional.grid_sample(volume, 2 * grid / scale - 1, align_corners=True)
        return self.flow(found.view(batch, height, width, 9).permute(0, 3, 1, 2))


@network(IMAGE)
class SpatialTransformer(nn.Module):
    """Turns the image by what a small network says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.turn = conv(3, 8, stride=2), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        turn = self.turn(self.layer(x).mean((2, 3))).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        rows, columns = (torch.arange(n) * 2 / (n - 1) - 1 for n in x.shape[2:])
        places = torch.stack([columns.expand(x.shape[2], -1), rows[:, None].expand(-1, x.shape[3])], -1).view(-1, 2)
        moved = (places[:, None] * turn[:, None, :, :2]).sum(-1) + turn[:, None, :, 2]
        return functional.grid_sample(x, moved.view(-1, x.shape[2], x.shape[3], 2), align_corners=True)


@network(floats("style", "batch", WIDTH), floats("noise", "batch", 1, "height", "width"))
class StyleGan(nn.Module):
    """A convolution of channels that each image scales, and scales back by the lengths of its own weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.style = nn.Parameter(torch.randn(8, 8, 3, 3)), nn.Linear(WIDTH, 8)
        self.constant = nn.Parameter(torch.randn(1, 8, 1, 1))

    def forward(self, style: Tensor, noise: Tensor) -> Tensor:
        scale = self.style(style) + 1
        lengths = ((self.weight.pow(2).sum((2, 3)) * scale[:, None].pow(2)).sum(-1) + 1e-8).rsqrt()
        x = functional.conv2d((self.constant + noise) * scale[..., None, None], self.weight, padding=1)
        x = functional.interpolate(x * lengths[..., None, None], scale_factor=2, mode="bilinear")
        return functional.leaky_relu(functional.avg_pool2d(x, 3, 1, 1), 0.2)


@network(IMAGE)
class VectorQuantizer(nn.Module):
    """The nearest code of each pixel, and back to an image."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.codes, self.back = (
            pyramid((3, 8, 8)),
            nn.Parameter(torch.randn(16, 8)),
            nn.ConvTranspose2d(8, 3, 4, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        flat = x.permute(0, 2, 3, 1).reshape(-1, 8)
        nearest = (flat.pow(2).sum(1, True) - 2 * flat @ self.codes.T + self.codes.pow(2).sum(1)).argmin(1)
        return self.back(self.codes[nearest].view(x.shape[0], x.shape[2], x.shape[3], 8).permute(0, 3, 1, 2))


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


@network(IMAGE)
class PyramidNetwork(nn.Module):
    """Three scales, each added to the next larger one; places of anchors beside (FPN, RetinaNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, self.sides = pyramid(), nn.ModuleList(nn.Conv2d(size, 16, 1) for size in (8, 12, 16))
        self.head = nn.Conv2d(16, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for stage, side in zip(self.stages, self.sides, strict=True):
            x = stage(x)
            kept.append(side(x))
        found, rows, above = [], [], None
        for number, one in reversed(list(enumerate(kept))):
            above = one if above is None else one + _to(above, one, "nearest")
            found.append(self.head(above).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
            across, down = torch.arange(above.shape[3]) * 2.0**number, torch.arange(above.shape[2]) * 2.0**number
            grid = torch.stack(torch.meshgrid(down, across, indexing="ij"), -1).view(-1, 1, 2).repeat(1, 3, 2)
            rows.append(grid.view(-1, 4))
        return torch.cat(found, 1) + torch.cat(rows)[None]


@network(IMAGE)
class AdaptivePyramid(nn.Module):
    """Means of a quarter of the image each, and of columns and rows (coordinate attention)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mixed, self.last = conv(3, 8, stride=2), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        height, width = x.shape[-2:]
        rows, columns = x.mean(3, True), x.mean(2, True).transpose(2, 3)
        both = self.mixed(torch.cat([rows, columns], 2)).relu()
        rows, columns = both.split([height, width], 2)
        return self.last(x * rows.sigmoid() * columns.transpose(2, 3).sigmoid())


@network(IMAGE)
class Involution(nn.Module):
    """Windows of an image as columns, with weights of their own; pixels as channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.weights, self.last = conv(3, 8, stride=2), nn.Conv2d(8, 9, 1), nn.Conv2d(32, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        batch, _, height, width = x.shape
        windows = functional.unfold(x, 3, padding=1).view(batch, 8, 9, height, width)
        x = (windows * self.weights(x).softmax(1)[:, None]).sum(2)
        return self.last(functional.pixel_unshuffle(x[..., : height // 2 * 2, : width // 2 * 2], 2))
