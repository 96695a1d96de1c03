"""Attention in one kernel that never stores the scores: blocks of queries, keys and values a tile at a time.

The scores of a tile stay in shared memory; each row keeps its largest score and the sum of its weights so far, and what
was summed before is scaled when a larger score is found (FlashAttention, Dao et al. 2022). A warp has rows of its own,
so that only keys and values need barriers of the block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2

from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.operators.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.parameters import AttentionTileParameters, Parameters, of_family
from graft.core.schedule.strategies.attention_parts import (
    AttentionStages,
    FactoredProduct,
    attention_stages,
    factored,
    is_weighted,
)
from graft.core.schedule.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir.ir import (
    Allocate,
    Barrier,
    Block,
    Broadcast,
    Buffer,
    Constant,
    Expression,
    For,
    If,
    Let,
    Load,
    Shuffle,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.visit import substitute
from graft.core.types import FLOAT32, element_bits
from graft.plugins.cuda.machines import WARP
from graft.plugins.cuda.strategies.fills import Fill
from graft.plugins.cuda.strategies.frames import ACCESS, bound, launched, places
from graft.plugins.cuda.strategies.plain import finished
from graft.plugins.cuda.strategies.product_parts import Axes, Factor
from graft.plugins.cuda.strategies.product_tiles import over
from graft.plugins.cuda.strategies.sums import Sums, sums_of

LOWEST = Constant(float("-inf"), FLOAT32)
ZERO = Constant(0.0, FLOAT32)
WIDEST = 256
"""Features of a head at the most: their sums are in registers."""
ACROSS = 16
"""Threads that have the columns of a row together, where there is no instruction."""
TILES = tuple(AttentionTileParameters(queries, keys) for queries in (64, 32, 128) for keys in (64, 32, 128))
USUAL = TILES[0]
NARROW = {"float16": "mma_float16", "bfloat16": "mma_bfloat16"}
WISHED = {"bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True, slots=True)
class _Tiles:
    """A block has ``queries`` rows, and ``keys`` columns of scores at one time."""

    queries: int
    keys: int
    threads: int
    own_rows: int
    dtype: str
    instruction: str


def build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    """Return attention in tiles, or why the kernel is none."""
    stages = attention_stages(anchor.kernel)
    if stages is None:
        return OTHER_FORM
    scores, values = factored(stages.scores), factored(stages.values)
    if scores is None or values is None or not is_weighted(values.left, values.term, stages):
        return OTHER_FORM
    depth, width = b.counted(scores.terms), b.counted(values.extents[-1])
    if not isinstance(depth, int) or not isinstance(width, int) or max(depth, width) > WIDEST or 0 in (depth, width):
        return Reject("shape", f"heads of {depth} and {width} features are not held in registers")
    if scores.extents[:-2] != values.extents[:-2] or scores.left.type.dtype != "float32":
        return Reject("shape", "scores and values are of other heads, or not float32")
    memory = target.machine.memory("shared")
    kernel = None
    for tile in _nearest(of_family(anchor.parameters, AttentionTileParameters)):
        kernel = _Attention(anchor, stages, scores, values, target, tile)
        if memory is not None and kernel.shared_bytes() <= memory.bytes:
            return kernel.scheduled()
    assert kernel is not None, "there are tiles"
    return Reject("size", f"its smallest tiles take {kernel.shared_bytes()} bytes of shared memory")


def _nearest(wanted: AttentionTileParameters | None) -> list[AttentionTileParameters]:
    """Return all tiles, those first that are nearest to what is wanted, in powers of two; then the smaller ones."""
    own = wanted or USUAL

    def far(one: AttentionTileParameters) -> tuple[float, int]:
        return abs(log2(one.queries / own.queries)) + abs(log2(one.keys / own.keys)), one.queries * one.keys

    return sorted(TILES, key=far)


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return the tiles that fit a block, in the first stage of tuning."""
    found: list[Parameters] = []
    for one in TILES if stage == 0 else ():
        built = build(replace(anchor, parameters=one), target)
        own = {"queries": one.queries, "keys": one.keys}
        if isinstance(built, Scheduled) and own.items() <= built.knobs.items():
            found.append(one)
    return found


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    return target.precision in WISHED and not isinstance(build(anchor, target), Reject)


