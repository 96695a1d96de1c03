"""The schedule of depthwise convolutions: rows of the output directly, a few vectors of pixels of some rows at a time.

The window is written out, so that weights are scalars in registers and neighbouring rows share input vectors. Rows
whose windows stay inside the input, nearly all, have loops of their own in which nothing is asked about the border.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.accumulate import joined
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.parameters import DepthwiseParameters, Parameters, of_family
from graft.core.schedule.primitives.statements import column_mask, multiply_add, nest, ramp, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression, zero_of
from graft.core.schedule.products.convolution import written_out
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.ir import Block, Expression, For, Let, Stage, Statement, Variable
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.verifying.anchor_rules import image_and_weights
from graft.core.tensor_ir.visit import free_variables, loads, substitute

MIN_CHANNELS = 4
"""Groups of fewer output channels are computed directly."""
ROWS_AND_SUMS = ((1, 8), (1, 12), (2, 8), (2, 12), (2, 16), (3, 12), (4, 16), (4, 20))
CHAINS = (4, 12, 16)
"""What tuning tries."""
MAX_WINDOW = 128
MAX_SUMS = 12
"""Sums that are computed side by side: enough to hide the latency of multiply-adds, few enough for the registers."""
MIN_CHAINS = 8
MAX_ROWS = 4
MAX_TERMS = 400
"""Products that are written out one after another; more would take long to compile."""

Ranges = dict[Variable, tuple[int, int]]


def schedule_depthwise(
    kernel: Kernel, stages: Sequence[Stage], target: Target, wanted: DepthwiseParameters | None = None
) -> Scheduled | None:
    """Return the kernel with planes in parallel and rows in vectors; None if it has another form or a large window."""
    epilogue = epilogue_of(stages, kernel.outputs)
    parts = None if epilogue is None else _analyse(epilogue, target, wanted or DepthwiseParameters())
    if parts is None:
        return None
    knobs = parts.parameters
    chosen = {"rows": knobs.rows or MAX_ROWS, "sums": knobs.sums or MAX_SUMS, "chains": knobs.chains or MIN_CHAINS}
    return Scheduled(kernel.function(parts.body()), knobs=chosen)


@dataclass(frozen=True, slots=True)
class _Depthwise:
    """A depthwise convolution taken apart: ``terms`` are (weight, pixel) for each position of the window."""

    epilogue: Epilogue
    shape: tuple[int, ...]
    terms: tuple[tuple[Expression, Expression], ...]
    initial: Expression
    lanes: int
    parameters: DepthwiseParameters

    @property
    def axes(self) -> tuple[Variable, ...]:
        """One variable per axis of the output; the last two are rows and columns (of one dimension: only columns)."""
        return self.epilogue.anchor.axes

    def body(self) -> Statement:
        """Return the loops over planes, then rows inside and rows at the border."""
        first, count = self._interior()

        def plane(indices: dict[int, Expression]) -> Statement:
            outer = list(indices.values())
            return Block((*self._inner_rows(outer, first, count), *self._border_rows(outer, first, count)))

        return nest("i", dict(enumerate(self.shape[: self._row_axis])), "parallel", plane)

    @property
    def _row_axis(self) -> int:
        """The axis of rows; with one spatial dimension there is none, and its number is the rank."""
        return len(self.shape) - 2 if len(self.shape) > 3 else len(self.shape) - 1

    @property
    def _row_count(self) -> int:
        return self.shape[self._row_axis] if len(self.shape) > 3 else 1

    @property
    def _sums(self) -> int:
        return self.parameters.sums or MAX_SUMS

    @property
    def _vectors(self) -> int:
        return -(-self.shape[-1] // self.lanes)

    def _interior(self) -> tuple[int, int]:
        """Return the first row and the number of rows whose windows stay inside the input."""
        if len(self.shape) == 3:
            return 0, 1
        rows = range(self._row_count)
        first = next((row for row in rows if self._stays_inside(row)), None)
        if first is None:
            return 0, 0
        last = next(row for row in reversed(rows) if self._stays_inside(row))
        return first, last + 1 - first

    def _inner_rows(self, outer: list[Expression], first: int, count: int) -> list[Statement]:
        """Return the loop over the inner rows, some at a time; the last step may repeat rows of the one before."""
        if not count:
            return []
        most = max(1, MAX_TERMS // (len(self.terms) * self._vectors))
        height = max(1, min(self.parameters.rows or MAX_ROWS, self._sums // self._vectors, most, count))
        row = Variable("row")

        def rows(step: Expression) -> Statement:
            begin = b.multiply(step, height)
            begin = b.minimum(begin, count - height) if count % height else begin
            pieces = self._pieces(outer, row, height, {row: (first, first + count - height)})
            return Let(row, b.add(begin, first), Block(tuple(pieces)))

        return [loop(-(-count // height), rows, name="rows")]

    def _border_rows(self, outer: list[Expression], first: int, count: int) -> list[Statement]:
        """Return the loop over the rows before and after the inner ones."""
        border = self._row_count - count
        if not border:
            return []
        step, row = Variable("border"), Variable("row")
        place = b.add(step, b.select(b.less(step, first), b.index(0), b.index(count)))
        body = Let(row, place, Block(tuple(self._pieces(outer, row, 1, {row: (0, self._row_count - 1)}))))
        return [For(step, b.index(border), "serial", body)]

    def _stays_inside(self, row: int) -> bool:
        """Whether no pixel that an output row reads lies above or below the input."""
        columns = {self.axes[-1]: (0, self.shape[-1] - 1)}
        for _, pixel in self.terms:
            found = loads(simplify(substitute(pixel, {self.axes[self._row_axis]: b.index(row)}), columns))
            if len(found) != len(loads(pixel)) or any(load.mask == b.constant(False, "bool") for load in found):
                return False
        return True

    def _pieces(self, outer: list[Expression], row: Variable, rows: int, ranges: Ranges) -> list[Statement]:
        """Return the statements of ``rows`` rows from ``row`` on, in pieces of so many vectors as sums."""
        places = [[*outer, b.add(row, number)] if len(self.shape) > 3 else outer for number in range(rows)]
        terms = [self._terms_at(place, ranges) for place in places]
        most = max(1, self._sums // rows)
        size = -(-self._vectors // -(-self._vectors // most))
        pieces = []
        for begin in range(0, self._vectors, size):
            vectors = range(begin, min(begin + size, self._vectors))
            pieces.append(
                self._piece([(place, own, v) for v in vectors for place, own in zip(places, terms, strict=True)])
            )
        return pieces

    def _terms_at(self, place: list[Expression], ranges: Ranges) -> list[tuple[Expression, Expression]]:
        scalars = dict(zip(self.axes[:-1], place, strict=True))
        return [
            (substitute(weight, scalars), simplify(substitute(pixel, scalars), ranges)) for weight, pixel in self.terms
        ]

    def _piece(self, parts: list[tuple[list[Expression], list[tuple[Expression, Expression]], int]]) -> Statement:
        """Return the sums of some (row, terms, vector), all of them before the first store, then the stores."""
        sums: list[tuple[Variable, Expression]] = []
        stores: list[Statement] = []
        for place, terms, vector in parts:
            column = ramp(vector * self.lanes, self.lanes)
            cut = (vector + 1) * self.lanes > self.shape[-1]
            mask = column_mask(vector * self.lanes, self.shape[-1], self.lanes) if cut else None
            factors = [(weight, vectorize_expression(pixel, {self.axes[-1]: column}, mask)) for weight, pixel in terms]
            total = self._total(factors, max(1, (self.parameters.chains or MIN_CHAINS) // len(parts)))
            sums.append((Variable(f"sum{len(sums)}", total.type), total))
            stores += self.epilogue.stores([*place, column], sums[-1][0], mask)
        return bind(sums, Block(tuple(stores)))

    def _total(self, factors: list[tuple[Expression, Expression]], chains: int) -> Expression:
        """Return the sum of products, as so many sums side by side that multiply-adds need not wait for each other."""
        totals: list[Expression] = []
        for first in range(min(chains, len(factors))):
            total = wide(self.initial if first == 0 else zero_of(self.initial.type), self.lanes)
            for weight, value in factors[first::chains]:
                total = multiply_add(wide(weight, self.lanes), wide(value, self.lanes), total)
            totals.append(total)
        return functools.reduce(functools.partial(joined, "add"), totals)


def _analyse(epilogue: Epilogue, target: Target, parameters: DepthwiseParameters) -> _Depthwise | None:
    anchor = epilogue.anchor
    shape, reduction, parts = constant_shape(anchor.buffer), anchor.reduction, image_and_weights(anchor)
    if shape is None or reduction is None or 0 in shape or len(shape) < 3:
        return None
    if parts is None or reduction.is_ordered:
        return None  # one sum has no use for a window that is written out, and roundings are long code
    pixel, weight = parts
    terms = None if anchor.axes[-1] in free_variables(weight) else written_out(anchor, pixel, weight, MAX_WINDOW)
    lanes = lanes_of(weight.type.dtype, target)
    return None if terms is None else _Depthwise(epilogue, shape, terms, reduction.initial, lanes, parameters)


def is_direct(anchor: Anchor) -> bool:
    """Whether a convolution has groups of so few output channels that no product of matrices is worth its while."""
    found = anchor.convolution
    return found is not None and found.window.groups > 1 and found.window.outputs < MIN_CHANNELS


def _applies(anchor: Anchor, target: Target) -> Answer:
    if not is_direct(anchor) or anchor.convolution is None:
        return Reject("shape", f"no convolution of groups of fewer than {MIN_CHANNELS} output channels")
    is_last = anchor.convolution.window.stores_channels_last
    return Reject("layout", "channels are last") if is_last else True


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    wanted = of_family(anchor.parameters, DepthwiseParameters)
    return (anchor.stages and schedule_depthwise(anchor.kernel, anchor.stages, target, wanted)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    own = of_family(anchor.parameters, DepthwiseParameters) or DepthwiseParameters()
    if stage == 0:
        return [replace(own, rows=rows, sums=sums) for rows, sums in ROWS_AND_SUMS]
    return [replace(own, chains=chains) for chains in CHAINS] if stage == 1 else []


STRATEGY = Strategy("depthwise_nchw", CONVOLUTIONS, _build, _applies, _candidates)
