"""Reductions into registers: one accumulator per kept position, or several along a reduced axis."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis
from graft.core.schedule.loops.loop_frames import nested
from graft.core.schedule.primitives.step import combine
from graft.core.schedule.primitives.vectorize import broadcast, vectorize_expression
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64, Type, element_bits, storage_dtype

UNROLL = 16
"""Iterations of reduction axes beside the vector axis that are unrolled (windows of pooling)."""


def finish(stage: FlatStage, total: ir.Expression) -> ir.Statement:
    """Store a reduced value through the epilogue."""
    if stage.epilogue is not None:
        assert stage.epilogue_variable is not None, f"the stage of '{stage.target.name}' has an epilogue of no variable"
        total = substitute(stage.epilogue, {stage.epilogue_variable: total})
    return ir.Store(stage.target, (stage.place,), total)


def _reduction_loops(stage: FlatStage, body: ir.Statement) -> ir.Statement:
    """Return loops over reduction axes; as many inner ones are unrolled as stay small.

    Of a custom datatype none are: the roundings of one term are long code.
    """
    axes = stage.reduced
    first = len(axes)
    if stage.value.type.is_custom:
        return nested(axes, body)
    while first and axes[first - 1].is_known and prod(axis.extent for axis in axes[first - 1 :]) <= UNROLL:
        first -= 1
    return nested(axes[:first], nested(axes[first:], body, "unrolled"))


def reduce_scalar(stage: FlatStage) -> ir.Statement:
    """Reduce one element after another."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    total = ir.Buffer("accumulator", stage.value.type.dtype, (), memory="register")
    step = ir.Store(total, (), ir.Binary(stage.operator, ir.Load(total, ()), stage.value))
    loop = _reduction_loops(stage, step)
    return ir.Allocate(total, ir.Block((ir.Store(total, (), stage.initial), loop, finish(stage, ir.Load(total, ())))))


def _register(buffer: ir.Buffer, number: int, lanes: int) -> tuple[ir.Expression, ...]:
    return (ir.Constant(number, INT64), ir.Ramp(ir.Constant(0, INT64), 1, lanes))


