"""What a region costs in oneDNN: a primitive for every operator or composite, nothing fused across primitives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Cost
from graft.partition.costs import Work, kernel_cost, value_bytes
from graft.plugins.onednn.operators import row_of

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.partition.region import Region

CALL_SECONDS = 3e-6
"""What a call of a primitive costs besides its work: arguments, scratch memory, the start of its threads."""
NEW_SHAPE_SECONDS = 1.5e-5
"""What making a primitive for shapes that were not met before costs, 1 to 2 ms, spread over a hundred calls of each."""
PRODUCT_SHARE = 0.9
"""The share of the processor's rate that products reach, as measured over shapes of Transformers."""


def region_costs(region: Region) -> Sequence[Cost]:
    """Return one cost for each primitive, and one for each image that is put into blocks of channels or back."""
    work = Work(OPERATORS, region.typical)
    bodies = [region.opened(node) for node in region.nodes()]
    varies = any(value.static_shape is None for value in region.inputs)
    seconds = CALL_SECONDS + (NEW_SHAPE_SECONDS if varies else 0.0)
    kernels = [_primitive(nodes, work, seconds) for nodes in bodies if not row_of(nodes[-1]).is_view]
    return [*kernels, *(Cost(0, 2 * size, seconds) for size in _reordered(region))]


def _primitive(nodes: Sequence[NodeView], work: Work, seconds: float) -> Cost:
    cost = replace(kernel_cost(nodes, work), seconds=seconds)
    is_product = any(row_of(node).is_product for node in nodes)
    return replace(cost, flops=int(cost.flops / PRODUCT_SHARE)) if is_product else cost


def _reordered(region: Region) -> Iterator[int]:
    """Yield the bytes of the images that pass the region's border, if there are convolutions in it."""
    if any(row_of(inner).kind == "convolution" for node in region.nodes() for inner in region.opened(node)):
        for value in (*region.inputs, *region.outputs):
            if (value.rank or 0) >= 3:
                yield value_bytes(value.value, region.typical)
