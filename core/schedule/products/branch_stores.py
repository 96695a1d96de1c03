"""The stores of a tile of products that stand side by side: each vector as the branch wants it that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graft.core.operators.definition import build as b
from graft.core.schedule.products.accumulation import finish_tile
from graft.core.schedule.products.product_axes import Contraction
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir.ir import Block, Buffer, Expression, If, Statement

Point = Callable[[Expression, Expression], list[Expression]]


def finish_branches(
    parts: Contraction, tile: RegisterTile, usual: RegisterTile, totals: Buffer, panel: Expression, point: Point
) -> Statement:
    """Return the stores of the sums of a tile in the panel of that number; all panels but the last have ``usual``.

    ``point(row, column)`` gives the output index of the vector that begins at that row and column of the tile.
    """
    width = usual.columns
    whole, panels = parts.width // width, -(-parts.width // width)
    if tile.vectors < usual.vectors or panels == 1:  # the last panel
        return _vectors(parts, tile, totals, (panels - 1) * width, point)
    statement: Statement | None = None
    for branch in reversed(parts.epilogue.branches):
        begin, end = -(-branch.begin // width), branch.end // width
        if branch.end % width and end < whole:  # a panel that is not of one branch alone
            mixed = _vectors(parts, tile, totals, end * width, point)
            statement = mixed if statement is None else If(b.less(panel, end + 1), mixed, statement)
        if begin < end:
            own = _vectors(parts, tile, totals, begin * width, point)
            statement = own if statement is None else If(b.less(panel, end), own, statement)
    assert statement is not None, "sums without branches"
    return statement


def _vectors(parts: Contraction, tile: RegisterTile, totals: Buffer, column: int, point: Point) -> Statement:
    """Return the stores of a tile whose vectors belong to the branches of the columns from ``column`` on."""
    statements: list[Statement] = []
    for branch in parts.epilogue.branches:
        first = max(branch.begin - column, 0) // tile.lanes
        after = min(branch.end - column, tile.columns) // tile.lanes

        def own(row: Expression, place: Expression, begin: int = branch.begin) -> list[Expression]:
            return point(row, b.subtract(place, begin))

        if first < after:
            part = replace(tile, vectors=after - first)
            statements.append(finish_tile(branch.epilogue, part, totals, own, lambda vector: None, first))
    return Block(tuple(statements))
