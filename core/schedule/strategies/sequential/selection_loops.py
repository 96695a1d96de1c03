"""The loops of a selection: what is better than the last of the best so far is collected, and sorted now and then.

The best and what has come since lie one behind another. Where these might become too many they are sorted, equal keys
in the order of their positions, and all but the best are forgotten; most candidates are only compared, in vectors.
Keys are sorted by their digits, as unsigned integers in the same order, so that a row takes time in proportion to its
candidates. A few ranks are not worth tables of digits, and custom datatypes have no such integers: there each key is
inserted where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block, let, loop
from graft.core.schedule.loops.loop_frames import loops_around
from graft.core.schedule.primitives.statements import ramp, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate
from graft.core.types import SIGNED, element_bits, is_custom

ZERO = (b.index(0),)
FEW = 16
"""Ranks up to which a key is inserted among the best: to clear and add up the tables of a sort costs more."""
DIGIT = 8
"""The bits of a digit; there are at least two of them, so that sorting ends where it began."""
Keys = Callable[..., ir.Expression]
"""The key of a candidate, or of a vector of them with a mask."""
Take = Callable[[ir.Expression, ir.Expression], ir.Statement]
"""What is done with a key and its candidate."""


def selection_loops(stage: ir.Stage, selection: ir.Selection, lanes: int, machine: Machine) -> ir.Statement:
    """Return the loops of a selection, which compares ``lanes`` candidates at a time."""
    dimension, shape = stage.axes.index(selection.rank), b.counts(stage.buffer)
    rows = [(axis, ir.Variable(axis.name)) for axis in stage.axes if axis is not selection.rank]
    extents = [extent for place, extent in enumerate(shape) if place != dimension]
    candidates, dtype = b.counted(selection.candidate.extent), stage.value.type.dtype
    ranks = shape[dimension]

    def key(candidate: ir.Expression, mask: ir.Expression | None = None) -> ir.Expression:
        found = vectorize_expression(stage.value, {**dict(rows), selection.candidate.variable: candidate}, mask)
        return found if is_custom(dtype) else _ordered(found, selection.largest)

    def result(rank: ir.Expression) -> ir.Statement:
        at = [variable for _, variable in rows]
        return ir.Store(
            stage.buffer, (*at[:dimension], rank, *at[dimension:]), ir.Load(best.places, (b.index(0), rank))
        )

    inserts = is_custom(dtype) or (isinstance(ranks, int) and ranks <= FEW)
    if is_custom(dtype):
        best = _Best(dtype, ranks, candidates, 1, ranks, selection.largest)
    else:
        size = ranks if inserts else _room(ranks, candidates, lanes)
        best = _Best(f"uint{element_bits(b.wide(dtype))}", ranks, candidates, lanes, size)
    collected = best.inserted(key) if inserts else best.collected(key)
    line = allocate([best.count, best.places, best.keys], block(collected, loop(ranks, result, name="rank")))
    axes = [(ir.Variable(f"row{number}"), extent) for number, extent in enumerate(extents)]
    for (_, variable), (axis, _) in zip(rows, axes, strict=True):  # names of their own, since steps go by name
        line = ir.Let(variable, axis, line)
    work = b.product_of((*extents, candidates))
    return loops_around(axes, line, not isinstance(work, int) or work >= machine.costs.task)


def _room(ranks: b.Count, candidates: b.Count, lanes: int) -> b.Count:
    """How many candidates are kept: as many as two steps bring beside the best, or all where their number varies."""
    if isinstance(ranks, int) and isinstance(candidates, int):
        return min(candidates, 3 * -(-ranks // lanes) * lanes)
    return candidates


def _ordered(key: ir.Expression, largest: bool) -> ir.Expression:
    """Return an unsigned integer that is the less, the earlier a key comes: equal for zeros, and for all NaN."""
    if key.type.is_float:
        key = b.cast(key, b.wide(key.type.dtype))
        bits = element_bits(key.type.dtype)
        number = ir.Bitcast(b.select(b.equal(key, 0), 0.0, key), f"int{bits}")
        most = (1 << (bits - 1)) - 1
        flipped = b.binary("xor", number, b.binary("and", b.binary("shr", number, bits - 1), most))
        key = b.select(b.is_nan(key), most, flipped)
    dtype = key.type.dtype
    bits = element_bits(dtype)
    if dtype in SIGNED:
        key = b.binary("xor", ir.Bitcast(key, f"uint{bits}"), 1 << (bits - 1))
    return b.unary("bitnot", key) if largest else key


def _memory(name: str, dtype: str, *shape: b.Count) -> ir.Buffer:
    return ir.Buffer(name, dtype, tuple(map(b.extent, shape)), memory="scratch")


@dataclass(slots=True)
class _Best:
    """The best of some candidates, and what has come since, in two halves of memory: sorting goes to and fro.

    The largest key comes first, or the least, as unsigned integers always do.
    """

    dtype: str
    ranks: b.Count
    candidates: b.Count
    lanes: int
    size: b.Count
    largest: bool = False
    keys: ir.Buffer = field(init=False)
    places: ir.Buffer = field(init=False)
    count: ir.Buffer = field(init=False)
    limit: ir.Buffer = field(init=False)
    """Where keys are sorted, the greatest that may still be among the best."""
    numbers: ir.Buffer = field(init=False)
    """How many keys have each digit, then where the next one goes."""

    def __post_init__(self) -> None:
        bits = 0 if is_custom(self.dtype) else element_bits(self.dtype)
        digits = max(2, bits // DIGIT)
        self.keys = _memory("keys", self.dtype, 2, self.size)
        self.places = _memory("places", "int64", 2, self.size)
        self.count = replace(_memory("count", "int64", 1), memory="register")
        self.limit = replace(_memory("limit", self.dtype, 1), memory="register")
        self.numbers = _memory("numbers", "int64", digits, 1 << bits // digits)

    @property
    def taken(self) -> ir.Expression:
        """How many candidates there are."""
        return ir.Load(self.count, ZERO)

    def _take(self, count: ir.Expression) -> ir.Statement:
        return ir.Store(self.count, ZERO, count)

    def _put(
        self, at: ir.Expression, key: ir.Expression, place: ir.Expression, half: ir.Expression | int = 0
    ) -> ir.Statement:
        there = (b.index(half) if isinstance(half, int) else half, at)
        return block(ir.Store(self.keys, there, key), ir.Store(self.places, there, place))

    def _before(self, x: ir.Expression, y: ir.Expression) -> ir.Expression:
        """Whether a candidate with key ``x`` comes before one with ``y`` wherever they stand."""
        if not x.type.is_custom:
            return b.less(x, y)
        x, y = (x, y) if self.largest else (y, x)
        return b.either(b.greater(x, y), b.both(b.is_nan(x), b.equal(y, y)))

    @property
    def _last(self) -> ir.Expression:
        return ir.Load(self.keys, (b.index(0), b.subtract(b.extent(self.ranks), 1)))

    def _wanted(self, key: ir.Expression) -> ir.Expression:
        """Whether a key may be among the best."""
        lanes = key.type.lanes
        if isinstance(self.size, int) and isinstance(self.ranks, int) and self.size > self.ranks:  # sorted now and then
            return b.less_equal(key, wide(ir.Load(self.limit, ZERO), lanes))
        is_open = wide(b.less(self.taken, self.ranks), lanes)
        return b.either(is_open, self._before(key, wide(self._last, lanes)))

    def _look(self, first: ir.Expression, end: ir.Expression | int, key: Keys, take: Take) -> ir.Statement:
        """Take of candidates from ``first`` to ``end`` what may be among the best; a vector is looked at at once."""
        part = ir.Variable("part")
        count = b.divide(b.add(b.subtract(end, first), self.lanes - 1), self.lanes)
        return ir.For(part, count, "serial", self._part(b.add(first, b.multiply(part, self.lanes)), key, take))

    def _part(self, first: ir.Expression, key: Keys, take: Take) -> ir.Statement:
        def consider(candidate: ir.Expression) -> ir.Statement:
            return let(key(candidate), lambda value: ir.If(self._wanted(value), take(value, candidate)), "key")

        if self.lanes == 1:
            return consider(first)
        some, mask = ramp(first, self.lanes), None
        if not isinstance(self.candidates, int) or self.candidates % self.lanes:
            mask = b.less(some, wide(b.extent(self.candidates), self.lanes))
        hits = self._wanted(wide(key(some, mask), self.lanes))
        lane = ir.Variable("lane")
        count = b.minimum(b.subtract(b.extent(self.candidates), first), self.lanes)
        each = ir.For(lane, count, "serial", consider(b.add(first, lane)))
        return ir.If(ir.Horizontal("or", hits if mask is None else b.both(hits, mask)), each)

    # ---- By digits

    def collected(self, key: Keys) -> ir.Statement:
        """Return what takes candidates as long as there is room for those of another step, and sorts them then."""
        if self.size == self.candidates:
            fill = loop(self.size, lambda candidate: self._put(candidate, key(candidate), candidate), name="k")
            return ir.Allocate(self.numbers, block(fill, self._sorted(b.extent(self.size))))
        assert isinstance(self.size, int) and isinstance(self.candidates, int) and isinstance(self.ranks, int), self
        ranks, room, candidates = self.ranks, self.size, self.candidates
        step = room // 3
        steps = -(-candidates // step)

        def append(value: ir.Expression, candidate: ir.Expression) -> ir.Statement:
            return block(self._put(self.taken, value, candidate), self._take(b.add(self.taken, 1)))

        def look(number: ir.Expression) -> ir.Statement:
            first = b.multiply(number, step)
            end = b.minimum(b.add(first, step), b.index(candidates))
            limit = ir.Store(
                self.limit, ZERO, b.subtract(b.maximum(self._last, 1), 1)
            )  # the same key would come behind
            forget = block(self._sorted(self.taken), self._take(b.index(ranks)), limit)
            are_many = b.either(b.greater(self.taken, room - step), b.equal(number, steps - 1))
            return block(self._look(first, end, key, append), ir.If(are_many, forget))

        start = ir.Store(self.limit, ZERO, b.highest(self.keys.dtype))
        looks = block(start, self._take(b.index(0)), loop(steps, look, name="step"))
        return allocate([self.numbers, self.limit], looks)

    def _sorted(self, count: ir.Expression) -> ir.Statement:
        """Sort the first ``count`` candidates by one digit after the other, the least first, none out of order."""
        digits, values = b.dims(self.numbers)
        lanes = min(self.lanes, values)
        counted, moved = ir.Variable("place"), ir.Variable("place")

        def clear(number: ir.Expression, part: ir.Expression) -> ir.Statement:
            first = b.multiply(part, lanes)
            return ir.Store(self.numbers, (number, ramp(first, lanes)), wide(b.index(0), lanes))

        def add_up(number: ir.Expression, value: ir.Expression, total: ir.Buffer) -> ir.Statement:
            had, at = ir.Load(self.numbers, (number, value)), (number, value)
            begin = ir.Store(self.numbers, at, ir.Load(total, ZERO))
            return let(had, lambda had: block(begin, ir.Store(total, ZERO, b.add(ir.Load(total, ZERO), had))), "had")

        def begins(number: ir.Expression) -> ir.Statement:
            total = ir.Buffer("total", "int64", (b.index(1),), memory="register")
            each = loop(values, lambda value: add_up(number, value, total), name="value")
            return ir.Allocate(total, block(ir.Store(total, ZERO, b.index(0)), each))

        return block(
            loop(digits, lambda number: loop(values // lanes, lambda part: clear(number, part), name="part")),
            ir.For(counted, count, "serial", self._counted(counted)),
            loop(digits, begins, name="digit"),
            loop(digits, lambda number: ir.For(moved, count, "serial", self._moved(number, moved)), name="digit"),
        )

    def _number(self, number: ir.Expression, key: ir.Expression) -> tuple[ir.Expression, ir.Expression]:
        """The place of a digit of a key in the table."""
        bits = b.dims(self.numbers)[1].bit_length() - 1
        shifted = b.binary("shr", key, b.cast(b.multiply(number, bits), key.type.dtype))
        return number, b.cast(b.binary("and", shifted, (1 << bits) - 1), "int64")

    def _counted(self, place: ir.Expression) -> ir.Statement:
        """Count the digits of a candidate."""

        def add(key: ir.Expression) -> ir.Statement:
            at = [self._number(b.index(number), key) for number in range(b.dims(self.numbers)[0])]
            return ir.Block(tuple(ir.Store(self.numbers, one, b.add(ir.Load(self.numbers, one), 1)) for one in at))

        return let(ir.Load(self.keys, (b.index(0), place)), add, "key")

    def _moved(self, number: ir.Expression, place: ir.Expression) -> ir.Statement:
        """Move a candidate to where the next one with its digit goes."""
        half = b.modulo(number, 2)

        def move(key: ir.Expression) -> ir.Statement:
            at, origin = self._number(number, key), ir.Load(self.places, (half, place))

            def put(to: ir.Expression) -> ir.Statement:
                there = self._put(to, key, origin, b.subtract(1, half))
                return block(there, ir.Store(self.numbers, at, b.add(to, 1)))

            return let(ir.Load(self.numbers, at), put, "to")

        return let(ir.Load(self.keys, (half, place)), move, "key")

    # ---- By comparison

    def inserted(self, key: Keys) -> ir.Statement:
        """Return what inserts all candidates among the best before them, which stay sorted."""

        def insert(value: ir.Expression, candidate: ir.Expression) -> ir.Statement:
            hole = ir.Buffer("hole", "int64", (b.index(1),), memory="register")
            left = b.subtract(ir.Load(hole, ZERO), 1)
            there = (b.index(0), b.maximum(left, 0))
            fits = b.both(b.greater_equal(left, 0), self._before(value, ir.Load(self.keys, there)))
            move = block(
                self._put(ir.Load(hole, ZERO), ir.Load(self.keys, there), ir.Load(self.places, there)),
                ir.Store(hole, ZERO, left),
            )

            def among(end: ir.Expression) -> ir.Statement:
                moves = ir.For(ir.Variable("move"), end, "serial", ir.If(fits, move))
                put = self._put(ir.Load(hole, ZERO), value, candidate)
                return block(ir.Store(hole, ZERO, end), moves, put, self._take(b.add(end, 1)))

            return ir.Allocate(hole, let(b.minimum(self.taken, b.subtract(b.extent(self.ranks), 1)), among, "end"))

        return block(self._take(b.index(0)), self._look(b.index(0), self.candidates, key, insert))
