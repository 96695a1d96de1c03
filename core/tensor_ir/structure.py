"""The structure of a stage: how its elements hang together, where that is more than a value for each.

A lowering states it, since it knows; schedules read it. Each class says what the stage means, which the interpreter
(`graft.core.tensor_ir.interpreter`) does. Axes are named by their variables, so that a stage whose axes change places
keeps its structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, assert_never

from graft.core.tensor_ir.ir import Axis, Binary, Constant, Expression, Load, Stage, Variable
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitute
from graft.core.types import INT64


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence: the elements are computed one position after the other along the axis ``carried``.

    Stages that stand next to each other and share this variable are one loop, which computes all of them at a position
    before it goes on to the next. A stage of it reads buffers of the loop at the position before its own (`previous`),
    and those of stages before it at its own position. Before the first position a buffer holds ``initial``, an
    expression over the other axes of the stage that computes it; None where nobody reads it there. ``reverse`` runs
    from the last position to the first.
    """

    carried: Variable
    initial: Expression | None = None
    reverse: bool = False

    @property
    def previous(self) -> Expression:
        """The position before the one that is computed."""
        return Binary("add" if self.reverse else "sub", self.carried, Constant(1, INT64))


ScatterOperator = Literal["set", "add", "mul", "min", "max"]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Stores to computed places: the stage's value is what the buffer holds before.

    Then, for all ``axes`` one after the other in row-major order, the element at ``indices`` is combined with
    ``update``; ``set`` replaces it, so that the last update of a place wins.
    """

    axes: tuple[Axis, ...]
    indices: tuple[Expression, ...]
    operator: ScatterOperator
    update: Expression


@dataclass(frozen=True, slots=True)
class Selection:
    """The positions of the best candidates: the stage's value is the key of ``candidate``.

    Along the axis ``rank`` the buffer (int64) holds the position of the candidate with the largest or least key, then
    of the next one, and so on. Of equal keys the lower position comes first. NaN is greater than any number.
    """

    rank: Variable
    candidate: Axis
    largest: bool


Structure: TypeAlias = Scan | Scatter | Selection


def is_sequential(stage: Stage) -> bool:
    """Whether the elements of a stage depend on each other: it is neither inlined nor computed in any order."""
    return isinstance(stage.structure, Scan | Scatter | Selection)


def structure_axes(structure: Structure | None) -> tuple[Axis, ...]:
    """Return the axes that a structure binds beside those of its stage."""
    match structure:
        case Scatter(axes):
            return axes
        case Selection(candidate=candidate):
            return (candidate,)
        case Scan() | None:
            return ()
        case _:
            assert_never(structure)


def structure_expressions(structure: Structure | None) -> tuple[Expression, ...]:
    """Return the expressions of a structure."""
    match structure:
        case Scan(_, initial):
            return () if initial is None else (initial,)
        case Scatter(_, indices, _, update):
            return (*indices, update)
        case Selection() | None:
            return ()
        case _:
            assert_never(structure)


def map_structure(structure: Structure | None, function: Callable[[Expression], Expression]) -> Structure | None:
    """Return the structure with a function applied to its expressions."""
    match structure:
        case Scan(_, initial):
            return structure if initial is None else replace(structure, initial=function(initial))
        case Scatter(_, indices, _, update):
            return replace(structure, indices=tuple(map(function, indices)), update=function(update))
        case Selection() | None:
            return structure
        case _:
            assert_never(structure)


def stage_expressions(stage: Stage) -> tuple[Expression, ...]:
    """Return the expressions of a stage: value, initial value, epilogue, those of its structure."""
    initial = () if stage.reduction is None else (stage.reduction.initial,)
    epilogue = () if stage.epilogue is None else (stage.epilogue,)
    return (stage.value, *initial, *epilogue, *structure_expressions(stage.structure))


def map_stage(stage: Stage, function: Callable[[Expression], Expression]) -> Stage:
    """Return the stage with a function applied to its value, initial value, epilogue and structure."""
    reduction = stage.reduction
    if reduction is not None:
        reduction = replace(reduction, initial=function(reduction.initial))
    epilogue = None if stage.epilogue is None else function(stage.epilogue)
    structure = map_structure(stage.structure, function)
    return replace(stage, value=function(stage.value), reduction=reduction, epilogue=epilogue, structure=structure)


# ---- Loops of stages ------------------------------------------------------------------------------------------------


def stage_loops(stages: Sequence[Stage]) -> list[tuple[Stage, ...]]:
    """Return the stages in groups: those of one scan together, every other stage by itself."""
    groups: list[list[Stage]] = []
    for stage in stages:
        scan, before = stage.structure, groups[-1][-1].structure if groups else None
        if isinstance(scan, Scan) and isinstance(before, Scan) and scan.carried is before.carried:
            groups[-1].append(stage)
        else:
            groups.append([stage])
    return [tuple(group) for group in groups]


def scan_of(stage: Stage) -> Scan:
    """Return the structure of a stage that is a part of a scan."""
    assert isinstance(stage.structure, Scan), stage.buffer.name
    return stage.structure


def carried_dimension(stage: Stage) -> int:
    """Return the dimension of the buffer of a scan's stage along which the scan runs."""
    return stage.axes.index(scan_of(stage).carried)


def reads_before(loop: Sequence[Stage], load: Load) -> Stage | None:
    """Return the stage of a scan whose buffer a load reads at the position before the one that is computed, if any."""
    for stage in loop:
        if load.buffer is stage.buffer and load.indices[carried_dimension(stage)] == scan_of(stage).previous:
            return stage
    return None


def with_carried(loop: Sequence[Stage], value: Callable[[Stage, Load], Expression]) -> tuple[Stage, ...]:
    """Return a scan's stages with what they read from the position before replaced by ``value(stage, load)``."""

    def rule(node: Expression) -> Expression:
        source = reads_before(loop, node) if isinstance(node, Load) else None
        return node if source is None or not isinstance(node, Load) else value(source, node)

    change = ExpressionMap(rule)
    return tuple(
        replace(map_stage(replace(stage, structure=None), change), structure=stage.structure)
        if any(reads_before(loop, load) for load in loads(*stage_expressions(stage)))
        else stage
        for stage in loop
    )


def at_first(stage: Stage, load: Load) -> Expression:
    """Return what a load from before the first position of a scan gives: the initial value of ``stage`` there."""
    initial = scan_of(stage).initial
    assert initial is not None, f"'{stage.buffer.name}' is read before its first position and has no initial value"
    return substitute(initial, dict(zip(stage.axes, load.indices, strict=True)))
