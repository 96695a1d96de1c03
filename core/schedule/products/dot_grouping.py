"""Sums of products of small numbers as sums of dot products: terms in groups that share a 32-bit word.

``sum over k of (x - a) * (y - b)`` with bytes ``x``, ``y`` becomes a sum over groups of four terms of ``dot4_u8s8``,
started from ``terms * a * b - b * sum of x - a * sum of y``; in bfloat16, groups of two and ``dot2_bf16``. The result
is again a stage, and means the same: a schedule sees a product of packed operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.narrowing import rounded
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import weakened
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import free_variables, loads, substitute
from graft.core.types import Type

PACKED_DTYPE = "int32"
PAIRS = "pairs_s16"
"""The instruction that multiplies 16-bit numbers and adds neighbouring products."""
BYTES = {"uint8": 128, "int8": -128}
"""By type: what an element grows by when its highest bit is flipped and it is read as this type, not the other."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of a product: its small elements, and the int32 that is subtracted from each (None: nothing)."""

    value: ir.Expression
    point: ir.Expression | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """What the start of a sum reads: by ``stages``, the last of which fills ``buffer``, over some of the anchor's axes.

    ``factor`` (0 or 1) is the operand of the dot product that it sums. With ``constants``, it is known at compile time.
    """

    buffer: ir.Buffer
    axes: tuple[int, ...]
    factor: int
    stages: tuple[ir.Stage, ...]
    constants: Mapping[ir.Buffer, np.ndarray] | None = None

    def contents(self) -> np.ndarray:
        """Return what is known at compile time."""
        assert self.constants is not None, f"'{self.buffer.name}' is computed at run time"
        return run_stages(self.stages, self.constants)[self.stages[-1].buffer]


@dataclass(frozen=True, slots=True)
class Grouped:
    """An anchor over packed operands, the sums that its initial value reads, and the small elements behind them."""

    anchor: ir.Stage
    sums: tuple[Sum, ...]
    factors: tuple[Factor, Factor]
    variable: ir.Variable
    """The reduction's variable, of which the elements speak and groups were made."""


def group(stage: ir.Stage, constants: Mapping[ir.Buffer, np.ndarray], target: Target) -> Grouped | None:
    """Return a sum over packed operands where the factors, or the target's precision, allow it, else None."""
    grouped = group_bytes(stage, constants, widens=multiplies_pairs(target))
    return grouped or (group_bfloat16(stage) if target.precision == "bf16" else None)


def multiplies_pairs(target: Target) -> bool:
    """Whether bytes are best multiplied as 16-bit numbers, two by two."""
    return not target.machine.has("dot4_u8s8") and target.machine.has(PAIRS)


def group_bytes(stage: ir.Stage, constants: Mapping[ir.Buffer, np.ndarray], *, widens: bool = False) -> Grouped | None:
    """Return an int32 sum of products of bytes as a sum of ``dot4_u8s8``; None if it is not one.

    With ``widens`` bytes become 16-bit numbers when they are packed, and it is a sum of ``dot2_s16``: a processor that
    multiplies no bytes then has nothing to take apart.
    """
    factors = _product(stage)
    if factors is None or stage.value.type.dtype != "int32" or stage.reduction is None:
        return None
    inner = {axis.variable for axis in stage.reduction.axes}
    sides = [small_factor(factor) for factor in factors]
    found = [side for side in sides if side is not None and not inner & free_variables(*_optional(side.point))]
    if len(found) != 2:
        return None
    unsigned, signed = found
    if widens:
        wide = (
            replace(unsigned, value=b.cast(unsigned.value, "int16")),
            replace(signed, value=b.cast(signed.value, "int16")),
        )
        return _grouped(stage, "dot2_s16", wide, constants)
    if unsigned.value.type.dtype == "int8" and signed.value.type.dtype == "uint8":
        unsigned, signed = signed, unsigned
    elif unsigned.value.type == signed.value.type:
        if _is_constant(unsigned.value, constants) == (unsigned.value.type.dtype == "int8"):
            unsigned, signed = signed, unsigned
        if unsigned.value.type.dtype == "int8":
            unsigned = flipped(unsigned)
        else:
            signed = flipped(signed)
    return _grouped(stage, "dot4_u8s8", (unsigned, signed), constants)


