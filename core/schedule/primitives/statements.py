"""What schedules are written in: loops that may have one iteration, working memory, and vectors along a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import tiles
from graft.core.schedule.primitives.vectorize import both
from graft.core.tensor_ir import ir
from graft.core.types import INT64

LINE = 64
"""The bytes at a multiple of which working memory begins: a vector register's, and a cache line's."""


# ---- Loops ----


def divided(extent: ir.Expression, size: int) -> tuple[ir.Expression, ir.Expression]:
    """Return how many whole pieces of a size an extent has, and how much is behind them."""
    return b.divide(extent, size), b.modulo(extent, size)


def counter(name: str, count: b.Count) -> ir.Expression:
    """Return the index of a loop of so many iterations: 0 if there is but one."""
    return b.index(0) if isinstance(count, int) and count <= 1 else ir.Variable(name)


def over(index: ir.Expression, extent: b.Count, kind: ir.LoopKind, body: ir.Statement) -> ir.Statement:
    """Return the loop of ``index`` around ``body``; the body itself where the index is no variable but 0."""
    return ir.For(index, b.extent(extent), kind, body) if isinstance(index, ir.Variable) else body


def nest(
    name: str,
    extents: Mapping[int, b.Count],
    kind: ir.LoopKind,
    body: Callable[[dict[int, ir.Expression]], ir.Statement],
) -> ir.Statement:
    """Return the loops over axes (their extents are given), the first outermost, around ``body(index by axis)``."""
    indices = {axis: counter(f"{name}{axis}", extent) for axis, extent in extents.items()}
    statement = body(indices)
    for axis, index in reversed(indices.items()):
        statement = over(index, extents[axis], kind, statement)
    return statement


def in_vectors(
    name: str, length: int, lanes: int, body: Callable[[ir.Expression, ir.Expression | None], ir.Statement]
) -> ir.Statement:
    """Return ``body(begin, mask)`` at all vectors of a row: whole ones in a loop, then what is left, masked."""

    def piece(begin: ir.Expression, extent: int) -> ir.Statement:
        return body(begin, column_mask(begin, length, lanes) if extent < lanes else None)

    return tiles(length, lanes, piece, name=name)


# ---- Memory ----


def scratch(name: str, dtype: str, *extents: int | ir.Expression, memory: str = "scratch") -> ir.Buffer:
    """Return working memory of a kernel."""
    return ir.Buffer(name, dtype, tuple(map(_index, extents)), None, memory, LINE)


def registers(name: str, dtype: str, *extents: int | ir.Expression) -> ir.Buffer:
    """Return a buffer that is to become registers."""
    return scratch(name, dtype, *extents, memory="register")


# ---- Vectors ----


def multiply_add(left: ir.Expression, right: ir.Expression, addend: ir.Expression) -> ir.Expression:
    """Return ``left * right + addend``, fused for floats."""
    if left.type.is_float:
        return ir.Intrinsic("fma", (left, right, addend), addend.type)
    return b.add(b.multiply(left, right), addend)


def wide(value: ir.Expression, lanes: int) -> ir.Expression:
    """Return a scalar in every lane; a scalar stays one where there is one lane."""
    if lanes == 1 or value.type.lanes == lanes:
        return value
    if isinstance(value, ir.Constant):
        return ir.Constant(value.value, value.type.with_lanes(lanes))
    return ir.Broadcast(value, lanes)


def ramp(base: ir.Expression | int, lanes: int) -> ir.Expression:
    """Return ``base, base + 1, ...``; the base itself where there is one lane."""
    return _index(base) if lanes == 1 else ir.Ramp(_index(base), 1, lanes)


def column_mask(base: ir.Expression | int, columns: int, lanes: int) -> ir.Expression:
    """Return which lanes of the vector of columns that begins at ``base`` are below ``columns``."""
    return b.binary("lt", ramp(base, lanes), wide(ir.Constant(columns, INT64), lanes))


def between(places: ir.Expression, extent: int, *, low: bool = True, high: bool = True) -> ir.Expression | None:
    """Return which of a vector of places lie in ``[0, extent)``.

    ``low`` and ``high`` say whether some may lie before it and behind it; None if neither.
    """
    lanes = places.type.lanes
    start = b.binary("ge", places, wide(b.index(0), lanes)) if low else None
    return both(start, b.binary("lt", places, wide(b.index(extent), lanes))) if high else start


def operand_at(rows: ir.Buffer, row: ir.Expression, place: ir.Expression, width: int = 2) -> ir.Expression:
    """Return a group of ``width`` neighbouring small elements of a row as an int32."""
    return ir.Bitcast(ir.Load(rows, (row, ramp(b.multiply(place, width), width))), "int32")


def deinterleave(vectors: Sequence[ir.Expression], wanted: int) -> list[ir.Expression]:
    """Return the first ``wanted`` vectors of every k-th element of k (a power of 2) consecutive ``vectors``."""
    count, lanes = len(vectors), vectors[0].type.lanes
    if count == 1:
        return list(vectors)
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    halves = [
        deinterleave([ir.Shuffle(pair, tuple(range(side, 2 * lanes, 2))) for pair in pairs], -(-(wanted - side) // 2))
        for side in range(min(2, wanted))
    ]
    return [halves[number % 2][number // 2] for number in range(wanted)]


def interleave(vectors: Sequence[ir.Expression]) -> list[ir.Expression]:
    """Return k vectors that hold, one after another, the first elements of k ``vectors``, then the second ones, ..."""
    count, lanes = len(vectors), vectors[0].type.lanes
    if count == 1:
        return list(vectors)
    even, odd = interleave(vectors[0::2]), interleave(vectors[1::2])
    low = tuple(lane // 2 + lanes * (lane % 2) for lane in range(lanes))
    high = tuple(lane + lanes // 2 for lane in low)
    return [ir.Shuffle(pair, half) for pair in zip(even, odd, strict=True) for half in (low, high)]


def _index(value: ir.Expression | int) -> ir.Expression:
    return b.index(value) if isinstance(value, int) else value
