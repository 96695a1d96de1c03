"""Walks: what stands in statements and expressions is said once, and everything that rebuilds them goes by it."""

from __future__ import annotations

from functools import partial
from typing import Any

from graft.core.operators.definition import build as b
from graft.core.tensor_ir import ir
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
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import (
    ExpressionMap,
    children,
    in_lanes,
    map_accesses,
    map_statement,
    statement_children,
    statement_expressions,
    structural_key,
    substitute,
    unknown,
    walk_expressions,
    walk_statements,
    with_children,
    with_parts,
)
from graft.core.types import FLOAT32, INT64

EVERY_STATEMENT = """
function every(x: float32[8]) -> (y: float32[8]) {
  parallel i < 8 {
    allocate t: float32[1] in register
    if i < 4 {
      let v: float32 = x[i] * float32(2.0)
      t[0] = v
      y[i; i < 3] = t[0]
    } else {
      call prefetch(x[i], 3)
    }
  }
  issue "load" {
    push "load" -> "mac"
    pop "mac" -> "load"
  }
  barrier "queue"
}
"""


def test_a_statement_of_every_kind_is_rebuilt_as_it_was() -> None:
    function = parse_function(EVERY_STATEMENT)
    kinds = {type(one) for one in walk_statements(function.body)}
    assert {kind.__name__ for kind in kinds} == {
        "Store", "For", "If", "Let", "Allocate", "Block", "CallExtern", "Barrier", "Issue", "Push", "Pop",
    }  # fmt: skip
    assert map_statement(function.body, lambda expression: expression) == function.body


def _noted(noted: list[Any], one: Any) -> Any:
    noted.append(one)
    return one


def test_with_parts_goes_to_the_parts_that_the_walk_finds() -> None:
    for statement in walk_statements(parse_function(EVERY_STATEMENT).body):
        expressions: list[ir.Expression] = []
        inner: list[ir.Statement] = []
        with_parts(statement, partial(_noted, expressions), partial(_noted, inner))
        shape = statement.buffer.shape if isinstance(statement, ir.Allocate) else ()
        assert [*shape, *expressions] == list(statement_expressions(statement))
        assert inner == list(statement_children(statement))


def test_what_a_statement_binds_and_where_it_stores_is_replaced() -> None:
    other, home = ir.Variable("j"), ir.Buffer("z", "float32", (ir.Constant(8, INT64),))
    loop = next(one for one in walk_statements(parse_function(EVERY_STATEMENT).body) if isinstance(one, ir.For))
    same = lambda part: part  # noqa: E731
    for one in (loop, *walk_statements(loop.body)):
        new = with_parts(one, same, same, lambda _: other, lambda _: home)
        assert getattr(new, "variable", other) is other and getattr(new, "buffer", home) is home


def test_an_intrinsic_gets_the_lanes_of_its_operands() -> None:
    x = ir.Variable("x", FLOAT32)
    wide = tuple(ir.Broadcast(x, 4) for _ in range(3))
    assert in_lanes(ir.Intrinsic("fma", (x, x, x), FLOAT32), wide, 4) == ir.Intrinsic(
        "fma", wide, FLOAT32.with_lanes(4)
    )
    assert in_lanes(ir.Binary("add", x, x), wide[:2], 4) == ir.Binary("add", *wide[:2])


def test_a_key_tells_zeros_apart_and_knows_operands_as_it_is_told() -> None:
    zeros = [ir.Constant(value, FLOAT32) for value in (0.0, -0.0, 0.0)]
    first, second, third = map(structural_key, zeros)
    assert first == third != second
    sums = [ir.Binary("add", one, zeros[1]) for one in (zeros[0], zeros[2])]
    assert structural_key(sums[0]) != structural_key(sums[1])
    assert structural_key(sums[0], structural_key) == structural_key(sums[1], structural_key)


def test_an_expression_is_kept_if_no_operand_differs() -> None:
    x = ir.Variable("x", FLOAT32)
    total = ir.Binary("add", x, x)
    assert with_children(total, children(total)) is total
    assert with_children(total, (x, total)) == ir.Binary("add", x, total)


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
