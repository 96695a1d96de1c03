"""Shape inference with expressions: every value gets a shape of extents over the symbols of the model's inputs.

Where onnx's own inference does not know all numbers, the operator's rule (`Operator.shapes`) is asked, which sees the
shapes of the inputs and the contents of small tensors; where there is none, onnx's inference of the single node. An
extent that nobody knows becomes a symbol of its own, ``<value>_<axis>``, which is bound when the value exists. Names
that a model states of its results are not believed: they only name what nothing else is known of.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.affine import expressions as affine
from graft.core.affine.size import is_large
from graft.core.affine.text import parsed, text
from graft.core.graph.dimensions import identifier, keep_late_symbols, keep_ranges, ranges_of, unique
from graft.core.graph.exception_translation import CONTRADICTIONS, REFUSALS, sound
from graft.core.graph.traversal import all_graphs
from graft.core.graph.view import NodeView, ValueView, constant_tensor
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import (
    MOST_CONTENTS,
    Contents,
    ContentsRule,
    Dimension,
    Facts,
    Shape,
    UnknownError,
)
from graft.core.operators.definition.implied_bounds import natural_bounds
from graft.core.operators.definition.table import Operator
from graft.core.types import ONNX_DOMAINS, is_custom
from graft.errors import ModelError
from graft.runtime.extents import Extent, Symbol

MOST_NARROWINGS = 16
"""How often ranges are narrowed before what is left to narrow stays as it is: then a call finds out."""
Stated: TypeAlias = Mapping[str, Sequence["int | str | None"]]
"""Shapes that a model states of its results, by name."""


def infer_symbolic_shapes(
    model: ir.Model, stated: Stated | None = None, doubted: Set[ir.Value] = frozenset()
) -> tuple[bool, bool]:
    """Give every tensor a shape of extents, in place; return whether any changed, and whether one got a new symbol.

    The 0s of ``doubted`` values are what onnx's inference says of them; those of others are known. What operators take
    no more of than so many narrows the ranges that the model notes (`dimensions.ranges_of`).
    """
    stated = dict(stated or {})
    narrowings = 0
    while True:
        inference = SymbolicInference(model, stated, doubted)
        inference.run()
        if inference.narrower and narrowings < MOST_NARROWINGS:
            keep_ranges(model, inference.narrower)
            narrowings += 1
        elif implied := inference.implied():
            stated |= implied
        else:
            return inference.write(), inference.invented


def dimensions_of(value: ir.Value) -> Shape | None:
    """Return the extents of a value's shape; a dimension whose text is no expression is None."""
    if value.shape is None:
        return None
    return tuple(
        one if isinstance(one, int) else None if one.value is None else parsed(one.value) for one in value.shape
    )


