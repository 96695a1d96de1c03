"""Convolutions in bfloat16 with channels last, as products of patches and weights.

A block of patches (`graft.core.schedule.products.patches`) at a time, with zeros where a window leaves the image, is
copied into the second-level cache and multiplied there. A window of one pixel without strides needs no copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapse_rows, with_sources
from graft.core.schedule.parameters import ContractionParameters, Parameters, of_family
from graft.core.schedule.primitives.statements import column_mask, ramp, wide
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.products.patched_product import patched_product
from graft.core.schedule.products.patches import Patches, plain_convolution, with_rows
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.contractions import blocked_product
from graft.core.schedule.strategies.contractions.blocked_product import schedule_contraction
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.tensor_ir import anchors
from graft.core.tensor_ir.ir import Block, Buffer, Expression, If, Load, Stage, Statement, Store, Variable

FETCHED_SHARE = 2 / 3
"""What weights come with that are not fetched ahead, as a part of the bandwidth of memory."""
UNROLLED = 4
"""So many vectors of a run are copied one after another, more in a loop."""


def schedule_windows_last(
    kernel: Kernel, stages: Sequence[Stage], target: Target, parameters: Parameters | None = None
) -> Scheduled | None:
    """Return a bfloat16 convolution of an image with channels last as a product; None if it is no such convolution."""
    window = window_of(kernel, stages)
    return None if window is None else schedule_window(kernel, stages, window, target, parameters)


def schedule_window(
    kernel: Kernel, stages: Sequence[Stage], window: Window, target: Target, parameters: Parameters | None = None
) -> Scheduled | None:
    """Return a convolution that was taken apart as a product of patches; None if what follows is not elementwise."""
    product = window.of_patches(kernel, stages)
    collapsed, sources = collapse_rows(product) or (product, {})
    if window.is_pixel:
        scheduled = with_sources(schedule_contraction(collapsed, target, parameters), sources)
        return replace(scheduled, packed=window.packed(kernel, scheduled.packed))
    wanted = of_family(parameters, ContractionParameters)
    scheduler = patched_product(collapsed, window, target, wanted)
    if scheduler is None:
        return None
    scheduled = with_sources(scheduler.scheduled(), sources)
    packed = window.packed(kernel, scheduled.packed)
    return Scheduled(lambda: window.reading(kernel, scheduled.function), packed, knobs=scheduled.knobs)


class Window(Patches):
    """A convolution of which a block of patches at a time is copied."""

    @property
    def is_pixel(self) -> bool:
        """Whether each window is the pixel in its own place."""
        return self.windows.are_points and self.windows.source == self.windows.target

    def of_patches(self, kernel: Kernel, stages: Sequence[Stage]) -> Kernel:
        """Return the product: of the image itself where it is made of patches."""
        extents = tuple(map(b.index, (*self.shape[:3], self.terms)))
        return self.product(kernel, stages, self.source if self.is_pixel else Buffer("patches", "bfloat16", extents))

    def patch(
        self, rows: Buffer, row: Sequence[Expression], at: tuple[Variable, Variable, Variable], target: Target
    ) -> Statement:
        """Return what copies the patch of pixel ``at`` of the output into a row."""
        (place,) = row
        runs = self.lines(rows, place, at, lanes_of("bfloat16", target))
        if self.terms % 2:
            runs.append(Store(rows, (place, b.index(self.terms)), b.constant(0, "bfloat16")))
        return Block(tuple(runs))

    def lines(self, rows: Buffer, row: Expression, at: Sequence[Variable], lanes: int) -> list[Statement]:
        """Return what copies each row of the window at pixel ``at``."""
        image = self.image
        return [self._line(image, rows, row, at, down, lanes) for down in range(self.windows.kernel[0])]

    def _line(
        self, image: Buffer, rows: Buffer, row: Expression, at: Sequence[Variable], down: int, lanes: int
    ) -> Statement:
        n, y, x = at
        across, channels = self.windows.kernel[1], self.channels
        line, inside = self.position(0, y, down)
        begin = down * across * channels
        places = [self.position(1, x, number) for number in range(across)]
        statements: list[Statement] = []
        if self.windows.dilations[1] == 1 and all(condition is None for _, condition in places):
            source = b.multiply(places[0][0], channels)
            statements.append(_copied(image, (n, line, source), rows, (row, begin), across * channels, lanes))
        else:
            for number, (place, condition) in enumerate(places):
                source, own = b.multiply(place, channels), (row, begin + number * channels)
                copy = _copied(image, (n, line, source), rows, own, channels, lanes)
                if condition is not None:
                    copy = If(condition, copy, _copied(None, (), rows, own, channels, lanes))
                statements.append(copy)
        body: Statement = Block(tuple(statements))
        if inside is None:
            return body
        return If(inside, body, _copied(None, (), rows, (row, begin), across * channels, lanes))

    def position(self, axis: int, variable: Variable, number: int) -> tuple[Expression, Expression | None]:
        """Return where position ``number`` of a window lies, and the condition for being inside if it ever leaves."""
        w = self.windows
        shift = number * w.dilations[axis] - w.begins[axis]
        place = b.add(b.multiply(variable, w.strides[axis]), shift)
        low, high = b.inside(place, w.source[axis])
        conditions = [low] if shift < 0 else []
        if (w.target[axis] - 1) * w.strides[axis] + shift >= w.source[axis]:
            conditions.append(high)
        return place, b.all_of(conditions)


def window_of(kernel: Kernel, stages: Sequence[Stage]) -> Window | None:
    """Take a convolution apart; None unless it has one group and reads a bfloat16 image with channels last."""
    plain = plain_convolution(kernel, stages, "float32", "bfloat16", "float32")
    is_last = plain and plain[0].window.reads_channels_last and plain[0].window.stores_channels_last
    return Window(*plain, with_rows(plain[1])) if plain and is_last else None


def _copied(
    image: Buffer | None,
    source: tuple[Expression, ...],
    rows: Buffer,
    at: tuple[Expression, int],
    length: int,
    lanes: int,
) -> Statement:
    """Return what copies a run of an image, from ``source`` on, to ``at`` in a row; zeros where there is no image."""

    def piece(begin: Expression, mask: Expression | None) -> Statement:
        value: Expression = wide(b.constant(0, "bfloat16"), lanes)
        if image is not None:
            value = Load(image, (*source[:-1], ramp(b.add(source[-1], begin), lanes)), mask)
        return Store(rows, (at[0], ramp(b.add(begin, at[1]), lanes)), value, mask)

    whole, rest = divmod(length, lanes)
    if whole > UNROLLED:
        statements = [loop(whole, lambda step: piece(b.multiply(step, lanes), None), name="step")]
    else:
        statements = [piece(b.index(number * lanes), None) for number in range(whole)]
    if rest and whole:
        statements.append(piece(b.index(length - lanes), None))
    elif rest:
        statements.append(piece(b.index(0), column_mask(0, length, lanes)))
    return Block(tuple(statements))


def _applies(anchor: Anchor, target: Target) -> Answer:
    if target.precision != "bf16":
        return Reject("accuracy", "bfloat16 is not wanted")
    window = anchor.stages and window_of(anchor.kernel, anchor.stages)
    return True if window else Reject("layout", "no bfloat16 image with channels last")


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    kernel, stages = anchor.kernel, anchor.stages
    return (stages and schedule_windows_last(kernel, stages, target, anchor.parameters)) or OTHER_FORM


def candidates_of(window: Window | None, anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return what to measure for the product of patches that a convolution becomes."""
    if window is None or anchor.stages is None or target.precision != "bf16":
        return []
    product = replace(anchor, kernel=window.of_patches(anchor.kernel, anchor.stages))
    return blocked_product.candidates(product, target, stage)


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    window = None if anchor.stages is None else window_of(anchor.kernel, anchor.stages)
    return candidates_of(window, anchor, target, stage)


