"""The schedule of attention: scores, mask, Softmax and the product with the values in one kernel.

For each head, keys and values are copied into panels as wide as a register tile. Then blocks of query rows are taken
one after another: their scores against all keys stay in scratch memory of the first-level cache, rows become weights
there, and the weights times the values leave as the result. The scores of a whole head are never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.operators.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.loops.vectorize import instantiate, vectorize_expression
from graft.core.schedule.parameters import AttentionParameters, Parameters, of_family
from graft.core.schedule.products.dot_grouping import word
from graft.core.schedule.products.factors import EMULATED_REGISTERS
from graft.core.schedule.products.product_axes import Contraction, Multiply
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import (
    Reduced,
    Tile,
    accumulate,
    adjusted_tile,
    choose_tile,
    clear,
    column_mask,
    over,
    ramp,
    split_evenly,
    wide,
)
from graft.core.schedule.strategies.attention_parts import Attention, analyse_attention
from graft.core.schedule.strategies.blocked_product import Outer, Panel
from graft.core.schedule.strategies.softmax_row import softmax_row
from graft.core.schedule.strategies.tiled_transpose import transpose
from graft.core.schedule.strategy import OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.ir import (
    Allocate,
    Bitcast,
    Block,
    Buffer,
    Constant,
    Expression,
    For,
    Function,
    If,
    Let,
    Load,
    Select,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.visit import substitute
from graft.core.types import Type, element_bits

SCORE_SHARE = 1.0
"""The scores of a block of rows, as a part of the first-level cache."""
SCORE_SHARES = (1 / 4, 1 / 2, 2, 4, 8)
"""Such parts that tuning tries."""
MIN_HEADS = 8
"""From so many heads on the heads are spread over threads, else the blocks of rows of each head."""

TileMaker = Callable[[Expression, int, Panel], Statement]
"""From the first row, the height and the panel to the statement of a tile."""


def schedule_attention(kernel: Kernel, target: Target, parameters: Parameters | None = None) -> Scheduled | None:
    """Return attention in blocks of rows, None if the kernel's stages are not those of attention."""
    parts = analyse_attention(kernel)
    if parts is None or not Type(parts.scores.left.type.dtype).is_float:
        return None
    return AttentionScheduler(kernel, parts, target, of_family(parameters, AttentionParameters)).scheduled()


