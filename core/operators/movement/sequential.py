"""Operators whose elements depend on each other: cumulative sums and products, scatters, TopK."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition import index_bounds
from graft.core.operators.definition.adjoint import through
from graft.core.operators.definition.cost import moved, per_input
from graft.core.operators.definition.facts import normal_axis
from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.stated_extents import Stated
from graft.core.operators.definition.table import LowerFunction, Lowering, Trait, define
from graft.core.operators.definition.varying import anything, varying_axis
from graft.core.operators.elementwise.arithmetic import bound
from graft.core.operators.movement import contents, shapes
from graft.core.operators.movement import derivatives as derivative
from graft.core.operators.movement import stated_extents as claims
from graft.core.operators.movement.indexing import position
from graft.core.operators.movement.manipulation import integers
from graft.core.operators.movement.plain_product import cumulative_product
from graft.core.reject import Reject
from graft.core.tensor_ir import ir

SEQUENTIAL = frozenset({Trait.RECURRENT})
SCATTER = SEQUENTIAL | {Trait.SCATTER}

# ---- Cumulative sums and products ---------------------------------------------------------------------------------


def _lower_cumulative(combine: Callable[[ir.Expression, ir.Expression], ir.Expression], neutral: int) -> LowerFunction:
    def lower(lowering: Lowering) -> tuple[ir.Stage, ...]:
        """``total[t] = total[t - 1] + x[t]``, and the result is it or, exclusively, the one before."""
        source, target = lowering.input(0), lowering.output()
        known, kind = integers(lowering.constant(1)), b.wide(source.dtype)
        if known is None:
            return _along_a_computed_axis(lowering, combine, neutral)
        axis = normal_axis(known[0], len(source.shape))
        exclusive = bool(lowering.node.attribute("exclusive", 0))
        shape, axes = b.extents(source), b.variables(len(source.shape))
        total = target if kind == target.dtype and not exclusive else lowering.temporary(kind, shape)
        scan = ir.Scan(axes[axis], b.constant(neutral, kind), bool(lowering.node.attribute("reverse", 0)))
        before = ir.Load(total, (*axes[:axis], scan.previous, *axes[axis + 1 :]))
        sums = ir.Stage(total, axes, combine(before, b.cast(ir.Load(source, axes), kind)), order=scan)
        if total is target:
            return (sums,)
        result = b.cast(before if exclusive else ir.Load(total, axes), target.dtype)
        return sums, ir.Stage(target, axes, result, order=ir.Scan(scan.carried, None, scan.reverse))

    return lower


def _along_a_computed_axis(
    lowering: Lowering, combine: Callable[[ir.Expression, ir.Expression], ir.Expression], neutral: int
) -> tuple[ir.Stage, ...]:
    """One scan along each axis, of which those along others than the wanted one leave everything as it is."""
    source, target, exclusive = lowering.input(0), lowering.output(), lowering.node.attribute("exclusive", 0)
    kind, shape, rank = b.wide(source.dtype), b.extents(source), len(source.shape)
    wanted = b.cast(bound(lowering, 1), "int64")
    stages: list[ir.Stage] = []
    current = source
    for axis in range(rank):
        is_this = b.equal(b.modulo(b.add(wanted, rank), rank), axis)
        axes, total = b.variables(rank), lowering.temporary(kind, shape)
        scan = ir.Scan(axes[axis], b.constant(neutral, kind), bool(lowering.node.attribute("reverse", 0)))
        before = ir.Load(total, (*axes[:axis], scan.previous, *axes[axis + 1 :]))
        own = b.cast(ir.Load(current, axes), kind)
        stages.append(ir.Stage(total, axes, b.select(is_this, combine(before, own), own), order=scan))
        if exclusive:
            shifted = lowering.temporary(kind, shape)
            order = ir.Scan(scan.carried, None, scan.reverse)
            stages.append(ir.Stage(shifted, axes, b.select(is_this, before, own), order=order))
            total = shifted
        current = total
    return (*stages, b.compute(target, lambda i: b.load(current, *i)))


_cumulative = partial(
    define, traits=SEQUENTIAL, cost=per_input(1), varies=anything, shapes=LIKE_FIRST,
    attributes=(check.constant_axis(1),),
)  # fmt: skip
_cumulative("CumSum", lower=_lower_cumulative(b.add, 0), vjp=derivative.cumulated)
_cumulative("CumProd", lower=_lower_cumulative(b.multiply, 1), vjp=through(cumulative_product))

# ---- Scatters -----------------------------------------------------------------------------------------------------

_OPERATORS: dict[str, ir.ScatterOperator] = {"none": "set", "add": "add", "mul": "mul", "min": "min", "max": "max"}
_OF_BOOL: dict[str, ir.ScatterOperator] = {"add": "max", "mul": "min"}
"""What sums and products of truth values are."""


def _scattered(
    lowering: Lowering,
    number: int,
    extents: tuple[b.Extent, ...],
    place: Callable[[tuple[ir.Variable, ...]], tuple[ir.Expression, ...]],
) -> tuple[ir.Stage, ...]:
    """The data with element ``k`` of the updates, input ``number`` in these extents, at ``place(k)``."""
    source, updates, target = lowering.input(0), lowering.input(number), lowering.output()
    axes, loops = b.variables(len(source.shape)), b.variables(len(extents), "k")
    over = tuple(ir.Axis(variable, b.extent(extent)) for variable, extent in zip(loops, extents, strict=True))
    operator = _OPERATORS[lowering.node.attribute("reduction", "none")]
    if source.dtype == "bool":
        operator = _OF_BOOL.get(operator, operator)
    scatter = ir.Scatter(over, place(loops), operator, ir.Load(updates, loops))
    return (ir.Stage(target, axes, ir.Load(source, axes), order=scatter),)


def _lower_scatter_elements(lowering: Lowering) -> tuple[ir.Stage, ...]:
    source, indices = lowering.input(0), lowering.input(1)
    axis = normal_axis(lowering.node.attribute("axis", 0), len(source.shape))

    def place(k: tuple[ir.Variable, ...]) -> tuple[ir.Expression, ...]:
        chosen = position(ir.Load(indices, k), b.extents(source)[axis], lowering.node)
        return (*k[:axis], chosen, *k[axis + 1 :])

    return _scattered(lowering, 2, b.extents(indices), place)


def _lower_scatter_nd(lowering: Lowering) -> tuple[ir.Stage, ...]:
    source, indices, updates = (lowering.input(number) for number in range(3))
    shape, rank = b.extents(source), len(indices.shape) - 1
    (depth,) = b.numbers(indices, rank)

    def place(k: tuple[ir.Variable, ...]) -> tuple[ir.Expression, ...]:
        chosen = [position(ir.Load(indices, (*k[:rank], b.index(d))), shape[d]) for d in range(depth)]
        return (*chosen, *k[rank:])

    return _scattered(lowering, 2, b.extents(updates), place)


def _lower_tensor_scatter(lowering: Lowering) -> tuple[ir.Stage, ...]:
    """A window of each batch's cache: from a place of its own on (the beginning by default), perhaps around the end."""
    source, starts = lowering.input(0), lowering.optional(2)
    axis = normal_axis(lowering.node.attribute("axis", -2), len(source.shape))
    room, length = b.extents(source)[axis], b.extents(lowering.input(1))[axis]
    known = isinstance(room, int) and isinstance(length, int)
    starting = b.counted(b.add(b.subtract(b.extent(room), length), 1))
    is_circular = lowering.node.attribute("mode", "linear") == "circular"

    def place(k: tuple[ir.Variable, ...]) -> tuple[ir.Expression, ...]:
        start: ir.Expression = b.index(0)
        if starts is not None:
            start = b.clamp(b.cast(ir.Load(starts, (k[0],)), "int64"), room if is_circular else starting)
        at = b.add(start, k[axis])
        at = (
            b.modulo(at, room) if is_circular else at if known else b.clamp(at, room)
        )  # more may come than there is room
        return (*k[:axis], at, *k[axis + 1 :])

    return _scattered(lowering, 1, b.extents(lowering.input(1)), place)


