"""Walks of expressions of any depth, and of such that a tree of them would have more nodes than there are atoms."""

from __future__ import annotations

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Binary,
    Block,
    Buffer,
    CallExtern,
    Constant,
    Expression,
    Load,
    Store,
    Unary,
    Variable,
)
from graft.core.tensor_ir.visit import ExpressionMap, map_accesses, substitute, unknown, walk_expressions
from graft.core.types import FLOAT32

DEPTH = 20_000


def deep(depth: int = DEPTH) -> Expression:
    value: Expression = Variable("x", FLOAT32)
    for _ in range(depth):
        value = Binary("add", value, value)
    return value


def test_a_map_visits_every_node_of_a_deep_expression_once():
    seen = []
    result = ExpressionMap(lambda node: (seen.append(1), node)[1])(value := deep())
    assert result is value
    assert len(seen) == DEPTH + 1


def test_a_deep_expression_is_substituted():
    variable = Variable("x", FLOAT32)
    value: Expression = variable
    for _ in range(DEPTH):
        value = Unary("neg", value)
    replaced = substitute(value, {variable: Constant(1.0, FLOAT32)})
    assert next(walk_expressions(replaced)) == Constant(1.0, FLOAT32)


def test_what_is_unknown_is_yielded_operands_first():
    value = deep(3)
    known: set[int] = set()
    order = []
    for node in unknown(value, known):
        known.add(id(node))
        order.append(node)
    assert order == list(walk_expressions(value))
    assert list(unknown(value, known)) == []


def test_every_access_is_of_the_new_buffer() -> None:
    old, other = (Buffer(name, "float32", (b.index(8),)) for name in ("old", "other"))
    new, i = Buffer("new", "float32", (b.index(2), b.index(8))), Variable("i")
    place, level = (i,), b.index(2)
    body = Block(
        (
            Store(old, place, Load(other, place)),
            Store(other, place, Load(old, place)),
            CallExtern("prefetch", (Load(old, place), level)),
            CallExtern("prefetch", (Load(other, place), level)),
        )
    )
    first = b.index(1)
    changed = map_accesses(body, {old}, lambda buffer, indices: (new, (first, *indices)))
    assert changed == Block(
        (
            Store(new, (first, i), Load(other, place)),
            Store(other, place, Load(new, (first, i))),
            CallExtern("prefetch", (Load(new, (first, i)), level)),
            CallExtern("prefetch", (Load(other, place), level)),
        )
    )
