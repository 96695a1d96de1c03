"""Blocks of attention: their keys and rows, and copies of keys and values in panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import constant_extent, stride
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.primitives.bounds import Unswitch
from graft.core.schedule.primitives.loop_kinds import Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.statements import divided, ramp, scratch
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.transpose import Transpose
from graft.core.schedule.primitives.vectorize import guarded, vectorize_expression
from graft.core.schedule.products.dot_grouping import PACKED_DTYPE, packed_operand
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.schedule.strategies.attention.attention_parts import FactoredProduct
from graft.core.tensor_ir.ir import Bitcast, Block, Expression, Statement, Store, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import loops_over
from graft.core.tensor_ir.visit import loads, substitute


@dataclass(frozen=True, slots=True)
class Keys:
    """A block of keys: ``count`` from ``begin`` on, in so many vectors, the last perhaps cut."""

    begin: Expression
    count: Expression
    vectors: Expression
    is_first: Expression
    is_last: Expression


@dataclass(frozen=True, slots=True)
class Rows:
    """A group of ``count`` query rows, from row ``begin`` on of the block whose first row is ``first``."""

    first: Expression
    begin: Expression
    count: Expression

    @property
    def place(self) -> Expression:
        """The number of the first row among all queries."""
        return b.add(self.first, self.begin)


class Panels:
    """Keys and values of one block and one head in scratch memory: panels as wide as a register tile.

    A row of a panel has what belongs to one term of its product; of factors that are rounded to bfloat16, to two terms.
    """

    def __init__(
        self,
        scores: FactoredProduct,
        values: FactoredProduct,
        outer: Sequence[Expression],
        tile: RegisterTile,
        block: int,
        *,
        rounds: bool,
    ) -> None:
        self.scores, self.values, self.outer, self.tile, self.lanes = scores, values, outer, tile, tile.lanes
        self.rounds = rounds
        self.terms, self.features = constant_extent(scores.terms), constant_extent(values.extents[-1])
        self.depth, self.block = (-(-extent // 2) if rounds else extent for extent in (self.terms, block))
        """The rows of a panel of keys, and of values."""
        self.across = -(-self.features // tile.columns) * tile.columns
        """The features in whole tiles."""
        dtype = PACKED_DTYPE if rounds else scores.left.type.dtype
        self.keys = scratch("keys", dtype, block * self.depth)
        self.weighted = scratch("values", dtype, self.block * self.across)

    def key_place(self, vector: Expression, term: Expression) -> Expression:
        """Return where the keys of a vector stand: panels as wide as a tile, a row for each term."""
        width, per = self.tile.columns, self.tile.vectors
        panel = b.multiply(b.divide(vector, per), self.depth * width)
        return b.add(b.add(panel, b.multiply(term, width)), b.multiply(b.modulo(vector, per), self.lanes))

    def rows_of(self, keys: Expression) -> Expression:
        """Return how many rows of a panel of values so many keys have."""
        return b.divide(b.add(keys, 1), 2) if self.rounds else keys

    def key_copies(self, keys: Keys) -> Statement:
        """Return the copy of a block of keys into panels: transposed in registers where they lie along the terms."""
        scores, (vector, term, lane) = self.scores, (Variable(name) for name in ("v", "k", "lane"))
        key = b.add(b.multiply(vector, self.lanes), lane)
        places, found = scores.at_head(self.outer), loads(scores.right)
        along = all(one.mask is None and stride(one.indices[-1], scores.term, Simplifier()) == 1 for one in found)
        steps: tuple[Step, ...]
        if along and self.lanes >= 4 and self.terms % (self.lanes * (2 if self.rounds else 1)) == 0:
            last = b.subtract(b.add(keys.begin, keys.count), 1)  # which is repeated behind it
            places |= {scores.axes[-1]: b.minimum(b.add(keys.begin, key), last)}
            element = substitute(scores.right, {**places, scores.term: term})
            if self.rounds:
                pair = vectorize_expression(scores.right, {**places, scores.term: ramp(b.multiply(term, 2), 2)})
                element = Bitcast(rounded(pair), PACKED_DTYPE)
            steps = (Split("k", self.lanes, "run", "k"), Transpose("lane", "k"))
        else:
            element = scores.right
            if self.rounds:
                element = packed_operand(rounded(element), scores.term, term, self.terms, 2)
            places |= {scores.term: term, scores.axes[-1]: b.add(keys.begin, key)}
            element = guarded(substitute(element, places), b.less(key, keys.count), (vector, lane))
            steps = (Vectorize("lane"), Unswitch("v", "cut")) if self.lanes > 1 else ()
        store = Store(self.keys, (b.add(self.key_place(vector, term), lane),), element)
        axes = [(vector, keys.vectors), (term, b.index(self.depth)), (lane, b.index(self.lanes))]
        return taken(loops_over(axes, store), steps)

    def value_copies(self, keys: Keys) -> Statement:
        """Return the copy of a block of values; where a row has room for two keys, zeros for one that there is not."""
        if not self.rounds:
            return self._value_rows(keys, b.index(0), keys.count, 1)
        whole, rest = divided(keys.count, 2)
        return Block((self._value_rows(keys, b.index(0), whole, 2), self._value_rows(keys, whole, rest, 1)))

    def _value_rows(self, keys: Keys, begin: Expression, count: Expression, size: int) -> Statement:
        """Return the copy of rows of all panels, of so many keys each."""
        values, (row, vector, lane) = self.values, (Variable(name) for name in ("j", "v", "lane"))
        number, column = b.add(begin, row), b.add(b.multiply(vector, self.lanes), lane)
        element = substitute(values.right, {values.term: b.add(keys.begin, number)})
        if self.rounds:
            turn = Variable("turn")
            both = substitute(values.right, {values.term: b.add(b.add(keys.begin, b.multiply(number, 2)), turn)})
            element = packed_operand(rounded(both), turn, b.index(0), size, 2)
        element = substitute(element, {**values.at_head(self.outer), values.axes[-1]: column})
        if self.features % self.lanes:
            element = guarded(element, b.less(column, self.features), (vector, lane))
        store = Store(self.weighted, (b.add(self.value_place(vector, number), lane),), element)
        axes = [(row, count), (vector, b.index(-(-self.features // self.lanes))), (lane, b.index(self.lanes))]
        return taken(loops_over(axes, store), (Vectorize("lane"), Unroll("v")))

    def value_place(self, vector: Expression, row: Expression) -> Expression:
        """Return where a vector of a row of values stands: panels as wide as a tile, a row for each key."""
        width, per = self.tile.columns, self.tile.vectors
        panel = b.add(b.multiply(b.divide(vector, per), self.block * width), b.multiply(row, width))
        return b.add(panel, b.multiply(b.modulo(vector, per), self.lanes))
