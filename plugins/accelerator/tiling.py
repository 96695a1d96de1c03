"""Tiles of a stage that fit into the accelerator's memories, and the cost by which one tiling is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import product

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

    @property
    def taps(self) -> int:
        """The places of a kernel, as often as weights come."""
        return self.kernel[0] * self.kernel[1] * self.parts

    @property
    def area(self) -> int:
        """The places of one block of outputs."""
        return self.result[0] * self.result[1]

    def inputs_of(self, outputs: int) -> int:
        """Return how many blocks of inputs so many blocks of outputs need."""
        return (outputs - 1) * self.step + self.inputs

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
    """What of an input a tile reads, the entries of a block of it with its padding, and the most padding on a side."""

    rows: int
    columns: int
    entries: int
    padding: int

    @classmethod
    def of(cls, shape: Shape, *places: range) -> Window:
        """Return what outputs at rows and columns read."""
        read, filled, padding = list[int](), 1, 0
        for axis, one in enumerate(places):
            first = one.start * shape.strides[axis] - shape.pads[axis]
            reach = (len(one) - 1) * shape.strides[axis] + shape.dilations[axis] * (shape.kernel[axis] - 1) + 1
            read.append(max(0, min(first + reach, shape.size[axis]) - max(first, 0)))
            before = min(max(-first, 0), reach)
            filled, padding = filled * reach, max(padding, before, reach - before - read[axis])
        rows, columns = read
        return cls(rows, columns, filled, padding)


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


def pieces(whole: int, size: int) -> list[range]:
    """Return the places from 0 on in pieces of a size, the last of which may be smaller."""
    return [range(start, min(start + size, whole)) for start in range(0, whole, size)]


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
    windows, model = dict(_candidates(shape, rooms, configuration, share)), Model(shape, rooms, configuration)
    space = Space.of(windows)
    ranked = sorted(windows, key=lambda one: model.estimate(one, windows[one]))
    found = descend(space, ranked[:FIRST], model.play)
    if trial is None or not trials:
        return found
    return descend(space, sorted(found, key=found.__getitem__)[:STARTS], trial, trials)


def _candidates(
    shape: Shape, rooms: Rooms, configuration: Configuration, share: int
) -> Iterator[tuple[Tiling, Window]]:
    """Yield tilings that fit, each with the largest window of its tiles."""
    height, width = shape.result
    for rows, columns in product(_extents(height), sorted({width, -(-width // 2), -(-width // 4), 1})):
        corners = {(0, 0), (height - rows, width - columns), (min(1, height - rows), 0)}
        windows = [Window.of(shape, range(r, r + rows), range(c, c + columns)) for r, c in corners]
        window, area = max(windows, key=lambda one: one.entries), rows * columns
        # What has more padding than an instruction has fields for is no tile.
        is_padded = max(one.padding for one in windows) > MOST_PADDING
        if is_padded or window.entries > rooms.input or area > min(rooms.accumulator, MOST_TRIPS - 1):
            continue
        for outputs in _extents(shape.outputs):
            # Beside the outputs lies what is moved or compared.
            beside = window.entries if shape.kind is Kind.MAXIMUM else 0
            if outputs * (area * (1 + shape.moved) + beside) > rooms.accumulator:
                break
            for inputs in [shape.inputs_of(outputs)] if shape.step else _extents(shape.inputs):
                if _fits(shape, rooms, configuration, (outputs, inputs, area), window.entries, share):
                    yield Tiling(outputs, inputs, rows, columns), window
                    if outputs < shape.outputs and area < shape.area:
                        yield Tiling(outputs, inputs, rows, columns, False), window


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


def _extents(most: int) -> list[int]:
    """The extents that make pieces nearly equal."""
    return sorted({-(-most // pieces) for pieces in range(1, most + 1)})


# ---- The model of time --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    """The cycles of a stage in tiles, without an instruction."""

    shape: Shape
    rooms: Rooms
    configuration: Configuration

    def _moved(self, transfers: int, entries: int, memory: str) -> int:
        """Return what transfers of so many entries in all take; nothing where there are none."""
        latency, port = self.configuration.latency, self.configuration.port_bytes
        return transfers * latency + entries * self.configuration.entry_bytes[memory] // port if entries else 0

    def _input(self, window: Window, blocks: int) -> int:
        padded = window.entries > window.rows * window.columns
        one_load = not padded and window.columns == self.shape.size[1] == self.shape.pitch
        return self._moved(1 if one_load else blocks, blocks * window.rows * window.columns, "input")

    def _weights(self, outputs: int, inputs: int) -> int:
        return self._moved(1, self.shape.weights_of(outputs, inputs), "weight")

    def _output(self, tiling: Tiling, outputs: int, area: int) -> int:
        """Return what outputs take to be stored, or what is added to them to be brought."""
        return self._moved(1 if tiling.columns == self.shape.result[1] else outputs, outputs * area, "input")

    def _gemm(self, outputs: int, inputs: int, area: int) -> int:
        shape = self.shape
        is_whole = shape.kind is not Kind.BLOCKS or shape.step
        steps = shape.steps // shape.outputs if is_whole else inputs * shape.taps
        return steps * outputs * area + 2 * self.configuration.pipeline

    def _alu(self, outputs: int, area: int) -> int:
        return outputs * area * self.shape.alu * self.configuration.alu_interval + self.configuration.pipeline

    def estimate(self, tiling: Tiling, window: Window) -> float:
        """Estimate cycles from the largest window of a tile: the busiest unit, and the first load."""
        shape, configuration, buffers = self.shape, self.configuration, self.rooms.buffers
        outputs, inputs = -(-shape.outputs // tiling.outputs), 1 if shape.step else -(-shape.inputs // tiling.inputs)
        places = -(-shape.result[0] // tiling.rows) * -(-shape.result[1] // tiling.columns)
        area, tiles = tiling.rows * tiling.columns, outputs * places
        input_load, weight_load = self._input(window, tiling.inputs), self._weights(tiling.outputs, tiling.inputs)
        input_loads = _loads(places * inputs, outputs, inputs, buffers, inside=not tiling.outputs_outside)
        weight_loads = _loads(outputs * inputs, places, inputs, buffers, inside=tiling.outputs_outside)
        input_loads = tiles if shape.step else input_loads
        storing = tiles * self._output(tiling, tiling.outputs, area)
        loading = input_loads * input_load + weight_loads * weight_load + storing * shape.moved
        products = shape.steps * shape.area + tiles * (inputs + 1) * configuration.pipeline
        alu = tiles * self._alu(tiling.outputs, area)
        if buffers == 1:
            return shape.images * (loading + storing + products + alu)
        latencies = configuration.latency * (input_loads + weight_loads)
        return shape.images * max(loading, products, alu, loading + storing - latencies) + input_load + weight_load

    def play(self, tiling: Tiling) -> float:
        """Return the cycles in which the units, beside each other, go through one image's tiles."""
        shape, rooms, latency = self.shape, self.rooms, self.configuration.latency
        inputs, weights = Slots(rooms.buffers), Slots(rooms.buffers)
        free_input, free_weight, free_moved = ([0] * rooms.buffers for _ in range(3))
        free_output, port = [0] * rooms.outputs, 0
        loaded = computed = acted = stored = 0
        blocks = pieces(shape.outputs, tiling.outputs)
        places = list(product(pieces(shape.result[0], tiling.rows), pieces(shape.result[1], tiling.columns)))
        outside = tiling.outputs_outside
        tiles = product(blocks, places) if outside else ((one, place) for place in places for one in blocks)
        for number, (block, place) in enumerate(tiles):
            window, area, outputs = Window.of(shape, *place), len(place[0]) * len(place[1]), len(block)
            slot, turn = number % rooms.outputs, number % rooms.buffers
            for chunk in pieces(shape.inputs_of(outputs), tiling.inputs):
                at_weight, is_new = weights.take((chunk, block))
                if is_new and shape.kind is Kind.BLOCKS:
                    took = self._weights(outputs, len(chunk))
                    loaded, port = max(loaded, free_weight[at_weight]) + took, port + took - latency
                at, is_new = inputs.take((chunk, block if shape.step else 0, place))
                if is_new:
                    took = self._input(window, len(chunk))
                    loaded, port = max(loaded, free_input[at]) + took, port + took - latency
                computed = max(computed, loaded, free_output[slot]) + self._gemm(outputs, len(chunk), area)
                free_input[at] = free_weight[at_weight] = computed
            took = self._output(tiling, outputs, area)
            if shape.moved:
                loaded, port = max(loaded, free_moved[turn]) + took, port + took - latency
                computed = free_moved[turn] = max(computed, loaded) + outputs * area
            acted = max(acted, computed) + self._alu(outputs, area)
            stored = free_output[slot] = max(stored, acted) + took
            port += took - latency
        return stored if rooms.buffers == 1 else max(stored, port)


def _loads(different: int, times: int, chunks: int, buffers: int, *, inside: bool) -> int:
    """Return how often what a tile needs is loaded: ``different`` in all, each needed ``times``.

    It is loaded once if the buffers hold all of it, or, where those times follow each other, all of a tile's chunks.
    """
    return different if different <= buffers or (inside and chunks <= buffers) else different * times
