"""Strategies as rows: what each applies to, its knobs, and how it builds loops.

A kernel is asked row by row (`graft.core.schedule.selection.table.TABLE`): the first that applies and can be built
makes its loops, and the refusals of those before it say why it was not one of them. Selection, tuning and reports
read these rows; there is no second list of strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Literal

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.loops.one_image import OneImage, one_image
from graft.core.schedule.parameters import Parameters, ScheduleParameters
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.strategies.given_schedule import by_steps
from graft.core.schedule.templates.rewrites import Rewrites
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.ir import Stage
from graft.core.tensor_ir.verifying.verifier import verify
from graft.errors import CompileError, GraftError


@dataclass(frozen=True)
class Anchor:
    """What strategies are asked about: a kernel, and the knobs that are wanted for it (None: their own choice)."""

    kernel: Kernel
    parameters: Parameters | None = None

    @cached_property
    def varies(self) -> bool:
        """Whether an extent of the kernel is known only when it runs."""
        buffers = (*self.kernel.inputs, *(stage.buffer for stage in self.kernel.stages))
        return any(constant_shape(buffer) is None for buffer in buffers)

    @cached_property
    def image(self) -> OneImage | None:
        """The kernel of one image; None unless the batch varies, and nothing else."""
        return one_image(self.kernel)

    @cached_property
    def stages(self) -> tuple[Stage, ...] | None:
        """The sum of products and what is fused behind it; None if the kernel is of another form."""
        return fused_stages(self.kernel)

    @cached_property
    def convolution(self) -> Convolution | None:
        """The convolution that the sum of products says it is."""
        return None if self.stages is None else convolution_of(self.stages[0])


Answer = Literal[True] | Reject
Candidates = Callable[[Anchor, Target, int], Sequence[Parameters]]
"""What is worth measuring in a stage of tuning, around the anchor's parameters."""
Build = Callable[[Anchor, Target], Scheduled | Reject]
Channels = Literal["first", "last"]
CONVOLUTIONS = frozenset({Trait.CONVOLUTION})
OTHER_FORM = Reject("no-pattern", "its stages are of another form")
SWITCHES = {"attention": "attention in one kernel", "winograd": "Winograd's algorithm"}
"""By the name with which a user leaves it out: what a strategy is."""


def always(anchor: Anchor, target: Target) -> Answer:
    """Apply to every anchor of a strategy's traits."""
    return True


def never(anchor: Anchor, target: Target) -> bool:
    """Round no factors."""
    return False


def no_preference(window: Window, target: Target) -> Preference | None:
    """Prefer no layout."""
    return None


@dataclass(frozen=True, slots=True)
class Preference:
    """Where a strategy for convolutions has the channels of image and result; ``gains``: other layouts are slower.

    Without ``gains``, it ``saves`` about so many cycles of one image beside channels that come first.
    """

    image: Channels = "first"
    result: Channels = "first"
    gains: bool = False
    saves: float = 0.0


