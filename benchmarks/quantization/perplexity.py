"""Perplexity beside bits of small language models: `python -m benchmarks.quantization.perplexity`.

Held-out text is read eight characters at a time, so that all but the first come through the caches. Calibration has 128
windows of the text that was trained on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

import graft
from examples.quantization import text
from graft.quantization.preparation import in_floats
from graft.quantization.quantizer import Quantizer
from graft.quantization.recipe import Recipe, recipe_of
from graft.quantization.statistics.observation import Running

WINDOWS, AT_A_TIME = 640, 8
RTN, PLAIN = {"weights": {"rounding": "nearest"}, "correct_bias": False}, {"correct_bias": False}
MX8 = {"type": "float8e4m3fn", "granularity": "group", "scale": "power-of-two", "calibration": "mse"}
FLOATS: Mapping[str, Any] = {"weights": "float32"}
BYTES = {"type": "uint8", "symmetric": False, "calibration": "mse"}
RECIPES: Mapping[str, Mapping[str, Any] | str] = {
    "int8-channel": "int8-channel",
    "int8-channel, SmoothQuant": {"base": "int8-channel", "smooth": 0.5},
    "int8-weights": "int8-weights",
    "MXFP8 weights": {"weights": MX8},
    "mxfp6-weights": "mxfp6-weights",
    "int4, groups of 32, nearest": {"base": "int4-weights", **RTN},
    "int4, groups of 32, AWQ": {"base": "int4-weights", **RTN, "awq": True},
    "int4, groups of 32, GPTQ": {"base": "int4-weights", **PLAIN},
    "int4-weights": "int4-weights",
    "mxfp4, nearest": {"base": "mxfp4-weights", **RTN},
    "mxfp4-weights": "mxfp4-weights",
    "int3, groups of 32, nearest": {"base": "int3-weights", **RTN},
    "int3, groups of 32, AWQ": {"base": "int3-weights", **RTN, "awq": True},
    "int3, groups of 32, GPTQ": {"base": "int3-weights", **PLAIN},
    "int3-weights": "int3-weights",
    "caches of uint8": {**FLOATS, "caches": BYTES},
    "caches of float8e4m3fn": {**FLOATS, "caches": {"type": "float8e4m3fn"}},
    "caches of int4": {**FLOATS, "caches": {"type": "int4", "symmetric": False, "calibration": "mse"}},
    "int4-weights, caches of uint8": {"base": "int4-weights", "caches": BYTES},
}  # fmt: skip


def feeds(model: ir.Model, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a model takes at the beginning of texts: their codes and empty caches."""
    empty = (len(ids), text.CONFIG.heads, 0, text.CONFIG.head)
    caches = {one.name or "": np.zeros(empty, ir_type(one)) for one in model.graph.inputs if one.name != "ids"}
    return {"ids": ids, **caches}


def ir_type(value: ir.Value) -> np.dtype[Any]:
    """Return the type of the elements of a value in NumPy."""
    assert value.dtype is not None, value.name
    return value.dtype.numpy()


def perplexity(name: str, model: ir.Model) -> float:
    """Return the exponential of the mean cross entropy of the characters that held-out texts ask for."""
    read, asked = text.asked(name, text.windows(held_out=True)[:WINDOWS])
    program, given, step = graft.compile(model), feeds(model, read), AT_A_TIME if name == "gpt" else read.shape[1]
    logits = []
    for first in range(0, read.shape[1], step):
        found = program.run({**given, "ids": read[:, first : first + step]})
        logits.append(np.asarray(found["logits"], np.float64))
        given = {one: found[one.replace("past", "present")] for one in given if one != "ids"}
    all_logits = np.concatenate(logits, axis=1)
    largest = all_logits.max(axis=-1, keepdims=True)
    logarithms = all_logits - largest - np.log(np.exp(all_logits - largest).sum(axis=-1, keepdims=True))
    known = asked != text.NOT_ASKED
    right = np.take_along_axis(logarithms, np.where(known, asked, 0)[..., np.newaxis], -1)[..., 0]
    return float(np.exp(-right[known].mean()))


def rows(name: str, model: ir.Model) -> Iterator[tuple[str, float, float]]:
    """Yield form, bits of a weight and perplexity of a model: in floats, then by every recipe."""
    yield "float32", 32.0, perplexity(name, model)
    data = feeds(model, text.asked(name, text.windows(held_out=False)[::48][:128])[0])
    for form, given in RECIPES.items():
        recipe: Recipe = recipe_of(given)
        if recipe.caches is None or name == "gpt":
            quantizer = Quantizer.measured(model, [recipe], data, None, Running())
            found = quantizer.written(recipe)
            yield form, quantizer.size_of(recipe).weight_bits, perplexity(name, found)


def main() -> None:
    """Print perplexity beside bits."""
    print(f"{'model':5} {'recipe':32} {'bits':>5} {'perplexity':>10} {'more, %':>8}")
    for name in sys.argv[1:] or text.MODELS:
        base = 0.0
        for form, bits, found in rows(name, in_floats(onnx.load(text.MODELS[name]))):
            base = base or found
            print(f"{name:5} {form:32} {bits:5.2f} {found:10.3f} {100 * (found / base - 1):8.2f}", flush=True)


if __name__ == "__main__":
    main()
