"""Packing the constants of kernels without scheduling each of them.

A schedule lays constants out anew: it moves elements and pads with zeros. What goes where is found by scheduling the
first kernel of a structure with the numbers of its elements as contents: all others, in this model or in one compiled
later, are packed by moving elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.tensor_ir.ir import Buffer, Function

EXACT = {np.dtype(np.float32): 1 << 24, np.dtype(np.float64): 1 << 53}
"""Up to which number every whole number is one of the type."""
Schedule = Callable[[Kernel], Scheduled]
Places = Mapping[int, np.ndarray]
"""By the number of a packed input: for every packed element 1 + its flat position in the contents, 0 for padding."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What kernels of one structure share: how their constants are packed; None where packing computes."""

    name: str
    places: Places | None

    def packed(self, kernel: Kernel, schedule: Schedule) -> Mapping[Buffer, np.ndarray]:
        """Return the constants of another kernel of the structure as the shared function wants them."""
        if self.places is None:
            return schedule(kernel).packed
        inputs = kernel.inputs
        return {inputs[number]: moved(kernel.constants[inputs[number]], at) for number, at in self.places.items()}


def scheduled_and_places(kernel: Kernel, schedule: Schedule) -> tuple[Function, Places | None]:
    """Return the function of a kernel, and where its packed constants come from (None where packing computes)."""
    numbered = dict(kernel.constants)
    for buffer, contents in kernel.constants.items():
        if contents.size < EXACT.get(contents.dtype, 0):
            # Negative, so that an absolute value or a clipping at zero does not pass for a move.
            numbers = np.arange(-1, -1 - contents.size, -1, dtype=contents.dtype)
            numbered[buffer] = numbers.reshape(contents.shape)
    scheduled = schedule(replace(kernel, constants=numbered))
    places: dict[int, np.ndarray] = {}
    for source, packed in scheduled.packed.items():
        found = None if numbered[source] is kernel.constants[source] else _places(packed, numbered[source])
        if found is None:
            return schedule(kernel).function, None
        places[kernel.inputs.index(source)] = found
    return scheduled.function, places


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
    return np.take(extended, places)
