"""The kernel of attention: a block's queries stay, keys and values come a tile at a time, each row keeps its sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.parameters import AttentionTileParameters
from graft.core.schedule.strategies.attention.attention_parts import AttentionStages, FactoredProduct
from graft.core.schedule.strategies.strategy import Anchor
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import substitute
from graft.core.types import FLOAT32, element_bits
from graft.plugins.cuda.machines import WARP
from graft.plugins.cuda.strategies.fills import Fill, copied_bytes
from graft.plugins.cuda.strategies.frames import ACCESS, bound, launched, places
from graft.plugins.cuda.strategies.plain import finished
from graft.plugins.cuda.strategies.product_parts import Axes, Factor
from graft.plugins.cuda.strategies.product_tiles import over
from graft.plugins.cuda.strategies.sums import Sums, sums_of, unrolled

LOWEST = ir.Constant(float("-inf"), FLOAT32)
ZERO = ir.Constant(0.0, FLOAT32)
ACROSS = 16
"""Threads that have the columns of a row together, where there is no instruction."""
NARROW = {"float16": "mma_float16", "bfloat16": "mma_bfloat16"}
FACTOR_TYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""By the requested precision of float32 products, the type of factors."""
At = dict[ir.Variable, ir.Expression]
Statements = tuple[ir.Statement, ...]


@dataclass(frozen=True, slots=True)
class _AttentionTiling:
    """A block has ``queries`` rows, and ``keys`` columns of scores at one time, of which ``stages`` are in memory."""

    queries: int
    keys: int
    stages: int
    threads: int
    own_rows: int
    dtype: str
    instruction: str


