"""The schedule of block-scaled products: sums of blocks of terms, each scaled, that are added in an order.

Such a kernel has two sums: one of the products of a block, and an ordered one (a custom datatype) of what becomes of
these. Both run in tiles of one result, so that neither the sums of blocks nor the factors are ever whole in memory:
elements of the right factor are widened for a block of terms and a panel of columns, those of the left one for a chunk
of rows. (The loops: `graft.core.schedule.products.block_loops`.)
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from operator import is_

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.inline import inline_into
from graft.core.schedule.primitives.statements import LINE
from graft.core.schedule.products.block_loops import BlockLoops
from graft.core.schedule.products.block_sums import TERMS, BlockSums, Reader
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, indexed_by_axes
from graft.core.schedule.products.product_axes import Contraction, by_rows
from graft.core.schedule.products.tiling import choose_tile
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Binary, Buffer, Constant, Expression, Load, Stage, Variable
from graft.core.tensor_ir.ordered_stages import is_sequential
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import children, free_variables, loads, substitute, with_children
from graft.core.types import Type

USUAL = 64
"""The rows that tiles are chosen for where their number varies."""


def block_scaled_of(kernel: Kernel) -> BlockSums | None:
    """Return the block-scaled product that a kernel is around; None if it is none."""
    reductions = [n for n in range(kernel.anchor_stage + 1) if kernel.stages[n].reduction is not None]
    if len(reductions) != 2 or reductions[1] != kernel.anchor_stage:
        return None
    producers: dict[Buffer, Stage] = {}
    rest: list[Stage] = []
    for number, stage in enumerate(kernel.stages):
        if number in reductions or number > kernel.anchor_stage:
            rest.append(inline_into(stage, producers))
        elif is_sequential(stage) or stage.buffer in kernel.outputs:
            return None
        else:
            producers[stage.buffer] = inline_into(stage, producers)
    sums, total, *followers = rest
    epilogue = epilogue_of((total, *(indexed_by_axes(one, total.buffer) for one in followers)), kernel.outputs)
    if epilogue is None or epilogue.branches or epilogue.picks or sums.buffer in kernel.outputs:
        return None
    if any(load.buffer is sums.buffer for stage in followers for load in loads(stage.value)):
        return None
    return _taken_apart(sums, epilogue)


def _taken_apart(sums: Stage, epilogue: Epilogue) -> BlockSums | None:
    """Return the sums of blocks and the ordered sum of them, by what their factors depend on."""
    total, factors = epilogue.anchor, factors_of(sums)
    outer, inner = total.reduction, sums.reduction
    assert outer is not None and inner is not None, "a sum without a sum"
    ordered = outer.is_ordered and outer.operator == "add" and len(outer.axes) == len(inner.axes) == 1
    if not ordered or factors is None or factors[2] or not total.axes:
        return None
    number, term = outer.axes[0].variable, inner.axes[0].variable
    places = (*total.axes[:-1], number, total.axes[-1])
    reads = [load.indices for load in loads(total.value) if load.buffer is sums.buffer]
    if not reads or not all(len(one) == len(places) and all(map(is_, one, places)) for one in reads):
        return None
    moved = dict(zip(sums.axes, places, strict=True))
    left, right = (substitute(one, moved) for one in factors[:2])
    column = total.axes[-1]
    if column in free_variables(left):
        left, right = right, left
    in_left, in_right = free_variables(left), free_variables(right)
    extents = (outer.axes[0].extent, inner.axes[0].extent, total.buffer.shape[-1])
    counts = [int(one.value) for one in extents if isinstance(one, Constant)]
    if column in in_left or column not in in_right or len(counts) < len(extents) or not all(counts):
        return None
    shape = total.buffer.shape
    rows = tuple(n for n, axis in enumerate(total.axes[:-1]) if axis not in in_right and shape[n] != b.index(1))
    if any(total.axes[n] not in in_left for n in rows):
        return None
    product = by_rows(epilogue, left, right, rows)
    return _in_parts(product, sums.buffer, inner.initial, (number, term), (counts[0], counts[1]))


def _in_parts(
    product: Contraction,
    sums: Buffer,
    start: Expression,
    variables: tuple[Variable, Variable],
    counts: tuple[int, int],
) -> BlockSums:
    """Return a product with the largest parts of what is added for a block that depend on a row, or a column, alone."""
    value, (number, term), (blocks, block) = product.epilogue.anchor.value, variables, counts
    kind, total = Type(sums.dtype), Variable("total", value.type)
    sum_of_block = Variable("sum", kind)
    rows: dict[Variable, Expression | None] = {}
    columns: dict[Variable, Expression] = {}
    across = {product.axes[axis] for axis in product.every_row}

    def apart(node: Expression) -> Expression:
        if isinstance(node, Load) and node.buffer is sums:
            return sum_of_block
        free, is_sum = free_variables(node), any(one.buffer is sums for one in loads(node))
        is_whole = not isinstance(node, Variable | Constant) and free and not is_sum
        if not is_whole or (product.column in free and free & across):
            return with_children(node, tuple(map(apart, children(node))))
        part = Variable("part", node.type)
        (columns if product.column in free else rows)[part] = node
        return part

    added = Binary("add", total, apart(value))
    return BlockSums(
        product, kind, number, term, blocks, block, start, added, sum_of_block, total, rows, columns
    )  # fmt: skip


def _applies(anchor: Anchor, target: Target) -> Answer:
    return OTHER_FORM if block_scaled_of(anchor.kernel) is None else True


def _build(anchor: Anchor, target: Target) -> Scheduled:
    kernel, sums = anchor.kernel, block_scaled_of(anchor.kernel)
    assert sums is not None, "built only where it applies"
    height = sums.product.height
    tile = choose_tile(USUAL if height == VARIES else max(1, height), sums.width, sums.kind.dtype, target)
    tile = replace(tile, unroll=gcd(sums.block, TERMS))
    if sums.width < tile.lanes:
        tile = replace(tile, vectors=min(sums.width, tile.vectors), lanes=1)
    low = 1 if height == VARIES else tile.rows  # each height of what is widened in tiles is much code
    loops = BlockLoops.of(Reader(sums), tile, max(1, LINE // tile.columns), low, low)
    knobs: dict[str, int | str] = {"rows": tile.rows, "vectors": tile.vectors, "columns": loops.columns}
    return Scheduled(lambda: kernel.function(loops.body()), knobs=knobs)


STRATEGY = Strategy("block_scaled", frozenset({Trait.CONTRACTION}), _build, _applies, varies=None)
