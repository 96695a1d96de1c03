"""Operators whose steps depend on each other: cumulative sums, scatters, TopK. They lower to functions in loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graft.core.model.view import NodeView
from graft.core.operators import build as b
from graft.core.operators.control_loops import block, let, loop
from graft.core.operators.cost import moved, per_input
from graft.core.operators.indexing import position
from graft.core.operators.manipulation import constants_required, integers, normal_axis
from graft.core.operators.table import OPERATORS, LowerFunction, Lowering, Operator, Trait
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Allocate, Buffer, Constant, Expression, Function, If, Load, Statement, Store

SEQUENTIAL = frozenset({Trait.RECURRENT})
Indices = Sequence[Expression]


def nest(extents: Sequence[int], body: Callable[[list[Expression]], Statement]) -> Statement:
    """Return nested serial loops over ``extents``."""

    def level(place: list[Expression]) -> Statement:
        if len(place) == len(extents):
            return body(place)
        return loop(extents[len(place)], lambda i: level([*place, i]), name=f"i{len(place)}")

    return level([])


def function_of(lowering: Lowering, body: Statement) -> Function:
    """Return the function of a node: its present inputs and outputs, and ``body``."""
    inputs = dict.fromkeys(buffer for buffer in lowering.inputs if buffer is not None)
    outputs = [buffer for buffer in lowering.outputs if buffer is not None]
    name = f"{lowering.node.op_type.lower()}_{outputs[0].name}"
    return Function(name, (*inputs, *outputs), len(outputs), body, (lowering.node.name,))


# ---- Cumulative sums and products ---------------------------------------------------------------------------------


def _lower_cumulative(combine: Callable[[Expression, Expression], Expression], neutral: int) -> LowerFunction:
    def lower(lowering: Lowering) -> Function:
        source, target = lowering.input(0), lowering.output()
        shape, known = b.dims(source), integers(lowering.constant(1))
        assert known is not None
        axis, kind = normal_axis(known[0], len(shape)), b.wide(source.dtype)
        reverse = bool(lowering.node.attribute("reverse", 0))
        exclusive = bool(lowering.node.attribute("exclusive", 0))
        total = Buffer("total", kind, (b.index(1),), memory="register")
        zero = (b.index(0),)

        def step(outer: list[Expression], t: Expression) -> Statement:
            place = b.subtract(b.index(shape[axis] - 1), t) if reverse else t
            at = (*outer[:axis], place, *outer[axis:])
            add = Store(total, zero, combine(Load(total, zero), b.cast(Load(source, at), kind)))
            write = Store(target, at, b.cast(Load(total, zero), target.dtype))
            return block(write, add) if exclusive else block(add, write)

        def line(outer: list[Expression]) -> Statement:
            start = Store(total, zero, b.constant(neutral, kind))
            return block(start, loop(shape[axis], lambda t: step(outer, t), name="t"))

        rows = [extent for dimension, extent in enumerate(shape) if dimension != axis]
        return function_of(lowering, Allocate(total, nest(rows, line)))

    return lower


_axis_known = constants_required(1)
OPERATORS.add(Operator("CumSum", SEQUENTIAL, _lower_cumulative(b.add, 0), per_input(1), _axis_known))
OPERATORS.add(Operator("CumProd", SEQUENTIAL, _lower_cumulative(b.multiply, 1), per_input(1), _axis_known))

# ---- Scatters -----------------------------------------------------------------------------------------------------

_COMBINE: dict[str, Callable[[Expression, Expression], Expression]] = {
    "none": lambda old, new: new,
    "add": b.add,
    "mul": b.multiply,
    "min": b.minimum,
    "max": b.maximum,
}


def _copied(source: Buffer, target: Buffer) -> Statement:
    return nest(b.dims(source), lambda i: Store(target, tuple(i), Load(source, tuple(i))))


def _updated(lowering: Lowering, at: tuple[Expression, ...], update: Expression) -> Statement:
    combine = _COMBINE[lowering.node.attribute("reduction", "none")]
    target = lowering.output()
    return Store(target, at, combine(Load(target, at), update))


def _lower_scatter_elements(lowering: Lowering) -> Function:
    source, indices, updates = (lowering.input(number) for number in range(3))
    shape = b.dims(source)
    axis = normal_axis(lowering.node.attribute("axis", 0), len(shape))

    def write(i: list[Expression]) -> Statement:
        place = position(Load(indices, tuple(i)), shape[axis])
        return _updated(lowering, (*i[:axis], place, *i[axis + 1 :]), Load(updates, tuple(i)))

    body = block(_copied(source, lowering.output()), nest(b.dims(indices), write))
    return function_of(lowering, body)


def _lower_scatter_nd(lowering: Lowering) -> Function:
    source, indices, updates = (lowering.input(number) for number in range(3))
    shape, depth, rank = b.dims(source), b.dims(indices)[-1], len(indices.shape) - 1

    def write(i: list[Expression]) -> Statement:
        chosen = [position(Load(indices, (*i[:rank], b.index(d))), shape[d]) for d in range(depth)]
        return _updated(lowering, (*chosen, *i[rank:]), Load(updates, tuple(i)))

    body = block(_copied(source, lowering.output()), nest(b.dims(updates), write))
    return function_of(lowering, body)


OPERATORS.add(Operator("ScatterElements", SEQUENTIAL, _lower_scatter_elements, moved))
OPERATORS.add(Operator("ScatterND", SEQUENTIAL, _lower_scatter_nd, moved))

# ---- TopK ---------------------------------------------------------------------------------------------------------


def _lower_top_k(lowering: Lowering) -> Function:
    """One pass per result: the best element that comes after the previous one in the order (value, then position).

    NaN is greater than any number, as where NumPy sorts.
    """
    source, values, indices = lowering.input(0), lowering.output(0), lowering.output(1)
    shape = b.dims(source)
    axis = normal_axis(lowering.node.attribute("axis", -1), len(shape))
    largest = bool(lowering.node.attribute("largest", 1))
    best = Buffer("best", source.dtype, (b.index(1),), memory="register")
    where = Buffer("where", "int64", (b.index(1),), memory="register")
    zero = (b.index(0),)

    def before(x: Expression, y: Expression) -> Expression:
        x, y = (x, y) if largest else (y, x)
        greater = b.greater(x, y)
        if not x.type.is_float:
            return greater
        return b.either(greater, b.both(b.is_nan(x), b.equal(y, y)))

    def consider(outer: list[Expression], j: Expression, i: Expression) -> Statement:
        x = Load(source, (*outer[:axis], i, *outer[axis:]))
        last_at = (*outer[:axis], b.maximum(b.subtract(j, 1), 0), *outer[axis:])
        last, last_place = Load(values, last_at), Load(indices, last_at)
        after = b.either(before(last, x), b.both(b.same(last, x), b.greater(i, last_place)))
        free = after if not isinstance(j, Constant) else b.constant(True, "bool")
        better = b.either(b.equal(Load(where, zero), -1), before(x, Load(best, zero)))
        return If(b.both(free, better), block(Store(best, zero, x), Store(where, zero, i)))

    def result(outer: list[Expression], j: Expression) -> Statement:
        at = (*outer[:axis], j, *outer[axis:])
        return block(
            Store(where, zero, b.index(-1)),
            loop(shape[axis], lambda i: consider(outer, j, i), name="i"),
            Store(values, at, Load(best, zero)),
            Store(indices, at, Load(where, zero)),
        )

    def line(outer: list[Expression]) -> Statement:
        count = b.dims(values)[axis]
        rest = loop(count - 1, lambda j: let(b.add(j, 1), lambda k: result(outer, k), "j"), name="j")
        return block(result(outer, b.index(0)), rest) if count > 1 else result(outer, b.index(0))

    rows = [extent for dimension, extent in enumerate(shape) if dimension != axis]
    return function_of(lowering, Allocate(best, Allocate(where, nest(rows, line))))


def _accept_top_k(node: NodeView) -> Reject | None:
    if 0 in (node.outputs[0].static_shape or ()):
        return Reject("shape", "TopK of no elements")
    return constants_required(1)(node)


OPERATORS.add(Operator("TopK", SEQUENTIAL, _lower_top_k, per_input(8), _accept_top_k))
