"""Loop nests for one flat stage: which axis becomes vectors, what the accumulators are, what runs in parallel.

Choices come from one cost model (`choose_axis`): what an access costs when an axis becomes vectors depends on its
stride along that axis only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from graft.core.schedule.flat import FlatStage, LoopAxis, accesses, collapse_own, delinearize, stride
from graft.core.schedule.vectorize import broadcast, vectorize_expression
from graft.core.target import Target
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
    Intrinsic,
    Let,
    Load,
    LoopKind,
    Ramp,
    Select,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.rewrite import Simplifier
from graft.core.tensor_ir.visit import children, walk_expressions
from graft.core.types import INT64, Type, element_bits, storage_dtype

SERIAL_WORK = 16384
"""Element operations below which threads cost more than they bring."""
TASKS = 32
"""Iterations that a parallel loop should have at least, so that threads share the work evenly."""
ACCUMULATORS = 4
"""Vectors that a reduction accumulates into side by side, which hides the latency of one addition."""
UNROLL = 16
"""Iterations of reduction axes beside the vector axis that are unrolled (windows of pooling)."""
INTRINSIC_WORK = 15

VectorBody = Callable[[Expression, "Expression | None"], Statement]
"""Makes a statement for a vector (or scalar) of positions along an axis and a mask."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """What vectors a target has: bytes of a register, and whether lanes can be switched off cheaply."""

    bytes: int
    masks: bool

    @staticmethod
    def of(target: Target) -> Vectors:
        """Return the vectors of a target."""
        return Vectors(target.vector_bytes, "avx512f" in target.features)

    def lanes(self, stage: FlatStage) -> int:
        """Return the lanes for a stage: as many of its widest data elements as a register holds; 1 if none can be."""
        nodes = list(walk_expressions(*stage.expressions))
        if any(isinstance(node, Intrinsic) and not node.name.isalnum() for node in nodes):
            return 1
        dtypes = {node.buffer.dtype for node in nodes if isinstance(node, Load)} | {stage.target.dtype}
        data = {max(4 if dtype in ("float16", "bfloat16") else 1, element_bits(dtype) // 8) for dtype in dtypes}
        widest = max({size for size in data if size < 8} or data)
        return max(1, min(32, self.bytes // widest))


def nest(stage: FlatStage, simplifier: Simplifier, vectors: Vectors, parallel: bool) -> Statement:
    """Return the loops that compute a stage; ``parallel`` allows threads."""
    stage = collapse_own(stage, simplifier)
    axis = choose_axis(stage, simplifier, vectors.lanes(stage))
    outer = tuple(other for other in stage.axes if other is not axis)
    threads = parallel and work(stage) >= SERIAL_WORK
    if axis is None:
        body = _scalar(stage) if stage.operator is None else _reduce_scalar(stage)
        return outer_loops(outer, body, threads)
    lanes = vectors.lanes(stage)
    if axis in stage.reduced:
        return outer_loops(outer, _reduce_inner(stage, axis, lanes, vectors), threads)
    if stage.operator is not None:
        make, step = _kept_accumulators(stage, axis), lanes * ACCUMULATORS
        if axis.extent < step:
            step = -(-axis.extent // lanes) * lanes
        return _along_parallel(outer, axis, lanes, step, vectors, lambda places: make(places), threads)
    return _along_parallel(outer, axis, lanes, lanes, vectors, lambda places: _map(stage, axis, places), threads)


def work(stage: FlatStage) -> int:
    """Return the number of element operations of a stage."""
    size = prod(axis.extent for axis in (*stage.axes, *stage.reduced))
    return size * max(1, operations(*stage.expressions))


def operations(*expressions: Expression) -> int:
    """Return the number of operations on data in expressions; index arithmetic is not counted."""
    seen: set[int] = set()
    count = 0
    stack = list(expressions)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Load):
            count += 1
            continue
        if isinstance(node, Intrinsic):
            count += 1 if node.name == "fma" else INTRINSIC_WORK
        elif children(node):
            count += 1
        stack.extend(children(node))
    return count


# ---- The choice of the vector axis --------------------------------------------------------------------------------


def choose_axis(stage: FlatStage, simplifier: Simplifier, lanes: int) -> LoopAxis | None:
    """Return the axis whose vectors make the stage cheapest, None if scalar code is as good."""
    if lanes == 1:
        return None
    amount = operations(*stage.expressions)
    best: tuple[float, LoopAxis | None] = (amount + 1.0, None)
    for axis in (*reversed(stage.axes), *reversed(stage.reduced)):
        cost = _vector_cost(stage, axis, simplifier, lanes, amount)
        if cost < best[0]:
            best = (cost, axis)
    return best[1]


def _vector_cost(stage: FlatStage, axis: LoopAxis, simplifier: Simplifier, lanes: int, amount: int) -> float:
    """Return the cost per element, in operations, when ``axis`` becomes vectors."""
    *reads, write = [stride(place, axis.variable, simplifier) for place in accesses(stage)]
    cost = float(amount)
    for step in reads:
        cost += 0.0 if step in (0, 1) else 0.5 * lanes if step is not None and abs(step) <= 4 else float(lanes)
    is_reduced = axis in stage.reduced
    if is_reduced:
        cost += 1.0
    else:
        cost += 1.0 if write == 1 else 1.5 * lanes
    vectors = -(-axis.extent // lanes)
    extra = 3.0 * ACCUMULATORS if is_reduced else 0.0
    return (cost * vectors + extra) / max(axis.extent, 1)


# ---- Loops around ------------------------------------------------------------------------------------------------


def outer_loops(axes: Sequence[LoopAxis], body: Statement, parallel: bool) -> Statement:
    """Return loops over axes; with ``parallel`` the outermost ones are fused until there are enough iterations."""
    axes = list(axes)
    if not parallel or not axes:
        return _loops(axes, body, "serial")
    count = 1
    while count < len(axes) and prod(axis.extent for axis in axes[:count]) < TASKS:
        count += 1
    fused, inner = axes[:count], _loops(axes[count:], body, "serial")
    if len(fused) == 1:
        return _loops(fused, inner, "parallel")
    joint = Variable("task")
    total = Constant(prod(axis.extent for axis in fused), INT64)
    for variable, value in delinearize(joint, fused).items():
        inner = Let(variable, value, inner)
    return For(joint, total, "parallel", inner)


def _loops(axes: Sequence[LoopAxis], body: Statement, kind: LoopKind) -> Statement:
    for axis in reversed(axes):
        body = For(axis.variable, Constant(axis.extent, INT64), kind, body)
    return body


def _along_parallel(
    outer: Sequence[LoopAxis],
    axis: LoopAxis,
    lanes: int,
    step: int,
    vectors: Vectors,
    body: Callable[[list[tuple[Expression, Expression | None]]], Statement],
    parallel: bool,
) -> Statement:
    """Return loops over the outer axes and, innermost, over an axis in blocks of ``step`` (a multiple of lanes).

    ``body`` gets the vectors of positions of one block, each with its mask. With few outer iterations the blocks
    themselves run in parallel.
    """
    blocks = axis.extent // step
    block = Variable(f"{axis.variable.name}_block")

    def at(start: Expression) -> Statement:
        ramps = [Ramp(_plus(start, offset), 1, lanes) for offset in range(0, step, lanes)]
        return body([(ramp, None) for ramp in ramps])

    tail = tail_of(axis.extent % step, blocks * step, lanes, vectors, body)
    many = prod(other.extent for other in outer) >= TASKS
    if parallel and not many and blocks > 1:
        loop = For(block, Constant(blocks, INT64), "parallel", at(_times(block, step)))
        if outer:
            task = LoopAxis(block, blocks)
            loop_body = outer_loops([*outer, task], at(_times(block, step)), True)
            return Block((loop_body, *((_loops(outer, tail, "serial"),) if tail is not None else ())))
        return Block((loop, *(() if tail is None else (tail,))))
    parts: list[Statement] = []
    if blocks:
        parts.append(For(block, Constant(blocks, INT64), "serial", at(_times(block, step))))
    if tail is not None:
        parts.append(tail)
    return outer_loops(outer, Block(tuple(parts)), parallel)


def tail_of(
    rest: int,
    start: int,
    lanes: int,
    vectors: Vectors,
    body: Callable[[list[tuple[Expression, Expression | None]]], Statement],
) -> Statement | None:
    """Return the code for the last ``rest`` positions from ``start`` on, None if there are none.

    Whole vectors first; then one masked vector, or (without cheap masks) ever smaller vectors.
    """
    places: list[tuple[Expression, Expression | None]] = []
    while rest >= lanes:
        places.append((Ramp(Constant(start, INT64), 1, lanes), None))
        start, rest = start + lanes, rest - lanes
    if rest and vectors.masks:
        places.append((Ramp(Constant(start, INT64), 1, lanes), first_lanes(rest, lanes)))
        rest = 0
    statements: list[Statement] = [body(places)] if places else []
    while rest:
        lanes //= 2
        if rest >= lanes:
            place = Constant(start, INT64)
            statements.append(body([(Ramp(place, 1, lanes) if lanes > 1 else place, None)]))
            start, rest = start + lanes, rest - lanes
    return Block(tuple(statements)) if statements else None


def first_lanes(count: int, lanes: int) -> Expression:
    """Return the mask that switches on the first ``count`` lanes."""
    return Binary("lt", Ramp(Constant(0, INT64), 1, lanes), Broadcast(Constant(count, INT64), lanes))


def _plus(start: Expression, offset: int) -> Expression:
    return Binary("add", start, Constant(offset, INT64)) if offset else start


def _times(block: Expression, step: int) -> Expression:
    return Binary("mul", block, Constant(step, INT64))


# ---- What stands inside -------------------------------------------------------------------------------------------


def _scalar(stage: FlatStage) -> Statement:
    return Store(stage.target, (stage.place,), stage.value)


def _map(stage: FlatStage, axis: LoopAxis, places: list[tuple[Expression, Expression | None]]) -> Statement:
    """Store the values at some positions along the axis."""
    return Block(tuple(store_at(stage, {axis.variable: place}, stage.value, mask) for place, mask in places))


def store_at(
    stage: FlatStage, values: dict[Variable, Expression], value: Expression, mask: Expression | None
) -> Statement:
    """Store an expression to the stage's place; variables have the values given, which may be vectors."""
    place = vectorize_expression(stage.place, values)
    lanes = max([place.type.lanes, *(other.type.lanes for other in values.values())])
    vector = broadcast(vectorize_expression(value, values, mask), lanes)
    return Store(stage.target, (place,), vector, mask)


