"""The kernel of attention: a block's queries stay, keys and values come a tile at a time, each row keeps its sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.parameters import AttentionTileParameters
from graft.core.schedule.primitives.statements import wide
from graft.core.schedule.strategies.attention.attention_parts import AttentionStages, FactoredProduct
from graft.core.schedule.strategies.strategy import Anchor
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, bind, loops_over
from graft.core.tensor_ir.visit import substitute
from graft.core.types import FLOAT32, element_bits
from graft.plugins.cuda.machines import WARP
from graft.plugins.cuda.strategies.fills import Fill, Tile, behind, copied_bytes, is_transposed
from graft.plugins.cuda.strategies.frames import ACCESS, each, launched, places, unrolled
from graft.plugins.cuda.strategies.plain import finished
from graft.plugins.cuda.strategies.product_parts import Axes, Factor
from graft.plugins.cuda.strategies.product_tiles import over
from graft.plugins.cuda.strategies.sums import Held, Place, Sums

LOWEST = ir.Constant(float("-inf"), FLOAT32)
ZERO = ir.Constant(0.0, FLOAT32)
LOG2_E = ir.Constant(1.4426950408889634, FLOAT32)
FEW = 256
"""Threads of a block for which ptxas is told to leave registers for a second one."""
ACROSS = 16
"""Threads that have the columns of a row together, where there is no instruction."""
NARROW = {"float16": "mma_float16", "bfloat16": "mma_bfloat16"}
FACTOR_TYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""By the requested precision of float32 products, the type of factors."""
At = dict[ir.Variable, ir.Expression]
Statements = tuple[ir.Statement, ...]
Row = tuple[ir.Expression, ir.Expression]
"""A thread, and a number of its rows."""


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
        self.unit = ir.Variable("unit")
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

        def fill(name: str, factor: Factor, lines: int, terms: int, *, is_copied: bool = False) -> Fill:
            count = factor.terms.count
            whole = isinstance(count, int) and count % terms == 0
            is_across = by_tensors and is_transposed(factor, tiles.dtype)
            return Fill(Tile(name, tiles.dtype, lines, terms, by_tensors, is_across), factor, is_copied, whole)

        def sums(name: str, columns: int) -> Sums:
            own = columns if by_tensors else columns // ACROSS
            return Sums(tiles.instruction, name, "float32", columns, tiles.own_rows, own, self.unit, tiles.threads)

        self.fills = (
            fill("queries", self.query, tiles.queries, self.depth),
            fill("keys", self.key, tiles.keys, self.depth, is_copied=tiles.stages > 1),
            fill("values", self.value, self.width, tiles.keys, is_copied=tiles.stages > 1),
        )
        self.score_sums, self.value_sums = sums("score_sums", tiles.keys), sums("value_sums", self.width)
        near = Tile("weight", "float32", tiles.queries, tiles.keys)
        self.weights = replace(self.score_sums.buffer, name="weight", dtype=tiles.dtype) if by_tensors else near
        self.weight = near.buffer if isinstance(self.weights, Tile) else self.weights
        rows = b.index(tiles.threads), b.index(self.score_sums.many)
        self.top, self.total, self.best, self.scale, self.added, self.other = (
            ir.Buffer(name, "float32", rows, memory="register")
            for name in ("top", "total", "best", "scale", "added", "other")
        )

    @property
    def _memory(self) -> tuple[ir.Buffer, ...]:
        """Everything that a block or a thread has; registers last."""
        rows = self.top, self.total, self.best, self.scale, self.added, self.other
        tiles = [one.tile.buffer for one in self.fills]
        return (*tiles, self.weight, *rows, self.score_sums.buffer, self.value_sums.buffer)

    def shared_bytes(self) -> int:
        """The bytes of shared memory."""
        total = 0
        for buffer in (one for one in self._memory if one.memory == "shared"):
            is_staged = buffer.name in ("keys", "values")
            size = element_bits(buffer.dtype) // 8 * (self.tiles.stages if is_staged else 1)
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
        copied = (copied_bytes(one.factor, one.tile.dtype, by_tensors=one.tile.by_tensors) for one in self.fills[1:])
        return self.tiles.stages == 1 or (self.fills[1].is_whole and all(copied))

    def scheduled(self) -> Scheduled:
        """Return the kernel."""
        tiles = self.tiles
        knobs: dict[str, int | str] = {"queries": tiles.queries, "keys": tiles.keys}
        knobs |= {"stages": tiles.stages} if tiles.stages > 1 else {}
        knobs |= {"instruction": tiles.instruction} if tiles.instruction else {}
        return Scheduled(self._function, knobs=knobs)

    def _function(self) -> ir.Function:
        block, first = ir.Variable("block"), ir.Variable("first")
        outer = [ir.Variable(f"outer{number}") for number in range(len(self.outer))]
        blocks = over(self.queries, self.tiles.queries)
        body = self._body(outer, b.multiply(first, self.tiles.queries))
        extents, threads = (*self.outer, blocks), self.tiles.threads
        body = bind(zip((*outer, first), places(block, extents), strict=True), body)
        steps = behind(self.fills, threads, self.tiles.stages, "keys values")
        whole = launched(block, b.product_of(extents), threads, body, steps)
        return finished(self.anchor.kernel, whole).function

    def _body(self, outer: list[ir.Variable], begin: ir.Expression) -> ir.Statement:
        zero, tiles = b.index(0), self.tiles
        of_scores: At = dict(zip(self.scores.axes[:-2], outer, strict=True))
        of_values: At = dict(zip(self.values.axes[:-2], outer, strict=True))
        step, (queries, keys, values) = ir.Variable("step"), self.fills
        first = b.multiply(step, tiles.keys)
        used = self._each(
            self.score_sums.zeros(),
            self.score_sums.added(queries.tile, keys.tile),
            *self._weights(lambda sums: self._scored(outer, begin, first, sums)),
            *(() if tiles.instruction else (ir.Barrier("warp", WARP),)),
            self.value_sums.each(self._scaled),
            self.value_sums.added(self.weights, values.tile),
        )
        loop = ir.Block((keys.statement(first, zero, of_scores), values.statement(zero, first, of_values), used))
        beside = (ir.CallExtern("leave_room", (b.index(2),)),) if tiles.threads == FEW else ()
        none = self._rows(lambda row: ir.Block((ir.Store(self.top, row, LOWEST), ir.Store(self.total, row, ZERO))))
        body = ir.Block((
            self._each(*beside, none, self.value_sums.zeros()),
            queries.statement(begin, zero, of_scores),
            loops_over([(step, b.extent(self.steps))], loop),
            self._each(self.value_sums.each(lambda sums: self._stored(outer, begin, sums))),
        ))  # fmt: skip
        return allocate(tuple(reversed(self._memory)), body)

    def _each(self, *statements: ir.Statement) -> ir.Statement:
        return each(self.unit, self.tiles.threads, *statements)

    def _rows(self, of: Callable[[Row], ir.Statement]) -> ir.Statement:
        """Return what is done for each row of which a thread has sums."""
        row = ir.Variable("own")
        return unrolled(row, self.score_sums.many, of((self.unit, row)))

    # ---- Scores ----

    def _scored(self, outer: list[ir.Variable], begin: ir.Expression, first: ir.Expression, sums: Held) -> ir.Statement:
        """Make scores of products, those of keys that do not exist minus infinity; keep the largest."""
        stores: list[ir.Statement] = []
        epilogue = self.scores.epilogue
        query, best = b.add(begin, sums.row), ir.Load(self.best, (self.unit, sums.own))
        if not isinstance(self.queries, int) or self.queries % self.tiles.queries:
            query = b.minimum(query, b.subtract(b.extent(self.queries), 1))
        whole = isinstance(self.keys, int) and self.keys % self.tiles.keys == 0
        for lane, one in enumerate(sums.lanes):
            key = b.add(first, b.add(sums.column, lane))
            known = key if whole else b.minimum(key, b.subtract(b.extent(self.keys), 1))
            point = (*outer, query, known)
            initial = substitute(epilogue.initial, dict(zip(epilogue.anchor.axes, point, strict=True)))
            value = b.cast(epilogue.values(point, b.add(one, initial), None)[epilogue.last], "float32")
            if not whole:
                value = b.select(b.less(key, b.extent(self.keys)), value, LOWEST)
            stores.append(ir.Store(one.buffer, one.indices, value))
            stores.append(ir.Store(self.best, (self.unit, sums.own), b.maximum(best, one)))
        return ir.Block(tuple(stores))

    def _weights(self, scored: Place) -> Statements:
        """Return what makes weights of scores; threads exchange what they have of a row, so that each has all of it."""
        best, top, total, scale, added = self.best, self.top, self.total, self.scale, self.added

        def rescaled(row: Row) -> ir.Statement:
            """What was known of a row is less by this."""
            largest = ir.Variable("largest", FLOAT32)
            less = b.intrinsic("exp", b.subtract(ir.Load(top, row), largest))
            taken = b.multiply(largest, LOG2_E) if self.tiles.instruction else largest
            stores = ((scale, less), (top, ir.Load(best, row)), (added, ZERO), (best, taken))
            body = ir.Block(tuple(ir.Store(buffer, row, value) for buffer, value in stores))
            return ir.Let(largest, b.select(b.equal(ir.Load(best, row), LOWEST), ZERO, ir.Load(best, row)), body)

        def weighted(sums: Held) -> ir.Statement:
            """By tensor instructions weights are rounded, so that the device's own powers of 2 are good enough."""
            score, row, largest = sums.total, (self.unit, sums.own), ir.Load(best, (self.unit, sums.own))
            lanes, weight, whole = score.type.lanes, ir.Variable("weight_here", score.type), ir.Load(added, row)
            parts = [ir.Store(added, row, b.add(whole, ir.Shuffle((weight,), (lane,)))) for lane in range(lanes)]
            kept = ir.Block((self._weight(sums, weight), *parts))
            if not self.tiles.instruction:
                return ir.Let(weight, b.intrinsic("exp", b.subtract(score, wide(largest, lanes))), kept)
            exponents = [(one, b.subtract(b.multiply(one, LOG2_E), largest)) for one in sums.lanes]
            powers = [ir.CallExtern("power_of_2", one) for one in exponents]
            return ir.Block((*powers, ir.Let(weight, score, kept)))

        def summed(row: Row) -> ir.Statement:
            whole = b.add(b.multiply(ir.Load(total, row), ir.Load(scale, row)), ir.Load(added, row))
            store = ir.Store(total, row, whole)
            if not self.stages.nan_is_zero:
                return store
            return ir.Block((store, ir.If(b.is_nan(ir.Load(total, row)), ir.Store(scale, row, ZERO))))

        def cleared(sums: Held) -> ir.Statement:
            nothing = self._weight(sums, wide(ZERO, sums.total.type.lanes))
            return ir.If(b.is_nan(ir.Load(total, (self.unit, sums.own))), nothing)

        return (
            self._rows(lambda row: ir.Store(best, row, ir.Load(top, row))),
            self.score_sums.each(scored),
            self._exchanged(best, b.maximum),
            self._rows(rescaled),
            self.score_sums.each(weighted),
            self._exchanged(added, b.add),
            self._rows(summed),
            *((self.score_sums.each(cleared),) if self.stages.nan_is_zero else ()),
        )

    def _exchanged(
        self, parts: ir.Buffer, operation: Callable[[ir.Expression, ir.Expression], ir.Expression]
    ) -> ir.Statement:
        """Return what reduces the parts that neighbouring threads have of each row, for each of them."""

        def exchanged(row: Row) -> ir.Statement:
            own, other = ir.Load(parts, row), ir.Load(self.other, row)
            steps: list[ir.Statement] = []
            for power in reversed(range(self.score_sums.across.bit_length() - 1)):
                steps.append(ir.CallExtern("exchange", (other, own, b.constant(1 << power, "int64"))))
                steps.append(ir.Store(parts, row, operation(own, other)))
            return ir.Block(tuple(steps))

        return self._rows(exchanged)

    def _weight(self, sums: Held, value: ir.Expression) -> ir.Statement:
        """Put weights where the product with the values finds them."""
        if self.tiles.instruction:
            return ir.Store(self.weight, sums.total.indices, b.cast(value, self.weight.dtype))
        places = ((b.add(sums.column, lane), sums.row) for lane in range(sums.total.type.lanes))
        return ir.Block(
            tuple(ir.Store(self.weight, place, ir.Shuffle((value,), (lane,))) for lane, place in enumerate(places))
        )

    # ---- Results ----

    def _scaled(self, sums: Held) -> ir.Statement:
        """Scale what was summed before."""
        total, factor = sums.total, ir.Load(self.scale, (self.unit, sums.own))
        return ir.Store(total.buffer, total.indices, b.multiply(total, wide(factor, total.type.lanes)))

    def _stored(self, outer: list[ir.Variable], begin: ir.Expression, sums: Held) -> ir.Statement:
        weights, query = ir.Variable("weights", FLOAT32), b.add(begin, sums.row)
        whole: ir.Expression = ir.Load(self.total, (self.unit, sums.own))
        if self.stages.nan_is_zero:
            whole = b.select(b.either(b.is_nan(whole), b.equal(whole, ZERO)), ir.Constant(1.0, FLOAT32), whole)
        width = self.value.own.known(0)
        stores: list[ir.Statement] = []
        for lane, element in enumerate(sums.lanes):
            place = b.add(sums.column, lane)
            one: ir.Expression = b.divide(element, weights)
            if self.stages.empty_is_zero:
                one = b.select(b.equal(weights, ZERO), ZERO, one)
            point = (*outer, query, place)
            initial = substitute(self.values.epilogue.initial, dict(zip(self.values.axes, point, strict=True)))
            value = self.values.epilogue.values(point, b.add(one, initial), None)[self.values.epilogue.last]
            target = tuple(point[axis] for axis in self.stages.order)
            store: ir.Statement = ir.Store(self.stages.output, target, b.cast(value, self.stages.output.dtype))
            stores.append(store if self.width == width else ir.If(b.less(place, width), store))
        body: ir.Statement = ir.Let(weights, whole, ir.Block(tuple(stores)))
        if isinstance(self.queries, int) and self.queries % self.tiles.queries == 0:
            return body
        return ir.If(b.less(query, b.extent(self.queries)), body)