class Attention:
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
        self.thread = ir.Variable("thread")
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

    def _tiles(self, target: Target, tile: AttentionTileParameters) -> _AttentionTiling:
        exact = {factor.exact.type.dtype for factor in (self.query, self.key, self.value)}
        dtype = exact.pop() if len(exact) == 1 else "float32"
        dtype = FACTOR_TYPES.get(target.precision, dtype) if dtype == "float32" else dtype
        stages = tile.stages or 1
        instruction = NARROW.get(dtype, "")
        if instruction and target.machine.has(instruction):
            return _AttentionTiling(tile.queries, tile.keys, stages, tile.queries // 16 * WARP, 16, dtype, instruction)
        keys = max(tile.keys, ACROSS * ACCESS // 4)
        return _AttentionTiling(tile.queries, keys, stages, tile.queries // 4 * ACROSS, 4, "float32", "")

    def _raised(self, count: int, by: int) -> int:
        return -(-count // by) * by

    def _make(self) -> None:
        """Make the memory of a block and the registers of its threads."""
        tiles, by_tensors = self.tiles, bool(self.tiles.instruction)

        def fill(name: str, factor: Factor, lines: int, terms: int, slots: int = 1) -> Fill:
            whole = factor.terms.count == terms
            return Fill(
                name, factor, tiles.dtype, lines, terms, tiles.threads, self.thread, by_tensors, slots, is_whole=whole
            )

        def sums(name: str, columns: int) -> Sums:
            own = columns if by_tensors else columns // ACROSS
            return sums_of(tiles.instruction, name, "float32", columns, tiles.own_rows, own, self.thread)

        self.fills = (
            fill("queries", self.query, tiles.queries, self.depth),
            fill("keys", self.key, tiles.keys, self.depth, tiles.stages),
            fill("values", self.value, self.width, tiles.keys, tiles.stages),
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

    def _buffer(self, name: str, dtype: str, shape: tuple[int, ...]) -> ir.Buffer:
        extents = (1, *shape) if len(shape) > 1 else shape
        return ir.Buffer(name, dtype, tuple(map(b.index, extents)), memory="shared", alignment=ACCESS)

    @property
    def _memory(self) -> tuple[ir.Buffer, ...]:
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

    @property
    def steps(self) -> Count:
        """How many tiles of keys there are."""
        return over(self.keys, self.tiles.keys)

    @property
    def is_possible(self) -> bool:
        """Whether there are so many stages: only what is copied past the registers can be under way."""
        copied = (copied_bytes(one.factor, one.dtype, by_tensors=one.by_tensors) for one in self.fills[1:])
        return self.tiles.stages == 1 or (self.fills[1].is_whole and all(copied))

    def scheduled(self) -> Scheduled:
        """Return the kernel."""
        block, first = ir.Variable("block"), ir.Variable("first")
        outer = [ir.Variable(f"outer{number}") for number in range(len(self.outer))]
        blocks = over(self.queries, self.tiles.queries)
        body = self._body(outer, b.multiply(first, self.tiles.queries))
        body = bound((*outer, first), places(block, (*self.outer, blocks)), body)
        whole = launched(block, b.product_of((*self.outer, blocks)), self.thread, self.tiles.threads, body)
        tiles = self.tiles
        knobs: dict[str, int | str] = {"queries": tiles.queries, "keys": tiles.keys}
        knobs |= {"stages": tiles.stages} if tiles.stages > 1 else {}
        knobs |= {"instruction": tiles.instruction} if tiles.instruction else {}
        return finished(self.anchor.kernel, whole, **knobs)

    def _body(self, outer: list[ir.Variable], begin: ir.Expression) -> ir.Statement:
        zero, step = b.index(0), ir.Variable("step")
        top = ir.Buffer("top", "float32", (b.index(1),), memory="register")
        total = ir.Buffer("total", "float32", (b.index(1),), memory="register")
        of_scores: At = dict(zip(self.scores.axes[:-2], outer, strict=True))
        of_values: At = dict(zip(self.values.axes[:-2], outer, strict=True))
        queries, steps = self.fills[0], self.steps
        first, slot = b.multiply(step, self.tiles.keys), b.modulo(step, self.tiles.stages)
        transposed = [one.is_transposed for one in self.fills]
        before, brought, behind = self._brought(step, steps, of_scores, of_values)
        loop = ir.Block((
            *brought,
            self.score_sums.zeros(),
            self.score_sums.added(self.shared[0], self.shared[1], (zero, slot), self.depth, transposed[:2]),
            self.score_sums.each(lambda *sums: self._scored(outer, begin, first, *sums)),
            ir.Barrier("warp"),
            self._weights(top, total),
            ir.Barrier("warp"),
            self.value_sums.each(self._scaled),
            self.value_sums.added(self.weight, self.shared[2], (zero, slot), self.tiles.keys, (False, transposed[2])),
            *behind,
        ))  # fmt: skip
        body: ir.Statement = ir.Block((
            ir.Store(top, (zero,), LOWEST),
            ir.Store(total, (zero,), ZERO),
            self.value_sums.zeros(),
            queries.statement(self.shared[0], zero, begin, zero, of_scores),
            *before,
            ir.For(step, b.extent(steps), "serial", loop),
            ir.Barrier("warp"),
            self._kept(total),
            ir.Barrier("warp"),
            self.value_sums.each(lambda *sums: self._stored(outer, begin, *sums)),
        ))  # fmt: skip
        for buffer in (*self._memory, top, total, self.score_sums.buffer, self.value_sums.buffer):
            body = ir.Allocate(buffer, body)
        return body

    # ---- Keys and values ----

    def _brought(self, step: ir.Variable, steps: Count, of_scores: At, of_values: At) -> tuple[Statements, ...]:
        """Return what is done before the loop, in a step before its keys and values are used, and after that."""
        tiles = self.tiles
        if tiles.stages == 1:
            fill = self._filled(step, b.index(0), of_scores, of_values, is_copied=False)
            return (), (fill, ir.Barrier("block")), (ir.Barrier("block"),)
        ahead, early = tiles.stages - 1, ir.Variable("early")
        commit = ir.CallExtern("commit_copies", ())

        def begun(number: ir.Expression) -> ir.Statement:
            """Tiles whose keys all exist are copied, the last one is stored with zeros behind it."""
            slot = b.modulo(number, tiles.stages)
            copied, stored = (self._filled(number, slot, of_scores, of_values, is_copied=one) for one in (True, False))
            if isinstance(self.keys, int) and self.keys % tiles.keys == 0:
                fill: ir.Statement = ir.If(b.less(number, b.extent(steps)), copied)
            else:
                is_whole = b.less(b.multiply(b.add(number, 1), tiles.keys), b.add(b.extent(self.keys), 1))
                fill = ir.If(is_whole, copied, ir.If(b.less(number, b.extent(steps)), stored))
            return ir.Block((fill, commit))

        wait = ir.CallExtern("wait_copies", (b.index(ahead - 1),))
        return (unrolled(early, ahead, begun(early)),), (wait, ir.Barrier("block"), begun(b.add(step, ahead))), ()

    def _filled(
        self, step: ir.Expression, slot: ir.Expression, of_scores: At, of_values: At, *, is_copied: bool
    ) -> ir.Statement:
        zero, first = b.index(0), b.multiply(step, self.tiles.keys)
        keys, values = (replace(one, is_copied=is_copied, is_whole=is_copied or one.is_whole) for one in self.fills[1:])
        return ir.Block((
            keys.statement(self.shared[1], slot, first, zero, of_scores),
            values.statement(self.shared[2], slot, zero, first, of_values),
        ))  # fmt: skip

    # ---- Scores ----

    def _at(self, row: ir.Expression, column: ir.Expression) -> tuple[ir.Expression, ...]:
        """Where a score, or the weight that becomes of it for threads, lies."""
        return (b.index(0), row, column) if self.tiles.instruction else (b.index(0), column, row)

    def _scored(
        self, outer: list[ir.Variable], begin: ir.Expression, first: ir.Expression, row: ir.Expression,
        column: ir.Expression, total: ir.Expression, lanes: int,
    ) -> ir.Statement:  # fmt: skip
        """Store scores, those of keys that do not exist as minus infinity."""
        stores: list[ir.Statement] = []
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
            one: ir.Expression = ir.Shuffle((total,), (lane,))
            initial = substitute(epilogue.initial, dict(zip(epilogue.anchor.axes, point, strict=True)))
            value = b.cast(epilogue.values(point, b.add(one, initial), None)[epilogue.last], "float32")
            if not whole:
                value = b.select(b.less(key, b.extent(self.keys)), value, LOWEST)
            stores.append(ir.Store(self.score, self._at(row, place), value))
        return ir.Block(tuple(stores))

    def _weights(self, top: ir.Buffer, total: ir.Buffer) -> ir.Statement:
        """Return what makes weights of scores: each row by neighbouring threads, which share its keys."""
        zero, many = b.index(0), self.tiles.threads // self.tiles.queries
        row, part = b.divide(self.thread, many), b.modulo(self.thread, many)
        count = self.tiles.keys // many
        key, other = ir.Variable("key"), ir.Variable("key")
        best = ir.Buffer("best", "float32", (b.index(1),), memory="register")
        added = ir.Buffer("added", "float32", (b.index(1),), memory="register")

        def place(number: ir.Variable) -> ir.Expression:
            return b.add(b.multiply(number, many), part)

        def of_row(number: int) -> ir.Expression:
            return ir.Load(self.parts, (b.add(b.multiply(row, many), number),))

        seen = b.maximum(ir.Load(best, (zero,)), ir.Load(self.score, self._at(row, place(key))))
        largest: ir.Expression = ir.Load(top, (zero,))
        for number in range(many):
            largest = b.maximum(largest, of_row(number))
        new, safe, scale = ir.Variable("new", FLOAT32), ir.Variable("safe", FLOAT32), ir.Variable("scale_here", FLOAT32)
        weight = ir.Variable("weight_here", FLOAT32)
        score = ir.Load(self.score, self._at(row, place(other)))
        kept = ir.Block((
            ir.Store(self.weight, self._at(row, place(other)), b.cast(weight, self.weight.dtype)),
            ir.Store(added, (zero,), b.add(ir.Load(added, (zero,)), weight)),
        ))  # fmt: skip
        exponentials = ir.For(other, b.index(count), "serial",
                           ir.Let(weight, b.intrinsic("exp", b.subtract(score, safe)), kept))  # fmt: skip
        sums = ir.Load(total, (zero,)), scale
        whole: ir.Expression = b.multiply(*sums)
        for number in range(many):
            whole = b.add(whole, of_row(number))
        behind = ir.Block((
            ir.Store(top, (zero,), new),
            ir.Barrier("warp"),
            exponentials,
            ir.Store(self.parts, (self.thread,), ir.Load(added, (zero,))),
            ir.If(b.equal(part, 0), ir.Store(self.scale, (row,), scale)),
            ir.Barrier("warp"),
            ir.Store(total, (zero,), whole),
            *((self._cleared(total),) if self.stages.nan_is_zero else ()),
        ))  # fmt: skip
        body: ir.Statement = ir.Let(new, largest, ir.Let(
            safe, b.select(b.equal(new, LOWEST), ZERO, new),
            ir.Let(scale, b.intrinsic("exp", b.subtract(ir.Load(top, (zero,)), safe)), behind),
        ))  # fmt: skip
        body = ir.Block((
            ir.Store(best, (zero,), LOWEST),
            ir.Store(added, (zero,), ZERO),
            ir.For(key, b.index(count), "serial", ir.Store(best, (zero,), seen)),
            ir.Store(self.parts, (self.thread,), ir.Load(best, (zero,))),
            ir.Barrier("warp"),
            body,
        ))  # fmt: skip
        return ir.Allocate(best, ir.Allocate(added, body))

    def _cleared(self, total: ir.Buffer) -> ir.Statement:
        """Return what makes weights of 0 in a row whose sum is NaN, and its results so far of no weight."""
        many = self.tiles.threads // self.tiles.queries
        row, part, number = b.divide(self.thread, many), b.modulo(self.thread, many), ir.Variable("key")
        place = self._at(row, b.add(b.multiply(number, many), part))
        nothing = ir.Store(self.weight, place, b.cast(ZERO, self.weight.dtype))
        clear = ir.For(number, b.index(self.tiles.keys // many), "serial", nothing)
        scale = ir.If(b.equal(part, 0), ir.Store(self.scale, (row,), ZERO))
        return ir.If(b.is_nan(ir.Load(total, (b.index(0),))), ir.Block((clear, scale)))

    # ---- Results ----

    def _scaled(self, row: ir.Expression, column: ir.Expression, total: ir.Expression, lanes: int) -> ir.Statement:
        """Scale what was summed before."""
        assert isinstance(total, ir.Load), "sums are in registers"
        factor = vectorized(ir.Load(self.scale, (row,)), lanes)
        return ir.Store(total.buffer, total.indices, b.multiply(total, factor))

    def _kept(self, total: ir.Buffer) -> ir.Statement:
        """Put the sums of rows where the threads that have the results find them."""
        many = self.tiles.threads // self.tiles.queries
        row, part = b.divide(self.thread, many), b.modulo(self.thread, many)
        sums: ir.Expression = ir.Load(total, (b.index(0),))
        if self.stages.nan_is_zero:
            sums = b.select(b.either(b.is_nan(sums), b.equal(sums, ZERO)), ir.Constant(1.0, FLOAT32), sums)
        return ir.If(b.equal(part, 0), ir.Store(self.scale, (row,), sums))

    def _stored(
        self,
        outer: list[ir.Variable],
        begin: ir.Expression,
        row: ir.Expression,
        column: ir.Expression,
        total: ir.Expression,
        lanes: int,
    ) -> ir.Statement:
        weights, query = ir.Variable("weights", FLOAT32), b.add(begin, row)
        width = self.value.own.known(0)
        stores: list[ir.Statement] = []
        for lane in range(lanes):
            place = b.add(column, lane)
            one: ir.Expression = b.divide(ir.Shuffle((total,), (lane,)), weights)
            if self.stages.empty_is_zero:
                one = b.select(b.equal(weights, ZERO), ZERO, one)
            point = (*outer, query, place)
            initial = substitute(self.values.epilogue.initial, dict(zip(self.values.axes, point, strict=True)))
            value = self.values.epilogue.values(point, b.add(one, initial), None)[self.values.epilogue.last]
            target = tuple(point[axis] for axis in self.stages.order)
            store: ir.Statement = ir.Store(self.stages.output, target, b.cast(value, self.stages.output.dtype))
            stores.append(store if self.width == width else ir.If(b.less(place, width), store))
        body: ir.Statement = ir.Let(weights, ir.Load(self.scale, (row,)), ir.Block(tuple(stores)))
        if isinstance(self.queries, int) and self.queries % self.tiles.queries == 0:
            return body
        return ir.If(b.less(query, b.extent(self.queries)), body)


def vectorized(value: ir.Expression, lanes: int) -> ir.Expression:
    """Return a scalar in every lane."""
    return ir.Broadcast(value, lanes) if lanes > 1 else value
