"""A region: the part of a model that one backend compiles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graft.core.graph.traversal import bodies_of
from graft.core.graph.view import NodeView, ValueView, constant_tensor
from graft.core.shapes.sample_inputs import typical_numbers
from graft.errors import ModelError
from graft.partition.growing_caches import caches_of_regions

REGION_DOMAIN = "graft.region"
COMPOSITE_DOMAIN = "graft.composite"
Functions = Mapping[ir.OperatorIdentifier, ir.Function]
OPERANDS = "Operands"
"""The metadata of a composite that names its operands, those that are absent included."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a node of a region: its value (None: absent), and the names that a pattern captures it under."""

    value: ValueView | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """A region as its backend receives it.

    The body is ``function``, an ONNX model-local function; calls in the domain `COMPOSITE_DOMAIN` refer to
    ``composites`` by name. Every value in the bodies carries dtype and shape. Inputs of the function (and of a
    composite's body) that are constant carry their tensor (``const_value``), so `NodeView` sees them as constants.
    """

    name: str
    """The global symbol: unique in the program and a C identifier."""
    backend: str
    function: ir.Function
    composites: Mapping[str, ir.Function]
    inputs: tuple[ValueView, ...]
    """The inputs that are computed at run time, in the order in which the compiled function gets them."""
    outputs: tuple[ValueView, ...]
    constants: Mapping[str, ir.TensorProtocol] = field(default_factory=dict)
    """The other inputs of ``function``, by name."""
    origin: tuple[str, ...] = ()
    """The names of the model's nodes in this region, composites opened."""
    caches: Mapping[str, int] = field(default_factory=dict)
    """The outputs that may be made by appending to an input, with the axis (`graft.partition.growing_caches`)."""
    typical: Mapping[str, int] = field(default_factory=dict)
    """By symbol of the model: the number, within its range, that `Backend.cost` and shares of work count with."""

    def nodes(self) -> tuple[NodeView, ...]:
        """Return the nodes of the body in execution order; a composite is one node."""
        return tuple(NodeView(node) for node in self.function)

    def composite(self, node: NodeView) -> tuple[str, ir.Function] | None:
        """Return (composite name such as ``onednn.conv_relu``, body) if the node calls a composite, else None."""
        if node.domain != COMPOSITE_DOMAIN:
            return None
        body = self.composites[node.op_type]
        return body.metadata_props["Composite"], body

    def operands(self, node: NodeView) -> tuple[Operand, ...]:
        """Return a node's operands: a composite's in the order of its pattern, with their names, else the inputs.

        Operands of a composite that its pattern writes apart stay apart, even if they are one value.
        """
        values = iter(None if value is None else ValueView(value) for value in node.node.inputs)
        found = self.composite(node)
        text = None if found is None else found[1].metadata_props.get(OPERANDS)
        if text is None:
            return tuple(Operand(value) for value in values)
        return tuple(
            Operand(None if row.get("absent") else next(values), tuple(row["names"])) for row in json.loads(text)
        )

    def opened(self, node: NodeView) -> tuple[NodeView, ...]:
        """Return the nodes that a node of the body stands for: those of a composite, else the node itself."""
        found = self.composite(node)
        return (node,) if found is None else tuple(NodeView(inner) for inner in found[1])

    def constant(self, name: str) -> np.ndarray:
        """Return the contents of the constant input ``name``."""
        return self.constants[name].numpy()