def _finish(
    stage: FlatStage, values: dict[Variable, Expression], total: Expression, mask: Expression | None
) -> Statement:
    """Store a reduced value (scalar or vector) through the epilogue."""
    if stage.epilogue is None:
        place = vectorize_expression(stage.place, values)
        return Store(stage.target, (place,), total, mask)
    assert stage.epilogue_variable is not None, f"the stage of '{stage.target.name}' has an epilogue without variable"
    return store_at(stage, {**values, stage.epilogue_variable: total}, stage.epilogue, mask)


def _reduction_loops(axes: Sequence[LoopAxis], body: Statement) -> Statement:
    unrolled = prod(axis.extent for axis in axes) <= UNROLL
    return _loops(axes, body, "unrolled" if unrolled else "serial")


def accumulator(stage: FlatStage, count: int, lanes: int) -> Buffer:
    """Return registers for ``count`` vectors of the stage's reduced type."""
    shape = (Constant(count, INT64), Constant(lanes, INT64))
    return Buffer("accumulator", stage.value.type.dtype, shape, memory="register")


def _register(buffer: Buffer, number: int, lanes: int) -> tuple[Expression, ...]:
    zero = Constant(0, INT64)
    return (Constant(number, INT64), Ramp(zero, 1, lanes) if lanes > 1 else zero)


