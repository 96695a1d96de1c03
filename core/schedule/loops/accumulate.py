"""Reductions into registers: one accumulator per kept position, or several along a reduced axis."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from graft.core.machine.machine import Machine
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis
from graft.core.schedule.loops.loop_frames import nested
from graft.core.schedule.primitives.step import combine
from graft.core.schedule.primitives.vectorize import broadcast, vectorize_expression
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    BinaryOperator,
    Block,
    Broadcast,
    Buffer,
    Constant,
    Expression,
    For,
    Horizontal,
    Let,
    Load,
    LoopKind,
    Ramp,
    Select,
    Statement,
    Store,
    Variable,
    is_ordered,
)
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64, Type, element_bits, storage_dtype

UNROLL = 16
"""Iterations of reduction axes beside the vector axis that are unrolled (windows of pooling)."""


def finish(stage: FlatStage, total: Expression) -> Statement:
    """Store a reduced value through the epilogue."""
    if stage.epilogue is not None:
        assert stage.epilogue_variable is not None, f"the stage of '{stage.target.name}' has an epilogue of no variable"
        total = substitute(stage.epilogue, {stage.epilogue_variable: total})
    return Store(stage.target, (stage.place,), total)


def _reduction_loops(stage: FlatStage, body: Statement) -> Statement:
    """Return loops over reduction axes; as many inner ones are unrolled as stay small.

    Of a custom datatype none are: the roundings of one term are long code.
    """
    axes = stage.reduced
    first = len(axes)
    if stage.value.type.is_custom:
        return nested(axes, body)
    while first and axes[first - 1].count is None and prod(axis.extent for axis in axes[first - 1 :]) <= UNROLL:
        first -= 1
    return nested(axes[:first], nested(axes[first:], body, "unrolled"))


def reduce_scalar(stage: FlatStage) -> Statement:
    """Reduce one element after another."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    total = Buffer("accumulator", stage.value.type.dtype, (), memory="register")
    step = Store(total, (), Binary(stage.operator, Load(total, ()), stage.value))
    loop = _reduction_loops(stage, step)
    return Allocate(total, Block((Store(total, (), stage.initial), loop, finish(stage, Load(total, ())))))


def _register(buffer: Buffer, number: int, lanes: int) -> tuple[Expression, ...]:
    return (Constant(number, INT64), Ramp(Constant(0, INT64), 1, lanes))


