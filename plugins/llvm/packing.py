"""Packing the constants of kernels that share a function, without scheduling each of them.

A schedule lays constants out anew: it moves elements and pads with zeros. What goes where is found once, by scheduling
the kernel with the numbers of its elements as contents, and checked against what the schedule made of real contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.tensor_ir.ir import Buffer

EXACT = {np.dtype(np.float32): 1 << 24, np.dtype(np.float64): 1 << 53}
"""Up to which number every whole number is one of the type."""
Schedule = Callable[[Kernel], Scheduled]


@dataclass(slots=True)
class SharedSchedule:
    """The schedule of the first kernel of a structure, for all others of it.

    ``places`` gives, for the number of a packed input, the flat position of every packed element in the contents, one
    more than that, 0 standing for padding. It is None until asked for, and empty where packing does more than move.
    """

    kernel: Kernel
    scheduled: Scheduled
    places: Mapping[int, np.ndarray] | None = None

    def of(self, kernel: Kernel, schedule: Schedule) -> Scheduled:
        """Return the schedule of another kernel of the same structure: the same function, its own constants."""
        if not self.scheduled.packed:
            return self.scheduled
        if self.places is None:
            self.places = self._find_places(schedule)
        if not self.places:
            return Scheduled(self.scheduled.function, schedule(kernel).packed)
        packed = {}
        for number, places in self.places.items():
            buffer = kernel.inputs[number]
            packed[buffer] = moved(kernel.constants[buffer], places)
        return Scheduled(self.scheduled.function, packed)

    def _find_places(self, schedule: Schedule) -> Mapping[int, np.ndarray]:
        sources = list(self.scheduled.packed)
        constants = dict(self.kernel.constants)
        for source in sources:
            contents = constants[source]
            if contents.size >= EXACT.get(contents.dtype, 0):
                return {}
            constants[source] = np.arange(1, contents.size + 1, dtype=contents.dtype).reshape(contents.shape)
        numbered = schedule(replace(self.kernel, constants=constants)).packed
        found: dict[int, np.ndarray] = {}
        for source in sources:
            places = self._checked(source, numbered[source])
            if places is None:
                return {}
            found[self.kernel.inputs.index(source)] = places
        return found

    def _checked(self, source: Buffer, numbered: np.ndarray) -> np.ndarray | None:
        """The places as integers, None if moving the real contents there is not what the schedule made of them."""
        contents = self.kernel.constants[source]
        if not np.all((numbered >= 0) & (numbered <= contents.size) & (numbered == np.floor(numbered))):
            return None
        places = numbered.astype(np.int32 if contents.size < 1 << 31 else np.int64)
        expected = self.scheduled.packed[source]
        return places if np.array_equal(moved(contents, places), expected, equal_nan=True) else None


def moved(contents: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return an array of the shape of ``places`` with element ``place - 1`` of the contents, or zero at place 0."""
    extended = np.concatenate([np.zeros(1, contents.dtype), contents.reshape(-1)])
    return np.take(extended, places)
