"""Sums of products over extents that are known only when a kernel runs: register tiles with tails.

The result is cut into tiles of constant size. Blocks of columns come first, so that one panel of the right factor stays
in a cache for all rows; within a block, tiles of rows follow each other, and the rows that are left over go one by one.
Columns that are left over are masked. A constant right factor is packed into such panels at compile time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.operators.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.vectorize import instantiate, lower_loops, vectorize_expression
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, fused_stages
from graft.core.schedule.products.statements import ramp, wide
from graft.core.schedule.products.tiling import (
    Ahead,
    Reduced,
    Span,
    Tile,
    accumulate,
    begin_with,
    choose_tile,
    clear,
    finish_tile,
    lanes_of,
)
from graft.core.schedule.products.word_rows import WordRows, word_rows
from graft.core.schedule.strategies.varying_nest import Nests, divided, moves_by_one
from graft.core.schedule.strategy import Strategy, of_kernel
from graft.core.tensor_ir.anchor_rules import factors_of
from graft.core.tensor_ir.ir import (
    Allocate,
    Axis,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    LoopKind,
    Statement,
    Variable,
)
from graft.core.tensor_ir.simplify import simplify_statement
from graft.core.tensor_ir.visit import free_variables, loads, substitute
from graft.core.types import FLOATS, element_bits

NARROW = 2
"""The vectors of a tile where the number of columns varies: of what is left over at their end, less is in vain."""
FEW = 64
"""The rows for which panels are fetched ahead in time: with fewer, a part of them is not."""
BLOCK_SHARE = 0.75
"""Rows of the left factor are taken in blocks of this part of the second-level cache, which stay there."""
LEAST = 256
"""Rows of a block at the least: the right factor passes once for each, from farther away than the left one."""
USUAL = 128
"""The rows or columns that tiles are chosen for where their number varies."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A sum of products taken apart: ``left`` depends on the rows, ``right`` on the columns."""

    epilogue: Epilogue
    left: Expression
    right: Expression
    rows: tuple[int, ...]
    columns: int
    depth: tuple[Axis, ...]
    words: WordRows | None = None
    """How it is one of bytes."""

    @property
    def height(self) -> Expression:
        """The number of rows, of all their axes together."""
        height: Expression = b.index(1)
        for axis in self.rows:
            height = b.multiply(height, self.shape[axis])
        return height

    def row(self, number: Expression) -> dict[int, Expression]:
        """Return the index along each axis of the rows that row ``number`` has."""
        places: dict[int, Expression] = {}
        for axis in reversed(self.rows):
            is_first = axis == self.rows[0]
            places[axis] = number if is_first else b.modulo(number, self.shape[axis])
            number = number if is_first else b.divide(number, self.shape[axis])
        return places

    @property
    def axes(self) -> tuple[Variable, ...]:
        return self.epilogue.anchor.axes

    @property
    def shape(self) -> tuple[Expression, ...]:
        return self.epilogue.anchor.buffer.shape