def reduce_inner(stage: FlatStage, axis: LoopAxis, lanes: int, machine: Machine) -> Statement:
    """Reduce along the vector axis into several accumulators, then across their lanes."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    operator = stage.operator
    blocks, rest = divmod(axis.extent, lanes)
    count = max(1, min(machine.costs.latency, blocks))  # side by side they hide the latency of one addition
    places = (Constant(count, INT64), Constant(lanes, INT64))
    registers = Buffer("accumulator", stage.value.type.dtype, places, memory="register")
    neutral = Broadcast(identity_of(operator, stage.value.type), lanes)

    def accumulate(number: int, place: Expression, mask: Expression | None) -> Statement:
        def add(values: dict[Variable, Expression]) -> Statement:
            value = broadcast(vectorize_expression(stage.value, values, mask), lanes)
            if mask is not None:
                value = Select(mask, value, neutral)
            home = _register(registers, number, lanes)
            return Store(registers, home, Binary(operator, Load(registers, home), value))

        return _with_stored(stage, {axis.variable: place}, mask, add)

    inside: list[Statement] = []
    step, rounds = count * lanes, blocks // count
    block = Variable(f"{axis.variable.name}_block")
    if rounds:
        ramps = [Ramp(combine("add", combine("mul", block, step), number * lanes), 1, lanes) for number in range(count)]
        parts = [accumulate(number, ramp, None) for number, ramp in enumerate(ramps)]
        kind: LoopKind = "unrolled" if rounds <= 2 else "serial"
        inside.append(For(block, Constant(rounds, INT64), kind, Block(tuple(parts))))
    for number in range(blocks % count):
        start = (rounds * count + number) * lanes
        inside.append(accumulate(number, Ramp(Constant(start, INT64), 1, lanes), None))
    scalars: list[Statement] = []
    single = Buffer("rest", stage.value.type.dtype, (Constant(1, INT64),), memory="register")
    zero = (Constant(0, INT64),)
    if rest and machine.masks:
        mask = Binary("lt", Ramp(Constant(0, INT64), 1, lanes), Broadcast(Constant(rest, INT64), lanes))
        inside.append(accumulate(count - 1, Ramp(Constant(blocks * lanes, INT64), 1, lanes), mask))
    elif rest:
        position = Variable(axis.variable.name)
        index = Binary("add", position, Constant(blocks * lanes, INT64))

        def add_one(values: dict[Variable, Expression]) -> Statement:
            value = vectorize_expression(stage.value, values)
            return Store(single, zero, Binary(operator, Load(single, zero), value))

        step_one = _with_stored(stage, {axis.variable: index}, None, add_one)
        inside.append(For(position, Constant(rest, INT64), "serial", step_one))
        scalars.append(Store(single, zero, identity_of(operator, stage.value.type)))
    before = [Store(registers, _register(registers, number, lanes), neutral) for number in range(count)]
    others = [other for other in stage.reduced if other is not axis]
    total = Horizontal(
        operator, _combined(operator, [Load(registers, _register(registers, n, lanes)) for n in range(count)])
    )
    result = joined(operator, stage.initial, total)
    if scalars:
        result = joined(operator, result, Load(single, zero))
    loop = nested(others, Block(tuple(inside)))
    body: Statement = Allocate(registers, Block((*scalars, *before, loop, finish(stage, result))))
    return Allocate(single, body) if scalars else body


def _with_stored(
    stage: FlatStage,
    values: dict[Variable, Expression],
    mask: Expression | None,
    body: Callable[[dict[Variable, Expression]], Statement],
) -> Statement:
    """Compute and store what the stage stores beside its reduction; ``body`` gets its variable's value, too."""
    if stage.stored is None:
        return body(values)
    place = vectorize_expression(stage.stored.place, values)
    lanes = place.type.lanes
    value = broadcast(vectorize_expression(stage.stored.value, values, mask), lanes)
    variable = Variable(stage.stored.variable.name, value.type)
    store = Store(stage.stored.target, (place,), variable, mask)
    return Let(variable, value, Block((store, body({**values, stage.stored.variable: variable}))))


def _combined(operator: BinaryOperator, values: list[Expression]) -> Expression:
    """Combine values pairwise."""
    while len(values) > 1:
        pairs = [joined(operator, left, right) for left, right in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]


def joined(operator: BinaryOperator, left: Expression, right: Expression) -> Expression:
    """Return two partial results of one reduction as one.

    Every schedule that splits a reduction joins its parts here, so that none splits one whose terms are ordered.
    """
    assert not is_ordered(operator, left.type), f"partial results of {left.type} are joined: its terms are ordered"
    return Binary(operator, left, right)


def identity_of(operator: BinaryOperator, kind: Type) -> Constant:
    """Return the neutral element of a reduction operator."""
    kind = kind.with_lanes(1)
    if kind.dtype == "bool":
        return Constant(operator in ("and", "min", "mul"), kind)
    if operator in ("add", "or", "xor"):
        return Constant(0.0 if kind.is_float else 0, kind)
    if operator == "mul":
        return Constant(1.0 if kind.is_float else 1, kind)
    if kind.is_float or kind.is_custom:
        return Constant(float("inf") if operator == "min" else float("-inf"), kind)
    bits = element_bits(storage_dtype(kind.dtype))
    low, high = (0, (1 << bits) - 1) if kind.dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return Constant({"min": high, "max": low, "and": high if low == 0 else -1}[operator], kind)
