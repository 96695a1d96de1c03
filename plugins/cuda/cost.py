"""What kernels cost on a device: seconds by its row, arithmetic or memory, whichever takes longer, and a launch.

The shares are what kernels are taken to reach of the row's numbers; `--place measured` asks the device itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from graft.core.operators.definition.table import Cost, OperatorTable, Trait
from graft.partition.costs import Work, kernel_cost, typical_shape
from graft.plugins.cuda.machines import LAUNCH_SECONDS, SPEEDS, Speed

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.core.machine.machine import Machine
    from graft.core.machine.target import Precision

MEMORY_SHARE = 0.85
"""The share of the memory's rate that a kernel reaches."""
BLOCK_SUMS = 1024
"""The sums that a block has at least: where there are fewer blocks than multiprocessors, some of these have nothing."""
PRODUCTS = frozenset({Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION})
FACTOR_BYTES = {"float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}
"""Of the types whose products are made by tensor instructions, whatever the precision."""
ROUNDED_BYTES = {"tf32": 4, "bf16": 2, "fp16": 2}
"""The same of float32, by precision."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What products reach of a device's arithmetic: on its cores, by tensor instructions, the best or `mma.sync`."""

    cores: float
    tensor: float
    is_best: bool


LIBRARY = Shares(0.93, 0.85, is_best=True)


def generated(machine: Machine) -> Shares:
    """Return what generated kernels are taken to reach."""
    return Shares(0.8, 0.6, is_best=machine.has("wgmma_float16"))


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """What prices the kernels of one device; products of float32 are of a precision."""

    machine: Machine
    precision: Precision
    shares: Shares
    table: OperatorTable

    def kernels(self, kernels: Sequence[Sequence[NodeView]], work: Work) -> list[Cost]:
        """Return the seconds of each kernel, given the nodes of each."""
        return [Cost(0, 0, self._seconds(nodes, work)) for nodes in kernels]

    def _seconds(self, nodes: Sequence[NodeView], work: Work) -> float:
        cost, speed = kernel_cost(nodes, work), SPEEDS[self.machine.cpu]
        arithmetic = cost.flops / 2 / self._rate(nodes, speed, work)
        memory = cost.bytes / (self.machine.far.bandwidth * speed.hertz * MEMORY_SHARE)
        return max(arithmetic, memory) + LAUNCH_SECONDS

    def _rate(self, nodes: Sequence[NodeView], speed: Speed, work: Work) -> float:
        """Return multiply-adds per second of the first product, on as many multiprocessors as its sums keep busy."""
        product = next((node for node in nodes if self._is_product(node)), None)
        if product is None:
            return self.machine.costs.fused * speed.cycles_per_second * self.shares.cores
        factor = product.inputs[0]
        dtype = factor.dtype if factor is not None else "float32"
        shape = typical_shape(product.outputs[0].value, work.typical) or ()
        filled = min(1.0, -(-prod(shape) // BLOCK_SUMS) / speed.multiprocessors)
        return self._per_cycle(dtype, speed) * speed.cycles_per_second * max(filled, 1 / speed.multiprocessors)

    def _per_cycle(self, dtype: str, speed: Speed) -> float:
        size = FACTOR_BYTES.get(dtype) or (ROUNDED_BYTES.get(self.precision) if dtype == "float32" else None)
        if size is not None:
            return (speed.best if self.shares.is_best else speed.tensor) * 2 / size * self.shares.tensor
        return (speed.double if dtype == "float64" else self.machine.costs.fused) * self.shares.cores

    def _is_product(self, node: NodeView) -> bool:
        operator = self.table.of(node)
        return operator is not None and bool(operator.traits & PRODUCTS)
