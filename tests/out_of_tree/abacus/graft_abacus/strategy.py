"""A strategy of its own: elementwise kernels in equal runs, one for each wire."""

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.strategies.strategy import Strategy
from graft.core.tensor_ir.ir import Binary, For, Function, If, Store, Variable
from graft.core.tensor_ir.visit import substitution


def _build(anchor, target):
    """Return a kernel of one result with its loop bound to the wires; why not, for any other kernel."""
    kernel = anchor.kernel
    stages = inline_stages(kernel.stages, kernel.outputs)
    if len(stages) != 1 or stages[0].reduction is not None:
        return Reject("no-pattern", "it has more than one result")
    (stage,) = stages
    extents = b.dims(stage.buffer)
    size = 1
    for extent in extents:
        size *= extent
    wires = target.machine.levels[0].count
    run = -(-size // wires)
    wire, step = Variable("wire"), Variable("step")
    rest = place = b.add(b.multiply(wire, run), step)
    indices = []
    for extent in reversed(extents):
        indices.insert(0, Binary("mod", rest, b.index(extent)))
        rest = Binary("div", rest, b.index(extent))
    value = substitution(dict(zip(stage.axes, indices, strict=True)))(stage.value)
    store = If(Binary("lt", place, b.index(size)), Store(stage.buffer, tuple(indices), value))
    body = For(wire, b.index(wires), "parallel", For(step, b.index(run), "serial", store), binding="wire")
    return Scheduled(Function(kernel.name, (*kernel.inputs, *kernel.outputs), 1, body, kernel.origin))


WIRES = Strategy("abacus.wires", frozenset({Trait.ELEMENTWISE}), _build)
