"""The schedule of products of few rows by constant weights of 4 or 8 bits with scales for blocks of terms.

Such a product is as fast as its weights come from memory, so they stay as narrow as they are and are widened in the
innermost loop. They lie in panels of some vectors of columns, each panel ``[terms, columns]``; of 4 bits, two
neighbouring terms of a column share a byte, the first in the low half. Each block is summed by itself, then scaled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.operators.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapse_rows, with_sources
from graft.core.schedule.loops.vectorize import instantiate, vectorize_expression
from graft.core.schedule.products.product_axes import Contraction, contraction_of
from graft.core.schedule.products.statements import LINE, allocate, multiply_add, ramp, wide
from graft.core.schedule.strategy import OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.ir import (
    Binary,
    Block,
    Buffer,
    CallExtern,
    Cast,
    Constant,
    Expression,
    For,
    Load,
    Statement,
    Store,
)
from graft.core.tensor_ir.ir import Variable as Index
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, substitute, walk_expressions

NARROW = ("uint8", "int8")
MOST_ROWS = 8
VECTORS = 8
"""Sums that are computed at one time: at most so many vectors, in all rows."""

AHEAD = 4096
"""Bytes of weights that are fetched so far ahead of use."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A product by narrow weights: ``value`` widens an element of ``source``, ``scale`` is that of its block."""

    parts: Contraction
    source: Load
    value: Expression
    scale: Expression
    block: int
    halves: int
    """The weights in a byte."""


def narrow_of(kernel: Kernel) -> Narrow | None:
    """Return the product by narrow weights that a kernel is around; None if it is none."""
    if not any(buffer.dtype in NARROW for buffer in kernel.constants):
        return None
    parts = contraction_of(kernel)
    if parts is None or parts.multiply.dot or len(parts.depth) != 1 or parts.batch != 1 or parts.height > MOST_ROWS:
        return None
    right, depth, column = parts.right, parts.depth[0], parts.column
    if parts.total.dtype != "float32" or parts.epilogue.branches or not isinstance(parts.left, Load):
        return None
    if not (isinstance(right, Binary) and right.operator == "mul" and right.type.dtype == "float32"):
        return None
    own = [load for load in loads(right.left) if tuple(load.indices) == (depth.variable, column)]
    blocks = {size for node in walk_expressions(right.right) if (size := _block_of(node, depth.variable))}
    if len(own) != 1 or len(blocks) != 1 or own[0].buffer not in kernel.constants or own[0].mask is not None:
        return None
    source, block = own[0], blocks.pop()
    others = (parts.left, right.right, *(stage.value for stage in parts.epilogue.every))
    if source.buffer.dtype not in NARROW or any(load.buffer is source.buffer for load in loads(*others)):
        return None
    halves = 2 if any(_is_half(node) for node in walk_expressions(right.left)) else 1
    if (
        parts.terms % block
        or block % halves
        or depth.variable in free_variables(_of_block(right.right, depth.variable, b.index(0)))
    ):
        return None
    return Narrow(parts, source, right.left, right.right, block, halves)


def _block_of(node: Expression, term: Index) -> int:
    """Return the terms of a block where a node is the number of a term's block, otherwise 0."""
    if not isinstance(node, Binary) or node.operator != "div" or node.left is not term:
        return 0
    return int(node.right.value) if isinstance(node.right, Constant) else 0


def _is_half(node: Expression) -> bool:
    return isinstance(node, Binary) and node.operator == "and" and node.right == Constant(15, node.type)


def _of_block(value: Expression, term: Index, block: Expression) -> Expression:
    """Return the value for all terms of a block."""
    return ExpressionMap(lambda node: block if _block_of(node, term) else node)(value)


