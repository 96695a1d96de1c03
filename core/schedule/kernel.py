"""A kernel before and after scheduling.

Fusion decides which operators share a kernel; a schedule decides its loops. Schedules are found by the kernel's
anchor (`graft.core.schedule.selection.select.schedule`), each in its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from graft.core.graph.view import NodeView
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Function, Stage, Statement
from graft.runtime.procedure import Schedule


@dataclass(frozen=True, slots=True)
class Kernel:
    """Operators that become one function.

    ``stages`` stand in order of dependence; buffers among them that are neither input nor output are intermediate and
    may be inlined or kept in scratch. ``anchor`` is the trait that chooses the schedule, ``node`` the operator that
    has it and ``anchor_stage`` the number of that operator's last stage with a reduction, or of its last stage if it
    has none; what comes after, bias and scaling included, is the epilogue. ``constants`` holds the contents of
    constant inputs: a schedule may ask for them in another layout.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    stages: tuple[Stage, ...]
    anchor: Trait
    node: NodeView | None = None
    anchor_stage: int = 0
    constants: Mapping[Buffer, np.ndarray] = field(default_factory=dict)
    origin: tuple[str, ...] = ()

    def function(self, body: Statement, replaced: Mapping[Buffer, Buffer] = MappingProxyType({})) -> Function:
        """Return the kernel with its loops; ``replaced`` gives the buffers that stand for some of the inputs."""
        inputs = (replaced.get(buffer, buffer) for buffer in self.inputs)
        return Function(self.name, (*inputs, *self.outputs), len(self.outputs), body, self.origin)


def anchor_stage(stages: Sequence[Stage], node: NodeView | None) -> int:
    """Return the number that `Kernel.anchor_stage` states for stages of which ``node`` is the anchor.

    It is found by the stages' origin: rewriting joins, splits and drops stages, so that numbers change.
    """
    own = (number for number, stage in enumerate(stages) if node is not None and node.name in stage.origin)
    last = max(own, default=len(stages) - 1)
    return max((number for number in range(last + 1) if stages[number].reduction is not None), default=last)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A kernel in loops.

    ``function.parameters`` are ``kernel.inputs`` then ``kernel.outputs``, in order, except that an input in
    ``packed`` is replaced by a new constant: its contents there are what must be passed for it. A parameter may have
    another shape than the kernel's buffer, usually a flat one: its bytes are the same.
    """

    source: Function | Callable[[], Function]
    """The function, or what builds it: who only wants the packed constants does not pay for the loops."""
    packed: Mapping[Buffer, np.ndarray] = field(default_factory=dict)
    """Keyed by the buffer of ``kernel.inputs`` that is replaced."""
    strategy: str = ""
    """The row of the table that built it ..."""
    knobs: Mapping[str, int | str] = field(default_factory=dict)
    """... what it chose ..."""
    refusals: Mapping[str, Reject] = field(default_factory=dict)
    """... and why the rows before it did not."""
    cycles: float | None = None
    """What its row says that it costs."""
    steps: str = ""
    """The text of its schedule, where that is a list of steps (`graft.core.schedule.primitives.schedule_text`)."""

    @property
    def chosen(self) -> dict[str, int | str]:
        """The strategy and its knobs, as reports show them."""
        return {"strategy": self.strategy, **self.knobs} if self.strategy else {}

    @property
    def report(self) -> Schedule:
        """How the kernel is made: what was chosen, at which cost, and what was refused."""
        cycles = {} if self.cycles is None else {"cycles": round(self.cycles)}
        refused = {"refused": {name: str(reject) for name, reject in self.refusals.items()}} if self.refusals else {}
        steps = {"steps": self.steps} if self.steps else {}
        return {**self.chosen, **cycles, **refused, **steps} if self.strategy else {}

    @property
    def function(self) -> Function:
        """The loops; built at every access if they were not given."""
        return self.source if isinstance(self.source, Function) else self.source()