def group_bfloat16(stage: ir.Stage) -> Grouped | None:
    """Return a float32 sum of products as a sum of ``dot2_bf16`` of the rounded factors; None if it is not one."""
    factors = _product(stage)
    if factors is None or stage.value.type.dtype != "float32" or stage.reduction is None:
        return None
    left, right = (Factor(rounded(factor)) for factor in factors)
    return _grouped(stage, "dot2_bf16", (left, right), {})


def _product(stage: ir.Stage) -> tuple[ir.Expression, ir.Expression] | None:
    factors = factors_of(stage)
    if factors is None or factors[2] or stage.reduction is None or not stage.reduction.axes:
        return None
    return factors[:2]


def small_factor(factor: ir.Expression) -> Factor | None:
    """Return an int32 expression as bytes less a zero point; None if it is not of that form."""
    match factor:
        case ir.Cast(value, "int32") if value.type.dtype in BYTES:
            return Factor(value)
        case ir.Binary("sub", ir.Cast(value, "int32"), point) if value.type.dtype in BYTES:
            return Factor(value, None if is_zero(point) else point)
        case ir.Select(condition, inside, outside) if is_zero(outside):
            inner = small_factor(inside)
            if inner is None:
                return None
            padding = as_byte(inner.point, inner.value.type.dtype)
            return None if padding is None else replace(inner, value=ir.Select(condition, inner.value, padding))
    return None


def as_byte(point: ir.Expression | None, dtype: str) -> ir.Expression | None:
    """Return a zero point as a byte of its own type, None if it may be out of range."""
    if point is None:
        return ir.Constant(0, Type(dtype))
    if isinstance(point, ir.Cast) and point.value.type.dtype == dtype:
        return point.value
    low = 0 if dtype == "uint8" else -128
    known = isinstance(point, ir.Constant) and low <= point.value < low + 256
    return ir.Constant(int(point.value), Type(dtype)) if known and isinstance(point, ir.Constant) else None


def is_zero(value: ir.Expression) -> bool:
    """Whether an expression is the number 0, cast or not."""
    while isinstance(value, ir.Cast):
        value = value.value
    return isinstance(value, ir.Constant) and value.value == 0


def flipped(factor: Factor) -> Factor:
    """Return a factor with its bytes in the other type, its zero point shifted as they are."""
    dtype = factor.value.type.dtype
    other = "int8" if dtype == "uint8" else "uint8"
    bits = ir.Bitcast(factor.value, "uint8") if dtype == "int8" else factor.value
    flipped: ir.Expression = ir.Binary("xor", bits, ir.Constant(128, Type("uint8")))
    point = b.constant(0, PACKED_DTYPE) if factor.point is None else factor.point
    moved = simplify(b.add(point, BYTES[other]))
    return Factor(ir.Bitcast(flipped, other) if other == "int8" else flipped, None if is_zero(moved) else moved)


def _optional(value: ir.Expression | None) -> tuple[ir.Expression, ...]:
    return () if value is None else (value,)


def _is_constant(value: ir.Expression, constants: Mapping[ir.Buffer, np.ndarray]) -> bool:
    return all(load.buffer in constants for load in loads(value))


