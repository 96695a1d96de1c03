"""The models of the suite with symbolic batch and length, or height and width, as exporters would have written them.

They were exported at one shape, so numbers of it stand inside: in the targets of Reshape and Expand, as positions,
masks and rotations of one length, as indices of every element of a batch. `with_symbols` puts in their place what
computes them from the inputs; the length may be any up to that of the export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.importer.upgrade import OPSET
from graft.core.operators.definition.table import Trait
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.rewriting.node_rewrite import has_trait
from graft.testkit.models.net import Operators

BATCH, LENGTH, HEIGHT, WIDTH = "batch", "length", "height", "width"
IMAGES = ("light_resnet50", "mobilenet_v2", "convnext_tiny")
"""The models that take images of any size: nothing in them but their pools knows one."""


@dataclass(frozen=True)
class Axes:
    """Where a model has a length: axes of its inputs, that of the export, and the axes of constants cut to it."""

    inputs: Mapping[str, int] = field(default_factory=dict)
    longest: int = 0
    constants: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


AXES = {
    "bert_base": Axes(
        {"input_ids": 1, "attention_mask": 1, "token_type_ids": 1}, 128, {"slice_1": (1,)}
    ),
    "distilbert": Axes({"input_ids": 1, "attention_mask": 1}, 128, {"slice_1": (1,)}),
    "gpt2": Axes({"input_ids": 1}, 64, {"unsqueeze": (1,), "where": (2, 3)}),
    "llama": Axes(
        {"input_ids": 1}, 64, {"unsqueeze_14": (2,), "unsqueeze_15": (2,), "where": (2, 3)}
    ),
    "llama_opset23": Axes(
        {"input_ids": 1}, 64, {"unsqueeze_14": (2,), "unsqueeze_15": (2,), "expand_1": (2, 3)}
    ),
    "lstm": Axes({"tokens": 1}, 32),
}  # fmt: skip
"""By model; every other has a symbolic batch alone."""


def with_symbols(name: str, source: ir.Model, *, images: bool = False) -> onnx.ModelProto:
    """Return a model of the suite (whole or reduced) whose batch, and length where it has one, are symbols.

    With ``images`` the height and width of its images are symbols, too.
    """
    model = source.clone()
    _Generalizer(model, AXES.get(name, Axes())).run()
    if images:
        _free_sizes(model.graph)
    EliminateDeadCode().run(model)
    proto = ir.to_proto(model)
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return proto


def dims(name: str) -> dict[str, tuple[int, int]]:
    """Return the ranges that a model's symbols are declared with."""
    longest = AXES.get(name, Axes()).longest
    return {LENGTH: (1, longest)} if longest else {}


def _free_sizes(graph: ir.Graph) -> None:
    """Let images have any height and width; a pool over all of an image is one in name, too."""
    image = next(value for value in graph.inputs if value.name not in graph.initializers)
    for node in graph:
        if node.op_type == "AveragePool" and _shape(node.outputs[0])[2:] == (1, 1):
            node.op_type = "GlobalAveragePool"
            node.attributes.clear()
    assert image.shape is not None, f"'{image.name}' has a shape"
    image.shape = ir.Shape([BATCH, image.shape[1], HEIGHT, WIDTH])