Prefers = Callable[[Window, Target], Preference | None]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to compute kernels around anchors of some traits.

    ``applies`` looks at structure alone; ``build`` may still refuse for what is found out on the way. With
    ``candidates`` it has knobs, of sums of integers if it ``is_for_integers``. ``is_checked`` says that what it builds
    is verified before it is taken. ``cost`` is a model of the cycles that one image takes, where ``applies``: if the
    next row that applies and has a cost takes no more, that goes first. ``prefers`` says of a float32 convolution by
    constant weights which layouts the strategy wants for it; None: it is not for it. ``rounds`` says, without building
    anything, whether float32 factors are rounded to bfloat16; None: the kernel will be refused when it is built. It
    ``varies`` if it is for kernels with extents that are known only when they run, and for no others; None: it is for
    all. ``switch``, one
    of `SWITCHES`, leaves it out. ``rewrites`` are those that its schedules begin with, or those of templates.
    """

    name: str
    anchors: frozenset[Trait]
    build: Build
    applies: Callable[[Anchor, Target], Answer] = always
    candidates: Candidates | None = None
    is_for_integers: bool = False
    is_checked: bool = False
    cost: Callable[[Anchor, Target], float | None] | None = None
    prefers: Prefers = no_preference
    rounds: Callable[[Anchor, Target], bool | None] = never
    varies: bool | None = False
    switch: str = ""
    rewrites: Rewrites = field(default_factory=dict)

    def takes(self, anchor: Anchor, target: Target) -> Answer:
        """Return whether the strategy is wanted and applies."""
        if self.switch and self.switch in target.without:
            return Reject("user-excluded", f"{SWITCHES[self.switch]} is switched off")
        return self.applies(anchor, target)

    def fits(self, anchor: Anchor) -> bool:
        """Whether the extents of a kernel are of the kind that this strategy is for."""
        return self.varies in (None, anchor.varies)

    def built(self, anchor: Anchor, target: Target) -> Scheduled | Reject:
        """Return the kernel in loops, or why it cannot be."""
        scheduled = self.build(anchor, target)
        if isinstance(scheduled, Reject) or not self.is_checked:
            return scheduled
        function = scheduled.function
        try:
            verify(function)
        except CompileError as error:
            return Reject("compile-failed", f"strategy '{self.name}' built what is not valid: {error.message}")
        return replace(scheduled, source=function)


@dataclass(frozen=True, slots=True)
class StrategyTable:
    """Strategies in order of preference; the last takes every kernel."""

    rows: tuple[Strategy, ...]

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        for name in names:
            if names.count(name) > 1:
                raise GraftError(f"strategy '{name}' is in the table twice; give one of them another name", name=name)

    @property
    def rewrites(self) -> Rewrites:
        """The rewrites of all rows by their names."""
        return {name: rewrite for row in self.rows for name, rewrite in row.rewrites.items()}

    def of(self, trait: Trait) -> Iterator[Strategy]:
        """Yield the strategies for anchors of a trait."""
        return (row for row in self.rows if trait in row.anchors)

    def preferred(self, window: Window, target: Target, *, varies: bool = False) -> tuple[str, Preference]:
        """Return the first strategy that prefers layouts for a convolution, and which; otherwise channels are first.

        ``varies`` says that an extent is known only when the kernel runs.
        """
        rows = (row for row in self.of(Trait.CONVOLUTION) if row.varies in (None, varies))
        found = ((row.name, row.prefers(window, target)) for row in rows)
        return next(((name, one) for name, one in found if one is not None), ("", Preference()))

    def answers(self, anchor: Anchor, target: Target) -> Iterator[tuple[Strategy, Reject | None, float | None]]:
        """Yield each row for an anchor's trait, why it is not to be tried, and what it costs, if its model says so.

        Rows for other extents, numbers or such as vary, are not asked.

        Where parameters are wanted, they say which row they are for, and costs do not.
        """
        rows = tuple(row for row in self.of(anchor.kernel.anchor) if row.fits(anchor))
        takes = cache(lambda number: rows[number].takes(anchor, target))

        @cache
        def cost(number: int) -> float | None:
            model = rows[number].cost
            return None if model is None else model(anchor, target)

        for number, row in enumerate(rows):
            answer = takes(number)
            if not answer:
                yield row, answer if isinstance(answer, Reject) else OTHER_FORM, None
                continue
            cycles, refused = cost(number), None
            if cycles is not None and anchor.parameters is None:
                behind = range(number + 1, len(rows))
                other = next((one for one in behind if rows[one].cost is not None and takes(one)), None)
                if other is not None and (less := cost(other)) is not None and cycles >= less:
                    refused = Reject("cost", f"{cycles:,.0f} cycles, where {rows[other].name} takes {less:,.0f}")
            yield row, refused, cycles

    def scheduled(self, anchor: Anchor, target: Target) -> Scheduled:
        """Return a kernel in loops, by the first row that takes it; raise CompileError if there is none.

        Where a schedule is given as text, that is taken instead; ScheduleError says why it cannot be.
        """
        if isinstance(anchor.parameters, ScheduleParameters):
            return by_steps(anchor.kernel, anchor.parameters.steps, target, self.rewrites)
        refusals = dict[str, Reject]()
        for row, refused, cycles in self.answers(anchor, target):
            found = row.built(anchor, target) if refused is None else refused
            if isinstance(found, Scheduled):
                return replace(found, strategy=row.name, refusals=refusals, cycles=cycles)
            refusals[row.name] = found
        said = "; ".join(f"{name}: {reject}" for name, reject in refusals.items()) or "there is none for its anchor"
        kernel = anchor.kernel
        raise CompileError(f"no strategy takes kernel '{kernel.name}' ({kernel.anchor.name.lower()}): {said}")

    def first(self, anchor: Anchor, target: Target) -> Strategy | None:
        """Return the row that applies first, without building anything; None if there is none."""
        return next((row for row, refused, _ in self.answers(anchor, target) if refused is None), None)

    def rounds(self, anchor: Anchor, target: Target) -> bool:
        """Return whether a kernel's float32 factors are rounded to bfloat16, without building anything."""
        rows = (row for row, refused, _ in self.answers(anchor, target) if refused is None)
        return next((said for row in rows if (said := row.rounds(anchor, target)) is not None), False)

    def with_rows(self, rows: Sequence[Strategy]) -> StrategyTable:
        """Return the table with rows of a plugin before its own; what they build is verified."""
        return StrategyTable((*(replace(row, is_checked=True) for row in rows), *self.rows))

    def checked(self) -> StrategyTable:
        """Return the table with all rows verified: for tests, since it takes time."""
        return StrategyTable(tuple(replace(row, is_checked=True) for row in self.rows))


def of_kernel(function: Callable[[Kernel, Target], Scheduled | None]) -> Build:
    """Return the builder of a function that takes any kernel; None means that it is of another form."""
    return lambda anchor, target: function(anchor.kernel, target) or OTHER_FORM


def of_stages(function: Callable[[Kernel, tuple[Stage, ...], Target], Scheduled | None]) -> Build:
    """Return the builder of a function that takes a sum of products and what is fused behind it."""

    def build(anchor: Anchor, target: Target) -> Scheduled | Reject:
        return (anchor.stages and function(anchor.kernel, anchor.stages, target)) or OTHER_FORM

    return build
