"""The step that asks every node's row for its demands, and decides them as far as symbols allow.

What holds for all values of the symbols is dropped, what holds for none is an error, and the rest is left to be
checked when a program is called: once for each pair of extents, whoever demands it first. That is kept in the metadata
of the graph whose nodes demand it, and goes with it through partitioning and files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.affine.equations import Equation
from graft.core.affine.expressions import Ranges, TooLargeError, multiply, substituted
from graft.core.affine.text import parsed, text
from graft.core.graph.dimensions import ranges_of
from graft.core.graph.exception_translation import sound
from graft.core.graph.view import NodeView, constant_tensor, likeness
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.demands import place_of
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.errors import ModelError
from graft.runtime.extents import Extent, ExtentEquation, Symbol, symbols_of

EQUATIONS = "graft.equations"
"""The key of a graph's metadata."""
_COUNT = "the number of elements"
_SAYS = {
    "equal": "they must be equal",
    "broadcast": "they must be equal, or one of them 1",
    "expand": "they must be equal, or the first 1",
    "at most": "the first must be at most the second",
}


def note_equations(model: ir.Model) -> None:
    """Keep in each graph what its nodes demand of extents and nothing proves; raise ModelError for a contradiction."""
    ranges = ranges_of(model)
    for graph in model.graphs():
        keep_equations(graph, equations_of(graph, ranges))


def equations_of(graph: ir.Graph, ranges: Ranges) -> list[ExtentEquation]:
    """Return what the nodes of a graph demand and nothing proves; raise ModelError for a demand that is never met."""
    found: dict[Equation, Asked] = {}
    seen: set[object] = set()
    for node in graph:
        key = likeness(node, constants=True)
        if key is not None and key in seen:
            continue  # whoever demands it first
        seen.add(key)
        for asked in asked_of(NodeView(node), ranges):
            found.setdefault(asked.key, asked)
    return [ExtentEquation(one.left, one.right, one.equation.kind, one.says()) for one in found.values()]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a node demands: the equation over its axes, and the extents that these have."""

    view: NodeView
    equation: Equation
    left: Extent
    right: Extent

    @property
    def key(self) -> Equation:
        """The equation of the extents, in an order that does not matter where they may be exchanged."""
        turns = self.equation.kind in ("equal", "broadcast") and str(self.right) < str(self.left)
        sides = (self.right, self.left) if turns else (self.left, self.right)
        return Equation(*sides, self.equation.kind)

    def says(self, *, swapped: bool = False) -> tuple[str, str, str]:
        """Return the message of sides that do not agree, around their numbers; ``swapped``: the right one first."""
        sides = (self.equation.left, self.equation.right)
        kind = self.equation.kind
        names = {place: name for place, name, _ in _axes(self.view)}
        left, right = (_side(side, names) for side in (reversed(sides) if swapped else sides))
        if left.startswith(_COUNT) and right.startswith(_COUNT):
            right = "that" + right.removeprefix(_COUNT)
        where = self.view.where
        if self.equation.says is not None:
            return f"{where}: {self.equation.says[0]}", *self.equation.says[1:]
        if not right:
            most = "at most " if kind == "at most" else ""
            return f"{where}: {left} is ", f"; it must be {most}", " or 1" if kind in ("broadcast", "expand") else ""
        if not left:
            least = "at least " if kind == "at most" else ""
            return f"{where}: {least}", f" is wanted where {right} is ", ""
        return f"{where}: {left} is ", f" and {right} is ", f"; {_SAYS[kind]}"


def asked_of(view: NodeView, ranges: Ranges) -> Iterator[Asked]:
    """Yield what a node demands and nothing proves; raise ModelError for a demand that is never met."""
    operator = OPERATORS.of(view)
    if operator is None or operator.demands is None:
        return
    with sound(view):
        equations = list(operator.demands(view))
        extents = {place: extent for place, _, extent in _axes(view)} if equations else {}
    for equation in equations:
        try:
            left, right = _over(equation.left, extents), _over(equation.right, extents)
        except TooLargeError:
            continue
        if left is None or right is None or left == right:
            continue
        try:
            holds = Equation(left, right, equation.kind).holds(ranges)
        except TooLargeError:  # of the difference: it is compared at the call
            holds = None
        asked = Asked(view, equation, left, right)
        if holds is False:
            before, between, behind = asked.says()
            raise ModelError(f"{before}{left}{between}{right}{behind}", node=view.name)
        if holds is None:
            yield asked


def _over(side: Extent, extents: Mapping[str, Extent]) -> Extent | None:
    """Return a side of an equation over the extents that a node's axes have, None where an axis is not there."""
    if isinstance(side, Symbol):
        return extents.get(side.name)
    return substituted(side, extents) if all(one.name in extents for one in symbols_of(side)) else None


def refuse_contradictions(view: NodeView, ranges: Ranges) -> None:
    """Raise ModelError where a node demands what is never met."""
    for _ in asked_of(view, ranges):
        pass


def _axes(view: NodeView) -> Iterator[tuple[str, tuple[int, str], Extent]]:
    """Yield the axes of a node's values: the symbol in demands, the axis and the value's name, the extent."""
    for kind, values in (("input", view.node.inputs), ("output", view.node.outputs)):
        for number, value in enumerate(values):
            for axis, extent in enumerate(_shape(value)):
                if value is not None and extent is not None:
                    yield place_of(kind, number, axis), (axis, value.name or ""), extent


def _shape(value: ir.Value | None) -> tuple[Extent | None, ...]:
    if value is None:
        return ()
    tensor = constant_tensor(value)
    return tuple(tensor.shape.numpy()) if tensor is not None else dimensions_of(value) or ()


def _side(extent: Extent, names: Mapping[str, tuple[int, str]]) -> str:
    match extent:
        case int():
            return ""
        case Symbol(name):
            axis, value = names[name]
            return f"axis {axis} of '{value}'"
    if (whole := _counted(extent, names)) is not None:
        return f"{_COUNT} of '{whole}'"
    shown = str(extent)
    for symbol in sorted(set(symbols_of(extent)), key=lambda one: -len(one.name)):
        axis, value = names[symbol.name]
        shown = shown.replace(symbol.name, f"'{value}'[{axis}]")
    return shown


def _counted(extent: Extent, names: Mapping[str, tuple[int, str]]) -> str | None:
    """Return the value whose axes an extent is all multiplied with each other."""
    kinds = {symbol.name.rpartition("_")[0] for symbol in symbols_of(extent)}
    if len(kinds) != 1:
        return None
    of = [name for name in names if name.rpartition("_")[0] in kinds]
    return names[of[0]][1] if multiply(*map(Symbol, of)) == extent else None


def keep_equations(graph: ir.Graph, equations: Sequence[ExtentEquation]) -> None:
    """Note in a graph what its nodes demand, in the place of what was noted before."""
    graph.metadata_props.pop(EQUATIONS, None)
    if equations:
        rows = [[text(one.left), text(one.right), one.kind, *one.says] for one in equations]
        graph.metadata_props[EQUATIONS] = json.dumps(rows)


def kept_equations(graph: ir.Graph) -> list[ExtentEquation]:
    """Return what a graph's nodes demand, as it was noted."""
    found = []
    for left, right, kind, *says in json.loads(graph.metadata_props.get(EQUATIONS, "[]")):
        sides = parsed(left), parsed(right)
        if sides[0] is not None and sides[1] is not None:
            found.append(ExtentEquation(sides[0], sides[1], kind, (says[0], says[1], says[2])))
    return found
