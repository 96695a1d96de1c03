"""When two kernels are the same: their stages written with numbers for buffers and variables."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import astuple
from typing import assert_never

from graft.core.schedule.kernel import Kernel
from graft.core.schedule.strategies.contractions.narrow_weights import narrow_of
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import structural_key, unknown


def structure_of(kernel: Kernel) -> str:
    """Return a text that is the same for kernels that differ only in names and in the contents of constants.

    Of contents only the bits count that narrow weights are stored in.
    Expressions are shared graphs, so each is written once and referred to by number. The text does not depend on the
    process: it is a key for what is kept on disk, too.
    """
    writer = _Writer()
    inputs = tuple((writer.buffer(buffer), buffer in kernel.constants) for buffer in kernel.inputs)
    stages = tuple(writer.stage(stage) for stage in kernel.stages)
    outputs = tuple(writer.buffer(buffer) for buffer in kernel.outputs)
    operator = kernel.node.op_type if kernel.node is not None else ""
    writer.number(("kernel", kernel.anchor.name, kernel.anchor_stage, operator, inputs, outputs, stages))
    narrow = narrow_of(kernel)
    if narrow is not None:
        writer.number(("code", *astuple(narrow.code)))
    return repr(list(writer.numbers))


class _Writer:
    """Writes one kernel; buffers and variables are numbered as they are met."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self._buffers: dict[ir.Buffer, int] = {}
        self._variables: dict[ir.Variable, int] = {}
        self._written: dict[int, tuple[ir.Expression, int]] = {}

    def number(self, form: Hashable) -> int:
        return self.numbers.setdefault(form, len(self.numbers))

    def buffer(self, buffer: ir.Buffer) -> int:
        place = self._buffers.setdefault(buffer, len(self._buffers))
        shape = tuple(self.expression(extent) for extent in buffer.shape)
        strides = None if buffer.strides is None else tuple(self.expression(stride) for stride in buffer.strides)
        return self.number(("buffer", place, buffer.dtype, shape, strides, buffer.memory, buffer.alignment))

    def stage(self, stage: ir.Stage) -> int:
        axes = tuple(self.expression(axis) for axis in stage.axes)
        reduction: Hashable = None
        if stage.reduction is not None:
            inner = tuple((self.expression(a.variable), self.expression(a.extent)) for a in stage.reduction.axes)
            reduction = (stage.reduction.operator, inner, self.expression(stage.reduction.initial))
        value = self.expression(stage.value)
        bound = None if stage.epilogue_variable is None else self.expression(stage.epilogue_variable)
        epilogue = None if stage.epilogue is None else self.expression(stage.epilogue)
        form = ("stage", self.buffer(stage.buffer), axes, reduction, value, bound, epilogue)
        return self.number(form if stage.order is None else (*form, self.order(stage.order)))

    def order(self, order: ir.Order) -> Hashable:
        write = self.expression
        match order:
            case ir.Scan(carried, initial, reverse):
                return "scan", write(carried), None if initial is None else write(initial), reverse
            case ir.Scatter(axes, indices, operator, update):
                over = tuple((write(axis.variable), write(axis.extent)) for axis in axes)
                return "scatter", over, tuple(map(write, indices)), operator, write(update)
            case ir.Selection(rank, candidate, largest):
                return "selection", write(rank), write(candidate.variable), write(candidate.extent), largest
            case _:
                assert_never(order)

    def expression(self, expression: ir.Expression) -> int:
        written = self._written
        for node in unknown(expression, written):
            written[id(node)] = (node, self.number(self._form(node)))  # holding the expression keeps its id taken
        return written[id(expression)][1]

    def _form(self, expression: ir.Expression) -> Hashable:
        write = self.expression
        match expression:
            case ir.Constant(value, kind):
                return "constant", repr(value), str(kind)
            case ir.Variable(type=kind):
                return "variable", self._variables.setdefault(expression, len(self._variables)), str(kind)
            case ir.Load(buffer, indices, mask):
                return "load", self.buffer(buffer), tuple(map(write, indices)), None if mask is None else write(mask)
            case ir.Intrinsic(name, arguments, kind):
                return "intrinsic", name, tuple(map(write, arguments)), str(kind)
        return structural_key(expression, write)
