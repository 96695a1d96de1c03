"""The loops of products by narrow weights: chunks of rows, panels of columns, tiles of rows, blocks of terms.

Weights lie in panels of some vectors of columns, each panel ``[block, group of terms, term, column]``. Of fewer than 8
bits, the terms of a group share the words of each column (`graft.core.schedule.strategies.contractions.narrow_codes`).
Of 4 bits, they are masked where they stand, and the left factors, which are copied, make up for how high that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

import numpy as np

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import LINE, multiply_add, ramp, registers, scratch, wide
from graft.core.schedule.primitives.vectorize import instantiate, vectorize_expression
from graft.core.schedule.products.product_axes import Contraction
from graft.core.schedule.products.tiling import halves
from graft.core.schedule.strategies.contractions.narrow_codes import HALF, Code
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.statements import allocate, bound
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitute

TALLEST = 4
"""Rows of a tile at the most."""
SHARE = 8
"""A panel has a vector for each so many registers: with two sums each, they take half of them."""
AHEAD = 4096
"""Bytes of weights that are fetched so far ahead of use."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A product by narrow weights: an element of ``source`` widened, less an offset, times the scale of its block.

    ``scale`` and ``least`` are expressions of the column and of ``number``, the block's; ``least`` is what a weight is
    before it is scaled where its digit is 0, which it is for the lowest element of ``code``.
    """

    product: Contraction
    source: ir.Load
    scale: ir.Expression
    least: ir.Expression
    number: ir.Variable
    block: int
    code: Code

    @property
    def terms(self) -> int:
        """The terms of each sum."""
        assert self.product.terms != VARIES, "a number of terms that varies"
        return self.product.terms

    @property
    def blocks(self) -> int:
        """The blocks of terms."""
        return self.terms // self.block

    @property
    def column(self) -> ir.Variable:
        """The variable of the columns."""
        return self.product.axes[-1]

    @property
    def width(self) -> int:
        """The number of columns."""
        width = self.product.extents[-1]
        assert isinstance(width, ir.Constant), "a number of columns that varies"
        return int(width.value)

    @property
    def group(self) -> int:
        """The terms that are computed without a loop."""
        return self.code.terms if self.block % self.code.terms == 0 else 1

    @property
    def is_shifted(self) -> bool:
        """Whether anything is to be added for digits of 0."""
        return self.least != ir.Constant(0, self.least.type)


def lanes_of(machine: Machine) -> int:
    """Return the columns of a vector: one for a machine without vectors."""
    return max(1, machine.vector_bytes // 4)


def packed_digits(weights: np.ndarray, narrow: Narrow, columns: int) -> np.ndarray:
    """Return ``[terms, width]`` weights as panels of so many columns: int8, or of fewer bits words of int32."""
    terms, width = weights.shape
    digits = (weights.astype(np.int16) - narrow.code.low).astype(np.int8)
    whole = np.zeros((terms, -(-width // columns) * columns), np.int8)
    whole[:, :width] = digits
    return _in_panels(narrow.code.packed(whole), columns)


def _in_panels(rows: np.ndarray, columns: int) -> np.ndarray:
    return np.ascontiguousarray(rows.reshape(len(rows), -1, columns).swapaxes(0, 1)).reshape(-1)


@dataclass(frozen=True, slots=True)
class Packed:
    """What stands for a constant: its contents in panels, and their buffer."""

    buffer: ir.Buffer
    contents: np.ndarray

    @classmethod
    def of(cls, source: ir.Buffer, contents: np.ndarray) -> Packed:
        """Return the packed form of a constant."""
        return cls(ir.Buffer(f"{source.name}_packed", str(contents.dtype), (b.index(contents.size),)), contents)


@dataclass(frozen=True, slots=True)
class Panels:
    """The loops of a product, in panels of ``vectors`` vectors of ``lanes`` columns."""

    narrow: Narrow
    packed: Mapping[ir.Buffer, Packed]
    lanes: int
    vectors: int
    sums: int
    """The vectors of sums at the most that are computed at one time."""
    most: int
    """Rows of a chunk: so many stay in a cache for all panels."""

    @classmethod
    def of(cls, narrow: Narrow, constants: Mapping[ir.Buffer, np.ndarray], machine: Machine) -> Panels:
        """Return the loops for a machine, with the constants that they read in panels."""
        lanes = lanes_of(machine)
        vectors = min(max(1, machine.registers // SHARE), narrow.width // lanes)
        columns, term = vectors * lanes, narrow.product.depth[0].variable
        source = narrow.source
        whole = constants[source.buffer]
        whole = whole if source.indices[0] is term else whole.T
        packed = {source.buffer: Packed.of(source.buffer, packed_digits(whole, narrow, columns))}
        elsewhere = {load.buffer for one in narrow.product.epilogue.every for load in loads(one.value)}
        for load in loads(narrow.scale, narrow.least):
            if load.buffer not in constants or load.buffer in elsewhere or set(load.indices) != set(_own(narrow)):
                continue
            rows = constants[load.buffer] if load.indices[0] is narrow.number else constants[load.buffer].T
            padded = np.zeros((len(rows), -(-narrow.width // columns) * columns), rows.dtype)
            padded[:, : narrow.width] = rows
            packed[load.buffer] = Packed.of(load.buffer, _in_panels(padded, columns))
        chunk = machine.working_set(2) // 2 // (4 * narrow.terms) // TALLEST * TALLEST
        most = TALLEST if lanes == 1 else max(TALLEST, min(64, chunk))
        return cls(narrow, packed, lanes, vectors, machine.registers // 2, most)

    # ---- Rows ----

    @property
    def tallest(self) -> int:
        """The most rows of a tile."""
        height = self.narrow.product.row_count
        return min(TALLEST, int(height.value)) if isinstance(height, ir.Constant) else TALLEST

    def body(self) -> ir.Statement:
        """Return all loops."""
        height = self.narrow.product.row_count
        if isinstance(height, ir.Constant) and int(height.value) <= self.most:
            return self._chunk(b.index(0), height, int(height.value))
        chunk = ir.Variable("chunk")
        first = b.multiply(chunk, self.most)
        is_whole = isinstance(height, ir.Constant) and int(height.value) % self.most == 0
        own = b.index(self.most) if is_whole else b.minimum(b.subtract(height, first), self.most)
        count = b.divide(b.add(height, self.most - 1), self.most)
        return instantiate(ir.For(chunk, count, "serial", self._chunk(first, own, self.most)), {})

    def _chunk(self, first: ir.Expression, own: ir.Expression, most: int) -> ir.Statement:
        """Return the products of the rows from ``first`` on, of which there are ``own``, at the most ``most``."""
        narrow = self.narrow
        left = scratch("left", "float32", most * narrow.terms)
        sums = scratch("left_sums", "float32", most * narrow.blocks)
        row, panel = ir.Variable("row"), ir.Variable("panel")
        copied = ir.For(row, own, "serial" if most == 1 else "parallel", self._copied(left, sums, row, first))
        whole, rest = divmod(narrow.width // self.lanes, self.vectors)

        def tiles(number: ir.Expression, vectors: int) -> ir.Statement:
            return self._tiles(_Place(left, sums, first, number, vectors), own)

        parts: list[ir.Statement] = [copied, ir.For(panel, b.index(whole), "parallel", tiles(panel, self.vectors))]
        if rest:
            parts.append(tiles(b.index(whole), rest))
        return instantiate(allocate((left, sums), ir.Block(tuple(parts))), {})

    def _copied(self, left: ir.Buffer, sums: ir.Buffer, row: ir.Expression, first: ir.Expression) -> ir.Statement:
        """Return what copies a row of the left factor, less for digits that stand higher, and adds up its blocks."""
        narrow = self.narrow
        lanes, block, step = gcd(narrow.block, self.lanes), ir.Variable("block"), ir.Variable("step")
        total = registers("total", "float32", lanes)
        place = (ramp(0, lanes),)
        term = b.add(b.multiply(block, narrow.block), b.multiply(step, lanes))
        axes = narrow.product.axes
        values = {axes[axis]: at for axis, at in narrow.product.at_row(b.add(first, row)).items()}
        values |= {axis: b.index(0) for axis in axes[:-1] if axis not in values}
        value = substitute(narrow.product.left, values)
        value = vectorize_expression(value, {narrow.product.depth[0].variable: ramp(term, lanes)})

        def copy(vector: list[ir.Expression]) -> ir.Statement:
            shrunk = ir.Binary("mul", vector[0], _shares(term, lanes)) if narrow.code.stands_in_place else vector[0]
            stored = ir.Store(left, (ramp(b.add(b.multiply(row, narrow.terms), term), lanes),), shrunk)
            return ir.Block((stored, ir.Store(total, place, b.add(vector[0], ir.Load(total, place)))))

        ended = ir.Load(total, place) if lanes == 1 else ir.Horizontal("add", ir.Load(total, place))
        inside = ir.Block((
            ir.Store(total, place, wide(b.constant(0, "float32"), lanes)),
            ir.For(step, b.index(narrow.block // lanes), "serial", bound("vector", [wide(value, lanes)], copy)),
            ir.Store(sums, (b.add(b.multiply(row, narrow.blocks), block),), ended),
        ))  # fmt: skip
        return ir.For(block, b.index(narrow.blocks), "serial", allocate([total], inside))

    def _tiles(self, place: _Place, own: ir.Expression) -> ir.Statement:
        """Return the tiles of some columns of a panel, the highest first, each height with code of its own."""
        done: ir.Expression = b.index(0)
        tiles: list[ir.Statement] = []
        heights = [TALLEST, int(own.value) % TALLEST] if isinstance(own, ir.Constant) else halves(TALLEST)
        for height in (one for one in heights if one):
            count = b.divide(b.subtract(own, done), height)
            if count != b.index(0):
                number = ir.Variable("tile")
                row = b.add(done, b.multiply(number, height))
                tiles.append(ir.For(number, count, "serial", self._tile(place, row, height)))
            done = b.add(done, b.multiply(count, height))
        return ir.Block(tuple(tiles))

    def _tile(self, place: _Place, row: ir.Expression, height: int) -> ir.Statement:
        """Return the products of some rows by a panel: by as many of its columns at a time as registers hold."""
        across = min(place.vectors, max(1, self.sums // height))
        begins = range(0, place.vectors, across)
        ranges = (range(begin, min(begin + across, place.vectors)) for begin in begins)
        return ir.Block(tuple(_NarrowTile(self, place, row, height, vectors).body() for vectors in ranges))

    # ---- What is read ----

    def columns(self, panel: ir.Expression, vector: int) -> ir.Expression:
        """Return the columns of a vector of a panel."""
        return ramp(b.add(b.multiply(panel, self.vectors * self.lanes), vector * self.lanes), self.lanes)

    def of_block(self, value: ir.Expression, block: ir.Expression, panel: ir.Expression, vector: int) -> ir.Expression:
        """Return the value that a vector of columns has for a block."""
        narrow, size = self.narrow, self.vectors * self.lanes
        begin = b.multiply(b.add(b.multiply(panel, narrow.blocks), block), size)
        place = ramp(b.add(begin, vector * self.lanes), self.lanes)

        def read(node: ir.Expression) -> ir.Expression:
            is_packed = isinstance(node, ir.Load) and node.buffer in self.packed
            return (
                ir.Load(self.packed[node.buffer].buffer, (place,)) if is_packed and isinstance(node, ir.Load) else node
            )

        values = {narrow.column: self.columns(panel, vector), narrow.number: block}
        return wide(vectorize_expression(ExpressionMap(read)(value), values), self.lanes)

    def groups(
        self, panel: ir.Expression, block: ir.Expression, group: ir.Expression
    ) -> tuple[ir.Expression, ir.Expression]:
        """Return the number of a group of terms in its row, and that of its first element of weights."""
        narrow = self.narrow
        own = b.add(b.multiply(block, narrow.block // narrow.group), group)
        before = b.add(b.multiply(panel, narrow.terms // narrow.group), own)
        return own, b.multiply(before, self.group_size)

    @property
    def group_size(self) -> int:
        """The elements that weights of a group are stored in: bytes, or words of fewer bits."""
        return self.vectors * self.lanes * (self.narrow.code.words or self.narrow.group)


def _own(narrow: Narrow) -> tuple[ir.Variable, ir.Variable]:
    return narrow.number, narrow.column


def _shares(term: ir.Expression, lanes: int) -> ir.Expression:
    """Return what the left factors of a vector of terms are multiplied by: 1, 1/16, 1/256, 1/4096, 1, ..."""
    terms = ramp(b.index(0) if lanes % HALF == 0 else term, lanes)
    place = ir.Cast(ir.Binary("and", terms, wide(b.index(HALF - 1), lanes)), "int32")
    exponent = ir.Binary(
        "sub", wide(b.constant(127, "int32"), lanes), ir.Binary("mul", place, wide(b.constant(4, "int32"), lanes))
    )
    return ir.Bitcast(ir.Binary("shl", exponent, wide(b.constant(23, "int32"), lanes)), "float32")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where tiles find their factors: copies of left ones and their sums, and a panel, of ``vectors`` vectors."""

    left: ir.Buffer
    sums: ir.Buffer
    first: ir.Expression
    """The row of the result that row 0 of the copies is."""
    panel: ir.Expression
    vectors: int


