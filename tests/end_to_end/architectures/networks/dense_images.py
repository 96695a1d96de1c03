"""Networks that make images of images: noise, masks, more pixels, motion."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.end_to_end.architectures.networks.layers import (
    IMAGE,
    WIDTH,
    Attention,
    conv,
    floats,
    image_places,
    mlp,
    network,
    pyramid,
    resized,
    tokens,
)


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
        y = self.blocks[2](torch.cat([resized(y, second, "nearest"), second], 1))
        return self.last(self.blocks[3](torch.cat([resized(y, first, "nearest"), first], 1)))


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
        x = tokens(x) + image_places(height, width)
        x = x + c * self.attention(self.norm(x) * (1 + a) + b)
        x = self.out(x + f * self.feed(self.norm(x) * (1 + d) + e))
        return x.view(-1, height, width, 4, 4, 4).permute(0, 5, 1, 3, 2, 4).reshape(-1, 4, height * 4, width * 4)


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

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        image = x
        for stage in self.stages:
            x = stage(x)
        parts = [part(x) for part in self.parts]
        parts.append(resized(self.whole(functional.adaptive_avg_pool2d(x, 1)), x))
        scores = resized(self.last(torch.cat(parts, 1)), image)
        return scores, scores.argmax(1).float()


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
            above = one if above is None else one + resized(above, one, "nearest")
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
