"""The operands of a match: what its group reads from outside, in the order in which the pattern is written.

The order is that of a walk over the pattern, depth first and from left to right, whatever order a commutative node has
its inputs in. Two places of a pattern are two operands, though they may read one value; the places of one pattern
object, which stands for one value, are one operand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graft.patterns.backtracking import Scope, Subject
from graft.patterns.language import Absent, Alternative, Body, Both, Constrained, Named, Pattern


@dataclass(frozen=True, slots=True)
class Read:
    """Input ``index`` of a matched node and the argument that stands there; None where the pattern has none."""

    node: ir.Node
    index: int
    pattern: Pattern | None
    scope: Scope


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: the value (None: an optional input that is absent), its capture names, where nodes read it."""

    value: ir.Value | None
    names: tuple[str, ...]
    places: tuple[tuple[ir.Node, int], ...]


@dataclass(slots=True)
class _Operand:
    value: Subject
    names: dict[str, None]
    places: list[tuple[ir.Node, int]]


def operands_of(reads: Sequence[Read], members: Collection[ir.Node]) -> tuple[Operand, ...]:
    """Return the operands of a match, given all places that its members read, in the pattern's order."""
    found: list[_Operand] = []
    by_leaf: dict[tuple[Scope, Pattern], _Operand] = {}
    by_place: dict[tuple[ir.Node, int], _Operand] = {}
    for read in reads:
        value = read.node.inputs[read.index] if read.index < len(read.node.inputs) else None
        if read.node not in members or (value is not None and value.producer() in members):
            continue
        leaf, names = _leaf(read.pattern, value, read.scope)
        place = (read.node, read.index)
        known = by_place.get(place) or (by_leaf.get((read.scope, leaf)) if leaf is not None else None)
        if known is None:
            known = _Operand(value, {}, [])
            found.append(known)
        if leaf is not None and not isinstance(leaf, Absent):
            by_leaf.setdefault((read.scope, leaf), known)
        if place not in by_place:
            by_place[place] = known
            known.places.append(place)
        known.names.update(dict.fromkeys(names))
    return tuple(Operand(one.value, tuple(one.names), tuple(one.places)) for one in found)


def _leaf(pattern: Pattern | None, value: Subject, scope: Scope) -> tuple[Pattern | None, list[str]]:
    """Return the innermost pattern that stands for the value of an argument, and the names on the way to it."""
    names: list[str] = []
    while pattern is not None:
        match pattern:
            case Named(pattern=inner, name=name):
                names.append(name)
            case Constrained(pattern=inner) | Body(pattern=inner) | Both(left=inner):
                pass
            case Alternative(options=options):
                chosen = [one for one in options if _stands_for(one, value, scope)]
                if not chosen:
                    return pattern, names
                inner = chosen[0]
            case _:
                return pattern, names
        if isinstance(pattern, Both):
            names.extend(_leaf(pattern.right, value, scope)[1])
        pattern = inner
    return None, names


def _stands_for(pattern: Pattern, value: Subject, scope: Scope) -> bool:
    """Whether a pattern is bound to a value, or the one that it wraps."""
    while isinstance(pattern, Named | Constrained | Body):
        pattern = pattern.pattern
    return value is not None and pattern in scope.bound and scope.bound[pattern] is value