@dataclass(frozen=True, slots=True)
class _NarrowTile:
    """The products of ``height`` rows from ``row`` of the copies on by some vectors of columns.

    A single row has two sums for each vector, which take turns: one alone would wait for itself.
    """

    panels: Panels
    place: _Place
    row: ir.Expression
    height: int
    vectors: range

    def body(self) -> ir.Statement:
        """Return the loops over blocks of terms, and what is stored."""
        narrow, block, group = self.panels.narrow, ir.Variable("block"), ir.Variable("group")
        count = self.height * len(self.vectors) * self.panels.lanes
        totals, sums = registers("totals", "float32", count), registers("sums", "float32", self._turns * count)
        initial = wide(narrow.product.epilogue.initial, self.panels.lanes)
        inside = ir.Block((
            *self._begun(sums, block),
            ir.For(group, b.index(narrow.block // narrow.group), "serial", self._group(sums, block, group)),
            *self._scaled(sums, totals, block),
        ))  # fmt: skip
        return allocate((totals, sums), ir.Block((
            *(ir.Store(totals, self._at(row, vector), initial) for row, vector in self._places),
            ir.For(block, b.index(narrow.blocks), "serial", inside),
            *self._stored(totals),
        )))  # fmt: skip

    @property
    def _turns(self) -> int:
        return 2 if self.height == 1 else 1

    @property
    def _places(self) -> list[tuple[int, int]]:
        return [(row, vector) for vector in self.vectors for row in range(self.height)]

    def _at(self, row: int, vector: int, turn: int = 0) -> tuple[ir.Expression, ...]:
        number = (turn * self.height + row) * len(self.vectors) + vector - self.vectors[0]
        return (ramp(number * self.panels.lanes, self.panels.lanes),)

    def _begun(self, sums: ir.Buffer, block: ir.Expression) -> list[ir.Statement]:
        """Return the sums of a block before its first digit."""
        panels, narrow, begun = self.panels, self.panels.narrow, list[ir.Statement]()
        zero = wide(b.constant(0, "float32"), panels.lanes)
        for row, vector in self._places:
            start: ir.Expression = zero
            if narrow.is_shifted:
                number = b.add(b.multiply(b.add(self.row, row), narrow.blocks), block)
                least = panels.of_block(narrow.least, block, self.place.panel, vector)
                start = ir.Binary("mul", least, wide(ir.Load(self.place.sums, (number,)), panels.lanes))
            begun += [
                ir.Store(sums, self._at(row, vector, turn), zero if turn else start) for turn in range(self._turns)
            ]
        return begun

    def _group(self, sums: ir.Buffer, block: ir.Expression, group: ir.Expression) -> ir.Statement:
        """Return what adds the terms of a group."""
        panels, narrow = self.panels, self.panels.narrow
        weights, lanes = panels.packed[narrow.source.buffer].buffer, panels.lanes
        number, begin = panels.groups(self.place.panel, block, group)
        code, each = narrow.code, 4 if narrow.code.words else 1
        ahead = (b.add(begin, AHEAD // each + at) for at in self._lines(each))
        fetches = [ir.CallExtern("prefetch", (ir.Load(weights, (at,)), b.index(2))) for at in ahead]

        def stored(vector: int, row: int) -> ir.Expression:
            return ir.Load(weights, (ramp(b.add(begin, (row * panels.vectors + vector) * lanes), lanes),))

        def summed(words: list[ir.Expression]) -> ir.Statement:
            adding: list[ir.Statement] = []
            for term in range(narrow.group):
                place = b.add(b.multiply(number, narrow.group), term)
                rows = [b.add(b.multiply(b.add(self.row, row), narrow.terms), place) for row in range(self.height)]
                left = [wide(ir.Load(self.place.left, (at,)), lanes) for at in rows]
                for at, vector in enumerate(self.vectors):
                    own = words[at * code.words : (at + 1) * code.words]
                    weight = code.number(own, term) if own else b.cast(b.cast(stored(vector, term), "int32"), "float32")
                    adding += self._added(sums, vector, term, left, weight)
            return ir.Block(tuple(adding))

        words = [stored(vector, row) for vector in self.vectors for row in range(code.words)]
        return ir.Block((*fetches, bound("words", words, summed)))

    def _lines(self, each: int) -> range:
        """Return where, within a group, the lines begin that are this tile's to fetch."""
        size, count, line = self.panels.group_size, len(self.vectors), LINE // each
        share = size // self.panels.vectors
        return range(self.vectors[0] * share, (self.vectors[0] + count) * share, line)

    def _added(
        self, sums: ir.Buffer, vector: int, term: int, left: list[ir.Expression], weight: ir.Expression
    ) -> list[ir.Statement]:
        def add(values: list[ir.Expression]) -> ir.Statement:
            places = [self._at(row, vector, term % self._turns) for row in range(self.height)]
            every = zip(places, left, strict=True)
            return ir.Block(
                tuple(ir.Store(sums, at, multiply_add(one, values[0], ir.Load(sums, at))) for at, one in every)
            )

        return [bound("weight", [weight], add)]

    def _scaled(self, sums: ir.Buffer, totals: ir.Buffer, block: ir.Expression) -> list[ir.Statement]:
        """Return what adds the sums of a block to the totals."""
        adding: list[ir.Statement] = []
        for row, vector in self._places:
            place = self._at(row, vector)
            total: ir.Expression = ir.Load(sums, place)
            for turn in range(1, self._turns):
                total = b.add(total, ir.Load(sums, self._at(row, vector, turn)))
            scale = self.panels.of_block(self.panels.narrow.scale, block, self.place.panel, vector)
            adding.append(ir.Store(totals, place, multiply_add(scale, total, ir.Load(totals, place))))
        return adding

    def _stored(self, totals: ir.Buffer) -> list[ir.Statement]:
        """Return what computes the epilogue and stores it."""
        product, stores = self.panels.narrow.product, list[ir.Statement]()
        for row, vector in self._places:
            point: list[ir.Expression] = [b.index(0) for _ in product.axes]
            for axis, at in product.at_row(b.add(self.place.first, b.add(self.row, row))).items():
                point[axis] = at
            point[product.columns] = self.panels.columns(self.place.panel, vector)
            stores += product.epilogue.stores(point, ir.Load(totals, self._at(row, vector)), None)
        return stores