@dataclass(frozen=True, slots=True)
class _Panels:
    """The loops of a product: panels of ``vectors`` vectors of ``lanes`` columns, of which ``packed`` holds bytes."""

    narrow: Narrow
    packed: Buffer
    lanes: int
    vectors: int

    def body(self) -> Statement:
        """Return the loop over all panels."""
        panel, block = Index("panel"), Index("block")
        count = self.narrow.parts.height * self.vectors * self.lanes
        totals, sums = (Buffer(name, "float32", (b.index(count),), memory="register") for name in ("totals", "sums"))
        steps, step = self.narrow.block // self.narrow.halves, Index("step")
        inner = Block((
            self._cleared(sums),
            For(step, b.index(steps), "serial", self._step(panel, block, step, sums)),
            *self._scaled(panel, block, sums, totals),
        ))  # fmt: skip
        blocks = For(block, b.index(self.narrow.parts.terms // self.narrow.block), "serial", inner)
        start = self._cleared(totals, self.narrow.parts.epilogue.initial)
        whole = Block((start, blocks, *self._stores(panel, totals)))
        panels = self.narrow.parts.width // (self.lanes * self.vectors)
        return For(panel, b.index(panels), "parallel", instantiate(allocate((totals, sums), whole), {}))

    def _column(self, panel: Expression, vector: int) -> Expression:
        return ramp(b.add(b.multiply(panel, self.vectors * self.lanes), vector * self.lanes), self.lanes)

    def _place(self, row: int, vector: int) -> tuple[Expression, ...]:
        return (ramp(b.index((row * self.vectors + vector) * self.lanes), self.lanes),)

    def _places(self) -> list[tuple[int, int]]:
        return [(row, vector) for vector in range(self.vectors) for row in range(self.narrow.parts.height)]

    def _cleared(self, sums: Buffer, value: Expression | None = None) -> Statement:
        start = wide(b.constant(0, "float32") if value is None else value, self.lanes)
        return Block(tuple(Store(sums, self._place(*place), start) for place in self._places()))

    def _step(self, panel: Expression, block: Expression, step: Expression, sums: Buffer) -> Statement:
        """Return what adds the terms of one byte of each column."""
        narrow, parts = self.narrow, self.narrow.parts
        steps = narrow.block // narrow.halves
        byte = b.add(b.multiply(b.add(b.multiply(panel, parts.terms // narrow.block), block), steps), step)
        begin = b.multiply(byte, self.vectors * self.lanes)
        ahead = (b.add(begin, AHEAD + line) for line in range(0, self.vectors * self.lanes, LINE))
        adding: list[Statement] = [CallExtern("prefetch", (Load(self.packed, (place,)), b.index(2))) for place in ahead]
        for vector in range(self.vectors):
            first = b.add(b.multiply(byte, self.vectors * self.lanes), vector * self.lanes)
            stored = Load(self.packed, (ramp(first, self.lanes),))
            for half in range(narrow.halves):
                term = b.add(b.multiply(b.add(b.multiply(block, steps), step), narrow.halves), half)
                weight = self._widened(stored, half, block, self._column(panel, vector))
                for row in range(parts.height):
                    left = wide(self._left(row, term), self.lanes)
                    place = self._place(row, vector)
                    adding.append(Store(sums, place, multiply_add(left, weight, Load(sums, place))))
        return Block(tuple(adding))

    def _widened(self, stored: Expression, half: int, block: Expression, column: Expression) -> Expression:
        """Return the weights in one half of each byte."""
        narrow = self.narrow
        element: Expression = Cast(stored, "int32")
        if half:
            element = Binary("shr", element, wide(b.constant(4, "int32"), self.lanes))
        variable = Index("weight", element.type)
        term = narrow.parts.depth[0].variable

        def read(node: Expression) -> Expression:
            if isinstance(node, Cast) and node.value == narrow.source:
                return variable
            return block if _block_of(node, term) else node

        value = ExpressionMap(read)(narrow.value)
        return wide(vectorize_expression(value, {variable: element, narrow.parts.column: column}), self.lanes)

    def _left(self, row: int, term: Expression) -> Expression:
        parts = self.narrow.parts
        places: dict[Index, Expression] = {axis: b.index(0) for axis in parts.axes}
        if parts.rows is not None:
            places[parts.axes[parts.rows]] = b.index(row)
        return substitute(parts.left, {**places, parts.depth[0].variable: term})

    def _scaled(self, panel: Expression, block: Expression, sums: Buffer, totals: Buffer) -> list[Statement]:
        narrow = self.narrow
        scale = _of_block(narrow.scale, narrow.parts.depth[0].variable, block)
        adding: list[Statement] = []
        for row, vector in self._places():
            place = self._place(row, vector)
            factor = vectorize_expression(scale, {narrow.parts.column: self._column(panel, vector)})
            value = multiply_add(wide(factor, self.lanes), Load(sums, place), Load(totals, place))
            adding.append(Store(totals, place, value))
        return adding

    def _stores(self, panel: Expression, totals: Buffer) -> list[Statement]:
        parts, stores = self.narrow.parts, list[Statement]()
        for row, vector in self._places():
            point: list[Expression] = [b.index(0) for _ in parts.axes]
            if parts.rows is not None:
                point[parts.rows] = b.index(row)
            point[parts.columns] = self._column(panel, vector)
            stores += parts.epilogue.stores(point, Load(totals, self._place(row, vector)), None)
        return stores


def packed_weights(weights: np.ndarray, columns: int, halves: int) -> np.ndarray:
    """Return ``[terms, width]`` weights as panels of so many columns, two terms in a byte where there are halves."""
    terms, width = weights.shape
    whole: np.ndarray = weights.view(np.uint8)
    if halves == 2:
        whole = (whole[0::2] & 15) | (whole[1::2] << 4)
    panels = whole.reshape(terms // halves, width // columns, columns).swapaxes(0, 1)
    return np.ascontiguousarray(panels).reshape(-1)


def _applies(anchor: Anchor, target: Target) -> Answer:
    kernel, _ = collapse_rows(anchor.kernel) or (anchor.kernel, {})
    narrow, lanes = narrow_of(kernel), target.vector_bytes // 4
    if narrow is None:
        return OTHER_FORM
    if lanes < 2 or narrow.parts.width % lanes:
        return Reject("shape", f"{narrow.parts.width} columns are no whole vectors of {lanes}")
    return True


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    kernel, sources = collapse_rows(anchor.kernel) or (anchor.kernel, {})
    narrow, lanes = narrow_of(kernel), target.vector_bytes // 4
    assert narrow is not None, "built only where it applies"
    most = max(1, VECTORS // narrow.parts.height)
    vectors = next(count for count in range(most, 0, -1) if narrow.parts.width % (count * lanes) == 0)
    source = narrow.source.buffer
    contents = packed_weights(kernel.constants[source], vectors * lanes, narrow.halves)
    dtype = "uint8" if narrow.halves == 2 else source.dtype
    buffer = Buffer(f"{source.name}_packed", dtype, (b.index(contents.size),))
    panels = _Panels(narrow, buffer, lanes, vectors)
    knobs: dict[str, int | str] = {"rows": narrow.parts.height, "vectors": vectors, "bits": 8 // narrow.halves}
    found = Scheduled(
        lambda: kernel.function(panels.body(), {source: buffer}), {source: contents.view(dtype)}, knobs=knobs
    )
    return with_sources(found, sources)


STRATEGY = Strategy("narrow_weights", frozenset({Trait.CONTRACTION}), _build, _applies)
