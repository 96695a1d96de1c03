"""From a region to the calls of a vendor's C functions: one text, compiled, and the procedure that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from graft.errors import CompileError, PluginError
from graft.partition.region import Region
from graft.plugins.backend import CompiledRegion
from graft.plugins.c_call_code import compiled_calls
from graft.plugins.c_call_text import CText, KernelWriter
from graft.plugins.c_calls import CCall, CKernel, COperand
from graft.plugins.graph_symbols import GraphSymbols
from graft.plugins.json_graph import TRANSPOSE, Dimension, Entry, JsonGraph, JsonNode
from graft.plugins.layouts.c_transpose import transpose_call
from graft.runtime.extents import Extent
from graft.runtime.procedure import Call, Procedure, TensorSpec

if TYPE_CHECKING:
    from graft.core.machine.target import CompileOptions
    from graft.plugins.c_vendor import CVendor


@dataclass(slots=True)
class RegionCalls:
    """A region as functions in C, the constants that they read, and the calls of them in order."""

    backend: CVendor
    region: Region
    graph: JsonGraph
    contents: Mapping[str, np.ndarray]
    functions: dict[str, CText] = field(default_factory=dict)
    """By name; kernels whose texts are the same have one function."""
    origins: dict[str, list[str]] = field(default_factory=dict)
    """By function, the nodes that it computes."""
    labels: dict[str, str] = field(default_factory=dict)
    """By function, the first of its kernels, for messages."""
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    _tensors: list[TensorSpec] = field(default_factory=list)
    _places: dict[tuple[int, int], int] = field(default_factory=dict)
    _calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, node in enumerate(self.graph.inputs):
            self._places[self.graph.nodes.index(node), 0] = len(self._tensors)
            self._tensors.append(TensorSpec(node.name, node.dtype[0], _known(node), "input", index=number))
        for number, node in enumerate(self.graph.nodes):
            if node.op == "kernel":
                try:
                    self._kernel(number, node)
                except (CompileError, PluginError) as error:
                    where = f"backend '{self.backend.name}': region '{self.region.name}'"
                    kind = PluginError if isinstance(error, PluginError) else CompileError
                    raise kind(f"{where}: {error.message}", node=node.name) from error

    def procedure(self) -> Procedure:
        """Return the calls over the region's tensors; arena tensors have no offset yet."""
        outputs = tuple(self._tensor(head) for head in self.graph.heads)
        inputs = tuple(range(len(self.graph.inputs)))
        return Procedure(self.region.name, tuple(self._tensors), inputs, outputs, tuple(self._calls))

    # ---- Tensors ----

    def _tensor(self, entry: Entry) -> int:
        """The tensor of an entry: known, or a constant that is used for the first time."""
        place = (entry.node, entry.index)
        if place not in self._places:
            name = self.graph.nodes[entry.node].name
            self._places[place] = self._constant(name, self.contents[name])
        return self._places[place]

    def _constant(self, name: str, array: np.ndarray) -> int:
        operand = COperand.of(name, array)
        self.constants[name] = array
        self._tensors.append(TensorSpec(name, operand.dtype, array.shape, "constant", constant=name))
        return len(self._tensors) - 1

    def _operand(self, name: str, entry: Entry) -> COperand | None:
        if entry.is_absent:
            return None
        node = self.graph.nodes[entry.node]
        contents = self.contents[node.name] if node.op == "const" else None
        return COperand(name, node.dtype[entry.index], _known(node, entry.index), contents)

    # ---- Kernels ----

    def _kernel(self, number: int, node: JsonNode) -> None:
        kernel = self._asked(node)
        said = transpose_call(kernel) if node.name == TRANSPOSE else self.backend.call(kernel)
        call = CCall(said) if isinstance(said, str) else said
        success = self.backend.success if call.success is None else call.success
        text = KernelWriter(kernel, call, success).text()
        entries = {one.name: entry for one, entry in zip(kernel.inputs, node.inputs, strict=True) if one is not None}
        packed = {kernel[name].name for name in call.packed}
        inputs = []
        for operand in text.inputs:
            if operand.name in packed:
                assert operand.constant is not None
                array = np.ascontiguousarray(operand.constant)
                inputs.append(self._constant(f"{self.region.name}.{number}.{operand.name}", array))
            else:
                inputs.append(self._tensor(entries[operand.name]))
        outputs = []
        for index, output in enumerate(kernel.outputs):
            self._places[number, index] = len(self._tensors)
            outputs.append(len(self._tensors))
            name, shape = f"{node.name}.{number}.{index}", _known(node, index)
            self._tensors.append(TensorSpec(name, output.dtype, shape, "arena"))
        function = self._function(text, node)
        schedule = {"strategy": f"{self.backend.name}: {call.text.partition('(')[0].strip()}"}
        self._calls.append(
            Call("call", tuple(inputs), tuple(outputs), 0, function, origin=node.origin, schedule=schedule)
        )

    def _asked(self, node: JsonNode) -> CKernel:
        """Return a kernel that the backend is asked for the call of."""
        names, several = _names(node), len(node.dtype) > 1
        given = [self._operand(name, entry) for name, entry in zip(names, node.inputs, strict=True)]
        made = [
            COperand(f"Y{index}" if several else "Y", dtype, _known(node, index))
            for index, dtype in enumerate(node.dtype)
        ]
        operands = _in_own_symbols([*given, *made])
        inputs, outputs = tuple(operands[: len(given)]), tuple(one for one in operands[len(given) :] if one is not None)
        known: dict[str, COperand | None] = dict.fromkeys(_formal_inputs(node)[len(names) :])  # left out at the end
        known |= {output.name: output for output in outputs}
        return CKernel(node, inputs, outputs, known | dict(zip(names, inputs, strict=True)))

    def _function(self, text: CText, node: JsonNode) -> str:
        """Return the name of the function with a text."""
        known = next((name for name, one in self.functions.items() if one.is_like(text)), None)
        name = known or f"{self.region.name}_{len(self.functions)}"
        self.functions.setdefault(name, text)
        self.origins.setdefault(name, []).extend(node.origin)
        self.labels.setdefault(name, node.where)
        return name


