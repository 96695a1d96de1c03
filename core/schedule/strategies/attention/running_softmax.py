"""Softmax of rows whose scores come in blocks: a running maximum and sum (Milakov and Gimelshein, 2018)."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import ramp, wide
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.strategies.attention.attention_blocks import Keys, Rows, mask_of
from graft.core.schedule.strategies.nests.varying_nest import divided
from graft.core.tensor_ir.arithmetic.exponential import FLOAT32, FLOAT64, exp_nonpositive
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Horizontal,
    If,
    Let,
    Load,
    Select,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.rewriting.sharing import bind_shared
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import Type


class RunningSoftmax:
    """The scores of a group of rows against a block of keys, and what of earlier blocks is known of their rows.

    ``epilogue`` follows the product of queries and keys, for the head ``outer``. ``group`` is the number of rows of a
    group, ``height`` that of all groups, and ``pitch`` the length of a row of scores.
    """

    def __init__(
        self,
        epilogue: Epilogue,
        outer: Sequence[Expression],
        lanes: int,
        group: int,
        height: int,
        pitch: int,
        *,
        empty_is_zero: bool,
        nan_is_zero: bool,
    ) -> None:
        self.epilogue, self.outer, self.lanes = epilogue, outer, lanes
        self.empty_is_zero, self.nan_is_zero = empty_is_zero or nan_is_zero, nan_is_zero
        self.kind, self.group = Type(epilogue.anchor.value.type.dtype), group
        self.scored = self._scratch("scores", group, pitch)
        self.tops, self.sums = self._scratch("tops", height), self._scratch("sums", height, lanes)
        whole = -(-group // lanes) * lanes
        self.largest, self.changes, self.factors = (
            self._scratch(name, whole) for name in ("largest", "changes", "factors")
        )

    def _scratch(self, name: str, *shape: int) -> Buffer:
        return Buffer(name, self.kind.dtype, tuple(map(b.index, shape)), memory="scratch", alignment=64)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All that must be allocated."""
        return (self.scored, self.tops, self.sums, self.largest, self.changes, self.factors)

    def of(self, rows: Rows, keys: Keys) -> tuple[Statement, ...]:
        """Return what turns products into exponentials, less the largest score so far.

        Afterwards ``changes`` says by what the rows' results of earlier blocks must be multiplied, and ``factors`` has
        one over the sums of all exponentials so far.
        """
        number = Variable("number")
        changes = [
            Store(self.changes, (place,), self._exponential(Load(self.changes, (place,))))
            for place in (ramp(b.index(begin), self.lanes) for begin in range(0, self.group, self.lanes))
        ]
        return (
            For(number, rows.count, "serial", self._largest(rows, keys, number)),
            If(keys.is_first, Block(()), bind_shared(Block(tuple(changes)))),
            For(number, rows.count, "serial", self._powers(rows, keys, number)),
        )

    def _constant(self, value: float, lanes: int = 1) -> Expression:
        return wide(Constant(value, self.kind), lanes)

    def _exponential(self, value: Expression) -> Expression:
        return exp_nonpositive(Value(value), FLOAT32 if self.kind.dtype == "float32" else FLOAT64).expression

    def _largest(self, rows: Rows, keys: Keys, number: Expression) -> Statement:
        """Return what follows the product in a row, and finds its largest score so far and by how much that grew.

        Of a row of minus infinity alone 0 is subtracted, so that a later block with a score finds weights of 0.
        """
        lanes, vector = self.lanes, Variable("vector")
        part = Buffer("part", self.kind.dtype, (b.index(lanes),), None, "register", 64)
        home = (ramp(b.index(0), lanes),)
        epilogue = self.epilogue

        def larger(value: Expression, known: Expression) -> Expression:
            # Not `max`: a NaN may be lost here, the difference brings it back.
            return Select(Binary("gt", value, known), value, known)

        def of(vector: Expression, mask: Expression | None) -> Statement:
            begin, score = b.multiply(vector, lanes), Variable("score", self.kind.with_lanes(lanes))
            place = (number, ramp(begin, lanes))
            point = [*self.outer, b.add(rows.place, number), ramp(b.add(keys.begin, begin), lanes)]
            value = wide(epilogue.values(point, Load(self.scored, place), mask)[epilogue.last], lanes)
            value = value if mask is None else Select(mask, value, self._constant(float("-inf"), lanes))
            steps = Block((Store(self.scored, place, score), Store(part, home, larger(score, Load(part, home)))))
            return bind_shared(Let(score, value, steps))

        whole, rest = divided(keys.count, lanes)
        passes = (
            Store(part, home, self._constant(float("-inf"), lanes)),
            For(vector, whole, "serial", of(vector, None)),
            If(b.greater(rest, 0), of(whole, mask_of(rest, lanes))),
        )
        top, used, own = Variable("top", self.kind), Variable("used", self.kind), (b.add(rows.begin, number),)
        before = Select(keys.is_first, self._constant(float("-inf")), Load(self.tops, own))
        stores = (
            Store(self.changes, (number,), b.subtract(before, used)),
            Store(self.tops, own, top),
            Store(self.largest, (number,), used),
        )
        best = Load(part, home) if lanes == 1 else Horizontal("max", Load(part, home))
        finite = b.select(b.equal(top, float("-inf")), 0.0, top)
        return Allocate(part, Block((*passes, Let(top, larger(best, before), Let(used, finite, Block(stores))))))

    def _powers(self, rows: Rows, keys: Keys, number: Expression) -> Statement:
        """Return what turns one row of scores into exponentials, and one over their sum so far.

        Where a row of NaN has weights of 0, so have its results of earlier blocks; its sum stays NaN for later ones.
        """
        lanes, vector = self.lanes, Variable("vector")
        sums = Buffer("sum", self.kind.dtype, (b.index(lanes),), None, "register", 64)
        home = (ramp(b.index(0), lanes),)
        top, power = (Variable(name, self.kind.with_lanes(lanes)) for name in ("top", "power"))
        score = Load(self.scored, (number, ramp(b.multiply(vector, lanes), lanes)))
        added = Store(sums, home, b.add(Load(sums, home), power))
        value = self._exponential(b.subtract(score, top))
        step = bind_shared(Let(power, value, Block((Store(self.scored, score.indices, power), added))))
        kept = (b.add(rows.begin, number), home[0])
        scaled = b.multiply(Load(self.sums, kept), wide(Load(self.changes, (number,)), lanes))
        start = If(keys.is_first, Store(sums, home, self._constant(0.0, lanes)), Store(sums, home, scaled))
        total = Load(sums, home) if lanes == 1 else Horizontal("add", Load(sums, home))
        nothing = b.equal(total, 0.0) if self.empty_is_zero else b.equal(keys.count, 0)
        one = self._constant(1.0)
        factor: Statement = Store(self.factors, (number,), b.divide(one, b.select(nothing, one, total)))
        if self.nan_is_zero:
            cleared = For(vector, keys.vectors, "serial", Store(self.scored, score.indices, self._constant(0.0, lanes)))
            no_change = Store(self.changes, (number,), self._constant(0.0))
            factor = If(b.is_nan(total), Block((cleared, no_change, Store(self.factors, (number,), one))), factor)
        end = Block((Store(self.sums, kept, Load(sums, home)), factor))
        body = Block((start, For(vector, keys.vectors, "serial", step), end))
        return Allocate(sums, Let(top, wide(Load(self.largest, (number,)), lanes), body))
