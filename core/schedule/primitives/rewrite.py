"""The line that a schedule may begin with: which other kernel, that computes the same, its loops are of."""

from __future__ import annotations

from dataclasses import dataclass

from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir.ir import Function


@dataclass(frozen=True, slots=True)
class Rewrite(Step):
    """Has other plain loops in the place of the kernel's own: who knows the kernel takes it, before all steps."""

    form = "rewrite {name}"
    name: str

    def change(self, function: Function) -> Function:
        """Fail: there are loops already."""
        self.fail("the loops are there already; it stands before all steps, in the schedule of a kernel")
