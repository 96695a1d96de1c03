"""What a region costs in seconds, by a model of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Cost, OperatorTable
from graft.partition.backend_like import BackendLike
from graft.partition.costs import Work, kernel_cost
from graft.partition.region import Region

CALL_SECONDS = 2e-6
"""What entering a region costs in the default model."""
KERNEL_SECONDS, WAKING_SECONDS = 5e-7, 2e-6
"""What calling a kernel costs on one thread, and what handing it to more threads costs beside."""
COPY_BYTES_PER_SECOND = 1e10
UNKNOWN_SHARE = 0.5
"""The share of the processor's rates that a backend is taken to reach if it does not say what its regions cost."""


class Estimator(Protocol):
    """Prices regions, and the values that pass between regions of different backends."""

    @property
    def margin(self) -> float:
        """The share by which another plan must be cheaper than the built-in compiler's to count as such."""
        ...

    def region_seconds(self, region: Region) -> float:
        """Return the time that a region takes, its call included."""
        ...

    def copy_seconds(self, size: int) -> float:
        """Return the time that it takes to hand ``size`` bytes to another backend."""
        ...

    def transfer_seconds(self, size: int) -> float:
        """Return the time that it takes to copy ``size`` bytes from main memory to a device, or back."""
        ...


@dataclass(slots=True)
class Roofline:
    """Operations or bytes, whichever takes longer (Williams et al., 2009), kernel by kernel.

    A backend says by ``cost(region)`` which kernels it makes of a region. One that does not is taken to compute every
    operator by itself. The rates count for every backend alike and are those of one
    thread; what a backend computes on a device it tells in seconds.
    """

    backends: Sequence[BackendLike]
    operators: OperatorTable
    threads: int = 1
    target: Target | None = None
    """What code is for: backends whose device is among the target's price their kernels by it (`Backend.cost_on`)."""
    flops_per_second: float = 1e11
    bytes_per_second: float = 1e10
    margin: float = 0.15
    link_bytes_per_second: float = 2e10
    link_seconds: float = 1e-5
    """Of copies between main memory and a device: PCI Express 4.0 with 16 lanes, and what each takes besides."""

    def region_seconds(self, region: Region) -> float:
        """Return the time of a region's kernels one after another."""
        costs = self._said(region)
        if costs is None:
            costs = self._unknown(region)
        kernels = [costs] if isinstance(costs, Cost) else costs
        return sum(map(self._kernel, kernels)) + CALL_SECONDS

    def _said(self, region: Region) -> Cost | Sequence[Cost] | None:
        """Return what a region's backend says of it."""
        backend = next((one for one in self.backends if one.name == region.backend), None)
        on_target: Callable[[Region, Target], Cost | Sequence[Cost] | None] | None = getattr(backend, "cost_on", None)
        if on_target is not None and self.target is not None:
            return on_target(region, self.target)
        own: Callable[[Region], Cost | Sequence[Cost] | None] | None = getattr(backend, "cost", None)
        return None if own is None else own(region)

    def copy_seconds(self, size: int) -> float:
        """Return the time of writing and reading the bytes once."""
        return size / COPY_BYTES_PER_SECOND

    def transfer_seconds(self, size: int) -> float:
        """Return the time of the bytes on the link, and of a copy."""
        return self.link_seconds + size / self.link_bytes_per_second

    def _kernel(self, cost: Cost) -> float:
        limit = max(cost.flops / self.flops_per_second, cost.bytes / self.bytes_per_second) / self.threads
        return limit + cost.seconds + KERNEL_SECONDS + (WAKING_SECONDS if self.threads > 1 else 0.0)

    def _unknown(self, region: Region) -> Sequence[Cost]:
        work = Work(self.operators, region.typical)
        done = [kernel_cost([inner], work) for node in region.nodes() for inner in region.opened(node)]
        return [Cost(int(one.flops / UNKNOWN_SHARE), int(one.bytes / UNKNOWN_SHARE)) for one in done]
