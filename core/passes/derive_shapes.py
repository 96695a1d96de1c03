"""Arithmetic of shapes is written over the shapes of the model's inputs, where it costs no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.affine.expressions import is_at_least, names_in
from graft.core.graph.traversal import all_graphs, all_nodes
from graft.core.graph.view import COPIES_ZERO, NodeView, constant_tensor
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import Contents, Shape
from graft.core.operators.definition.phrases import Phrases
from graft.core.operators.definition.table import Trait
from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names
from graft.core.shapes.shape_arithmetic import WHOLE_NUMBERS, shape_arithmetic
from graft.core.shapes.symbolic_shapes import BODIES, SymbolicInference, dimensions_of
from graft.runtime.extents import Extent, ExtentOperator, Operation, Symbol

WRITTEN_AS: Mapping[ExtentOperator, str] = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "floordiv": "Div", "min": "Min", "max": "Max",
}  # fmt: skip
"""What computes an operation of extents; Div rounds towards 0, which is down where nothing is negative."""


@dataclass(frozen=True)
class DeriveShapes:
    """Compute what is known of small integer tensors from the shapes of inputs, or write it down.

    1. elements that are all numbers, whatever the shapes of inputs: a constant
    2. elements that are extents over the symbols of inputs: Shape of the inputs, sums and products, joined,
       before all other nodes, the same for all that are alike
    3. the target of a Reshape that is no constant is the shape of its result, which may have an extent of 0;
       that this copied another extent of the input is remembered, for what the Reshape demands

    What computed them before becomes dead code, and no longer waits for the tensors whose shapes it took.
    """

    name: ClassVar[str] = "derive-shapes"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        places = entry_places(model.graph)
        if not places or not any(map(_has_something, all_nodes(model.graph))):
            return False
        inference = SymbolicInference(model, {})
        inference.run()
        derived = shape_arithmetic(model.graph)
        inferred = {node: _inferred(inference.contents.get(target)) for node, target in _reshapes(model)}
        writer: _Writer | None = None
        changed = False
        for graph in list(all_graphs(model)):
            for value in [value for node in graph for value in node.outputs]:
                contents = inference.contents.get(value)
                if value in derived or contents is None or not _is_wanted(value, inference.contents, places):
                    continue
                writer = writer or _Writer(model, places, Names(model))
                ir.convenience.replace_all_uses_with(value, writer.value(graph, value, contents))
                changed = True
        for node in all_nodes(model.graph):
            target = _target(node, inference.shapes, places)
            if target is not None:
                writer = writer or _Writer(model, places, Names(model))
                node.replace_input_with(1, writer.extents(node.outputs[0].name or "", (len(target),), target))
                node.attributes["allowzero"] = ir.AttrInt64("allowzero", 1)
                node.metadata_props[COPIES_ZERO] = inferred.get(node, "")
                changed = True
        return changed


def _reshapes(model: ir.Model) -> list[tuple[ir.Node, ir.Value]]:
    nodes = (node for node in all_nodes(model.graph) if rewrite.is_operator(node, "Reshape"))
    return [(node, target) for node in nodes if (target := node.inputs[1]) is not None]


def _inferred(target: Contents | None) -> str:
    """Return the place of the -1 of a Reshape's target, "" where there is none."""
    return "".join(str(place) for place, one in enumerate(target.elements if target else ()) if one == -1)


def _has_something(node: ir.Node) -> bool:
    """Whether the contents of a node's results may begin to be known there, or a Reshape waits for its target."""
    if rewrite.has_trait(node, Trait.SHAPE_ONLY) or rewrite.is_operator(node, *BODIES):
        return True
    if rewrite.is_operator(node, "Reshape") and rewrite.constant_of(node.inputs[1]) is None:
        return True
    row = OPERATORS.of(NodeView(node))
    return (
        row is not None
        and row.contents is not None
        and all(value is None or constant_tensor(value) is not None for value in node.inputs)
    )


def entry_places(graph: ir.Graph) -> dict[str, tuple[ir.Value, int]]:
    """Return the axis of an input that binds each symbol: the first whose extent is the symbol alone."""
    places: dict[str, tuple[ir.Value, int]] = {}
    for value in graph.inputs:
        for axis, extent in enumerate(dimensions_of(value) or ()):
            if isinstance(extent, Symbol) and constant_tensor(value) is None:
                places.setdefault(extent.name, (value, axis))
    return places


def _target(
    node: ir.Node, shapes: Mapping[ir.Value, Shape | None], places: Mapping[str, tuple[ir.Value, int]]
) -> tuple[Extent, ...] | None:
    """Return the extents to give a Reshape as its target (case 3), None where it has one that says the same."""
    if (
        not rewrite.is_operator(node, "Reshape")
        or rewrite.constant_of(node.inputs[1]) is not None
        or rewrite.attribute_of(node, "allowzero", 0)
    ):
        return None
    shape = shapes.get(node.outputs[0]) or ()
    known = tuple(extent for extent in shape if extent is not None)
    writable = names_in(known) <= places.keys() and all(map(_is_writable, known))
    return known if known and len(known) == len(shape) and writable else None


