"""A kernel in which nothing but the batch varies, as a kernel of one image and the loop over images around it.

Most exported models leave the batch open and fix all else. What such a kernel does for an image is a kernel of numbers,
so that every schedule for numbers serves it: its loops stand as they are inside of one over the images.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.flat_stages import LoopAxis
from graft.core.schedule.loops.inline import constant_shape, stage_expressions
from graft.core.schedule.loops.loop_frames import nested, taken
from graft.core.schedule.loops.nest import operations
from graft.core.schedule.primitives.loop_kinds import Parallel
from graft.core.tensor_ir.ir import Buffer, Constant, Expression, For, Function, Load, Stage, Variable
from graft.core.tensor_ir.ordered_stages import is_sequential, map_stage
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, map_accesses


@dataclass(frozen=True, slots=True)
class OneImage:
    """The kernel of one image, whose first axes have one element, and how many images there are."""

    kernel: Kernel
    images: Variable
    varying: frozenset[Buffer]
    """Its buffers that have a part for each image."""

    @property
    def work(self) -> int:
        """The operations of one image."""
        return sum(map(_work, self.kernel.stages))

    def for_all(self, function: Function, machine: Machine) -> Function:
        """Return a function of one image as a function of all of them.

        Images are tasks beside those of each image where these are one loop, or no tasks for their size; else one image
        after the other is shared among the threads.
        """
        image = Variable("each.image")
        places = zip(function.parameters, (*self.kernel.inputs, *self.kernel.outputs), strict=True)
        whole = {one: replace(one, shape=(self.images, *one.shape)) for one, buffer in places if buffer in self.varying}
        body = map_accesses(function.body, whole, lambda buffer, indices: (whole[buffer], (image, *indices)))
        is_one_loop = isinstance(body, For) and body.kind == "parallel"
        apart = is_one_loop or self.work < machine.costs.task
        axis = LoopAxis.over(image, self.images)
        body = taken(nested([axis], body), [Parallel(image.name)] if apart else [], [axis])
        return replace(function, parameters=tuple(whole.get(one, one) for one in function.parameters), body=body)


def one_image(kernel: Kernel) -> OneImage | None:
    """Return the kernel of one image; None if more than the batch varies, or images are not each by itself."""
    buffers = tuple(dict.fromkeys((*kernel.inputs, *(stage.buffer for stage in kernel.stages))))
    extents = {extent for one in buffers for extent in one.shape if not isinstance(extent, Constant)}
    images = extents.pop() if len(extents) == 1 else None
    if not isinstance(images, Variable):
        return None
    varying = {one for one in buffers if images in one.shape}
    are_apart = all(one.shape[0] is images and images not in one.shape[1:] and one.strides is None for one in varying)
    if not are_apart or not varying.issuperset(kernel.outputs):
        return None
    if any(is_sequential(stage) or not _stays(stage, images, varying) for stage in kernel.stages):
        return None
    single = {one: replace(one, shape=(b.index(1), *one.shape[1:])) for one in varying}

    def rule(node: Expression) -> Expression:
        known = isinstance(node, Load) and node.buffer in single
        return replace(node, buffer=single[node.buffer]) if known and isinstance(node, Load) else node

    renamed = ExpressionMap(rule)
    stages = (replace(map_stage(one, renamed), buffer=single.get(one.buffer, one.buffer)) for one in kernel.stages)
    made = replace(
        kernel,
        inputs=tuple(single.get(one, one) for one in kernel.inputs),
        outputs=tuple(single[one] for one in kernel.outputs),
        stages=tuple(stages),
    )
    return OneImage(made, images, frozenset(single.values()))


def _stays(stage: Stage, images: Variable, varying: Collection[Buffer]) -> bool:
    """Whether a stage reads nothing but the image that it writes, and not its number."""
    own = stage.axes[0] if stage.buffer in varying else None
    if any(load.buffer in varying and load.indices[0] is not own for load in loads(*stage_expressions(stage))):
        return False
    first = b.index(0)

    def rule(node: Expression) -> Expression:
        known = isinstance(node, Load) and node.buffer in varying
        return replace(node, indices=(first, *node.indices[1:])) if known and isinstance(node, Load) else node

    rest = map_stage(stage, ExpressionMap(rule))
    extents = () if stage.reduction is None else tuple(axis.extent for axis in stage.reduction.axes)
    used = {one for expression in (*stage_expressions(rest), *extents) for one in free_variables(expression)}
    return images not in used and own not in used


def _work(stage: Stage) -> int:
    reduced = () if stage.reduction is None else stage.reduction.axes
    terms = prod(int(axis.extent.value) for axis in reduced if isinstance(axis.extent, Constant))
    return prod(constant_shape(stage.buffer) or ()) * terms * max(operations(stage.value), 1)