@dataclass(frozen=True, slots=True)
class RegionCall:
    """A region where a partitioned model calls it."""

    call: ir.Node
    functions: Functions
    """The model's."""
    caches: Mapping[str, int]
    typical: Mapping[str, int]

    def region(self) -> Region:
        """Return the region, a fresh clone."""
        body = self._function(self.call).clone()
        return self._described(body, {one: inner.clone() for one, inner in self._composites(body).items()})

    @contextmanager
    def as_it_stands(self) -> Iterator[Region]:
        """Give the region with the functions of the model, to look at and not to keep or change."""
        body = self._function(self.call)
        composites = self._composites(body)
        ends = [value for one in (body, *composites.values()) for value in (*one.inputs, *one.outputs)]
        before = [(value, value.type, value.shape, value.const_value) for value in ends]
        try:
            yield self._described(body, composites)
        finally:
            for value, kind, shape, tensor in before:
                value.type, value.shape, value.const_value = kind, shape, tensor

    def _function(self, call: ir.Node) -> ir.Function:
        function = self.functions.get(call.op_identifier())
        if function is None:
            raise ModelError(
                f"{NodeView(call).where} calls function '{call.domain}.{call.op_type}', which the model does not have",
                node=call.name,
            )
        return function

    def _composites(self, body: ir.Function) -> dict[str, ir.Function]:
        return {node.op_type: self._function(node) for node in body if node.domain == COMPOSITE_DOMAIN}

    def _described(self, function: ir.Function, bodies: dict[str, ir.Function]) -> Region:
        """Return the region, its functions with the types and constants of their arguments."""
        constants: dict[str, ir.TensorProtocol] = {}
        inputs: list[ValueView] = []
        for value, argument in zip(function.inputs, self.call.inputs, strict=True):
            assert argument is not None, f"region '{function.name}': input '{value.name}' is absent"
            _type_like(value, argument)
            tensor = None if argument.is_graph_input() else constant_tensor(argument)
            if tensor is None:
                inputs.append(ValueView(value))
            else:
                value.const_value = tensor
                constants[value.name or ""] = tensor
        for value, result in zip(function.outputs, self.call.outputs, strict=True):
            _type_like(value, result)
        origin: list[str] = []
        for node in function:
            if node.domain == COMPOSITE_DOMAIN:
                body = bodies[node.op_type]
                _tell(body, node)
                origin.extend(NodeView(inner).name for inner in body)
            else:
                origin.append(NodeView(node).name)
        return Region(
            name=function.metadata_props["global_symbol"],
            backend=function.metadata_props["Compiler"],
            function=function,
            composites=bodies,
            inputs=tuple(inputs),
            outputs=tuple(ValueView(value) for value in function.outputs),
            constants=constants,
            origin=tuple(origin),
            caches=self.caches,
            typical=self.typical,
        )


def regions(model: ir.Model) -> tuple[Region, ...]:
    """Return the regions of a partitioned model in order of execution, those of control-flow bodies in place.

    Every region is a fresh clone: a backend may change it. Raises ModelError if a call has no function.
    """
    return tuple(one.region() for one in region_calls(model, typical_numbers(model)))


def region_calls(model: ir.Model, typical: Mapping[str, int]) -> tuple[RegionCall, ...]:
    """Return the calls of regions as `regions` does; ``typical`` numbers of the model's symbols."""
    calls = tuple(_calls_of(model.graph))
    caches = caches_of_regions(model)
    return tuple(RegionCall(call, model.functions, caches.get(call, {}), typical) for call in calls)


def _calls_of(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        if node.domain == REGION_DOMAIN:
            yield node
        elif node.attributes:
            for body in bodies_of(node):
                yield from _calls_of(body)


def _tell(body: ir.Function, call: ir.Node) -> None:
    """Tell a composite's body the types and constants of its arguments."""
    for value, argument in zip(body.inputs, call.inputs, strict=True):
        assert argument is not None, f"composite '{body.name}': input '{value.name}' is absent"
        _type_like(value, argument)
        value.const_value = constant_tensor(argument)
    for value, result in zip(body.outputs, call.outputs, strict=True):
        _type_like(value, result)


def _type_like(value: ir.Value, other: ir.Value) -> None:
    """Give a value the type and shape of another one where it has none."""
    if value.type is None:
        value.type = other.type
    if value.shape is None and other.shape is not None:
        value.shape = other.shape.copy()
    if other.const_value is not None:
        if value.type is None:
            value.type = ir.TensorType(other.const_value.dtype)
        if value.shape is None:
            value.shape = ir.Shape(other.const_value.shape.numpy())