def schedule_product(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return a kernel whose anchor is a sum of products in register tiles; None for any other.

    Products of bytes are taken whose right factor is a constant matrix.
    """
    stages = fused_stages(kernel)
    epilogue = None if stages is None else epilogue_of(stages, kernel.outputs)
    product = None if epilogue is None else _in_words(epilogue, kernel) or _taken_apart(epilogue)
    if product is None:
        return None
    dtype, columns = product.epilogue.anchor.value.type.dtype, product.shape[product.columns]
    width = _usual(columns) if isinstance(columns, Constant) else NARROW * lanes_of(dtype, target)
    tile = choose_tile(_usual(product.height), width, dtype, target)
    loops = _Loops(product, tile, target.machine)
    packed = loops.pack(kernel)
    body = loops.body()
    for stage in () if product.words is None else product.words.run_time_sums.values():
        body = Allocate(stage.buffer, Block((Nests(target.machine).nest(stage, 0), body)))
    function = Function(
        kernel.name,
        (*(packed.get(buffer, (buffer,))[0] for buffer in kernel.inputs), *kernel.outputs),
        len(kernel.outputs),
        instantiate(simplify_statement(lower_loops(simplify_statement(body))), {}),
        kernel.origin,
    )
    knobs: dict[str, int | str] = {"rows": tile.rows, "vectors": tile.vectors}
    if product.words is not None:
        knobs["dot"] = product.words.multiply.dot
    return Scheduled(function, {source: contents for source, (_, contents) in packed.items()}, knobs=knobs)


def _usual(extent: Expression) -> int:
    return max(1, int(extent.value)) if isinstance(extent, Constant) else USUAL


def _taken_apart(epilogue: Epilogue) -> _Product | None:
    """Return the factors by what they depend on; None unless the right one lies row by row along the columns."""
    stage = epilogue.anchor
    factors = factors_of(stage)
    if factors is None or stage.reduction is None or factors[2] or stage.value.type.dtype not in FLOATS:
        return None
    left, right, _ = factors
    if not stage.axes or epilogue.branches or epilogue.picks:
        return None
    columns = len(stage.axes) - 1
    column = stage.axes[columns]
    if column in free_variables(left):
        left, right = right, left
    if column in free_variables(left) or column not in free_variables(right):
        return None
    along = [load for load in loads(right) if any(column in free_variables(index) for index in load.indices)]
    if not all(_is_contiguous(load, column) for load in along):
        return None
    reduced = stage.reduction.axes
    if len(reduced) > 1 and not all(isinstance(axis.extent, Constant) for axis in reduced):
        return None
    in_left, in_right, shape = free_variables(left), free_variables(right), stage.buffer.shape
    own = [
        n for n, axis in enumerate(stage.axes) if axis in in_left and axis not in in_right and shape[n] != b.index(1)
    ]
    return _Product(epilogue, left, right, tuple(own), columns, reduced)


def _in_words(epilogue: Epilogue, kernel: Kernel) -> _Product | None:
    """Return a product of rows of bytes by a constant matrix as one of words; None if it is not one."""
    if epilogue.branches or epilogue.picks:
        return None
    stage = epilogue.anchor
    others = [stage.value for stage in epilogue.every if stage is not epilogue.anchor]
    words = word_rows(stage, kernel.constants, others)
    if words is None:
        return None
    in_left, shape = free_variables(words.left), stage.buffer.shape
    own = (n for n, axis in enumerate(stage.axes) if axis in in_left and shape[n] != b.index(1))
    changed = replace(epilogue, anchor=words.anchor)
    return _Product(changed, words.left, words.right, tuple(own), len(stage.axes) - 1, (words.term,), words)


def _is_contiguous(load: Load, column: Variable) -> bool:
    inner = not any(column in free_variables(index) for index in load.indices[:-1])
    return inner and moves_by_one(load.indices[-1], column) and load.buffer.strides is None


@dataclass(frozen=True, slots=True)
class _Panels:
    """A constant right factor: ``count`` panels of ``terms`` rows of ``width`` columns."""

    buffer: Buffer
    count: int
    terms: int
    width: int

    def vector(self, term: Expression, column: Expression, offset: int, lanes: int) -> Expression:
        """Return the elements of a row from ``offset`` behind a column on; behind the last column are zeros."""
        panel = b.multiply(b.divide(column, self.width), self.terms * self.width)
        begin = b.add(b.add(panel, b.multiply(term, self.width)), b.add(b.modulo(column, self.width), offset))
        return Load(self.buffer, (ramp(begin, lanes),))

    def ahead(self, column: Expression, number: Expression, tile: Tile, line: int) -> Ahead:
        """Return what tile ``number`` of usually so many fetches of the panel that comes next; a line has bytes."""
        each = line * 8 // element_bits(self.buffer.dtype)
        tiles = max(1, FEW // tile.rows)
        advance = -(-tile.unroll * self.width // (tiles * each)) * each
        share = self.terms // tile.unroll * advance
        following = b.multiply(b.add(b.divide(column, self.width), 1), self.terms * self.width)
        last = max(0, self.count * self.terms * self.width - share)
        return Ahead(self.buffer, b.minimum(b.add(following, b.multiply(number, share)), last), advance, line)


class _Loops:
    """Writes the loops of one product."""

    def __init__(self, product: _Product, tile: Tile, machine: Machine) -> None:
        self.product, self.tile, self.machine = product, tile, machine
        self.panels: _Panels | None = None
        self.rows: tuple[Expression, int] | None = None
        """Where the block of rows begins and how many it has at the most; None: it is all rows."""
        self.dtype = product.epilogue.anchor.value.type.dtype
        self.starts: dict[Buffer, tuple[Buffer, int]] = {}
        """Sums of columns that are known: where they lie behind the panels."""

    def pack(self, kernel: Kernel) -> dict[Buffer, tuple[Buffer, np.ndarray]]:
        """Lay a constant right factor out in panels of the tile's columns, padded with zeros; {} if it is not one."""
        load, product = self.product.right, self.product
        if product.words is not None:
            return self._pack_words(product.words, kernel)
        if not isinstance(load, Load) or load.buffer not in kernel.constants or len(product.depth) != 1:
            return {}
        place = (product.depth[0].variable, product.axes[product.columns])
        others = [one for one in loads(product.left) if one.buffer is load.buffer]
        if others or load.mask is not None or len(load.indices) != 2 or load.indices != place:
            return {}
        contents = kernel.constants[load.buffer]
        packed = self._in_panels(contents)
        self._keep(load.buffer.name, contents, packed.size, load.buffer.dtype)
        assert self.panels is not None
        return {load.buffer: (self.panels.buffer, packed)}

    def _in_panels(self, contents: np.ndarray) -> np.ndarray:
        """Return the elements of a matrix by panel, row and column, zeros behind the last column."""
        (terms, columns), width = contents.shape, self.tile.columns
        panels = -(-columns // width)
        padded = np.zeros((terms, panels * width), contents.dtype)
        padded[:, :columns] = contents
        return np.ascontiguousarray(padded.reshape(terms, panels, width).transpose(1, 0, 2)).reshape(-1)

    def _keep(self, name: str, contents: np.ndarray, size: int, dtype: str) -> None:
        (terms, columns), width = contents.shape, self.tile.columns
        buffer = Buffer(f"{name}_panels", dtype, (b.index(size),), None, "host", 64)
        self.panels = _Panels(buffer, -(-columns // width), terms, width)

    def _pack_words(self, words: WordRows, kernel: Kernel) -> dict[Buffer, tuple[Buffer, np.ndarray]]:
        """Lay the words of a constant matrix out in panels, and behind them the sums of its columns."""
        matrix = words.matrix(kernel.constants[words.source])
        parts, known = [self._in_panels(matrix)], [one for one in words.sums if one.constants is not None]
        parts += [self._in_panels(one.contents().reshape(1, -1)) for one in known]
        packed = np.concatenate(parts)
        self._keep(words.source.name, matrix, packed.size, str(matrix.dtype))
        assert self.panels is not None
        begins = np.cumsum([part.size for part in parts])
        self.starts = {one.buffer: (self.panels.buffer, int(at)) for one, at in zip(known, begins, strict=False)}
        return {words.source: (self.panels.buffer, packed)}

    def body(self) -> Statement:
        """Return all loops: blocks of rows, of which the left factor stays in a cache while all columns pass."""
        product = self.product
        terms = [int(axis.extent.value) for axis in product.depth if isinstance(axis.extent, Constant)]
        if not product.rows or len(terms) < len(product.depth):
            return self._columns()
        bytes_each = element_bits(product.epilogue.anchor.value.type.dtype) // 8
        tiles = int(BLOCK_SHARE * self.machine.working_set(2)) // (prod(terms) * bytes_each * self.tile.rows)
        height = max(tiles, -(-LEAST // self.tile.rows)) * self.tile.rows
        if isinstance(product.height, Constant) and int(product.height.value) <= height:
            return self._columns()
        block = Variable("block")
        self.rows = (b.multiply(block, height), height)
        return For(block, b.divide(b.add(product.height, height - 1), height), "serial", self._columns())

    def _columns(self) -> Statement:
        """Return the loops over the columns of one block of rows."""
        product, width = self.product, self.tile.columns
        whole, rest = divided(product.shape[product.columns], width)
        block = Variable("columns")
        parts: list[Statement] = []
        if whole != b.index(0):
            inside = self._rows(b.multiply(block, width), None)
            parts.append(self._over_outer(For(block, whole, "parallel", inside)))
        if rest != b.index(0):
            tail = self._over_outer(self._tail(b.multiply(whole, width), rest))
            parts.append(tail if isinstance(rest, Constant) else If(b.greater(rest, 0), tail))
        return Block(tuple(parts))

    def _tail(self, begin: Expression, rest: Expression) -> Statement:
        """Return the columns that are left over: in as few vectors as they fill, the last of them masked."""
        lanes = self.tile.lanes
        if not self.machine.masks and lanes > 1:
            column, single = Variable("column"), self._of_width(1, 1)
            return For(column, rest, "serial", single._rows(b.add(begin, column), None))
        body = self._rows(begin, rest)
        for vectors in range(self.tile.vectors - 1, 0, -1):
            fewer = self._of_width(vectors, lanes)._rows(begin, rest)
            if isinstance(rest, Constant):
                body = fewer if int(rest.value) <= vectors * lanes else body
            else:
                body = If(b.less_equal(rest, vectors * lanes), fewer, body)
        return body

    def _of_width(self, vectors: int, lanes: int) -> _Loops:
        narrow = _Loops(self.product, replace(self.tile, vectors=vectors, lanes=lanes), self.machine)
        narrow.panels, narrow.rows, narrow.starts = self.panels, self.rows, self.starts
        return narrow

    def _over_outer(self, body: Statement) -> Statement:
        product = self.product
        kind: LoopKind = "parallel"
        for axis in reversed(range(len(product.axes))):
            if axis not in (*product.rows, product.columns):
                body = For(product.axes[axis], product.shape[axis], kind, body)
        return body

    def _rows(self, column: Expression, rest: Expression | None) -> Statement:
        """Return tiles of all rows for the columns from ``column`` on, of which ``rest`` exist (None: all).

        The last tile ends where the rows end: some of its rows are computed twice, which is cheaper than one by one.
        """
        if not self.product.rows:
            return self._tile(replace(self.tile, rows=1), b.index(0), column, rest)
        extent, height = self.product.height, self.tile.rows
        first, own = (b.index(0), extent) if self.rows is None else self._block(extent)
        number, row = Variable("tile"), Variable("row")
        count = b.divide(b.add(own, height - 1), height)
        begin = b.minimum(b.add(first, b.multiply(number, height)), b.subtract(extent, height))
        tiles = For(number, count, "serial", self._tile(self.tile, begin, column, rest, number))
        single = For(row, own, "serial", self._tile(replace(self.tile, rows=1), b.add(first, row), column, rest))
        if isinstance(extent, Constant):
            return tiles if int(extent.value) >= height else single
        return tiles if height == 1 else If(b.greater_equal(extent, height), tiles, single)

    def _block(self, extent: Expression) -> tuple[Expression, Expression]:
        """Return where the block of rows begins, and how many of them exist."""
        assert self.rows is not None, "all rows are one block"
        first, height = self.rows
        return first, b.minimum(b.subtract(extent, first), height)

    def _tile(
        self,
        tile: Tile,
        row: Expression,
        column: Expression,
        rest: Expression | None,
        number: Expression | None = None,
    ) -> Statement:
        """Return one tile of sums and its epilogue; ``number`` is the tile's among those of all rows."""
        product, lanes = self.product, tile.lanes

        def mask(vector: int) -> Expression | None:
            if rest is None:
                return None
            return b.less(ramp(b.index(vector * lanes), lanes), wide(rest, lanes))

        bound: list[tuple[Variable, Expression]] = []

        def left(number: int) -> Expression:
            places = product.row(b.add(row, number))
            if len(places) > 1:  # divided once for all terms
                names = {axis: Variable(product.axes[axis].name) for axis in places}
                bound.extend((names[axis], value) for axis, value in places.items())
                places = dict(names)
            return substitute(product.left, {product.axes[axis]: value for axis, value in places.items()})

        def right(vector: int) -> Expression:
            begin = b.add(column, vector * lanes)
            if self.panels is not None:
                return self.panels.vector(product.depth[0].variable, column, vector * lanes, lanes)
            index = ramp(begin, lanes)
            values: dict[Variable, Expression] = {product.axes[product.columns]: index}
            return vectorize_expression(product.right, values, mask(vector))

        def point(number: Expression, offset: Expression) -> list[Expression]:
            place: list[Expression] = list(product.axes)
            for axis, value in product.row(b.add(row, number)).items():
                place[axis] = value
            begin = b.add(column, offset)
            place[product.columns] = ramp(begin, lanes)
            return place

        def finish(totals: Buffer) -> Statement:
            return finish_tile(product.epilogue, tile, totals, point, mask)

        initial = product.epilogue.anchor.reduction
        assert initial is not None, product.epilogue.anchor.buffer.name
        kind = product.epilogue.anchor.value.type
        begin: Callable[[Buffer], Statement] = clear(tile, initial.initial)
        words = product.words
        if words is not None:

            def start(number: int, vector: int) -> Expression:
                places = {product.axes[axis]: place for axis, place in product.row(b.add(row, number)).items()}
                places[product.axes[product.columns]] = ramp(b.add(column, vector * lanes), lanes)
                return words.start(places, lanes, mask(vector), self.starts)

            begin = begin_with(tile, start)
        span = None
        extents = [int(axis.extent.value) for axis in product.depth if isinstance(axis.extent, Constant)]
        if len(extents) == len(product.depth):
            terms = [Reduced(axis.variable, extent) for axis, extent in zip(product.depth, extents, strict=True)]
        else:
            terms = [Reduced(product.depth[0].variable, 1)]
            span, tile = Span(b.index(0), product.depth[0].extent, 0), replace(tile, unroll=1)
        ahead = None
        if self.panels is not None and number is not None:
            ahead = self.panels.ahead(column, number, tile, self.machine.cache(2).line)
        known = [left(number) for number in range(tile.rows)]
        multiply = None if words is None else words.multiply
        body = accumulate(tile, kind, begin, terms, known.__getitem__, right, finish, span, ahead, multiply)
        for variable, value in reversed(bound):
            body = Let(variable, value, body)
        return body


STRATEGY = Strategy("varying_product", frozenset({Trait.CONTRACTION}), of_kernel(schedule_product), varies=True)
"""Takes products of floats whose right factor lies row by row, or is a constant, and of bytes by a constant."""