def compile_calls(backend: CVendor, region: Region, options: CompileOptions) -> CompiledRegion:
    """Return a region as the calls that a backend says; raise CompileError and PluginError for what cannot be."""
    calls = RegionCalls(backend, region, *backend.kernels(region))
    if not calls.functions:
        return CompiledRegion((), calls.procedure(), calls.constants)
    module = compiled_calls(backend, region.name, calls.functions, calls.origins, calls.labels, options)
    return CompiledRegion((module,), calls.procedure(), calls.constants)


def _known(node: JsonNode, index: int = 0) -> tuple[Extent, ...]:
    """Return the shape of an output; raise CompileError for one that is not known before a run."""
    shape: tuple[Dimension, ...] | None = node.shape[index]
    extents = tuple(extent for extent in shape or () if extent is not None)
    if shape is None or len(extents) < len(shape):
        raise CompileError(f"{node.where}: its shape is not known before a run", node=node.name)
    return extents


def _in_own_symbols(operands: Sequence[COperand | None]) -> list[COperand | None]:
    """Return a kernel's operands with their shapes in symbols that these alone say: what a call can compute with.

    Of ``max(a, b)`` that is an axis of the result, say, the sizes of which it is a factor could not be written.
    """
    shaped = [one for one in operands if one is not None]
    symbols = GraphSymbols.of([one.name for one in shaped], [one.shape for one in shaped])

    def own(extent: Extent) -> Extent:
        known = symbols.said(extent)
        assert known is not None, f"'{extent}' is an axis that binds no symbol"
        return known

    return [one and replace(one, shape=tuple(map(own, one.shape))) for one in operands]


def _names(node: JsonNode) -> list[str]:
    """Return a name for each input: captured, of ONNX's schema, or its position behind an x."""
    names = [f"x{position}" for position in range(len(node.inputs))]
    found = {places[0]: name for name, places in node.operands.items()}
    found = found or dict(enumerate(_formal_inputs(node)[: len(names)]))
    return [found.get(position, name) for position, name in enumerate(names)]


def _formal_inputs(node: JsonNode) -> list[str]:
    """Return the names of ONNX's schema for the inputs of a kernel that is one operator; none where it has no say."""
    import onnx

    if len(node.body) != 1 or node.operands or not onnx.defs.has(node.body[0].op, node.body[0].domain):
        return []
    single = onnx.defs.OpSchema.FormalParameterOption.Variadic
    formal = onnx.defs.get_schema(node.body[0].op, domain=node.body[0].domain).inputs
    return [one.name for one in formal if one.option != single]
