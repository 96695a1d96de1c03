"""What a recurrent layer is, read off its stages.

A layer is a scan of vectors over its last axis, the *units*. Some of its stages are contractions of weights, which are
the same at all steps and in all rows, with something that has no units: a state. What it is called, how many gates it
has and what they compute is all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.flat_stages import constant_extent
from graft.core.tensor_ir import ordered_stages as ordered
from graft.core.tensor_ir.ir import Axis, Expression, Scan, Stage, Variable
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import free_variables, loads, substitution


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of products of one state by several weights, those of each *gate*."""

    stages: tuple[Stage, ...]
    state: Expression
    weights: tuple[Expression, ...]
    term: Axis

    @property
    def terms(self) -> int:
        """The number of terms."""
        return constant_extent(self.term.extent)


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Stages over the same axes that read of each other no other units: of a scan at one step, or of no scan."""

    stages: tuple[Stage, ...]
    axes: tuple[Variable, ...]
    sums: tuple[Sums, ...]

    @property
    def shape(self) -> tuple[b.Count, ...]:
        """The extents of the axes."""
        return b.counts(self.stages[0].buffer)

    @property
    def units(self) -> int:
        """The extent of the last axis, which is a number."""
        return b.numbers(self.stages[0].buffer, len(self.axes) - 1)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """A layer: phases one after the other at each step, along a dimension of their shape."""

    phases: tuple[Phase, ...]
    scan: Scan
    dimension: int


Part = Recurrence | Phase | tuple[Stage, ...]


def parts_of(kernel: Kernel) -> Iterator[Part]:
    """Yield the scans that are layers, products of whole sequences, and what is neither, in order."""
    projections: list[Stage] = []
    for group in (*ordered.stage_loops(kernel.stages), ()):
        product = product_of(group[0]) if len(group) == 1 and not ordered.is_sequential(group[0]) else None
        fits = product is not None and group[0].buffer not in kernel.outputs and len(group[0].axes) > 1
        if projections and not (fits and group[0].buffer.shape == projections[0].buffer.shape):
            yield _phase(projections, projections[0].axes)
            projections = []
        if fits:
            projections += group
        elif group:
            yield _recurrence(group) or group


def stages_of(part: Part) -> tuple[Stage, ...]:
    """Return the stages of a part."""
    match part:
        case Recurrence():
            return tuple(stage for phase in part.phases for stage in phase.stages)
        case Phase():
            return part.stages
        case _:
            return part


def side_by_side(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts in groups: layers that do not read each other, as the directions of one, stand together.

    A product of a whole sequence comes as soon as what it reads is there.
    """
    groups: list[list[Part]] = []
    for part in parts:
        read = {load.buffer for stage in stages_of(part) for load in loads(*ordered.stage_expressions(stage))}
        made = [{stage.buffer for one in group for stage in stages_of(one)} for group in groups]
        first = max((number + 1 for number, buffers in enumerate(made) if buffers & read), default=0)
        layers = [group for group in groups[first:] if isinstance(group[0], Recurrence)]
        if isinstance(part, Recurrence) and layers:
            layers[0].append(part)
        else:
            groups.insert(first if isinstance(part, Phase) else len(groups), [part])
    return groups


def product_of(stage: Stage) -> tuple[Expression, Expression] | None:
    """The factor without units and the weights of a sum of products over one axis."""
    factors = factors_of(stage)
    if factors is None or factors[2] or stage.reduction is None or len(stage.reduction.axes) != 1:
        return None
    unit, term, kind = stage.axes[-1], stage.reduction.axes[0].variable, stage.value.type
    if not (kind.dtype in ("float32", "float64") or kind.is_custom) or stage.buffer.dtype != kind.dtype:
        return None
    for state, weights in (factors[:2], factors[1::-1]):
        if unit in free_variables(weights) <= {unit, term} and unit not in free_variables(state):
            return state, weights
    return None


def _recurrence(group: Sequence[Stage]) -> Recurrence | None:
    """A scan of vectors of units with at least one product, cut where a stage reads other units of this step."""
    first = group[0]
    if not isinstance(first.order, Scan):
        return None
    dimension, products = ordered.carried_dimension(first), [product_of(stage) for stage in group]
    fits = all(
        stage.buffer.shape == first.buffer.shape
        and stage.buffer.dtype == first.buffer.dtype
        and ordered.carried_dimension(stage) == dimension < len(stage.axes) - 1
        and (stage.reduction is None or product is not None)
        for stage, product in zip(group, products, strict=True)
    )
    if not fits or not any(products) or 0 in b.counts(first.buffer):
        return None
    phases: list[list[Stage]] = [[]]
    for stage in group:
        now = {other.buffer for other in phases[-1]}
        across = [load for load in loads(*ordered.stage_expressions(stage)) if load.buffer in now]
        if any(load.indices != stage.axes and ordered.reads_before(group, load) is None for load in across):
            phases.append([])
        phases[-1].append(stage)
    return Recurrence(tuple(_phase(stages, first.axes) for stages in phases), first.order, dimension)


def _phase(stages: Sequence[Stage], axes: tuple[Variable, ...]) -> Phase:
    """Stages with their axes and terms renamed alike; sums that multiply weights by the same are computed together."""
    terms: dict[Expression, Axis] = {}
    renamed, together = [], dict[tuple[Expression, Expression], list[tuple[Stage, Expression]]]()
    for stage in stages:
        values: dict[Variable, Expression] = dict(zip(stage.axes, axes, strict=True))
        if stage.reduction is not None:
            (axis,) = stage.reduction.axes
            values[axis.variable] = terms.setdefault(axis.extent, axis).variable
        renamed.append(_renamed(stage, values, axes))
        product = product_of(renamed[-1]) if stage.reduction is not None else None
        if product is not None and stage.reduction is not None:
            together.setdefault((product[0], stage.reduction.axes[0].extent), []).append((renamed[-1], product[1]))
    sums = (
        Sums(tuple(stage for stage, _ in found), state, tuple(weights for _, weights in found), terms[extent])
        for (state, extent), found in together.items()
    )
    return Phase(tuple(renamed), axes, tuple(sums))


def _renamed(stage: Stage, values: dict[Variable, Expression], axes: tuple[Variable, ...]) -> Stage:
    changed = ordered.map_stage(stage, substitution(values))
    reduction = changed.reduction
    if reduction is not None:
        (axis,) = reduction.axes
        term = values[axis.variable]
        assert isinstance(term, Variable), term
        reduction = replace(reduction, axes=(Axis(term, axis.extent),))
    return replace(changed, axes=axes, reduction=reduction)
