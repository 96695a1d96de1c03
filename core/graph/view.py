"""Read-only views of ONNX nodes and values: what predicates, lowerings and code generators look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.types import PACKED_TYPES, is_custom
from graft.errors import ModelError

COPIES_ZERO = "graft.copies-zero"
"""The key of the metadata of a Reshape whose target had no `allowzero` in the file, and has one since; it has the place
of a -1 that was there."""


@dataclass(frozen=True, slots=True)
class ValueView:
    """An ONNX value: name, dtype, shape, and its contents where they are constant."""

    value: ir.Value

    @property
    def name(self) -> str:
        """The value's name, "" if it has none."""
        return self.value.name or ""

    @property
    def dtype(self) -> str:
        """Element type name (``float32``); "" when it is unknown or the value is not a tensor.

        A value whose type's denotation is a custom datatype (``custom[posit]16``) has that type.
        """
        kind = self.value.type
        denotation = getattr(kind, "denotation", None)
        if denotation and is_custom(denotation):
            return str(denotation)
        if not isinstance(kind, ir.TensorType) or kind.dtype is ir.DataType.UNDEFINED:
            return ""
        return dtype_of(kind.dtype)

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        """Dimensions: an int, a symbol's name, or None where unknown; None when the rank is unknown."""
        if self.value.shape is None:
            tensor = constant_tensor(self.value)
            return None if tensor is None else tuple(int(extent) for extent in tensor.shape.numpy())
        return tuple(d if isinstance(d, int) else d.value for d in self.value.shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if every dimension is a number, else None."""
        shape = self.shape if self.value.shape is None else self.value.shape.dims
        if shape is None:
            return None
        for dimension in shape:  # a plain loop: passes ask this of every value, again and again
            if not isinstance(dimension, int):
                return None
        return shape  # type: ignore[return-value]

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None when unknown."""
        return None if self.value.shape is None else len(self.value.shape)

    @property
    def is_constant(self) -> bool:
        """Whether the contents are known at compile time (an initialiser or a Constant node)."""
        return constant_tensor(self.value) is not None

    @property
    def constant(self) -> np.ndarray | None:
        """The contents as an array, None when they are not constant."""
        tensor = constant_tensor(self.value)
        return None if tensor is None else tensor.numpy()

    @property
    def producer(self) -> NodeView | None:
        """The node that computes the value, None for inputs and initialisers."""
        node = self.value.producer()
        return None if node is None else NodeView(node)


@dataclass(frozen=True, slots=True)
class NodeView:
    """An ONNX node: operator, typed inputs and outputs, attributes."""

    node: ir.Node

    @property
    def name(self) -> str:
        """The node's name, or that of its first output."""
        return self.node.name or (self.node.outputs[0].name if self.node.outputs else "") or ""

    @property
    def op_type(self) -> str:
        """The operator's name, such as ``Conv``."""
        return self.node.op_type

    @property
    def domain(self) -> str:
        """The operator's domain; "" is ai.onnx."""
        return self.node.domain

    @property
    def inputs(self) -> tuple[ValueView | None, ...]:
        """The inputs in order; None for an absent optional one. Trailing absent ones are left out."""
        values = [None if value is None else ValueView(value) for value in self.node.inputs]
        while values and values[-1] is None:
            values.pop()
        return tuple(values)

    @property
    def outputs(self) -> tuple[ValueView, ...]:
        """The outputs in order."""
        return tuple(ValueView(value) for value in self.node.outputs)

    def input(self, index: int) -> ValueView | None:
        """Return input ``index``, None when it is absent."""
        inputs = self.node.inputs
        value = inputs[index] if index < len(inputs) else None
        return None if value is None else ValueView(value)

    @property
    def dtype(self) -> str:
        """The element type of the first input, or of the first output where there is no input."""
        first = next((value for value in self.node.inputs if value is not None), None)
        if first is None:
            first = self.node.outputs[0]
        return ValueView(first).dtype

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value: int, float, str, list, NumPy array, graph; ``default`` if absent.

        Numbers of attributes are float32, and so is a default: 0.01 is the same, said or not.
        """
        attribute = self.node.attributes.get(name)
        if attribute is None:
            return float(np.float32(default)) if isinstance(default, float) else default
        value = attribute.value
        if attribute.type == ir.AttributeType.TENSOR:
            return value.numpy()
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The order of axes that a Transpose brings about; None for other operators, and for an unknown rank."""
        if self.op_type != "Transpose" or self.domain not in ("", "ai.onnx") or (source := self.input(0)) is None:
            return None
        order = self.attribute("perm", None if source.rank is None else range(source.rank)[::-1])
        return None if order is None else tuple(map(int, order))

    @property
    def where(self) -> str:
        """``Conv (node 'conv1')``: how messages name this node."""
        return f"{self.op_type} (node '{self.name}')"


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of a value known at compile time, or None."""
    if value.const_value is not None:
        return value.const_value
    producer = value.producer()
    if producer is not None and producer.op_type == "Constant" and producer.domain in ("", "ai.onnx"):
        attribute = producer.attributes.get("value")
        if attribute is not None and attribute.type == ir.AttributeType.TENSOR:
            tensor: ir.TensorProtocol = attribute.value
            return tensor
        for name, kind in _NUMBERS.items():
            given = producer.attributes.get(name)
            if given is not None and given.value is not None:
                return ir.tensor(np.array(given.value, kind))
    return None


_NUMBERS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
"""Attributes of Constant that hold no tensor but numbers, and their types."""


def likeness(node: ir.Node, *, constants: bool = False) -> tuple[object, ...] | None:
    """Return a key, the same for nodes that have operator, attributes and shapes in common.

    With ``constants`` these must be the same objects, too. None where an attribute is no number, text or list of such.
    """
    attributes = tuple((name, _simple(one)) for name, one in node.attributes.data.items())
    if any(value is None for _, value in attributes):
        return None
    values = tuple(
        None if value is None or value.shape is None else tuple(value.shape) for value in (*node.inputs, *node.outputs)
    )
    known = [id(None if value is None else constant_tensor(value)) for value in node.inputs] if constants else ()
    return node.domain, node.op_type, attributes, len(node.inputs), values, *known


def _simple(attribute: ir.Attr) -> object:
    """Return what an attribute is, as a key, None where it is neither a number, a text nor a list of such."""
    value = attribute.value
    if attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return attribute.type, tuple(value)
    return (attribute.type, value) if isinstance(value, int | float | str) else None


PACKABLE = frozenset(ir.DataType[name.upper()] for name in PACKED_TYPES)
"""The element types that the executor has no tensors of, and `graft.runtime.packed_values` has bytes for."""


def is_packed(value: ir.Value) -> bool:
    """Whether a value is no tensor of numbers for the executor: strings, sequences, optionals, narrow elements."""
    if value.type is None or is_custom(getattr(value.type, "denotation", None) or ""):
        return False
    return not isinstance(value.type, ir.TensorType) or value.dtype in PACKABLE


def type_text(value: ir.Value) -> str:
    """Return the type of a value as people write it: ``float32``, ``seq(float32)``, ``optional(seq(string))``."""
    return _type_text(value.type)


def _type_text(kind: ir.TypeProtocol | None) -> str:
    match kind:
        case None:
            return "unknown"
        case ir.SequenceType():
            return f"seq({_type_text(kind.elem_type)})"
        case ir.OptionalType():
            return f"optional({_type_text(kind.elem_type)})"
        case ir.SparseTensorType():
            return f"sparse({dtype_of(kind.dtype)})"
        case _:
            return dtype_of(kind.dtype)


_DTYPES = {kind: kind.name.lower() for kind in ir.DataType} | {
    ir.DataType.FLOAT: "float32",
    ir.DataType.DOUBLE: "float64",
}
"""By ONNX data type: the name of the element type."""


def dtype_of(kind: ir.DataType) -> str:
    """Return the element type name of an ONNX data type: ``FLOAT`` gives ``float32``."""
    return _DTYPES[kind]


def data_type(dtype: str) -> ir.DataType:
    """Return the ONNX data type of an element type name; raise ModelError if there is none."""
    names = {"float32": ir.DataType.FLOAT, "float64": ir.DataType.DOUBLE}
    if dtype in names:
        return names[dtype]
    try:
        return ir.DataType[dtype.upper()]
    except KeyError:
        raise ModelError(f"'{dtype}' is not an ONNX element type", dtype=dtype) from None
