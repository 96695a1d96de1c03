"""Stitching: compiled regions and the graph between them become one program over one planned arena.

Every graph (the main one and each control-flow body) becomes a `Procedure`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from graft.compiler.stitching.extent_scope import ExtentScope
from graft.compiler.stitching.most_memory import Memory
from graft.compiler.stitching.procedure_builder import ProcedureBuilder
from graft.core.affine.expressions import Ranges
from graft.core.graph.view import PACKABLE, NodeView, ValueView, constant_tensor, dtype_of, is_packed
from graft.core.operators.definition.facts import Contents
from graft.core.shapes.equations import kept_equations
from graft.core.shapes.shape_arithmetic import shape_arithmetic
from graft.core.shapes.unification import reasons_of
from graft.core.types import storage_dtype
from graft.errors import UnsupportedError
from graft.partition.graph import is_control_flow
from graft.partition.region import REGION_DOMAIN, Region
from graft.plugins.backend import CompiledRegion
from graft.runtime.constants import ConstantStore
from graft.runtime.devices import on_devices
from graft.runtime.packed_values import pack
from graft.runtime.procedure import Call, Device, Module, Procedure, ProgramDescription, TensorSpec


class Stitcher:
    """Builds the program of a partitioned model from its compiled regions."""

    def __init__(
        self,
        regions: Mapping[str, Region],
        compiled: Mapping[str, Module | CompiledRegion],
        passed: frozenset[str] = frozenset(),
        reuse: bool = True,
        ranges: Ranges | None = None,
        memory: Memory = "binding",
        devices: Mapping[str, Device] | None = None,
    ) -> None:
        """Take the regions and what they were compiled to; ``passed``: backends whose constants go with every call.

        ``devices`` are the memories that backends compute in, by their names, where it is not main memory.

        Without ``reuse`` every result has memory of its own. ``ranges`` are those of the model's symbols;
        ``memory`` says whether the arena is planned for each binding of them, or once.
        """
        self._regions = regions
        self._compiled = compiled
        self._passed = passed
        self._reuse = reuse
        self._constants = ConstantStore()
        self._tensors: dict[int, tuple[ir.TensorProtocol, str]] = {}
        self._modules: list[Module] = []
        self._first_module: dict[str, int] = {}
        self._procedures: list[Procedure | None] = []
        self._ranges = ranges or {}
        self._memory: Memory = memory
        self._arithmetic: Mapping[ir.Value, Contents] = {}
        self._devices = devices or {}
        self._used: list[Device] = []
        self.weights: dict[str, str] = {}
        """Content keys of the initialisers that vendors' regions read, by name: what a region is compiled anew from."""

    def stitch(self, graph: ir.Graph, more_outputs: Sequence[ir.Value] = ()) -> ProgramDescription:
        """Return the program of a partitioned main graph; ``more_outputs`` are returned after the graph's own."""
        self._arithmetic = shape_arithmetic(graph)
        self._graph(graph, "main", (), more_outputs)
        return self._description()

    def stitch_region(self, region: Region, binding: Mapping[str, int] | None = None) -> ProgramDescription:
        """Return a program that is one region; its constants are the region's.

        ``binding`` are numbers for symbols: inside a region there may be some that its own inputs do not tell.
        """
        builder, scope = self._builder(region.name)
        inputs = _add_inputs(builder, scope, [view.value for view in region.inputs])
        constants = []
        if region.backend in self._passed:
            constants = [self._constant(builder, name, tensor) for name, tensor in region.constants.items()]
        outputs = self._call_region(builder, scope, region, inputs, constants, [view.value for view in region.outputs])
        outputs = builder.take_inputs_on_devices(outputs)
        builder.substitute({**(binding or {}), **scope.numbers(binding or {})})
        self._procedures.append(builder.finish(outputs, [view.name for view in region.outputs]))
        return self._description()

    def stitch_modules(self, region: Region) -> ProgramDescription:
        """Return a program that asks for each function of a region's modules: to load, not to run."""
        compiled = self._compiled[region.name]
        if isinstance(compiled, CompiledRegion):
            first = self._add_modules(region.name, compiled.modules)
            calls = [call for call in compiled.procedure.calls if call.kind == "call"]
        else:
            first = self._add_modules(region.name, (compiled,))
            given = range(len(region.inputs) + (len(region.constants) if region.backend in self._passed else 0))
            made = tuple(range(len(region.outputs)))
            calls = [Call("call", tuple(given), made, 0, function) for function in compiled.functions]
        results: list[TensorSpec] = []
        for number, call in enumerate(calls):
            outputs = tuple(range(len(results), len(results) + len(call.outputs)))
            results += [TensorSpec(f"result{index}", "uint8", (0,), "arena") for index in outputs]
            calls[number] = replace(
                call, inputs=(-1,) * len(call.inputs), outputs=outputs, module=first + call.module, in_place=()
            )
        self._procedures.append(Procedure(region.name, tuple(results), (), (), tuple(calls)))
        return self._description()

    def _description(self) -> ProgramDescription:
        procedures = tuple(procedure for procedure in self._procedures if procedure is not None)
        assert len(procedures) == len(self._procedures)
        devices = tuple(self._used)
        procedures = tuple(on_devices(procedure, devices, devices) for procedure in procedures)
        return ProgramDescription(procedures, tuple(self._modules), self._constants.arrays, devices=devices)

    def _device(self, region: Region) -> int:
        """Return the number of the memory that a region computes in, in the program's list of devices."""
        compiled = self._compiled[region.name]
        is_empty = isinstance(compiled, CompiledRegion) and not compiled.modules  # views and copies are so anywhere
        if region.backend not in self._devices or is_empty:
            return 0
        device = self._devices[region.backend]
        if device.name not in [one.name for one in self._used]:
            self._used.append(device)
        return 1 + [one.name for one in self._used].index(device.name)

    def _graph(
        self, graph: ir.Graph, name: str, captured: Sequence[ir.Value], more_outputs: Sequence[ir.Value] = ()
    ) -> int:
        """Build the procedure of a graph, captured outer values as further inputs, and return its number."""
        number = len(self._procedures)
        self._procedures.append(None)
        builder, scope = self._builder(name)
        formal = [value for value in graph.inputs if constant_tensor(value) is None]
        given = [*formal, *captured]
        tensors = dict(zip(given, _add_inputs(builder, scope, given), strict=True))
        for node in graph:
            self._node(builder, scope, node, tensors)
        builder.equations += scope.equations(kept_equations(graph))
        by_name = {value.name: index for value, index in tensors.items() if value in given}
        builder.reasons += [
            replace(one, tensor=by_name[input_name]) for input_name, one in reasons_of(graph) if input_name in by_name
        ]
        results = [*graph.outputs, *more_outputs]
        outputs = [self._tensor(builder, value, tensors) for value in results]
        if number == 0:
            outputs = builder.take_inputs_on_devices(outputs)
        else:
            outputs = [builder.on(index, 0) for index in outputs]
        self._procedures[number] = builder.finish(outputs, [value.name or "" for value in results])
        return number

    def _builder(self, name: str) -> tuple[ProcedureBuilder, ExtentScope]:
        ranges = {extent: (one.low, one.high) for extent, one in self._ranges.items()}
        return ProcedureBuilder(name, reuse=self._reuse, ranges=ranges, memory=self._memory), ExtentScope()

    def _node(self, builder: ProcedureBuilder, scope: ExtentScope, node: ir.Node, tensors: dict[ir.Value, int]) -> None:
        if node.domain == REGION_DOMAIN:
            self._region(builder, scope, node, tensors)
        elif is_control_flow(node):
            self._control_flow(builder, scope, node, tensors)
        elif any(constant_tensor(value) is None and value not in self._arithmetic for value in node.outputs):
            raise UnsupportedError(
                f"{NodeView(node).where}: no backend takes this node; add one that does",
                node=node.name,
            )

    def _tensor(self, builder: ProcedureBuilder, value: ir.Value | None, tensors: dict[ir.Value, int]) -> int:
        """Return the tensor of a value, making it a constant of this procedure on first use."""
        if value is None:
            return -1
        if value not in tensors and value in self._arithmetic:
            tensors[value] = self._extents(builder, value)
        if value not in tensors:
            constant = constant_tensor(value)
            assert constant is not None, f"value '{value.name}' is read before it is written"
            tensors[value] = self._constant(builder, value.name or "", constant)
        return tensors[value]

    def _extents(self, builder: ProcedureBuilder, value: ir.Value) -> int:
        """Add a tensor whose elements are extents over the symbols of the program's inputs."""
        contents, view = self._arithmetic[value], ValueView(value)
        values = contents.known
        assert values is not None, view.name
        return builder.add(TensorSpec(view.name, storage_dtype(view.dtype), contents.shape, "extents", values=values))

    def _constant(self, builder: ProcedureBuilder, name: str, tensor: ir.TensorProtocol) -> int:
        key = self._key(tensor)
        shape = self._constants.arrays[key].shape
        dtype = "uint8" if tensor.dtype in PACKABLE else dtype_of(tensor.dtype)
        return builder.add(TensorSpec(name, dtype, shape, "constant", constant=key))

    def _key(self, tensor: ir.TensorProtocol) -> str:
        """Keep an ONNX tensor and return its key; asking again for the same tensor reads nothing."""
        known = self._tensors.get(id(tensor))
        if known is None:
            array = tensor.numpy()
            known = (tensor, self._constants.add(pack(array) if tensor.dtype in PACKABLE else array))
            self._tensors[id(tensor)] = known  # holding the tensor keeps its id taken
        return known[1]

    def _region(
        self, builder: ProcedureBuilder, scope: ExtentScope, node: ir.Node, tensors: dict[ir.Value, int]
    ) -> None:
        region = self._regions[node.op_type]
        pairs = zip(region.function.inputs, node.inputs, strict=True)
        by_name = {parameter.name: value for parameter, value in pairs if value is not None}
        inputs = [self._tensor(builder, by_name[view.name], tensors) for view in region.inputs]
        constants = []
        if region.backend in self._passed:
            constants = [self._tensor(builder, by_name[name], tensors) for name in region.constants]
        if isinstance(self._compiled[region.name], Module):
            for name, tensor in region.constants.items():
                self.weights[by_name[name].name or ""] = self._key(tensor)
        outputs = self._call_region(builder, scope, region, inputs, constants, node.outputs)
        tensors.update(zip(node.outputs, outputs, strict=True))

    def _call_region(
        self,
        builder: ProcedureBuilder,
        scope: ExtentScope,
        region: Region,
        inputs: list[int],
        constants: list[int],
        results: Sequence[ir.Value],
    ) -> list[int]:
        """Append a region's calls and return the tensors of its outputs."""
        compiled = self._compiled[region.name]
        device = self._device(region)
        if isinstance(compiled, CompiledRegion):
            keys = {name: self._constants.add(array) for name, array in compiled.constants.items()}
            first = self._add_modules(region.name, compiled.modules)
            scope.results(results)
            return builder.inline(scope.with_symbols(compiled.procedure), inputs, first, keys, device=device)
        first = self._add_modules(region.name, (compiled,))
        if region.backend in self._passed:
            inputs = inputs + constants
        inputs = [builder.on(index, device) for index in inputs]
        outputs = _add_results(builder, scope, results, device)
        builder.calls.append(Call("call", tuple(inputs), tuple(outputs), first, region.name, origin=region.origin))
        return outputs

    def _add_modules(self, region: str, modules: Sequence[Module]) -> int:
        """Add a region's modules once and return the number of the first."""
        if region not in self._first_module:
            self._first_module[region] = len(self._modules)
            for module in modules:
                for array in module.constants.values():
                    self._constants.add(array)
                self._modules.append(module)
        return self._first_module[region]

    def _control_flow(
        self, builder: ProcedureBuilder, scope: ExtentScope, node: ir.Node, tensors: dict[ir.Value, int]
    ) -> None:
        """Append an If, Loop or Scan with its bodies; values captured from outside become explicit arguments."""
        view = NodeView(node)
        names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
        bodies, arguments = [], []
        for name in names:
            body: ir.Graph = node.attributes[name].as_graph()
            captured = [value for value in captured_values(body) if constant_tensor(value) is None]
            arguments.append(tuple(builder.on(self._tensor(builder, value, tensors), 0) for value in captured))
            bodies.append(self._graph(body, f"{view.name}.{name}", captured))
        inputs = [builder.on(self._tensor(builder, value, tensors), 0) for value in node.inputs]
        outputs = tuple(_add_results(builder, scope, node.outputs))
        builder.calls.append(
            Call(
                kind=node.op_type.lower(),  # type: ignore[arg-type]
                inputs=tuple(inputs),
                outputs=outputs,
                bodies=tuple(bodies),
                arguments=tuple(arguments),
                attributes=_scan_attributes(view) if node.op_type == "Scan" else {},
                origin=(view.name,),
            )
        )
        tensors.update(zip(node.outputs, outputs, strict=True))


