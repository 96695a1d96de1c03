"""The check that an index input stays in its range, as a function of its own that runs before what reads it.

The least and the greatest index are found in vectors and compared with the range once for a block, so that the check
costs one pass over the indices and no branch in the loops that use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import Lanes, block, let, loop
from graft.core.operators.definition.facts import UnknownError
from graft.core.operators.definition.index_bounds import IndexBound, Size
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import loops_over

BLOCK = 1024
"""Vectors that one task looks through."""
DTYPES = ("int32", "int64")


def index_bounds(node: NodeView, *, varying: bool = False) -> tuple[IndexBound, ...]:
    """Return what a node asks of its index inputs; nothing where shapes are unknown or the operator has none.

    With ``varying``, what it asks by extents that are no numbers is among them.
    """
    row = OPERATORS.of(node)
    if row is None or row.indices is None:
        return ()
    try:
        return tuple(bound for bound in row.indices(node) if varying or not bound.varies)
    except UnknownError:
        return ()


def unexpanded(value: ValueView) -> ValueView:
    """Return what an Expand repeats, which has the same elements; any other value as it is."""
    node = value.producer
    source = node.input(0) if node is not None and node.op_type == "Expand" and not node.domain else None
    return value if source is None or 0 in (value.static_shape or (0,)) else source


def index_check(
    name: str, dtype: str, count: int, columns: int, bounds: Sequence[IndexBound], lanes: Lanes
) -> ir.Function:
    """Return the function ``name`` that fails if one of ``count`` indices lies outside of what ``bounds`` say.

    ``columns`` is the extent of the last axis, where bounds are of one column of it.
    """
    assert dtype in DTYPES, dtype
    indices = ir.Buffer("indices", dtype, (b.index(count),))
    parts = [_checked(indices, bound, 1 if bound.column is None else columns, lanes) for bound in bounds]
    return ir.Function(name, (indices,), 0, block(*parts))


def varying_index_check(
    name: str,
    dtype: str,
    rank: int,
    bounds: Sequence[IndexBound],
    sources: Mapping[int, tuple[str, int]],
    kind: ir.LoopKind = "serial",
) -> ir.Function:
    """Return the same check where extents are known only when it runs: of each index by itself, in loops of a kind.

    The inputs behind the indices are ``sources`` by number, of a type and a rank: their extents say the range.
    """
    assert dtype in DTYPES, dtype
    indices = ir.Buffer("indices", dtype, b.variables(rank, "extent"))
    others = {
        number: ir.Buffer(f"source{number}", kind, b.variables(axes, f"source{number}_"))
        for number, (kind, axes) in sources.items()
    }

    def value(size: Size) -> ir.Expression:
        if isinstance(size, int):
            return b.index(size)
        total: ir.Expression = b.index(size.number)
        for number, axis, factor in size.extents:
            total = b.add(b.multiply(others[number].shape[axis], factor), total)
        return total

    parts = []
    for bound in bounds:
        axes = b.variables(rank)
        place: tuple[ir.Expression, ...] = axes
        if bound.column is not None:
            place = (*axes[:-1], b.index(bound.column))
        found = b.cast(ir.Load(indices, place), "int64")
        low, high = value(bound.low), value(bound.high)
        wrong = b.either(b.less(found, low), b.greater(found, high))
        arguments = (b.index(bound.axis), value(bound.extent), low, high)
        looped = axes if bound.column is None else axes[:-1]
        refused = ir.If(wrong, ir.CallExtern("fail_index", (found, *arguments)))
        parts.append(loops_over(zip(looped, indices.shape, strict=False), refused, kind))
    return ir.Function(name, (indices, *others.values()), 0, block(*parts))


def _checked(indices: ir.Buffer, bound: IndexBound, stride: int, lanes: Lanes) -> ir.Statement:
    count = b.dims(indices)[0] // stride
    vectors, rest = divmod(count, lanes.count)
    blocks, more = divmod(vectors, BLOCK)
    column = bound.column or 0

    def vector(number: ir.Expression, mask: ir.Expression | None = None) -> ir.Expression:
        place = b.add(b.multiply(number, lanes.count * stride), column)
        return ir.Load(indices, (lanes.ramp(place, stride),), mask)

    parts: list[ir.Statement] = []
    if blocks:
        number = ir.Variable("block")
        first = b.multiply(number, BLOCK)
        parts.append(
            ir.For(
                number,
                b.index(blocks),
                "parallel",
                _span(bound, lanes, indices.dtype, BLOCK, lambda i: vector(b.add(first, i))),
            )
        )
    if more:
        parts.append(_span(bound, lanes, indices.dtype, more, lambda i: vector(b.add(i, blocks * BLOCK))))
    if rest:
        mask = b.less(lanes.ramp(b.index(0)), lanes.splat(b.index(rest)))
        parts.append(_span(bound, lanes, indices.dtype, 1, lambda i: vector(b.index(vectors), mask)))
    return ir.Block(tuple(parts))


def _span(
    bound: IndexBound, lanes: Lanes, dtype: str, count: int, vector: Callable[[ir.Expression], ir.Expression]
) -> ir.Statement:
    """Return the check of ``vector(i)`` for i in ``[0, count)``; lanes that are masked off read as a legal 0."""
    least, greatest = (
        ir.Buffer(name, dtype, (b.index(lanes.count),), memory="register") for name in ("least", "greatest")
    )
    whole = (lanes.ramp(b.index(0)),)
    start = lanes.zeros(dtype)

    def step(i: ir.Expression) -> ir.Statement:
        return let(
            vector(i),
            lambda x: block(
                ir.Store(least, whole, b.minimum(ir.Load(least, whole), x)),
                ir.Store(greatest, whole, b.maximum(ir.Load(greatest, whole), x)),
            ),
        )

    def test(found: ir.Expression, wrong: ir.Expression) -> ir.Statement:
        arguments = map(b.index, (bound.axis, _number(bound.extent), _number(bound.low), _number(bound.high)))
        return ir.If(wrong, ir.CallExtern("fail_index", (b.cast(found, "int64"), *arguments)))

    body = block(
        ir.Store(least, whole, start),
        ir.Store(greatest, whole, start),
        loop(count, step),
        let(
            lanes.joined("min", ir.Load(least, whole)),
            lambda x: test(x, b.less(b.cast(x, "int64"), _number(bound.low))),
            "low",
        ),
        let(
            lanes.joined("max", ir.Load(greatest, whole)),
            lambda x: test(x, b.greater(b.cast(x, "int64"), _number(bound.high))),
            "high",
        ),
    )
    return ir.Allocate(least, ir.Allocate(greatest, body))


def _number(size: Size) -> int:
    assert isinstance(size, int), size
    return size
