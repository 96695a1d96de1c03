"""One template for recurrent layers: the products of each step, and what follows them, as nests in a loop over steps.

Of each nest units are vectors, several side by side, for several rows at a time; sums stay in registers. Weights that
are constants lie in panels of units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import log2

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.primitives.loop_kinds import Jam, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.schedule_text import INPUT
from graft.core.schedule.primitives.staging import CacheWrite
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.templates.tiled_nests import extent_of, plain_nests
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import free_variables, loads, walk_statements
from graft.core.types import element_bits

VECTORS, ROWS = (8, 4, 2, 1), (4, 2, 1)
UNROLLS = (2, 1)
USUAL = 8
"""Sums that are side by side in what is tried first: of a step; of all steps twice as many."""


@dataclass(frozen=True, slots=True)
class RecurrentTile:
    """Vectors of units and rows side by side, of the products of all steps at once and of those of one step.

    Of each sum ``unroll`` terms are written out.
    """

    vectors: int
    rows: int
    step_vectors: int
    step_rows: int
    unroll: int


@dataclass(frozen=True, slots=True)
class UnitNest:
    """Loops directly in each other, of which ``loops[-1]`` goes over units; ``terms`` are inside and sum."""

    loops: tuple[ir.For, ...]
    terms: tuple[ir.For, ...]
    store: ir.Store
    is_step: bool
    """Whether it has sums in registers already, as nests of a step have."""


@dataclass(frozen=True, slots=True)
class RecurrentNests:
    """The nests of a recurrent layer, and the constants that are read as weights alone: which axis is that of units."""

    nests: tuple[UnitNest, ...]
    weights: dict[str, tuple[int, int]]
    """By number of the input: that of the axis of units, and how many of them lie in a panel."""
    lanes: int

    def first(self) -> list[RecurrentTile]:
        """Return all tiles, the likely best first."""
        most = {
            is_step: max((_most_rows(one) for one in self.nests if one.terms and one.is_step == is_step), default=1)
            for is_step in (False, True)
        }
        rows, step_rows = ([count for count in ROWS if count <= most[one]] for one in (False, True))
        every = [RecurrentTile(*one) for one in product(VECTORS, rows, VECTORS, step_rows, UNROLLS)]

        def apart(tile: RecurrentTile) -> float:
            own, of_step = tile.vectors * tile.rows / (2 * USUAL), tile.step_vectors * tile.step_rows / USUAL
            return abs(log2(own)) + abs(log2(of_step))

        return sorted(every, key=apart)

    def steps(self, tile: RecurrentTile) -> Iterator[Step]:
        """Yield the schedule."""
        for name, (axis, units) in self.weights.items():
            yield Pack(name, axis, units, f"{name}_packed")
        for number, nest in enumerate(self.nests):
            vectors, rows = (tile.step_vectors, tile.step_rows) if nest.is_step else (tile.vectors, tile.rows)
            yield from self._vectors(nest, vectors, rows if nest.terms else 1, tile.unroll, f"part{number}")

    def _vectors(self, nest: UnitNest, most: int, rows: int, unroll: int, name: str) -> Iterator[Step]:
        """Yield what makes vectors of units of a nest."""
        *outer, unit = (one.variable.name for one in nest.loops)
        extent = extent_of(nest.loops[-1])
        whole = -(-extent // self.lanes)
        vectors = max(count for count in range(1, min(most, whole) + 1) if whole % count == 0)
        yield Split(unit, self.lanes * vectors, f"{unit}.block", unit)
        yield Split(unit, self.lanes, f"{unit}.vector", unit)
        side, order = [], [*outer, f"{unit}.block"]
        row = max(nest.loops[:-1], key=extent_of, default=None)
        if row is not None and (height := _divisor(extent_of(row), rows)) > 1:
            side, own = [row.variable.name], row.variable.name
            yield Split(own, height, f"{own}.block", own)
            order = [f"{own}.block" if one == own else one for one in order]
        terms = [one.variable.name for one in nest.terms] if not nest.is_step else []
        yield Reorder((*order, *terms, *side, f"{unit}.vector", unit))
        if terms:
            yield CacheWrite(nest.store.buffer.name, f"{unit}.block", "register", name)
            for way in ("in", "out"):
                lane = f"{name}.{way}.{len(nest.store.indices) - 1}"
                yield Split(lane, self.lanes, f"{lane}.vector", lane)
                yield from (Vectorize(lane), Jam(f"{lane}.vector"))
        for term in nest.terms if unroll > 1 else ():
            own = term.variable.name
            if extent_of(term) % unroll == 0:
                yield Split(own, unroll, own, f"{own}.part")
                yield Unroll(f"{own}.part")
        yield from (Vectorize(unit), Jam(f"{unit}.vector"))
        yield from map(Jam, side)


def _most_rows(nest: UnitNest) -> int:
    return max((extent_of(one) for one in nest.loops[:-1]), default=1)


def _divisor(extent: int, most: int) -> int:
    return max(count for count in range(1, most + 1) if extent % count == 0)


def recurrent_nests(kernel: Kernel, target: Target) -> RecurrentNests | None:
    """Return a recurrent layer as nests; None where there is more than these, or extents vary."""
    if kernel.anchor is not Trait.RECURRENT or target.machine.is_device or not target.machine.vectors:
        return None
    body = plain_nests(kernel).body
    nests = list(_nests(body, ()))
    every = [one for one in walk_statements(body) if isinstance(one, ir.For)]
    if not nests or not all(isinstance(one.extent, ir.Constant) for one in every):
        return None
    size = max(element_bits(one.store.buffer.dtype) // 8 for one in nests)
    lanes = target.machine.vector_bytes // size
    numbers = {one.name: f"{INPUT}{number}" for number, one in enumerate(kernel.inputs) if one in kernel.constants}
    weights = {numbers[name]: place for name, place in _weights(nests, numbers, lanes)}
    return RecurrentNests(tuple(nests), weights, lanes)


def _nests(statement: ir.Statement, loops: tuple[ir.For, ...]) -> Iterator[UnitNest]:
    """Yield nests in order; a loop over several of them is one over steps."""
    match statement:
        case ir.Block(statements):
            for one in statements:
                yield from _nests(one, ())
        case ir.Allocate(_, ir.Block((ir.Store(), ir.For() as term, ir.Store() as last))) if loops:
            yield UnitNest(loops, (term,), last, is_step=True)
        case ir.Allocate(_, body) if not loops:
            yield from _nests(body, ())
        case ir.For(body=body):
            yield from _nests(body, (*loops, statement))
        case ir.Store() if loops:
            moved = free_variables(*statement.indices)
            own = tuple(one for one in loops if one.variable in moved)
            if own and statement.indices[-1] is own[-1].variable:
                yield UnitNest(own, tuple(one for one in loops if one not in own), statement, is_step=False)


def _weights(nests: Sequence[UnitNest], constants: Container[str], lanes: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the constants that sums read at units, the axis of these, and how many of them a panel has."""
    read = defaultdict[str, set[tuple[int, int]]](set)
    for nest in nests:
        unit, extent = nest.loops[-1].variable, extent_of(nest.loops[-1])
        inner = [one for term in nest.terms for one in walk_statements(term)] if nest.is_step else [nest.store]
        for load in loads(*(one.value for one in inner if isinstance(one, ir.Store))):
            axes = [number for number, place in enumerate(load.indices) if unit in free_variables(place)]
            if load.buffer.name in constants and nest.terms and len(axes) == 1:
                read[load.buffer.name].add((axes[0], extent))
    for name, found in read.items():
        ((axis, units),) = found if len(found) == 1 else [(0, 0)]
        widths = (count * lanes for count in range(1, max(VECTORS) + 1))
        width = max((one for one in widths if units and units % one == 0), default=0)
        if width:
            yield name, (axis, width)