def _grouped(
    stage: ir.Stage, name: str, factors: tuple[Factor, Factor], constants: Mapping[ir.Buffer, np.ndarray]
) -> Grouped | None:
    reduction, dot = stage.reduction, DOTS[name]
    assert reduction is not None
    extents = [int(axis.extent.value) if isinstance(axis.extent, ir.Constant) else 0 for axis in reduction.axes]
    if 0 in extents:
        return None
    # The axis whose last group is fullest; the innermost of those.
    waste = [-(-extent // dot.width) * dot.width / extent for extent in extents]
    chosen = max(range(len(extents)), key=lambda number: (-waste[number], number))
    variable, extent = reduction.axes[chosen].variable, extents[chosen]
    group = ir.Variable(variable.name)
    packed = [packed_operand(factor.value, variable, group, extent, dot.width) for factor in factors]
    zero = b.constant(0, dot.total)
    operands = (zero, ir.Bitcast(packed[0], dot.left), ir.Bitcast(packed[1], dot.right))
    axes = list(reduction.axes)
    axes[chosen] = ir.Axis(group, b.index(-(-extent // dot.width)))
    initial, sums = _start(stage, factors, int(np.prod(extents)), constants)
    changed = ir.Reduction("add", tuple(axes), initial)
    value = ir.Intrinsic(name, operands, Type(dot.total))
    return Grouped(
        replace(stage, value=value, reduction=changed, structure=weakened(stage.structure)), sums, factors, variable
    )


def packed_operand(
    value: ir.Expression, variable: ir.Variable, group: ir.Expression, extent: int, width: int
) -> ir.Expression:
    """Return the int32 that holds elements ``width * group ...`` of a small type, zeros past ``extent``."""
    bits = 32 // width
    result: ir.Expression | None = None
    for number in range(width):
        place = b.add(b.multiply(group, width), number)
        is_cut = extent % width and number >= extent % width
        at = b.minimum(place, extent - 1) if is_cut else place
        element = substitute(value, {variable: at})
        if element.type.dtype != f"uint{bits}":
            element = ir.Bitcast(element, f"uint{bits}")
        if is_cut:
            element = b.select(b.less(place, extent), element, 0)
        shifted = b.cast(element, PACKED_DTYPE)
        if number:
            shifted = b.binary("shl", shifted, number * bits)
        result = shifted if result is None else b.binary("or", result, shifted)
    assert result is not None
    return result


def _start(
    stage: ir.Stage, factors: tuple[Factor, Factor], terms: int, constants: Mapping[ir.Buffer, np.ndarray]
) -> tuple[ir.Expression, tuple[Sum, ...]]:
    """Return what the sum of products of plain elements starts from, and the sums of elements that this reads."""
    assert stage.reduction is not None
    start = stage.reduction.initial
    sums: list[Sum] = []
    for number, factor in enumerate(factors):
        point = factors[1 - number].point
        if point is None:
            continue
        sums.append(_sum(stage, factor.value, number, constants))
        own = b.load(sums[-1].buffer, *(stage.axes[axis] for axis in sums[-1].axes))
        start = b.subtract(start, b.multiply(point, own))
    first, second = (factor.point for factor in factors)
    if first is not None and second is not None:
        start = b.add(start, b.multiply(b.multiply(first, second), terms))
    if len(sums) == 1 and sums[0].constants is not None:
        folded = _folded(stage, start, sums[0], constants)
        if folded is not None:
            return folded
    return start, tuple(sums)


def _sum(stage: ir.Stage, value: ir.Expression, number: int, constants: Mapping[ir.Buffer, np.ndarray]) -> Sum:
    assert stage.reduction is not None
    free = free_variables(value)
    axes = tuple(number for number, axis in enumerate(stage.axes) if axis in free)
    own = {stage.axes[axis]: ir.Variable(stage.axes[axis].name) for axis in axes}
    inner = {axis.variable: ir.Variable(axis.variable.name) for axis in stage.reduction.axes}
    buffer = ir.Buffer(f"sum{number}", PACKED_DTYPE, tuple(stage.buffer.shape[axis] for axis in axes))
    summed = ir.Cast(substitute(value, {**own, **inner}), PACKED_DTYPE)
    loops = tuple(ir.Axis(inner[axis.variable], axis.extent) for axis in stage.reduction.axes)
    result = ir.Stage(buffer, tuple(own.values()), summed, ir.Reduction("add", loops, b.constant(0, PACKED_DTYPE)))
    read = {load.buffer: constants[load.buffer] for load in loads(value) if load.buffer in constants}
    return Sum(buffer, axes, number, (result,), read if _is_constant(value, constants) else None)


def _folded(
    stage: ir.Stage, start: ir.Expression, own: Sum, constants: Mapping[ir.Buffer, np.ndarray]
) -> tuple[ir.Expression, tuple[Sum, ...]] | None:
    """Return a start that is one load of what is computed at compile time; None if it is not all constant."""
    known = {own.buffer, *constants}
    axes = [stage.axes[axis] for axis in own.axes]
    if not all(load.buffer in known for load in loads(start)) or not free_variables(start) <= set(axes):
        return None
    fresh = {axis: ir.Variable(axis.name) for axis in axes}
    buffer = ir.Buffer("start", PACKED_DTYPE, own.buffer.shape)
    whole = ir.Stage(buffer, tuple(fresh.values()), substitute(start, fresh))
    read = {load.buffer for one in (*own.stages, whole) for load in loads(one.value)}
    contents = {source: array for source, array in constants.items() if source in read}
    return b.load(buffer, *axes), (Sum(buffer, own.axes, own.factor, (*own.stages, whole), contents),)
