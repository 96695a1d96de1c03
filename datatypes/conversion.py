"""Models in custom datatypes: weights converted once, casts where types meet.

A converted node keeps its name, inputs and attributes and moves to the domain ``graft.custom``: ONNX's operators on
custom datatypes. (In ONNX's own domain a Conv of uint16 is invalid.) Its tensors are of the storage type, with the
custom type as the type's denotation, so a converted model saves, loads and passes `onnx.checker`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView, constant_tensor, data_type
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.machine.rows import GENERIC
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.core.operators.lower import buffer_of, lower, lowering_of
from graft.core.passes.normalize import normalize
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import stage_expressions
from graft.core.schedule.strategies.sequential.sequential_loops import loops_of
from graft.core.tensor_ir.ordered_stages import is_sequential
from graft.core.types import CUSTOM_DOMAIN, is_custom, parse_custom, storage_dtype
from graft.datatypes.arrays import can_cast, encode
from graft.datatypes.lower_function import FunctionLowering, require
from graft.datatypes.prepare import EACH, QUIRE, accumulation, prepare
from graft.datatypes.quire import require_quire
from graft.datatypes.registry import REGISTRY, DatatypeRegistry
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.study import accumulator_named
from graft.errors import DatatypeError
from graft.runtime.arguments import SHAPES, TEXT, TEXT_BY_TEXT, TEXTS, optional, takes

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
PLAIN = frozenset({
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "If", "Loop", "Scan",
    "Constant", "ConstantOfShape", "Range", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
    "EyeLike", "BitCast", "IsInf", "NonMaxSuppression", "StringNormalizer",
})  # fmt: skip
"""Operators that stay in ordinary types."""
PARAMETERS = {"Resize": (1, 2), "Upsample": (1,), "Dropout": (1,)}
"""Float inputs that steer an operator and stay floats."""
SUMS = frozenset(
    {Trait.CONTRACTION, Trait.CONVOLUTION, Trait.REDUCTION, Trait.ROW_WISE, Trait.POOLING, Trait.ATTENTION}
)


@takes(
    model=SOURCE,
    dtype=TEXT,
    keep=TEXTS,
    types=optional(TEXT_BY_TEXT),
    accumulate=TEXT,
    shapes=optional(SHAPES),
    backend=optional(TEXT),
    registry=REGISTRY,
)
def convert(
    model: Source,
    dtype: str,
    *,
    keep: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    accumulate: str = EACH,
    shapes: Mapping[str, Sequence[int]] | None = None,
    backend: str | None = None,
    registry: DatatypeRegistry = DATATYPES,
) -> ir.Model:
    """Return the model computing in a custom datatype; inputs and outputs keep their types.

    ``keep`` are patterns (``"conv1*"``, ``"Softmax"``) of names or operators of nodes that stay as they are; ``types``
    gives other types by pattern, the first that fits. ``accumulate`` is how sums are rounded: ``"each"`` operation, a
    type (``"float32"``, ``"posit32"``, ``"custom[posit]32"``), or ``"quire"``: once. BatchNormalization is folded into
    the convolution before it, in float. ``backend`` names one whose own lowerings count, None takes those for any.
    Raises DatatypeError for unknown types and, in one error, all missing lowerings.
    """
    for name in (dtype, *(types or {}).values()):
        require_type(name, registry)
        if accumulate == QUIRE:
            require_quire(name, registry)
    policy = accumulator_named(accumulate, registry)
    converted = load(model, shapes=shapes).clone()
    # a ConvTranspose, and an Einsum of several operands, sum in an order of their own
    normalize(converted, disable=["interleave-convolutions", "split-einsums"])
    require_patterns((*keep, *(types or {})), converted)

    def type_of(node: ir.Node) -> str | None:
        if any(matches(node, pattern) for pattern in keep):
            return None
        return next((kind for pattern, kind in (types or {}).items() if matches(node, pattern)), dtype)

    _Conversion(converted, type_of, policy, registry, backend).run()
    return converted


def convert_nodes(model: ir.Model, types: Mapping[ir.Node, str]) -> None:
    """Let nodes of the main graph compute in custom types, each operation rounded, and cast what passes them.

    Raises DatatypeError for all missing lowerings, in one error.
    """
    _Conversion(model, types.get, EACH, DATATYPES, None).run()


def require_type(dtype: object, registry: DatatypeRegistry = DATATYPES) -> None:
    """Raise DatatypeError for what is no registered custom datatype."""
    if not isinstance(dtype, str) or not is_custom(dtype):
        raise DatatypeError(f"'{dtype}' is not a custom datatype; write custom[name]bits, as in custom[posit]16")
    parse_custom(dtype)
    registry.format(dtype)


def require_patterns(patterns: Sequence[str], model: ir.Model) -> None:
    """Raise DatatypeError for a pattern that fits no node of the main graph."""
    for pattern in patterns:
        if not any(matches(node, pattern) for node in model.graph):
            raise DatatypeError(
                f"no node's name or operator matches '{pattern}'; graft plan lists the nodes", pattern=pattern
            )


def matches(node: ir.Node, pattern: str) -> bool:
    """Whether a pattern fits the name or the operator of a node."""
    return fnmatch.fnmatchcase(node.name or "", pattern) or fnmatch.fnmatchcase(node.op_type, pattern)


@dataclass(slots=True)
class _Conversion:
    model: ir.Model
    type_of: Callable[[ir.Node], str | None]
    """The type of a node that can be converted, None if it is not to be."""
    accumulate: str
    registry: DatatypeRegistry
    backend: str | None
    _converted: list[ir.Node] = field(default_factory=list)
    _as_type: dict[tuple[ir.Value, str], ir.Value] = field(default_factory=dict)
    _floats: dict[ir.Value, ir.DataType] = field(default_factory=dict)
    """The float type that a converted value had."""
    _unknown: set[str] = field(default_factory=set)
    _taken: set[str] = field(init=False)
    """The names of all nodes and values."""

    def __post_init__(self) -> None:
        graph = self.model.graph
        self._taken = {node.name or "" for node in graph}
        self._taken |= {value.name or "" for node in graph for value in node.outputs}
        self._taken |= {value.name or "" for value in (*graph.inputs, *graph.initializers.values())}

    def _unique(self, preferred: str) -> str:
        """Return a name that no node and no value has yet."""
        numbered = (f"{preferred}_{number}" for number in count(1))
        name = next(one for one in chain((preferred,), numbered) if one not in self._taken)
        self._taken.add(name)
        return name

    def run(self) -> None:
        """Convert the main graph in place; raise DatatypeError for missing lowerings."""
        graph = self.model.graph
        for node in list(graph):
            wanted = self._wanted(node)
            if wanted is None:
                self._feed_plain(node)
            else:
                self._convert(node, wanted)
        for number, value in enumerate(list(graph.outputs)):
            if value in self._floats:
                graph.outputs[number] = self._restored(value)
        graph.opset_imports[CUSTOM_DOMAIN] = 1
        require(self._missing(), self.backend, f"model '{graph.name}'")

    def _wanted(self, node: ir.Node) -> str | None:
        """The type of a node's floats, None if it stays as it is."""
        operator = OPERATORS.of(NodeView(node))
        if node.domain not in ("", "ai.onnx") or node.op_type in PLAIN or operator is None or operator.lower is None:
            return None
        floats = [value for value in (*node.inputs, *node.outputs) if value is not None and self._is_float(value)]
        return self.type_of(node) if floats else None

    def _is_float(self, value: ir.Value) -> bool:
        return value in self._floats or ValueView(value).dtype in FLOATS

    def _convert(self, node: ir.Node, dtype: str) -> None:
        parameters = PARAMETERS.get(node.op_type, ())
        for place, value in enumerate(node.inputs):
            if value is not None and self._is_float(value) and place not in parameters:
                node.replace_input_with(place, self._value(value, dtype, node))
        for value in node.outputs:
            if ValueView(value).dtype in FLOATS and value.dtype is not None:
                self._floats[value] = value.dtype
                value.type = _type(dtype)
        node.domain = CUSTOM_DOMAIN
        node.version = None
        if node.op_type == "Cast" and is_custom(ValueView(node.outputs[0]).dtype):
            node.attributes["to"] = ir.AttrInt64("to", data_type(storage_dtype(dtype)).value)
        operator = OPERATORS.of(NodeView(node))
        if self.accumulate != EACH and operator is not None and Trait.RECURRENT in operator.traits:
            raise DatatypeError(
                f"{node.op_type} (node '{node.name}') rounds each operation, not accumulate='{self.accumulate}'; keep "
                f"it in its own type with keep=['{node.op_type}']",
                node=node.name,
            )
        if self.accumulate != EACH and operator is not None and operator.traits & SUMS:
            node.attributes["accumulate"] = ir.AttrString("accumulate", self.accumulate)
        self._converted.append(node)

    def _feed_plain(self, node: ir.Node) -> None:
        for place, value in enumerate(node.inputs):
            if value is not None and value in self._floats:
                node.replace_input_with(place, self._plain(value, node))

    # ---- Casts ----

    def _value(self, value: ir.Value, dtype: str, before: ir.Node) -> ir.Value:
        """Return a value as a custom type."""
        if ValueView(value).dtype == dtype:
            return value
        known = self._as_type.get((value, dtype))
        if known is None:
            tensor = constant_tensor(value)
            known = self._constant(value, tensor, dtype) if tensor is not None else self._cast(value, dtype, before)
            self._as_type[(value, dtype)] = known
        return known

    def _constant(self, value: ir.Value, tensor: ir.TensorProtocol, dtype: str) -> ir.Value:
        array = tensor.numpy()
        if self.registry.format(dtype) is None and not can_cast("float32", dtype, self.registry, self.backend):
            self._unknown.add(f"Cast from float32 to {dtype}")
            bits = np.zeros(array.shape, storage_dtype(dtype))
        else:
            bits = encode(array, dtype, registry=self.registry, backend=self.backend)
        name = self._unique(f"{value.name}_{_suffix(dtype)}")
        new = ir.Value(name=name, shape=ir.Shape(bits.shape), type=_type(dtype), const_value=ir.tensor(bits, name=name))
        self.model.graph.initializers.add(new)
        return new

    def _cast(self, value: ir.Value, dtype: str, before: ir.Node) -> ir.Value:
        new = self._cast_node(
            value, self._unique(f"{value.name}_{_suffix(dtype)}"), _type(dtype), data_type(storage_dtype(dtype))
        )
        self.model.graph.insert_before(before, new)
        return new.outputs[0]

    def _plain(self, value: ir.Value, before: ir.Node) -> ir.Value:
        """Return a converted value as the float that it was."""
        kind = self._floats[value]
        known = self._as_type.get((value, kind.name))
        if known is None:
            new = self._cast_node(value, self._unique(f"{value.name}_{kind.name.lower()}"), ir.TensorType(kind), kind)
            self.model.graph.insert_before(before, new)
            known = self._as_type[(value, kind.name)] = new.outputs[0]
        return known

    def _restored(self, value: ir.Value) -> ir.Value:
        """Return a graph output as the float that it was, under its old name."""
        name, kind = value.name or "", self._floats[value]
        value.name = self._unique(f"{name}_{_suffix(ValueView(value).dtype)}")
        new = self._cast_node(value, name, ir.TensorType(kind), kind)
        self.model.graph.append(new)
        return new.outputs[0]

    def _cast_node(self, value: ir.Value, name: str, type: ir.TypeProtocol, to: ir.DataType) -> ir.Node:
        shape = None if value.shape is None else ir.Shape(value.shape)
        output = ir.Value(name=name, shape=shape, type=type)
        attributes = [ir.AttrInt64("to", to.value)]
        return ir.Node(CUSTOM_DOMAIN, "Cast", [value], attributes, outputs=[output], name=self._unique(f"cast_{name}"))

    # ---- What is missing ----

    def _missing(self) -> set[str]:
        """Return the operations without a lowering, over all converted nodes."""
        found = set(self._unknown)
        for node in self.model.graph:
            if node.domain == CUSTOM_DOMAIN:
                found |= missing_of(NodeView(node), self.registry, self.backend)
        return found


