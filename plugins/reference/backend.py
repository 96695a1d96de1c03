"""The backend below all others: runs what nobody else takes through `onnx.reference`, slowly and exactly.

A region becomes a module of kind ``reference``: the region as an ONNX model. Its loader imports onnx, so a program
with such a module needs onnx where it runs; programs without one do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.machine.target import CompileOptions
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Cost
from graft.core.reject import Reject
from graft.partition.costs import Work, kernel_cost
from graft.partition.region import Region
from graft.plugins.backend import Backend
from graft.plugins.reference.operators import implementation
from graft.plugins.toolkits.region_model import constants_of, model_of
from graft.runtime.procedure import Module

CALL_SECONDS = 5e-5
"""What the evaluation of one operator costs besides its work."""
FLOPS_PER_SECOND = 1e9
"""Much less than NumPy's products, much more than its loops in Python."""
BYTES_PER_SECOND = 2e9


class ReferenceBackend(Backend):
    """`onnx.reference` as a backend: every operator that it implements, or that ONNX defines by other operators."""

    name = "reference"
    priority = 0
    fallback = True
    packed = True
    install = "pip install onnx"

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True if onnx.reference can compute the node, and all nodes in the graphs that it holds."""
        refusal = implementation(node)
        if refusal is not None:
            return refusal
        for attribute in node.node.attributes.values():
            graphs = {ir.AttributeType.GRAPH: [attribute.value], ir.AttributeType.GRAPHS: attribute.value}
            for graph in graphs.get(attribute.type, ()):
                for inner in graph:
                    verdict = self.supports(NodeView(inner))
                    if isinstance(verdict, Reject):
                        return verdict
        return True

    def compile(self, region: Region, options: CompileOptions) -> Module:
        """Return the region as an ONNX model; constants are handed over, strings and small elements embedded."""
        data = model_of(region).SerializeToString(deterministic=True)
        return Module(region.name, "reference", (region.name,), data, constants_of(region), install=self.install)

    def cost(self, region: Region) -> Sequence[Cost]:
        """Return one cost for each operator: a call of Python, and NumPy on one thread."""
        work = Work(OPERATORS, region.typical)
        done = [kernel_cost([node], work) for node in region.nodes()]
        return [Cost(0, 0, CALL_SECONDS + one.flops / FLOPS_PER_SECOND + one.bytes / BYTES_PER_SECOND) for one in done]

    def fingerprint(self) -> str:
        """Return the version of onnx."""
        return self.version()

    def version(self) -> str:
        """Return the version of onnx, whose reference implementation this is."""
        import onnx

        return f"onnx.reference {onnx.__version__}"
