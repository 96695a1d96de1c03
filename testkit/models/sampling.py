"""Rows of operators that read an image or a signal at places that are computed: grids, offsets, windows, transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from graft.testkit.models.draw import Draw, Unfit
from graft.testkit.models.rows import Row, a_float


def grid_sample(draw: Draw) -> None:
    """Numbers at places within and without the image; the nearest ones where places are computed to the same bits."""
    spatial = draw.one_of((2, 2, 3))
    mode = draw.one_of(("linear", "nearest", *(("cubic",) if spatial == 2 else ())))
    if mode == "nearest" and draw.real not in (np.float32, np.float64):
        raise Unfit
    images = draw.one_of((1, 2))
    x = draw.pick(lambda one: one.dtype == draw.real and one.ndim == spatial + 2 and one.shape[0] == images)
    if x is None or draw.chance(0.5):
        x = draw.input(draw.floats((images, draw.one_of((1, 3, 16)), *(draw.integer(2, 6) for _ in range(spatial)))))
    places = (images, *(draw.integer(1, 5) for _ in range(spatial)), spatial)
    draw.GridSample(x, draw.operand(draw.floats(places, -1.4, 1.4)), mode=mode,
              padding_mode=draw.one_of(("zeros", "border", "reflection")),
              align_corners=draw.integer(0, 1))  # fmt: skip


def affine_grid(draw: Draw) -> None:
    spatial, images = draw.one_of((2, 3)), draw.one_of((1, 2))
    theta = draw.operand(draw.floats((images, spatial, spatial + 1), -1, 1))
    size = draw.constant([images, 3, *(draw.integer(1, 5) for _ in range(spatial))])
    grid = draw.AffineGrid(theta, size, align_corners=draw.integer(0, 1))
    if draw.chance(0.5):
        x = draw.input(draw.floats((images, 3, *(draw.integer(2, 6) for _ in range(spatial)))))
        draw.GridSample(x, grid, mode="linear", align_corners=draw.integer(0, 1))


def deformable_convolution(draw: Draw) -> None:
    """A convolution whose taps are moved by offsets, with groups of channels and of offsets, and a mask or none."""
    images, group, offsets = draw.one_of((1, 2)), draw.one_of((1, 2)), draw.one_of((1, 1, 2))
    c, m = group * offsets * draw.one_of((1, 2)), group * draw.one_of((1, 3))
    kernel = [draw.one_of((1, 2, 3)) for _ in range(2)]
    strides, dilations = ([draw.one_of((1, 1, 2)) for _ in range(2)] for _ in range(2))
    pads = [draw.integer(0, 2) for _ in range(4)]
    sizes = [draw.integer(3, 7) for _ in range(2)]
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    made = [(size + pads[axis] + pads[axis + 2] - spans[axis]) // strides[axis] + 1 for axis, size in enumerate(sizes)]
    if min(made) < 1:
        raise Unfit
    taps = offsets * kernel[0] * kernel[1]
    x = draw.input(draw.floats((images, c, *sizes)))
    weights = draw.constant(draw.floats((m, c // group, *kernel), -0.5, 0.5))
    offset = draw.operand(draw.floats((images, 2 * taps, *made)))
    bias = draw.constant(draw.floats((m,))) if draw.chance(0.5) else None
    mask = draw.operand(draw.floats((images, taps, *made), 0, 1)) if draw.chance(0.5) else None
    draw.DeformConv(x, weights, offset, bias, mask, group=group, offset_group=offsets, kernel_shape=kernel,
              strides=strides, dilations=dilations, pads=pads)  # fmt: skip


def column_to_image(draw: Draw) -> None:
    """Blocks, which may overlap, summed to an image of one to three axes."""
    rank = draw.one_of((1, 2, 2, 3))
    image, block = ([draw.integer(*bounds) for _ in range(rank)] for bounds in ((3, 6), (1, 3)))
    strides, dilations = ([draw.one_of((1, 1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [draw.integer(0, 1) for _ in range(2 * rank)]
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(block, dilations, strict=True)]
    counts = [
        (size + pads[axis] + pads[axis + rank] - spans[axis]) // strides[axis] + 1 for axis, size in enumerate(image)
    ]
    if min(counts) < 1:
        raise Unfit
    channels = draw.one_of((1, 3))
    x = draw.input(draw.floats((draw.one_of((1, 2)), channels * int(np.prod(block)), int(np.prod(counts)))))
    draw.Col2Im(x, draw.constant(image), draw.constant(block), strides=strides, dilations=dilations, pads=pads)


def max_unpooling(draw: Draw) -> None:
    """What MaxPool chose, back at its places, of an image that is as large as it was or larger."""
    rank = draw.one_of((1, 2, 2, 3))
    sizes = [2 * draw.integer(1, 3) for _ in range(rank)]
    count = draw.one_of((1, 2)), draw.one_of((1, 3))
    order = draw.rng.permutation(int(np.prod((*count, *sizes)))).reshape((*count, *sizes))
    x = draw.input((order / order.size).astype(draw.real))
    window: dict[str, Any] = {"kernel_shape": [2] * rank, "strides": [2] * rank}
    y, places = draw.MaxPool(x, outputs=2, exact=True, **window)
    shape = draw.constant([*count, *sizes]) if draw.chance(0.4) else None
    draw.MaxUnpool(y, places, shape, exact=True, **window)


def transform(draw: Draw) -> None:
    """A discrete Fourier transform and maybe back, of lengths that cut or pad."""
    parts, axis = draw.one_of((1, 2)), draw.one_of((1, 2))
    x = draw.input(draw.floats((draw.one_of((1, 2)), draw.integer(2, 9), draw.integer(2, 9), parts)))
    length = draw.constant(np.int64(draw.integer(2, 12))) if draw.chance(0.4) else None
    onesided = int(parts == 1 and draw.chance(0.5))
    given = draw.constant(np.int64(axis if draw.chance(0.5) else axis - 4))
    y = draw.DFT(x, length, given, onesided=onesided)
    if draw.chance(0.5):
        draw.DFT(y, draw.constant(np.int64(x.array.shape[axis])) if onesided else None, given,
                  inverse=1, onesided=onesided)  # fmt: skip


def short_time_transform(draw: Draw) -> None:
    """Windows of a signal, transformed: a spectrogram's first step."""
    size, step = draw.integer(2, 8), draw.integer(1, 4)
    signal = draw.input(draw.floats((draw.one_of((1, 2)), size + draw.integer(0, 20), 1)))
    window = draw.operand(draw.floats((size,), 0, 1)) if draw.chance(0.7) else None
    length = draw.constant(np.int64(size)) if window is None or draw.chance(0.5) else None
    draw.STFT(signal, draw.constant(np.int64(step)), window, length, onesided=draw.integer(0, 1))


def window(draw: Draw) -> None:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(draw.real))
    size = draw.operand(np.array(draw.integer(2, 9), np.int64)) if draw.chance(0.3) else draw.constant(np.int64(8))
    op_type = draw.one_of(("HannWindow", "HammingWindow", "BlackmanWindow"))
    y = draw.call(op_type, size, periodic=draw.integer(0, 1), output_datatype=kind)
    if size.constant:
        x = a_float(draw, rank=(1, 4))
        if x.array.shape[-1] in (1, y.array.size):
            draw.Mul(x, y)


SAMPLING = (
    Row("GridSample", grid_sample), Row("AffineGrid", affine_grid, 0.5), Row("DeformConv", deformable_convolution),
    Row("Col2Im", column_to_image, 0.5), Row("MaxUnpool", max_unpooling, 0.5), Row("DFT", transform),
    Row("STFT", short_time_transform, 0.5), Row("window", window, 0.5),
)  # fmt: skip
