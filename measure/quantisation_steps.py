"""Differences in steps of quantisation: how many integers lie between a number and its reference."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.passes.integer.quantized_tensors import quantization_of
from graft.core.rewriting.node_rewrite import has_trait

INTEGERS = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16})


def steps_of(values: Iterable[ir.Value]) -> dict[str, float]:
    """Return by name the step of each value that has one for all its elements.

    It is 1 for integers of 8 and 16 bits, and the scale of what DequantizeLinear makes, moved or not.
    """
    found = ((value.name or "", _step(value)) for value in values)
    return {name: step for name, step in found if step is not None}


def _step(value: ir.Value) -> float | None:
    if value.dtype in INTEGERS:
        return 1.0
    node: ir.Node | None = value.producer()
    while node is not None and has_trait(node, Trait.DATA_MOVEMENT) and node.inputs and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    meaning = quantization_of(node, "DequantizeLinear")
    return float(meaning.factor) if meaning is not None and meaning.per_tensor else None


def in_steps(actual: np.ndarray, expected: np.ndarray, step: float) -> dict[int, int]:
    """Return how many elements of two arrays of finite numbers are how many steps apart, in order of the steps."""
    apart = np.rint((actual.astype(np.float64) - expected.astype(np.float64)) / step).astype(np.int64)
    steps, counts = np.unique(apart, return_counts=True)
    return {int(one): int(count) for one, count in zip(steps, counts, strict=True)}
