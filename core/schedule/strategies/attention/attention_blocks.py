"""Blocks of attention: their keys and rows, and copies of keys and values in panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import constant_extent, stride
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.loops.tiled_transpose import transpose
from graft.core.schedule.primitives.statements import divided, ramp, scratch, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.products.dot_grouping import PACKED_DTYPE, packed_operand
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.schedule.strategies.attention.attention_parts import FactoredProduct
from graft.core.tensor_ir.ir import Bitcast, Block, Expression, For, If, Statement, Store, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import bind
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


def mask_of(count: Expression, lanes: int) -> Expression:
    """Return which lanes of a vector there are of ``count`` elements."""
    return b.less(ramp(b.index(0), lanes), wide(count, lanes))


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

    def _key(self, column: Expression, row: Variable, mask: Expression | None) -> Expression:
        """Return a row of a panel, in vectors of keys."""
        scores = self.scores
        element = substitute(scores.right, {scores.term: row})
        if self.rounds:
            element = packed_operand(rounded(scores.right), scores.term, row, self.terms, 2)
        places = {**scores.at_head(self.outer), scores.axes[-1]: column}
        return wide(vectorize_expression(element, places, mask), self.lanes)

    def rows_of(self, keys: Expression) -> Expression:
        """Return how many rows of a panel of values so many keys have."""
        return b.divide(b.add(keys, 1), 2) if self.rounds else keys

    def key_copies(self, keys: Keys) -> Statement:
        """Return the copy of a block of keys into panels: transposed in registers where they lie along the terms."""
        along = all(stride(load.indices[-1], self.scores.term, Simplifier()) == 1 for load in loads(self.scores.right))
        masked = any(load.mask is not None for load in loads(self.scores.right))
        if along and not masked and self.lanes >= 4 and self.terms % self._run == 0:
            return self._transposed(keys)
        vector, term = Variable("vector"), Variable("term")
        whole, rest = divided(keys.count, self.lanes)

        def copied(number: Expression, mask: Expression | None) -> Statement:
            column = ramp(b.add(keys.begin, b.multiply(number, self.lanes)), self.lanes)
            store = Store(self.keys, (ramp(self.key_place(number, term), self.lanes),), self._key(column, term, mask))
            return For(term, b.index(self.depth), "serial", store)

        tail = If(b.greater(rest, 0), copied(whole, mask_of(rest, self.lanes)))
        return Block((For(vector, whole, "serial", copied(vector, None)), tail))

    def _transposed(self, keys: Keys) -> Statement:
        """Return square tiles read along the terms and transposed; keys beyond the last repeat it."""
        vector, block = Variable("vector"), Variable("terms")
        last = b.subtract(b.add(keys.begin, keys.count), 1)
        bindings: list[tuple[Variable, Expression]] = []
        start, along = b.multiply(block, self.lanes), ramp(b.multiply(block, self._run), self._run)
        for lane in range(self.lanes):
            column = b.minimum(b.add(keys.begin, b.add(b.multiply(vector, self.lanes), lane)), last)
            places = {**self.scores.at_head(self.outer), self.scores.axes[-1]: column, self.scores.term: along}
            value = wide(vectorize_expression(self.scores.right, places), self._run)
            value = Bitcast(rounded(value), PACKED_DTYPE) if self.rounds else value
            bindings.append((Variable(f"r{lane}", value.type), value))
        transposed = transpose([variable for variable, _ in bindings], bindings)
        body: Statement = Block(
            tuple(
                Store(self.keys, (ramp(self.key_place(vector, b.add(start, step)), self.lanes),), value)
                for step, value in enumerate(transposed)
            )
        )
        body = bind(bindings, body)
        return For(vector, keys.vectors, "serial", For(block, b.index(self.terms // self._run), "serial", body))

    @property
    def _run(self) -> int:
        """The terms that a vector of a key has, as they are transposed."""
        return 2 * self.lanes if self.rounds else self.lanes

    def value_copies(self, keys: Keys) -> Statement:
        """Return the copy of a block of values."""
        row = Variable("key")
        if not self.rounds:
            return For(row, keys.count, "serial", self._value_row(keys, row, 1))
        whole, rest = divided(keys.count, 2)
        pairs = For(row, whole, "serial", self._value_row(keys, row, 2))
        return Block((pairs, If(b.greater(rest, 0), self._value_row(keys, whole, 1))))

    def _value_row(self, keys: Keys, row: Expression, count: int) -> Statement:
        """Return the copy of a row of all panels, of so many keys; where it has room for two, zeros for the other."""
        values, stores, first = self.values, [], b.add(keys.begin, row)
        element = substitute(values.right, {values.term: first})
        if self.rounds:
            first, turn = b.add(keys.begin, b.multiply(row, 2)), Variable("turn")
            both = rounded(substitute(values.right, {values.term: b.add(first, turn)}))
            element = packed_operand(both, turn, b.index(0), count, 2)
        vectors = -(-self.features // self.lanes)
        for number in range(vectors):
            places = {**values.at_head(self.outer), values.axes[-1]: ramp(b.index(number * self.lanes), self.lanes)}
            value = vectorize_expression(element, places, self.last_features if number == vectors - 1 else None)
            place = ramp(self.value_place(b.index(number), row), self.lanes)
            stores.append(Store(self.weighted, (place,), wide(value, self.lanes)))
        return Block(tuple(stores))

    def value_place(self, vector: Expression, row: Expression) -> Expression:
        """Return where a vector of a row of values stands: panels as wide as a tile, a row for each key."""
        width, per = self.tile.columns, self.tile.vectors
        panel = b.add(b.multiply(b.divide(vector, per), self.block * width), b.multiply(row, width))
        return b.add(panel, b.multiply(b.modulo(vector, per), self.lanes))

    @property
    def last_features(self) -> Expression | None:
        """Which lanes of the last vector are features; None if all are."""
        rest = self.features % self.lanes
        return mask_of(b.index(rest), self.lanes) if rest else None
