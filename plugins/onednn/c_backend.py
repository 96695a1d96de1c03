"""The oneDNN backend in C: the kernels of the JSON form as plain calls of oneDNN's C interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from graft.core.reject import Reject
from graft.plugins.c_source_backend import CSourceBackend
from graft.plugins.onednn import library
from graft.plugins.onednn.operators import row_of

if TYPE_CHECKING:
    import numpy as np

    from graft.core.graph.view import NodeView
    from graft.partition.region import Region
    from graft.patterns.composite import Composite
    from graft.plugins.c_calls import CCall, CKernel
    from graft.plugins.json_graph import JsonGraph

HERE = Path(__file__).parent
DECLARED = """
#define DNNL_DECLARED(result, name, parameters) extern result dnnl_##name parameters;
DNNL_FUNCTIONS(DNNL_DECLARED)
#undef DNNL_DECLARED
"""


class OneDnnCBackend(CSourceBackend):
    """What `onednn` takes of convolutions, products, pooling, softmax and elementwise operators, for C projects.

    Each call keeps the primitive that it made in its first run, and reads and writes row-major tensors: `onednn`, whose
    tensors stay in oneDNN's layouts from one convolution to the next, is the faster of the two.
    """

    name: ClassVar[str] = "onednn_c"
    priority: ClassVar[int] = 30
    by_default: ClassVar[bool] = False
    headers: ClassVar[tuple[str, ...]] = ("stdlib.h",)
    libraries: ClassVar[tuple[str, ...]] = (library.NAME,)
    install: ClassVar[str] = library.INSTALL
    helpers: ClassVar[str] = "".join(
        ((HERE / "native" / "dnnl_abi.h").read_text(encoding="utf-8"), DECLARED, (HERE / "calls.h").read_text("utf-8"))
    )
    success: ClassVar[str] = "DNNL_SUCCESS"

    @property
    def patterns(self) -> Sequence[Composite]:
        """The composites of `onednn` but residual connections, slow where both sides do not lie as oneDNN likes."""
        from graft.plugins.onednn.patterns import PATTERNS

        return tuple(one for one in PATTERNS if "_add" not in one.name)

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True if one primitive that has a call computes the node, or why none does."""
        from graft.plugins.onednn.checks import supported

        if not row_of(node).has_call:
            return Reject("no-pattern", f"no call of oneDNN in C computes {node.op_type}")
        return supported(node)

    def kernels(self, region: Region) -> tuple[JsonGraph, Mapping[str, np.ndarray]]:
        """Return the region in oneDNN's terms, as the JSON form has it."""
        from graft.plugins.json_codegen import serialize
        from graft.plugins.onednn.primitives import lower_graph

        graph, constants = lower_graph(*serialize(region))
        return replace(graph, nodes=tuple(replace(node, operands={}) for node in graph.nodes)), constants

    def call(self, kernel: CKernel) -> CCall:
        """Return the call of a primitive."""
        from graft.plugins.onednn.calls import call_of

        return call_of(kernel)

    def available(self) -> str | None:
        """Return None if oneDNN can be opened here, and there is a C compiler; else what to install."""
        return library.MISSING if library.open_library() is None else super().available()

    def version(self) -> str:
        """Return oneDNN's version and path, or what to install."""
        return library.MISSING if library.open_library() is None else library.version()