def missing_of(node: NodeView, registry: DatatypeRegistry = DATATYPES, backend: str | None = None) -> set[str]:
    """Return the operations that a node of custom types needs and nobody registered."""
    kinds = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None and is_custom(value.dtype)}
    kinds |= {policy for policy in accumulation([node]).values() if is_custom(policy)}
    if all(registry.format(kind) is not None for kind in kinds):
        return set()
    lowering = FunctionLowering(registry, backend)
    result = lower(lowering_of(node, partial(buffer_of, extents={})))
    buffers = tuple(dict.fromkeys(stage.buffer for stage in result))
    kernel = Kernel(node.name, (), buffers, result, Trait.ELEMENTWISE, node, len(result) - 1)
    if any(map(is_sequential, result)):
        lowering.statement(loops_of(result, buffers, GENERIC))
        return lowering.missing
    for stage in prepare(kernel, accumulation([node]), registry).kernel.stages:
        for expression in stage_expressions(stage):
            lowering.expression(expression)
        if stage.reduction is not None and stage.value.type.is_custom:
            lowering.reduce(stage.reduction.operator, stage.value)
    return lowering.missing


def _type(dtype: str) -> ir.TensorType:
    return ir.TensorType(data_type(storage_dtype(dtype)), denotation=dtype)


def _suffix(dtype: str) -> str:
    name, bits = parse_custom(dtype)
    return f"{name}{bits}"