class Panels:
    """The right factor of one of the products in panels ``[terms, columns]`` in scratch memory, filled at run time."""

    def __init__(self, name: str, parts: Contraction, tile: Tile, *, words: bool) -> None:
        self.parts, self.tile, self.words = parts, tile, words
        self.terms = -(-parts.terms // 2) if words else parts.terms
        """The rows of a panel: a row of words holds two terms in bfloat16."""
        self.count = -(-parts.width // tile.columns)
        self.full = parts.width // tile.columns
        self.padded = -(-parts.width // tile.lanes) * tile.lanes
        dtype = "int32" if words else parts.right.type.dtype
        self.buffer = Buffer(name, dtype, (b.index(self.padded * self.terms),), memory="scratch", alignment=64)

    def loop(self, body: Callable[[Panel], Statement]) -> Statement:
        """Return the loop over the panels."""
        lanes = self.tile.lanes
        number = Variable("panel") if self.count > 1 else b.index(0)
        begin = b.multiply(number, self.tile.columns)
        tail = self.padded // lanes - self.full * self.tile.vectors
        bodies = [body(Panel(number, begin, self.tile.vectors, False))] if self.full else []
        bodies += [body(Panel(number, begin, tail, self.padded > self.parts.width))] if tail else []
        chosen = bodies[0] if len(bodies) == 1 else If(b.less(number, self.full), *bodies)
        return over(number, self.count, "parallel", chosen)

    def column(self, panel: Panel, vector: int) -> Expression:
        """Return the first column of a vector of a panel."""
        return b.add(panel.begin, vector * self.tile.lanes)

    def place(self, panel: Panel, term: Expression, vector: int) -> Expression:
        """Return where a vector of a panel stands in the buffer."""
        begin = b.multiply(panel.begin, self.terms)
        row = b.multiply(term, panel.vectors * self.tile.lanes)
        return ramp(b.add(b.add(begin, row), vector * self.tile.lanes), self.tile.lanes)

    def mask(self, panel: Panel, vector: int) -> Expression | None:
        """Return which lanes of a vector are columns; None if all are."""
        if not panel.cut or vector != panel.vectors - 1:
            return None
        return column_mask(self.column(panel, vector), self.parts.width, self.tile.lanes)

    # ---- Filling ----

    def fill(self, outer: Outer) -> Statement:
        """Return the loops that copy the factor of one head into the panels."""
        if self._is_transposed():
            return self.loop(lambda panel: self._turned(outer, panel))
        return self.loop(lambda panel: self._copied(outer, panel))

    def _is_transposed(self) -> bool:
        """Whether the factor is contiguous along the terms, in whole vectors."""
        right, lanes = self.parts.right, self.tile.lanes
        return (
            isinstance(right, Load)
            and right.mask is None
            and right.indices[-1] is self.parts.depth[0].variable
            and lanes >= 4
            and self.parts.terms % (2 * lanes if self.words else lanes) == 0
        )

    def _copied(self, outer: Outer, panel: Panel) -> Statement:
        term, lanes = self.parts.depth[0].variable, self.tile.lanes
        fresh = Variable("term")
        row = substitute(self.parts.right, {term: fresh})
        if self.words:
            row = word(rounded(self.parts.right), term, fresh, self.parts.terms, 2)
        stores = []
        for vector in range(panel.vectors):
            places = {**self._outer(outer), self.parts.column: ramp(self.column(panel, vector), lanes)}
            value = vectorize_expression(row, places, self.mask(panel, vector))
            stores.append(Store(self.buffer, (self.place(panel, fresh, vector),), wide(value, lanes)))
        return For(fresh, b.index(self.terms), "serial", Block(tuple(stores)))

    def _turned(self, outer: Outer, panel: Panel) -> Statement:
        """Square tiles read along the terms and turned in registers; columns beyond the last repeat the last."""
        lanes, block = self.tile.lanes, Variable("terms")
        run = 2 * lanes if self.words else lanes
        statements = []
        for vector in range(panel.vectors):
            bindings: list[tuple[Variable, Expression]] = []
            rows = []
            for lane in range(lanes):
                column = b.add(self.column(panel, vector), lane)
                if self.mask(panel, vector) is not None:
                    column = b.minimum(column, b.index(self.parts.width - 1))
                along = ramp(b.multiply(block, run), run)
                places = {**self._outer(outer), self.parts.depth[0].variable: along, self.parts.column: column}
                value = vectorize_expression(self.parts.right, places)
                value = Bitcast(rounded(value), "int32") if self.words else value
                rows.append(Variable(f"r{lane}", value.type))
                bindings.append((rows[-1], value))
            turned = transpose(rows, bindings)
            stores = [
                Store(self.buffer, (self.place(panel, b.add(b.multiply(block, lanes), step), vector),), value)
                for step, value in enumerate(turned)
            ]
            body: Statement = Block(tuple(stores))
            for variable, value in reversed(bindings):
                body = Let(variable, value, body)
            statements.append(body)
        return For(block, b.index(self.parts.terms // run), "serial", Block(tuple(statements)))

    def _outer(self, outer: Outer) -> dict[Variable, Expression]:
        return {self.parts.axes[axis]: index for axis, index in outer.items()}


def _has_words(parts: Attention, target: Target) -> bool:
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
        self.words = _has_words(parts, target)
        """Whether factors are rounded to bfloat16, two of them in a word."""
        self.chains = target.machine.costs.latency
        busy = EMULATED_REGISTERS if self.words and not target.machine.has("dot2_bf16") else 0
        chosen = choose_tile(scores.height, values.width, self.kind.dtype, target, busy)
        self.tile = adjusted_tile(chosen, scores.height, values.width, wanted.rows, wanted.vectors)
        self.rows = split_evenly(scores.height, self.tile.rows)
        wider = replace(self.tile, vectors=min(self.tile.vectors, -(-scores.width // self.tile.lanes)))
        self.keys = Panels("keys", scores, wider, words=self.words)
        self.features = Panels("values", values, self.tile, words=self.words)
        row_bytes = self.keys.padded * element_bits(self.kind.dtype) // 8
        highest = self.rows.size + (self.rows.larger > 0)
        most_bytes = wanted.score_bytes or int(SCORE_SHARE * target.machine.working_set(1))
        self.blocks = split_evenly(self.rows.count, max(1, most_bytes // (row_bytes * highest)))
        most = highest * (self.blocks.size + (self.blocks.larger > 0))
        shape = (b.index(most), b.index(self.keys.padded))
        self.scores = Buffer("scores", self.kind.dtype, shape, memory="scratch", alignment=64)
        self.factors = Buffer("factors", self.kind.dtype, (b.index(most),), memory="scratch", alignment=64)
        length = -(-scores.terms // self.tile.lanes) * self.tile.lanes
        shapes = {"queries": (most, length), "weights": (most, self.keys.padded)}
        self.queries, self.weights = (
            Buffer(name, "bfloat16", tuple(map(b.index, shape)), memory="scratch", alignment=64)
            for name, shape in shapes.items()
        )

    def scheduled(self) -> Scheduled:
        """Build the function."""
        body = instantiate(self._heads(), {})
        parameters = (*self.kernel.inputs, *self.kernel.outputs)
        knobs = {"rows": self.tile.rows, "vectors": self.tile.vectors, "blocks": self.blocks.count}
        return Scheduled(Function(self.kernel.name, parameters, 1, body, self.kernel.origin), knobs=knobs)

    def _heads(self) -> Statement:
        parts = self.parts.scores
        outer: Outer = {axis: Variable(f"outer{axis}") if parts.shape[axis] > 1 else b.index(0) for axis in parts.outer}
        statement = self._head(outer)
        kind = "parallel" if prod(parts.shape[axis] for axis in parts.outer) >= MIN_HEADS else "serial"
        for axis, index in reversed(outer.items()):
            statement = over(index, parts.shape[axis], kind, statement)  # type: ignore[arg-type]
        return statement

    def _head(self, outer: Outer) -> Statement:
        block = Variable("block") if self.blocks.count > 1 else b.index(0)
        first = self.blocks.begin(block)
        count = b.subtract(self.blocks.begin(b.add(block, 1)), first)
        one: Statement = Allocate(self.scores, Allocate(self.factors, self._block(outer, first, count)))
        if self.words:
            one = Allocate(self.queries, Allocate(self.weights, one))
        whole = over(block, self.blocks.count, "parallel", one)
        filled = Block((self.keys.fill(outer), self.features.fill(outer), whole))
        return Allocate(self.keys.buffer, Allocate(self.features.buffer, filled))

    def _block(self, outer: Outer, first: Expression, count: Expression) -> Statement:
        """The scores of a block of tiles, Softmax of its rows, and their product with the values."""
        start = self.rows.begin(first)
        row = Variable("row")
        height = b.subtract(self.rows.begin(b.add(first, count)), start)
        softmax = softmax_row(
            self.scores, self.factors, row, self.tile.lanes, self.chains, empty_is_zero=self.parts.empty_is_zero
        )
        before: tuple[Statement, ...] = ()
        if self.words:
            scores, term, query = self.parts.scores, self.parts.scores.depth[0].variable, Variable("query")
            value = substitute(scores.left, self._point(scores, outer, b.add(start, query)))
            before = (For(query, height, "serial", self._rounded(self.queries, query, value, term, scores.terms)),)
            term = Variable("term")
            value = Load(self.scores, (row, term))
            softmax = Block((softmax, self._rounded(self.weights, row, value, term, self.keys.padded)))
        return Block(
            (
                *before,
                self._product(self.keys, first, count, self._score_tile(outer, start)),
                For(row, height, "serial", softmax),
                self._product(self.features, first, count, self._value_tile(outer, start)),
            )
        )

    def _rounded(self, rows: Buffer, row: Expression, value: Expression, term: Variable, terms: int) -> Statement:
        """Return what stores a row of ``terms`` values in bfloat16, zeros up to the end of the last vector."""
        lanes = self.tile.lanes
        whole, rest = divmod(terms, lanes)

        def vector(begin: Expression, mask: Expression | None) -> Statement:
            place = ramp(begin, lanes)
            elements = wide(vectorize_expression(value, {term: place}, mask), lanes)
            if mask is not None:
                elements = Select(mask, elements, wide(Constant(0.0, self.kind), lanes))
            return Store(rows, (row, place), rounded(elements))

        step, statements = Variable("step"), []
        if whole:
            statements.append(over(step, whole, "serial", vector(b.multiply(step, lanes), None)))
        if rest:
            begin = b.index(whole * lanes)
            statements.append(vector(begin, column_mask(begin, terms, lanes)))
        return Block(tuple(statements))

    def _product(
        self,
        panels: Panels,
        first: Expression,
        count: Expression,
        tile: TileMaker,
    ) -> Statement:
        """The loops over panels, then tiles of rows; one head and block."""

        def rows(panel: Panel) -> Statement:
            step = Variable("tile")
            number = b.add(first, step)
            bodies = [tile(self.rows.begin(number), height, panel) for _, height in self.rows.sizes]
            chosen = bodies[0] if len(bodies) == 1 else If(b.less(number, self.rows.larger), *bodies)
            return For(step, count, "serial", chosen)

        return panels.loop(rows)

    def _score_tile(self, outer: Outer, start: Expression) -> TileMaker:
        parts, keys, lanes = self.parts.scores, self.keys, self.tile.lanes

        def make(begin: Expression, height: int, panel: Panel) -> Statement:
            tile = replace(keys.tile, rows=height, vectors=panel.vectors)

            def left(row: int) -> Expression:
                if self.words:
                    return _word(self.queries, b.add(b.subtract(begin, start), row), parts.depth[0].variable)
                return substitute(parts.left, self._point(parts, outer, b.add(begin, row)))

            def finish(totals: Buffer) -> Statement:
                stores = []
                for row in range(height):
                    for vector in range(panel.vectors):
                        place = ramp(keys.column(panel, vector), lanes)
                        point = self._at(outer, b.add(begin, row), place)
                        mask = keys.mask(panel, vector)
                        total = Load(totals, (b.index(row), ramp(b.index(vector * lanes), lanes)))
                        score = wide(parts.epilogue.values(point, total, mask)[parts.epilogue.last], lanes)
                        if mask is not None:
                            score = Select(mask, score, wide(Constant(float("-inf"), self.kind), lanes))
                        stores.append(Store(self.scores, (b.add(b.subtract(begin, start), row), place), score))
                return Block(tuple(stores))

            return self._accumulated(keys, tile, panel, left, finish)

        return make

    def _value_tile(self, outer: Outer, start: Expression) -> TileMaker:
        parts, features, lanes = self.parts.values, self.features, self.tile.lanes

        def make(begin: Expression, height: int, panel: Panel) -> Statement:
            tile = replace(features.tile, rows=height, vectors=panel.vectors)
            local = b.subtract(begin, start)

            def left(row: int) -> Expression:
                if self.words:
                    return _word(self.weights, b.add(local, row), parts.depth[0].variable)
                return Load(self.scores, (b.add(local, row), parts.depth[0].variable))

            def finish(totals: Buffer) -> Statement:
                stores = []
                for row in range(height):
                    factor = wide(Load(self.factors, (b.add(local, row),)), lanes)
                    for vector in range(panel.vectors):
                        place = ramp(features.column(panel, vector), lanes)
                        point = self._at(outer, b.add(begin, row), place)
                        mask = features.mask(panel, vector)
                        total = Load(totals, (b.index(row), ramp(b.index(vector * lanes), lanes)))
                        value = parts.epilogue.values(point, b.multiply(total, factor), mask)[parts.epilogue.last]
                        target = tuple(point[axis] for axis in self.parts.order)
                        stores.append(Store(self.parts.output, target, value, mask))
                return Block(tuple(stores))

            return self._accumulated(features, tile, panel, left, finish)

        return make

    def _accumulated(
        self,
        panels: Panels,
        tile: Tile,
        panel: Panel,
        left: Callable[[int], Expression],
        finish: Callable[[Buffer], Statement],
    ) -> Statement:
        parts = panels.parts
        reduction = parts.epilogue.anchor.reduction
        assert reduction is not None, "a product without a sum"
        term = parts.depth[0].variable

        def right(vector: int) -> Expression:
            return Load(panels.buffer, (panels.place(panel, term, vector),))

        multiply = Multiply("dot2_bf16") if self.words else None
        depth = [Reduced(term, panels.terms)]
        start = clear(tile, reduction.initial)
        return accumulate(tile, self.kind, start, depth, left, right, finish, multiply=multiply)

    def _point(self, parts: Contraction, outer: Outer, row: Expression) -> dict[Variable, Expression]:
        assert parts.rows is not None, "attention with a single row"
        return {**{parts.axes[axis]: index for axis, index in outer.items()}, parts.axes[parts.rows]: row}

    def _at(self, outer: Outer, row: Expression, column: Expression) -> list[Expression]:
        return [*(outer[axis] for axis in range(len(outer))), row, column]


def _word(rows: Buffer, row: Expression, place: Expression) -> Expression:
    """Return two neighbouring bfloat16 of a row."""
    return Bitcast(Load(rows, (row, ramp(b.multiply(place, 2), 2))), "int32")


def _applies(anchor: Anchor, target: Target) -> Answer:
    if "attention" in target.without:
        return Reject("user-excluded", "attention in one kernel is switched off")
    return True


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
    return None if parts is None else _has_words(parts, target)


STRATEGY = Strategy("fused_attention", frozenset({Trait.ATTENTION}), _build, _applies, _candidates, rounds=_rounds)
