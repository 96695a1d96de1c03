"""The CBLAS backend: MatMul and Gemm, with bias and Relu, as calls of a BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from graft.plugins.backend import ShapeSupport
from graft.plugins.c_source_backend import CSourceBackend
from graft.plugins.cblas import library

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.core.reject import Reject
    from graft.patterns.composite import Composite
    from graft.plugins.c_calls import CCall, CKernel


class CblasBackend(CSourceBackend):
    """Matrix products in float32 and float64 by OpenBLAS; the model for every library of C functions."""

    name: ClassVar[str] = "cblas"
    priority: ClassVar[int] = 40
    by_default: ClassVar[bool] = False
    shapes: ClassVar[ShapeSupport] = "symbolic"
    headers: ClassVar[tuple[str, ...]] = ("cblas.h",)
    libraries: ClassVar[tuple[str, ...]] = (library.NAME,)
    install: ClassVar[str] = library.INSTALL
    helpers: ClassVar[str] = (Path(__file__).parent / "calls.h").read_text(encoding="utf-8")
    success: ClassVar[str] = "0"

    @property
    def patterns(self) -> Sequence[Composite]:
        """The composites in order of preference."""
        from graft.plugins.cblas.products import PATTERNS

        return PATTERNS

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True for a product of matrices, or why it is none."""
        from graft.plugins.cblas.products import refused

        refusal = refused(node)
        return True if refusal is None else refusal

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
