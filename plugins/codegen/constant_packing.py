"""Packing the constants of kernels without scheduling each of them.

A schedule lays constants out anew: it moves elements and pads with zeros. What goes where is found by scheduling the
first kernel of a structure with the numbers of its elements as contents: all others, in this model or in one compiled
later, are packed by moving elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.tensor_ir.ir import Buffer
from graft.runtime.constants import aligned_array
from graft.runtime.procedure import Schedule as Report

EXACT = {np.dtype(np.float32): 1 << 24, np.dtype(np.float64): 1 << 53}
"""Up to which number every whole number is one of the type."""
Schedule = Callable[[Kernel], Scheduled]


@dataclass(frozen=True, slots=True)
class Shared:
    """What kernels of one structure share: how constants are packed (None: packing computes), and how it was made."""

    name: str
    places: Places | None
    report: Report = field(default_factory=dict)

    def packed(self, kernel: Kernel, schedule: Schedule) -> Mapping[Buffer, np.ndarray]:
        """Return the constants of another kernel of the structure as the shared function wants them."""
        if self.places is None:
            return schedule(kernel).packed
        packed = {}
        for number, at in self.places.items():
            buffer = kernel.inputs[number]
            contents = kernel.constants[buffer]
            packed[buffer] = at.copy(contents) if isinstance(at, Strided) else moved(contents, at)
        return packed


@dataclass(frozen=True, slots=True)
class Strided:
    """Places that lie in a regular grid: a copy of it is many times as fast as a look-up of each element."""

    shape: tuple[int, ...]
    """That of the packed array."""
    first: int
    extents: tuple[int, ...]
    steps: tuple[int, ...]

    def copy(self, contents: np.ndarray) -> np.ndarray:
        """Return the elements of ``contents`` at the places."""
        ends = [(extent - 1) * step for extent, step in zip(self.extents, self.steps, strict=True)]
        low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        assert self.first + low >= 0 and self.first + high < contents.size, (self, contents.shape)
        found = self._of_view(contents)
        if found is None:
            flat = np.ascontiguousarray(contents).reshape(-1)[self.first :]
            found = as_strided(flat, self.extents, [step * flat.itemsize for step in self.steps])
        packed = aligned_array(self.shape, contents.dtype)
        packed.reshape(found.shape)[...] = found
        return packed

    def _of_view(self, contents: np.ndarray) -> np.ndarray | None:
        """Return the elements as a view of contents that are not contiguous; None where a step crosses their rows."""
        if contents.flags.c_contiguous or not all(0 <= step < contents.size for step in self.steps):
            return None
        first = np.array(np.unravel_index(self.first, contents.shape), np.int64)
        moves = np.array([np.unravel_index(step, contents.shape) for step in self.steps], np.int64)
        moves = moves.reshape(len(self.steps), contents.ndim)
        last = first + (np.array(self.extents, np.int64) - 1) @ moves
        if (last >= contents.shape).any():
            return None
        return as_strided(contents[(*first.tolist(), ...)], self.extents, moves @ np.array(contents.strides))


def strided(places: np.ndarray) -> Strided | None:
    """Return the grid that places without padding form, None if they form none."""
    rest, extents, steps = places.reshape(-1), [], []
    if not rest.size or not rest.all():
        return None
    while rest.size > 1:
        differences = np.diff(rest)
        step = int(differences[0])
        breaks = differences != step
        extent = int(np.argmax(breaks)) + 1 if breaks.any() else rest.size
        if rest.size % extent:
            return None
        begins = rest[::extent]
        if not np.array_equal(rest.reshape(-1, extent), begins[:, None] + step * np.arange(extent)):
            return None
        extents.append(extent)
        steps.append(step)
        rest = begins
    return Strided(places.shape, int(rest[0]) - 1, tuple(reversed(extents)), tuple(reversed(steps)))


Places = Mapping[int, Strided | np.ndarray]
"""By the number of a packed input: for every packed element 1 + its flat position in the contents, 0 for padding."""


def scheduled_and_places(kernel: Kernel, schedule: Schedule) -> tuple[Scheduled, Places | None]:
    """Return the schedule of a kernel, and where its packed constants come from (None where packing computes)."""
    if kernel.anchor is Trait.RECURRENT:  # one of a kind, with large weights: packing them is cheaper than asking how
        return schedule(kernel), None
    numbered = dict(kernel.constants)
    for buffer, contents in kernel.constants.items():
        if contents.size < EXACT.get(contents.dtype, 0):
            # Negative, so that an absolute value or a clipping at zero does not pass for a move.
            numbers = np.arange(-1, -1 - contents.size, -1, dtype=contents.dtype)
            numbered[buffer] = numbers.reshape(contents.shape)
    scheduled = schedule(replace(kernel, constants=numbered))
    places: dict[int, Strided | np.ndarray] = {}
    for source, packed in scheduled.packed.items():
        found = None if numbered[source] is kernel.constants[source] else _places(packed, numbered[source])
        if found is None:
            return schedule(kernel), None
        places[kernel.inputs.index(source)] = strided(found) or found
    return scheduled, places


def _places(packed: np.ndarray, numbers: np.ndarray) -> np.ndarray | None:
    """The places as integers; None unless ``packed`` holds zeros and each of the numbers at least once."""
    if packed.dtype != numbers.dtype or not packed.size:
        return None
    places = (-packed).astype(np.int32 if numbers.size < 1 << 31 else np.int64)
    if not np.array_equal(places, -packed) or places.min() < 0 or places.max() > numbers.size:
        return None
    return places if np.bincount(places.reshape(-1), minlength=numbers.size + 1)[1:].all() else None


def moved(contents: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return an array of the shape of ``places`` with element ``place - 1`` of the contents, or zero at place 0."""
    extended = np.concatenate([np.zeros(1, contents.dtype), contents.reshape(-1)])
    return np.take(extended, places, out=aligned_array(places.shape, contents.dtype), mode="clip")
