"""Convolutions of integers with their channels last: vectors are of channels, which are neighbours in memory.

A depthwise convolution is computed directly, some pixels of a row at a time, so that they share the vectors of weights
and of the input. Any other is a product of patches and weights (`graft.core.schedule.strategies.im2col_integers`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.vectorize import vectorize_expression
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, fused_stages
from graft.core.schedule.products.tiling import column_mask, lanes_of, multiply_add, over, ramp, split_evenly, wide
from graft.core.schedule.strategy import CONVOLUTIONS, Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir.interpreter import run_stages
from graft.core.tensor_ir.ir import (
    Block,
    Buffer,
    Constant,
    Expression,
    Function,
    Let,
    Load,
    Stage,
    Statement,
    Variable,
)
from graft.core.tensor_ir.simplify import simplify
from graft.core.tensor_ir.visit import free_variables, loads, substitute

MAX_WINDOW = 49
HELD_WINDOW = 9
"""A window of at most so many positions has its weights in registers all along a row."""
PIXELS = 8
"""Pixels that are summed side by side."""


def schedule_depthwise_last(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return a depthwise convolution in vectors of channels; None if the kernel is of another form."""
    stages = fused_stages(kernel)
    epilogue = None if stages is None else epilogue_of(stages, kernel.outputs)
    parts = None if epilogue is None else _analyse(kernel, epilogue, target)
    if parts is None:
        return None
    source, packed = parts.weights, parts.packed()
    parameters = (*(packed[0] if one is source else one for one in kernel.inputs), *kernel.outputs)

    def build() -> Function:
        return Function(kernel.name, parameters, len(kernel.outputs), parts.body(packed[0]), kernel.origin)

    return Scheduled(build, {source: packed[1]})


@dataclass(frozen=True, slots=True)
class _Depthwise:
    """A convolution taken apart: ``terms`` are (weight, pixel) for each position of the window."""

    epilogue: Epilogue
    shape: tuple[int, ...]
    terms: tuple[tuple[Expression, Expression], ...]
    initial: Expression
    weights: Buffer
    contents: np.ndarray
    lanes: int

    def packed(self) -> tuple[Buffer, np.ndarray]:
        """Return the weights as ``[window, channels]``."""
        axis, channels = self.epilogue.anchor.axes[-1], self.shape[-1]
        rows = []
        for weight, _ in self.terms:
            raw = next(iter(loads(weight)))
            row = Buffer("row", raw.type.dtype, (b.index(channels),), memory="scratch")
            rows.append(run_stages([Stage(row, (axis,), raw)], {self.weights: self.contents})[row])
        extents = (b.index(len(rows)), b.index(channels))
        return Buffer(f"{self.weights.name}_packed", self.weights.dtype, extents), np.stack(rows)

    def body(self, weights: Buffer) -> Statement:
        """Return the loops: rows in parallel, vectors of channels, pixels."""
        outer: list[Expression] = [
            Variable(f"i{axis}") if extent > 1 else b.index(0) for axis, extent in enumerate(self.shape[:-2])
        ]
        channels, lanes = self.shape[-1], self.lanes
        whole, rest = divmod(channels, lanes)
        statements = []
        if whole:
            step = Variable("channels") if whole > 1 else b.index(0)
            statements.append(over(step, whole, "serial", self._row(outer, b.multiply(step, lanes), None, weights)))
        if rest:
            begin = b.index(whole * lanes)
            statements.append(self._row(outer, begin, column_mask(begin, channels, lanes), weights))
        body: Statement = Block(tuple(statements))
        for axis in reversed(range(len(outer))):
            body = over(outer[axis], self.shape[axis], "parallel", body)
        return body

    def _row(
        self, outer: Sequence[Expression], channel: Expression, mask: Expression | None, weights: Buffer
    ) -> Statement:
        """Return the loop over the pixels of a row, for one vector of channels."""
        place = ramp(channel, self.lanes)
        loaded = [
            vectorize_expression(b.cast(Load(weights, (b.index(number), place)), "int32"), {}, mask)
            for number in range(len(self.terms))
        ]
        held: list[Expression] = [Variable(f"w{number}", value.type) for number, value in enumerate(loaded)]
        factors = held if len(loaded) <= HELD_WINDOW else loaded
        split = split_evenly(self.shape[-2], PIXELS)
        statements, begin = [], 0
        for count, size in split.sizes:
            step = Variable("pixels") if count > 1 else b.index(0)
            first = b.add(b.multiply(step, size), begin)
            pixels = [[*outer, b.add(first, number), place] for number in range(size)]
            statements.append(over(step, count, "serial", self._pixels(pixels, factors, mask)))
            begin += count * size
        body: Statement = Block(tuple(statements))
        if factors is held:
            for variable, value in reversed(list(zip(held, loaded, strict=True))):
                assert isinstance(variable, Variable)
                body = Let(variable, value, body)
        return body

    def _pixels(
        self, pixels: Sequence[list[Expression]], weights: Sequence[Expression], mask: Expression | None
    ) -> Statement:
        """Return the sums of some pixels, all of them before the first store, then the stores."""
        axes = self.epilogue.anchor.axes
        sums, stores = [], []
        for number, point in enumerate(pixels):
            places = dict(zip(axes, point, strict=True))
            total = wide(self.initial, self.lanes)
            for (_, pixel), weight in zip(self.terms, weights, strict=True):
                value = wide(vectorize_expression(pixel, places, mask), self.lanes)
                total = multiply_add(weight, value, total)
            variable = Variable(f"sum{number}", total.type)
            sums.append((variable, total))
            stores += self.epilogue.stores(point, variable, mask)
        body: Statement = Block(tuple(stores))
        for variable, total in reversed(sums):
            body = Let(variable, total, body)
        return body


