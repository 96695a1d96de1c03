"""The XNNPACK backend: convolutions, products, pooling and elementwise operators as calls of its operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from graft.plugins.built_in import OfTable
from graft.plugins.c_source_backend import CSourceBackend
from graft.plugins.xnnpack import library
from graft.plugins.xnnpack.operators import LIMITED, OF_IMAGES

if TYPE_CHECKING:
    from graft.plugins.c_calls import CCall, CKernel


class XnnpackBackend(OfTable, CSourceBackend):
    """Operators in float32 by XNNPACK; the model for a library whose operators are made once and run often.

    A call makes its operator, which packs the weights, in its first run and keeps it. XNNPACK takes subnormal
    numbers for zeros, and limits almost every result, if only by infinities: its maxima and minima take NaN for a
    number.
    """

    name: ClassVar[str] = "xnnpack"
    table: ClassVar[str] = "graft.plugins.xnnpack.patterns"
    priority: ClassVar[int] = 35
    by_default: ClassVar[bool] = False
    loses_nan: ClassVar[frozenset[str]] = LIMITED
    channels_last: ClassVar[frozenset[str]] = OF_IMAGES
    headers: ClassVar[tuple[str, ...]] = ("xnnpack.h", "stdlib.h", "string.h")
    libraries: ClassVar[tuple[str, ...]] = (library.NAME,)
    install: ClassVar[str] = library.INSTALL
    helpers: ClassVar[str] = (Path(__file__).parent / "calls.h").read_text(encoding="utf-8")
    success: ClassVar[str] = "xnn_status_success"

    def call(self, kernel: CKernel) -> CCall:
        """Return the call of an operator with what follows it."""
        from graft.plugins.xnnpack.calls import call_of

        return call_of(kernel)

    def version(self) -> str:
        """Return the library's name: XNNPACK has no releases, and says no version."""
        return library.NAME