def _add_inputs(builder: ProcedureBuilder, scope: ExtentScope, values: Sequence[ir.Value]) -> list[int]:
    pairs = zip(values, scope.inputs(values), strict=True)
    return [builder.add_input(value.name or "", _storage(value), shape) for value, shape in pairs]


def _add_results(
    builder: ProcedureBuilder, scope: ExtentScope, values: Sequence[ir.Value], device: int = 0
) -> list[int]:
    return [
        builder.result(value.name or "", _storage(value), shape, is_dynamic=late, device=device)
        for value, (shape, late) in zip(values, scope.results(values), strict=True)
    ]


def _storage(value: ir.Value) -> str:
    return "uint8" if is_packed(value) else storage_dtype(ValueView(value).dtype)


def _scan_attributes(view: NodeView) -> dict[str, object]:
    """Return the attributes of a Scan with their defaults filled in."""
    count = int(view.attribute("num_scan_inputs"))
    body: ir.Graph = view.node.attributes["body"].as_graph()
    scanned_outputs = len(body.outputs) - (len(view.node.inputs) - count)
    return {
        "scan_inputs": count,
        "input_axes": list(view.attribute("scan_input_axes", [0] * count)),
        "input_directions": list(view.attribute("scan_input_directions", [0] * count)),
        "output_axes": list(view.attribute("scan_output_axes", [0] * scanned_outputs)),
        "output_directions": list(view.attribute("scan_output_directions", [0] * scanned_outputs)),
    }


def captured_values(graph: ir.Graph) -> list[ir.Value]:
    """Return the values that a body reads from outside, nested bodies included, in order of first use."""
    inside: set[ir.Value] = set(graph.inputs) | set(graph.initializers.values())
    captured: dict[ir.Value, None] = {}

    def visit(body: ir.Graph) -> None:
        inside.update(body.inputs)
        inside.update(body.initializers.values())
        for node in body:
            for value in node.inputs:
                if value is not None and value not in inside:
                    captured.setdefault(value)
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    visit(attribute.as_graph())
            inside.update(node.outputs)
        for value in body.outputs:
            if value is not None and value not in inside:
                captured.setdefault(value)

    visit(graph)
    return list(captured)
