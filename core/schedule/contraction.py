"""The schedule of sums of products: MatMul, Gemm, batched products, Einsum.

What is scheduled is the anchor's stage, ``out[..., m, ..., n] = sum over k of left * right``, however it came about:
``n`` is the output's innermost axis and becomes vectors, ``right`` is the factor that depends on it, ``m`` is an axis
of the other factor, and all other axes are outer loops. The right factor is packed into panels as wide as a register
tile (at compile time if it is constant), unless its rows can be read as they lie; the left factor is read in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from graft.core.operators import build as b
from graft.core.schedule.epilogue import Epilogue, epilogue_of
from graft.core.schedule.inline import constant_shape
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.tiling import (
    Reduced,
    Split,
    Tile,
    accumulate,
    choose_tile,
    column_mask,
    lanes_of,
    ramp,
    split_evenly,
    wide,
)
from graft.core.schedule.vectorize import vectorize_expression
from graft.core.target import Target
from graft.core.tensor_ir.interpreter import run_stages
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Function,
    If,
    Load,
    LoopKind,
    Ramp,
    Stage,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.visit import free_variables, loads, substitute
from graft.core.types import Type, element_bits

BLOCK_BYTES = 1 << 20
"""Rows of the left factor are taken in blocks of this size, which stay in the second-level cache."""
MIN_TASKS = 16
PACK_ROWS = 3
"""The right factor is packed at run time if at least so many tiles use each panel."""
PANEL_STRIDE = 8 * 1024
CONFLICT_BYTES = 4096
"""Rows at a multiple of this distance compete for the same lines of the first-level cache."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products taken apart; ``rows`` is None where no axis belongs to the left factor alone."""

    epilogue: Epilogue
    left: Expression
    right: Expression
    rows: int | None
    columns: int
    outer: tuple[int, ...]
    shape: tuple[int, ...]
    depth: tuple[Reduced, ...]

    @property
    def axes(self) -> tuple[Variable, ...]:
        """One variable per axis of the output."""
        return self.epilogue.anchor.axes

    @property
    def height(self) -> int:
        """The number of rows."""
        return 1 if self.rows is None else self.shape[self.rows]

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.shape[self.columns]

    @property
    def terms(self) -> int:
        """The number of products in each sum."""
        return math.prod(loop.extent for loop in self.depth)

    @property
    def batch(self) -> int:
        """The number of products of matrices."""
        return math.prod(self.shape[axis] for axis in self.outer)


def analyse(kernel: Kernel) -> Contraction | None:
    """Take the anchor of a kernel apart, or return None if it is not a product of two factors as described above."""
    epilogue = epilogue_of(kernel)
    if epilogue is None:
        return None
    stage = epilogue.anchor
    assert stage.reduction is not None
    shape = constant_shape(stage.buffer)
    extents = tuple(axis.extent for axis in stage.reduction.axes)
    if shape is None or not all(isinstance(extent, Constant) for extent in extents) or 0 in shape:
        return None
    if not isinstance(stage.value, Binary) or stage.value.operator != "mul" or not shape:
        return None
    depth = tuple(
        Reduced(axis.variable, int(axis.extent.value))
        for axis in stage.reduction.axes
        if isinstance(axis.extent, Constant)
    )
    left, right = stage.value.left, stage.value.right
    columns = max((axis for axis, extent in enumerate(shape) if extent > 1), default=len(shape) - 1)
    if stage.axes[columns] in free_variables(left):
        left, right = right, left
    in_left, in_right = free_variables(left), free_variables(right)
    if stage.axes[columns] in in_left or (shape[columns] > 1 and stage.axes[columns] not in in_right):
        return None
    own = [axis for axis, v in enumerate(stage.axes) if v in in_left and v not in in_right and shape[axis] > 1]
    rows = own[-1] if own else None
    outer = tuple(axis for axis in range(len(shape)) if axis not in (rows, columns))
    return Contraction(epilogue, left, right, rows, columns, outer, shape, depth)


