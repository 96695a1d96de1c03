"""The backend of irregular operators, behind the built-in compiler: what is no loop nest over tensors of numbers.

Data decide how much such an operator makes (NonZero, Unique, NonMaxSuppression), or its values are packed bytes
(strings, sequences, optionals, elements of a few bits), or it draws random numbers. Each has a kernel in C; a region
becomes a module of kind ``irregular``: its nodes as JSON, which the native loader runs one after another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView, is_packed
from graft.core.machine.target import CompileOptions
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Cost
from graft.core.reject import Reject
from graft.partition.costs import Work, kernel_cost
from graft.partition.region import Region
from graft.plugins.backend import Backend
from graft.plugins.irregular.attributes import attributes_of
from graft.plugins.irregular.checks import refusal
from graft.runtime.packed_values import pack
from graft.runtime.procedure import Module

KIND = "irregular"
CALL_SECONDS = 1e-6
"""What a kernel costs besides its work."""
FLOPS_PER_SECOND = 2e8
"""Elements are taken one by one, and their types looked at each time."""
BYTES_PER_SECOND = 1e9
ABSENT = -1


class IrregularBackend(Backend):
    """Kernels in C for operators that generated code has no form for; the last resort before Python's."""

    name: ClassVar[str] = "irregular"
    priority: ClassVar[int] = 5
    fallback: ClassVar[bool] = True
    packed: ClassVar[bool] = True

    def available(self) -> str | None:
        """Return None if the kernels were built, else what to do."""
        if find_spec("graft.plugins.irregular._loader") is None:
            return "its kernels are not built; reinstall graft-compiler with a C compiler present"
        return None

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True for an operator with a kernel, of types that the kernel takes."""
        found = refusal(node)
        return True if found is None else found

    def compile(self, region: Region, options: CompileOptions) -> Module:
        """Return the region's nodes as JSON; constants are handed over, strings and narrow ones packed."""
        places: dict[ir.Value, int] = {}
        inputs = {value.name: value for value in region.function.inputs}
        values = [inputs[value.name] for value in region.inputs]
        values += [inputs[name] for name in region.constants]
        nodes = region.nodes()
        values += [value for node in nodes for value in node.node.outputs if value.name]
        places.update((value, number) for number, value in enumerate(values))
        graph = {
            "name": region.name,
            "values": [_type(value) for value in values],
            "inputs": len(region.inputs),
            "constants": list(region.constants),
            "outputs": [places[value.value] for value in region.outputs],
            "nodes": [
                {
                    "op": node.op_type,
                    "origin": node.name,
                    "attributes": attributes_of(node),
                    "inputs": [ABSENT if one is None or not one.name else places[one] for one in node.node.inputs],
                    "outputs": [places.get(one, ABSENT) for one in node.node.outputs],
                }
                for node in nodes
            ],
        }
        data = json.dumps(graph, separators=(",", ":"), allow_nan=False).encode()
        constants = {name: _contents(inputs[name], tensor) for name, tensor in region.constants.items()}
        return Module(region.name, KIND, (region.name,), data, constants)

    def cost(self, region: Region) -> Sequence[Cost]:
        """Return one cost for each operator, on one thread."""
        work = Work(OPERATORS, region.typical)
        done = [kernel_cost([node], work) for node in region.nodes()]
        return [Cost(0, 0, CALL_SECONDS + one.flops / FLOPS_PER_SECOND + one.bytes / BYTES_PER_SECOND) for one in done]

    def version(self) -> str:
        """Return a line for `graft backends show`."""
        return "kernels in C"


def _type(value: ir.Value) -> list[object]:
    """Return the element type of a value, "" of one that is no tensor, and whether it is packed."""
    return [ValueView(value).dtype, int(is_packed(value))]


def _contents(value: ir.Value, tensor: ir.TensorProtocol) -> np.ndarray:
    array: np.ndarray = tensor.numpy()
    return pack(array) if is_packed(value) else array
