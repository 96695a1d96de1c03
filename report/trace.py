"""A partitioned model read as one flat graph: who computes each value, and who reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView, constant_tensor
from graft.partition.costs import value_bytes
from graft.partition.graph import bodies, is_call, is_constant_node
from graft.report.facts import Tensor

LONGEST_ATTRIBUTE = 120


@dataclass(slots=True)
class Step:
    """One operator of the model, composites and regions opened, with the values that it reads and computes."""

    view: NodeView
    region: str
    reads: list[ir.Value] = field(default_factory=list)
    writes: list[ir.Value] = field(default_factory=list)


@dataclass(slots=True)
class Trace:
    """The operators of a partitioned model in order, control flow before what its bodies hold."""

    model: ir.Model
    steps: list[Step] = field(default_factory=list)
    producer: dict[ir.Value, int] = field(default_factory=dict)
    inputs: dict[ir.Value, None] = field(default_factory=dict)
    outputs: dict[ir.Value, None] = field(default_factory=dict)
    _same: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self._walk(graph, "")
        self.inputs = dict.fromkeys(value for value in graph.inputs if value.const_value is None)
        self.outputs = dict.fromkeys(self.root(value) for value in graph.outputs)

    def root(self, value: ir.Value) -> ir.Value:
        """Return the value that a function's parameter, or a call's result, stands for."""
        return self._same.get(value, value)

    def _walk(self, nodes: Iterable[ir.Node], region: str) -> None:
        for node in nodes:
            if is_constant_node(node):
                continue
            if is_call(node) and node.op_identifier() in self.model.functions:
                self._call(node, region)
            else:
                self._step(node, region)

    def _call(self, node: ir.Node, region: str) -> None:
        function = self.model.functions[node.op_identifier()]
        for parameter, value in zip(function.inputs, node.inputs, strict=True):
            if value is not None:
                self._same[parameter] = self.root(value)
        self._walk(function, region or function.metadata_props.get("global_symbol", ""))
        for result, value in zip(node.outputs, function.outputs, strict=True):
            self._same[result] = self.root(value)

    def _step(self, node: ir.Node, region: str) -> None:
        number, step = len(self.steps), Step(NodeView(node), region)
        self.steps.append(step)
        step.reads = [self.root(value) for value in node.inputs if value is not None]
        step.writes = [value for value in node.outputs if value.name]
        for _, body in bodies(node):
            self._walk(body, region)
            step.reads += [self.root(value) for value in body.outputs if value is not None]
        self.producer.update((value, number) for value in step.writes)


def tensor_of(value: ir.Value) -> Tensor:
    """Return what a report says of a value."""
    view = ValueView(value)
    constant = constant_tensor(value)
    shape = view.shape
    if shape is None and constant is not None:
        shape = tuple(constant.shape.numpy())
    known = (
        constant.nbytes if constant is not None else value_bytes(value, {}) if view.static_shape is not None else None
    )
    return Tensor(view.name, view.dtype, shape, known)


def attributes_of(node: ir.Node) -> Mapping[str, str]:
    """Return the attributes of a node as text, by name; graphs and large ones are only described."""
    result: dict[str, str] = {}
    for name in sorted(node.attributes):
        attribute = node.attributes[name]
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            text = "graph"
        elif attribute.type == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            text = f"{tensor.dtype.name.lower()} tensor {tuple(tensor.shape.numpy())}"
        else:
            value = attribute.value
            text = str(list(value)) if isinstance(value, tuple) else str(value)
        result[name] = text if len(text) <= LONGEST_ATTRIBUTE else f"{text[:LONGEST_ATTRIBUTE]}…"
    return result
