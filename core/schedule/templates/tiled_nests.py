"""One template for kernels that are no sums of products: rows, reductions, what moves elements or computes each.

All stages run row by row, each moved into the loops over rows that the last one has. A loop whose iterations lie
side by side in memory becomes vectors; where one reduces along it, each lane has a part of its own. Where a stage
reads along one axis and writes along another, squares are exchanged in registers. Nothing is known of the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2, prod

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.flat_stages import LoopAxis
from graft.core.schedule.loops.fused_stages import fuse
from graft.core.schedule.loops.kept_stages import keep_costly, with_reciprocals
from graft.core.schedule.loops.loop_frames import TASKS, blocked
from graft.core.schedule.primitives.bounds import Overlap
from graft.core.schedule.primitives.loop_kinds import Jam, Parallel, Vectorize
from graft.core.schedule.primitives.loop_order import Fuse, Reorder, Split
from graft.core.schedule.primitives.plain_nest import plain_nest
from graft.core.schedule.primitives.rfactor import Horizontal, Rfactor
from graft.core.schedule.primitives.staging import CacheWrite, ComputeAt
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.transpose import Transpose
from graft.core.schedule.products.plain_kernel import sum_of
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import free_variables, loads
from graft.core.types import element_bits

ANCHORS = frozenset({Trait.ELEMENTWISE, Trait.INJECTIVE, Trait.REDUCTION, Trait.ROW_WISE})
VECTORS = (1, 2, 4, 8)
SQUARES = (16, 8, 4)
USUAL = 4
"""Vectors side by side that are tried first."""


@dataclass(frozen=True, slots=True)
class NestTile:
    """What may be chosen: ``lanes`` of a vector, vectors side by side of what is computed and of what is reduced.

    Squares are exchanged whose side is ``square``, one after the other along what is stored (``order`` 0) or read (1).
    """

    lanes: int
    vectors: int = 1
    sums: int = 1
    square: int = 0
    order: int = 0


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops directly in each other around a store."""

    loops: tuple[ir.For, ...]
    store: ir.Store

    @property
    def places(self) -> tuple[ir.For, ...]:
        """The loops that move the element that is stored."""
        return tuple(one for one in self.loops if one.variable in free_variables(*self.store.indices))

    @property
    def terms(self) -> tuple[ir.For, ...]:
        """The loops that reduce."""
        return tuple(one for one in self.loops if one not in self.places)

    def lies_along(self, loop: ir.For, *, stored: bool = True) -> bool:
        """Whether neighbouring iterations touch neighbouring elements, or one."""
        touched = [load.indices for load in loads(self.store.value)] + ([self.store.indices] if stored else [])
        return all(_step(places, loop.variable) in (0, 1) for places in touched)


def _step(places: Sequence[ir.Expression], variable: ir.Variable) -> int | None:
    """Return by how many elements a place moves with a variable: none, one, or any number."""
    moving = [number for number, place in enumerate(places) if variable in free_variables(place)]
    if not moving:
        return 0
    return 1 if moving == [len(places) - 1] and places[-1] is variable else None


