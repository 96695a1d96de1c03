"""The part of the rate of tensor instructions that convolutions reach by the model of cycles.

``python -m tests.plugins.cuda.shares [batch ...]`` prints it for those of ResNet-50 on `sm_80`, by bfloat16 of float32
images and by bytes; what makes copies of images is part of it.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx

import graft
from graft.plugins.cuda.machines import SM_80, SPEEDS
from tests.plugins.cuda.graphs import graph, node

SHAPES = (
    (64, 56, 1, 64, 1), (64, 56, 3, 64, 1), (256, 56, 1, 64, 1), (128, 56, 3, 128, 2), (128, 28, 3, 128, 1),
    (512, 28, 1, 256, 1), (256, 14, 3, 256, 1), (1024, 14, 1, 256, 1), (512, 7, 3, 512, 1), (2048, 7, 1, 512, 1),
)  # fmt: skip
"""Channels, rows and columns, window, results, stride."""


def convolution(batch: int, shape: tuple[int, int, int, int, int], *, is_of_bytes: bool) -> onnx.ModelProto:
    """A convolution with a border, so that a stride of 1 keeps the rows and columns."""
    channels, size, window, results, stride = shape
    how = {"pads": [window // 2] * 4, "strides": [stride, stride]}
    weights = np.ones((results, channels, window, window), np.int8 if is_of_bytes else np.float32)
    image = [batch, channels, size, size]
    if not is_of_bytes:
        return graph([node("Conv", "x w", **how)], {"x": ("float32", image)}, {"w": weights})
    scales = {"s": np.array(0.02, "f"), "z": np.array(3, np.uint8), "ws": np.full(results, 0.01, "f"),
              "wz": np.zeros(results, np.int8)}  # fmt: skip
    return graph([node("QLinearConv", "x s z w ws wz s z", **how)], {"x": ("uint8", image)}, {"w": weights, **scales})


def share(batch: int, shape: tuple[int, int, int, int, int], *, is_of_bytes: bool) -> tuple[float, str]:
    """Return the part of the rate that a convolution reaches, and its knobs."""
    model, speed = convolution(batch, shape, is_of_bytes=is_of_bytes), SPEEDS[SM_80.cpu]
    precision = "float32" if is_of_bytes else "bf16"
    program = graft.compile(model, ["cuda_emulator"], cache=False, strict=True, precision=precision)
    schedules = (dict(call.schedule) for call in program.description.procedures[0].calls if call.schedule)
    (found,) = (one for one in schedules if "instruction" in one)
    channels, size, window, results, stride = shape
    work = batch * (size // stride) ** 2 * channels * window**2 * results
    rate = speed.tensor * (2 if is_of_bytes else 1) * speed.multiprocessors
    knobs = " ".join(str(found[name]) for name in ("block", "warp", "stages", "splits", "copied") if name in found)
    return work / rate / float(found["cycles"]), knobs


def main() -> None:
    """Print a row for each convolution."""
    for batch in map(int, sys.argv[1:] or ("1", "32")):
        for shape in SHAPES:
            for is_of_bytes in (False, True):
                part, knobs = share(batch, shape, is_of_bytes=is_of_bytes)
                print(f"{batch:3} {shape!s:24} {'int8' if is_of_bytes else 'bf16'} {part:6.1%}  {knobs}")


if __name__ == "__main__":
    main()
