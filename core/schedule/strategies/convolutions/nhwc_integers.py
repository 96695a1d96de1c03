"""Convolutions of integers with their channels last: vectors are of channels, which are neighbours in memory.

A depthwise convolution is computed directly, some pixels of a row at a time, so that they share the vectors of weights
and of the input. Any other is a product of patches and weights
(`graft.core.schedule.strategies.convolutions.im2col_integers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.statements import in_vectors, multiply_add, nest, ramp, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.products.convolution import convolution_of, written_out
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, fused_stages
from graft.core.schedule.products.tiling import lanes_of, split_evenly
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Block, Buffer, Cast, Expression, Load, Stage, Statement, Variable
from graft.core.tensor_ir.statements import bind, bound
from graft.core.tensor_ir.visit import free_variables, loads

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
    source, (packed, contents) = parts.weights, parts.packed()
    return Scheduled(lambda: kernel.function(parts.body(packed), {source: packed}), {source: contents})


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

        def row(outer: dict[int, Expression]) -> Statement:
            places = list(outer.values())
            return in_vectors(
                "channels", self.shape[-1], self.lanes, lambda begin, mask: self._row(places, begin, mask, weights)
            )

        return nest("i", dict(enumerate(self.shape[:-2])), "parallel", row)

    def _row(
        self, outer: Sequence[Expression], channel: Expression, mask: Expression | None, weights: Buffer
    ) -> Statement:
        """Return the loop over the pixels of a row, for one vector of channels."""
        place = ramp(channel, self.lanes)
        loaded = [
            vectorize_expression(b.cast(Load(weights, (b.index(number), place)), "int32"), {}, mask)
            for number in range(len(self.terms))
        ]
        if len(loaded) > HELD_WINDOW:
            return self._pieces(outer, place, loaded, mask)
        return bound("w", loaded, lambda held: self._pieces(outer, place, held, mask))

    def _pieces(
        self, outer: Sequence[Expression], place: Expression, weights: Sequence[Expression], mask: Expression | None
    ) -> Statement:
        split = split_evenly(self.shape[-2], PIXELS)
        statements, begin = [], 0
        for count, size in split.sizes:

            def pixels(step: Expression, size: int = size, begin: int = begin) -> Statement:
                first = b.add(b.multiply(step, size), begin)
                return self._pixels([[*outer, b.add(first, n), place] for n in range(size)], weights, mask)

            statements.append(loop(count, pixels, name="pixels"))
            begin += count * size
        return Block(tuple(statements))

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
        return bind(sums, Block(tuple(stores)))


def _analyse(kernel: Kernel, epilogue: Epilogue, target: Target) -> _Depthwise | None:
    found = convolution_of(epilogue.anchor)
    if found is None:
        return None
    anchor, shape, pixel, weight = found.anchor, found.shape, found.pixel, found.weight
    reduction = anchor.reduction
    if reduction is None or anchor.epilogue is not None:
        return None
    source = found.weights(kernel, (anchor, *epilogue.followers), "int32")
    if source is None or not isinstance(weight, Cast) or any(load.buffer is source for load in loads(pixel)):
        return None
    terms = written_out(anchor, pixel, weight, MAX_WINDOW)
    if terms is None or any(free_variables(part) - {anchor.axes[-1]} for part, _ in terms):
        return None
    lanes = lanes_of("int32", target)
    return _Depthwise(epilogue, shape, terms, reduction.initial, source, kernel.constants[source], lanes)


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or not found.window.is_depthwise or found.anchor.value.type.dtype != "int32":
        return Reject("shape", "no depthwise convolution of integers")
    return True if found.window.stores_channels_last else Reject("layout", "channels are not last")


STRATEGY = Strategy("depthwise_integers_nhwc", CONVOLUTIONS, of_kernel(schedule_depthwise_last), _applies)