def _analyse(kernel: Kernel, epilogue: Epilogue, target: Target) -> _Depthwise | None:
    found = convolution_of(epilogue.anchor)
    if found is None or not found.window.is_depthwise or not found.window.stores_channels_last:
        return None
    anchor, shape, pixel, weight = found.anchor, found.shape, found.pixel, found.weight
    reduction = anchor.reduction
    if reduction is None or anchor.epilogue is not None or anchor.value.type.dtype != "int32":
        return None
    sources = {load.buffer for load in loads(weight)}
    read = {load.buffer for stage in epilogue.followers for load in loads(stage.value)} | {
        load.buffer for load in loads(pixel)
    }
    if len(sources) != 1 or not sources <= kernel.constants.keys() or sources & read:
        return None
    extents = [int(axis.extent.value) for axis in reduction.axes if isinstance(axis.extent, Constant)]
    places = list(itertools.product(*map(range, extents)))
    if len(extents) != len(reduction.axes) or len(places) > MAX_WINDOW:
        return None
    terms = []
    for place in places:
        numbers = {axis.variable: b.index(number) for axis, number in zip(reduction.axes, place, strict=True)}
        terms.append((simplify(substitute(weight, numbers)), simplify(substitute(pixel, numbers))))
    (source,) = sources
    own = {anchor.axes[-1]}
    if any(free_variables(part) - own or not _is_widened(part, source) for part, _ in terms):
        return None
    lanes = lanes_of("int32", target)
    return _Depthwise(epilogue, shape, tuple(terms), reduction.initial, source, kernel.constants[source], lanes)


def _is_widened(weight: Expression, source: Buffer) -> bool:
    """Whether a weight is an element of the constant made an int32."""
    return weight == b.cast(next(iter(loads(weight))), "int32") and weight.type.dtype != source.dtype


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or not found.window.is_depthwise or found.anchor.value.type.dtype != "int32":
        return Reject("shape", "no depthwise convolution of integers")
    return True if found.window.stores_channels_last else Reject("layout", "channels are not last")


STRATEGY = Strategy("depthwise_integers_nhwc", CONVOLUTIONS, of_kernel(schedule_depthwise_last), _applies)
