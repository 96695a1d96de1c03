"""The schedule of attention: scores, mask, Softmax and the product with the values in one kernel.

For each head, keys and values are copied into panels as wide as a register tile. Then blocks of query rows are taken
one after another: their scores against all keys stay in scratch memory of the first-level cache, rows become weights
there, and the weights times the values leave as the result. The scores of a whole head are never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.loops.tiled_transpose import transpose
from graft.core.schedule.parameters import AttentionParameters, Parameters, of_family
from graft.core.schedule.primitives.statements import in_vectors, nest, operand_at, ramp, scratch, wide
from graft.core.schedule.primitives.vectorize import instantiate, vectorize_expression
from graft.core.schedule.products.accumulation import Reduced, accumulate, clear, each
from graft.core.schedule.products.blocking import Columns, Panel
from graft.core.schedule.products.dot_grouping import packed_operand
from graft.core.schedule.products.factors import EMULATED_REGISTERS, Outer
from graft.core.schedule.products.product_axes import Contraction, Multiply
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import RegisterTile, adjusted_tile, choose_tile, split_evenly
from graft.core.schedule.strategies.attention.attention_parts import Attention, analyse_attention
from graft.core.schedule.strategies.attention.softmax_row import softmax_row
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, bind
from graft.core.tensor_ir.visit import substitute
from graft.core.types import Type, element_bits

SCORE_SHARE = 1.0
"""The scores of a block of rows, as a part of the first-level cache."""
SCORE_SHARES = (1 / 4, 1 / 2, 2, 4, 8)
"""Such parts that tuning tries."""
MIN_HEADS = 8
"""From so many heads on the heads are spread over threads, else the blocks of rows of each head."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """A block of rows of one head: the tiles from ``first`` on, whose first row is ``start``."""

    outer: Outer
    start: ir.Expression
    first: ir.Expression
    count: ir.Expression


def schedule_attention(kernel: Kernel, target: Target, parameters: Parameters | None = None) -> Scheduled | None:
    """Return attention in blocks of rows, None if the kernel's stages are not those of attention."""
    parts = analyse_attention(kernel)
    if parts is None or not Type(parts.scores.left.type.dtype).is_float:
        return None
    return AttentionScheduler(kernel, parts, target, of_family(parameters, AttentionParameters)).scheduled()