def reduce_inner(stage: FlatStage, axis: LoopAxis, lanes: int, machine: Machine) -> ir.Statement:
    """Reduce along the vector axis into several accumulators, then across their lanes."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    operator = stage.operator
    blocks = axis.extent // lanes
    count = max(1, min(machine.costs.latency, blocks))  # side by side they hide the latency of one addition
    places = (ir.Constant(count, INT64), ir.Constant(lanes, INT64))
    registers = ir.Buffer("accumulator", stage.value.type.dtype, places, memory="register")
    neutral = ir.Broadcast(identity_of(operator, stage.value.type), lanes)

    def accumulate(number: int, place: ir.Expression, mask: ir.Expression | None) -> ir.Statement:
        def add(values: dict[ir.Variable, ir.Expression]) -> ir.Statement:
            value = broadcast(vectorize_expression(stage.value, values, mask), lanes)
            if mask is not None:
                value = ir.Select(mask, value, neutral)
            home = _register(registers, number, lanes)
            return ir.Store(registers, home, ir.Binary(operator, ir.Load(registers, home), value))

        return _with_stored(stage, {axis.variable: place}, mask, add)

    inside = _whole_vectors(axis, lanes, count, accumulate)
    scalars: list[ir.Statement] = []
    single = ir.Buffer("rest", stage.value.type.dtype, (ir.Constant(1, INT64),), memory="register")
    zero, left = (ir.Constant(0, INT64),), b.modulo(axis.iterations, lanes)
    whole = b.multiply(b.divide(axis.iterations, lanes), lanes)
    if left != b.index(0) and machine.masks:
        mask = ir.Binary("lt", ir.Ramp(ir.Constant(0, INT64), 1, lanes), ir.Broadcast(left, lanes))
        last = accumulate(count - 1, ir.Ramp(whole, 1, lanes), mask)
        inside.append(ir.If(b.greater(left, 0), last) if axis.is_open else last)
    elif left != b.index(0):
        position = ir.Variable(axis.variable.name)
        index = ir.Binary("add", position, whole)

        def add_one(values: dict[ir.Variable, ir.Expression]) -> ir.Statement:
            value = vectorize_expression(stage.value, values)
            return ir.Store(single, zero, ir.Binary(operator, ir.Load(single, zero), value))

        step_one = _with_stored(stage, {axis.variable: index}, None, add_one)
        inside.append(ir.For(position, left, "serial", step_one))
        scalars.append(ir.Store(single, zero, identity_of(operator, stage.value.type)))
    before = [ir.Store(registers, _register(registers, number, lanes), neutral) for number in range(count)]
    others = [other for other in stage.reduced if other is not axis]
    sums: list[ir.Expression] = [ir.Load(registers, _register(registers, number, lanes)) for number in range(count)]
    result = joined(operator, stage.initial, ir.Horizontal(operator, _combined(operator, sums)))
    if scalars:
        result = joined(operator, result, ir.Load(single, zero))
    loop = nested(others, ir.Block(tuple(inside)))
    body: ir.Statement = ir.Allocate(registers, ir.Block((*scalars, *before, loop, finish(stage, result))))
    return ir.Allocate(single, body) if scalars else body


def _whole_vectors(
    axis: LoopAxis, lanes: int, count: int, accumulate: Callable[[int, ir.Expression, None], ir.Statement]
) -> list[ir.Statement]:
    """Return what adds all whole vectors along an axis to ``count`` accumulators in turns."""
    step, block = count * lanes, ir.Variable(f"{axis.variable.name}_block")
    rounds, parts = b.divide(axis.iterations, step), list[ir.Statement]()
    if rounds != b.index(0):
        first = combine("mul", block, step)
        ramps = (ir.Ramp(combine("add", first, number * lanes), 1, lanes) for number in range(count))
        body = ir.Block(tuple(accumulate(number, ramp, None) for number, ramp in enumerate(ramps)))
        kind: ir.LoopKind = "unrolled" if axis.is_known and axis.extent // step <= 2 else "serial"
        parts.append(ir.For(block, rounds, kind, body))
    done = b.multiply(rounds, step)
    if axis.is_open:  # what is left is fewer vectors than there are accumulators: one after the other
        more = ir.Variable(f"{axis.variable.name}_vector")
        ramp = ir.Ramp(b.add(done, b.multiply(more, lanes)), 1, lanes)
        vectors = b.divide(b.subtract(axis.iterations, done), lanes)
        return [*parts, ir.For(more, vectors, "serial", accumulate(0, ramp, None))]
    left = (ir.Ramp(b.add(done, number * lanes), 1, lanes) for number in range(axis.extent // lanes % count))
    return [*parts, *(accumulate(number, ramp, None) for number, ramp in enumerate(left))]


def _with_stored(
    stage: FlatStage,
    values: dict[ir.Variable, ir.Expression],
    mask: ir.Expression | None,
    body: Callable[[dict[ir.Variable, ir.Expression]], ir.Statement],
) -> ir.Statement:
    """Compute and store what the stage stores beside its reduction; ``body`` gets its variable's value, too."""
    if stage.stored is None:
        return body(values)
    place = vectorize_expression(stage.stored.place, values)
    lanes = place.type.lanes
    value = broadcast(vectorize_expression(stage.stored.value, values, mask), lanes)
    variable = ir.Variable(stage.stored.variable.name, value.type)
    store = ir.Store(stage.stored.target, (place,), variable, mask)
    return ir.Let(variable, value, ir.Block((store, body({**values, stage.stored.variable: variable}))))


def _combined(operator: ir.BinaryOperator, values: list[ir.Expression]) -> ir.Expression:
    """Combine values pairwise."""
    while len(values) > 1:
        pairs = [joined(operator, left, right) for left, right in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]


def joined(operator: ir.BinaryOperator, left: ir.Expression, right: ir.Expression) -> ir.Expression:
    """Return two partial results of one reduction as one.

    Every schedule that splits a reduction joins its parts here, so that none splits one whose terms are ordered.
    """
    assert not ir.is_ordered(operator, left.type), f"partial results of {left.type} are joined: its terms are ordered"
    return ir.Binary(operator, left, right)


def identity_of(operator: ir.BinaryOperator, kind: Type) -> ir.Constant:
    """Return the neutral element of a reduction operator."""
    kind = kind.with_lanes(1)
    if kind.dtype == "bool":
        return ir.Constant(operator in ("and", "min", "mul"), kind)
    if operator in ("add", "or", "xor"):
        return ir.Constant(0.0 if kind.is_float else 0, kind)
    if operator == "mul":
        return ir.Constant(1.0 if kind.is_float else 1, kind)
    if kind.is_float or kind.is_custom:
        return ir.Constant(float("inf") if operator == "min" else float("-inf"), kind)
    bits = element_bits(storage_dtype(kind.dtype))
    low, high = (0, (1 << bits) - 1) if kind.dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return ir.Constant({"min": high, "max": low, "and": high if low == 0 else -1}[operator], kind)