def _is_wanted(
    value: ir.Value, contents: Mapping[ir.Value, Contents | None], places: Mapping[str, tuple[ir.Value, int]]
) -> bool:
    """Whether a value can be derived, and is read by something that cannot."""
    return (
        not value.is_graph_output()
        and _is_derivable(value, contents.get(value), places)
        and any(
            not all(_is_derivable(output, contents.get(output), places) for output in use.node.outputs)
            for use in value.uses()
        )
    )


def _is_derivable(value: ir.Value, contents: Contents | None, places: Mapping[str, tuple[ir.Value, int]]) -> bool:
    known = None if contents is None else contents.known
    if contents is None or known is None or value.dtype is None:
        return False
    if all(isinstance(one, int) for one in known):
        return True
    plain = value.dtype in WHOLE_NUMBERS and len(contents.shape) < 2
    return plain and names_in(known) <= places.keys() and all(map(_is_writable, known))


def _is_writable(extent: Extent) -> bool:
    """Whether the operators of ONNX compute an extent as it is meant."""
    if not isinstance(extent, Operation):
        return True
    if extent.operator == "floordiv" and not (is_at_least(extent.left, 0) and is_at_least(extent.right, 0)):
        return False
    return extent.operator in WRITTEN_AS and _is_writable(extent.left) and _is_writable(extent.right)


@dataclass
class _Writer(Phrases[ir.Value]):
    """Writes extents as nodes at the beginning of the main graph, each once."""

    model: ir.Model
    places: Mapping[str, tuple[ir.Value, int]]
    names: Names
    vectors: dict[Extent, ir.Value] = field(default_factory=dict)
    """Tensors of one element by extent."""
    written: dict[tuple[tuple[int, ...], tuple[Extent, ...], ir.DataType], ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._first = next(iter(self.model.graph))

    def value(self, graph: ir.Graph, old: ir.Value, contents: Contents) -> ir.Value:
        """Return what takes the place of a value with these elements."""
        known, dtype, node = contents.known, old.dtype, old.producer()
        assert known is not None and dtype is not None and node is not None, old
        if all(isinstance(one, int) for one in known):
            array = np.array(known, dtype.numpy()).reshape(contents.shape)
            constant = rewrite.add_constant(graph, self.names.fresh(f"{old.name}_known"), array)
            constant.metadata_props.update(rewrite.origin_of(node))
            return constant
        return self.extents(old.name or "", contents.shape, known, dtype)

    def extents(
        self, name: str, shape: tuple[int, ...], known: tuple[Extent, ...], dtype: ir.DataType = ir.DataType.INT64
    ) -> ir.Value:
        """Return a tensor whose elements are these extents."""
        key = (shape, known, dtype)
        if key not in self.written:
            self.written[key] = self._tensor(name, shape, known, dtype)
        return self.written[key]

    def _tensor(self, name: str, shape: tuple[int, ...], known: tuple[Extent, ...], dtype: ir.DataType) -> ir.Value:
        parts = [self._vector(one) for one in known]
        result = parts[0]
        if len(parts) > 1:
            result = self.concatenated(*parts, axis=0, count=len(parts), name=f"{name}_shape")
        if not shape:
            result = self("Squeeze", result, self.ints(0), count=None, name=f"{name}_extent")
        if dtype is not ir.DataType.INT64:
            count = len(parts) if shape else None
            result = self("Cast", result, count=count, name=f"{name}_int32", to=int(dtype))
            result.type = ir.TensorType(dtype)
        return result

    def _vector(self, extent: Extent) -> ir.Value:
        if extent in self.vectors:
            return self.vectors[extent]
        match extent:
            case int():
                result = self.ints(extent)
            case Symbol(name):
                source, axis = self.places[name]
                result = self("Shape", source, name=f"extent_{name}", start=axis, end=axis + 1)
            case Operation(operator, left, right):
                result = self(WRITTEN_AS[operator], self._vector(left), self._vector(right))
        self.vectors[extent] = result
        return result

    def ints(self, *values: int) -> ir.Value:
        """Return a constant vector of int64."""
        return rewrite.add_constant(self.model.graph, self.names.fresh("extent"), np.array(values, np.int64))

    def __call__(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        count: int | None = 1,
        name: str = "extent",
        **attributes: Any,
    ) -> ir.Value:
        """Add a node that gives ``count`` elements, None for a scalar."""
        name = self.names.fresh(name)
        node = ir.node(op_type, inputs, attributes=attributes, name=name)
        node.outputs[0].name = name
        node.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        node.outputs[0].shape = ir.Shape([] if count is None else [count])
        self.model.graph.insert_before(self._first, node)
        return node.outputs[0]
