"""Softmax of rows whose scores come in blocks: a running maximum and sum (Milakov and Gimelshein, 2018)."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.primitives.statements import divided, ramp, scratch, wide
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.strategies.attention.attention_blocks import Keys, Rows, mask_of
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.exponential import FLOAT32, FLOAT64, exp_nonpositive
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
        outer: Sequence[ir.Expression],
        lanes: int,
        group: int,
        height: int,
        pitch: int,
        *,
        empty_is_zero: bool,
        nan_is_zero: bool,
        rounds: bool,
    ) -> None:
        self.epilogue, self.outer, self.lanes = epilogue, outer, lanes
        self.empty_is_zero, self.nan_is_zero = empty_is_zero or nan_is_zero, nan_is_zero
        self.kind, self.group = Type(epilogue.anchor.value.type.dtype), group
        self.scored = self._scratch("scores", group, pitch)
        self.weights = scratch("weights", "bfloat16", group, pitch) if rounds else self.scored
        """The exponentials: in place of the scores, or rounded beside them."""
        self.tops, self.sums = self._scratch("tops", height), self._scratch("sums", height, lanes)
        whole = -(-group // lanes) * lanes
        self.largest, self.changes, self.factors = (
            self._scratch(name, whole) for name in ("largest", "changes", "factors")
        )

    def _scratch(self, name: str, *shape: int) -> ir.Buffer:
        return scratch(name, self.kind.dtype, *shape)

    @property
    def buffers(self) -> tuple[ir.Buffer, ...]:
        """All that must be allocated."""
        weights = () if self.weights is self.scored else (self.weights,)
        return (self.scored, *weights, self.tops, self.sums, self.largest, self.changes, self.factors)

    def of(self, rows: Rows, keys: Keys) -> tuple[ir.Statement, ...]:
        """Return what turns products into exponentials, less the largest score so far.

        Afterwards ``changes`` says by what the rows' results of earlier blocks must be multiplied, and ``factors`` has
        one over the sums of all exponentials so far.
        """
        number = ir.Variable("number")
        changes = [
            ir.Store(self.changes, (place,), self._exponential(ir.Load(self.changes, (place,))))
            for place in (ramp(b.index(begin), self.lanes) for begin in range(0, self.group, self.lanes))
        ]
        return (
            ir.For(number, rows.count, "serial", self._largest(rows, keys, number)),
            ir.If(keys.is_first, ir.Block(()), bind_shared(ir.Block(tuple(changes)))),
            ir.For(number, rows.count, "serial", self._powers(rows, keys, number)),
        )

    def _constant(self, value: float, lanes: int = 1) -> ir.Expression:
        return wide(ir.Constant(value, self.kind), lanes)

    def _exponential(self, value: ir.Expression) -> ir.Expression:
        return exp_nonpositive(Value(value), FLOAT32 if self.kind.dtype == "float32" else FLOAT64).expression

    def _largest(self, rows: Rows, keys: Keys, number: ir.Expression) -> ir.Statement:
        """Return what follows the product in a row, and finds its largest score so far and by how much that grew.

        Of a row of minus infinity alone 0 is subtracted, so that a later block with a score finds weights of 0.
        """
        lanes, vector = self.lanes, ir.Variable("vector")
        part = ir.Buffer("part", self.kind.dtype, (b.index(lanes),), None, "register", 64)
        home = (ramp(b.index(0), lanes),)
        epilogue = self.epilogue

        def larger(value: ir.Expression, known: ir.Expression) -> ir.Expression:
            # Not `max`: a NaN may be lost here, the difference brings it back.
            return ir.Select(ir.Binary("gt", value, known), value, known)

        def of(vector: ir.Expression, mask: ir.Expression | None) -> ir.Statement:
            begin, score = b.multiply(vector, lanes), ir.Variable("score", self.kind.with_lanes(lanes))
            place = (number, ramp(begin, lanes))
            point = [*self.outer, b.add(rows.place, number), ramp(b.add(keys.begin, begin), lanes)]
            value = wide(epilogue.values(point, ir.Load(self.scored, place), mask)[epilogue.last], lanes)
            value = value if mask is None else ir.Select(mask, value, self._constant(float("-inf"), lanes))
            steps = ir.Block(
                (ir.Store(self.scored, place, score), ir.Store(part, home, larger(score, ir.Load(part, home))))
            )
            return bind_shared(ir.Let(score, value, steps))

        whole, rest = divided(keys.count, lanes)
        passes = (
            ir.Store(part, home, self._constant(float("-inf"), lanes)),
            ir.For(vector, whole, "serial", of(vector, None)),
            ir.If(b.greater(rest, 0), of(whole, mask_of(rest, lanes))),
        )
        top, used, own = ir.Variable("top", self.kind), ir.Variable("used", self.kind), (b.add(rows.begin, number),)
        before = ir.Select(keys.is_first, self._constant(float("-inf")), ir.Load(self.tops, own))
        stores = (
            ir.Store(self.changes, (number,), b.subtract(before, used)),
            ir.Store(self.tops, own, top),
            ir.Store(self.largest, (number,), used),
        )
        best = ir.Load(part, home) if lanes == 1 else ir.Horizontal("max", ir.Load(part, home))
        finite = b.select(b.equal(top, float("-inf")), 0.0, top)
        return ir.Allocate(
            part, ir.Block((*passes, ir.Let(top, larger(best, before), ir.Let(used, finite, ir.Block(stores)))))
        )

    def _powers(self, rows: Rows, keys: Keys, number: ir.Expression) -> ir.Statement:
        """Return what turns one row of scores into exponentials, and one over their sum so far.

        Where a row of NaN has weights of 0, so have its results of earlier blocks; its sum stays NaN for later ones.
        """
        lanes, vector = self.lanes, ir.Variable("vector")
        sums = ir.Buffer("sum", self.kind.dtype, (b.index(lanes),), None, "register", 64)
        home = (ramp(b.index(0), lanes),)
        top, power = (ir.Variable(name, self.kind.with_lanes(lanes)) for name in ("top", "power"))
        score = ir.Load(self.scored, (number, ramp(b.multiply(vector, lanes), lanes)))
        added = ir.Store(sums, home, b.add(ir.Load(sums, home), power))
        value = self._exponential(b.subtract(score, top))
        step = bind_shared(ir.Let(power, value, ir.Block((self._weight(score, power), added))))
        kept = (b.add(rows.begin, number), home[0])
        scaled = b.multiply(ir.Load(self.sums, kept), wide(ir.Load(self.changes, (number,)), lanes))
        start = ir.If(keys.is_first, ir.Store(sums, home, self._constant(0.0, lanes)), ir.Store(sums, home, scaled))
        total = ir.Load(sums, home) if lanes == 1 else ir.Horizontal("add", ir.Load(sums, home))
        nothing = b.equal(total, 0.0) if self.empty_is_zero else b.equal(keys.count, 0)
        one = self._constant(1.0)
        factor: ir.Statement = ir.Store(self.factors, (number,), b.divide(one, b.select(nothing, one, total)))
        if self.nan_is_zero:
            cleared = ir.For(vector, keys.vectors, "serial", self._weight(score, self._constant(0.0, lanes)))
            no_change = ir.Store(self.changes, (number,), self._constant(0.0))
            factor = ir.If(
                b.is_nan(total), ir.Block((cleared, no_change, ir.Store(self.factors, (number,), one))), factor
            )
        end = ir.Block((ir.Store(self.sums, kept, ir.Load(sums, home)), factor))
        body = ir.Block((start, ir.For(vector, keys.vectors, "serial", step), end))
        return ir.Allocate(sums, ir.Let(top, wide(ir.Load(self.largest, (number,)), lanes), body))

    def _weight(self, score: ir.Load, power: ir.Expression) -> ir.Statement:
        """Return what stores an exponential of a score."""
        value = power if self.weights is self.scored else rounded(power)
        return ir.Store(self.weights, score.indices, value)