@dataclass(frozen=True, slots=True)
class TiledNests:
    """A kernel as plain nests, one after the other, of which the last has the loops over rows."""

    nests: tuple[Nest, ...]
    rows: tuple[str, ...]
    target: Target

    @property
    def machine(self) -> Machine:
        """The machine whose vectors are meant."""
        return self.target.machine

    def points(self) -> Iterator[NestTile]:
        """Yield all tiles."""
        most = self.machine.vector_bytes // max(element_bits(one.store.buffer.dtype) // 8 for one in self.nests)
        square = [crossing(one) for one in self.nests]
        sides = (*(side for side in SQUARES if side <= most), 0) if any(square) else (0,)
        reduces = any(one.terms for one in self.nests)
        for lanes in (most, most // 2):
            for side in sides:
                for vectors in VECTORS:
                    for sums in VECTORS if reduces else (1,):
                        yield from (NestTile(lanes, vectors, sums, side, order) for order in ((0, 1) if side else (0,)))

    def first(self) -> list[NestTile]:
        """Return all tiles, the likely best first: whole vectors, about four side by side."""
        every = list(self.points())

        def apart(tile: NestTile) -> float:
            return abs(log2(tile.vectors / USUAL)) + abs(log2(tile.sums / USUAL))

        return sorted(every, key=lambda one: (one.lanes < every[0].lanes, apart(one)))

    def steps(self, tile: NestTile) -> Iterator[Step]:
        """Yield the schedule."""
        if self.rows:
            made = dict.fromkeys(one.store.buffer.name for one in self.nests[:-1])
            yield from (ComputeAt(name, self.rows[-1]) for name in reversed(made))
        steps = [[*self._vectors(nest, tile, f"part{number}")] for number, nest in enumerate(self.nests)]
        yield from (step for own in steps for step in own)
        if self.rows and len(self.nests) > 1:
            yield from self._shared(self.rows)
        elif len(self.nests) == 1:
            moved = [one.loop for one in steps[0] if isinstance(one, Split | Overlap)]
            names = [one.variable.name for one in self.nests[0].places]
            yield from self._shared([name for name in names if name not in moved])

    def _shared(self, names: Sequence[str]) -> Iterator[Step]:
        """Yield what shares the outermost loops among threads: as many as have enough iterations."""
        extents = {one.variable.name: extent_of(one) for one in self.nests[-1].loops}
        count = next((n for n in range(1, len(names)) if prod(extents[one] for one in names[:n]) >= TASKS), len(names))
        if count > 1:
            yield Fuse(tuple(names[:count]), "row")
        yield from map(Parallel, ["row"] if count > 1 else names[:1])

    def _vectors(self, nest: Nest, tile: NestTile, name: str) -> Iterator[Step]:
        """Yield what makes vectors of a nest."""
        own, terms = [one for one in nest.places[len(self.rows) :] if extent_of(one) > 1], nest.terms
        crossed = crossing(nest)
        if crossed is not None and tile.square and min(map(extent_of, crossed)) >= tile.square:
            yield from self._squares(nest, crossed, tile)
        elif own and nest.lies_along(own[-1]):
            yield from self._along(nest, own[-1], tile, name)
        elif terms and nest.lies_along(terms[-1], stored=False):
            yield from self._across(nest, tile, name)

    def _along(self, nest: Nest, loop: ir.For, tile: NestTile, name: str) -> Iterator[Step]:
        """Yield vectors of elements; where these are sums, they stay in registers until all is added."""
        own, extent = loop.variable.name, extent_of(loop)
        lanes = tile.lanes
        if not nest.terms:
            step = min(lanes * tile.vectors, -(-extent // lanes) * lanes)
            yield from blocked([LoopAxis(loop.variable, extent)], step, lanes, self.machine)
            return
        vectors = min(tile.sums, -(-extent // lanes))
        terms = [one.variable.name for one in nest.terms]
        yield Split(own, lanes * vectors, f"{own}.block", own)
        yield Split(own, lanes, f"{own}.vector", own)
        yield Reorder((f"{own}.block", *terms, f"{own}.vector", own))
        yield CacheWrite(nest.store.buffer.name, f"{own}.block", "register", f"{name}.sums")
        for copy in (f"{name}.sums.{way}.{len(nest.store.indices) - 1}" for way in ("in", "out")):
            yield Split(copy, lanes, f"{copy}.vector", copy)
            yield from (Vectorize(copy), Jam(f"{copy}.vector"))
        yield from (Vectorize(own), Jam(f"{own}.vector"))

    def _across(self, nest: Nest, tile: NestTile, name: str) -> Iterator[Step]:
        """Yield parts of a sum in the lanes of vectors, which are joined behind it."""
        *_, loop = nest.terms
        own, extent = loop.variable.name, extent_of(loop)
        size = tile.lanes * min(tile.sums, max(1, extent // tile.lanes))
        outer = nest.terms[0].variable.name if len(nest.terms) > 1 else f"{own}.block"
        yield Split(own, size, f"{own}.block", own)
        yield Rfactor(nest.store.buffer.name, own, "register", name, (outer,))
        yield Vectorize(f"{name}.in")
        yield Horizontal(f"{name}.turn")
        if size > tile.lanes:
            yield Split(own, tile.lanes, f"{own}.vector", own)
            yield Vectorize(own)
            yield Jam(f"{own}.vector")
        else:
            yield Vectorize(own)

    def _squares(self, nest: Nest, crossed: tuple[ir.For, ir.For], tile: NestTile) -> Iterator[Step]:
        """Yield squares that are read along one loop and stored along another."""
        names = [one.variable.name for one in crossed]
        for name, loop in zip(names, crossed, strict=True):
            yield (Split if extent_of(loop) % tile.square == 0 else Overlap)(name, tile.square, f"{name}.tile", name)
        across, along = names
        inner = [f"{along}.tile", f"{across}.tile"][:: -1 if tile.order else 1]
        others = [one.variable.name for one in nest.places if one not in crossed]
        yield Reorder((*others, *inner, across, along))
        yield Transpose(across, along)


def extent_of(loop: ir.For) -> int:
    """Return the extent of a loop of so many iterations."""
    assert isinstance(loop.extent, ir.Constant), loop.variable.name
    return int(loop.extent.value)


def crossing(nest: Nest) -> tuple[ir.For, ir.For] | None:
    """Return the loop along which a nest stores, and the one along which it reads, if these differ."""
    if nest.terms:
        return None
    by_name: dict[ir.Expression, ir.For] = {one.variable: one for one in nest.places}
    last = nest.store.indices[-1]
    for load in loads(nest.store.value):
        loop = by_name.get(load.indices[-1])
        if loop is None or last not in by_name or loop is by_name[last]:
            continue
        if by_name[last].variable in free_variables(*load.indices) and _step(load.indices, loop.variable) == 1:
            return by_name[last], loop
    return None


def plain_nests(kernel: Kernel) -> ir.Function:
    """Return the plain loops of a kernel's stages, of which cheap ones are inlined, and what is costly is kept once."""
    stages = fuse(kernel.stages, kernel.outputs)
    if kernel.anchor is Trait.ROW_WISE:
        stages = with_reciprocals(keep_costly(stages), kernel.outputs)
    return plain_nest(kernel.name, stages, kernel.inputs, kernel.outputs)


def tiled_nests(kernel: Kernel, target: Target) -> TiledNests | None:
    """Return a kernel as nests; None where there is more than these, extents vary, or a template knows more of it."""
    if kernel.anchor not in ANCHORS or target.machine.is_device or sum_of(kernel) is not None:
        return None
    body = plain_nests(kernel).body
    while isinstance(body, ir.Allocate):
        body = body.body
    nests = [_nest(one) for one in (body.statements if isinstance(body, ir.Block) else (body,))]
    known = [one for one in nests if one is not None and one.store.mask is None]
    if len(known) < len(nests) or not known:
        return None
    if not all(isinstance(loop.extent, ir.Constant) for one in known for loop in one.loops):
        return None
    rows = _rows(known)
    return TiledNests(tuple(known), tuple(one.variable.name for one in known[-1].places[:rows]), target)


def _rows(nests: Sequence[Nest]) -> int:
    """Return the number of leading loops along which nests need nothing of each other, and that make no vectors."""
    made = {one.store.buffer for one in nests}
    last = [extent_of(one) for one in nests[-1].places]

    def is_row(count: int) -> bool:
        return all(
            [extent_of(one) for one in nest.places[:count]] == last[:count]
            and all(
                list(load.indices[:count]) == [one.variable for one in nest.places[:count]]
                for load in loads(nest.store.value)
                if load.buffer in made
            )
            for nest in nests
        )

    reduces = any(one.terms for one in nests) and all(len(one.places) == len(last) and _joins(one) for one in nests)
    return max(count for count in range(len(last) + reduces) if is_row(count))


def _joins(nest: Nest) -> bool:
    """Whether a nest is rather reduced along what it sums than along its elements."""
    return not (nest.terms and nest.places and nest.lies_along(nest.places[-1]))


def _nest(statement: ir.Statement) -> Nest | None:
    found = list[ir.For]()
    while isinstance(statement, ir.For):
        found.append(statement)
        statement = statement.body
    return Nest(tuple(found), statement) if isinstance(statement, ir.Store) else None