def _kept_accumulators(
    stage: FlatStage, axis: LoopAxis
) -> Callable[[list[tuple[Expression, Expression | None]]], Statement]:
    """Reduce with one accumulator per position along a kept axis."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    operator, initial = stage.operator, stage.initial

    def make(places: list[tuple[Expression, Expression | None]]) -> Statement:
        lanes = places[0][0].type.lanes
        registers = accumulator(stage, len(places), lanes)
        before, inside, after = [], [], []
        for number, (place, mask) in enumerate(places):
            home, values = _register(registers, number, lanes), {axis.variable: place}
            start = broadcast(vectorize_expression(initial, values, mask), lanes)
            value = broadcast(vectorize_expression(stage.value, values, mask), lanes)
            before.append(Store(registers, home, start))
            inside.append(Store(registers, home, Binary(operator, Load(registers, home), value)))
            after.append(_finish(stage, values, Load(registers, home), mask))
        loop = _reduction_loops(stage.reduced, Block(tuple(inside)))
        return Allocate(registers, Block((*before, loop, *after)))

    return make


def _reduce_scalar(stage: FlatStage) -> Statement:
    """Reduce one element after another."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    registers = accumulator(stage, 1, 1)
    home = _register(registers, 0, 1)
    step = Store(registers, home, Binary(stage.operator, Load(registers, home), stage.value))
    loop = _reduction_loops(stage.reduced, step)
    finish = _finish(stage, {}, Load(registers, home), None)
    return Allocate(registers, Block((Store(registers, home, stage.initial), loop, finish)))


