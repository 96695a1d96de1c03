"""One template for convolutions by constant weights, of images of any extents, known or not: pixels x output channels.

Vectors are of output channels, which are numbers; pixels of all images are counted through, so that neither a narrow
image nor a small batch leaves a tile half empty: the place of each is in a table, which tiles compute. Sums of floats
are taken in parts, each of which begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.bounds import Clip
from graft.core.schedule.primitives.counting import Count
from graft.core.schedule.primitives.loop_kinds import Parallel, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Merge, Reorder, Split
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.plain_nest import plain_nest, plain_sum
from graft.core.schedule.primitives.rfactor import Subtotal
from graft.core.schedule.primitives.schedule_text import take
from graft.core.schedule.primitives.staging import ComputeAt
from graft.core.schedule.primitives.statements import multiply_add, ramp
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.schedule.products.accumulation import EXACT_TERMS
from graft.core.schedule.products.convolution import Convolution
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.image_elements import ImageElements
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import map_accesses
from graft.core.types import element_bits

AXES = "tile", "p", "group", "c"
"""Names of the axes of the sums: a tile of pixels, a pixel of it, a group of channels, an output channel of it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Output channels of each group, ``count`` from the ``first`` on, in tiles of some vectors; ``name`` ends names."""

    first: int
    count: int
    vectors: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class PixelTiles:
    """A convolution taken apart, with a register tile of pixels x vectors of channels.

    To a depthwise convolution all channels are one group; packed weights count as one input channel, too.
    """

    epilogue: Epilogue
    found: Convolution
    elements: ImageElements
    tile: RegisterTile
    panels: ir.Buffer
    """Where the weights lie: from the first element on, in the order of `packed`."""

    @classmethod
    def of(cls, epilogue: Epilogue, found: Convolution, elements: ImageElements, tile: RegisterTile) -> PixelTiles:
        """Return a convolution in tiles, with panels of its own."""
        tiles = cls(epilogue, found, elements, tile, elements.weights)
        count = -(-tiles.outputs // tile.columns) * tile.columns
        terms = elements.contents[0].size + (elements.sums is not None)
        size, dtype = b.index(tiles.groups * count * terms), str(elements.contents.dtype)
        return replace(tiles, panels=ir.Buffer(f"{elements.weights.name}_panels", dtype, (size,), None, "host", 64))

    @property
    def groups(self) -> int:
        """The groups of channels."""
        return 1 if self.found.window.is_depthwise else self.found.window.groups

    @property
    def outputs(self) -> int:
        """The output channels of a group."""
        return len(self.elements.contents) // self.groups

    @property
    def bytes(self) -> int:
        """The size of all panels."""
        (extent,) = b.dims(self.panels)
        return extent * element_bits(self.panels.dtype) // 8

    @property
    def parts(self) -> list[Part]:
        """The output channels that fill tiles, and those that are left over."""
        whole, rest = divmod(self.outputs, self.tile.columns)
        first = self.outputs - rest
        parts = [Part(0, first, self.tile.vectors)] if whole else []
        return [*parts, *([Part(first, rest, -(-rest // self.tile.lanes), ".rest" if whole else "")] if rest else [])]

    @property
    def extents(self) -> dict[int, ir.Expression]:
        """The extents of the result by the numbers of an image's axes, but the channels'."""
        place = {number: axis for axis, number in enumerate(self.found.window.result)}
        shape = self.epilogue.anchor.buffer.shape
        return {axis: shape[place[axis]] for axis in range(len(shape)) if axis != 1}

    @property
    def pixels(self) -> ir.Expression:
        """The pixels of all images."""
        return b.extent(b.product_of([b.counted(extent) for extent in self.extents.values()]))

    def packed(self) -> np.ndarray:
        """Return the weights in panels of output channels, and the sums of each channel's, if they are wanted."""
        return self._pack.contents(self._weights()).reshape(-1)

    def _weights(self) -> np.ndarray:
        contents, sums = self.elements.contents, self.elements.sums
        array = np.moveaxis(contents, 1, -1).reshape(len(contents), -1)
        array = array if sums is None else np.concatenate([array, sums[:, None].astype(array.dtype)], axis=1)
        return array.reshape(self.groups, self.outputs, -1)

    @property
    def _pack(self) -> Pack:
        return Pack("weights", 1, self.tile.columns, "panels")

    def loops(self, image: ir.Buffer, begins: Sequence[int], most: int) -> ir.Statement:
        """Return the loops over tiles; windows begin at ``begins`` of the image, whose channels are last.

        Of ``most`` tiles of pixels at a time the panels of weights are gone through one after the other; of all at a
        time if it is 0.
        """
        weights = ir.Buffer("weights", self.panels.dtype, tuple(map(b.index, self._weights().shape)), None, "host", 64)
        tables = {name: self._places(name) for name in self._tables(most)}
        own = {part: tables[part.name if most else ""] for part in self.parts}
        sums = [_PlainSum(self, part, weights, image, begins, places).body() for part, places in own.items()]
        places = [stage for places in tables.values() for stage in places.values()]
        plain = plain_nest("pixels", places, [weights], [*self.epilogue.outputs], sums)
        made = take(plain, self.steps(most))
        panels = made.parameters[0]

        def flat(_: ir.Buffer, indices: tuple[ir.Expression, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
            return self.panels, (_linear(indices, panels.shape),)

        body = lowered(replace(made, body=map_accesses(made.body, {panels}, flat))).body
        return body if isinstance(self.pixels, ir.Constant) else ir.If(b.greater(self.pixels, 0), body)

    def _tables(self, most: int) -> list[str]:
        """Return what the names of tables end with: each part has its own, where it has pixels of its own."""
        return [part.name for part in self.parts] if most else [""]

    # ---- The plain loops ----

    def tiled(self) -> tuple[ir.Expression, ir.Expression]:
        """Return the extents of the pixels: tiles, and pixels of a tile."""
        rows = self.tile.rows
        return b.divide(b.add(self.pixels, rows - 1), rows), b.index(rows)

    def _places(self, name: str) -> dict[int, ir.Stage]:
        """Return the tables of the pixels' places along each axis of the image that is longer than one.

        The last tile ends where all pixels end; of fewer than a tile the last is repeated.
        """
        axes, rows = [axis for axis, extent in self.extents.items() if extent != b.index(1)], self.tile.rows
        stages = dict[int, ir.Stage]()
        for number, axis in enumerate(axes):
            table = ir.Buffer(f"x{axis}{name}", "int64", self.tiled(), None, "register")
            tile, pixel = (ir.Variable(f"{table.name}{what}") for what in (".tile", ""))
            begin = b.maximum(b.minimum(b.multiply(tile, rows), b.subtract(self.pixels, rows)), 0)
            place = b.add(begin, b.minimum(pixel, b.maximum(b.subtract(self.pixels, 1), 0)))
            for one in reversed(axes[number + 1 :]):
                place = b.divide(place, b.maximum(self.extents[one], 1))
            place = b.modulo(place, b.maximum(self.extents[axis], 1)) if number else place
            stages[axis] = ir.Stage(table, (tile, pixel), place)
        return stages

    # ---- The steps ----

    @property
    def terms(self) -> list[str]:
        """The names of the loops that sum: over a window, and over the input channels of a group."""
        return [*(f"k{d}" for d in range(self.found.windows.rank)), "g"]

    def steps(self, most: int) -> Iterator[Step]:
        """Yield the schedule."""
        outer = ["block" if most else "tile"]
        for part in self.parts:
            yield from self._cut(part, most)
        if len(self.parts) > 1:
            yield Merge(outer[0], f"{outer[0]}{self.parts[1].name}", outer[0])
        for name in self._tables(most):
            for table in (f"x{axis}{name}" for axis in self._places("")):
                yield ComputeAt(table, f"tile{name}")
                yield Count(table)
        yield self._pack
        for part in self.parts:
            yield from self._in_registers(part)
        if most and self.groups == 1 and self.outputs >= self.tile.columns:
            outer.append("c0")
        yield from map(Parallel, outer)

    def _cut(self, part: Part, most: int) -> Iterator[Step]:
        """Yield the steps that put the outer loops of a part in order, with the sums of a tile inside."""
        tile, pixel, group, channel = (f"{name}{part.name}" for name in AXES)
        block, column = f"block{part.name}", f"c0{part.name}"
        order = (group, column, tile) if most else (tile, group, column)
        yield Split(channel, part.vectors * self.tile.lanes, column, channel)
        yield Reorder((*order, pixel, channel))
        copies = ("sums",) if self.epilogue.is_heavy else ()
        yield from (ComputeAt(f"{name}{part.name}", order[-1]) for name in (*copies, "total"))
        if most:
            yield Split(tile, most, block, tile)
            yield Reorder((block, *order))
            yield Clip(tile)

    def _in_registers(self, part: Part) -> Iterator[Step]:
        """Yield the steps that make registers and vectors of the sums of a part."""
        heavy, terms, cut = self.epilogue.is_heavy, [f"{name}{part.name}" for name in self.terms], self._cut_sum()
        tile, pixel, group, channel = (f"{name}{part.name}" for name in AXES)
        nests = ["zero", "sum", *(["copy"] if heavy else [])]
        vectors = [(f"{pixel}.{nest}", f"v{part.name}.{nest}", f"{channel}.{nest}") for nest in nests]
        vectors.append((pixel, f"v{part.name}", channel))
        yield from (Split(lane, self.tile.lanes, vector, lane) for _, vector, lane in vectors)
        order = [*terms, *vectors[1]]
        if cut is not None:
            number, size = cut
            yield Split(terms[number], size, f"part{part.name}", terms[number])
            order.insert(number, f"part{part.name}")
        yield Reorder((f"{tile}.sum", f"{group}.sum", *order))
        if cut is not None:
            subtotal = f"subtotal{part.name}"
            yield Subtotal(f"total{part.name}", f"part{part.name}", "register", subtotal)
            yield Clip(terms[cut[0]])
            of_parts = [(f"{subtotal}.{way}.1", f"{subtotal}.{way}.v", f"{subtotal}.{way}.3") for way in ("in", "out")]
            yield from (Split(lane, self.tile.lanes, vector, lane) for _, vector, lane in of_parts)
            vectors += of_parts
        yield from (Vectorize(lane) for _, _, lane in vectors)
        yield from (Unroll(one) for row, vector, _ in vectors for one in (row, vector) if not (heavy and one == pixel))
        yield from self._unrolled(terms[-1])

    def _unrolled(self, term: str) -> Iterator[Step]:
        """Yield the steps that write some terms of a sum out."""
        unroll, inputs = self.tile.unroll, self.elements.contents.shape[1]
        if 1 < inputs <= unroll:
            yield Unroll(term)
        elif inputs > unroll > 1:
            yield Split(term, unroll, term, f"{term}.part", (f"{term}.left",))
            yield Unroll(f"{term}.part")

    def _cut_sum(self) -> tuple[int, int] | None:
        """Return the number of the loop over terms that is cut, and its length in a part; None if none is.

        A part sums about `EXACT_TERMS` terms.
        """
        extents = self.elements.extents
        if self.epilogue.anchor.value.type.dtype != "float32" or prod(extents) < 2 * EXACT_TERMS:
            return None
        number = next(n for n in reversed(range(len(extents))) if n == 0 or prod(extents[n:]) > EXACT_TERMS)
        most = max(1, EXACT_TERMS // prod(extents[number + 1 :]))
        even, unroll = -(-extents[number] // -(-extents[number] // most)), self.tile.unroll
        return number, -(-even // unroll) * unroll if number == len(extents) - 1 else even


@dataclass(frozen=True, slots=True)
class _PlainSum:
    """The plain loops of the sums of some output channels, over an image in which windows begin at ``begins``."""

    tiles: PixelTiles
    part: Part
    weights: ir.Buffer
    image: ir.Buffer
    begins: Sequence[int]
    places: dict[int, ir.Stage]

    def body(self) -> ir.Statement:
        """Return the loops."""
        tiles, elements = self.tiles, self.tiles.elements
        axes, terms = ([ir.Variable(name) for name in names] for names in (AXES, tiles.terms))
        extents = elements.extents
        initial = tiles.epilogue.initial
        if elements.point is not None:
            initial = b.subtract(initial, b.multiply(elements.point, self._weight(axes, b.index(prod(extents)))))
        reduced = tuple(ir.Axis(one, b.index(extent)) for one, extent in zip(terms, extents, strict=True))
        sums = ir.Stage(
            ir.Buffer("sums", initial.type.dtype, (*tiles.tiled(), b.index(tiles.groups), b.index(self.part.count))),
            tuple(axes),
            ir.Binary("mul", self._element(axes, terms), self._weight(axes, _linear(terms, extents))),
            ir.Reduction("add", reduced, initial),
        )
        heavy, multiply = tiles.epilogue.is_heavy, elements.multiply if elements.multiply.dot else multiply_add
        return plain_sum("sums", sums, self._finish, AXES, tiles.terms, ((), ()), heavy, multiply, self.part.name).body

    def _finish(self, axes: Sequence[ir.Expression], total: ir.Expression) -> Sequence[ir.Store]:
        point = [self._channel(axes) if axis == 1 else self._at(axis, axes) for axis in self.tiles.found.window.result]
        return self.tiles.epilogue.stores(point, total, None)

    def _at(self, axis: int, axes: Sequence[ir.Expression]) -> ir.Expression:
        return ir.Load(self.places[axis].buffer, tuple(axes[:2])) if axis in self.places else b.index(0)

    def _channel(self, axes: Sequence[ir.Expression]) -> ir.Expression:
        return b.add(b.multiply(axes[2], self.tiles.outputs), b.add(axes[3], self.part.first))

    def _weight(self, axes: Sequence[ir.Expression], number: ir.Expression) -> ir.Expression:
        return ir.Load(self.weights, (axes[2], b.add(axes[3], self.part.first), number))

    def _element(self, axes: Sequence[ir.Expression], terms: Sequence[ir.Expression]) -> ir.Expression:
        """Return what a window sees of the image."""
        window, elements = self.tiles.found.window, self.tiles.elements
        width, inputs, w = elements.width, elements.contents.shape[1], window.windows
        own = self._channel(axes) if window.is_depthwise else b.add(b.multiply(axes[2], inputs), terms[-1])
        steps = zip(terms, w.strides, w.dilations, self.begins, strict=False)
        space = [
            b.subtract(b.add(b.multiply(self._at(axis, axes), stride), b.multiply(tap, dilation)), begin)
            for axis, (tap, stride, dilation, begin) in enumerate(steps, 2)
        ]
        elements_of_pixel = ramp(b.multiply(own, width), width)
        if elements.source is not None:
            first = b.multiply(space.pop(), elements.source.shape[-1])
            elements_of_pixel = ramp(b.add(first, b.multiply(own, width)), width)
        loaded = ir.Load(self.image, (self._at(0, axes), *space, elements_of_pixel))
        return ir.Bitcast(loaded, "int32") if width > 1 else b.cast(loaded, self.tiles.found.anchor.value.type.dtype)


def _linear(places: Sequence[ir.Expression], extents: Sequence[ir.Expression | int]) -> ir.Expression:
    """Return the number of an element in row-major order."""
    number: ir.Expression = b.index(0)
    for place, extent in zip(places, extents, strict=True):
        number = b.add(b.multiply(number, extent), place)
    return number
