"""Other groupings of a nest of one associative operator: ``(a + b) + c`` is ``a + (b + c)``.

For floats, a difference counts as a sum with a negated term and a quotient as a product with an inverted factor, as in
``(a * b) / c = a * (b / c)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import onnx_ir as ir

from graft.core.model.view import NodeView, ValueView
from graft.core.operators.table import OperatorTable, Trait
from graft.patterns.language import Operator, Pattern
from graft.patterns.walk import INVERSES, family_of, nest_family

MOST_NODES = 3
"""Nests of more nodes are matched as they are written: the number of groupings grows too fast."""

_Leaf = tuple[Pattern, bool]
_Place = tuple[ir.Node, int]
_Term = tuple[_Place, bool]


def groupings(
    pattern: Operator, node: ir.Node, operators: OperatorTable
) -> Iterator[tuple[tuple[Pattern, ...], tuple[_Place, ...], dict[Operator, ir.Node]]]:
    """Yield (leaf patterns, inputs of nodes for them, inner patterns with their nodes) for every regrouping."""
    family = _family(pattern, node, operators)
    if family is None:
        return
    leaves: list[_Leaf] = []
    nests: list[Operator] = []
    _flatten(pattern, family, False, leaves, nests)
    if not 2 <= len(nests) <= MOST_NODES:
        return
    for terms, nodes in _subtrees(node, family, len(nests)):
        inner = dict(zip(nests[1:], nodes[1:], strict=True))
        for order in _orders(terms, operators.has(NodeView(node), Trait.COMMUTATIVE) or family in INVERSES.values()):
            if all(leaf[1] == term[1] for leaf, term in zip(leaves, order, strict=True)):
                yield tuple(leaf for leaf, _ in leaves), tuple(place for place, _ in order), dict(inner)


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
    turned = inverted != (pattern.names[0] != family)
    for argument, sign in ((first, inverted), (second, turned)):
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


def _subtrees(node: ir.Node, family: str, count: int) -> Iterator[tuple[list[_Term], list[ir.Node]]]:
    """Yield the terms and nodes of every nest of ``count`` nodes of the family whose root is ``node``."""
    turned = node.op_type != family
    for left in range(count):
        for terms, nodes in _side(node, 0, family, left):
            for more, others in _side(node, 1, family, count - 1 - left):
                yield [*terms, *((place, sign != turned) for place, sign in more)], [node, *nodes, *others]


def _side(node: ir.Node, index: int, family: str, count: int) -> Iterator[tuple[list[_Term], list[ir.Node]]]:
    if count == 0:
        yield [((node, index), False)], []
        return
    value = node.inputs[index]
    producer = None if value is None else value.producer()
    if producer is not None and producer.graph is node.graph and _belongs(producer, family):
        yield from _subtrees(producer, family, count)


def _orders(terms: list[_Term], commutes: bool) -> Iterator[tuple[_Term, ...]]:
    if commutes:
        yield from permutations(terms)
    else:
        yield tuple(terms)