class _Attention:
    """The kernel of one attention."""

    def __init__(
        self,
        anchor: Anchor,
        stages: AttentionStages,
        scores: FactoredProduct,
        values: FactoredProduct,
        target: Target,
        tile: AttentionTileParameters,
    ) -> None:
        self.anchor, self.stages, self.scores, self.values = anchor, stages, scores, values
        self.thread = Variable("thread")
        self.queries, self.keys = b.counted(scores.extents[-2]), b.counted(scores.extents[-1])
        self.outer = [b.counted(extent) for extent in scores.extents[:-2]]
        terms = Axes((scores.term,), (b.counted(scores.terms),))
        by_key = Axes((values.term,), (self.keys,))
        self.query = Factor(scores.left, Axes(scores.axes[-2:-1], (self.queries,)), terms)
        self.key = Factor(scores.right, Axes(scores.axes[-1:], (self.keys,)), terms)
        width = b.counted(values.extents[-1])
        self.value = Factor(values.right, Axes(values.axes[-1:], (width,)), by_key)
        self.tiles = self._tiles(target, tile)
        across = 16 if self.tiles.instruction else 64
        self.depth, self.width = self._raised(terms.known(0), 16), self._raised(self.value.own.known(0), across)
        self._make()

    def _tiles(self, target: Target, tile: AttentionTileParameters) -> _Tiles:
        exact = {factor.exact.type.dtype for factor in (self.query, self.key, self.value)}
        dtype = exact.pop() if len(exact) == 1 else "float32"
        dtype = WISHED.get(target.precision, dtype) if dtype == "float32" else dtype
        instruction = NARROW.get(dtype, "")
        if instruction and target.machine.has(instruction):
            return _Tiles(tile.queries, tile.keys, tile.queries // 16 * WARP, 16, dtype, instruction)
        keys = max(tile.keys, ACROSS * ACCESS // 4)
        return _Tiles(tile.queries, keys, tile.queries // 4 * ACROSS, 4, "float32", "")

    def _raised(self, count: int, by: int) -> int:
        return -(-count // by) * by

    def _make(self) -> None:
        """Make the memory of a block and the registers of its threads."""
        tiles, by_tensors = self.tiles, bool(self.tiles.instruction)

        def fill(name: str, factor: Factor, lines: int, terms: int) -> Fill:
            whole = factor.terms.count == terms
            return Fill(name, factor, tiles.dtype, lines, terms, tiles.threads, self.thread, by_tensors, is_whole=whole)

        def sums(name: str, columns: int) -> Sums:
            own = columns if by_tensors else columns // ACROSS
            return sums_of(tiles.instruction, name, "float32", columns, tiles.own_rows, own, self.thread)

        self.fills = (
            fill("queries", self.query, tiles.queries, self.depth),
            fill("keys", self.key, tiles.keys, self.depth),
            fill("values", self.value, self.width, tiles.keys),
        )
        self.shared = tuple(one.buffer() for one in self.fills)
        self.score_sums, self.value_sums = sums("score_sums", tiles.keys), sums("value_sums", self.width)
        pad = ACCESS // 4
        by_key = (tiles.keys, tiles.queries + pad), (tiles.queries, tiles.keys + pad)
        self.score = self._buffer("score", "float32", by_key[by_tensors])
        half = ACCESS * 8 // element_bits(tiles.dtype)
        self.weight = (
            self._buffer("weight", tiles.dtype, (tiles.queries, tiles.keys + half)) if by_tensors else self.score
        )
        self.parts = self._buffer("parts", "float32", (tiles.threads,))
        self.scale = self._buffer("scale", "float32", (tiles.queries,))

    def _buffer(self, name: str, dtype: str, shape: tuple[int, ...]) -> Buffer:
        extents = (1, *shape) if len(shape) > 1 else shape
        return Buffer(name, dtype, tuple(map(b.index, extents)), memory="shared", alignment=ACCESS)

    @property
    def _memory(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((*self.shared, self.score, self.weight, self.parts, self.scale)))

    def shared_bytes(self) -> int:
        """The bytes of shared memory."""
        total = 0
        for buffer in self._memory:
            size = element_bits(buffer.dtype) // 8
            for extent in b.dims(buffer):
                size *= extent
            total += -(-size // ACCESS) * ACCESS
        return total

    def scheduled(self) -> Scheduled:
        """Return the kernel."""
        block, first = Variable("block"), Variable("first")
        outer = [Variable(f"outer{number}") for number in range(len(self.outer))]
        blocks = over(self.queries, self.tiles.queries)
        body = self._body(outer, b.multiply(first, self.tiles.queries))
        body = bound((*outer, first), places(block, (*self.outer, blocks)), body)
        whole = launched(block, b.product_of((*self.outer, blocks)), self.thread, self.tiles.threads, body)
        tiles = self.tiles
        knobs: dict[str, int | str] = {"queries": tiles.queries, "keys": tiles.keys}
        knobs |= {"instruction": tiles.instruction} if tiles.instruction else {}
        return finished(self.anchor.kernel, whole, **knobs)

    def _body(self, outer: list[Variable], begin: Expression) -> Statement:
        zero, step = b.index(0), Variable("step")
        top = Buffer("top", "float32", (b.index(1),), memory="register")
        total = Buffer("total", "float32", (b.index(1),), memory="register")
        of_scores = dict(zip(self.scores.axes[:-2], outer, strict=True))
        of_values = dict(zip(self.values.axes[:-2], outer, strict=True))
        queries, keys, values = self.fills
        first = b.multiply(step, self.tiles.keys)
        turned = [one.is_turned for one in self.fills]
        loop = Block((
            keys.statement(self.shared[1], zero, first, zero, of_scores),
            values.statement(self.shared[2], zero, zero, first, of_values),
            Barrier("block"),
            self.score_sums.zeros(),
            self.score_sums.added(self.shared[0], self.shared[1], zero, self.depth, turned[:2]),
            self.score_sums.each(lambda *sums: self._scored(outer, begin, first, *sums)),
            Barrier("warp"),
            self._weights(top, total),
            Barrier("warp"),
            self.value_sums.each(self._scaled),
            self.value_sums.added(self.weight, self.shared[2], zero, self.tiles.keys, (False, turned[2])),
            Barrier("block"),
        ))  # fmt: skip
        body: Statement = Block((
            Store(top, (zero,), LOWEST),
            Store(total, (zero,), ZERO),
            self.value_sums.zeros(),
            queries.statement(self.shared[0], zero, begin, zero, of_scores),
            For(step, b.extent(over(self.keys, self.tiles.keys)), "serial", loop),
            self._kept(total),
            Barrier("warp"),
            self.value_sums.each(lambda *sums: self._stored(outer, begin, *sums)),
        ))  # fmt: skip
        for buffer in (*self._memory, top, total, self.score_sums.buffer, self.value_sums.buffer):
            body = Allocate(buffer, body)
        return body

    # ---- Scores ----

    def _at(self, row: Expression, column: Expression) -> tuple[Expression, ...]:
        """Where a score, or the weight that becomes of it for threads, lies."""
        return (b.index(0), row, column) if self.tiles.instruction else (b.index(0), column, row)

    def _scored(
        self, outer: list[Variable], begin: Expression, first: Expression, row: Expression, column: Expression,
        total: Expression, lanes: int,
    ) -> Statement:  # fmt: skip
        """Store scores, those of keys that do not exist as minus infinity."""
        stores: list[Statement] = []
        epilogue = self.scores.epilogue
        query = b.add(begin, row)
        if not isinstance(self.queries, int) or self.queries % self.tiles.queries:
            query = b.minimum(query, b.subtract(b.extent(self.queries), 1))
        whole = isinstance(self.keys, int) and self.keys % self.tiles.keys == 0
        for lane in range(lanes):
            place = b.add(column, lane)
            key = b.add(first, place)
            known = key if whole else b.minimum(key, b.subtract(b.extent(self.keys), 1))
            point = (*outer, query, known)
            one: Expression = Shuffle((total,), (lane,))
            initial = substitute(epilogue.initial, dict(zip(epilogue.anchor.axes, point, strict=True)))
            value = epilogue.values(point, b.add(one, initial), None)[epilogue.last]
            if not whole:
                value = b.select(b.less(key, b.extent(self.keys)), value, LOWEST)
            stores.append(Store(self.score, self._at(row, place), value))
        return Block(tuple(stores))

    def _weights(self, top: Buffer, total: Buffer) -> Statement:
        """Return what makes weights of scores: each row by neighbouring threads, which share its keys."""
        zero, many = b.index(0), self.tiles.threads // self.tiles.queries
        row, part = b.divide(self.thread, many), b.modulo(self.thread, many)
        count = self.tiles.keys // many
        key, other = Variable("key"), Variable("key")
        best = Buffer("best", "float32", (b.index(1),), memory="register")
        added = Buffer("added", "float32", (b.index(1),), memory="register")

        def place(number: Variable) -> Expression:
            return b.add(b.multiply(number, many), part)

        def of_row(number: int) -> Expression:
            return Load(self.parts, (b.add(b.multiply(row, many), number),))

        seen = b.maximum(Load(best, (zero,)), Load(self.score, self._at(row, place(key))))
        largest: Expression = Load(top, (zero,))
        for number in range(many):
            largest = b.maximum(largest, of_row(number))
        new, safe, scale = Variable("new", FLOAT32), Variable("safe", FLOAT32), Variable("scale_here", FLOAT32)
        weight = Variable("weight_here", FLOAT32)
        score = Load(self.score, self._at(row, place(other)))
        kept = Block((
            Store(self.weight, self._at(row, place(other)), b.cast(weight, self.weight.dtype)),
            Store(added, (zero,), b.add(Load(added, (zero,)), weight)),
        ))  # fmt: skip
        exponentials = For(other, b.index(count), "serial",
                           Let(weight, b.intrinsic("exp", b.subtract(score, safe)), kept))  # fmt: skip
        sums = Load(total, (zero,)), scale
        whole: Expression = b.multiply(*sums)
        for number in range(many):
            whole = b.add(whole, of_row(number))
        behind = Block((
            Store(top, (zero,), new),
            Barrier("warp"),
            exponentials,
            Store(self.parts, (self.thread,), Load(added, (zero,))),
            If(b.equal(part, 0), Store(self.scale, (row,), scale)),
            Barrier("warp"),
            Store(total, (zero,), whole),
            *((self._cleared(total),) if self.stages.nan_is_zero else ()),
        ))  # fmt: skip
        body: Statement = Let(new, largest, Let(
            safe, b.select(b.equal(new, LOWEST), ZERO, new),
            Let(scale, b.intrinsic("exp", b.subtract(Load(top, (zero,)), safe)), behind),
        ))  # fmt: skip
        body = Block((
            Store(best, (zero,), LOWEST),
            Store(added, (zero,), ZERO),
            For(key, b.index(count), "serial", Store(best, (zero,), seen)),
            Store(self.parts, (self.thread,), Load(best, (zero,))),
            Barrier("warp"),
            body,
        ))  # fmt: skip
        return Allocate(best, Allocate(added, body))

    def _cleared(self, total: Buffer) -> Statement:
        """Return what makes weights of 0 in a row whose sum is NaN, and its results so far of no weight."""
        many = self.tiles.threads // self.tiles.queries
        row, part, number = b.divide(self.thread, many), b.modulo(self.thread, many), Variable("key")
        place = self._at(row, b.add(b.multiply(number, many), part))
        nothing = Store(self.weight, place, b.cast(ZERO, self.weight.dtype))
        clear = For(number, b.index(self.tiles.keys // many), "serial", nothing)
        scale = If(b.equal(part, 0), Store(self.scale, (row,), ZERO))
        return If(b.is_nan(Load(total, (b.index(0),))), Block((clear, scale)))

    # ---- Results ----

    def _scaled(self, row: Expression, column: Expression, total: Expression, lanes: int) -> Statement:
        """Scale what was summed before."""
        assert isinstance(total, Load), "sums are in registers"
        factor = vectorized(Load(self.scale, (row,)), lanes)
        return Store(total.buffer, total.indices, b.multiply(total, factor))

    def _kept(self, total: Buffer) -> Statement:
        """Put the sums of rows where the threads that have the results find them."""
        many = self.tiles.threads // self.tiles.queries
        row, part = b.divide(self.thread, many), b.modulo(self.thread, many)
        sums: Expression = Load(total, (b.index(0),))
        if self.stages.nan_is_zero:
            sums = b.select(b.either(b.is_nan(sums), b.equal(sums, ZERO)), Constant(1.0, FLOAT32), sums)
        return If(b.equal(part, 0), Store(self.scale, (row,), sums))

    def _stored(
        self,
        outer: list[Variable],
        begin: Expression,
        row: Expression,
        column: Expression,
        total: Expression,
        lanes: int,
    ) -> Statement:
        weights, query = Variable("weights", FLOAT32), b.add(begin, row)
        width = self.value.own.known(0)
        stores: list[Statement] = []
        for lane in range(lanes):
            place = b.add(column, lane)
            one: Expression = b.divide(Shuffle((total,), (lane,)), weights)
            if self.stages.empty_is_zero:
                one = b.select(b.equal(weights, ZERO), ZERO, one)
            point = (*outer, query, place)
            initial = substitute(self.values.epilogue.initial, dict(zip(self.values.axes, point, strict=True)))
            value = self.values.epilogue.values(point, b.add(one, initial), None)[self.values.epilogue.last]
            target = tuple(point[axis] for axis in self.stages.order)
            store: Statement = Store(self.stages.output, target, b.cast(value, self.stages.output.dtype))
            stores.append(store if self.width == width else If(b.less(place, width), store))
        body: Statement = Let(weights, Load(self.scale, (row,)), Block(tuple(stores)))
        if isinstance(self.queries, int) and self.queries % self.tiles.queries == 0:
            return body
        return If(b.less(query, b.extent(self.queries)), body)


def vectorized(value: Expression, lanes: int) -> Expression:
    """Return a scalar in every lane."""
    return Broadcast(value, lanes) if lanes > 1 else value


ANCHORS = frozenset({Trait.ATTENTION})
STRATEGY = Strategy("cuda.attention", ANCHORS, build, candidates=_candidates, rounds=_rounds)
VARYING = replace(STRATEGY, name="cuda.attention_varying", varies=True)