class Panels:
    """The right factor of one of the products in panels ``[terms, columns]`` in scratch memory, filled at run time."""

    def __init__(self, name: str, parts: Contraction, tile: RegisterTile, *, packs: bool) -> None:
        self.parts, self.tile, self.packs = parts, tile, packs
        self.columns = Columns(parts.width, tile)
        self.terms = -(-parts.terms // 2) if packs else parts.terms
        """The rows of a panel: a row of packed operands has two terms in bfloat16."""
        dtype = "int32" if packs else parts.right.type.dtype
        self.buffer = scratch(name, dtype, self.columns.padded * self.terms)

    def column(self, panel: Panel, vector: int) -> ir.Expression:
        """Return the first column of a vector of a panel."""
        return b.add(panel.begin, vector * self.tile.lanes)

    def place(self, panel: Panel, term: ir.Expression, vector: int) -> ir.Expression:
        """Return where a vector of a panel stands in the buffer."""
        begin = b.multiply(panel.begin, self.terms)
        row = b.multiply(term, panel.vectors * self.tile.lanes)
        return ramp(b.add(b.add(begin, row), vector * self.tile.lanes), self.tile.lanes)

    # ---- Filling ----

    def fill(self, outer: Outer) -> ir.Statement:
        """Return the loops that copy the factor of one head into the panels."""
        copy = self._transposed if self._is_transposed() else self._copied
        return self.columns.over("parallel", lambda panel: copy(outer, panel))

    def _is_transposed(self) -> bool:
        """Whether the factor is contiguous along the terms, in whole vectors."""
        right, lanes = self.parts.right, self.tile.lanes
        return (
            isinstance(right, ir.Load)
            and right.mask is None
            and right.indices[-1] is self.parts.depth[0].variable
            and lanes >= 4
            and self.parts.terms % (2 * lanes if self.packs else lanes) == 0
        )

    def _copied(self, outer: Outer, panel: Panel) -> ir.Statement:
        term, lanes = self.parts.depth[0].variable, self.tile.lanes
        fresh = ir.Variable("term")
        row = substitute(self.parts.right, {term: fresh})
        if self.packs:
            row = packed_operand(rounded(self.parts.right), term, fresh, self.parts.terms, 2)
        stores = []
        for vector in range(panel.vectors):
            places = {**self._outer(outer), self.parts.column: ramp(self.column(panel, vector), lanes)}
            value = vectorize_expression(row, places, self.columns.mask(panel, vector))
            stores.append(ir.Store(self.buffer, (self.place(panel, fresh, vector),), wide(value, lanes)))
        return ir.For(fresh, b.index(self.terms), "serial", ir.Block(tuple(stores)))

    def _transposed(self, outer: Outer, panel: Panel) -> ir.Statement:
        """Square tiles read along the terms and transposed in registers; columns beyond the last repeat the last."""
        lanes, block = self.tile.lanes, ir.Variable("terms")
        run = 2 * lanes if self.packs else lanes
        statements = []
        for vector in range(panel.vectors):
            bindings: list[tuple[ir.Variable, ir.Expression]] = []
            rows = []
            for lane in range(lanes):
                column = b.add(self.column(panel, vector), lane)
                if self.columns.mask(panel, vector) is not None:
                    column = b.minimum(column, b.index(self.parts.width - 1))
                along = ramp(b.multiply(block, run), run)
                places = {**self._outer(outer), self.parts.depth[0].variable: along, self.parts.column: column}
                value = vectorize_expression(self.parts.right, places)
                value = ir.Bitcast(rounded(value), "int32") if self.packs else value
                rows.append(ir.Variable(f"r{lane}", value.type))
                bindings.append((rows[-1], value))
            transposed = transpose(rows, bindings)
            stores = [
                ir.Store(self.buffer, (self.place(panel, b.add(b.multiply(block, lanes), step), vector),), value)
                for step, value in enumerate(transposed)
            ]
            statements.append(bind(bindings, ir.Block(tuple(stores))))
        return ir.For(block, b.index(self.parts.terms // run), "serial", ir.Block(tuple(statements)))

    def _outer(self, outer: Outer) -> dict[ir.Variable, ir.Expression]:
        return {self.parts.axes[axis]: index for axis, index in outer.items()}


def _packs_factors(parts: Attention, target: Target) -> bool:
    return target.precision == "bf16" and parts.scores.left.type.dtype == "float32"


class AttentionScheduler:
    """Builds the loops. Heads are given as ``outer``: an index for every outer axis."""

    def __init__(
        self, kernel: Kernel, parts: Attention, target: Target, parameters: AttentionParameters | None = None
    ) -> None:
        self.kernel, self.parts = kernel, parts
        wanted = parameters or AttentionParameters()
        scores, values = parts.scores, parts.values
        self.kind = Type(scores.left.type.dtype)
        self.packs = _packs_factors(parts, target)
        """Whether factors are rounded to bfloat16, two of them in a packed operand."""
        self.chains = target.machine.costs.latency
        busy = EMULATED_REGISTERS if self.packs and not target.machine.has("dot2_bf16") else 0
        chosen = choose_tile(scores.height, values.width, self.kind.dtype, target, busy)
        self.tile = adjusted_tile(chosen, scores.height, values.width, wanted.rows, wanted.vectors)
        self.rows = split_evenly(scores.height, self.tile.rows)
        wider = replace(self.tile, vectors=min(self.tile.vectors, -(-scores.width // self.tile.lanes)))
        self.keys = Panels("keys", scores, wider, packs=self.packs)
        self.features = Panels("values", values, self.tile, packs=self.packs)
        row_bytes = self.keys.columns.padded * element_bits(self.kind.dtype) // 8
        highest = self.rows.size + (self.rows.larger > 0)
        most_bytes = wanted.score_bytes or int(SCORE_SHARE * target.machine.working_set(1))
        self.blocks = split_evenly(self.rows.count, max(1, most_bytes // (row_bytes * highest)))
        most = highest * (self.blocks.size + (self.blocks.larger > 0))
        self.scores = scratch("scores", self.kind.dtype, most, self.keys.columns.padded)
        self.factors = scratch("factors", self.kind.dtype, most)
        self.queries = scratch("queries", "bfloat16", most, -(-scores.terms // self.tile.lanes) * self.tile.lanes)
        self.weights = scratch("weights", "bfloat16", most, self.keys.columns.padded)

    def scheduled(self) -> Scheduled:
        """Build the function."""
        knobs = {"rows": self.tile.rows, "vectors": self.tile.vectors, "blocks": self.blocks.count}
        return Scheduled(self.kernel.function(instantiate(self._heads(), {})), knobs=knobs)

    def _heads(self) -> ir.Statement:
        extents = {axis: self.parts.scores.shape[axis] for axis in self.parts.scores.outer}
        return nest("outer", extents, "parallel" if prod(extents.values()) >= MIN_HEADS else "serial", self._head)

    def _head(self, outer: Outer) -> ir.Statement:
        def block(number: ir.Expression) -> ir.Statement:
            first = self.blocks.begin(number)
            rounded_rows = (self.queries, self.weights) if self.packs else ()
            memory = (*rounded_rows, self.scores, self.factors)
            return allocate(memory, self._block(outer, first, b.subtract(self.blocks.begin(b.add(number, 1)), first)))

        whole = loop(self.blocks.count, block, "parallel", "block")
        filled = ir.Block((self.keys.fill(outer), self.features.fill(outer), whole))
        return allocate((self.keys.buffer, self.features.buffer), filled)

    def _block(self, outer: Outer, first: ir.Expression, count: ir.Expression) -> ir.Statement:
        """The scores of a block of tiles, Softmax of its rows, and their product with the values."""
        start = self.rows.begin(first)
        row = ir.Variable("row")
        height = b.subtract(self.rows.begin(b.add(first, count)), start)
        softmax = softmax_row(
            self.scores, self.factors, row, self.tile.lanes, self.chains,
            empty_is_zero=self.parts.empty_is_zero, nan_is_zero=self.parts.nan_is_zero,
        )  # fmt: skip
        before: tuple[ir.Statement, ...] = ()
        if self.packs:
            scores, term, query = self.parts.scores, self.parts.scores.depth[0].variable, ir.Variable("query")
            value = substitute(scores.left, self._point(scores, outer, b.add(start, query)))
            before = (ir.For(query, height, "serial", self._rounded(self.queries, query, value, term, scores.terms)),)
            term = ir.Variable("term")
            value = ir.Load(self.scores, (row, term))
            softmax = ir.Block((softmax, self._rounded(self.weights, row, value, term, self.keys.columns.padded)))
        block = _Rows(outer, start, first, count)
        return ir.Block((*before, self._scores(block), ir.For(row, height, "serial", softmax), self._values(block)))

    def _rounded(
        self, rows: ir.Buffer, row: ir.Expression, value: ir.Expression, term: ir.Variable, terms: int
    ) -> ir.Statement:
        """Return what stores a row of ``terms`` values in bfloat16, zeros up to the end of the last vector."""
        lanes = self.tile.lanes

        def vector(begin: ir.Expression, mask: ir.Expression | None) -> ir.Statement:
            place = ramp(begin, lanes)
            elements = wide(vectorize_expression(value, {term: place}, mask), lanes)
            if mask is not None:
                elements = ir.Select(mask, elements, wide(ir.Constant(0.0, self.kind), lanes))
            return ir.Store(rows, (row, place), rounded(elements))

        return in_vectors("step", terms, lanes, vector)

    def _scores(self, block: _Rows) -> ir.Statement:
        """The product of queries and keys: what follows it is Softmax's, minus infinity behind the last key."""
        parts, lanes = self.parts.scores, self.tile.lanes

        def left(row: ir.Expression, own: ir.Expression) -> ir.Expression:
            if self.packs:
                return operand_at(self.queries, own, parts.depth[0].variable)
            return substitute(parts.left, self._point(parts, block.outer, row))

        def store(
            point: list[ir.Expression], own: ir.Expression, total: ir.Expression, mask: ir.Expression | None
        ) -> ir.Statement:
            score = wide(parts.epilogue.values(point, total, mask)[parts.epilogue.last], lanes)
            if mask is not None:
                score = ir.Select(mask, score, wide(ir.Constant(float("-inf"), self.kind), lanes))
            return ir.Store(self.scores, (own, point[-1]), score)

        return self._product(self.keys, block, left, store)

    def _values(self, block: _Rows) -> ir.Statement:
        """The product of weights and values, over the sum of the weights."""
        parts, lanes = self.parts.values, self.tile.lanes
        term = parts.depth[0].variable

        def left(row: ir.Expression, own: ir.Expression) -> ir.Expression:
            return operand_at(self.weights, own, term) if self.packs else ir.Load(self.scores, (own, term))

        def store(
            point: list[ir.Expression], own: ir.Expression, total: ir.Expression, mask: ir.Expression | None
        ) -> ir.Statement:
            total = b.multiply(total, wide(ir.Load(self.factors, (own,)), lanes))
            value = parts.epilogue.values(point, total, mask)[parts.epilogue.last]
            return ir.Store(self.parts.output, tuple(point[axis] for axis in self.parts.order), value, mask)

        return self._product(self.features, block, left, store)

    def _product(
        self,
        panels: Panels,
        block: _Rows,
        left: Callable[[ir.Expression, ir.Expression], ir.Expression],
        store: Callable[[list[ir.Expression], ir.Expression, ir.Expression, ir.Expression | None], ir.Statement],
    ) -> ir.Statement:
        """Return the loops over panels, then tiles of the rows of a block.

        ``left(row, own)`` is an element of a row, of which ``own`` is the number in the block;
        ``store(point, own, total, mask)`` stores a vector of sums.
        """
        term, lanes = panels.parts.depth[0].variable, self.tile.lanes
        start, depth = panels.parts.epilogue.initial, [Reduced(term, panels.terms)]
        multiply = Multiply("dot2_bf16") if self.packs else None

        def tile(begin: ir.Expression, height: int, panel: Panel) -> ir.Statement:
            shape = replace(panels.tile, rows=height, vectors=panel.vectors)
            local = b.subtract(begin, block.start)

            def right(vector: int) -> ir.Expression:
                return ir.Load(panels.buffer, (panels.place(panel, term, vector),))

            def stored(row: int, vector: int, place: tuple[ir.Expression, ...], totals: ir.Buffer) -> ir.Statement:
                point = [*block.outer.values(), b.add(begin, row), ramp(panels.column(panel, vector), lanes)]
                mask = panels.columns.mask(panel, vector)
                return store(point, b.add(local, row), ir.Load(totals, place), mask)

            return accumulate(
                shape, self.kind, clear(shape, start), depth,
                lambda row: left(b.add(begin, row), b.add(local, row)), right,
                lambda totals: each(shape, lambda row, vector, place: stored(row, vector, place, totals)),
                multiply=multiply,
            )  # fmt: skip

        def rows(panel: Panel) -> ir.Statement:
            step = ir.Variable("tile")
            number = b.add(block.first, step)
            chosen = self.rows.choose(number, lambda height: tile(self.rows.begin(number), height, panel))
            return ir.For(step, block.count, "serial", chosen)

        return panels.columns.over("parallel", rows)

    def _point(self, parts: Contraction, outer: Outer, row: ir.Expression) -> dict[ir.Variable, ir.Expression]:
        assert parts.rows is not None, "attention with a single row"
        return {**{parts.axes[axis]: index for axis, index in outer.items()}, parts.axes[parts.rows]: row}


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    return schedule_attention(anchor.kernel, target, anchor.parameters) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    parts = analyse_attention(anchor.kernel)
    own = of_family(anchor.parameters, AttentionParameters) or AttentionParameters()
    if parts is None or stage > 1:
        return []
    if stage == 1:
        first = target.machine.working_set(1)
        return [replace(own, score_bytes=int(share * first)) for share in SCORE_SHARES]
    tiles = best_tiles(parts.scores.height, parts.values.width, parts.scores.left.type.dtype, target)
    return [replace(own, rows=tile.rows, vectors=tile.vectors) for tile in tiles]


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    parts = analyse_attention(anchor.kernel)
    return None if parts is None else _packs_factors(parts, target)


STRATEGY = Strategy(
    "fused_attention", frozenset({Trait.ATTENTION}), _build, candidates=_candidates, rounds=_rounds, switch="attention"
)