def _slices_vary(node: NodeView) -> Reject | None:
    """Take any extents, by tuples of a known length."""
    value = node.input(1)
    shape = () if value is None or value.shape is None else value.shape
    return None if value is None or isinstance(shape[-1], int) else varying_axis(node, value, len(shape) - 1)


_ELEMENTS = demand.all_of(demand.alike(1, 2), demand.within(1, 0, but=demand.attribute("axis", 0)))
"""An update for each index, and no more of them along other axes than there is data."""


def _slices_demand(node: NodeView) -> Iterator[Equation]:
    """An update for each tuple of indices, as large as what such a tuple chooses."""
    data, indices = (demand.operands(node, number) for number in (0, 1))
    shape = None if node.inputs[1] is None else node.inputs[1].shape
    if data is None or not indices or not shape or not isinstance(shape[-1], int):
        return
    for axis, extent in enumerate((*indices[:-1], *data[shape[-1] :])):
        yield from demand.equation(demand.operand(node, 2, axis), extent)


def _window_demands(node: NodeView) -> Iterator[Equation]:
    axis = int(node.attribute("axis", -2))
    yield from demand.alike(1, 0, but=axis)(node)
    yield from demand.equation(demand.operand(node, 1, axis), demand.operand(node, 0, axis), "at most")
    yield from demand.same(2, 0, 0, 0)(node)


