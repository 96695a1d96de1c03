"""The schedule of attention over lengths that are known only when it runs: blocks of keys, with a running Softmax.

Queries are taken in blocks of constant height, and for each of them keys and values in blocks of constant length. A
tile of query rows keeps the largest score and the sum of exponentials of each row so far; when a later block has a
larger score, the sum and the result so far are scaled (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018; Dao et al., "FlashAttention", 2022). All memory between is of constant size. A few queries, as in a
step of decoding, read keys and values where they are (`attention_in_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import AttentionParameters, Parameters, of_family
from graft.core.schedule.primitives.statements import divided, ramp, wide
from graft.core.schedule.primitives.vectorize import instantiate, vectorize_expression
from graft.core.schedule.products.accumulation import Reduced, Span, accumulate, begin_with, clear
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import RegisterTile, adjusted_tile, choose_tile, halves
from graft.core.schedule.strategies.attention.attention_blocks import Keys, Panels, Rows
from graft.core.schedule.strategies.attention.attention_in_place import QUERIES as FEW
from graft.core.schedule.strategies.attention.attention_in_place import InPlace
from graft.core.schedule.strategies.attention.attention_parts import (
    AttentionStages,
    FactoredProduct,
    attention_stages,
    factored,
    is_weighted,
)
from graft.core.schedule.strategies.attention.running_softmax import RunningSoftmax
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, loops_over
from graft.core.types import Type, element_bits

QUERIES = 192
"""About the query rows of a block: keys are copied once for each block."""
KEYS = 256
"""About the keys of a block: for up to so many nothing is scaled."""
USUAL = 128
"""The query rows that tiles are chosen for."""


def schedule_attention(
    kernel: Kernel, target: Target, parameters: AttentionParameters | None = None
) -> Scheduled | None:
    """Return attention in blocks of queries and keys; None for other stages, and for heads of an unknown size."""
    stages = attention_stages(kernel)
    scores, values = (None, None) if stages is None else (factored(stages.scores), factored(stages.values))
    if stages is None or scores is None or values is None or not is_weighted(values.left, values.term, stages):
        return None
    if not isinstance(scores.terms, ir.Constant) or not isinstance(values.extents[-1], ir.Constant):
        return None
    if not int(scores.terms.value) or not int(values.extents[-1].value):
        return None
    loops = _Loops(stages, scores, values, target, parameters or AttentionParameters())
    body, few = loops.body(), _Loops(stages, scores, values, target, AttentionParameters(), few=True)
    if few.in_place.fits:
        body = ir.If(b.less_equal(values.extents[-2], FEW), few.body(), body)
    body = instantiate(body, {})
    function = ir.Function(kernel.name, (*kernel.inputs, *kernel.outputs), 1, body, kernel.origin)
    return Scheduled(function, knobs={"rows": loops.tile.rows, "vectors": loops.tile.vectors, "keys": loops.block})


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
        features = values.extents[-1]
        assert isinstance(features, ir.Constant), "heads of an unknown size"
        height, width = FEW if few else USUAL, int(features.value)
        self.tile = choose_tile(height, width, self.kind.dtype, target)
        if own.rows is not None or own.vectors is not None:
            self.tile = adjusted_tile(self.tile, height, width, own.rows, own.vectors)
        self.lanes = self.tile.lanes
        self.block = max(1, KEYS // self.tile.columns) * self.tile.columns
        self.panels = Panels(scores, values, self.outer, self.tile, self.block)
        pitch = self.block + self.lanes  # rows a power of two apart would share sets of the cache
        row_bytes = pitch * element_bits(self.kind.dtype) // 8
        group = max(1, int(target.machine.working_set(1)) // (row_bytes * self.tile.rows)) * self.tile.rows
        self.group, self.height = (FEW, FEW) if few else (group, max(1, QUERIES // group) * group)
        group = self.group
        self.few, self.in_place = few, InPlace(scores, values, self.outer, self.lanes)
        self.softmax = RunningSoftmax(
            scores.epilogue, self.outer, self.lanes, group, self.height, pitch,
            empty_is_zero=stages.empty_is_zero, nan_is_zero=stages.nan_is_zero,
        )  # fmt: skip
        shape = (b.index(self.height), b.index(self.panels.across))
        self.results = ir.Buffer("results", self.kind.dtype, shape, memory="scratch", alignment=64)

    # ---- Blocks ----

    def body(self) -> ir.Statement:
        """Return all loops: heads, blocks of queries, blocks of keys."""
        number = ir.Variable("queries")
        queries = self.values.extents[-2]
        first = b.multiply(number, self.height)
        count = b.minimum(b.subtract(queries, first), self.height)
        body = self._queries(first, count)
        copies = () if self.few else (self.panels.keys, self.panels.weighted)
        body = allocate([*reversed((*copies, self.results, *self.softmax.buffers))], body)
        body = ir.For(number, b.divide(b.add(queries, self.height - 1), self.height), "parallel", body)
        outer = zip(self.outer, self.values.extents, strict=False)
        heads = ((index, extent) for index, extent in outer if isinstance(index, ir.Variable))
        return loops_over(heads, body, "parallel")

    def _queries(self, first: ir.Expression, count: ir.Expression) -> ir.Statement:
        """Return the blocks of keys for one block of queries; without any key one block of none."""
        number, own, vectors = ir.Variable("block"), ir.Variable("own"), ir.Variable("vectors")
        group, row, height = ir.Variable("group"), ir.Variable("row"), ir.Variable("height")
        keys = self.scores.extents[-1]
        blocks = b.maximum(b.divide(b.add(keys, self.block - 1), self.block), 1)
        begin = b.multiply(number, self.block)
        block = Keys(begin, own, vectors, b.equal(number, 0), b.equal(number, b.subtract(blocks, 1)))
        body: ir.Statement = self._group(Rows(first, row, height), block)
        body = ir.Let(height, b.minimum(b.subtract(count, row), self.group), body)
        body = ir.Let(row, b.multiply(group, self.group), body)
        groups = ir.For(group, b.divide(b.add(count, self.group - 1), self.group), "serial", body)
        copies = () if self.few else (self.panels.key_copies(block), self.panels.value_copies(block))
        body = ir.Block((*copies, groups))
        body = ir.Let(vectors, b.divide(b.add(own, self.lanes - 1), self.lanes), body)
        return ir.For(number, blocks, "serial", ir.Let(own, b.minimum(b.subtract(keys, begin), self.block), body))

    def _group(self, rows: Rows, keys: Keys) -> ir.Statement:
        """Return what a group of rows makes of a block of keys."""
        scores = self.in_place.products(self.softmax.scored, rows, keys) if self.few else self._scores(rows, keys)
        return ir.Block((scores, *self.softmax.of(rows, keys), *self._weighted(rows, keys)))

    def _in_tiles(self, rows: ir.Expression, tile: Callable[[int, ir.Expression], ir.Statement]) -> ir.Statement:
        """Return tiles of rows: as many whole ones as there are, and what is left over in halves, quarters, ..."""
        done: ir.Expression = b.index(0)
        parts = []
        for height in halves(self.tile.rows):
            number = ir.Variable("tile")
            whole, rest = divided(rows, height)
            parts.append(ir.For(number, whole, "serial", tile(height, b.add(done, b.multiply(number, height)))))
            done, rows = b.add(done, b.multiply(whole, height)), rest
        return ir.Block(tuple(parts))

    # ---- Scores ----

    def _scores(self, rows: Rows, keys: Keys) -> ir.Statement:
        """Return the products of a group of rows: whole panels of keys, then single vectors."""
        panel, vector, width = ir.Variable("panel"), ir.Variable("vector"), self.tile.vectors
        whole, rest = divided(keys.vectors, width)
        panels = ir.For(panel, whole, "serial", self._score_panel(rows, panel, b.index(0), width))
        single = ir.For(vector, rest, "serial", self._score_panel(rows, whole, b.multiply(vector, self.lanes), 1))
        return ir.Block((panels, single) if width > 1 else (panels,))

    def _score_panel(self, rows: Rows, panel: ir.Expression, offset: ir.Expression, vectors: int) -> ir.Statement:
        """Return the products of a group of rows and some vectors of a panel of keys, from column ``offset`` on."""
        scores, lanes, width = self.scores, self.lanes, self.tile.columns

        def right(vector: int) -> ir.Expression:
            row = b.add(b.multiply(panel, width * self.panels.terms), b.multiply(scores.term, width))
            begin = b.add(row, offset)
            return ir.Load(self.panels.keys, (ramp(b.add(begin, vector * lanes), lanes),))

        def made(height: int, begin: ir.Expression) -> ir.Statement:
            tile = replace(self.tile, rows=height, vectors=vectors)

            def left(number: int) -> ir.Expression:
                row = b.add(rows.place, b.add(begin, number))
                return vectorize_expression(scores.left, {**scores.at_head(self.panels.outer), scores.axes[-2]: row})

            def finish(totals: ir.Buffer) -> ir.Statement:
                return ir.Block(
                    tuple(
                        ir.Store(
                            self.softmax.scored,
                            (b.add(begin, row), ramp(b.add(b.add(b.multiply(panel, width), offset), column), lanes)),
                            ir.Load(totals, (b.index(row), ramp(b.index(column), lanes))),
                        )
                        for row in range(height)
                        for column in range(0, tile.columns, lanes)
                    )
                )

            start = clear(tile, ir.Constant(0.0, self.kind))
            return accumulate(tile, self.kind, start, [Reduced(scores.term, self.panels.terms)], left, right, finish)

        return self._in_tiles(rows.count, made)

    # ---- The product with the values ----

    def _weighted(self, rows: Rows, keys: Keys) -> Iterator[ir.Statement]:
        """Yield the results of a group of rows: whole panels of features, then the vectors that are left over."""
        panel, (whole, rest) = ir.Variable("panel"), divmod(self.panels.features, self.tile.columns)

        def made(panel: ir.Expression, vectors: int, cut: ir.Expression | None) -> ir.Statement:
            def tile(height: int, row: ir.Expression) -> ir.Statement:
                return self._results_of(RegisterTile(height, vectors, self.lanes, 1), rows, keys, row, panel, cut)

            return self._in_tiles(rows.count, tile)

        if whole:
            yield ir.For(panel, b.index(whole), "serial", made(panel, self.tile.vectors, None))
        if rest:
            yield made(b.index(whole), -(-rest // self.lanes), self.panels.last_features)

    def _results_of(
        self,
        tile: RegisterTile,
        rows: Rows,
        keys: Keys,
        row: ir.Expression,
        panel: ir.Expression,
        cut: ir.Expression | None,
    ) -> ir.Statement:
        """Return a tile of exponentials times values, added to the result so far; ``cut`` masks its last vector."""
        values, softmax, lanes = self.values, self.softmax, self.lanes

        def column(vector: int) -> ir.Expression:
            return ramp(b.add(b.multiply(panel, self.tile.columns), vector * lanes), lanes)

        def kept(number: int, vector: int) -> tuple[ir.Expression, ...]:
            return (b.add(rows.begin, b.add(row, number)), column(vector))

        def start(totals: ir.Buffer) -> ir.Statement:
            def scaled(number: int, vector: int) -> ir.Expression:
                change = wide(ir.Load(softmax.changes, (b.add(row, number),)), lanes)
                return b.multiply(ir.Load(self.results, kept(number, vector)), change)

            zero = clear(tile, ir.Constant(0.0, self.kind))
            return ir.If(keys.is_first, zero(totals), begin_with(tile, scaled)(totals))

        def finish(totals: ir.Buffer) -> ir.Statement:
            stores, partial = [], []
            for number in range(tile.rows):
                factor = wide(ir.Load(softmax.factors, (b.add(row, number),)), lanes)
                query = b.add(rows.place, b.add(row, number))
                for vector in range(tile.vectors):
                    total = ir.Load(totals, (b.index(number), ramp(b.index(vector * lanes), lanes)))
                    partial.append(ir.Store(self.results, kept(number, vector), total))
                    mask = cut if vector == tile.vectors - 1 else None
                    stores.append(self._stored([*self.outer, query, column(vector)], b.multiply(total, factor), mask))
            return ir.If(keys.is_last, ir.Block(tuple(stores)), ir.Block(tuple(partial)))

        def left(number: int) -> ir.Expression:
            return ir.Load(softmax.scored, (b.add(row, number), values.term))

        def right(vector: int) -> ir.Expression:
            if self.few:
                return self.in_place.value(keys, column(vector), cut if vector == tile.vectors - 1 else None)
            return ir.Load(self.panels.weighted, (self.panels.value_place(panel, vector, values.term),))

        span = Span(b.index(0), keys.count, 0)
        return accumulate(tile, self.kind, start, [Reduced(values.term, 1)], left, right, finish, span)

    def _stored(self, point: Sequence[ir.Expression], total: ir.Expression, mask: ir.Expression | None) -> ir.Statement:
        value = self.values.epilogue.values(point, total, mask)[self.values.epilogue.last]
        return ir.Store(self.stages.output, tuple(point[axis] for axis in self.stages.order), value, mask)


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    return schedule_attention(anchor.kernel, target, of_family(anchor.parameters, AttentionParameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Register tiles of query rows and features."""
    stages = attention_stages(anchor.kernel)
    values = None if stages is None or stage > 0 else factored(stages.values)
    if values is None or not isinstance(values.extents[-1], ir.Constant) or not values.extents[-1].value:
        return []
    tiles = best_tiles(USUAL, int(values.extents[-1].value), values.left.type.dtype, target)
    return [AttentionParameters(rows=tile.rows, vectors=tile.vectors) for tile in tiles]


STRATEGY = Strategy(
    "varying_attention", frozenset({Trait.ATTENTION}), _build, candidates=_candidates, varies=True, switch="attention"
)
"""Takes attention of floats whose heads have a known size."""
