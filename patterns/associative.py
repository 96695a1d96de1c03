"""Other groupings of a nest of one associative operator: ``(a + b) + c`` is ``a + (b + c)``.

For floats, a difference counts as a sum with a negated term and a quotient as a product with an inverted factor, as in
``(a * b) / c = a * (b / c)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.patterns.backtracking import Subject
from graft.patterns.language import Operator, Pattern
from graft.patterns.walk import INVERSES, family_of, nest_family

FEW = 3
"""Operators of a nest whose orders are few enough to run through them all for an explanation."""

Place = tuple[ir.Node, int]
"""Input ``index`` of a node."""
_Leaf = tuple[Pattern, bool]
"""An argument of a nest, and whether it counts as negated or inverted."""
_Term = tuple[Place, bool]


@dataclass(frozen=True, slots=True)
class Grouping:
    """A nest of as many nodes as the pattern has, whatever their order.

    ``rows`` are the numbers of the places that each leaf may take; where the family does not commute, the
    leaves take the places in their order. ``inner`` are the pattern's inner operators, with nodes for them.
    """

    leaves: tuple[Pattern, ...]
    places: list[Place]
    rows: list[list[int]]
    inner: dict[Operator, ir.Node]
    commutes: bool


def groupings(
    pattern: Operator,
    node: ir.Node,
    operators: OperatorTable,
    possible: Callable[[Pattern, Subject], bool],
    explains: bool = False,
) -> Iterator[Grouping]:
    """Yield every nest of nodes with ``node`` as its root that has as many nodes as the pattern has operators.

    None are yielded where a leaf has no place at all: ``possible`` says whether a pattern may fit a value. Who
    ``explains`` gets those of small nests all the same, to say what does not fit.
    """
    family = _family(pattern, node, operators)
    if family is None:
        return
    leaves: list[_Leaf] = []
    nests: list[Operator] = []
    _flatten(pattern, family, False, leaves, nests)
    commutes = operators.has(NodeView(node), Trait.COMMUTATIVE) or family in INVERSES.values()
    if explains and len(nests) <= FEW:
        possible = _is_there
    reached = _reachable(node, family, len(nests))
    if not all(
        any(sign == inverse and possible(leaf, at(place)) for place, inverse in reached) for leaf, sign in leaves
    ):
        return
    for terms, nodes in _subtrees(node, family, len(nests)):
        rows = [
            [number for number, (place, inverse) in enumerate(terms) if inverse == sign and possible(leaf, at(place))]
            for leaf, sign in leaves
        ]
        if commutes or all(leaf[1] == term[1] for leaf, term in zip(leaves, terms, strict=True)):
            inner = dict(zip(nests[1:], nodes[1:], strict=True))
            yield Grouping(tuple(leaf for leaf, _ in leaves), [place for place, _ in terms], rows, inner, commutes)


def _family(pattern: Operator, node: ir.Node, operators: OperatorTable) -> str | None:
    """Return the associative operator that pattern and node belong to, None if there is nothing to regroup."""
    family = nest_family(pattern)
    operator = None if family is None else operators.get(family)
    if family is None or operator is None or Trait.ASSOCIATIVE not in operator.traits:
        return None
    return family if _belongs(node, family) else None


def _flatten(pattern: Operator, family: str, inverted: bool, leaves: list[_Leaf], nests: list[Operator]) -> None:
    nests.append(pattern)
    first, second = pattern.arguments or ()
    inverse = inverted != (pattern.names[0] != family)
    for argument, sign in ((first, inverted), (second, inverse)):
        if isinstance(argument, Operator) and family_of(argument) == family:
            _flatten(argument, family, sign, leaves, nests)
        else:
            leaves.append((argument, sign))


def _belongs(node: ir.Node, family: str) -> bool:
    if node.domain or len(node.inputs) != 2 or None in node.inputs:
        return False
    if node.op_type == family:
        return True
    return INVERSES.get(node.op_type) == family and ValueView(node.outputs[0]).dtype.find("float") >= 0


def _is_there(leaf: Pattern, value: Subject) -> bool:
    return value is not None


def at(place: Place) -> Subject:
    """Return the value at a place, None where the node has fewer inputs."""
    node, index = place
    return node.inputs[index] if index < len(node.inputs) else None


def _reachable(root: ir.Node, family: str, count: int) -> dict[_Term, None]:
    """Return every place that can be a term of a nest of ``count`` nodes with this root."""
    level = {(root, False): None}
    seen = set(level)
    found: dict[_Term, None] = {}
    for _ in range(count):
        below: dict[tuple[ir.Node, bool], None] = {}
        for node, inverted in level:
            for index in (0, 1):
                sign = inverted != (index == 1 and node.op_type != family)
                found[(node, index), sign] = None
                value = node.inputs[index]
                producer = None if value is None else value.producer()
                if producer is not None and producer.graph is node.graph and _belongs(producer, family):
                    below[producer, sign] = None
        level = {one: None for one in below if one not in seen}
        seen |= level.keys()
    return found


def _subtrees(node: ir.Node, family: str, count: int) -> Iterator[tuple[list[_Term], list[ir.Node]]]:
    """Yield the terms and nodes of every nest of ``count`` nodes of the family whose root is ``node``."""
    inverse = node.op_type != family
    for left in range(count):
        for terms, nodes in _side(node, 0, family, left):
            for more, others in _side(node, 1, family, count - 1 - left):
                yield [*terms, *((place, sign != inverse) for place, sign in more)], [node, *nodes, *others]


def _side(node: ir.Node, index: int, family: str, count: int) -> Iterator[tuple[list[_Term], list[ir.Node]]]:
    if count == 0:
        yield [((node, index), False)], []
        return
    value = node.inputs[index]
    producer = None if value is None else value.producer()
    if producer is not None and producer.graph is node.graph and _belongs(producer, family):
        yield from _subtrees(producer, family, count)