@dataclass
class SymbolicInference:
    """One walk through a model; `shapes` and `contents` hold what is known, `write` puts shapes into the model."""

    model: ir.Model
    stated: Stated
    doubted: Set[ir.Value] = frozenset()
    shapes: dict[ir.Value, Shape | None] = field(default_factory=dict)
    contents: dict[ir.Value, Contents | None] = field(default_factory=dict)
    invented: bool = False
    narrower: dict[Extent, affine.Range] = field(default_factory=dict)
    """Extents of which the main graph takes fewer values than their ranges have."""

    def __post_init__(self) -> None:
        self._ranges = dict(ranges_of(self.model))
        self._known_ranges = ChainMap(self.narrower, self._ranges)
        self._taken = _names(self.model)
        self._names: dict[ir.Value, dict[int, Symbol]] = {}

    def run(self) -> None:
        """Walk through the main graph and all bodies."""
        for value in self.model.graph.inputs:
            self.shapes[value] = dimensions_of(value)
        self._graph(self.model.graph)

    def write(self) -> bool:
        """Put all shapes into the model; return whether one changed."""
        changed = False
        for value, shape in self.shapes.items():
            if shape is None or constant_tensor(value) is not None:
                continue
            new = ir.Shape([one if isinstance(one, int) else None if one is None else text(one) for one in shape])
            if value.shape != new:
                value.shape, changed = new, True
        for graph in all_graphs(self.model):
            given, made = self._alone(graph.inputs), self._alone(one for node in graph for one in node.outputs)
            keep_late_symbols(graph, made - given)
        return changed

    def _alone(self, values: Iterable[ir.Value]) -> set[str]:
        """Return the symbols that axes of values are, with nothing beside them."""
        axes = (one for value in values for one in self.shapes.get(value) or ())
        return {one.name for one in axes if isinstance(one, Symbol)}

    def implied(self) -> Stated:
        """Return what numbers stated of the graph's outputs say of results before them, whose extents data decide.

        Only where no input has a symbol: else files state what was true for the inputs that they were traced with.
        """
        if any(map(_is_symbolic, map(self.shape_of, self.model.graph.inputs))):
            return {}
        numbers: dict[Extent, int] = {}
        for value in self.model.graph.outputs:
            hint, shape = self.stated.get(value.name or "", ()), self.shapes.get(value) or ()
            if len(hint) == len(shape):
                pairs = zip(shape, hint, strict=True)
                numbers |= {one: claim for one, claim in pairs if one is not None and isinstance(claim, int)}
        found: dict[str, list[int | str | None]] = {}
        fresh = ((value, *one) for value, axes in self._names.items() for one in axes.items())
        for value, axis, symbol in fresh:
            if symbol in numbers and self.shapes.get(value) is not None:
                shape = self.shapes[value] or ()
                dims = found.setdefault(value.name or "", [one if isinstance(one, int) else None for one in shape])
                dims[axis] = numbers[symbol]
        return {name: dims for name, dims in found.items() if list(self.stated.get(name, ())) != dims}

    # ---- What is known of a value ----

    def shape_of(self, value: ir.Value | None) -> Shape | None:
        """Return the shape of a value."""
        if value is None:
            return None
        if value not in self.shapes:
            tensor = constant_tensor(value)
            self.shapes[value] = dimensions_of(value) if tensor is None else tuple(tensor.shape.numpy())
        return self.shapes[value]

    def contents_of(self, value: ir.Value | None) -> Contents | None:
        """Return the contents of a value, a constant's included, None where they are not whole numbers or too many."""
        if value is None:
            return None
        if value not in self.contents:
            self.contents[value] = constant_contents(value)
        return self.contents[value]

    # ---- The walk ----

    def _graph(self, graph: ir.Graph) -> None:
        for node in graph:
            with sound(NodeView(node)):
                self._node(node)

    def _node(self, node: ir.Node) -> None:
        row = None
        if node.op_type in BODIES and node.domain in ("", "ai.onnx"):
            found = BODIES[node.op_type](self, node)
            facts = None
        else:
            shapes = [self.shape_of(one) for one in node.inputs]
            facts = Facts(NodeView(node), shapes, [self.contents_of(one) for one in node.inputs], self._ranges)
            known = all(map(_is_static, node.outputs)) and not any(map(_is_symbolic, facts.shapes))
            row = OPERATORS.of(facts.view)
            if node.graph is self.model.graph and row is not None and row.bounds is not None:
                self.narrower |= row.bounds(facts, self._known_ranges)
            found = None if known else asked(row, facts)
        reads_symbols = facts is not None and any(map(_is_symbolic, facts.shapes))
        for index, value in enumerate(node.outputs):
            if value.name and isinstance(value.type, ir.TensorType | None):
                said = found[index] if found and index < len(found) else None
                self.shapes[value] = self._settled(value, said, doubtful=reads_symbols and value in self.doubted)
                if node.graph is self.model.graph:
                    self.narrower |= natural_bounds(self.shapes[value], self._known_ranges)
        if facts is not None and row is not None and row.contents is not None:
            self._follow(node, facts, row.contents)

    def _follow(self, node: ir.Node, facts: Facts, rule: ContentsRule) -> None:
        """Note the contents of a node's outputs."""
        known = replace(facts, result=self.shapes.get(node.outputs[0]))
        for number, value in enumerate(node.outputs):
            try:
                one = rule(replace(known, output=number) if number else known)
            except (affine.TooLargeError, ModelError, UnknownError):
                return
            if one is not None and self.shapes.get(value) in (None, one.shape):
                kept = (None if each is None or is_large(each) else each for each in one.elements)
                self.contents[value] = Contents(one.shape, tuple(kept))

    def _settled(self, value: ir.Value, found: Shape | None, *, doubtful: bool) -> Shape | None:
        """Return the shape of a result: what the rule says, what the model has, else symbols of its own.

        onnx (1.23) takes symbols for 0 in some operators, Attention for one: its 0 is ``doubtful`` where one is read.
        """
        before = dimensions_of(value)
        hint = self.stated.get(value.name or "")
        if before is None and found is None:
            if hint is None:
                return None
            found = (None,) * len(hint)
        if found is None or (before is not None and len(found) != len(before)):
            found = before
        assert found is not None
        result: list[Dimension] = []
        for axis, extent in enumerate(found):
            old = None if before is None else before[axis]
            if extent is not None and not is_large(extent):
                extent = affine.narrowed(extent, self._ranges) if self._ranges else extent
            elif extent is not None:
                extent = self._named(value, axis, extent)
            elif old is not None and not (old == 0 and doubtful):
                extent = old
            else:
                claim = hint[axis] if hint is not None and len(hint) == len(found) else None
                extent = claim if isinstance(claim, int) else self.fresh(value, axis, claim)
            if isinstance(extent, int) and not -(2**63) <= extent < 2**63:
                raise OverflowError(f"axis {axis} of '{value.name}' would have {extent} elements")
            result.append(extent)
        return tuple(result)

    def fresh(self, value: ir.Value, axis: int, preferred: str | None = None) -> Symbol:
        """Return the symbol of an axis of which nothing is known; asking again gives the same."""
        own = self._names.setdefault(value, {})
        if axis not in own:
            name = identifier(preferred or f"{value.name}_{axis}")
            if name in self._taken:
                name = identifier(f"{value.name}_{axis}")
            own[axis] = Symbol(unique(name, self._taken))
            self.invented = True
        return own[axis]

    def _named(self, value: ir.Value, axis: int, extent: Extent) -> Symbol:
        """Return the symbol that stands for an extent which is too large to go on with, within its bounds."""
        symbol = self.fresh(value, axis)
        low, high = affine.interval(extent, self._known_ranges)
        before = self._known_ranges.get(symbol, affine.ANY)
        high = high if before.high is None else min(high, before.high)
        known = affine.Range(int(max(low, before.low)), None if math.isinf(high) else int(high))
        if known != before and value.graph is self.model.graph:
            # what reads it comes later in this walk
            self.narrower[symbol] = self._ranges[symbol] = known
        return symbol

    # ---- Bodies ----

    def branches(self, node: ir.Node) -> list[Shape | None]:
        """Return the shapes of the results of an If: what both branches agree on."""
        graphs = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
        for graph in graphs:
            self._graph(graph)
        results: list[Shape | None] = []
        for value, *pair in zip(node.outputs, *(graph.outputs for graph in graphs), strict=True):
            one, other = map(self.shape_of, pair)
            shape = _agreed(one, other)
            if shape is not None and one is not None and other is not None:
                # extents that differ depend on the branch, whatever number the model states of them
                stated = self.stated.get(value.name or "", ())
                stated = stated if len(stated) == len(shape) else (None,) * len(shape)
                names = [name if isinstance(name, str) else None for name in stated]
                shape = tuple(
                    self.fresh(value, axis, name) if extent is None and None not in (left, right) else extent
                    for axis, (extent, name, left, right) in enumerate(zip(shape, names, one, other, strict=True))
                )
            results.append(shape)
        return results

    def loop(self, node: ir.Node) -> list[Shape | None]:
        """Return the shapes of the results of a Loop."""
        body = node.attributes["body"].as_graph()
        for value in body.inputs[:2]:
            self.shapes[value] = ()
        carried = self._carried(body, body.inputs[2:], list(node.inputs[2:]), body.outputs[1:])
        rows = [self._outside(body, self.shape_of(value)) for value in body.outputs[1 + len(carried) :]]
        count = self.contents_of(node.inputs[0])
        trips: Dimension = None
        if count is not None and count.elements[0] is not None and _runs_on(node, body):
            trips = affine.maximum(0, count.elements[0])
        return [*carried, *(None if row is None else (trips, *row) for row in rows)]

    def scan(self, node: ir.Node) -> list[Shape | None]:
        """Return the shapes of the results of a Scan; raise ValueError where it counts more inputs than it has."""
        view, body = NodeView(node), node.attributes["body"].as_graph()
        count = view.attribute("num_scan_inputs")
        states = len(node.inputs) - count
        if not 0 <= states <= len(node.inputs):
            raise ValueError(f"num_scan_inputs is {count}, of {len(node.inputs)} inputs")
        axes = view.attribute("scan_input_axes") or [0] * count
        length: Dimension = None
        for value, inner, axis in zip(node.inputs[states:], body.inputs[states:], axes, strict=True):
            shape = self.shape_of(value)
            if shape is not None:
                place = axis % len(shape)
                length = shape[place] if length is None else length
                self.shapes[inner] = self._known(inner, (*shape[:place], *shape[place + 1 :]))
        carried = self._carried(body, body.inputs[:states], list(node.inputs[:states]), body.outputs)
        places = view.attribute("scan_output_axes") or [0] * (len(body.outputs) - states)
        found: list[Shape | None] = []
        for value, axis in zip(body.outputs[states:], places, strict=True):
            row = self._outside(body, self.shape_of(value))
            place = 0 if row is None else axis % (len(row) + 1)
            found.append(None if row is None else (*row[:place], length, *row[place:]))
        return [*carried, *found]

    def _carried(
        self, body: ir.Graph, inner: Sequence[ir.Value], first: Sequence[ir.Value | None], after: Sequence[ir.Value]
    ) -> list[Shape | None]:
        """Infer a loop's body; what it carries has the extents that it begins with, as long as a step keeps them."""
        kept = [self.shape_of(value) for value in first]
        for _ in range(1 + sum(len(shape) for shape in kept if shape is not None)):
            for value, shape in zip(inner, kept, strict=True):
                self.shapes[value] = self._known(value, shape)
            self._graph(body)
            agreed = [
                _agreed(shape, self.shape_of(value)) for shape, value in zip(kept, after[: len(inner)], strict=True)
            ]
            if agreed == kept:
                break
            kept = agreed
        return [self._outside(body, shape) for shape in kept]

    def _known(self, value: ir.Value, shape: Shape | None) -> Shape | None:
        """Return the shape of a body's input: what is carried into it; symbols of its own where that changes."""
        if shape is None:
            return dimensions_of(value) if _is_static(value) else None
        return tuple(self.fresh(value, axis) if one is None else one for axis, one in enumerate(shape))

    def _outside(self, body: ir.Graph, shape: Shape | None) -> Shape | None:
        """Return a shape without the extents that only a body's own symbols say."""
        if shape is None:
            return None
        if not affine.names_in(shape):
            return shape
        own = self._own_symbols(body)
        return tuple(None if one is not None and affine.names_in([one]) & own else one for one in shape)

    def _own_symbols(self, body: ir.Graph) -> set[str]:
        """Return the symbols that this inference, or an earlier one, gave to axes of a body's values."""
        found: set[str] = set()
        for value in (*body.inputs, *(value for node in body for value in node.outputs)):
            found |= {symbol.name for symbol in self._names.get(value, {}).values()}
            for axis, one in enumerate(dimensions_of(value) or ()):
                if isinstance(one, Symbol) and one.name.startswith(identifier(f"{value.name}_{axis}")):
                    found.add(one.name)
        return found


