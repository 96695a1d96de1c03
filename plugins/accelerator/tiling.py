"""Tiles of a stage that fit into the accelerator's memories, and the cost by which one tiling is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from graft.core.schedule.templates.descent import Space, descend
from graft.errors import CompileError
from graft.plugins.accelerator.configuration import Configuration

MOST_PADDING = 15
MOST_TRIPS = 1 << 14
MOST_ROW = 1 << 16
FIRST = 16
"""So many tilings of the least estimated time are played through, and what is near the best of them ..."""
STARTS = 4
"""... so many of which are the first that are tried on the cycle simulator."""


class Kind(Enum):
    """How the GEMM unit makes an output: sums of blocks, of lanes by weights, of lanes, or single lanes for the ALU."""

    BLOCKS = 0
    LANES = 1
    SUM = 2
    MAXIMUM = 3
    MOVE = 4


@dataclass(frozen=True)
class Shape:
    """The extents of a stage; channels are in blocks, pads are top and left, and ``pitch`` leads from row to row.

    Each block of outputs takes ``inputs`` blocks of inputs, from ``step`` times its number on. ``parts`` are how often
    the weights come: more than 8 bits are a sum of two. ``moved`` says that another tensor of the output's extents is
    brought beside it; ``alu`` counts the actions on an output.
    """

    kind: Kind
    images: int
    outputs: int
    inputs: int
    size: tuple[int, int]
    result: tuple[int, int]
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    pitch: int = 0
    step: int = 0
    parts: int = 1
    moved: bool = False
    alu: int = 1
    lanes: int = 16

    @property
    def lane_entries(self) -> int:
        """The entries of weights, of so many rows each, that a block of outputs takes lane by lane."""
        return -(-self.taps // self.lanes)

    def place(self, tap: int, width: int) -> int:
        """Return how far a tap is from the first in a window of a width."""
        row, column = divmod(tap % (self.kernel[0] * self.kernel[1]), self.kernel[1])
        return row * self.dilations[0] * width + column * self.dilations[1]

    @property
    def taps(self) -> int:
        """The places of a kernel, as often as weights come."""
        return self.kernel[0] * self.kernel[1] * self.parts

    @property
    def area(self) -> int:
        """The places of one block of outputs."""
        return self.result[0] * self.result[1]

    def inputs_of(self, outputs: range) -> range:
        """Return the blocks of inputs that blocks of outputs need."""
        return range(outputs.start * self.step, (outputs.stop - 1) * self.step + self.inputs)

    @cached_property
    def steps(self) -> int:
        """The steps of the GEMM unit for one place of an image and all its blocks of outputs."""
        match self.kind:
            case Kind.MOVE | Kind.MAXIMUM:
                return self.outputs * (1 + self.moved)
            case Kind.LANES | Kind.SUM:
                return self.outputs * (self.taps + self.moved)
            case Kind.BLOCKS:
                return self.outputs * (self.inputs * self.taps + self.moved)

    def weights_of(self, outputs: int, inputs: int) -> int:
        """Return the entries of weights that a tile of so many blocks holds."""
        return outputs * (self.inputs if self.step else inputs) * self.taps if self.kind is Kind.BLOCKS else 0


@dataclass(frozen=True, slots=True)
class Window:
    """What of an input a tile reads, and what around it is padding."""

    top: int
    left: int
    rows: int
    columns: int
    pad_top: int
    pad_bottom: int
    pad_left: int
    pad_right: int

    @property
    def width(self) -> int:
        """Entries in a row."""
        return self.pad_left + self.columns + self.pad_right

    @property
    def entries(self) -> int:
        """Entries of one block of channels."""
        return self.width * (self.pad_top + self.rows + self.pad_bottom)

    @property
    def is_padded(self) -> bool:
        """Whether there is padding."""
        return bool(self.pad_top or self.pad_bottom or self.pad_left or self.pad_right)


@dataclass(frozen=True, slots=True)
class OutputTile:
    """Blocks of outputs, rows and columns of them, in an image."""

    image: int
    outputs: range
    rows: range
    columns: range

    @property
    def area(self) -> int:
        """The places of one block."""
        return len(self.rows) * len(self.columns)

    def window(self, shape: Shape) -> Window:
        """Return what the tile reads."""
        top, rows, pad_top, pad_bottom = _reach(shape, 0, self.rows)
        left, columns, pad_left, pad_right = _reach(shape, 1, self.columns)
        return Window(top, left, rows, columns, pad_top, pad_bottom, pad_left, pad_right)


def _reach(shape: Shape, axis: int, places: range) -> tuple[int, int, int, int]:
    """Return, along an axis, the first place read, how many, and the padding on both sides."""
    first = places.start * shape.strides[axis] - shape.pads[axis]
    last = (places.stop - 1) * shape.strides[axis] - shape.pads[axis] + shape.dilations[axis] * (shape.kernel[axis] - 1)
    inside = range(min(max(first, 0), shape.size[axis]), max(min(last + 1, shape.size[axis]), 0))
    before = min(max(-first, 0), last + 1 - first)
    return inside.start, len(inside), before, last + 1 - first - before - len(inside)


@dataclass(frozen=True, slots=True)
class Rooms:
    """How many buffers there are, and the entries of one: outputs have one more, if any run ahead of each other.

    Weights of ``Kind.LANES`` have buffers of their own, at the low end of their memory: micro-ops reach no others.
    """

    buffers: int
    input: int
    weight: int
    accumulator: int
    lanes: int = 0

    @property
    def outputs(self) -> int:
        """Buffers of accumulators: one is filled, one requantised, one stored."""
        return self.buffers + (self.buffers > 1)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The extents of a tile, and whether blocks of outputs are the outer loop, or places."""

    outputs: int
    inputs: int
    rows: int
    columns: int
    outputs_outside: bool = True

    def tiles(self, shape: Shape) -> Iterator[OutputTile]:
        """Yield the tiles in order."""
        outputs = pieces(range(shape.outputs), self.outputs)
        places = [
            (rows, columns)
            for rows in pieces(range(shape.result[0]), self.rows)
            for columns in pieces(range(shape.result[1]), self.columns)
        ]
        for image in range(shape.images):
            if self.outputs_outside:
                yield from (OutputTile(image, one, *place) for one in outputs for place in places)
            else:
                yield from (OutputTile(image, one, *place) for place in places for one in outputs)

    def chunks(self, shape: Shape, tile: OutputTile) -> list[range]:
        """Return the blocks of inputs that are brought at one time."""
        return pieces(shape.inputs_of(tile.outputs), self.inputs)


