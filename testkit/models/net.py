"""ONNX models under construction: an operator is a method of the builder, ``y = net.Conv(x, w, pads=[1] * 4)``.

The idiom is that of onnxscript and spox: a name is looked up in ONNX's schemas, and the types of results are inferred
when the node is made, so a mistake is an error on the line that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

IR_VERSION = 10


class Operators:
    """What has a method for each operator of ONNX's main domain, by its name; a subclass says what `call` does."""

    __slots__ = ()

    @property
    def opset(self) -> int:
        """The opset whose operators there are."""
        raise NotImplementedError

    def call(self, operator: str, *inputs: Any, **settings: Any) -> Any:
        """Add a node of an operator whose name is computed."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return `call` with an operator; raise AttributeError with the nearest name where ONNX has none."""
        if name[:1].isupper():
            require_operator(name, self.opset)
            return partial(self.call, name)
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")


def require_operator(name: str, opset: int) -> None:
    """Raise AttributeError with the nearest name if an opset of ONNX's main domain lacks an operator."""
    if not defs.has(name, opset, ""):
        near = get_close_matches(name, {one.name for one in defs.get_all_schemas() if one.domain == ""}, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise AttributeError(f"ONNX has no operator '{name}' in opset {opset}{hint}")


class Net(Operators):
    """An ONNX graph that grows by calls; a value is its name, and `shape` knows its extents.

    ``random`` is a generator with a seed, for weights.
    """

    def __init__(self, seed: int = 0, opset: int = 21) -> None:
        self._opset = opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.types: dict[str, onnx.TypeProto] = {}

    @property
    def opset(self) -> int:
        """The opset of the model."""
        return self._opset

    def call(self, operator: str, *inputs: str, outputs: int | Sequence[str] = 1, **attributes: Any) -> Any:
        """Add a node and return its result, or a tuple where there are several ``outputs`` (a count, or names).

        "" is no input. Raises `onnx.shape_inference.InferenceError` where types or shapes do not fit.
        """
        title = f"{operator.lower()}_{len(self.nodes)}"
        named = [title, *(f"{title}_{one}" for one in range(1, outputs))] if isinstance(outputs, int) else outputs
        node = helper.make_node(operator, inputs, named, name=title, **attributes)
        given = {one: self.types[one] for one in inputs if one}
        known = {one: self.constants[one] for one in inputs if one in self.constants}
        opsets = [helper.make_opsetid("", self.opset)]
        self.types |= shape_inference.infer_node_outputs(
            defs.get_schema(operator, self.opset), node, given, known, opset_imports=opsets, ir_version=IR_VERSION
        )
        self.nodes.append(node)
        return named[0] if len(named) == 1 else tuple(named)

    def shape(self, value: str) -> tuple[Any, ...]:
        """Return the extents of a value, names where they are open."""
        return tuple(one.dim_param or one.dim_value for one in self.types[value].tensor_type.shape.dim)

    def input(self, name: str, *shape: int | str, dtype: int = TensorProto.FLOAT) -> str:
        """Return an input of the graph."""
        info = helper.make_tensor_value_info(name, dtype, shape)
        self.inputs.append(info)
        self.types[name] = info.type
        return name

    def constant(self, array: Any, dtype: Any = np.float32, name: str = "") -> str:
        """Return a constant; with ``dtype`` None it is of the type that it has."""
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(array, dtype), name)
        self.types[name] = helper.make_tensor_type_proto(self.constants[name].data_type, self.constants[name].dims)
        return name

    def integers(self, *numbers: int) -> str:
        """Return a vector of int64."""
        return self.constant(numbers, np.int64)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the model with these outputs."""
        results = [helper.make_value_info(one, self.types[one]) for one in outputs]
        return model_proto(self.nodes, self.inputs, results, self.constants.values(), self.opset)


def model_proto(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Iterable[TensorProto],
    opset: int,
    name: str = "g",
) -> onnx.ModelProto:
    """Return a model of one graph over ONNX's main domain."""
    graph = helper.make_graph(nodes, name, inputs, outputs, [*constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


def typed(name: str, array: np.ndarray, shape: Sequence[int | str | None] | None = None) -> onnx.ValueInfoProto:
    """Return the type of a value that holds an array, of its shape or another."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if shape is None else shape)
