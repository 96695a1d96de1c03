"""Operators without a lowering, whose native forms (`graft.plugins.irregular`) take for granted what they demand."""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition import index_bounds
from graft.core.operators.definition.adjoint import through
from graft.core.operators.definition.facts import Facts, Shape, normal_axis, replaced
from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.table import define
from graft.core.operators.images.plain_sampling import aligned_regions, pooled_regions
from graft.core.operators.movement import derivatives as derivative
from graft.core.operators.products.derivatives import determinant
from graft.core.operators.without_lowering import control_derivatives as control


def _determinant(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    return [] if shape is None else [shape[:-2]]


def _regions_of_interest(facts: Facts) -> list[Shape | None]:
    """A pooled image for each region."""
    image, regions = facts.known(0), facts.known(1)
    pooled = facts.attribute("pooled_shape") or [facts.attribute(f"output_{side}", 1) for side in ("height", "width")]
    return [(regions[0], image[1], *pooled)]


def _compress(facts: Facts) -> list[Shape | None]:
    shape, axis = facts.shape(0), facts.attribute("axis")
    if axis is None or shape is None:
        return [(None,) if axis is None else None]
    return [replaced(shape, normal_axis(axis, len(shape)), None)]


def _unique(facts: Facts) -> list[Shape | None]:
    shape, axis = facts.shape(0), facts.attribute("axis")
    first: Shape | None = (None,)
    if axis is not None:
        first = None if shape is None else replaced(shape, normal_axis(axis, len(shape)), None)
    return [first, (None,), (None,), (None,)]


def _non_zero(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    return [(None if shape is None else len(shape), None)]


def _non_max_suppression(facts: Facts) -> list[Shape | None]:
    return [(None, 3)]


define("Det", demands=demand.same(0, -1, 0, -2), shapes=_determinant, vjp=determinant)
define("Compress", shapes=_compress, attributes=(check.AXIS,), vjp=derivative.compressed)
define("NonZero", shapes=_non_zero)
define("SplitToSequence", attributes=(check.AXIS,))
define("Unique", shapes=_unique, attributes=(check.AXIS,))
define("Scatter", shapes=LIKE_FIRST, attributes=(check.AXIS,), indices=index_bounds.along_axis)
define(
    "MaxRoiPool", demands=demand.counted(1, 1, 5), shapes=_regions_of_interest,
    attributes=(check.at_least(1, "pooled_shape"),), vjp=through(pooled_regions),
)  # fmt: skip
define(
    "NonMaxSuppression",
    demands=demand.all_of(demand.same(1, 0, 0, 0), demand.same(1, 2, 0, 1), demand.counted(0, 2, 4)),
    shapes=_non_max_suppression,
)
define(
    "RoiAlign",
    demands=demand.all_of(demand.same(2, 0, 1, 0), demand.counted(1, 1, 4)),
    shapes=_regions_of_interest,
    attributes=(
        check.at_least(1, "output_height", "output_width"),
        check.at_least(0, "sampling_ratio"),
        check.one_of("mode", "avg", "max"),
        check.one_of("coordinate_transformation_mode", "half_pixel", "output_half_pixel"),
    ),
    vjp=through(aligned_regions),
)
define("StringConcat", demands=demand.broadcasting())


def _scan(node: NodeView) -> Iterator[Equation]:
    """What is scanned has as many slices each."""
    count = int(node.attribute("num_scan_inputs"))
    states = len(node.node.inputs) - count
    axes = node.attribute("scan_input_axes") or [0] * count
    for number in range(1, count):
        yield from demand.same(states + number, axes[number], states, axes[0])(node)


define("Scan", demands=_scan, vjp=control.scan)
define("Loop", vjp=control.loop)
define("If", vjp=control.branches)
