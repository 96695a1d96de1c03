"""Softmax of one row in scratch memory, in vectors: the row becomes exponentials, their sum a factor."""

from __future__ import annotations

from collections.abc import Callable

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import ramp, wide
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.exponential import FLOAT32, FLOAT64, exp_nonpositive
from graft.core.tensor_ir.rewriting.sharing import bind_shared
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import Type


def softmax_row(
    rows: ir.Buffer,
    factors: ir.Buffer,
    row: ir.Expression,
    lanes: int,
    chains: int,
    *,
    empty_is_zero: bool = False,
    nan_is_zero: bool = False,
) -> ir.Statement:
    """Return the code that turns ``rows[row]`` into ``exp(x - max)`` and stores one over the sum in ``factors[row]``.

    ``chains`` sums side by side hide the latency of one. The row's length is a multiple of ``lanes``; what it is padded
    with is minus infinity. A row of nothing but that (unless ``empty_is_zero``), and one with a NaN, becomes NaN; with
    ``nan_is_zero`` such a row becomes 0.
    """
    kind, vectors = Type(rows.dtype), b.dims(rows)[1] // lanes
    count = min(chains, vectors)
    parts = ir.Buffer("parts", kind.dtype, (b.index(count), b.index(lanes)), memory="register", alignment=64)
    top = ir.Variable("top", kind.with_lanes(lanes))

    def home(part: int) -> tuple[ir.Expression, ...]:
        return (b.index(part), ramp(b.index(0), lanes))

    def at(vector: ir.Expression) -> ir.Load:
        return ir.Load(rows, (row, ramp(b.multiply(vector, lanes), lanes)))

    def larger(vector: ir.Expression, part: int) -> ir.Statement:
        # Not `max`: a NaN may be lost here, the difference brings it back.
        value, known = at(vector), ir.Load(parts, home(part))
        return ir.Store(parts, home(part), ir.Select(ir.Binary("gt", value, known), value, known))

    def exponential(vector: ir.Expression, part: int) -> ir.Statement:
        power = ir.Variable("power", kind.with_lanes(lanes))
        value = exp_nonpositive(Value(at(vector)) - Value(top), FLOAT32 if kind.dtype == "float32" else FLOAT64)
        place = at(vector).indices
        added = ir.Store(parts, home(part), b.add(ir.Load(parts, home(part)), power))
        return bind_shared(ir.Let(power, value.expression, ir.Block((ir.Store(rows, place, power), added))))

    def started(number: float) -> list[ir.Statement]:
        return [ir.Store(parts, home(part), wide(ir.Constant(number, kind), lanes)) for part in range(count)]

    def combined(operator: str) -> ir.Expression:
        values: list[ir.Expression] = [ir.Load(parts, home(part)) for part in range(count)]
        while len(values) > 1:
            first, second = values.pop(0), values.pop(0)
            values.append(ir.Binary(operator, first, second))  # type: ignore[arg-type]
        return values[0] if lanes == 1 else ir.Horizontal(operator, values[0])  # type: ignore[arg-type]

    total, best = combined("add"), combined("max")
    if empty_is_zero:
        total = ir.Select(b.equal(total, 0.0), ir.Constant(1.0, kind), total)
        best = ir.Select(b.equal(best, float("-inf")), ir.Constant(0.0, kind), best)
    one, known = ir.Constant(1.0, kind), ir.Variable("total", kind)
    finish: ir.Statement = ir.Store(factors, (row,), b.divide(one, known))
    if nan_is_zero:
        nothing = wide(ir.Constant(0.0, kind), lanes)
        cleared = _each(vectors, 1, lambda vector, _: ir.Store(rows, at(vector).indices, nothing))
        finish = ir.If(b.is_nan(known), ir.Block((cleared, ir.Store(factors, (row,), one))), finish)
    powers = ir.Block((*started(0.0), _each(vectors, count, exponential), ir.Let(known, total, finish)))
    largest = ir.Let(top, wide(best, lanes), powers)
    return ir.Allocate(parts, ir.Block((*started(float("-inf")), _each(vectors, count, larger), largest)))


def _each(vectors: int, count: int, body: Callable[[ir.Expression, int], ir.Statement]) -> ir.Statement:
    """Return the loop over the vectors of a row, ``count`` at a time, and what is left."""
    rounds = vectors // count
    block = ir.Variable("vectors") if rounds > 1 else b.index(0)
    step: ir.Statement = ir.Block(tuple(body(b.add(b.multiply(block, count), part), part) for part in range(count)))
    if isinstance(block, ir.Variable):
        step = ir.For(block, b.index(rounds), "serial", step)
    rest = [body(b.index(rounds * count + part), part) for part in range(vectors - rounds * count)]
    return ir.Block((step, *rest))
