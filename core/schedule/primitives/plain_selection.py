"""A selection as plain loops: what is better than the last of the best so far is collected, and sorted now and then.

The best and what has come since lie one behind another. Where these might become too many they are sorted, equal keys
in the order of their positions, and all but the best are forgotten; most candidates are only compared: `skip` leaves
out those of a vector of which none is good enough.
Keys are sorted by their digits, as unsigned integers in the same order, so that a row takes time in proportion to its
candidates. In a short row it is less work to count, a vector of candidates at a time, what comes before each. A few
ranks are not worth tables of digits, and custom datatypes have no such integers: there each key is inserted where it
belongs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block, let
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, loops_over
from graft.core.tensor_ir.visit import substitute
from graft.core.types import SIGNED, element_bits, is_custom

ZERO = (b.index(0),)
FEW = 16
"""Ranks up to which a key is inserted among the best: to clear and add up the tables of a sort costs more."""
DIGIT = 8
"""The bits of a digit; there are at least two of them, so that sorting ends where it began."""
CLEAR = "sort.clear"
"""The loop that clears the table of a digit."""
COUNT, OTHER = "rank.own", "rank.other"
"""The loops over candidates and over those that may come before them, where these are counted."""
MOST_VECTORS, MOST_COUNTED = 8, 64
"""Vectors of candidates, and candidates, up to which those before each are counted; fewer of keys of few digits."""
Take = Callable[[ir.Expression, ir.Expression], ir.Statement]
"""What is done with a key and its candidate."""


def selection_nest(stage: ir.Stage, selection: ir.Selection, lanes: int = 1) -> ir.Statement:
    """Return the loops of a selection: over rows, and over candidates, which have the names of their axes.

    ``lanes`` keys are compared at a time.
    """
    dimension, shape = stage.axes.index(selection.rank), b.counts(stage.buffer)
    at = [ir.Variable(axis.name) for axis in stage.axes]
    axes = [one for place, one in enumerate(zip(at, stage.buffer.shape, strict=True)) if place != dimension]
    candidate, dtype = ir.Variable(selection.candidate.variable.name), stage.value.type.dtype
    value = substitute(stage.value, {**dict(zip(stage.axes, at, strict=True)), selection.candidate.variable: candidate})
    candidates, ranks = b.counted(selection.candidate.extent), shape[dimension]
    inserts, counts = is_inserted(stage, selection), is_counted(stage, selection, lanes)
    if is_custom(dtype):
        best = _Best(dtype, ranks, candidates, ranks, value, candidate, selection.largest)
    else:
        size = ranks if inserts else _padded(candidates) if counts else _room(ranks, candidates)
        key = _ordered(value, selection.largest)
        best = _Best(f"uint{element_bits(b.wide(dtype))}", ranks, candidates, size, key, candidate)
    result = ir.Store(stage.buffer, tuple(at), ir.Load(best.places, (b.index(0), at[dimension])))
    collected = best.inserted() if inserts else best.counted() if counts else best.collected()
    behind = _loop(at[dimension], ranks, result)
    return loops_over(axes, allocate([best.count, best.places, best.keys], block(collected, behind)))


def is_inserted(stage: ir.Stage, selection: ir.Selection) -> bool:
    """Whether each candidate is inserted where it belongs; else candidates are sorted by digits now and then."""
    ranks = b.counts(stage.buffer)[stage.axes.index(selection.rank)]
    return is_custom(stage.value.type.dtype) or (isinstance(ranks, int) and ranks <= FEW)


def is_counted(stage: ir.Stage, selection: ir.Selection, lanes: int) -> bool:
    """Whether what comes before each candidate is counted, so many lanes at a time."""
    candidates = b.counted(selection.candidate.extent)
    if not isinstance(candidates, int) or is_inserted(stage, selection):
        return False
    bits = element_bits(b.wide(stage.value.type.dtype))
    return candidates <= min(MOST_VECTORS * lanes, 2 * bits, MOST_COUNTED)


def _padded(candidates: b.Count) -> int:
    assert isinstance(candidates, int), candidates
    return -(-candidates // FEW) * FEW


def is_compared(stage: ir.Stage, selection: ir.Selection) -> bool:
    """Whether candidates are compared with the best so far; else all are sorted."""
    ranks, candidates = b.counts(stage.buffer)[stage.axes.index(selection.rank)], b.counted(selection.candidate.extent)
    return is_inserted(stage, selection) or _room(ranks, candidates) != candidates


def _room(ranks: b.Count, candidates: b.Count) -> b.Count:
    """How many candidates are kept: as many as two steps bring beside the best, or all where what is wanted varies."""
    room = 3 * -(-ranks // FEW) * FEW if isinstance(ranks, int) else candidates
    return min(candidates, room) if isinstance(candidates, int) and isinstance(room, int) else room


def _loop(variable: ir.Variable, extent: b.Count, body: ir.Statement) -> ir.Statement:
    return loops_over([(variable, b.extent(extent))], body)


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
    size: b.Count
    key: ir.Expression
    """The key of a candidate, which is a variable."""
    candidate: ir.Variable
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
        if isinstance(self.size, int) and isinstance(self.ranks, int) and self.size > self.ranks:  # sorted now and then
            return b.less_equal(key, ir.Load(self.limit, ZERO))
        return b.either(b.less(self.taken, self.ranks), self._before(key, self._last))

    def _look(self, first: ir.Expression, count: b.Count, take: Take) -> ir.Statement:
        """Take of so many candidates from ``first`` on what may be among the best."""
        place = b.add(first, self.candidate)
        key = substitute(self.key, {self.candidate: place})
        return _loop(self.candidate, count, let(key, lambda own: ir.If(self._wanted(own), take(own, place)), "key"))

    # ---- By digits

    def collected(self) -> ir.Statement:
        """Return what takes candidates as long as there is room for those of another step, and sorts them then."""
        if self.size == self.candidates:
            fill = _loop(self.candidate, self.size, self._put(self.candidate, self.key, self.candidate))
            return ir.Allocate(self.numbers, block(fill, self._sorted(b.extent(self.size))))
        assert isinstance(self.size, int) and isinstance(self.ranks, int), self
        ranks, room, candidates = self.ranks, self.size, b.extent(self.candidates)
        size = room // 3
        steps, step = b.divide(b.add(candidates, size - 1), size), ir.Variable("select.step")

        def append(value: ir.Expression, candidate: ir.Expression) -> ir.Statement:
            return block(self._put(self.taken, value, candidate), self._take(b.add(self.taken, 1)))

        first = b.multiply(step, size)
        # The same key would come behind.
        limit = ir.Store(self.limit, ZERO, b.subtract(b.maximum(self._last, 1), 1))
        forget = block(self._sorted(self.taken), self._take(b.index(ranks)), limit)
        are_many = b.either(b.greater(self.taken, room - size), b.equal(step, b.subtract(steps, 1)))
        is_whole = isinstance(self.candidates, int) and self.candidates % size == 0
        count: b.Count = size if is_whole else b.minimum(b.subtract(candidates, first), size)
        looks = block(self._look(first, count, append), ir.If(are_many, forget))
        start = ir.Store(self.limit, ZERO, b.highest(self.keys.dtype))
        whole = block(start, self._take(b.index(0)), loops_over([(step, steps)], looks))
        return allocate([self.numbers, self.limit], whole)

    def _sorted(self, count: ir.Expression) -> ir.Statement:
        """Sort the first ``count`` candidates by one digit after the other, the least first, none out of order."""
        digits, values = b.dims(self.numbers)
        digit, value, place = (ir.Variable(f"sort.{name}") for name in ("digit", "value", "place"))
        at, clear = (digit, value), ir.Variable(CLEAR)
        total = ir.Buffer("total", "int64", (b.index(1),), memory="register")

        def begin(had: ir.Expression) -> ir.Statement:
            own = ir.Store(self.numbers, at, ir.Load(total, ZERO))
            return block(own, ir.Store(total, ZERO, b.add(ir.Load(total, ZERO), had)))

        begins = _loop(value, values, let(ir.Load(self.numbers, at), begin, "had"))
        return block(
            _loop(digit, digits, _loop(clear, values, ir.Store(self.numbers, (digit, clear), b.index(0)))),
            loops_over([(place, count)], self._counted(place)),
            _loop(digit, digits, ir.Allocate(total, block(ir.Store(total, ZERO, b.index(0)), begins))),
            _loop(digit, digits, loops_over([(place, count)], self._moved(digit, place))),
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

    # ---- By counting

    def counted(self) -> ir.Statement:
        """Return what puts each candidate where as many are before it as come before it."""
        size, dtype, zero = self.size, self.keys.dtype, b.index(0)
        assert isinstance(size, int) and isinstance(self.candidates, int), self
        own, other, pad, place = (ir.Variable(name) for name in (COUNT, OTHER, "rank.pad", CLEAR))
        before = _memory("before", dtype, size)
        fill = _loop(self.candidate, self.candidates, ir.Store(self.keys, (zero, self.candidate), self.key))
        behind = b.add(pad, self.candidates)
        padded = _loop(pad, size - self.candidates, ir.Store(self.keys, (zero, behind), b.constant(0, dtype)))
        mine, theirs = (ir.Load(self.keys, (zero, place)) for place in (own, other))
        is_earlier = b.less(b.cast(other, dtype), b.cast(own, dtype))
        comes = b.either(b.less(theirs, mine), b.both(b.equal(theirs, mine), is_earlier))
        more = b.add(ir.Load(before, (own,)), b.cast(comes, dtype))
        count = loops_over([(own, b.extent(size)), (other, b.extent(self.candidates))], ir.Store(before, (own,), more))
        clear = _loop(place, size, ir.Store(before, (place,), b.constant(0, dtype)))

        def put(rank: ir.Expression) -> ir.Statement:
            return ir.If(b.less(rank, self.ranks), ir.Store(self.places, (zero, rank), self.candidate))

        rank = b.cast(ir.Load(before, (self.candidate,)), "int64")
        puts = _loop(self.candidate, self.candidates, let(rank, put, "rank"))
        return ir.Allocate(before, block(fill, padded, clear, count, puts))

    # ---- By comparison

    def inserted(self) -> ir.Statement:
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
                moves = loops_over([(ir.Variable("select.move"), end)], ir.If(fits, move))
                put = self._put(ir.Load(hole, ZERO), value, candidate)
                return block(ir.Store(hole, ZERO, end), moves, put, self._take(b.add(end, 1)))

            return ir.Allocate(hole, let(b.minimum(self.taken, b.subtract(b.extent(self.ranks), 1)), among, "end"))

        return block(self._take(b.index(0)), self._look(b.index(0), self.candidates, insert))
