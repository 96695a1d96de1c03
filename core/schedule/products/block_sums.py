"""Products whose sums go over blocks of terms: what becomes of the sum of a block is added to that of those before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from graft.core.operators.definition import build as b
from graft.core.schedule.products.product_axes import Contraction
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import substitute
from graft.core.types import Type

TERMS = 4
"""Terms of a factor that are read at one time: their elements may share bytes."""


@dataclass(frozen=True, slots=True)
class BlockSums:
    """A product in blocks of terms.

    ``product`` has the factors as expressions of the result's axes, of the block's ``number``, and of ``term`` within
    it. The sum of a block starts from ``start``; with it as ``sum``, ``added`` is what ``total`` becomes. Both are
    expressions of parts, too: those that a row has for each block (None: the sum of the block's left factors), and
    those that a column has.
    """

    product: Contraction
    kind: Type
    """The type of the sum of a block."""
    number: ir.Variable
    term: ir.Variable
    blocks: int
    block: int
    start: ir.Expression
    added: ir.Expression
    sum: ir.Variable
    total: ir.Variable
    rows: Mapping[ir.Variable, ir.Expression | None]
    columns: Mapping[ir.Variable, ir.Expression]

    @property
    def terms(self) -> int:
        """The terms of all blocks."""
        return self.blocks * self.block

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.product.width

    @property
    def outer(self) -> list[int]:
        """The axes of the result that both factors have: each of their places has a product of its own."""
        own = (*self.product.every_row, self.product.columns)
        return [axis for axis in range(len(self.product.axes)) if axis not in own]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: of which panel, which vector of that, in which of ``lanes`` lanes, and its number among all."""

    panel: ir.Expression
    vector: ir.Expression
    lane: ir.Expression
    lanes: int
    begin: ir.Expression
    """The first column of the panel."""

    @property
    def within(self) -> ir.Expression:
        """The number of the column within its panel."""
        return b.add(b.multiply(self.vector, self.lanes), self.lane)

    @property
    def number(self) -> ir.Expression:
        """The number of the column."""
        return b.add(self.begin, self.within)


@dataclass(frozen=True, slots=True)
class Reader:
    """What sums read of a column, as it lies in memory. One that packs constants reads them from panels."""

    sums: BlockSums

    @property
    def group(self) -> int:
        """The terms that are read at one time."""
        return gcd(self.sums.block, TERMS)

    @property
    def turns(self) -> int:
        """The sums that take turns where a tile has one row: one alone would wait for itself."""
        return 1

    @property
    def fetched(self) -> str:
        """The name of the buffer that is so large that it comes from memory, "" for none."""
        return ""

    def of_column(self, value: ir.Expression, column: Column) -> ir.Expression:
        """Return what an expression is for a column."""
        return substitute(value, {self.sums.product.column: column.number})

    def part(self, part: ir.Variable, column: Column) -> ir.Expression:
        """Return a part that a column has."""
        return self.of_column(self.sums.columns[part], column)

    def shared(self, column: Column, group: ir.Expression) -> list[ir.Expression]:
        """Return what is read once for all terms of a group."""
        return []

    def terms(self, column: Column, group: ir.Expression, shared: Sequence[ir.Expression]) -> list[ir.Expression]:
        """Return the right factors of the terms of a group of the block, where ``shared`` has been read."""
        places = (b.add(b.multiply(group, self.group), term) for term in range(self.group))
        right, term = self.sums.product.right, self.sums.term
        return [self.of_column(substitute(right, {term: place}), column) for place in places]

    def copied(self, left: ir.Expression, vector: ir.Expression, lane: ir.Expression, lanes: int) -> ir.Expression:
        """Return what is kept of a left factor, of a term of the block: that in a lane of a vector of the block."""
        return left
