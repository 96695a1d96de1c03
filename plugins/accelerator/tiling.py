"""Tiles of a convolution that fit into the accelerator's memories, and the cost by which one tiling is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from graft.errors import CompileError
from graft.plugins.accelerator.configuration import Configuration

MOST_PADDING = 15
MOST_TRIPS = 1 << 14


@dataclass(frozen=True)
class Shape:
    """The extents of a convolution: channels in blocks, pads as top, left, bottom, right."""

    outputs: int
    inputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    @property
    def taps(self) -> int:
        """The places of a kernel."""
        return self.kernel[0] * self.kernel[1]

    @cached_property
    def result(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        rows, columns = (
            (self.size[i] + self.pads[i] + self.pads[i + 2] - self.dilations[i] * (self.kernel[i] - 1) - 1)
            // self.strides[i]
            + 1
            for i in (0, 1)
        )
        return rows, columns

    @property
    def products(self) -> int:
        """The blocks that are multiplied: the cycles that nothing can save."""
        return self.outputs * self.inputs * self.taps * math.prod(self.result)


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


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of outputs and inputs, rows and columns of the output."""

    outputs: range
    inputs: range
    rows: range
    columns: range

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
class Tiling:
    """The extents of a tile, how many buffers there are of each memory, and the entries that one has."""

    outputs: int
    inputs: int
    rows: int
    columns: int
    buffers: int
    input_room: int
    weight_room: int
    output_room: int
    outputs_outside: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One tile, the buffers that it uses, and whether they must be filled first."""

    tile: Tile
    input_slot: int
    weight_slot: int
    output_slot: int
    loads_input: bool
    loads_weights: bool


def steps_of(shape: Shape, tiling: Tiling) -> Iterator[Step]:
    """Yield the tiles in order; what a buffer still holds is not loaded again."""
    inputs: dict[object, int] = {}
    weights: dict[object, int] = {}
    for number, (outputs, rows, columns) in enumerate(_tiles(shape, tiling)):
        for chunk in _pieces(shape.inputs, tiling.inputs):
            tile = Tile(outputs, chunk, rows, columns)
            input_slot, loads_input = _slot(inputs, (chunk, rows, columns), tiling.buffers)
            weight_slot, loads_weights = _slot(weights, (chunk, outputs), tiling.buffers)
            yield Step(tile, input_slot, weight_slot, number % tiling.buffers, loads_input, loads_weights)


def _slot(held: dict[object, int], key: object, buffers: int) -> tuple[int, bool]:
    """Return the buffer of what is wanted and whether it is new there; the one used longest ago makes room."""
    found = held.pop(key, None)
    is_new = found is None
    if found is None:
        found = len(held) if len(held) < buffers else held.pop(next(iter(held)))
    held[key] = found
    return found, is_new


def _pieces(extent: int, size: int) -> list[range]:
    return [range(start, min(start + size, extent)) for start in range(0, extent, size)]


def _tiles(shape: Shape, tiling: Tiling) -> Iterator[tuple[range, range, range]]:
    places = [(r, c) for r in _pieces(shape.result[0], tiling.rows) for c in _pieces(shape.result[1], tiling.columns)]
    outputs = _pieces(shape.outputs, tiling.outputs)
    if tiling.outputs_outside:
        yield from ((o, r, c) for o in outputs for r, c in places)
    else:
        yield from ((o, r, c) for r, c in places for o in outputs)


# ---- Choice -------------------------------------------------------------------------------------------------------


def choose(shape: Shape, configuration: Configuration, buffers: int = 2) -> Tiling:
    """Return the tiling of the least estimated time; raise CompileError where none fits."""
    candidates = list(_candidates(shape, configuration, buffers))
    if not candidates:
        raise CompileError(
            f"accelerator: size: no tile of a convolution of {shape.kernel[0]} x {shape.kernel[1]} with pads "
            f"{shape.pads} fits into {buffers} buffers of {configuration.input_entries // buffers} inputs, "
            f"{configuration.weight_entries // buffers} weights and {configuration.accumulator_entries} accumulators "
            f"less {3 * shape.outputs}"
        )
    return min(candidates, key=lambda tiling: _cost(shape, configuration, tiling))


def _candidates(shape: Shape, configuration: Configuration, buffers: int) -> Iterator[Tiling]:
    rooms = (
        configuration.input_entries // buffers,
        configuration.weight_entries // buffers,
        (configuration.accumulator_entries - 3 * shape.outputs) // buffers,
    )
    if max(shape.pads) > MOST_PADDING:
        return
    for outputs in _extents(shape.outputs):
        for inputs in _extents(shape.inputs):
            for rows in _extents(shape.result[0]):
                for columns in {shape.result[1], -(-shape.result[1] // 2), -(-shape.result[1] // 4), 1}:
                    tile = Tile(range(outputs), range(inputs), range(1, rows + 1), range(1, columns + 1))
                    needed = (
                        inputs * tile.window(shape).entries,
                        outputs * inputs * shape.taps,
                        outputs * rows * columns,
                    )
                    if all(a <= b for a, b in zip(needed, rooms, strict=True)) and rows * columns < MOST_TRIPS:
                        for outside in (True, False):
                            yield Tiling(outputs, inputs, rows, columns, buffers, *rooms, outside)


def _extents(most: int) -> list[int]:
    """The extents that make pieces nearly equal."""
    return sorted({-(-most // pieces) for pieces in range(1, most + 1)})


def _cost(shape: Shape, configuration: Configuration, tiling: Tiling) -> float:
    """Estimate cycles: transfers and products beside each other with two buffers, after each other with one."""
    outputs, inputs = -(-shape.outputs // tiling.outputs), -(-shape.inputs // tiling.inputs)
    places = -(-shape.result[0] // tiling.rows) * -(-shape.result[1] // tiling.columns)
    tile = Tile(range(tiling.outputs), range(tiling.inputs), range(1, tiling.rows + 1), range(1, tiling.columns + 1))
    port, latency = configuration.port_bytes, configuration.latency
    input_load = tiling.inputs * (latency + tile.window(shape).entries * configuration.entry_bytes["input"] / port)
    weights = tiling.outputs * tiling.inputs * shape.taps
    weight_load = latency + weights * configuration.entry_bytes["weight"] / port
    whole = inputs <= tiling.buffers
    input_loads = outputs * places * inputs if tiling.outputs_outside or not whole else places * inputs
    weight_loads = outputs * places * inputs if not tiling.outputs_outside or not whole else outputs * inputs
    if places == 1 and whole:
        input_loads = inputs
    loading = input_loads * input_load + weight_loads * weight_load
    area = math.prod(shape.result)
    storing = outputs * places * tiling.outputs * latency + shape.outputs * area * configuration.block_out / port
    tiles = outputs * places
    alu = shape.outputs * area * configuration.alu_interval
    computing = shape.products + alu + tiles * (inputs + 2) * configuration.pipeline
    first = input_load + weight_load
    if tiling.buffers == 1:
        return loading + storing + computing
    return first + max(loading, computing, loading + storing - latency * (input_loads * tiling.inputs + weight_loads))