def pieces(whole: range, size: int) -> list[range]:
    """Return a range in pieces of a size, the last of which may be smaller."""
    return [range(start, min(start + size, whole.stop)) for start in range(whole.start, whole.stop, size)]


class Slots:
    """Buffers of a memory and what they hold; the one used longest ago makes room."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.held: dict[object, int] = {}

    def take(self, key: object) -> tuple[int, bool]:
        """Return the buffer of what is wanted and whether it is new there."""
        found = self.held.pop(key, None)
        is_new = found is None
        if found is None:
            found = len(self.held) if len(self.held) < self.count else self.held.pop(next(iter(self.held)))
        self.held[key] = found
        return found, is_new


# ---- Choice -------------------------------------------------------------------------------------------------------


SHARE = 16
"""Into so many parts the memory of micro-ops is divided among the kernels of a stage, at first."""


def check_fits(name: str, shape: Shape, rooms: Rooms, configuration: Configuration, share: int = SHARE) -> None:
    """Raise CompileError for a stage that fits in no tiling."""
    if next(_candidates(shape, rooms, configuration, share), None) is None:
        raise CompileError(
            f"accelerator: size: no tile of '{name}' (kernel {shape.kernel[0]} x {shape.kernel[1]}, {shape.inputs} "
            f"blocks of {shape.size[0]} x {shape.size[1]} to {shape.outputs} of {shape.result[0]} x {shape.result[1]}) "
            f"fits into {rooms.input} inputs, {rooms.weight} weights and {rooms.accumulator} accumulators"
        )


def search(
    name: str,
    shape: Shape,
    rooms: Rooms,
    configuration: Configuration,
    share: int = SHARE,
    trials: int = 0,
    trial: Callable[[Tiling], float] | None = None,
) -> dict[Tiling, float]:
    """Return tilings with the cycles that they take, by `play` or, if there are ``trials``, by that many of ``trial``.

    A kernel of micro-ops has at most a ``share``th of their memory. Raise CompileError where no tiling fits.
    """
    check_fits(name, shape, rooms, configuration, share)
    windows = dict(_candidates(shape, rooms, configuration, share))
    space = Space.of(windows)
    ranked = sorted(windows, key=lambda one: _estimate(shape, one, windows[one], rooms, configuration))
    found = descend(space, ranked[:FIRST], lambda one: play(shape, one, rooms, configuration))
    if trial is None or not trials:
        return found
    return descend(space, sorted(found, key=found.__getitem__)[:STARTS], trial, trials)


def _candidates(
    shape: Shape, rooms: Rooms, configuration: Configuration, share: int
) -> Iterator[tuple[Tiling, Window]]:
    """Yield tilings that fit, each with the largest window of its tiles."""
    for rows in _extents(shape.result[0]):
        for columns in sorted({shape.result[1], -(-shape.result[1] // 2), -(-shape.result[1] // 4), 1}):
            window = _window(shape, rows, columns)
            if not window or window.entries > rooms.input or rows * columns > min(rooms.accumulator, MOST_TRIPS - 1):
                continue
            for outputs in _extents(shape.outputs):
                if accumulators_of(shape, outputs, rows * columns, window.entries) > rooms.accumulator:
                    break
                for inputs in _input_extents(shape, outputs):
                    if _fits(shape, rooms, configuration, (outputs, inputs, rows * columns), window.entries, share):
                        outside = (True, False) if outputs < shape.outputs and rows * columns < shape.area else (True,)
                        yield from ((Tiling(outputs, inputs, rows, columns, one), window) for one in outside)


def _window(shape: Shape, rows: int, columns: int) -> Window | None:
    """Return the largest window of a tile of so many places, None if its padding has no instruction."""
    found = None
    corners = {(0, 0), (shape.result[0] - rows, shape.result[1] - columns), (min(1, shape.result[0] - rows), 0)}
    for top, left in corners:
        tile = OutputTile(0, range(1), range(top, top + rows), range(left, left + columns))
        window = tile.window(shape)
        if max(window.pad_top, window.pad_bottom, window.pad_left, window.pad_right) > MOST_PADDING:
            return None
        found = window if found is None or window.entries > found.entries else found
    return found


def _input_extents(shape: Shape, outputs: int) -> list[int]:
    return [len(shape.inputs_of(range(outputs)))] if shape.step else _extents(shape.inputs)


def _fits(
    shape: Shape, rooms: Rooms, configuration: Configuration, extents: tuple[int, int, int], window: int, share: int
) -> bool:
    outputs, inputs, area = extents
    weights = shape.weights_of(outputs, inputs)
    if inputs * window + outputs * area * shape.moved > rooms.input or weights > rooms.weight:
        return False
    if shape.kind is Kind.LANES and outputs * shape.lane_entries > rooms.lanes:
        return False
    if shape.kind in (Kind.LANES, Kind.MAXIMUM) or (shape.kind is Kind.SUM and area > 1):
        weights = outputs * shape.taps
    # Each buffer has its own micro-ops: all combinations of a layer must fit.
    return weights <= max(configuration.micro_op_entries // share, outputs)


def accumulators_of(shape: Shape, outputs: int, area: int, window: int) -> int:
    """Return the accumulators of a tile: its outputs, and beside them what is moved or compared."""
    return outputs * (area * (1 + shape.moved) + (window if shape.kind is Kind.MAXIMUM else 0))


def _extents(most: int) -> list[int]:
    """The extents that make pieces nearly equal."""
    return sorted({-(-most // pieces) for pieces in range(1, most + 1)})


@dataclass(slots=True)
class _Times:
    """The cycles of a tile's parts by unit."""

    shape: Shape
    tiling: Tiling
    configuration: Configuration

    def input(self, window: Window, blocks: int) -> int:
        size, port = self.configuration.entry_bytes["input"], self.configuration.port_bytes
        one_load = not window.is_padded and window.columns == self.shape.size[1] == self.shape.pitch
        loads = 1 if one_load else blocks
        return loads * self.configuration.latency + blocks * window.rows * window.columns * size // port

    def moved(self, tile: OutputTile) -> int:
        whole = len(tile.columns) == self.shape.result[1]
        size, port = self.configuration.entry_bytes["input"], self.configuration.port_bytes
        loads = 1 if whole else len(tile.outputs)
        return loads * self.configuration.latency + len(tile.outputs) * tile.area * size // port

    def weights(self, outputs: int, inputs: int) -> int:
        entries = self.shape.weights_of(outputs, inputs)
        size, port = self.configuration.entry_bytes["weight"], self.configuration.port_bytes
        return self.configuration.latency + entries * size // port if entries else 0

    def store(self, outputs: int, area: int) -> int:
        size, port = self.configuration.block_out, self.configuration.port_bytes
        stores = 1 if self.tiling.columns == self.shape.result[1] else outputs
        return stores * self.configuration.latency + outputs * area * size // port

    def gemm(self, outputs: int, inputs: int, area: int) -> int:
        shape = self.shape
        steps = inputs * outputs * shape.taps if shape.kind is Kind.BLOCKS and not shape.step else shape.steps
        share = 1 if shape.kind is Kind.BLOCKS and not shape.step else outputs / shape.outputs
        return int(steps * share) * area + 2 * self.configuration.pipeline

    def alu(self, outputs: int, area: int) -> int:
        return outputs * area * self.shape.alu * self.configuration.alu_interval + self.configuration.pipeline