class _Generalizer(Operators):
    """What is done to one model; shapes of values are those of the export throughout."""

    def __init__(self, model: ir.Model, axes: Axes) -> None:
        self.graph, self.axes = model.graph, axes
        self.inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
        self.varying = set(self.inputs)
        self.made = 0
        self.new: list[ir.Node] = []
        self.extents: dict[str, ir.Value] = {}

    def run(self) -> None:
        values = ir.convenience.create_value_mapping(self.graph)
        self.extents[BATCH] = self._extent(self.inputs[0], 0)
        if self.axes.inputs:
            name, axis = next(iter(self.axes.inputs.items()))
            self.extents[LENGTH] = self._extent(values[name], axis)
        for name, cut in self.axes.constants.items():
            self._cut(values[name], cut)
        for node in tuple(self.graph):
            if self.varying.intersection(node.inputs):
                self.varying.update(node.outputs)
            self._generalize(node)
            self.graph.insert_before(node, self.new)
            self.new = []
        for value in self.inputs:
            symbols: list[int | str] = [BATCH, *_shape(value)[1:]]
            if value.name in self.axes.inputs:
                symbols[self.axes.inputs[value.name]] = LENGTH
            value.shape = ir.Shape(symbols)

    def _generalize(self, node: ir.Node) -> None:
        varies = node.inputs[:1] and node.inputs[0] in self.varying
        match node.op_type:
            case "Reshape" if varies:
                self._reshape(node)
            case "Expand":
                self._expand(node, bool(varies))
            case "Gather" | "GatherND" if varies:
                self._gather(node)
            case "And" | "LSTM" | "Where":
                self._constant_operands(node)
            case _ if has_trait(node, Trait.JOINING):
                self._constant_operands(node)

    def _reshape(self, node: ir.Node) -> None:
        """Copy the dimensions in front that stay; of the others, the length or else the first is what is left."""
        given, wanted = _shape(node.inputs[0]), _shape(node.outputs[0])
        same = 0
        while same < min(len(given), len(wanted)) and given[same] == wanted[same]:
            same += 1
        length = self.axes.longest
        if same == 0 and length and given[0] == length and wanted[:2] == (1, length):
            parts = [self.extents[BATCH], self.extents[LENGTH], self._numbers(wanted[2:])]
            target = self.Concat(*parts, axis=0)
        else:
            rest = list(wanted[same:])
            if length in rest or (rest and same == 0):
                rest[rest.index(length) if length in rest else 0] = -1
            target = self._numbers((*(0,) * same, *rest))
        node.replace_input_with(1, target)
        node.attributes.pop("allowzero", None)

    def _expand(self, node: ir.Node, varies: bool) -> None:
        """Repeat what was one, and a mask for every image of the batch."""
        given, wanted = _shape(node.inputs[0]), _shape(node.outputs[0])
        padded = (1,) * (len(wanted) - len(given)) + given
        if varies:
            target = self._numbers([1 if a == b else b for a, b in zip(padded, wanted, strict=True)])
            node.replace_input_with(1, target)
        elif given == wanted and wanted[:1] == (1,):
            node.replace_input_with(1, self._with_batch((), wanted[1:]))

    def _gather(self, node: ir.Node) -> None:
        """Let what gathers every element in order say the shape alone: a strided view, a mask with two more axes."""
        data, indices = node.inputs
        if data is None or indices is None or indices.const_value is None:
            return
        array, wanted = indices.const_value.numpy(), _shape(node.outputs[0])
        if node.op_type == "GatherND":
            if np.array_equal(array.reshape(-1, 2).T, np.indices(_shape(data)).reshape(2, -1)):
                self._replace(node, self.Unsqueeze(data, self._numbers([1, 2])))
        elif array.ndim > 1 and np.array_equal(array.ravel(), np.arange(array.size)):
            self._replace(node, self.Reshape(data, self._numbers((-1, *wanted[1:]))))

    def _constant_operands(self, node: ir.Node) -> None:
        """Widen constants that stand for the whole batch; let those that repeat one element be that one."""
        for position, value in enumerate(node.inputs):
            if value is None or value.const_value is None or value.const_value.size < 2:
                continue
            array = value.const_value.numpy()
            if node.op_type in ("And", "Where") and (array == array.flat[0]).all():
                node.replace_input_with(position, self._constant(array.flat[0].reshape((1,) * array.ndim)))
            elif has_trait(node, Trait.JOINING) and array.ndim == 3 and len(array) == 1:
                target = self._with_batch((), array.shape[1:])
                node.replace_input_with(position, self.Expand(value, target))
            elif node.op_type == "LSTM" and position in (5, 6):
                target = self._with_batch(array.shape[:1], array.shape[2:])
                node.replace_input_with(position, self.Expand(value, target))

    def _cut(self, value: ir.Value, axes: Sequence[int]) -> None:
        uses = tuple(value.uses())
        ends = self.extents[LENGTH]
        if len(axes) > 1:
            ends = self.Concat(*[ends] * len(axes), axis=0)
        cut = self.Slice(value, self._numbers([0] * len(axes)), ends, self._numbers(axes))
        for user, position in uses:
            user.replace_input_with(position, cut)

    def _with_batch(self, front: Sequence[int], rest: Sequence[int]) -> ir.Value:
        parts = [self.extents[BATCH], self._numbers(rest)]
        return self.Concat(*([self._numbers(front)] if front else ()), *parts, axis=0)

    def _extent(self, value: ir.Value, axis: int) -> ir.Value:
        return self.Shape(value, start=axis, end=axis + 1)

    def _numbers(self, numbers: Sequence[int]) -> ir.Value:
        return self._constant(np.array(numbers, np.int64))

    def _constant(self, array: np.ndarray) -> ir.Value:
        self.made += 1
        value = ir.Value(name=f"general_{self.made}", const_value=ir.tensor(array))
        value.shape, value.dtype = ir.Shape(array.shape), value.const_value.dtype  # type: ignore[union-attr]
        self.graph.register_initializer(value)
        return value

    @property
    def opset(self) -> int:
        """That of an imported model."""
        return OPSET

    def call(self, operator: str, *inputs: Any, **settings: Any) -> Any:
        """Add a node before the one that is changed."""
        self.made += 1
        node = ir.node(operator, inputs, settings, name=f"general_{self.made}")
        node.outputs[0].name = f"general_{self.made}_of"
        self.new.append(node)
        if operator != "Shape" and self.varying.intersection(inputs):
            self.varying.update(node.outputs)
        return node.outputs[0]

    def _replace(self, node: ir.Node, value: ir.Value) -> None:
        ir.convenience.replace_all_uses_with(node.outputs[0], value)


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    assert value is not None and value.shape is not None
    return tuple(int(extent) for extent in value.shape)  # type: ignore[call-overload]
