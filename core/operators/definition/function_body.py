"""The body of a function that stands for one node: nodes written one after the other, with types as far as known.

    def fast_gelu(f: Body) -> None:
        f.give(0, f("Gelu", f.added(f.input(0), f.input(1)), approximate="tanh"))

Values are names; "" is an absent one. What inference knows of a value may be asked for at once, so that a body follows
the ranks and types that a node has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graft.core.graph.protos import held_by, reads_of
from graft.core.operators.definition.phrases import Phrases
from graft.errors import ModelError

MICROSOFT = "com.microsoft"
OPSET = 25
"""The opset in which bodies are written: that of an imported model."""
Extent = int | str | None
_PLAIN = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64})
"""Types in which a number is written as it is, without a Cast."""


class Body(Phrases[str]):
    """The nodes that take the place of ``node``; ``types`` and ``data`` are what is known of values, and learn more."""

    def __init__(
        self,
        node: onnx.NodeProto,
        types: dict[str, onnx.TypeProto],
        data: dict[str, TensorProto],
        fresh: Callable[[str], str],
    ) -> None:
        self.node, self.types, self.data, self.fresh = node, types, data, fresh
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[object, ...], str] = {}
        self._attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self._stem = node.name or node.output[0]

    # ---- What the node says --------------------------------------------------------------------------------------

    def input(self, number: int) -> str:
        """Return the name of an input, "" if it is absent."""
        return self.node.input[number] if number < len(self.node.input) else ""

    @property
    def inputs(self) -> list[str]:
        """The names of all inputs."""
        return list(self.node.input)

    def parameters(self, first: int) -> tuple[str, str, str]:
        """Return a quantised input, its scale and its zero point: three inputs from ``first`` on."""
        return self.input(first), self.input(first + 1), self.input(first + 2)

    def wants(self, number: int) -> bool:
        """Whether somebody may read an output."""
        return number < len(self.node.output) and bool(self.node.output[number])

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value, text as text; numbers are float32, and so is a default."""
        value = self._attributes.get(name, float(np.float32(default)) if isinstance(default, float) else default)
        if isinstance(value, list):
            return [one.decode() if isinstance(one, bytes) else one for one in value]
        return value.decode() if isinstance(value, bytes) else value

    def attributes(self, *names: str) -> dict[str, Any]:
        """Return those of the attributes that the node has."""
        return {name: self.attribute(name) for name in names if name in self._attributes}

    def shape(self, name: str) -> tuple[Extent, ...]:
        """Return the shape of a value, None for extents that are not known."""
        kind = self._kind(name)
        return tuple(one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in kind.shape.dim)

    def require(self, holds: bool, why: str) -> None:
        """Raise ModelError with ``why`` unless something holds without which there is no such function."""
        if not holds:
            where = f"{self.node.op_type} (node '{self._stem}')"
            raise ModelError(f"{where}: {why}", node=self.node.name)

    def rank(self, name: str) -> int:
        """Return the rank of a value."""
        return len(self.shape(name))

    def dtype(self, name: str) -> int:
        """Return the ONNX element type of a value."""
        self._require_known(name, name in self.types)
        return int(self.types[name].tensor_type.elem_type)

    def _kind(self, name: str) -> onnx.TypeProto.Tensor:
        self._require_known(name, name in self.types and self.types[name].tensor_type.HasField("shape"))
        return self.types[name].tensor_type

    def _require_known(self, name: str, is_known: bool) -> None:
        why = "its operands do not fit together, or what makes it tells none: state it as value_info"
        self.require(is_known, f"the type or rank of '{name}' cannot be inferred: {why}")

    def contents(self, name: str) -> np.ndarray | None:
        """Return what a constant holds, None for other values."""
        return numpy_helper.to_array(self.data[name]) if name in self.data else None

    # ---- Nodes ---------------------------------------------------------------------------------------------------

    def __call__(self, op_type: str, *inputs: str | None, **attributes: Any) -> str:
        """Add a node of one output and return that; what is known of shapes is a constant."""
        known = self._folded(op_type, inputs, attributes)
        return self.several(1, op_type, *inputs, **attributes)[0] if known is None else self.constant(known)

    def _folded(self, op_type: str, inputs: tuple[str | None, ...], attributes: dict[str, Any]) -> np.ndarray | None:
        """Return what a node says of shapes in numbers, None where it is no such node."""
        if op_type in ("Shape", "Size"):
            kind = self.types.get(inputs[0] or "", onnx.TypeProto()).tensor_type
            if not kind.HasField("shape") or not all(one.HasField("dim_value") for one in kind.shape.dim):
                return None
            extents = np.array([one.dim_value for one in kind.shape.dim], np.int64)
            sides = slice(attributes.get("start"), attributes.get("end"))
            return np.asarray(np.prod(extents) if op_type == "Size" else extents[sides])
        arrays = self._vectors(inputs) if op_type in ("Add", "Sub", "Mul") else None
        if arrays is None:
            return None
        left, right = arrays
        return np.asarray(left + right if op_type == "Add" else left - right if op_type == "Sub" else left * right)

    def _vectors(self, names: Sequence[str | None]) -> list[np.ndarray] | None:
        """Return what constant vectors of int64 hold, None where one is another value."""
        tensors = [tensor for one in names if (tensor := self.data.get(one or "")) is not None]
        known = all(one.data_type == TensorProto.INT64 and len(one.dims) == 1 for one in tensors)
        return list(map(numpy_helper.to_array, tensors)) if known and len(tensors) == len(names) else None

    def concatenated(self, *values: str, axis: int, **more: Any) -> str:
        """Return values one behind the other along an axis; shapes that are known are a constant."""
        arrays = self._vectors(values)
        return (
            super().concatenated(*values, axis=axis, **more) if arrays is None else self.ints(*np.concatenate(arrays))
        )

    def several(self, count: int, op_type: str, *inputs: str | None, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node of ``count`` outputs and return these."""
        names = [self.fresh(f"{self._stem}/{op_type}") for _ in range(count)]
        given = [one or "" for one in inputs]
        self.add(helper.make_node(op_type, given, names, names[0], domain=domain, **attributes))
        return names

    def give(self, number: int, value: str) -> None:
        """Say what an output of the node is."""
        if self.wants(number):
            name = self.fresh(f"{self._stem}/Identity")
            self.add(helper.make_node("Identity", [value], [self.node.output[number]], name))

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return a constant of a NumPy type, the one that is there already where it is equal."""
        array = np.ascontiguousarray(value, dtype).reshape(np.shape(value))
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = name = self.fresh(f"{self._stem}/Constant")
            self.add(helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(array, name)))
        return self._constants[key]

    def ints(self, *values: int) -> str:
        """Return a vector of int64."""
        return self.constant(np.array(values, np.int64))

    def like(self, value: float, other: str) -> str:
        """Return a scalar of the type of another value."""
        if (dtype := self.dtype(other)) in _PLAIN:
            return self.constant(value, helper.tensor_dtype_to_np_dtype(dtype))
        return self("Cast", self.constant(value, np.float64), to=dtype)

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node as it is."""
        self.nodes.append(node)
        if node.op_type == "Constant" and (tensor := held_by(node)) is not None:
            self.data[node.output[0]] = tensor
        learn(node, self.types, self.data, {"": OPSET})

    # ---- Phrases -------------------------------------------------------------------------------------------------

    def added(self, *values: str) -> str:
        """Return the sum of the values that are there, "" where none is."""
        total = ""
        for value in filter(None, values):
            total = self("Add", total, value) if total else value
        return total

    def scaled(self, value: str, factor: float) -> str:
        """Return a value times a number."""
        return value if factor == 1.0 else self("Mul", value, self.like(factor, value))

    def cast(self, value: str, dtype: int) -> str:
        """Return a value as another type."""
        return value if self.dtype(value) == dtype else self("Cast", value, to=dtype)

    def swapped(self, value: str) -> str:
        """Return a value with its last two axes exchanged."""
        rank = self.rank(value)
        return self.transposed(value, *range(rank - 2), rank - 1, rank - 2)

    def extent(self, value: str, axis: int) -> str:
        """Return an extent as a vector of one int64."""
        axis %= self.rank(value)
        return self("Shape", value, start=axis, end=axis + 1)

    @contextmanager
    def apart(self) -> Iterator[list[onnx.NodeProto]]:
        """Add nodes to a list of their own, that of a body, of which nothing is seen outside."""
        around, constants = self.nodes, self._constants
        self.nodes, self._constants = [], {}
        yield self.nodes
        self.nodes, self._constants = around, constants

    def loop(self, most: int, value: str, step: Callable[[str], tuple[str, str]]) -> str:
        """Return a value after steps that keep its shape: ``step`` gives the next one, and whether to go on (bool)."""
        number, going, carried = (self.fresh(f"{self._stem}/{part}") for part in ("number", "going", "carried"))
        self.types[carried] = self.types[value]
        with self.apart() as inner:
            result, more = step(carried)
        scalars = [(number, TensorProto.INT64), (going, TensorProto.BOOL), (more, TensorProto.BOOL)]
        scalar_infos = [helper.make_tensor_value_info(name, kind, []) for name, kind in scalars]
        states = [helper.make_value_info(name, self.types[value]) for name in (carried, result)]
        body = helper.make_graph(
            inner, f"{self._stem}/step", [*scalar_infos[:2], states[0]], [scalar_infos[2], states[1]]
        )  # fmt: skip
        found = self("Loop", self.constant(most, np.int64), self.constant(True), value, body=body)
        self.types[found] = self.types[value]
        return found

    def scalar(self, value: str) -> str:
        """Return the only element of a vector."""
        return self("Squeeze", value, self.ints(0))

    def sliced(self, value: str, axis: int, start: str | int, end: str | int) -> str:
        """Return the elements of an axis from ``start`` on, before ``end``."""
        bounds = [self.ints(one) if isinstance(one, int) else one for one in (start, end)]
        return self("Slice", value, *bounds, self.ints(axis))

    def counted(self, extent: str) -> str:
        """Return 0, 1, ... up to an extent (a vector of one)."""
        return self("Range", self.constant(np.int64(0)), self.scalar(extent), self.constant(np.int64(1)))

    def unsqueezed(self, value: str, *axes: int) -> str:
        """Return a value with axes of extent 1 more."""
        return self("Unsqueeze", value, self.ints(*axes))

    def dequantized(self, value: str, scale: str, point: str = "", axis: int = 1) -> str:
        """Return the numbers that a quantised value stands for."""
        return self("DequantizeLinear", value, scale, *filter(None, [point]), axis=axis)

    def quantized(self, value: str, scale: str, point: str, dtype: int, axis: int = 1) -> str:
        """Return a value in steps of ``scale`` from a zero point, 0 where it is absent."""
        if point:
            return self("QuantizeLinear", value, scale, point, axis=axis)
        return self("QuantizeLinear", value, scale, axis=axis, output_dtype=dtype)


Function = Callable[[Body], None]


def learn(
    node: onnx.NodeProto,
    types: dict[str, onnx.TypeProto],
    data: Mapping[str, TensorProto],
    opsets: Mapping[str, int],
) -> None:
    """Add the types of a node's outputs to ``types``, as far as ONNX infers them of those of its inputs."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in opsets or not onnx.defs.has(node.op_type, opsets[domain], node.domain):
        return
    if any(name and name not in types for name in node.input):
        return
    if any(one.HasField("g") for one in node.attribute):
        return _learn_by_model(node, types, opsets)
    schema = onnx.defs.get_schema(node.op_type, opsets[domain], node.domain)
    imports = [helper.make_opsetid(place, version) for place, version in opsets.items()]
    given = {name: types[name] for name in node.input if name}
    known = {name: data[name] for name in given if name in data}
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node, given, known, opset_imports=imports)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return  # what is wrong is reported where the whole model is inferred
    _keep(types, found)


def _keep(types: dict[str, onnx.TypeProto], found: Mapping[str, onnx.TypeProto]) -> None:
    """Add types that were inferred, but for what is known better."""
    for name, kind in found.items():
        stated = types.get(name)
        if stated is None or not stated.tensor_type.HasField("shape"):
            types[name] = kind


def _learn_by_model(node: onnx.NodeProto, types: dict[str, onnx.TypeProto], opsets: Mapping[str, int]) -> None:
    """Do what `learn` does for a node with bodies, which ONNX infers in a model alone."""
    inputs = [helper.make_value_info(name, types[name]) for name in sorted(set(reads_of(node))) if name in types]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    imports = [helper.make_opsetid(place, version) for place, version in opsets.items()]
    model = helper.make_model(helper.make_graph([node], "node", inputs, outputs), opset_imports=imports)
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return
    _keep(types, {one.name: one.type for one in inferred.graph.output if one.type.HasField("tensor_type")})
