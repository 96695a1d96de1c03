"""Attention taken apart: the product of queries and keys, what follows it up to Softmax, and the other product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import inline_into, permuted, stage_expressions
from graft.core.schedule.products.epilogue import epilogue_of, indexed_by_axes
from graft.core.schedule.products.product_axes import Contraction, analyse
from graft.core.tensor_ir.ir import Buffer, Load, Stage
from graft.core.tensor_ir.visit import loads

OPERATORS = ["add", "max", "add", "add"]
"""The reductions of attention: scores, the largest of a row, the sum of a row, the product with the values."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Two products with Softmax between them.

    ``scores`` is ``[outer..., queries, keys]``, its last follower the input of Softmax; ``values`` is ``[outer...,
    queries, features]``, its left factor the output of Softmax. Axis ``i`` of ``output`` is axis ``order[i]`` of
    ``values``.
    """

    scores: Contraction
    values: Contraction
    output: Buffer
    order: tuple[int, ...]
    empty_is_zero: bool
    """Whether a query whose scores are all minus infinity gets a result of 0; else of NaN."""


def analyse_attention(kernel: Kernel) -> Attention | None:
    """Take a kernel of attention apart, or return None if its stages are not in the order and form of one.

    That the stages between the products are those of Softmax along the last axis is promised by the kernel's anchor.
    """
    stages = kernel.stages
    sums = [number for number, stage in enumerate(stages) if stage.reduction is not None]
    if [_operator(stages[number]) for number in sums] != OPERATORS or len(kernel.outputs) != 1:
        return None
    first, top, total, last = sums
    if total != top + 1 or last != total + 2:
        return None
    producers: dict[Buffer, Stage] = {}
    for stage in stages[:first]:
        producers[stage.buffer] = inline_into(stage, producers)
    anchor, *followers = (inline_into(stage, producers) for stage in stages[first:top])
    scores = _product((anchor, *(indexed_by_axes(stage, anchor.buffer) for stage in followers)))
    values = _product((inline_into(stages[last], producers),))
    order = _order(stages[last:], kernel.outputs[0])
    if scores is None or values is None or order is None:
        return None
    weights = stages[last - 1].buffer
    if not _is_weighted(values, weights) or not _reads_only(stages[top], scores.epilogue.last):
        return None
    return Attention(scores, values, kernel.outputs[0], order, stages[top].epilogue is not None)


def _operator(stage: Stage) -> str:
    return "" if stage.reduction is None else stage.reduction.operator


def _product(stages: Sequence[Stage]) -> Contraction | None:
    """The product of matrices that ends at the last stage; its rows and columns are the last two axes."""
    epilogue = epilogue_of(stages, (stages[-1].buffer,))
    parts = None if epilogue is None else analyse(epilogue)
    if parts is None or len(parts.depth) != 1:
        return None
    rank = len(parts.shape)
    return parts if (parts.rows, parts.columns) == (rank - 2, rank - 1) else None


def _is_weighted(values: Contraction, weights: Buffer) -> bool:
    """Whether the left factor is the output of Softmax at (outer..., row, term)."""
    left = values.left
    if not isinstance(left, Load) or left.buffer is not weights or left.mask is not None:
        return False
    expected = (*values.axes[:-1], values.depth[0].variable)
    pairs = zip(left.indices, expected, (*values.shape[:-1], 0), strict=True)
    return all(index is axis or extent == 1 for index, axis, extent in pairs)


def _reads_only(stage: Stage, buffer: Buffer) -> bool:
    return all(load.buffer is buffer for load in loads(*stage_expressions(stage)))


def _order(stages: Sequence[Stage], output: Buffer) -> tuple[int, ...] | None:
    """Which axis of the product each axis of the output is; None if more follows than a transposition."""
    product, *rest = stages
    if not rest:
        return tuple(range(len(product.axes))) if product.buffer is output else None
    return permuted(rest[0], product) if len(rest) == 1 and rest[0].buffer is output else None
