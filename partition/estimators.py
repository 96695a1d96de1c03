"""What a region costs in seconds: by a model of the machine, or measured once and remembered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from graft.core.operators.table import Cost
from graft.partition.backend_like import BackendLike
from graft.partition.costs import Work, value_bytes
from graft.partition.region import Region
from graft.partition.structure import structure

CALL_SECONDS = 2e-6
"""What entering a region costs in the default model."""
COPY_BYTES_PER_SECOND = 1e10


class Estimator(Protocol):
    """Prices regions, and the values that pass between regions of different backends."""

    def region_seconds(self, region: Region) -> float:
        """Return the time that a region takes, its call included."""
        ...

    def copy_seconds(self, size: int) -> float:
        """Return the time that it takes to hand ``size`` bytes to another backend."""
        ...


@dataclass(slots=True)
class Roofline:
    """Operations or bytes, whichever takes longer (Williams et al., 2009); a backend's own ``cost(region)`` goes first.

    The rates count for every backend alike; a backend that is slower than they say reports a larger cost.
    """

    backends: Sequence[BackendLike]
    work: Work
    flops_per_second: float = 5e10
    bytes_per_second: float = 1e10

    def region_seconds(self, region: Region) -> float:
        """Return the time of a region from its operations and the bytes that it reads and writes."""
        own = next(
            (getattr(backend, "cost", None) for backend in self.backends if backend.name == region.backend), None
        )
        cost = own(region) if own is not None else None
        if cost is None:
            cost = self._default(region)
        return max(cost.flops / self.flops_per_second, cost.bytes / self.bytes_per_second) + CALL_SECONDS

    def copy_seconds(self, size: int) -> float:
        """Return the time of writing and reading the bytes once."""
        return size / COPY_BYTES_PER_SECOND

    def _default(self, region: Region) -> Cost:
        nodes = [inner for node in region.nodes() for inner in region.opened(node)]
        inputs = [value.value for value in region.inputs]
        moved = sum(map(value_bytes, [*inputs, *(value.value for value in region.outputs)]))
        held = sum(tensor.nbytes for tensor in region.constants.values())
        return Cost(sum(self.work.flops(node) for node in nodes), moved + held)


@dataclass(slots=True)
class Measured:
    """Measured times, once per structure of a region.

    ``measure(region)`` compiles and times a region, in seconds, and gives infinity for one that cannot be; ``times``
    remembers (`graft.partition.times.TimesDatabase` does so between runs). ``fingerprints`` names what each backend's
    times depend on besides (its version, the machine), so that other times are not used.
    """

    measure: Callable[[Region], float]
    times: MutableMapping[str, float] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    copy_bytes_per_second: float = COPY_BYTES_PER_SECOND

    def region_seconds(self, region: Region) -> float:
        """Return the time of a region, known or measured now; a failure is not remembered, for it may be mended."""
        key = f"{region.backend} {self.fingerprints.get(region.backend, '')} {structure(region)}"
        known = self.times.get(key)
        if known is None:
            known = self.measure(region)
            if math.isfinite(known):
                self.times[key] = known
        return known

    def copy_seconds(self, size: int) -> float:
        """Return the time of handing the bytes over."""
        return size / self.copy_bytes_per_second
