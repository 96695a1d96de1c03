"""Inlining: a stage without reduction is substituted into the stages that read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace

from graft.core.schedule.primitives.vectorize import both, zero_of
from graft.core.tensor_ir.anchors import Contraction, Structure, Window
from graft.core.tensor_ir.ir import Binary, Buffer, Cast, Constant, Expression, Load, Select, Stage, Variable
from graft.core.tensor_ir.ordered_stages import is_sequential, map_stage, stage_expressions, uses_of
from graft.core.tensor_ir.verifying.anchor_rules import element_of, image_and_weights
from graft.core.tensor_ir.visit import ExpressionMap, loads, structural_key

__all__ = [
    "constant_shape", "inline_into", "inline_stages", "inliner", "map_stage", "reads_at_own_index", "relaid",
    "reordered", "scaled", "stage_expressions", "value_at",
]  # fmt: skip


def inline_stages(
    stages: Sequence[Stage], keep: Collection[Buffer], wanted: Callable[[Stage], bool] = lambda stage: True
) -> tuple[Stage, ...]:
    """Return the stages without those that could be inlined into their readers.

    Stages whose buffer is in ``keep`` (the kernel's outputs) stay, and so do reductions, sequential stages and those
    that ``wanted`` refuses. A masked load of an inlined stage becomes a masked load where that stage moves elements,
    else a select whose own loads carry the mask.
    """
    inlined: dict[Buffer, Stage] = {}
    result: list[Stage] = []
    for stage in stages:
        new = inline_into(stage, inlined)
        if new.reduction is None and not is_sequential(new) and new.buffer not in keep and wanted(new):
            inlined[new.buffer] = new
        else:
            result.append(new)
    return tuple(result)


def inline_into(stage: Stage, producers: dict[Buffer, Stage]) -> Stage:
    """Return the stage with loads of the producers' buffers replaced by what the producers compute."""
    if not producers or not any(load.buffer in producers for load in loads(*stage_expressions(stage))):
        return stage
    return replace(map_stage(stage, inliner(producers)), structure=_read_through(stage, producers))


def _read_through(stage: Stage, producers: Mapping[Buffer, Stage]) -> Structure | None:
    """Return the structure of a stage that reads its image through a producer: one that reorders axes, if any."""
    parts = image_and_weights(stage)
    image = None if parts is None else element_of(parts[0])
    if image is None or image.buffer not in producers or not isinstance(stage.structure, Window):
        return stage.structure
    producer = producers[image.buffer]
    source, axes = element_of(producer.value), producer.axes
    indices = () if source is None else source.indices
    order = [place for index in indices for place, axis in enumerate(axes) if index is axis]
    is_whole = len(indices) == len(axes) and sorted(order) == list(range(len(axes)))
    return stage.structure.with_image(order) if is_whole else Contraction()


def inliner(producers: dict[Buffer, Stage]) -> ExpressionMap:
    """Return the map that replaces loads of the producers' buffers, at scalar indices, by their values.

    Loads of one element get one value, however often they are written: a chain of operators that each read the one
    before twice would else grow to two to the power of its length.
    """
    interned: dict[Hashable, Expression] = {}
    intern = ExpressionMap(lambda node: interned.setdefault(structural_key(node), node))
    values: dict[int, Expression] = {}

    def rule(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer not in producers:
            return node
        place = intern(node)
        if id(place) not in values:
            values[id(place)] = value_at(producers[node.buffer], node.indices, node.mask)
        return values[id(place)]

    return ExpressionMap(rule)


def value_at(stage: Stage, indices: Sequence[Expression], mask: Expression | None = None) -> Expression:
    """Return what a stage without reduction computes at some indices; zero where the mask is off."""
    assert stage.reduction is None, f"the reduction of '{stage.buffer.name}' cannot be inlined"
    assert not is_sequential(stage), f"'{stage.buffer.name}' cannot be inlined"
    places = dict(zip(stage.axes, indices, strict=True))

    def rule(node: Expression) -> Expression:
        if mask is not None and isinstance(node, Load):
            return Load(node.buffer, node.indices, both(mask, node.mask))
        return places.get(node, node) if isinstance(node, Variable) else node

    value = ExpressionMap(rule)(stage.value)
    element = value.value if isinstance(value, Cast) and not value.type.is_custom else value
    is_zero_outside = isinstance(element, Load) and not element.type.is_custom
    return value if mask is None or is_zero_outside else Select(mask, value, zero_of(value.type))


def relaid(stage: Stage, moved: Mapping[Buffer, Buffer], order: Sequence[int]) -> Stage:
    """Return the stage with the buffers in ``moved`` replaced by ones whose axes stand in another order."""

    def rule(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer not in moved:
            return node
        return Load(moved[node.buffer], tuple(node.indices[axis] for axis in order), node.mask)

    result = map_stage(stage, ExpressionMap(rule))
    parts = image_and_weights(stage)
    image = None if parts is None else element_of(parts[0])
    if isinstance(result.structure, Window) and image is not None and image.buffer in moved:
        result = replace(result, structure=result.structure.with_image(order))
    return result if stage.buffer not in moved else stored_as(result, moved[stage.buffer], order)


def stored_as(stage: Stage, buffer: Buffer, order: Sequence[int]) -> Stage:
    """Return the stage with its result in another buffer, whose axis ``i`` is axis ``order[i]`` of the stage's."""
    structure = stage.structure.with_result(order) if isinstance(stage.structure, Window) else stage.structure
    return replace(stage, buffer=buffer, axes=tuple(stage.axes[axis] for axis in order), structure=structure)


def reordered(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages in which a reduction that only a permutation of axes follows stores in that order itself."""
    result: list[Stage] = []
    for stage in stages:
        before = result[-1] if result else None
        if before is not None and before.reduction is not None and (order := permuted(stage, before)) is not None:
            readers = uses_of(before.buffer, stages)
            if len(readers) == 1:
                origin = tuple(dict.fromkeys((*before.origin, *stage.origin)))
                result[-1] = replace(stored_as(before, stage.buffer, order), origin=origin)
                continue
        result.append(stage)
    return result


def permuted(stage: Stage, before: Stage) -> tuple[int, ...] | None:
    """Return the axes of ``before`` in the order of a stage that only loads its buffer; None for any other."""
    load = stage.value
    if stage.reduction is not None or not isinstance(load, Load) or load.buffer is not before.buffer or load.mask:
        return None
    if is_sequential(stage) or is_sequential(before):
        return None
    places = {index: place for place, index in enumerate(load.indices) if isinstance(index, Variable)}
    if len(places) != len(before.axes) or set(places) != set(stage.axes):
        return None
    return tuple(places[axis] for axis in stage.axes)


def reads_at_own_index(stage: Stage, buffer: Buffer) -> bool:
    """Whether a stage reads a buffer only at exactly the index that it writes, without a mask."""
    return all(
        load.mask is None and len(load.indices) == len(stage.axes) and all(map(_is, load.indices, stage.axes))
        for load in loads(*stage_expressions(stage))
        if load.buffer is buffer
    )


def _is(index: Expression, axis: Expression) -> bool:
    return index is axis


def constant_shape(buffer: Buffer) -> tuple[int, ...] | None:
    """Return the shape of a buffer if every extent is constant."""
    if not all(isinstance(extent, Constant) for extent in buffer.shape):
        return None
    return tuple(int(extent.value) for extent in buffer.shape if isinstance(extent, Constant))


def scaled(index: Expression, factor: int) -> Expression:
    """Return ``index * factor``."""
    return index if factor == 1 else Binary("mul", index, Constant(factor, index.type))