def _cache_starts(node: NodeView) -> Iterable[index_bounds.IndexBound]:
    """The window that is written lies in the cache, or begins there where that is circular."""
    if node.input(2) is not None:
        axis = node.attribute("axis", -2) % len(index_bounds.extents(node, 0))
        room, length = index_bounds.extent_of(node, 0, axis), index_bounds.extent_of(node, 1, axis)
        circular = node.attribute("mode", "linear") == "circular"
        yield index_bounds.IndexBound(
            2, axis, room, 0, index_bounds.plus(room, -1) if circular else index_bounds.plus(room, length, -1)
        )


_REDUCTION = check.one_of("reduction", "none", "add", "mul", "min", "max")


define(
    "ScatterElements", SCATTER, _lower_scatter_elements, moved, varies=anything, demands=_ELEMENTS,
    shapes=LIKE_FIRST, contents=contents.scatter,
    attributes=(check.AXIS, _REDUCTION), asked_when_loaded=True, indices=index_bounds.along_axis,
    vjp=derivative.scattered_elements,
)  # fmt: skip
define(
    "ScatterND", SCATTER, _lower_scatter_nd, moved, varies=_slices_vary, demands=_slices_demand,
    shapes=LIKE_FIRST, contents=contents.scatter, attributes=(_REDUCTION,), indices=index_bounds.tuples,
    vjp=derivative.scattered_slices,
)  # fmt: skip
define(
    "TensorScatter", SEQUENTIAL | {Trait.SELECTING}, _lower_tensor_scatter, moved, varies=anything,
    demands=_window_demands, shapes=LIKE_FIRST,
    attributes=(check.AXIS, check.one_of("mode", "linear", "circular")), indices=_cache_starts,
    vjp=derivative.cached,
)  # fmt: skip

# ---- TopK ---------------------------------------------------------------------------------------------------------


def _lower_top_k(lowering: Lowering) -> tuple[ir.Stage, ...]:
    """The positions of the best elements, then the elements there."""
    source, values, found = lowering.input(0), lowering.optional_output(0), lowering.optional_output(1)
    axis = normal_axis(lowering.node.attribute("axis", -1), len(source.shape))
    axes, candidate = b.variables(len(source.shape)), ir.Variable("k")
    candidates = b.extents(source)[axis]
    if found is None:
        assert values is not None, lowering.node.where
        found = lowering.temporary("int64", b.extents(values))
    largest = bool(lowering.node.attribute("largest", 1))
    selection = ir.Selection(axes[axis], ir.Axis(candidate, b.extent(candidates)), largest)
    positions = ir.Stage(found, axes, ir.Load(source, (*axes[:axis], candidate, *axes[axis + 1 :])), order=selection)
    if values is None:
        return (positions,)
    chosen = b.compute(values, lambda i: ir.Load(source, (*i[:axis], ir.Load(found, i), *i[axis + 1 :])))
    return positions, chosen


def _accept_top_k(node: NodeView) -> Reject | None:
    if 0 in (node.outputs[0].shape or ()):
        return Reject("shape", "TopK of no elements")
    return None


def _top_k_demands(node: NodeView) -> Iterator[Equation]:
    """No more are taken than there are."""
    axis, wanted = int(node.attribute("axis", -1)), demand.numbers_in(node, 1)
    taken = wanted[0] if wanted else demand.result(node, 0, axis)
    yield from demand.counted(1, 0, 1)(node)
    yield from demand.equation(taken, demand.operand(node, 0, axis), "at most")


def _ranks(node: NodeView) -> Iterable[index_bounds.IndexBound]:
    """How many elements are chosen: no more than there are, where that is known only when the node runs."""
    axis = node.attribute("axis", -1) % max(len(index_bounds.extents(node, 0)), 1)
    extent = index_bounds.extent_of(node, 0, axis)
    if not isinstance(extent, int) and node.input(1) is not None:
        yield index_bounds.IndexBound(1, axis, extent, 0, extent)


def _largest_count(node: NodeView) -> str | None:
    """TopK: a constant k is not larger than the axis."""
    value, k = node.input(0), check.integers_of(node, 1)
    if value is None or value.shape is None or not k or not value.shape:
        return None
    along = node.attribute("axis", -1)
    extent = value.shape[along]
    if isinstance(extent, int) and not 0 <= k[0] <= extent:
        return f"k is {k[0]}, but axis {along} has extent {extent}"
    return None


define(
    "TopK", SEQUENTIAL | {Trait.SELECTING}, _lower_top_k, per_input(8), _accept_top_k, varies=anything,
    demands=_top_k_demands, shapes=shapes.top_k,
    attributes=(check.AXIS, _largest_count), indices=_ranks, stated=Stated(claims.top_k), vjp=derivative.greatest,
)  # fmt: skip
