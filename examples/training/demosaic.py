"""A demosaicking stencil that learns: from one colour a pixel, as a camera's sensor has it, to three.

    python examples/training/demosaic.py

The stencil is one convolution of 3 x 3 cells of the sensor's pattern (RGGB), 6 x 6 pixels. It begins as bilinear
interpolation; that it may learn to look at other colours is what Gharbi and others (SIGGRAPH Asia 2016) build on.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnx
from onnx import numpy_helper

import graft
from graft.training import Adam, Trainer

NET = """<ir_version: 10, opset_import: ["" : 22]>
    demosaic (float[n,1,{size},{size}] mosaic) => (float[n,3,{size},{size}] image) {{
        cells = SpaceToDepth <blocksize = 2> (mosaic)
        parts = Conv <pads = [1, 1, 1, 1]> (cells, stencil)
        image = DepthToSpace <blocksize = 2> (parts) }}"""
COLOURS = np.array([[0, 1], [1, 2]])
"""Which of red, green and blue a pixel of a cell has."""


def bilinear() -> np.ndarray:
    """Return the stencil ``[12, 4, 3, 3]`` that takes the mean of the nearest pixels of a colour."""
    weights = np.zeros((12, 4, 3, 3), np.float32)
    for row, column, colour in np.ndindex(2, 2, 3):
        near = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if COLOURS[(row + y) % 2, (column + x) % 2] == colour]
        least = min(abs(y) + abs(x) for y, x in near)
        nearest = [(row + y, column + x) for y, x in near if abs(y) + abs(x) == least]
        for y, x in nearest:
            weights[(row * 2 + column) * 3 + colour, y % 2 * 2 + x % 2, y // 2 + 1, x // 2 + 1] = 1 / len(nearest)
    return weights


def model(size: int = 64) -> onnx.ModelProto:
    """Return the stencil as a model of mosaics ``[n, 1, size, size]``, of an even size."""
    proto = onnx.parser.parse_model(NET.format(size=size))
    proto.graph.initializer.append(numpy_helper.from_array(bilinear(), "stencil"))
    return proto


def drawn(count: int, size: int, seed: int) -> dict[str, np.ndarray]:
    """Return images of discs whose colours are shades of few tones, and what a sensor sees of them."""
    rng, (y, x) = np.random.default_rng(seed), np.indices((size, size))
    images = np.empty((count, 3, size, size), np.float32)
    for image in images:
        tone = rng.uniform(0.4, 1.0, (3, 1, 1))
        image[:] = tone * rng.uniform(0.2, 0.8)
        for _ in range(12):
            (cy, cx), radius = rng.uniform(0, size, 2), rng.uniform(1, size / 6)
            image[:, (y - cy) ** 2 + (x - cx) ** 2 < radius**2] = tone[:, 0] * rng.uniform(0.1, 1.0)
    seen = np.take_along_axis(images, COLOURS[y % 2, x % 2][None, None], axis=1)
    return {"mosaic": seen, "target": images}


def psnr(trained: object, data: dict[str, np.ndarray]) -> float:
    """Return the peak signal-to-noise ratio of what a model makes of mosaics, in dB."""
    error = np.asarray(graft.compile(trained)(data["mosaic"])) - data["target"]
    return float(-10 * np.log10(np.mean(error**2)))


def main() -> None:
    """Train the stencil, and print what it gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    data, held_out = drawn(64, options.size, 0), drawn(16, options.size, 1)
    trainer = Trainer(model(options.size), "mse", Adam(0.005))
    trainer.fit(data, epochs=options.epochs, batch=8)
    before, after = psnr(model(options.size), held_out), psnr(trainer.model, held_out)
    print(f"held-out images: {before:.1f} dB by bilinear interpolation, {after:.1f} dB by the stencil learned")


if __name__ == "__main__":
    main()
