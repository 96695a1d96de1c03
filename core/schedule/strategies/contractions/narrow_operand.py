"""Narrow weights as an operand of a product in blocks of terms: how they lie in panels, and how they are read.

Each panel is ``[block, group of terms, term, column]``. Of fewer than 8 bits, the terms of a group share the words of
each column (`graft.core.schedule.strategies.contractions.narrow_codes`). Of 4 bits, they are masked where they stand,
and the left factors, which are copied, make up for how high that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.schedule.products.block_loops import MOST, BlockLoops
from graft.core.schedule.products.block_sums import BlockSums, Column, Reader
from graft.core.schedule.products.product_axes import Contraction
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.schedule.strategies.contractions.narrow_codes import HALF, Code
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.visit import ExpressionMap, loads, substitute
from graft.core.types import Type

TALLEST = 4
"""Rows of a tile at the most that is summed where its weights are read."""
FEW = 15
"""Rows for which that is faster where registers are few."""
SHARE = 8
"""A panel has a vector for each so many registers: with two sums each, they take half of them."""
LEAST_BLOCK = 16
"""Terms of a block that larger ones are cut into, at the least."""


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
    def width(self) -> int:
        """The number of columns."""
        assert self.product.width != VARIES, "a number of columns that varies"
        return self.product.width

    @property
    def group(self) -> int:
        """The terms that are computed without a loop."""
        return self.code.terms if self.block % self.code.terms == 0 else 1

    @property
    def is_shifted(self) -> bool:
        """Whether anything is to be added for digits of 0."""
        return self.least != ir.Constant(0, self.least.type)

    def blocks_of(self, most: int) -> int:
        """Return the terms of a block of sums: a scale's own, or the largest part of them that ``most`` has room for.

        Parts are whole groups, of `LEAST_BLOCK` terms or more.
        """
        parts = (one for one in range(self.group, min(most, self.block) + 1, self.group) if self.block % one == 0)
        found = max(parts, default=self.block)
        return found if found >= LEAST_BLOCK else self.block

    def in_blocks(self, block: int) -> BlockSums:
        """Return sums over blocks of so many terms: ``scale * (sum of left * digit + least * sum of left)``."""
        number, term, kind = ir.Variable("block"), ir.Variable("term"), Type("float32")
        total, sum_of_block = ir.Variable("total", kind), ir.Variable("sum", kind)
        scale, least, left_sum = (ir.Variable(name, kind) for name in ("scale", "least", "left_sum"))
        known = {self.number: b.divide(number, self.block // block)}
        columns: dict[ir.Variable, ir.Expression] = {scale: substitute(self.scale, known)}
        start: ir.Expression = b.constant(0, "float32")
        if self.is_shifted:
            columns[least], start = substitute(self.least, known), ir.Binary("mul", least, left_sum)
        (depth,) = self.product.depth
        place = {depth.variable: b.add(b.multiply(number, block), term)}
        left, right = (substitute(one, place) for one in (self.product.left, self.product.right))
        product = replace(self.product, left=left, right=right)
        added = multiply_add(scale, sum_of_block, total)
        rows = {left_sum: None} if self.is_shifted else {}
        blocks = self.terms // block
        return BlockSums(
            product, kind, number, term, blocks, block, start, added, sum_of_block, total, rows, columns
        )  # fmt: skip


def lanes_of(machine: Machine) -> int:
    """Return the columns of a vector: one for a machine without vectors."""
    return max(1, machine.vector_bytes // 4)


def loops_of(
    narrow: Narrow, constants: Mapping[ir.Buffer, np.ndarray], machine: Machine
) -> tuple[BlockLoops, Mapping[ir.Buffer, Packed]]:
    """Return the loops of a product by narrow weights, and its constants as they read them.

    Where registers hold 4 x 4 vectors of sums and of totals, widening a weight again for each four rows is hidden
    behind their multiply-adds; where they are fewer, it pays to keep what is widened from 16 rows on (measured on a
    Zen 5: 1.05 of the time with AVX-512, 0.92 with AVX2). Without vectors, a chunk is a tile.
    """
    lanes, height = lanes_of(machine), narrow.product.height
    vectors = min(max(1, machine.registers // SHARE), narrow.width // lanes)
    few = FEW if lanes > 1 and machine.registers < SHARE * TALLEST else MOST
    low = TALLEST if height == VARIES else min(TALLEST, height)
    is_low = few == MOST or 0 <= height <= few
    rows = low if is_low else (machine.registers - 1) // vectors - 1
    tile = RegisterTile(rows, vectors, lanes)
    reader = PackedReader.of(narrow, constants, tile, machine)
    return BlockLoops.of(reader, tile, 1, low, few, low if lanes == 1 else MOST), reader.packed


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
    """What stands for a constant: its contents in panels, of so many rows, and their buffer."""

    buffer: ir.Buffer
    contents: np.ndarray
    rows: int

    @classmethod
    def of(cls, source: ir.Buffer, contents: np.ndarray, rows: int) -> Packed:
        """Return the packed form of a constant."""
        buffer = ir.Buffer(f"{source.name}_packed", str(contents.dtype), (b.index(contents.size),))
        return cls(buffer, contents, rows)


@dataclass(frozen=True, slots=True)
class PackedReader(Reader):
    """What tiles read of narrow weights and their scales, in panels of ``vectors`` vectors."""

    narrow: Narrow
    packed: Mapping[ir.Buffer, Packed]
    vectors: int
    is_large: bool
    """Whether the weights come from memory."""

    @classmethod
    def of(
        cls, narrow: Narrow, constants: Mapping[ir.Buffer, np.ndarray], tile: RegisterTile, machine: Machine
    ) -> PackedReader:
        """Return what reads the constants of a product, packed for a tile."""
        source, columns = narrow.source, tile.columns
        whole = constants[source.buffer]
        whole = whole if source.indices[0] is narrow.product.depth[0].variable else whole.T
        packed = {source.buffer: Packed.of(source.buffer, packed_digits(whole, narrow, columns), narrow.terms)}
        elsewhere = {load.buffer for one in narrow.product.epilogue.every for load in loads(one.value)}
        own = {narrow.number, narrow.product.column}
        for load in loads(narrow.scale, narrow.least):
            if load.buffer not in constants or load.buffer in elsewhere or set(load.indices) != own:
                continue
            rows = constants[load.buffer] if load.indices[0] is narrow.number else constants[load.buffer].T
            padded = np.zeros((len(rows), -(-narrow.width // columns) * columns), rows.dtype)
            padded[:, : narrow.width] = rows
            packed[load.buffer] = Packed.of(load.buffer, _in_panels(padded, columns), len(rows))
        most = machine.working_set(1) // 2 // (4 * columns) if tile.lanes > 1 else narrow.block
        sums = narrow.in_blocks(narrow.blocks_of(most))
        weights = packed[source.buffer]
        is_large = bool(machine.caches) and weights.contents.nbytes > machine.working_set(2)
        return cls(sums, narrow, packed, tile.vectors, is_large)

    @property
    def group(self) -> int:
        """The terms that are read at one time."""
        return self.narrow.group

    @property
    def fetched(self) -> str:
        """The name of the packed weights, if they come from memory."""
        return self.packed[self.narrow.source.buffer].buffer.name if self.is_large else ""

    @property
    def turns(self) -> int:
        """The sums that take turns where a tile has one row."""
        return 2

    def of_column(self, value: ir.Expression, column: Column) -> ir.Expression:
        """Return what an expression is for a column, with constants read from their panels."""

        def read(node: ir.Expression) -> ir.Expression:
            known = self.packed.get(node.buffer) if isinstance(node, ir.Load) else None
            if known is None or not isinstance(node, ir.Load):
                return node
            own = node.indices[0] if self.narrow.product.column is node.indices[1] else node.indices[1]
            return ir.Load(known.buffer, (self._at(b.add(b.multiply(column.panel, known.rows), own), column),))

        return Reader.of_column(self, ExpressionMap(read)(value), column)

    def _at(self, row: ir.Expression, column: Column) -> ir.Expression:
        vector = b.add(b.multiply(row, self.vectors), column.vector)
        return b.add(b.multiply(vector, column.lanes), column.lane)

    def shared(self, column: Column, group: ir.Expression) -> list[ir.Expression]:
        """Return the words of a group, which its terms share."""
        first = self._first(column, group)
        return [self._stored(b.add(first, word), column) for word in range(self.narrow.code.words)]

    def terms(self, column: Column, group: ir.Expression, shared: Sequence[ir.Expression]) -> list[ir.Expression]:
        """Return the digits of a group as float32."""
        if shared:
            return [self.narrow.code.number(shared, term) for term in range(self.group)]
        first = self._first(column, group)
        stored = (self._stored(b.add(first, term), column) for term in range(self.group))
        return [b.cast(b.cast(one, "int32"), "float32") for one in stored]

    def _stored(self, row: ir.Expression, column: Column) -> ir.Expression:
        return ir.Load(self.packed[self.narrow.source.buffer].buffer, (self._at(row, column),))

    def _first(self, column: Column, group: ir.Expression) -> ir.Expression:
        """Return the first row of a group among those of all panels."""
        groups = self.sums.block // self.group
        before = b.add(b.multiply(column.panel, self.sums.blocks), self.sums.number)
        return b.multiply(b.add(b.multiply(before, groups), group), self.narrow.code.words or self.group)

    def copied(self, left: ir.Expression, vector: ir.Expression, lane: ir.Expression, lanes: int) -> ir.Expression:
        """Return what is kept of a left factor, less for digits that stand higher: 1, 1/16, 1/256, 1/4096, 1, ..."""
        if not self.narrow.code.stands_in_place:
            return left
        term = lane if lanes % HALF == 0 else b.add(b.multiply(vector, lanes), lane)
        place = b.cast(ir.Binary("and", term, b.index(HALF - 1)), "int32")
        exponent = b.subtract(b.constant(127, "int32"), b.multiply(place, b.constant(4, "int32")))
        share = ir.Bitcast(ir.Binary("shl", exponent, b.constant(23, "int32")), "float32")
        return ir.Binary("mul", left, share)
