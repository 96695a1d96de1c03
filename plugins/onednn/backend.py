"""The oneDNN backend: composites and single operators become a JSON graph of oneDNN primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from graft.core.reject import Reject, Yield
from graft.plugins.backend import Backend, ConstantOwnership, ShapeSupport
from graft.plugins.onednn import library
from graft.plugins.onednn.operators import LOSES_NAN
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.core.machine.target import CompileOptions
    from graft.core.operators.definition.table import Cost
    from graft.partition.region import Region
    from graft.patterns.composite import Composite

KIND = "json:onednn"


class OneDnnBackend(Backend):
    """Regions run by oneDNN in float32; the model for every library vendor.

    `compile` does not need the library: what it writes runs wherever a oneDNN 3 is found at load. Where shapes vary it
    writes them as expressions over the symbols of the region's inputs, and the loader makes primitives for the shapes
    that calls bring.
    """

    name: ClassVar[str] = "onednn"
    priority: ClassVar[int] = 50
    constants: ClassVar[ConstantOwnership] = "handed-over"
    shapes: ClassVar[ShapeSupport] = "run-time"
    loses_nan: ClassVar[frozenset[str]] = LOSES_NAN
    install: ClassVar[str] = library.INSTALL

    @property
    def patterns(self) -> Sequence[Composite]:
        """The composites in order of preference."""
        from graft.plugins.onednn.patterns import PATTERNS

        return PATTERNS

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True if one primitive computes the node, or why none does."""
        from graft.plugins.onednn.checks import supported

        return supported(node)

    def yields(self, node: NodeView) -> Yield | None:
        """Return why the node is a pass over memory of its own, or has no fast primitive."""
        from graft.plugins.onednn.boundary_support import declined_at_boundary

        return declined_at_boundary(node)

    def compile(self, region: Region, options: CompileOptions) -> Module:
        """Return the region as a JSON graph in oneDNN's terms; raise CompileError for what has no primitive."""
        from graft.plugins.json_codegen import serialize
        from graft.plugins.onednn.primitives import lower_graph

        graph, constants = lower_graph(*serialize(region))
        return Module(region.name, KIND, (region.name,), graph.to_json(), constants, self.name, self.install)

    def cost(self, region: Region) -> Sequence[Cost]:
        """Return one cost for each primitive."""
        from graft.plugins.onednn.cost import region_costs

        return region_costs(region)

    def available(self) -> str | None:
        """Return None if oneDNN can be opened here, else what to install."""
        return library.MISSING if library.open_library() is None else None

    def version(self) -> str:
        """Return oneDNN's version and path, or what to install."""
        return library.MISSING if library.open_library() is None else library.version()
