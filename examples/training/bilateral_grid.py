"""A bilateral grid, differentiable end to end, that learns to remove noise.

    python examples/training/bilateral_grid.py

The grid is that of Chen, Paris and Durand (SIGGRAPH 2007), as Halide's papers have it: pixels are added up in cells of
space and intensity, the cells are blurred, and each pixel reads its own place between them. Here the blur is learned.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
import onnx
from onnx import numpy_helper

import graft
from graft.training import Adam, Trainer

NET = """<ir_version: 10, opset_import: ["" : 22]>
    bilateral_grid (float[1,1,{size},{size}] image) => (float[1,1,{size},{size}] smooth)
    <float one = {{1.0}}, float two = {{2.0}}, float least = {{0.0001}}, float steps = {{{last}.0}},
     int64[2] inside = {{2, 4}},
     int64[5] each_shape = {{2, 1, {bins}, {count}, {count}}}, int64[5] both_shape = {{1, 2, {bins}, {count}, {count}}},
     int64[5] levels_shape = {{{bins}, 1, 1, 1, 1}}, int64[5] pixel_shape = {{1, 1, {size}, {size}, 1}},
     int64[4] image_shape = {{1, 1, {size}, {size}}}, int64[5] tile_shape = {{1, {count}, {cell}, {count}, {cell}}}>
    {{
        tiles = Reshape (image, tile_shape)
        scaled = Mul (tiles, steps) away = Sub (scaled, levels) apart = Abs (away)
        near = Sub (one, apart) share = Relu (near)
        weights = ReduceSum <keepdims = 0> (share, inside)
        parts = Mul (share, tiles) sums = ReduceSum <keepdims = 0> (parts, inside)
        grid = Concat <axis = 0> (sums, weights) each = Reshape (grid, each_shape)
        blur = Exp (log_blur) blurred = Conv <pads = [1, 1, 1, 1, 1, 1]> (each, blur)
        both = Reshape (blurred, both_shape)
        column = Reshape (image, pixel_shape) twice = Mul (column, two) depth = Sub (twice, one)
        points = Concat <axis = 4> (places, depth)
        read = GridSample <align_corners = 1, padding_mode = "border"> (both, points)
        sum, weight = Split <axis = 1, num_outputs = 2> (read)
        total = Add (weight, least) mean = Div (sum, total) smooth = Reshape (mean, image_shape)
    }}"""


def model(size: int = 64, cell: int = 8, bins: int = 8) -> onnx.ModelProto:
    """Return the filter of an image ``[1, 1, size, size]`` from 0 to 1; its weight is the logarithm of the blur."""
    count = size // cell
    proto = onnx.parser.parse_model(NET.format(size=size, cell=cell, bins=bins, count=count, last=bins - 1))
    at = ((np.arange(size) + 0.5) / cell - 0.5) / (count - 1) * 2 - 1
    places = np.stack(np.meshgrid(at, at, indexing="xy"), -1).reshape(1, 1, size, size, 2)
    log_blur = np.full((1, 1, 3, 3, 3), -4.0)
    log_blur[0, 0, 1, 1, 1] = 0
    arrays = {"places": places, "log_blur": log_blur, "levels": np.arange(bins).reshape(bins, 1, 1, 1, 1)}
    for name, array in arrays.items():
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return proto


def drawn(count: int, size: int, seed: int) -> dict[str, np.ndarray]:
    """Return images of flat discs, and the same with noise."""
    rng, (y, x) = np.random.default_rng(seed), np.indices((size, size))
    clean = np.empty((count, 1, size, size), np.float32)
    for image in clean:
        image[0] = rng.uniform(0.2, 0.8)
        for _ in range(4):
            (cy, cx), radius = rng.uniform(0, size, 2), rng.uniform(size / 8, size / 3)
            image[0][(y - cy) ** 2 + (x - cx) ** 2 < radius**2] = rng.uniform(0.1, 0.9)
    noisy = np.clip(clean + rng.normal(0, 0.06, clean.shape), 0, 1).astype(np.float32)
    return {"image": noisy, "target": clean}


def psnr(trained: object, data: dict[str, np.ndarray]) -> float:
    """Return the peak signal-to-noise ratio of what a model makes of noisy images, in dB."""
    program = graft.compile(trained)
    errors = [
        np.mean((np.asarray(program(data["image"][i : i + 1])) - one) ** 2) for i, one in enumerate(data["target"])
    ]
    return float(-10 * np.log10(np.mean(errors)))


def times_forward(size: int, threads: int | None = None) -> float:
    """Return what forward and backward pass take together, by the forward pass: medians of calls in turns."""
    with_loss, feeds = graft.loss(model(size), "mse"), drawn(1, size, 1)
    models = (graft.grad(with_loss, wrt=["image", "log_blur"]), with_loss)
    programs = [graft.compile(one, threads=threads) for one in models]
    results, ratios = [dict(program.run(feeds)) for program in programs], []
    for _ in range(9):
        medians = []
        for program, into in zip(programs, results, strict=True):
            times = []
            for _ in range(25):
                start = perf_counter()
                program.run(feeds, into=into)
                times.append(perf_counter() - start)
            medians.append(sorted(times)[12])
        ratios.append(medians[0] / medians[1])
    return sorted(ratios)[4]


def main() -> None:
    """Train the blur, and print what it gains and what a gradient costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, help="of the times of forward and backward pass; all cores by default")
    options = parser.parse_args()
    proto, size = model(options.size), options.size
    data, held_out = drawn(32, size, 0), drawn(8, size, 1)
    noise = -10 * np.log10(np.mean((held_out["image"] - held_out["target"]) ** 2))
    trainer = Trainer(proto, "mse", Adam(0.05), wrt=["log_blur"])
    trainer.fit(data, epochs=options.epochs, batch=1)
    before, after = psnr(proto, held_out), psnr(trainer.model, held_out)
    print(f"held-out images: {noise:.1f} dB with noise, {before:.1f} dB filtered, {after:.1f} dB with the blur learned")
    ratio = times_forward(options.size, options.threads)
    print(f"forward and backward take {ratio:.1f} times the forward pass")


if __name__ == "__main__":
    main()
