"""A region: the part of a model that one backend compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graft.core.view import NodeView, ValueView

REGION_DOMAIN = "graft.region"
COMPOSITE_DOMAIN = "graft.composite"


@dataclass(frozen=True, slots=True)
class Region:
    """A region as its backend receives it.

    The body is ``function``, an ONNX model-local function; calls in the domain `COMPOSITE_DOMAIN` refer to
    ``composites`` by name. Every value in the bodies carries dtype and shape. Inputs of the function (and of a
    composite's body) that are constant carry their tensor (``const_value``), so `NodeView` sees them as constants.
    """

    name: str
    """The global symbol: unique in the program and a C identifier."""
    backend: str
    function: ir.Function
    composites: Mapping[str, ir.Function]
    inputs: tuple[ValueView, ...]
    """The inputs that are computed at run time, in the order in which the compiled function gets them."""
    outputs: tuple[ValueView, ...]
    constants: Mapping[str, ir.TensorProtocol] = field(default_factory=dict)
    """The other inputs of ``function``, by name."""
    origin: tuple[str, ...] = ()
    """The names of the model's nodes in this region, composites opened."""

    def nodes(self) -> tuple[NodeView, ...]:
        """Return the nodes of the body in execution order; a composite is one node."""
        return tuple(NodeView(node) for node in self.function)

    def composite(self, node: NodeView) -> tuple[str, ir.Function] | None:
        """Return (composite name such as ``onednn.conv_relu``, body) if the node calls a composite, else None."""
        if node.domain != COMPOSITE_DOMAIN:
            return None
        body = self.composites[node.op_type]
        return body.metadata_props["Composite"], body

    def constant(self, name: str) -> np.ndarray:
        """Return the contents of the constant input ``name``."""
        return self.constants[name].numpy()