def _prefers(window: anchors.Window, target: Target) -> Preference | None:
    """Pairs of channels are what dot products multiply."""
    fits = target.precision == "bf16" and window.groups == 1 and not window.is_first
    return Preference("last", "last", gains=True) if fits else None


def product_cycles(window: Window, pixels: int, weights: int, target: Target) -> float:
    """Return the cycles of one image in which each channel has so many ``weights``, all times so many ``pixels``."""
    products = window.shape[3] * window.channels * weights
    rate = FETCHED_SHARE * target.machine.far.bandwidth
    return products * pixels / lanes_of("float32", target) / 2 + 2 * products / rate


def _cost(anchor: Anchor, target: Target) -> float:
    window = window_of(anchor.kernel, anchor.stages or ())
    assert window is not None, anchor.kernel.name
    return product_cycles(window, math.prod(window.shape[1:3]), math.prod(window.windows.kernel), target)


def rounds(anchor: Anchor, target: Target) -> bool | None:
    """Round the factors of all that are built."""
    return None if anchor.stages is None or epilogue_of(anchor.stages, anchor.kernel.outputs) is None else True


STRATEGY = Strategy(
    "im2col_bf16", CONVOLUTIONS, _build, _applies, _candidates, prefers=_prefers, rounds=rounds, cost=_cost
)
