"""The schedule of attention, over lengths that are numbers or vary: blocks of keys, with a running Softmax.

Queries are taken in blocks of constant height, and for each of them keys and values in blocks of constant length. A
tile of query rows keeps the largest score and the sum of exponentials of each row so far; when a later block has a
larger score, the sum and the result so far are scaled (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018; Dao et al., "FlashAttention", 2022). All memory between is of constant size. A few queries, as in a
step of decoding, read keys and values where they are, for a copy would cost more than it saves: a key is a product
along the terms, and a value is added to the results as it stands.

In bfloat16 queries, keys, values and exponentials are rounded, the sums of exponentials are not.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import constant_extent
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.parameters import AttentionParameters, Parameters, of_family
from graft.core.schedule.primitives.loop_kinds import Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Split
from graft.core.schedule.primitives.plain_nest import reduced_element
from graft.core.schedule.primitives.rfactor import Horizontal, Rfactor
from graft.core.schedule.primitives.statements import operand_at, scratch
from graft.core.schedule.primitives.vectorize import finished, guarded
from graft.core.schedule.products.blocking import wanted_tasks
from graft.core.schedule.products.product_axes import Multiply
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import (
    RegisterTile,
    adjusted_tile,
    choose_tile,
    in_tiles,
    split_evenly,
    with_dot,
)
from graft.core.schedule.strategies.attention.attention_blocks import Keys, Panels, Rows
from graft.core.schedule.strategies.attention.attention_parts import (
    AttentionStages,
    FactoredProduct,
    attention_stages,
    factored,
    is_weighted,
    lie_along_vectors,
)
from graft.core.schedule.strategies.attention.running_softmax import RunningSoftmax
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.statements import allocate, loops_over
from graft.core.tensor_ir.visit import substitute
from graft.core.types import Type, element_bits

KEY_SHARE = 1 / 4
"""The keys and values of a block, as a part of the second-level cache: for no more keys nothing is scaled."""
QUERY_SHARE = 1 / 10
"""The results of a block of query rows, as such a part: keys and values are copied once for each block."""
MOST_KEYS, MOST_QUERIES = 512, 384
"""The keys and the query rows of a block at the most."""
LEAST_QUERIES = 32
"""The query rows of a block at the least, however many threads there are: each block copies keys and values."""
KEY_COUNTS = (64, 128, 256, 512, 1024)
"""The keys of a block that tuning tries."""
FEW = 4
"""The most queries for which nothing is copied."""
USUAL = 128
"""The query rows that tiles are chosen for where their number varies."""


def schedule_attention(
    kernel: Kernel, target: Target, parameters: AttentionParameters | None = None
) -> Scheduled | None:
    """Return attention in blocks of queries and keys; None for other stages, and for heads of an unknown size."""
    parts = _parts(kernel)
    if parts is None:
        return None
    loops = _Loops(*parts, target, parameters or AttentionParameters())
    body, few = loops.body(), _Loops(*parts, target, AttentionParameters(), few=True)
    if few.is_in_place:
        body = simplify_statement(ir.If(b.less_equal(loops.values.extents[-2], FEW), few.body(), body))
    function = kernel.function(finished(body, (*kernel.inputs, *kernel.outputs)))
    return Scheduled(function, knobs={"rows": loops.tile.rows, "vectors": loops.tile.vectors, "keys": loops.block})


def _parts(kernel: Kernel) -> tuple[AttentionStages, FactoredProduct, FactoredProduct] | None:
    """Return the stages of attention, its scores and its values; None for others, and for heads of an unknown size."""
    stages = attention_stages(kernel)
    scores, values = (None, None) if stages is None else (factored(stages.scores), factored(stages.values))
    if stages is None or scores is None or values is None or not is_weighted(values.left, values.term, stages):
        return None
    sizes = (scores.terms, values.extents[-1])
    return (stages, scores, values) if all(isinstance(one, ir.Constant) and one.value for one in sizes) else None


def _rounds_factors(scores: FactoredProduct, target: Target) -> bool:
    return target.precision == "bf16" and scores.left.type.dtype == "float32"


def _usual_rows(values: FactoredProduct) -> int:
    """Return the query rows that tiles are chosen for."""
    queries = values.extents[-2]
    return max(1, int(queries.value)) if isinstance(queries, ir.Constant) else USUAL


def _piece(extent: ir.Expression, most: int, whole: int) -> int:
    """Return the size of pieces of an extent, a multiple of ``whole``, about ``most`` at the most, about even ones."""
    if isinstance(extent, ir.Constant) and extent.value:
        most = split_evenly(int(extent.value), max(1, most)).sizes[0][1]
        return -(-most // whole) * whole
    return max(1, most // whole) * whole


def _blocks(extent: ir.Expression, size: int) -> ir.Expression:
    """Return how many blocks an extent has, the last of which may be cut."""
    return b.divide(b.add(extent, size - 1), size)


class _Loops:
    """Writes the loops of one attention."""

    def __init__(
        self,
        stages: AttentionStages,
        scores: FactoredProduct,
        values: FactoredProduct,
        target: Target,
        own: AttentionParameters,
        *,
        few: bool = False,
    ) -> None:
        self.stages, self.scores, self.values = stages, scores, values
        self.kind = Type(scores.left.type.dtype)
        self.outer = [
            axis if extent != b.index(1) else b.index(0)
            for axis, extent in zip(values.axes[:-2], values.extents[:-2], strict=True)
        ]
        self.rounds = _rounds_factors(scores, target) and not few
        """Whether factors are rounded to bfloat16, two of them in a packed operand."""
        self.few = few
        self.tile = self._tile(target, own)
        self.lanes, size = self.tile.lanes, element_bits(self.kind.dtype) // 8
        first, second = (int(target.machine.working_set(level)) for level in (1, 2))
        features = constant_extent(values.extents[-1])
        most = int(KEY_SHARE * second) // ((constant_extent(scores.terms) + features) * size)
        self.block = _piece(scores.extents[-1], own.keys or min(most, MOST_KEYS), self.tile.columns)
        self.panels = Panels(scores, values, self.outer, self.tile, self.block, rounds=self.rounds)
        pitch = self.block + self.lanes  # rows a power of two apart would share sets of the cache
        self.height = (
            FEW if few else self._height(int(QUERY_SHARE * second) // ((features + self.lanes) * size), target)
        )
        tiles = max(1, min(first // (pitch * size), self.height) // self.tile.rows)
        self.group = FEW if few else tiles * self.tile.rows
        self.multiply = Multiply("dot2_bf16" if self.rounds else "")
        self.softmax = RunningSoftmax(
            scores.epilogue, self.outer, self.lanes, self.group, self.height, pitch,
            empty_is_zero=stages.empty_is_zero, nan_is_zero=stages.nan_is_zero, rounds=self.rounds,
        )  # fmt: skip
        self.results = scratch("results", self.kind.dtype, self.height, self.panels.across)
        self.queries = scratch("queries", "bfloat16", self.height, -(-self.panels.terms // self.lanes) * self.lanes)

    @property
    def is_in_place(self) -> bool:
        """Whether a few queries can be taken so that keys and values are read where they are."""
        return lie_along_vectors(self.scores, self.values, self.lanes)

    def _tile(self, target: Target, own: AttentionParameters) -> RegisterTile:
        target, busy = with_dot("dot2_bf16" if self.rounds else "", target)
        height, width = FEW if self.few else _usual_rows(self.values), constant_extent(self.values.extents[-1])
        chosen = choose_tile(height, width, self.kind.dtype, target, busy)
        return adjusted_tile(chosen, height, width, own.rows, own.vectors)

    def _height(self, most: int, target: Target) -> int:
        """Return the query rows of a block, at most ``most``, so that threads have equally many blocks."""
        most, queries = max(1, min(most, MOST_QUERIES)), self.values.extents[-2]
        if isinstance(queries, ir.Constant):
            heads = prod(int(one.value) for one in self.values.extents[:-2] if isinstance(one, ir.Constant))
            wanted, blocks = -(-wanted_tasks(target) // max(1, heads)), -(-int(queries.value) // most)
            even = -(-int(queries.value) // (-(-blocks // wanted) * wanted or 1))
            most = min(most, max(LEAST_QUERIES, even))
        return _piece(queries, most, self.tile.rows)

    # ---- Blocks ----

    def body(self) -> ir.Statement:
        """Return all loops: heads, blocks of queries, blocks of keys."""
        number = ir.Variable("queries")
        queries = self.values.extents[-2]
        first = b.multiply(number, self.height)
        count = b.minimum(b.subtract(queries, first), self.height)
        body = self._queries(first, count)
        copies = () if self.few else (self.panels.keys, self.panels.weighted)
        rounded_rows = (self.queries,) if self.rounds else ()
        body = allocate([*reversed((*copies, *rounded_rows, self.results, *self.softmax.buffers))], body)
        outer = zip(self.outer, self.values.extents, strict=False)
        heads = [(index, extent) for index, extent in outer if isinstance(index, ir.Variable)]
        return loops_over([*heads, (number, _blocks(queries, self.height))], body, "parallel")

    def _queries(self, first: ir.Expression, count: ir.Expression) -> ir.Statement:
        """Return the blocks of keys for one block of queries; without any key one block of none."""
        number, own, vectors = ir.Variable("block"), ir.Variable("own"), ir.Variable("vectors")
        group, row, height = ir.Variable("group"), ir.Variable("row"), ir.Variable("height")
        keys = self.scores.extents[-1]
        blocks = b.maximum(_blocks(keys, self.block), 1)
        begin = b.multiply(number, self.block)
        block = Keys(begin, own, vectors, b.equal(number, 0), b.equal(number, b.subtract(blocks, 1)))
        body: ir.Statement = self._group(Rows(first, row, height), block)
        body = ir.Let(height, b.minimum(b.subtract(count, row), self.group), body)
        body = ir.Let(row, b.multiply(group, self.group), body)
        groups = loops_over([(group, _blocks(count, self.group))], body)
        copies = () if self.few else (self.panels.key_copies(block), self.panels.value_copies(block))
        body = ir.Block((*copies, groups))
        body = ir.Let(
            own, b.minimum(b.subtract(keys, begin), self.block), ir.Let(vectors, _blocks(own, self.lanes), body)
        )
        body = loops_over([(number, blocks)], body)
        return ir.Block((self._rounded_queries(first, count), body)) if self.rounds else body

    def _rounded_queries(self, first: ir.Expression, count: ir.Expression) -> ir.Statement:
        """Return what stores the rows of a block in bfloat16, zeros up to the end of the last vector."""
        scores, (row, vector, lane) = self.scores, (ir.Variable(name) for name in ("i", "v", "lane"))
        term = b.add(b.multiply(vector, self.lanes), lane)
        places = {**scores.at_head(self.outer), scores.axes[-2]: b.add(first, row), scores.term: term}
        element = substitute(scores.left, places)
        if self.panels.terms % self.lanes:
            inside = b.less(term, self.panels.terms)
            element = ir.Select(inside, guarded(element, inside, (vector, lane)), ir.Constant(0.0, self.kind))
        vectors = -(-self.panels.terms // self.lanes)
        axes = [(row, count), (vector, b.index(vectors)), (lane, b.index(self.lanes))]
        store = ir.Store(self.queries, (row, term), rounded(element))
        return taken(loops_over(axes, store), (Vectorize("lane"), Unroll("v")))

    def _group(self, rows: Rows, keys: Keys) -> ir.Statement:
        """Return what a group of rows makes of a block of keys."""
        scores = self._few_scores(rows, keys) if self.few else self._scores(rows, keys)
        return ir.Block((scores, *self.softmax.of(rows, keys), self._weighted(rows, keys)))

    def _scores(self, rows: Rows, keys: Keys) -> ir.Statement:
        """Return the products of a group of rows with the keys of a block, up to the end of the last vector."""
        vector, row, lane, term = (ir.Variable(name) for name in ("v", "i", "lane", "k"))
        column = b.add(b.multiply(vector, self.lanes), lane)
        right = ir.Load(self.panels.keys, (b.add(self.panels.key_place(vector, term), lane),))
        element = self._score(rows, row, column, (term, self.panels.depth), right)
        axes = [(vector, keys.vectors), (row, rows.count), (lane, b.index(self.lanes))]
        unroll = self.tile.unroll
        written = (Split("k", unroll, "k", "part", ("left",)), Unroll("part")) if unroll > 1 else ()
        return taken(loops_over(axes, element), (*written, *in_tiles(self.tile)))

    def _few_scores(self, rows: Rows, keys: Keys) -> ir.Statement:
        """Return the same of keys that are read where they are, one after another: a sum along vectors of terms."""
        scores, (row, key, term) = self.scores, (ir.Variable(name) for name in ("i", "j", "k"))
        places = {**scores.at_head(self.outer), scores.axes[-1]: b.add(keys.begin, key), scores.term: term}
        element = self._score(rows, row, key, (term, self.panels.terms), substitute(scores.right, places))
        nest, lanes = loops_over([(row, rows.count), (key, keys.count)], element), self.lanes
        split = Split("k", lanes, "k", "lane"), Rfactor("total", "lane", "register", "parts", ("k",))
        ways = Vectorize("lane"), Vectorize("parts.in"), Unroll("k"), Horizontal("parts.turn")
        return taken(nest, (*split, *ways) if lanes > 1 else (Unroll("k"),))

    def _score(
        self,
        rows: Rows,
        row: ir.Variable,
        column: ir.Expression,
        terms: tuple[ir.Variable, int],
        right: ir.Expression,
    ) -> ir.Statement:
        """Return what computes the product of a query and a key of a block."""
        term, depth = terms
        left, place = self._query(rows, row, term), (row, column)
        return reduced_element(
            ir.Constant(0.0, self.kind),
            [(term, b.index(depth))],
            lambda total: self.multiply(left, right, total),
            lambda total: ir.Store(self.softmax.scored, place, total),
        )

    def _query(self, rows: Rows, row: ir.Expression, term: ir.Expression) -> ir.Expression:
        """Return a term of a query, or a pair of terms."""
        if self.rounds:
            return operand_at(self.queries, b.add(rows.begin, row), term)
        scores = self.scores
        places = {**scores.at_head(self.outer), scores.axes[-2]: b.add(rows.place, row), scores.term: term}
        return substitute(scores.left, places)

    def _weighted(self, rows: Rows, keys: Keys) -> ir.Statement:
        """Return the exponentials of a group of rows times the values of a block, added to the results so far."""
        values, softmax, panels = self.values, self.softmax, self.panels
        vector, row, lane, key = (ir.Variable(name) for name in ("v", "i", "lane", "k"))
        column = b.add(b.multiply(vector, self.lanes), lane)
        kept = (b.add(rows.begin, row), column)
        mask = b.less(column, panels.features) if panels.features % self.lanes else None
        left: ir.Expression = ir.Load(softmax.weights, (row, key))
        right: ir.Expression = ir.Load(panels.weighted, (b.add(panels.value_place(vector, key), lane),))
        if self.rounds:
            left = operand_at(softmax.weights, row, key)
        if self.few:
            places = {**values.at_head(self.outer), values.axes[-1]: column, values.term: b.add(keys.begin, key)}
            right = guarded(substitute(values.right, places), mask, (vector, lane))
        scaled = b.multiply(ir.Load(self.results, kept), ir.Load(softmax.changes, (row,)))
        start = ir.Select(keys.is_first, ir.Constant(0.0, self.kind), scaled)

        def finish(total: ir.Expression) -> ir.Statement:
            point = [*self.outer, b.add(rows.place, row), column]
            result = b.multiply(total, ir.Load(softmax.factors, (row,)))
            value = guarded(values.epilogue.values(point, result, None)[values.epilogue.last], mask, (vector, lane))
            place = tuple(point[axis] for axis in self.stages.order)
            stored = ir.Store(self.stages.output, place, value, mask)
            return ir.If(keys.is_last, stored, ir.Store(self.results, kept, total))

        depth, count = panels.rows_of(keys.count), -(-panels.features // self.lanes)
        body = reduced_element(start, [(key, depth)], lambda total: self.multiply(left, right, total), finish)
        axes = [(vector, b.index(count)), (row, rows.count), (lane, b.index(self.lanes))]
        return taken(loops_over(axes, body), tuple(in_tiles(self.tile, count)))


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    return schedule_attention(anchor.kernel, target, of_family(anchor.parameters, AttentionParameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Register tiles of query rows and features, then the keys of a block."""
    stages = attention_stages(anchor.kernel)
    values = None if stages is None or stage > 1 else factored(stages.values)
    if values is None or not isinstance(values.extents[-1], ir.Constant) or not values.extents[-1].value:
        return []
    own = of_family(anchor.parameters, AttentionParameters) or AttentionParameters()
    if stage == 1:
        return [replace(own, keys=keys) for keys in KEY_COUNTS]
    tiles = best_tiles(_usual_rows(values), constant_extent(values.extents[-1]), values.left.type.dtype, target)
    return [replace(own, rows=tile.rows, vectors=tile.vectors) for tile in tiles]


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    parts = _parts(anchor.kernel)
    if parts is None:
        return None
    queries = parts[2].extents[-2]
    is_few = isinstance(queries, ir.Constant) and int(queries.value) <= FEW
    if is_few and _Loops(*parts, target, AttentionParameters(), few=True).is_in_place:
        return False
    return _rounds_factors(parts[1], target)


STRATEGY = Strategy(
    "fused_attention",
    frozenset({Trait.ATTENTION}),
    _build,
    candidates=_candidates,
    rounds=_rounds,
    varies=None,
    switch="attention",
)
"""Takes attention of floats whose heads have a known size."""