def _estimate(shape: Shape, tiling: Tiling, window: Window, rooms: Rooms, configuration: Configuration) -> float:
    """Estimate cycles: the busiest unit, and the first load."""
    outputs = -(-shape.outputs // tiling.outputs)
    inputs = 1 if shape.step else -(-shape.inputs // tiling.inputs)
    places = -(-shape.result[0] // tiling.rows) * -(-shape.result[1] // tiling.columns)
    times = _Times(shape, tiling, configuration)
    area = tiling.rows * tiling.columns
    blocks = tiling.inputs
    input_load, weight_load = times.input(window, blocks), times.weights(tiling.outputs, tiling.inputs)
    input_loads = _loads(places * inputs, outputs, inputs, rooms.buffers, inside=not tiling.outputs_outside)
    weight_loads = _loads(outputs * inputs, places, inputs, rooms.buffers, inside=tiling.outputs_outside)
    if shape.step:
        input_loads = outputs * places
    largest = OutputTile(0, range(tiling.outputs), range(tiling.rows), range(tiling.columns))
    moved = outputs * places * times.moved(largest) if shape.moved else 0
    loading = input_loads * input_load + weight_loads * weight_load + moved
    storing = outputs * places * times.store(tiling.outputs, area)
    products = shape.steps * shape.area + outputs * places * (inputs + 1) * configuration.pipeline
    alu = outputs * places * times.alu(tiling.outputs, area)
    if rooms.buffers == 1:
        return shape.images * (loading + storing + products + alu)
    latencies = configuration.latency * (input_loads + weight_loads)
    return shape.images * max(loading, products, alu, loading + storing - latencies) + input_load + weight_load


def _loads(different: int, times: int, chunks: int, buffers: int, *, inside: bool) -> int:
    """Return how often what a tile needs is loaded: ``different`` in all, each needed ``times``.

    It is loaded once if the buffers hold all of it, or, where those times follow each other, all of a tile's chunks.
    """
    return different if different <= buffers or (inside and chunks <= buffers) else different * times


def play(shape: Shape, tiling: Tiling, rooms: Rooms, configuration: Configuration) -> int:
    """Return the cycles in which the units, beside each other, go through one image's tiles."""
    times = _Times(shape, tiling, configuration)
    ready = {"load": 0, "gemm": 0, "alu": 0, "store": 0, "port": 0}
    inputs, weights, moved = (Slots(rooms.buffers) for _ in range(3))
    free_input, free_weight, free_moved = ([0] * rooms.buffers for _ in range(3))
    free_output = [0] * rooms.outputs
    port = 0

    def load(took: int, free: int) -> None:
        nonlocal port
        port += took - configuration.latency
        ready["load"] = max(ready["load"], free) + took

    for number, tile in enumerate(tiling.tiles(shape)):
        if tile.image:
            break
        window, area, outputs = tile.window(shape), tile.area, len(tile.outputs)
        slot = number % rooms.outputs
        for chunk in tiling.chunks(shape, tile):
            at_weight, is_new = weights.take((chunk, tile.outputs))
            if is_new and shape.kind is Kind.BLOCKS:
                load(times.weights(outputs, len(chunk)), free_weight[at_weight])
            at, is_new = inputs.take((chunk, tile.rows, tile.columns))
            if is_new:
                load(times.input(window, len(chunk)), free_input[at])
            took = times.gemm(outputs, len(chunk), area)
            ready["gemm"] = max(ready["gemm"], ready["load"], free_output[slot]) + took
            free_input[at] = free_weight[at_weight] = ready["gemm"]
        if shape.moved:
            at, _ = moved.take(number)
            load(times.moved(tile), free_moved[at])
            ready["gemm"] = free_moved[at] = max(ready["gemm"], ready["load"]) + outputs * area
        ready["alu"] = max(ready["alu"], ready["gemm"]) + times.alu(outputs, area)
        took = times.store(outputs, area)
        port += took - configuration.latency
        ready["store"] = free_output[slot] = max(ready["store"], ready["alu"]) + took
    return max(ready["store"], port) if rooms.buffers > 1 else math.ceil(ready["store"])
