"""Softmax of rows whose scores come in blocks: a running maximum and sum (Milakov and Gimelshein, 2018).

What is known of some keys is the largest score, the sum of exponentials less it, and the values weighted by these:
``(m, l, o)``. Of two sets of keys it is ``m = max(m1, m2)``, ``l = l1 * c1 + l2 * c2`` and ``o = o1 * c1 + o2 * c2``
with ``c = exp(m1 - m)`` and ``exp(m2 - m)``: a commutative monoid, whose neutral element is ``(-inf, 0, 0)``. So keys
may be cut into blocks of any size, in any order; sums move by what reassociating them does, and by the rounding of one
product per block.
"""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import LoopAxis
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.primitives.bounds import Unswitch
from graft.core.schedule.primitives.loop_kinds import Vectorize
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.plain_nest import reduced_element
from graft.core.schedule.primitives.rfactor import Horizontal, Rfactor
from graft.core.schedule.primitives.statements import scratch
from graft.core.schedule.primitives.vectorize import guarded
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.strategies.attention.attention_blocks import Keys, Rows
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.exponential import FLOAT32, FLOAT64, exp_nonpositive
from graft.core.tensor_ir.rewriting.sharing import bind_shared
from graft.core.tensor_ir.scalar_math import Value
from graft.core.tensor_ir.statements import loops_over
from graft.core.tensor_ir.visit import chain_of_lets, free_variables, map_statement
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
        self.kind, self.rounds = Type(epilogue.anchor.value.type.dtype), rounds
        self.scored = self._scratch("scores", group, pitch)
        self.weights = scratch("weights", "bfloat16", group, pitch) if rounds else self.scored
        """The exponentials: in place of the scores, or rounded beside them."""
        self.tops, self.sums = self._scratch("tops", height), self._scratch("sums", height)
        self.whole = -(-group // lanes) * lanes
        self.largest, self.changes, self.factors = (
            self._scratch(name, self.whole) for name in ("largest", "changes", "factors")
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
        row = ir.Variable("i")
        change = self._exponential(ir.Load(self.changes, (row,)))
        changes = loops_over([(row, b.index(self.whole))], bind_shared(ir.Store(self.changes, (row,), change)))
        return (
            self._by_rows(rows, keys, row, self._largest(rows, keys, row)),
            ir.If(keys.is_first, ir.Block(()), taken(changes, (Split("i", self.lanes, "v", "i"), Vectorize("i")))),
            self._by_rows(rows, keys, row, self._powers(rows, keys, row)),
        )

    def _by_rows(self, rows: Rows, keys: Keys, row: ir.Variable, element: ir.Statement) -> ir.Statement:
        """Return what is reduced along each row of scores, in vectors; those that have all keys ask for none."""
        steps = (
            Split("j", self.lanes, "v", "j"),
            Rfactor("total", "j", "register", "parts", ("v",)),
            Vectorize("parts.in"),
            Horizontal("parts.turn"),
            Vectorize("j"),
            Unswitch("v", "cut"),
        )
        nest, along = loops_over([(row, rows.count)], element), LoopAxis.over(ir.Variable("j"), keys.vectors)
        return taken(nest, steps if self.lanes > 1 else (), [along])

    def _pitch(self, keys: Keys) -> ir.Expression:
        """Return how many scores a row has, up to the end of the last vector."""
        return b.multiply(keys.vectors, self.lanes)

    def _constant(self, value: float) -> ir.Constant:
        return ir.Constant(value, self.kind)

    def _exponential(self, value: ir.Expression) -> ir.Expression:
        return exp_nonpositive(Value(value), FLOAT32 if self.kind.dtype == "float32" else FLOAT64).expression

    def _largest(self, rows: Rows, keys: Keys, row: ir.Variable) -> ir.Statement:
        """Return what follows the product in a row, and finds its largest score so far and by how much that grew.

        Of a row of minus infinity alone 0 is subtracted, so that a later block with a score finds weights of 0.
        Behind the last key are scores of minus infinity, up to the end of a vector.
        """
        key, raw, score = ir.Variable("j"), ir.Variable("raw", self.kind), ir.Variable("score", self.kind)
        point, inside = [*self.outer, b.add(rows.place, row), b.add(keys.begin, key)], b.less(key, keys.count)
        value = self.epilogue.values(point, ir.Load(self.scored, (row, key)), None)[self.epilogue.last]
        top, used, own = ir.Variable("top", self.kind), ir.Variable("used", self.kind), (b.add(rows.begin, row),)
        lowest = self._constant(float("-inf"))
        before = ir.Select(keys.is_first, lowest, ir.Load(self.tops, own))

        def kept(store: ir.Statement) -> ir.Statement:
            stores = ir.Block((ir.Store(self.scored, (row, key), score), store))
            body = bind_shared(ir.Let(raw, value, ir.Let(score, ir.Select(inside, raw, lowest), stores)))
            moving = {key}
            for let in chain_of_lets(body)[0]:  # places among them, which the score shares
                moving |= {let.variable} if free_variables(let.value) & moving else set()
            return map_statement(body, lambda expression: guarded(expression, inside, moving))

        def finish(best: ir.Expression) -> ir.Statement:
            finite = b.select(b.equal(top, float("-inf")), 0.0, top)
            stores = (
                ir.Store(self.changes, (row,), b.subtract(before, used)),
                ir.Store(self.tops, own, top),
                ir.Store(self.largest, (row,), used),
            )
            return ir.Let(top, _larger(best, before), ir.Let(used, finite, ir.Block(stores)))

        return reduced_element(lowest, [(key, self._pitch(keys))], lambda best: _larger(score, best), finish, kept)

    def _powers(self, rows: Rows, keys: Keys, row: ir.Variable) -> ir.Statement:
        """Return what turns one row of scores into exponentials, and one over their sum so far.

        Where a row of NaN has weights of 0, so have its results of earlier blocks; its sum stays NaN for later ones.
        """
        own, one, key = b.add(rows.begin, row), self._constant(1.0), ir.Variable("j")
        power, top = ir.Variable("power", self.kind), ir.Variable("top", self.kind)
        value = self._exponential(b.subtract(ir.Load(self.scored, (row, key)), top))
        scaled = b.multiply(ir.Load(self.sums, (own,)), ir.Load(self.changes, (row,)))

        def kept(store: ir.Statement) -> ir.Statement:
            return bind_shared(ir.Let(power, value, ir.Block((self._weight(row, key, power), store))))

        def finish(total: ir.Expression) -> ir.Statement:
            nothing = b.equal(total, 0.0) if self.empty_is_zero else b.equal(keys.count, 0)
            factor: ir.Statement = ir.Store(self.factors, (row,), b.divide(one, b.select(nothing, one, total)))
            if self.nan_is_zero:
                other, zero = ir.Variable("clear"), self._constant(0.0)
                cleared = loops_over([(other, self._pitch(keys))], self._weight(row, other, zero))
                stores = (ir.Store(self.changes, (row,), zero), ir.Store(self.factors, (row,), one))
                factor = ir.If(b.is_nan(total), ir.Block((cleared, *stores)), factor)
            return ir.Block((ir.Store(self.sums, (own,), total), factor))

        start = ir.Select(keys.is_first, self._constant(0.0), scaled)
        axes = [(key, self._pitch(keys))]
        body = reduced_element(start, axes, lambda total: b.add(total, power), finish, kept)
        return ir.Let(top, ir.Load(self.largest, (row,)), body)

    def _weight(self, row: ir.Expression, key: ir.Expression, power: ir.Expression) -> ir.Statement:
        """Return what stores an exponential of a score."""
        return ir.Store(self.weights, (row, key), rounded(power) if self.rounds else power)


def _larger(value: ir.Expression, known: ir.Expression) -> ir.Expression:
    """Return the larger of two scores: a NaN may be lost, for its difference to any other brings it back."""
    return ir.Select(ir.Binary("gt", value, known), value, known)