BODIES: Mapping[str, Any] = {
    "If": SymbolicInference.branches,
    "Loop": SymbolicInference.loop,
    "Scan": SymbolicInference.scan,
}


def asked(row: Operator | None, facts: Facts) -> Sequence[Shape | None] | None:
    """Return what the operator's rule says, else what onnx's inference says of the node by itself."""
    try:
        if row is not None and row.shapes is not None:
            return row.shapes(facts)
        return _by_onnx(facts) if facts.view.domain in ONNX_DOMAINS else None
    except (affine.TooLargeError, UnknownError):
        return None


def _by_onnx(facts: Facts) -> Sequence[Shape | None] | None:
    node, graph = facts.view.node, facts.view.node.graph
    version = (graph.opset_imports.get("") if graph is not None else None) or onnx.defs.onnx_opset_version()
    if not onnx.defs.has(node.op_type, version):
        return None
    return by_schema(facts, onnx.defs.get_schema(node.op_type, version), version)


def by_schema(facts: Facts, schema: onnx.defs.OpSchema, version: int) -> Sequence[Shape | None] | None:
    """Return what a schema of an operator set's version infers of a node by itself, None where it refuses."""
    node = facts.view.node
    proto = ir.to_proto(node)
    proto.domain = schema.domain
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value, shape in zip(node.inputs, facts.shapes, strict=True):
        if value is None or value.dtype is None or value.name is None:
            continue
        extents = (
            None
            if shape is None
            else [None if one is None else one if isinstance(one, int) else text(one) for one in shape]
        )
        kind = ir.DataType.FLOAT if is_custom(ValueView(value).dtype) else value.dtype
        types[value.name] = onnx.helper.make_tensor_type_proto(int(kind), extents)
        tensor = constant_tensor(value)
        if tensor is not None and tensor.size <= MOST_CONTENTS:
            data[value.name] = ir.to_proto(tensor)
    try:
        opsets = [onnx.helper.make_opsetid(schema.domain, version)]
        found = onnx.shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=opsets)
    except (*REFUSALS, *CONTRADICTIONS):
        return None
    return [_of_type(found.get(value.name or "")) for value in node.outputs]


