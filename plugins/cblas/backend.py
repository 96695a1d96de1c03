"""The CBLAS backend: MatMul and Gemm, with bias and Relu, as calls of a BLAS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from graft.plugins.backend import ShapeSupport
from graft.plugins.built_in import OfTable
from graft.plugins.c_source_backend import CSourceBackend
from graft.plugins.cblas import library

if TYPE_CHECKING:
    from graft.plugins.c_calls import CCall, CKernel


class CblasBackend(OfTable, CSourceBackend):
    """Matrix products in float32 and float64 by OpenBLAS; the model for every library of C functions."""

    name: ClassVar[str] = "cblas"
    table: ClassVar[str] = "graft.plugins.cblas.products"
    priority: ClassVar[int] = 40
    by_default: ClassVar[bool] = False
    shapes: ClassVar[ShapeSupport] = "symbolic"
    headers: ClassVar[tuple[str, ...]] = ("cblas.h",)
    libraries: ClassVar[tuple[str, ...]] = (library.NAME,)
    install: ClassVar[str] = library.INSTALL
    helpers: ClassVar[str] = (Path(__file__).parent / "calls.h").read_text(encoding="utf-8")
    success: ClassVar[str] = "0"

    def call(self, kernel: CKernel) -> CCall:
        """Return the call of a product with what stands behind it."""
        from graft.plugins.cblas.products import product

        return product(kernel)

    def version(self) -> str:
        """Return what OpenBLAS says of itself, "" if it is not here."""
        return library.version()

    def fingerprint(self) -> str:
        """Return the version."""
        return self.version()
