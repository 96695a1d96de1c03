"""One name for extents that must be equal: what a node of the main graph demands of a symbol of the inputs.

All nodes that results need run, so an equation ``symbol == extent`` of theirs holds in every call that answers. The
symbol is replaced, and the inputs that had it are checked against what it must be, as every dimension is; the message
is the equation's. Bodies may not run, and results that data decide are measured when they exist: both stay equations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from graft.core.affine import expressions as affine
from graft.core.affine.text import parsed, text
from graft.core.graph.dimensions import ranges_of, replace_ranges
from graft.core.graph.notes import noted
from graft.core.graph.view import NodeView
from graft.core.shapes.equations import asked_of
from graft.core.shapes.symbolic_shapes import dimensions_of, infer_symbolic_shapes
from graft.errors import ModelError
from graft.runtime.extents import Extent, Symbol
from graft.runtime.procedure import AxisReason

REASONS = "graft.equal-axes"
"""The key of a graph's metadata for why axes of its inputs have the extents of others."""
ALIASES = "graft.equal-dimensions"
"""The key of a model's metadata for what symbols of its file were replaced by."""
MOST_ROUNDS = 16


def unify(model: ir.Model) -> bool:
    """Replace symbols of a model's inputs that nodes demand to be others, in place; return whether there were any."""
    changed = False
    for _ in range(MOST_ROUNDS):
        found = _solved(model)
        if not found:
            break
        _replace(model, found)
        changed = True
        infer_symbolic_shapes(model)
    return changed


def reasons_of(graph: ir.Graph) -> list[tuple[str, AxisReason]]:
    """Return, with the names of the inputs, why axes have the extents that they have."""
    rows = noted(graph.metadata_props, REASONS, _are_reasons) or []
    return [(name, AxisReason(-1, axis, (says[0], says[1], says[2]))) for name, axis, *says in rows]


def aliases_of(facts: Iterable[onnx.StringStringEntryProto] | Mapping[str, str]) -> Mapping[str, str]:
    """Return, of a model's metadata, by symbol that was replaced the text of what it is now."""
    known = facts if isinstance(facts, Mapping) else {one.key: one.value for one in facts}
    found: dict[str, str] | None = noted(known, ALIASES, _are_texts)
    return found or {}


def _are_texts(found: object) -> bool:
    """Whether data are texts by names."""
    return isinstance(found, dict) and all(isinstance(one, str) for one in found.values())


def _are_reasons(found: object) -> bool:
    """Whether data are rows of an input, an axis and the texts of an `AxisReason`."""
    return isinstance(found, list) and all(
        isinstance(one, list) and [type(part) for part in one] == [str, int, str, str, str] for one in found
    )


@dataclass(frozen=True, slots=True)
class _Solution:
    """What a symbol is, and the equation that says so, with the symbol on the left."""

    extent: Extent
    says: tuple[str, str, str]


def _solved(model: ir.Model) -> dict[str, _Solution]:
    """Return symbols that equations give, none of which another solution has."""
    place = _places(model.graph)
    if len(place) < 2:
        return {}
    order = {name: number for number, name in enumerate(place)}
    ranges = ranges_of(model)
    found: dict[str, _Solution] = {}
    held: set[str] = set()
    for node in _live(model.graph):
        for asked in asked_of(NodeView(node), ranges):
            if asked.equation.kind != "equal":
                continue
            for one, other, is_swapped in ((asked.left, asked.right, False), (asked.right, asked.left, True)):
                names = affine.names_in([other])
                is_free = isinstance(one, Symbol) and not any(one.name in taken for taken in (held, names, found))
                if not is_free or not names or names & found.keys() or not names <= order.keys():
                    continue
                assert isinstance(one, Symbol)
                if one.name in order and max(map(order.__getitem__, names)) < order[one.name]:
                    found[one.name] = _Solution(other, asked.says(swapped=is_swapped))
                    held |= names
                    break
    return found


def _places(graph: ir.Graph) -> dict[str, tuple[str, int]]:
    """Return the input and axis that bind each symbol, in their order."""
    found: dict[str, tuple[str, int]] = {}
    for value in graph.inputs:
        for axis, extent in enumerate(dimensions_of(value) or ()):
            if isinstance(extent, Symbol):
                found.setdefault(extent.name, (value.name or "", axis))
    return found


def _live(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes that the outputs of a graph need, in order."""
    needed: set[ir.Node] = set()
    waiting = [producer for value in graph.outputs if (producer := value.producer()) is not None]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            read = [*node.inputs, *_captured(node)]
            waiting += [maker for value in read if value is not None and (maker := value.producer()) is not None]
    yield from (node for node in graph if node in needed)


def _captured(node: ir.Node) -> Iterator[ir.Value]:
    """Yield all values that the bodies of a node read."""
    for attribute in node.attributes.values():
        graphs = (
            [attribute.as_graph()]
            if attribute.type == ir.AttributeType.GRAPH
            else attribute.as_graphs()
            if attribute.type == ir.AttributeType.GRAPHS
            else []
        )
        for graph in graphs:
            yield from graph.outputs
            for inner in graph:
                yield from (value for value in inner.inputs if value is not None)
                yield from _captured(inner)


def _replace(model: ir.Model, found: Mapping[str, _Solution]) -> None:
    """Put solutions into all shapes and ranges, and note them."""
    values = {name: one.extent for name, one in found.items()}
    place = _places(model.graph)
    rows = noted(model.graph.metadata_props, REASONS, _are_reasons) or []
    rows += [[*place[name], *one.says] for name, one in found.items()]
    model.graph.metadata_props[REASONS] = json.dumps(rows)
    before = {name: parsed(one) for name, one in aliases_of(model.metadata_props).items()}
    known = {name: affine.substituted(extent, values) for name, extent in before.items() if extent is not None} | values
    model.metadata_props[ALIASES] = json.dumps({name: text(extent) for name, extent in known.items()})
    replace_ranges(model, _met(ranges_of(model), values))
    for graph in model.graphs():
        for value in (*graph.inputs, *(one for node in graph for one in node.outputs)):
            shape = dimensions_of(value)
            if shape is not None and affine.names_in(shape) & values.keys():
                value.shape = ir.Shape([_written(extent, values) for extent in shape])


def _written(extent: Extent | None, values: Mapping[str, Extent]) -> int | str | None:
    if extent is None:
        return None
    new = affine.substituted(extent, values)
    return new if isinstance(new, int) else text(new)


def _met(ranges: affine.Ranges, values: Mapping[str, Extent]) -> affine.Ranges:
    """Return ranges with symbols replaced; those of what is one extent now are met."""
    found: dict[Extent, affine.Range] = {}
    for extent, own in ranges.items():
        new = affine.substituted(extent, values)
        if isinstance(new, int):
            continue
        other = found.get(new, affine.ANY)
        highs = [one.high for one in (own, other) if one.high is not None]
        met = affine.Range(max(own.low, other.low), min(highs) if highs else None)
        if met.high is not None and met.high < met.low:
            raise ModelError(
                f"dimension '{extent}' is {own}, and the model demands that it is '{new}', which is {other}; give them "
                "ranges with numbers in common"
            )
        found[new] = met
    return found
