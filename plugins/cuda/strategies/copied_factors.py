"""Factors that tensor instructions read from a copy: rounded, images also channels last and with a border of zeros.

What a stage of a product brings is then 16 bytes of neighbours that nothing is done to, so that it is copied past the
registers while others are computed, and a window that leaves the image costs no test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import Layout
from graft.core.schedule.strategies.strategy import Anchor
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.anchor_rules import element_of, image_and_weights
from graft.core.tensor_ir.visit import map_accesses, substitute
from graft.core.types import element_bits
from graft.plugins.cuda.strategies.elements import build as elements_of
from graft.plugins.cuda.strategies.packing import read_places
from graft.plugins.cuda.strategies.product_parts import Axes, Product
from graft.plugins.cuda.strategies.tiles import USUAL


@dataclass(frozen=True)
class CopiedFactor:
    """A product that reads a copy, and the stage that makes it of ``source``."""

    product: Product
    stage: ir.Stage
    source: ir.Buffer

    @property
    def moved(self) -> int:
        """The bytes that are read and written, those of a usual image where extents vary."""
        counts = b.counts(self.stage.buffer)
        known = [one for one in counts if isinstance(one, int)]
        elements = prod(known) if len(known) == len(counts) else USUAL * known[-1]
        return elements * (element_bits(self.source.dtype) + element_bits(self.stage.buffer.dtype)) // 8

    def before(self, function: ir.Function, target: Target) -> ir.Function:
        """Return the function of the product with the loops that make the copy before its own."""
        kernel = Kernel("copy", (self.source,), (self.stage.buffer,), (self.stage,), Trait.INJECTIVE)
        made = elements_of(Anchor(kernel), target)
        assert isinstance(made, Scheduled), made
        flat = dict(zip((self.source, self.stage.buffer), made.function.parameters, strict=True))
        layout = Layout(Simplifier())

        def change(buffer: ir.Buffer, indices: Sequence[ir.Expression]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
            return flat[buffer], (layout.simplifier(layout.place(buffer, indices)),)

        product = map_accesses(function.body, flat, change)
        body = ir.Allocate(flat[self.stage.buffer], ir.Block((made.function.body, product)))
        return replace(function, parameters=tuple(flat.get(one, one) for one in function.parameters), body=body)


def with_channels_inside(product: Product) -> Product:
    """Return a convolution whose terms have the channels of a window's element inside; any other product as it is."""
    window, terms = product.stage.structure, product.terms
    if not isinstance(window, Window) or len(window.reduced) != len(terms.variables):
        return product
    order = sorted(range(len(window.reduced)), key=lambda number: window.reduced[number] or len(window.reduced))
    terms = Axes(tuple(terms.variables[one] for one in order), tuple(terms.extents[one] for one in order))
    return replace(product, rows=replace(product.rows, terms=terms), columns=replace(product.columns, terms=terms))


def copied_factor(product: Product, kernel: Kernel, dtypes: Sequence[str]) -> CopiedFactor | None:
    """Return a product that reads a copy of one factor, of the type that ``dtypes`` say; None where none is wanted."""
    sides = ("rows", product.rows.value, dtypes[0]), ("columns", product.columns.value, dtypes[1])
    found = [one for one in sides if _is_wanted(product, kernel, *one[1:])]
    if len(found) != 1:
        return None
    ((side, value, dtype),) = found
    window, load = product.stage.structure, element_of(value)
    assert load is not None, value
    axes = [ir.Variable(f"copied{axis}") for axis in range(len(load.indices))]
    firsts, extents, inside = _box(product, load, axes)
    last = window.layout.index(1) if isinstance(window, Window) else len(axes) - 1
    order = [*(axis for axis in range(len(axes)) if axis != last), last]
    source = ir.Load(load.buffer, tuple(map(b.add, axes, firsts)), b.all_of(inside))
    buffer = ir.Buffer(f"{load.buffer.name}_copied", dtype, tuple(extents[axis] for axis in order), alignment=16)
    stage = ir.Stage(buffer, tuple(axes[axis] for axis in order), b.cast(source, dtype), origin=product.stage.origin)
    near = ir.Load(buffer, tuple(b.subtract(load.indices[axis], firsts[axis]) for axis in order))
    inner = with_channels_inside(product)
    factor = replace(getattr(inner, side), value=b.cast(near, value.type.dtype))
    return CopiedFactor(replace(inner, **{side: factor}), stage, load.buffer)


def _is_wanted(product: Product, kernel: Kernel, value: ir.Expression, dtype: str) -> bool:
    """Whether a factor is the image of a convolution, or a matrix that is rounded."""
    window, parts, load = product.stage.structure, image_and_weights(product.stage), element_of(value)
    if load is None or value != b.cast(load, value.type.dtype) or load.buffer in kernel.constants:
        return False
    if load.buffer not in kernel.inputs or read_places(kernel, load.buffer) != 1:
        return False
    if isinstance(window, Window):
        return parts is not None and value is parts[0]
    is_plain = load.mask is None and all(isinstance(one, ir.Variable | ir.Constant) for one in load.indices)
    return is_plain and bool(load.indices) and load.type.dtype != dtype


def _box(
    product: Product, load: ir.Load, axes: Sequence[ir.Variable]
) -> tuple[list[ir.Expression], list[ir.Expression], list[ir.Expression]]:
    """Return the first place that is read along each axis, how many there are, and when ``axes`` are in the buffer.

    Places of a window move upwards with every axis of the result and of the window.
    """
    every = (product.batch, product.rows.own, product.columns.own, product.terms)
    extents = {axis: b.extent(extent) for one in every for axis, extent in zip(one.variables, one.extents, strict=True)}
    simplifier = Simplifier()
    firsts, counts, inside = list[ir.Expression](), list[ir.Expression](), list[ir.Expression]()
    for index, axis, whole in zip(load.indices, axes, load.buffer.shape, strict=True):
        first = simplifier(substitute(index, dict.fromkeys(extents, b.index(0))))
        last = simplifier(substitute(index, {one: b.subtract(extent, 1) for one, extent in extents.items()}))
        firsts.append(first)
        counts.append(simplifier(b.add(b.subtract(last, first), 1)))
        place, behind = b.add(axis, first), simplifier(b.subtract(whole, last))
        is_below = isinstance(first, ir.Constant) and first.value >= 0
        is_behind = isinstance(behind, ir.Constant) and behind.value >= 1
        inside += [b.greater_equal(place, 0)] * (not is_below) + [b.less(place, whole)] * (not is_behind)
    return firsts, counts, inside
