"""The backend `cublas`: products of float32, float64 and floats of 16 bits by NVIDIA's library, on the device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from graft.core.machine.target import Target
from graft.plugins.backend import Backend, CompiledRegion, ShapeSupport
from graft.plugins.built_in import OfTable
from graft.plugins.cuda.cublas import library
from graft.plugins.cuda.machines import SM_80, weakest_of
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.core.machine.target import CompileOptions
    from graft.core.operators.definition.table import Cost
    from graft.partition.region import Region

KIND = "json:cublas"
CALL_SECONDS = 1.5e-6
"""What a call costs besides its work and its launch: descriptions, the choice of an algorithm."""


class CublasBackend(OfTable, Backend):
    """Matrix products with bias, Relu or Gelu behind them, beside generated kernels; the model for a device's library.

    Each product is a function of its own, so that the memory between them is planned with the rest of the program. The
    extents are those of the tensors that a call brings.
    """

    name: ClassVar[str] = "cublas"
    table: ClassVar[str] = "graft.plugins.cuda.cublas.products"
    priority: ClassVar[int] = 40
    by_default: ClassVar[bool] = False
    device: ClassVar[str] = "cuda"
    shapes: ClassVar[ShapeSupport] = "symbolic"
    install: ClassVar[str] = library.INSTALL

    def compile(self, region: Region, options: CompileOptions) -> CompiledRegion:
        """Return the region as products; what it needs is only there where it is loaded."""
        from graft.plugins.cuda.cublas.region_products import RegionProducts

        products = RegionProducts(region, options.target.precision)
        data = json.dumps({"format": 1, "products": products.rows}, separators=(",", ":")).encode()
        names = tuple(str(row["name"]) for row in products.rows)
        module = Module(region.name, KIND, names, data, plugin="cuda", install=self.install)
        return CompiledRegion((module,), products.procedure(), products.constants)

    def cost(self, region: Region) -> Sequence[Cost]:
        """Return the seconds of each product on the device of `sm_80`."""
        return self.cost_on(region, Target(SM_80))

    def cost_on(self, region: Region, target: Target) -> Sequence[Cost]:
        """Return the seconds of each product on the device of the target."""
        from graft.core.operators.all import OPERATORS
        from graft.partition.costs import Work
        from graft.plugins.cuda.cost import LIBRARY, DeviceCost

        cost = DeviceCost(weakest_of(target), target.precision, LIBRARY, OPERATORS)
        kernels = cost.kernels([region.opened(node) for node in region.nodes()], Work(OPERATORS, region.typical))
        return [replace(one, seconds=one.seconds + CALL_SECONDS) for one in kernels]

    def available(self) -> str | None:
        """Return None if cuBLASLt can be opened here, else what to install."""
        return library.MISSING if library.library() is None else None

    def device_fault(self) -> str:
        """Return why programs cannot run here."""
        from graft.plugins.cuda.module import device_fault

        return device_fault()

    def version(self) -> str:
        """Return the version of the library, or what to install."""
        return library.version()

    def fingerprint(self) -> str:
        """Return the version."""
        return self.version()
