"""Operators whose output is the input's bytes under another shape.

A backend may make them views; their lowering is the copy that does the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from graft.core.affine.equations import Equation
from graft.core.affine.expressions import add, maximum, multiply, subtract
from graft.core.graph.view import COPIES_ZERO, NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.adjoint import reshaped, unchanged
from graft.core.operators.definition.cost import free
from graft.core.operators.definition.facts import Facts
from graft.core.operators.definition.shape_rules import LIKE_FIRST, like, same
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import Lowering, Trait, define
from graft.core.operators.elementwise import derivatives as derivative
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import stated_extents as claims
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Expression, Stage

VIEW = frozenset({Trait.VIEW, Trait.INJECTIVE})


def matching_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[range, range]]:
    """Split two shapes of equal size into the shortest runs of dimensions with equal products.

    ``(2, 3, 4)`` and ``(6, 4)`` give ``[(0:2, 0:1), (2:3, 1:2)]``.
    """
    groups = []
    i = j = 0
    while i < len(source) or j < len(target):
        start_i, start_j = i, j
        left = source[i] if i < len(source) else 1
        right = target[j] if j < len(target) else 1
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while left != right:
            if left < right:
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        groups.append((range(start_i, i), range(start_j, j)))
    return groups


def reshaped_indices(
    axes: Sequence[Expression], target: Sequence[b.Extent], source: Sequence[b.Extent]
) -> list[Expression]:
    """Return the index into an array of shape ``source`` of element ``axes`` of the same array as ``target``."""
    known, wanted = ([one for one in shape if isinstance(one, int)] for shape in (source, target))
    if len(known) < len(source) or len(wanted) < len(target):
        return _varying_indices(axes, target, source)
    return _static_indices(axes, wanted, known)


def _varying_indices(
    axes: Sequence[Expression], target: Sequence[b.Extent], source: Sequence[b.Extent]
) -> list[Expression]:
    """The same for extents that are known only when a kernel runs: by the number of the element.

    What both shapes begin and end with stays as it is.
    """
    least = min(len(target), len(source))
    first = next((place for place in range(least) if target[place] != source[place]), least)
    if first or (least and target[-1] == source[-1]):
        rest = least - first
        last = next((place for place in range(rest) if target[-1 - place] != source[-1 - place]), rest)
        inner = [shape[first : len(shape) - last] for shape in (target, source)]
        middle = reshaped_indices(axes[first : len(target) - last], *inner)
        return [*axes[:first], *middle, *axes[len(target) - last :]]
    flat: Expression = b.index(0)
    for axis, extent in zip(axes, target, strict=True):
        flat = b.add(b.multiply(flat, extent), axis)
    indices: list[Expression] = []
    for dimension, extent in enumerate(source):
        below = b.product_of(source[dimension + 1 :])
        position = b.divide(flat, below)
        indices.append(b.index(0) if extent == 1 else b.modulo(position, extent) if dimension else position)
    return indices


def _static_indices(axes: Sequence[Expression], target: Sequence[int], source: Sequence[int]) -> list[Expression]:
    if math.prod(target) == 0:
        return [b.index(0) for _ in source]
    indices: list[Expression] = []
    for of_source, of_target in matching_groups(source, target):
        extents = [target[dimension] for dimension in of_target]
        flat: Expression = b.index(0)
        for dimension, extent in zip(of_target, extents, strict=True):
            flat = flat if extent == 1 else b.add(b.multiply(flat, extent), axes[dimension])
        indices += unflatten(flat, [source[dimension] for dimension in of_source])
    return indices


def unflatten(flat: Expression, extents: Sequence[int]) -> list[Expression]:
    """Return the indices of element number ``flat`` of an array of shape ``extents``."""
    indices: list[Expression] = []
    rest = math.prod(extents)
    whole = rest
    for extent in extents:
        before, rest = rest, rest // extent
        position = b.divide(flat, rest)
        wraps = extent != 1 and before != whole
        indices.append(b.index(0) if extent == 1 else b.modulo(position, extent) if wraps else position)
    return indices


def lower_view(lowering: Lowering) -> tuple[Stage, ...]:
    """Lower to one stage that copies."""
    source, target = lowering.input(0), lowering.output()
    shapes = b.extents(target), b.extents(source)
    return (b.compute(target, lambda axes: b.load(source, *reshaped_indices(axes, *shapes))),)


def _reshape_demands(node: NodeView) -> Iterator[Equation]:
    """The result has the elements of the input, and an extent that is computed as 0 copies nothing but 0.

    Of an input with elements the former says the latter. One without is reshaped by ONNX where another such extent
    copies a 0, or one is inferred; where there is none ONNX refuses, and the 0 stays.
    """
    before, after = demand.operands(node, 0), demand.results(node, 0)
    if before is None or after is None:
        return
    yield from demand.equation(demand.elements(before), demand.elements(after))
    source, target = node.input(0), node.input(1)
    before_derived = node.node.metadata_props.get(COPIES_ZERO)
    if (
        (node.attribute("allowzero", 0) and before_derived is None)
        or source is None
        or target is None
        or target.is_constant
    ):
        return
    sides = enumerate(zip(before, after, strict=False))
    pairs = {place: (one, other) for place, (one, other) in sides if one is not None and other is not None}
    inferred = int(before_derived) if before_derived else None
    for place, (own, extent) in pairs.items():
        both_zero = [subtract(1, add(*pair)) for axis, pair in pairs.items() if axis != place]
        if (both_zero or inferred is not None) and place != inferred:
            copied = multiply(own, maximum(subtract(1, extent), 0))
            copied = copied if inferred is not None else multiply(copied, maximum(*both_zero, 0))
            says = (f"a computed 0 copies axis {place} of '{source.name}', which is ", " and not ",
                    "; set allowzero to 1 to keep the 0")  # fmt: skip
            yield Equation(copied, 0, "at most", says)


def _squeeze_demands(node: NodeView) -> Iterator[Equation]:
    for axis in demand.numbers_in(node, 1) or ():
        yield from demand.counted(0, axis, 1)(node)


def _keeps_shape(facts: Facts) -> bool:
    return facts.keeps_shape


_add = partial(
    define, traits=VIEW | {Trait.DATA_MOVEMENT}, lower=lower_view, cost=free, contents=contents.reshaped,
    identity=_keeps_shape,
)  # fmt: skip
_add("Reshape", shapes=shapes.reshape, demands=_reshape_demands, vjp=reshaped, stated=Stated(claims.reshape))
_add("Flatten", shapes=shapes.flatten, vjp=reshaped, attributes=(check.axis(past=1),))
_add(
    "Squeeze", shapes=shapes.squeeze, demands=_squeeze_demands, attributes=(check.axes(1),),
    stated=Stated(claims.squeeze), vjp=reshaped,
)  # fmt: skip
_add(
    "Unsqueeze", shapes=shapes.unsqueeze, attributes=(check.axes(1, more=True),), stated=Stated(claims.unsqueeze),
    vjp=reshaped,
)  # fmt: skip
_add("Identity", shapes=LIKE_FIRST, contents=same, identity=lambda facts: True, vjp=unchanged)


def _lower_dropout(lowering: Lowering) -> tuple[Stage, ...]:
    mask = lowering.optional_output(1)
    return lower_view(lowering) + (() if mask is None else (b.compute(mask, lambda _: b.constant(True, "bool")),))


def _accept_dropout(node: NodeView) -> Reject | None:
    training = node.input(2)
    if training is None:
        return None
    if training.constant is None:
        return Reject("constant-required", "training_mode of Dropout is computed at run time")
    if training.constant.any():
        return Reject("attribute", "Dropout in training mode is random")
    return None


def _is_inference(facts: Facts) -> bool:
    return _accept_dropout(facts.view) is None


define(
    "Dropout", VIEW, _lower_dropout, free, _accept_dropout, shapes=like(0, 0), identity=_is_inference,
    vjp=derivative.dropped,
)  # fmt: skip
