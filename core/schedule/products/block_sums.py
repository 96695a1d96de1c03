"""Products whose sums go over blocks of terms: what becomes of the sum of a block is added to that of those before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import ramp, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.products.product_axes import Contraction
from graft.core.tensor_ir import ir
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
class Columns:
    """Columns of a panel: vectors of ``lanes`` of them from column ``begin`` on."""

    panel: ir.Expression
    """The number of the panel."""
    begin: ir.Expression
    lanes: int

    def at(self, vector: ir.Expression) -> ir.Expression:
        """Return the columns of a vector."""
        return ramp(b.add(self.begin, b.multiply(vector, self.lanes)), self.lanes)


@dataclass(frozen=True, slots=True)
class Reader:
    """What tiles read of columns, as it lies in memory. One that packs constants reads them by panel and vector."""

    sums: BlockSums

    @property
    def group(self) -> int:
        """The terms that are read at one time."""
        return gcd(self.sums.block, TERMS)

    @property
    def turns(self) -> int:
        """The sums that take turns where a tile has one row: one alone would wait for itself."""
        return 1

    def of_columns(self, value: ir.Expression, columns: Columns, vector: ir.Expression) -> ir.Expression:
        """Return what an expression is for a vector of columns."""
        own = vectorize_expression(value, {self.sums.product.column: columns.at(vector)})
        return wide(own, columns.lanes)

    def part(self, part: ir.Variable, columns: Columns, vector: ir.Expression) -> ir.Expression:
        """Return a part that a vector of columns has."""
        return self.of_columns(self.sums.columns[part], columns, vector)

    def shared(self, columns: Columns, vector: ir.Expression, group: ir.Expression) -> list[ir.Expression]:
        """Return what is read once for all terms of a group."""
        return []

    def terms(
        self, columns: Columns, vector: ir.Expression, group: ir.Expression, shared: Sequence[ir.Expression]
    ) -> list[ir.Expression]:
        """Return the right factors of the terms of a group of the block, where ``shared`` has been read."""
        places = (b.add(b.multiply(group, self.group), term) for term in range(self.group))
        values = (vectorize_expression(self.sums.product.right, {self.sums.term: place}) for place in places)
        return [self.of_columns(value, columns, vector) for value in values]

    def fetches(self, columns: Columns, group: ir.Expression) -> list[ir.Statement]:
        """Return what is fetched ahead beside a group of a panel."""
        return []

    def copied(self, left: ir.Expression, term: ir.Expression) -> ir.Expression:
        """Return what is kept of a vector of left factors, from a term of the block on."""
        return left