def schedule_contraction(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return the kernel in blocked and vectorised loops, or None if its stages are not a contraction (see `analyse`)."""
    contraction = analyse(kernel)
    return None if contraction is None else _Scheduler(kernel, contraction, target).scheduled()


class _Scheduler:
    """Builds the loops of one contraction. ``point`` holds the current index of every output axis."""

    def __init__(self, kernel: Kernel, contraction: Contraction, target: Target) -> None:
        self.kernel, self.parts = kernel, contraction
        dtype = contraction.left.type.dtype
        self.kind = Type(dtype)
        self.tile = choose_tile(contraction.height, contraction.width, dtype, target)
        self.bytes = element_bits(dtype) // 8
        self.panels = -(-contraction.width // self.tile.columns)
        self.padded = -(-contraction.width // self.tile.lanes) * self.tile.lanes
        self.packed: dict[Buffer, np.ndarray] = {}
        self.replaced: dict[Buffer, Buffer] = {}
        self.panel_buffer: Buffer | None = None
        self.packed_axes: tuple[int, ...] = ()

    # ---- The whole function ----

    def scheduled(self) -> Scheduled:
        """Decide where the right factor comes from, and build the function."""
        constant = self._constant_right()
        if constant is not None:
            body = self._over_batch(lambda outer: self._product(outer))
            inputs = tuple(self.replaced.get(buffer, buffer) for buffer in self.kernel.inputs)
            return Scheduled(self._function(inputs, body), {constant: self.packed[self.replaced[constant]]})
        if not self._must_pack():
            return Scheduled(self._function(self.kernel.inputs, self._over_batch(self._product)))
        panels = Buffer("panels", self.kind.dtype, (b.index(self.padded * self.parts.terms),), None, "scratch", 64)
        self.panel_buffer = panels
        inside = self.parts.batch >= MIN_TASKS // 4
        if inside:
            body = self._over_batch(lambda outer: Allocate(panels, Block((self._pack(outer), self._product(outer)))))
        else:
            serial = self._over_batch(lambda outer: Block((self._pack(outer), self._product(outer))), kind="serial")
            body = Allocate(panels, serial)
        return Scheduled(self._function(self.kernel.inputs, body))

    def _function(self, inputs: tuple[Buffer, ...], body: Statement) -> Function:
        outputs = self.kernel.outputs
        return Function(self.kernel.name, (*inputs, *outputs), len(outputs), body, self.kernel.origin)

    def _over_batch(self, body: Callable[[dict[int, Expression]], Statement], kind: LoopKind = "parallel") -> Statement:
        """Return the loops over the outer axes around ``body``."""
        variables = {axis: Variable(f"outer{axis}") for axis in self.parts.outer if self.parts.shape[axis] > 1}
        place = {axis: variables.get(axis, b.index(0)) for axis in self.parts.outer}
        statement = body(place)
        for axis, variable in reversed(variables.items()):
            statement = For(variable, b.index(self.parts.shape[axis]), kind, statement)
        return statement

    # ---- The right factor ----

    def _constant_right(self) -> Buffer | None:
        """Pack the right factor now if it is computed from one constant that nothing else reads; return that."""
        used = {load.buffer for load in loads(self.parts.right)}
        if len(used) != 1 or not used <= self.kernel.constants.keys():
            return None
        (source,) = used
        others = [stage.value for stage in self.parts.epilogue.followers] + [self.parts.left]
        if any(load.buffer is source for load in loads(*others)):
            return None
        axes = [axis for axis in self.parts.outer if self.parts.axes[axis] in free_variables(self.parts.right)]
        shape = [self.parts.shape[axis] for axis in axes]
        matrix = self._evaluate(source, axes).reshape(*shape, self.parts.terms, self.parts.width)
        contents = self._panels_of(matrix).reshape(-1)
        buffer = Buffer(f"{source.name}_packed", self.kind.dtype, (b.index(contents.size),))
        self.panel_buffer, self.packed_axes = buffer, tuple(axes)
        self.packed[buffer] = contents
        self.replaced[source] = buffer
        return source

    def _evaluate(self, source: Buffer, axes: list[int]) -> np.ndarray:
        """Return the right factor as an array of the given axes, then the reduction's, then the columns."""
        places = [*(self.parts.axes[axis] for axis in axes), *(loop.variable for loop in self.parts.depth)]
        extents = [self.parts.shape[axis] for axis in axes] + [loop.extent for loop in self.parts.depth]
        zeros = {v: b.index(0) for v in self.parts.axes if v not in places and v is not self._column}
        shape = tuple(map(b.index, (*extents, self.parts.width)))
        whole = Buffer("right", self.kind.dtype, shape, memory="scratch")
        stage = Stage(whole, (*places, self._column), substitute(self.parts.right, zeros))
        return np.asarray(run_stages([stage], {source: self.kernel.constants[source]})[whole])

    @property
    def _column(self) -> Variable:
        return self.parts.axes[self.parts.columns]

    def _panels_of(self, matrix: np.ndarray) -> np.ndarray:
        """Return ``[..., k, n]`` cut into panels, each ``[k, panel width]``, one after another, padded with zeros."""
        leading = matrix.shape[:-2]
        fill = [(0, 0)] * (matrix.ndim - 1) + [(0, self.padded - self.parts.width)]
        padded = np.pad(matrix, fill)
        pieces = [
            padded[..., begin : begin + self.tile.columns].reshape(*leading, -1)
            for begin in range(0, self.padded, self.tile.columns)
        ]
        return np.ascontiguousarray(np.concatenate(pieces, axis=-1))

    def _must_pack(self) -> bool:
        """Whether the right factor has to be copied: its rows are not vectors in memory, or are far apart and used often."""
        load = self.parts.right
        if not isinstance(load, Load) or load.mask is not None or load.buffer.strides is not None:
            return True
        *before, last = load.indices
        if last is not self._column or self._column in free_variables(*before):
            return True
        stride = b.dims(load.buffer)[-1] * self.bytes
        tiles = -(-self.parts.height // self.tile.rows)
        return tiles >= PACK_ROWS and stride >= PANEL_STRIDE // 8 and self.parts.terms * stride >= BLOCK_BYTES // 4

    def _pack(self, outer: dict[int, Expression]) -> Statement:
        """Return the loops that copy the right factor of one product into the panels."""
        panel = Variable("panel") if self.panels > 1 else b.index(0)
        full = self.parts.width // self.tile.columns
        tail = self.padded // self.tile.lanes - full * self.tile.vectors
        whole = self._pack_panel(outer, panel, self.tile.vectors, masked=False)
        rest = self._pack_panel(outer, panel, tail, masked=True) if tail else Block(())
        return self._over_panels(panel, full, whole, rest)

    def _pack_panel(self, outer: dict[int, Expression], panel: Expression, vectors: int, masked: bool) -> Statement:
        assert self.panel_buffer is not None
        begin = b.multiply(panel, self.tile.columns)
        lanes = self.tile.lanes
        width = vectors * lanes
        statements: list[Statement] = []
        for v in range(vectors):
            column = b.add(begin, v * lanes)
            mask = column_mask(column, self.parts.width, lanes) if masked and v == vectors - 1 else None
            value = self._right_at(outer, column, mask)
            row = b.add(b.multiply(begin, self.parts.terms), b.multiply(self._term(), width))
            place = ramp(b.add(row, v * lanes), lanes)
            statements.append(Store(self.panel_buffer, (place,), wide(value, lanes)))
        return self._over_depth(Block(tuple(statements)))

    def _right_at(self, outer: dict[int, Expression], column: Expression, mask: Expression | None) -> Expression:
        places = {self.parts.axes[axis]: index for axis, index in outer.items()}
        places[self._column] = ramp(column, self.tile.lanes)
        return vectorize_expression(self.parts.right, places, mask)

    def _term(self) -> Expression:
        """Return the number of the current product within the sum."""
        number: Expression = b.index(0)
        for loop in self.parts.depth:
            number = b.add(b.multiply(number, loop.extent), loop.variable)
        return number

    def _over_depth(self, body: Statement) -> Statement:
        for loop in reversed(self.parts.depth):
            body = For(loop.variable, b.index(loop.extent), "serial", body)
        return body

    # ---- The product ----

    def _over_panels(self, panel: Expression, full: int, whole: Statement, rest: Statement) -> Statement:
        """Return the loop over panels, of which those from ``full`` on are narrower."""
        if full == self.panels:
            body = whole
        elif full == 0:
            body = rest
        else:
            body = If(b.less(panel, full), whole, rest)
        return over(panel, self.panels, "parallel", body)

    def _product(self, outer: dict[int, Expression]) -> Statement:
        """Return the loops over blocks of rows and panels for one product of matrices."""
        split = split_evenly(self.parts.height, self.tile.rows)
        blocks = self._blocks(split)
        block = Variable("block") if blocks.count > 1 else b.index(0)
        panel = Variable("panel") if self.panels > 1 else b.index(0)
        first = blocks.begin(block)
        count = b.subtract(blocks.begin(b.add(block, 1)), first) if blocks.count > 1 else b.index(split.count)
        full = self.parts.width // self.tile.columns
        tail = self.padded // self.tile.lanes - full * self.tile.vectors
        whole = self._rows(outer, panel, first, count, split, self.tile.vectors, masked=False)
        rest = self._rows(outer, panel, first, count, split, tail, masked=True) if tail else Block(())
        return over(block, blocks.count, "parallel", self._over_panels(panel, full, whole, rest))

    def _blocks(self, split: Split) -> Split:
        """Cut the tiles of a column into blocks that fit the cache and are enough for all threads."""
        row_bytes = max(self.parts.terms * self.bytes * (split.size + 1), 1)
        most = max(1, BLOCK_BYTES // row_bytes)
        wanted = -(-MIN_TASKS // (self.panels * self.parts.batch))
        return split_evenly(split.count, max(1, min(most, split.count // max(wanted, 1))))

    def _rows(
        self,
        outer: dict[int, Expression],
        panel: Expression,
        first: Expression,
        count: Expression,
        split: Split,
        vectors: int,
        masked: bool,
    ) -> Statement:
        """Return the loop over the tiles of one block and panel; tiles are of one or two heights."""
        step = b.index(0) if count == b.index(1) else Variable("tile")
        number = b.add(first, step)
        bodies = [
            self._tile(outer, split.begin(number), panel, Tile(size, vectors, self.tile.lanes), masked)
            for _, size in split.sizes
        ]
        body = bodies[0] if len(bodies) == 1 else If(b.less(number, split.larger), bodies[0], bodies[1])
        return For(step, count, "serial", body) if isinstance(step, Variable) else body

    def _tile(
        self, outer: dict[int, Expression], row: Expression, panel: Expression, tile: Tile, masked: bool
    ) -> Statement:
        begin = b.multiply(panel, self.tile.columns)
        stage = self.parts.epilogue.anchor
        assert stage.reduction is not None

        def mask(vector: int) -> Expression | None:
            if not masked or vector != tile.vectors - 1 or self.padded == self.parts.width:
                return None
            return column_mask(b.add(begin, vector * tile.lanes), self.parts.width, tile.lanes)

        def left(offset: int) -> Expression:
            places: dict[Variable, Expression] = {self.parts.axes[axis]: index for axis, index in outer.items()}
            if self.parts.rows is not None:
                places[self.parts.axes[self.parts.rows]] = b.add(row, offset)
            return substitute(self.parts.left, places)

        def right(vector: int) -> Expression:
            column = b.add(begin, vector * tile.lanes)
            if self.panel_buffer is None:
                return self._right_at(outer, column, mask(vector))
            panel_row = b.add(b.multiply(begin, self.parts.terms), b.multiply(self._term(), tile.columns))
            place = b.add(b.add(self._packed_base(outer), panel_row), vector * tile.lanes)
            return Load(self.panel_buffer, (ramp(place, tile.lanes),))

        def point(offset: Expression, column: Expression) -> list[Expression]:
            places = dict(outer)
            if self.parts.rows is not None:
                places[self.parts.rows] = b.add(row, offset)
            places[self.parts.columns] = ramp(column, tile.lanes)
            return [places[axis] for axis in range(len(self.parts.shape))]

        def finish(totals: Buffer) -> Statement:
            return finish_tile(self.parts.epilogue, tile, totals, begin, point, mask)

        return accumulate(tile, self.kind, stage.reduction.initial, self.parts.depth, left, right, finish)

    def _packed_base(self, outer: Mapping[int, Expression]) -> Expression:
        """Return where the panels of the current product begin."""
        number: Expression = b.index(0)
        for axis in self.packed_axes:
            number = b.add(b.multiply(number, self.parts.shape[axis]), outer[axis])
        return b.multiply(number, self.parts.terms * self.padded)


def over(index: Expression, extent: int, kind: LoopKind, body: Statement) -> Statement:
    """Return the loop of ``index`` around ``body``; the body itself where the index is no variable but 0."""
    return For(index, b.index(extent), kind, body) if isinstance(index, Variable) else body


def finish_tile(
    epilogue: Epilogue,
    tile: Tile,
    totals: Buffer,
    begin: Expression,
    point: Callable[[Expression, Expression], list[Expression]],
    mask: Callable[[int], Expression | None],
) -> Statement:
    """Return the stores of a tile of sums: written out if the epilogue is short, else in a loop over its rows.

    ``point(row, column)`` gives the output index of a vector that begins in that row of the tile and column.
    """
    lanes = tile.lanes

    def row(number: Expression, source: Buffer) -> list[Store]:
        stores: list[Store] = []
        for vector in range(tile.vectors):
            total = Load(source, (number, ramp(b.index(vector * lanes), lanes)))
            stores += epilogue.stores(point(number, b.add(begin, vector * lanes)), total, mask(vector))
        return stores

    if not epilogue.is_heavy:
        return Block(tuple(store for number in range(tile.rows) for store in row(b.index(number), totals)))
    spilled = Buffer("sums", totals.dtype, totals.shape, memory="scratch", alignment=64)
    copies = [
        Store(spilled, place, Load(totals, place))
        for number in range(tile.rows)
        for place in [(b.index(number), Ramp(b.index(v * lanes), 1, lanes)) for v in range(tile.vectors)]
    ]
    variable = Variable("row")
    loop = For(variable, b.index(tile.rows), "serial", Block(tuple(row(variable, spilled))))
    return Allocate(spilled, Block((*copies, loop)))
