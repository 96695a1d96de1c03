"""ONNX's own node cases (`onnx.backend.test`) as one node with arrays, for every operator of the table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.all import OPERATORS
from graft.core.operators.lower import buffer_of, lower, lowering_of
from graft.core.reject import Reject
from graft.core.tensor_ir.interpreting import interpreter
from graft.core.tensor_ir.ir import Buffer
from graft.runtime.dtypes import ELEMENT_TYPES

LIMIT = 1 << 22
"""Elements up to which a case is run in the interpreter."""


@dataclass(frozen=True)
class Case:
    """One node, its inputs and the outputs that ONNX expects."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    rtol: float
    atol: float


def cases() -> Iterator[Case]:
    """Every single-node case of tensors whose operator has a lowering."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    for test in found:
        model = test.model
        if model is None or len(model.graph.node) != 1:
            continue
        operator = OPERATORS.get(model.graph.node[0].op_type, model.graph.node[0].domain)
        if operator is None or operator.lower is None:
            continue
        for inputs, outputs in test.data_sets[:1]:
            if all(isinstance(array, np.ndarray) for array in (*inputs, *outputs)):
                yield Case(test.name, model, tuple(inputs), tuple(outputs), *_bounds(test, outputs))


def _bounds(test: Any, outputs: Sequence[np.ndarray]) -> tuple[float, float]:
    """ONNX's bounds; but its own numbers are rounded to bfloat16 at every step, and its transforms to float32."""
    rounded = any(str(output.dtype) == "bfloat16" for output in outputs)
    return 2**-6 if rounded else test.rtol, 1e-6 if "dft" in test.name else test.atol


@cache
def all_cases() -> dict[str, Case]:
    """The cases by name."""
    return {case.name: case for case in cases()}


def node_of(model: onnx.ModelProto, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...]) -> NodeView:
    """The node of a model, its values typed by the arrays."""
    graph = ir.serde.deserialize_model(model).graph
    for values, arrays in ((graph.inputs, inputs), (graph.outputs, outputs)):
        for value, array in zip(values, arrays, strict=True):
            value.shape = ir.Shape(array.shape)
    (node,) = list(graph)
    return NodeView(node)


def make_constant(view: NodeView, arrays: dict[str, np.ndarray]) -> None:
    """Give the node's inputs their contents at compile time."""
    for value in view.inputs:
        if value is not None:
            value.value.const_value = ir.tensor(arrays[value.name], name=value.name)


def refusal(view: NodeView) -> Reject | None:
    """Why the node cannot be lowered: an element type, or what its operator says."""
    for value in (*view.inputs, *view.outputs):
        if value is not None and value.name and value.dtype not in ELEMENT_TYPES:
            return Reject("dtype", f"{value.dtype} is not an element type")
    operator = OPERATORS.of(view)
    assert operator is not None
    return None if operator.accepts is None else operator.accepts(view)


def evaluate(view: NodeView, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a node by its lowering, in the interpreter."""
    buffers: dict[str, Buffer] = {}

    def buffer(value: ValueView) -> Buffer:
        if value.name not in buffers:
            buffers[value.name] = buffer_of(value)
        return buffers[value.name]

    lowering = lowering_of(view, buffer)
    lowered = lower(lowering)
    outputs = [output for output in lowering.outputs if output is not None]
    given_arrays = {buffers[name]: array for name, array in arrays.items() if name in buffers}
    contents = interpreter.run_stages(lowered, given_arrays)
    return [contents[output] for output in outputs]
