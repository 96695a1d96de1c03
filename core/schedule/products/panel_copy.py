"""Panels of a right factor whose columns lie apart: each is copied before its rows are multiplied by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import FlatStage, Layout, flatten
from graft.core.schedule.loops.nest import nest
from graft.core.schedule.loops.segments import part
from graft.core.schedule.primitives.statements import scratch
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.schedule.products.accumulation import Reduced
from graft.core.tensor_ir.ir import Allocate, Block, Buffer, Expression, Stage, Statement, Variable
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import substitute, substitution


@dataclass(frozen=True, slots=True)
class PanelCopy:
    """What fills one panel of a factor whose columns lie apart, before its rows are multiplied by it."""

    stage: FlatStage
    column: Variable
    """Where the panel begins."""
    layout: Layout
    machine: Machine

    @classmethod
    def of(
        cls, right: Expression, terms: Sequence[Reduced], column: Variable, width: int, layout: Layout, machine: Machine
    ) -> PanelCopy:
        """Return the copy of ``width`` columns of a factor."""
        begin, own = Variable("begin"), Variable(column.name)
        rows = scratch("panel", right.type.dtype, *(term.extent for term in terms), width)
        value = substitute(right, {column: b.add(begin, own)})
        stage = flatten(Stage(rows, (*(term.variable for term in terms), own), value), layout)
        return cls(stage, begin, layout, machine)

    @property
    def panel(self) -> Buffer:
        """The memory of the panel."""
        return self.stage.target

    def before(self, body: Statement, begin: Expression, count: b.Count) -> Statement:
        """Return a statement behind the copy of so many columns from ``begin`` on."""
        simplifier, at = self.layout.simplifier, substitution({self.column: begin})
        filled = part(self.stage, self.stage.axes[-1], 0, count, simplifier)
        filled = filled.map(lambda expression: simplifier(at(expression)))
        copy = nest(filled, simplifier, self.machine, parallel=False)
        return Allocate(self.panel, Block((lower_loops(simplify_statement(copy)), body)))
