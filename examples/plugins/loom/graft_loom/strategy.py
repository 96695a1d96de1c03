"""The loom's own schedule: an element of a result is one lane's, and what is summed for it is a loop of that lane."""

from collections import Counter

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.strategies.strategy import Strategy
from graft.core.tensor_ir.ir import Allocate, Binary, Block, Buffer, For, Function, If, Load, Store, Variable
from graft.core.tensor_ir.ordered_stages import is_sequential, stage_expressions
from graft.core.tensor_ir.visit import loads, substitution
from graft_loom.machine import LANES


def build(anchor, target):
    """Return a kernel with its elements dealt to the lanes; why not, for one whose elements depend on each other."""
    kernel = anchor.kernel
    if any(map(is_sequential, kernel.stages)):
        return Reject("no-pattern", "its elements are computed in an order of their own")
    reads = Counter(load.buffer for stage in kernel.stages for load in loads(*stage_expressions(stage)))
    stages = inline_stages(kernel.stages, kernel.outputs, lambda stage: reads[stage.buffer] == 1)
    body = Block(tuple(map(in_lanes, stages)))
    for stage in stages:
        if stage.buffer not in kernel.outputs:
            body = Allocate(stage.buffer, body)
    return Scheduled(Function(kernel.name, (*kernel.inputs, *kernel.outputs), len(kernel.outputs), body, kernel.origin))


def in_lanes(stage):
    """Return the loops of one stage: steps, in each of which the lanes take neighbouring elements."""
    step, lane, size = Variable("step"), Variable("lane"), b.index(1)
    for extent in stage.buffer.shape:
        size = b.multiply(size, extent)
    place = rest = b.add(b.multiply(step, LANES), lane)
    indices = []
    for extent in reversed(stage.buffer.shape):
        indices.insert(0, Binary("mod", rest, extent))
        rest = Binary("div", rest, extent)
    at = dict(zip(stage.axes, indices, strict=True))
    body = If(Binary("lt", place, size), element(stage, at))
    steps = b.divide(b.add(size, LANES - 1), LANES)
    return For(step, steps, "serial", For(lane, b.index(LANES), "parallel", body, binding="lane"))


def element(stage, at):
    """Return the computation of one element, ``at`` the indices for its axes."""
    place, moved = tuple(at[axis] for axis in stage.axes), substitution(at)
    if stage.reduction is None:
        return Store(stage.buffer, place, moved(stage.value))
    total = Buffer("total", stage.value.type.dtype, (b.index(1),), memory="register")
    home = (b.index(0),)
    loop = Store(total, home, Binary(stage.reduction.operator, Load(total, home), moved(stage.value)))
    for axis in reversed(stage.reduction.axes):
        loop = For(axis.variable, moved(axis.extent), "serial", loop)
    result = Load(total, home)
    if stage.epilogue is not None:
        result = substitution({**at, stage.epilogue_variable: result})(stage.epilogue)
    first = Store(total, home, moved(stage.reduction.initial))
    return Allocate(total, Block((first, loop, Store(stage.buffer, place, result))))


STRATEGIES = (
    Strategy("loom.lanes", frozenset(Trait), build),
    Strategy("loom.lanes_varying", frozenset(Trait), build, varies=True),
)
"""The same loops for numbers and for extents that are known only when a kernel runs; Graft asks for each by itself."""
