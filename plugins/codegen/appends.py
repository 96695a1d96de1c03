"""Appends: Concats of a growing cache that are no kernels, for their result lies behind what they append to.

The runtime writes the new rows alone where its caller gives input and output as the first rows of one buffer. Blocks
of rows are then farther apart than they are long: whoever reads the result finds the distance among the strides of the
tensor, as a variable of the buffer. So every reader must be a kernel that leaves the buffer as it is, which its
schedule shows; else the Concat stays a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.tensor_ir.ir import Buffer, Constant, Expression, Variable
from graft.partition.region import Region
from graft.plugins.codegen.grouping.fusion import Group
from graft.plugins.codegen.lowered_groups import Lowered


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the Concat that makes a value stays a kernel."""

    value: ir.Value
    reason: str


def candidates(region: Region) -> dict[ir.Value, int]:
    """Return the results of Concats of a region that may be appends, with the axis."""
    outputs = {output.name: output.value for output in region.outputs}
    return {outputs[name]: axis for name, axis in region.caches.items() if name in outputs}


def with_pitch(buffer: Buffer, axis: int) -> Buffer:
    """Return the buffer of a value that grows along an axis: blocks of its rows are as far apart as the caller says."""
    blocks = buffer.shape[:axis]
    if all(isinstance(extent, Constant) and extent.value == 1 for extent in blocks):
        return buffer
    pitch = Variable(f"{buffer.name}_pitch")
    strides: list[Expression] = []
    below: Expression = b.index(1)
    for place in reversed(range(len(buffer.shape))):
        strides.insert(0, pitch if place == axis - 1 else below)
        below = b.multiply(strides[0], buffer.shape[place])
    return replace(buffer, strides=tuple(strides))


def refused(
    appended: Mapping[ir.Value, int],
    groups: Sequence[Group],
    readers: Mapping[ir.Value, Sequence[NodeView]],
    lower: Callable[[int], Sequence[Lowered]],
    schedule: Callable[[Kernel], Scheduled],
) -> Iterator[Refused]:
    """Yield those of the appended values that some group cannot read with a pitch; groups are lowered by number."""
    place = {node.node: number for number, group in enumerate(groups) for node in _nodes(group)}
    tried: dict[int, bool] = {}
    for value in appended:
        for reader in readers.get(value, ()):
            number = place[reader.node]
            if groups[number].is_view or groups[number].parts or groups[number].appends is not None:
                yield Refused(value, f"node '{reader.name}' is a view of it or a part")
                break
            if number not in tried:
                tried[number] = all(_keeps_buffers(one.kernel, schedule(one.kernel)) for one in lower(number))
            if not tried[number]:
                yield Refused(value, f"node '{reader.name}' reads it in a kernel of contiguous tensors")
                break


def _nodes(group: Group) -> Iterator[NodeView]:
    for one in (group, *group.beside):
        yield from (*one.before, *one.nodes)


def _keeps_buffers(kernel: Kernel, scheduled: Scheduled) -> bool:
    """Whether a kernel's inputs with strides are parameters of its function, as they are."""
    return {buffer for buffer in kernel.inputs if buffer.strides is not None} <= {
        one.outside for one in scheduled.function.parameters
    }