def _reduce_inner(stage: FlatStage, axis: LoopAxis, lanes: int, vectors: Vectors) -> Statement:
    """Reduce along the vector axis into several accumulators, then across their lanes."""
    assert stage.operator is not None, "not a reduction"
    assert stage.initial is not None, "not a reduction"
    operator = stage.operator
    blocks, rest = divmod(axis.extent, lanes)
    count = max(1, min(ACCUMULATORS, blocks))
    registers = accumulator(stage, count, lanes)
    neutral = Broadcast(identity_of(operator, stage.value.type), lanes)

    def accumulate(number: int, place: Expression, mask: Expression | None) -> Statement:
        value = broadcast(vectorize_expression(stage.value, {axis.variable: place}, mask), lanes)
        if mask is not None:
            value = Select(mask, value, neutral)
        home = _register(registers, number, lanes)
        return Store(registers, home, Binary(operator, Load(registers, home), value))

    inside: list[Statement] = []
    step, rounds = count * lanes, blocks // count
    block = Variable(f"{axis.variable.name}_block")
    if rounds:
        ramps = [Ramp(_plus(_times(block, step), number * lanes), 1, lanes) for number in range(count)]
        parts = [accumulate(number, ramp, None) for number, ramp in enumerate(ramps)]
        kind: LoopKind = "unrolled" if rounds <= 2 else "serial"
        inside.append(For(block, Constant(rounds, INT64), kind, Block(tuple(parts))))
    for number in range(blocks % count):
        start = (rounds * count + number) * lanes
        inside.append(accumulate(number, Ramp(Constant(start, INT64), 1, lanes), None))
    scalars: list[Statement] = []
    single = Buffer("rest", stage.value.type.dtype, (Constant(1, INT64),), memory="register")
    zero = (Constant(0, INT64),)
    if rest and vectors.masks:
        inside.append(accumulate(count - 1, Ramp(Constant(blocks * lanes, INT64), 1, lanes), first_lanes(rest, lanes)))
    elif rest:
        position = Variable(axis.variable.name)
        index = Binary("add", position, Constant(blocks * lanes, INT64))
        value = vectorize_expression(stage.value, {axis.variable: index})
        step_one = Store(single, zero, Binary(operator, Load(single, zero), value))
        inside.append(For(position, Constant(rest, INT64), "serial", step_one))
        scalars.append(Store(single, zero, identity_of(operator, stage.value.type)))
    before = [Store(registers, _register(registers, number, lanes), neutral) for number in range(count)]
    others = [other for other in stage.reduced if other is not axis]
    total = Horizontal(
        operator, _combined(operator, [Load(registers, _register(registers, n, lanes)) for n in range(count)])
    )
    result: Expression = Binary(operator, stage.initial, total)
    if scalars:
        result = Binary(operator, result, Load(single, zero))
    loop = _loops(others, Block(tuple(inside)), "serial")
    body: Statement = Allocate(registers, Block((*scalars, *before, loop, _finish(stage, {}, result, None))))
    return Allocate(single, body) if scalars else body


def _combined(operator: BinaryOperator, values: list[Expression]) -> Expression:
    """Combine values pairwise."""
    while len(values) > 1:
        pairs = [Binary(operator, left, right) for left, right in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]


def identity_of(operator: BinaryOperator, kind: Type) -> Constant:
    """Return the neutral element of a reduction operator."""
    kind = kind.with_lanes(1)
    if kind.dtype == "bool":
        return Constant(operator in ("and", "min", "mul"), kind)
    if operator in ("add", "or", "xor"):
        return Constant(0.0 if kind.is_float else 0, kind)
    if operator == "mul":
        return Constant(1.0 if kind.is_float else 1, kind)
    if kind.is_float:
        return Constant(float("inf") if operator == "min" else float("-inf"), kind)
    bits = element_bits(storage_dtype(kind.dtype))
    low, high = (0, (1 << bits) - 1) if kind.dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return Constant({"min": high, "max": low, "and": high if low == 0 else -1}[operator], kind)
