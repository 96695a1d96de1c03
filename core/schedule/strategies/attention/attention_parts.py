"""Attention taken apart: the product of queries and keys, what follows it up to Softmax, and the other product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.flat_stages import constant_extent, stride
from graft.core.schedule.loops.inline import inline_into, permuted, stage_expressions
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, indexed_by_axes
from graft.core.tensor_ir.ir import Binary, Buffer, Constant, Expression, Load, Select, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import free_variables, loads

FLOATS = ("float32", "float64")
OPERATORS = ["add", "max", "add", "add"]
"""The reductions of attention: scores, the largest of a row, the sum of a row, the product with the values."""


@dataclass(frozen=True, slots=True)
class AttentionStages:
    """The stages of attention by what they are for: two products with Softmax between them.

    ``scores`` is ``[outer..., queries, keys]``, its last follower the input of Softmax; ``values`` is ``[outer...,
    queries, features]``, its left factor the output of Softmax. Axis ``i`` of ``output`` is axis ``order[i]`` of
    ``values``.
    """

    scores: Epilogue
    values: Epilogue
    weights: Buffer
    """The output of Softmax."""
    output: Buffer
    order: tuple[int, ...]
    empty_is_zero: bool
    """Whether a query whose scores are all minus infinity gets a result of 0; else of NaN."""
    nan_is_zero: bool
    """Whether all weights of a query are 0 where they would be NaN."""


def attention_stages(kernel: Kernel) -> AttentionStages | None:
    """Return a kernel's stages by what they are for, or None if they are not in the order and form of attention.

    That the stages between the products are those of Softmax along the last axis is promised by the kernel's anchor.
    """
    stages = kernel.stages
    sums = [number for number, stage in enumerate(stages) if stage.reduction is not None]
    if [_operator(stages[number]) for number in sums] != OPERATORS or len(kernel.outputs) != 1:
        return None
    first, top, total, last = sums
    if total != top + 1 or last < total + 2:
        return None
    producers: dict[Buffer, Stage] = {}
    for stage in stages[:first]:
        producers[stage.buffer] = inline_into(stage, producers)
    anchor, *followers = (inline_into(stage, producers) for stage in stages[first:top])
    scores = _epilogue((anchor, *(indexed_by_axes(stage, anchor.buffer) for stage in followers)))
    weights = stages[total + 1].buffer
    for stage in stages[total + 2 : last]:
        producers[stage.buffer] = inline_into(stage, producers)
    product, nan_is_zero = _weighting(inline_into(stages[last], producers), weights)
    values = _epilogue((product,))
    order = _order(stages[last:], kernel.outputs[0])
    if scores is None or values is None or order is None or not _reads_only(stages[top], scores.last):
        return None
    empty_is_zero = stages[top].epilogue is not None
    return AttentionStages(scores, values, weights, kernel.outputs[0], order, empty_is_zero, nan_is_zero)


@dataclass(frozen=True, slots=True)
class FactoredProduct:
    """One of the products: ``left`` depends on the rows, ``right`` on the columns, its last two axes."""

    epilogue: Epilogue
    left: Expression
    right: Expression
    term: Variable
    terms: Expression

    @property
    def extents(self) -> tuple[Expression, ...]:
        """The extents of the result."""
        return self.epilogue.anchor.buffer.shape

    @property
    def axes(self) -> tuple[Variable, ...]:
        """One variable per axis of the result."""
        return self.epilogue.anchor.axes

    def at_head(self, outer: Sequence[Expression]) -> dict[Variable, Expression]:
        """Return the places ``outer`` of a head by the axes that stand before rows and columns."""
        return dict(zip(self.axes[:-2], outer, strict=True))


def factored(epilogue: Epilogue) -> FactoredProduct | None:
    """Return a product of matrices of any extents by its factors; None of others."""
    stage = epilogue.anchor
    factors = factors_of(stage)
    if factors is None or factors[2] or stage.reduction is None or len(stage.reduction.axes) != 1:
        return None
    if len(stage.axes) < 2 or epilogue.branches or epilogue.picks or stage.value.type.dtype not in FLOATS:
        return None
    left, right, _ = factors
    *_, row, column = stage.axes
    if column in free_variables(left):
        left, right = right, left
    if column in free_variables(left) or row in free_variables(right):
        return None
    (axis,) = stage.reduction.axes
    return FactoredProduct(epilogue, left, right, axis.variable, axis.extent)


def lie_along_vectors(scores: FactoredProduct, values: FactoredProduct, lanes: int) -> bool:
    """Whether queries and keys lie along the terms, and values along the features, in whole vectors."""
    pairs = (scores.left, scores.term), (scores.right, scores.term), (values.right, values.axes[-1])
    found = [(load, variable) for factor, variable in pairs for load in loads(factor)]
    return constant_extent(scores.terms) % lanes == 0 and all(
        load.mask is None and stride(load.indices[-1], place, Simplifier()) == 1 for load, place in found
    )


def _weighting(product: Stage, weights: Buffer) -> tuple[Stage, bool]:
    """Return a product with the weights where its factor chooses 0 for those that are NaN, and whether it does."""

    def plain(factor: Expression) -> Expression:
        match factor:
            case Select(Binary("ne", left, right), Constant(0), Load(buffer) as kept) if buffer is weights:
                return kept if left == right == kept else factor
        return factor

    match product.value:
        case Binary("mul", left, right):
            factors = plain(left), plain(right)
            changed = factors != (left, right)
            return (replace(product, value=Binary("mul", *factors)), True) if changed else (product, False)
    return product, False


def _operator(stage: Stage) -> str:
    return "" if stage.reduction is None else stage.reduction.operator


def _epilogue(stages: Sequence[Stage]) -> Epilogue | None:
    return epilogue_of(stages, (stages[-1].buffer,))


def is_weighted(left: Expression, term: Variable, stages: AttentionStages) -> bool:
    """Whether the left factor of the product with the values is the output of Softmax at (outer..., row, term)."""
    if not isinstance(left, Load) or left.buffer is not stages.weights or left.mask is not None:
        return False
    anchor = stages.values.anchor
    expected = (*anchor.axes[:-1], term)
    pairs = zip(left.indices, expected, (*anchor.buffer.shape[:-1], b.index(0)), strict=True)
    return all(index is axis or extent == b.index(1) for index, axis, extent in pairs)


def _reads_only(stage: Stage, buffer: Buffer) -> bool:
    return all(load.buffer is buffer for load in loads(*stage_expressions(stage)))


def _order(stages: Sequence[Stage], output: Buffer) -> tuple[int, ...] | None:
    """Which axis of the product each axis of the output is; None if more follows than a transposition."""
    product, *rest = stages
    if not rest:
        return tuple(range(len(product.axes))) if product.buffer is output else None
    return permuted(rest[0], product) if len(rest) == 1 and rest[0].buffer is output else None
