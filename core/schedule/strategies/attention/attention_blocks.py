"""Blocks of attention over lengths that vary: their keys and rows, and copies of keys and values in panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.loops.tiled_transpose import transpose
from graft.core.schedule.primitives.statements import divided, ramp, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.schedule.strategies.attention.attention_parts import FactoredProduct
from graft.core.tensor_ir.ir import Block, Buffer, Constant, Expression, For, If, Statement, Store, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import loads


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
    """Keys and values of one block and one head in scratch memory: panels as wide as a register tile."""

    def __init__(
        self,
        scores: FactoredProduct,
        values: FactoredProduct,
        outer: Sequence[Expression],
        tile: RegisterTile,
        block: int,
    ) -> None:
        self.scores, self.values, self.outer, self.tile, self.lanes = scores, values, outer, tile, tile.lanes
        self.block = block
        self.terms, self.features = _number(scores.terms), _number(values.extents[-1])
        self.across = -(-self.features // tile.columns) * tile.columns
        """The features in whole tiles."""
        dtype = scores.left.type.dtype
        self.keys, self.weighted = (
            Buffer(name, dtype, (b.index(size),), memory="scratch", alignment=64)
            for name, size in (("keys", block * self.terms), ("values", block * self.across))
        )

    def _key_place(self, vector: Expression, term: Expression) -> Expression:
        """Return where the keys of a vector stand: panels as wide as a tile, a row for each term."""
        width, per = self.tile.columns, self.tile.vectors
        panel = b.multiply(b.divide(vector, per), self.terms * width)
        return b.add(b.add(panel, b.multiply(term, width)), b.multiply(b.modulo(vector, per), self.lanes))

    def _key(self, column: Expression, term: Expression, mask: Expression | None = None) -> Expression:
        places = {**self.scores.at_head(self.outer), self.scores.axes[-1]: column, self.scores.term: term}
        return wide(vectorize_expression(self.scores.right, places, mask), self.lanes)

    def key_copies(self, keys: Keys) -> Statement:
        """Return the copy of a block of keys into panels: transposed in registers where they lie along the terms."""
        along = all(stride(load.indices[-1], self.scores.term, Simplifier()) == 1 for load in loads(self.scores.right))
        masked = any(load.mask is not None for load in loads(self.scores.right))
        if along and not masked and self.lanes >= 4 and self.terms % self.lanes == 0:
            return self._transposed(keys)
        vector, term = Variable("vector"), Variable("term")
        whole, rest = divided(keys.count, self.lanes)

        def copied(number: Expression, mask: Expression | None) -> Statement:
            column = ramp(b.add(keys.begin, b.multiply(number, self.lanes)), self.lanes)
            store = Store(self.keys, (ramp(self._key_place(number, term), self.lanes),), self._key(column, term, mask))
            return For(term, b.index(self.terms), "serial", store)

        tail = If(b.greater(rest, 0), copied(whole, mask_of(rest, self.lanes)))
        return Block((For(vector, whole, "serial", copied(vector, None)), tail))

    def _transposed(self, keys: Keys) -> Statement:
        """Return square tiles read along the terms and transposed; keys beyond the last repeat it."""
        vector, block = Variable("vector"), Variable("terms")
        last = b.subtract(b.add(keys.begin, keys.count), 1)
        bindings: list[tuple[Variable, Expression]] = []
        start = b.multiply(block, self.lanes)
        for lane in range(self.lanes):
            column = b.minimum(b.add(keys.begin, b.add(b.multiply(vector, self.lanes), lane)), last)
            value = self._key(column, ramp(start, self.lanes))
            bindings.append((Variable(f"r{lane}", value.type), value))
        transposed = transpose([variable for variable, _ in bindings], bindings)
        body: Statement = Block(
            tuple(
                Store(self.keys, (ramp(self._key_place(vector, b.add(start, step)), self.lanes),), value)
                for step, value in enumerate(transposed)
            )
        )
        body = bind(bindings, body)
        return For(vector, keys.vectors, "serial", For(block, b.index(self.terms // self.lanes), "serial", body))

    def value_copies(self, keys: Keys) -> Statement:
        """Return the copy of a block of values: panels as wide as a tile, a row for each key."""
        key = Variable("key")
        stores = []
        vectors = -(-self.features // self.lanes)
        for number in range(vectors):
            panel, vector = divmod(number, self.tile.vectors)
            column = ramp(b.index(number * self.lanes), self.lanes)
            places = {
                **self.values.at_head(self.outer),
                self.values.axes[-1]: column,
                self.values.term: b.add(keys.begin, key),
            }
            value = vectorize_expression(
                self.values.right, places, self.last_features if number == vectors - 1 else None
            )
            stores.append(
                Store(self.weighted, (self.value_place(b.index(panel), vector, key),), wide(value, self.lanes))
            )
        return For(key, keys.count, "serial", Block(tuple(stores)))

    def value_place(self, panel: Expression, vector: int, key: Expression) -> Expression:
        """Return where a vector of a panel of values stands for a key."""
        row = b.add(b.multiply(panel, self.block * self.tile.columns), b.multiply(key, self.tile.columns))
        return ramp(b.add(row, vector * self.lanes), self.lanes)

    @property
    def last_features(self) -> Expression | None:
        """Which lanes of the last vector are features; None if all are."""
        rest = self.features % self.lanes
        return mask_of(b.index(rest), self.lanes) if rest else None


def _number(extent: Expression) -> int:
    assert isinstance(extent, Constant), extent
    return int(extent.value)