def _of_type(kind: onnx.TypeProto | None) -> Shape | None:
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(
        one.dim_value if one.HasField("dim_value") else parsed(one.dim_param) if one.dim_param else None
        for one in kind.tensor_type.shape.dim
    )


def constant_contents(value: ir.Value) -> Contents | None:
    """Return the elements of a constant, None where it is none, has too many, or one that is no whole number."""
    tensor = constant_tensor(value)
    if tensor is None or tensor.size > MOST_CONTENTS or tensor.dtype in (ir.DataType.STRING, ir.DataType.UNDEFINED):
        return None
    array = tensor.numpy()
    if array.dtype.kind not in "iubf" or not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        return None
    return Contents(array.shape, tuple(int(one) for one in array.reshape(-1)))


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()


def _is_symbolic(shape: Shape | None) -> bool:
    return shape is None or not all(isinstance(one, int) for one in shape)


def _agreed(one: Shape | None, other: Shape | None) -> Shape | None:
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(left if left == right else None for left, right in zip(one, other, strict=True))


def _runs_on(node: ir.Node, body: ir.Graph) -> bool:
    """Whether a Loop has no condition that could end it before its trip count."""
    given = constant_tensor(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if len(node.inputs) > 1 and node.inputs[1] is not None and (given is None or not given.numpy().all()):
        return False
    condition = body.outputs[0]
    while (producer := condition.producer()) is not None and producer.op_type == "Identity":
        source = producer.inputs[0]
        if source is None:
            return False
        condition = source
    if condition is body.inputs[1]:
        return True
    known = constant_tensor(condition)
    return known is not None and bool(known.numpy().all())


def _names(model: ir.Model) -> set[str]:
    """Return the names of all symbols in a model's shapes."""
    found: set[str] = set()
    for graph in all_graphs(model):
        values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
        for value in values:
            found |= affine.names_in(dimensions_of(value) or ())
    return found
