"""Stitching: compiled regions and the graph between them become one program over one planned arena.

Every graph (the main one and each control-flow body) becomes a `Procedure`. A region compiled to several kernels is
inlined, so that the memory of all regions is planned together; views are resolved to the tensor that owns the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from graft.core.memory_plan import Lifetime, plan_memory
from graft.core.types import storage_dtype
from graft.core.view import NodeView, ValueView, constant_tensor, dtype_of
from graft.errors import UnsupportedError
from graft.partition.graph import is_control_flow
from graft.partition.region import REGION_DOMAIN, Region
from graft.plugins.backend import CompiledRegion
from graft.runtime.artifact import constant_key
from graft.runtime.dtypes import element_type
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec, contiguous_bytes


class ConstantStore:
    """Constants by content: the same bytes, dtype and shape are kept once."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._keys: dict[int, tuple[object, str]] = {}

    def add(self, array: np.ndarray) -> str:
        """Keep an array and return its key."""
        known = self._keys.get(id(array))
        if known is not None:
            return known[1]
        key = constant_key(array)
        self.arrays.setdefault(key, np.ascontiguousarray(array).reshape(array.shape))
        self._keys[id(array)] = (array, key)  # holding the array keeps its id taken
        return key

    def add_tensor(self, tensor: ir.TensorProtocol) -> str:
        """Keep an ONNX tensor and return its key; asking again for the same tensor reads nothing."""
        known = self._keys.get(id(tensor))
        if known is None:
            known = (tensor, self.add(tensor.numpy()))
            self._keys[id(tensor)] = known
        return known[1]


@dataclass(slots=True)
class ProcedureBuilder:
    """A procedure under construction: tensors without addresses, calls in order."""

    name: str
    tensors: list[TensorSpec] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    @classmethod
    def reopen(cls, procedure: Procedure) -> ProcedureBuilder:
        """Return a builder that holds a finished procedure."""
        tensors = list(procedure.tensors)
        return cls(procedure.name, tensors, list(procedure.calls), list(procedure.inputs), list(procedure.outputs))

    def add(self, tensor: TensorSpec) -> int:
        """Add a tensor and return its index."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def add_input(self, name: str, dtype: str, shape: tuple[int, ...] | None) -> int:
        """Add the next input and return its index."""
        self.inputs.append(self.add(TensorSpec(name, dtype, shape, "input", index=len(self.inputs))))
        return self.inputs[-1]

    def result(self, name: str, dtype: str, shape: tuple[int, ...] | None) -> int:
        """Add a tensor that a call will write and return its index."""
        return self.add(TensorSpec(name, dtype, shape, "dynamic" if shape is None else "arena"))

    def inline(
        self,
        compiled: Procedure,
        inputs: Sequence[int],
        modules: int,
        keys: Mapping[str, str],
        into: Sequence[int] | None = None,
    ) -> list[int]:
        """Append the calls of a compiled region and return the tensors of its outputs.

        ``inputs`` are the tensors passed, ``modules`` the number of the region's first module, ``keys`` the global
        keys of its constants, ``into`` existing tensors that take the outputs.
        """
        here = {} if into is None else self._written_into(compiled, into)
        for index, tensor in enumerate(compiled.tensors):
            if index in here:
                continue
            match tensor.storage:
                case "input":
                    here[index] = inputs[tensor.index]
                case "constant":
                    here[index] = self.add(replace(tensor, constant=keys[tensor.constant]))
                case "view":
                    here[index] = self.add(replace(tensor, of=here[tensor.of]))
                case _:
                    here[index] = self.result(tensor.name, tensor.dtype, tensor.shape)
        for call in compiled.calls:
            moved = _renumber(call, here)
            self.calls.append(replace(moved, module=modules + call.module) if call.kind == "call" else moved)
        outputs = [here[index] for index in compiled.outputs]
        for source, target in zip(outputs, into or (), strict=False):
            if source != target:
                self.calls.append(Call("copy", (source,), (target,)))
        return outputs if into is None else list(into)

    @staticmethod
    def _written_into(compiled: Procedure, into: Sequence[int]) -> dict[int, int]:
        """Return the outputs of a compiled region that its calls can write straight into existing tensors."""
        here: dict[int, int] = {}
        for index, target in zip(compiled.outputs, into, strict=True):
            if compiled.tensors[index].storage not in ("input", "constant", "view"):
                here.setdefault(index, target)
        return here

    def replan(self) -> Procedure:
        """Return the procedure with its arena planned anew; inputs and outputs stay as they are."""
        self._resolve_views()
        return self._planned()

    def finish(self, outputs: Sequence[int], names: Sequence[str]) -> Procedure:
        """Resolve views, give outputs their storage, plan the arena and return the procedure."""
        self._resolve_views()
        self._place_outputs(outputs, names)
        return self._planned()

    def _resolve_views(self) -> None:
        """Make every view point at the tensor that owns its bytes."""
        for index, tensor in enumerate(self.tensors):
            if tensor.storage == "view" and self.tensors[tensor.of].storage == "view":
                base = self.tensors[tensor.of]
                self.tensors[index] = replace(tensor, of=base.of, offset=tensor.offset + base.offset)

    def _place_outputs(self, outputs: Sequence[int], names: Sequence[str]) -> None:
        """Let each output's owner be written straight into the caller's memory; copy where it cannot be.

        A copy is needed for an input or constant that is returned, a tensor returned twice, and a view of a part.
        """
        self.outputs = []
        for position, (index, name) in enumerate(zip(outputs, names, strict=True)):
            tensor = self.tensors[index]
            owner = tensor.of if tensor.storage == "view" else index
            spec = TensorSpec(name, tensor.dtype, tensor.shape, "output", index=position)
            if self.tensors[owner].storage in ("arena", "dynamic") and self._same_bytes(owner, index):
                if owner != index:
                    self._make_view(owner, index)
                self.tensors[index] = spec
                self.outputs.append(index)
            else:
                copy = self.add(spec)
                self.calls.append(Call("copy", (index,), (copy,)))
                self.outputs.append(copy)

    def _same_bytes(self, owner: int, index: int) -> bool:
        return self._bytes(owner) == self._bytes(index) and (owner == index or self.tensors[index].offset == 0)

    def _make_view(self, owner: int, index: int) -> None:
        """Exchange roles: ``index`` becomes the owner of the bytes, ``owner`` and its other views point at it."""
        for other, tensor in enumerate(self.tensors):
            if tensor.storage == "view" and tensor.of == owner:
                self.tensors[other] = replace(tensor, of=index)
        self.tensors[owner] = replace(self.tensors[owner], storage="view", of=index, offset=0)

    def _bytes(self, index: int) -> int | None:
        tensor = self.tensors[index]
        return None if tensor.shape is None else contiguous_bytes(element_type(tensor.dtype).bytes, tensor.shape)

    def _planned(self) -> Procedure:
        """Return the procedure with owners first, unused tensors dropped and arena offsets given."""
        spans = self._spans()
        kept = [i for i, tensor in enumerate(self.tensors) if i in spans or tensor.storage in ("input", "output")]
        kept.sort(key=lambda i: (self.tensors[i].storage == "view", i))
        number = {old: new for new, old in enumerate(kept)}
        arena = [i for i in kept if self.tensors[i].storage == "arena"]
        plan = plan_memory([Lifetime(self._bytes(i) or 0, *spans[i]) for i in arena])
        offsets = dict(zip(arena, plan.offsets, strict=True))
        tensors = []
        for old in kept:
            tensor = self.tensors[old]
            if tensor.storage == "view":
                tensor = replace(tensor, of=number[tensor.of])
            tensors.append(replace(tensor, offset=offsets[old]) if old in offsets else tensor)
        return Procedure(
            self.name,
            tuple(tensors),
            tuple(number[i] for i in self.inputs),
            tuple(number[i] for i in self.outputs),
            tuple(_renumber(call, number) for call in self.calls),
            plan.arena_bytes,
            plan.bound_bytes,
        )

    def _spans(self) -> dict[int, tuple[int, int]]:
        """Return, for each tensor in use, the first and last call that touches its bytes."""
        spans: dict[int, tuple[int, int]] = {}
        for step, call in enumerate(self.calls):
            for index in _touched(call):
                owner = self.tensors[index].of if self.tensors[index].storage == "view" else index
                for one in {index, owner}:
                    first = spans[one][0] if one in spans else step
                    spans[one] = (first, step)
        return spans


def _touched(call: Call) -> Iterator[int]:
    yield from (index for index in (*call.inputs, *call.outputs) if index >= 0)
    for arguments in call.arguments:
        yield from arguments


def _renumber(call: Call, number: Mapping[int, int]) -> Call:
    def new(indices: Sequence[int]) -> tuple[int, ...]:
        return tuple(-1 if index < 0 else number[index] for index in indices)

    arguments = tuple(new(row) for row in call.arguments)
    return replace(call, inputs=new(call.inputs), outputs=new(call.outputs), arguments=arguments)


class Stitcher:
    """Builds the program of a partitioned model from its compiled regions."""

    def __init__(
        self,
        regions: Mapping[str, Region],
        compiled: Mapping[str, Module | CompiledRegion],
        passed: frozenset[str] = frozenset(),
    ) -> None:
        """Take the regions and what they were compiled to; ``passed``: backends whose constants go with every call."""
        self._regions = regions
        self._compiled = compiled
        self._passed = passed
        self._constants = ConstantStore()
        self._modules: list[Module] = []
        self._first_module: dict[str, int] = {}
        self._procedures: list[Procedure | None] = []
        self.weights: dict[str, str] = {}
        """Content keys of the initialisers that vendors' regions read, by name: what a region is compiled anew from."""

    def stitch(self, graph: ir.Graph, more_outputs: Sequence[ir.Value] = ()) -> ProgramDescription:
        """Return the program of a partitioned main graph; ``more_outputs`` are returned after the graph's own."""
        self._graph(graph, "main", (), more_outputs)
        return self._description()

    def stitch_region(self, region: Region) -> ProgramDescription:
        """Return a program that is one region; its constants are the region's."""
        builder = ProcedureBuilder(region.name)
        tensors = {view.value: builder.add_input(*_typed(view.value)) for view in region.inputs}
        inputs = [tensors[view.value] for view in region.inputs]
        constants = []
        if region.backend in self._passed:
            constants = [self._constant(builder, name, tensor) for name, tensor in region.constants.items()]
        outputs = self._call_region(builder, region, inputs, constants, [view.value for view in region.outputs])
        self._procedures.append(builder.finish(outputs, [view.name for view in region.outputs]))
        return self._description()

    def _description(self) -> ProgramDescription:
        procedures = tuple(procedure for procedure in self._procedures if procedure is not None)
        assert len(procedures) == len(self._procedures)
        return ProgramDescription(procedures, tuple(self._modules), self._constants.arrays)

    def _graph(
        self, graph: ir.Graph, name: str, captured: Sequence[ir.Value], more_outputs: Sequence[ir.Value] = ()
    ) -> int:
        """Build the procedure of a graph, captured outer values as further inputs, and return its number."""
        number = len(self._procedures)
        self._procedures.append(None)
        builder = ProcedureBuilder(name)
        tensors: dict[ir.Value, int] = {}
        formal = [value for value in graph.inputs if constant_tensor(value) is None]
        for value in (*formal, *captured):
            tensors[value] = builder.add_input(*_typed(value))
        for node in graph:
            self._node(builder, node, tensors)
        results = [*graph.outputs, *more_outputs]
        outputs = [self._tensor(builder, value, tensors) for value in results]
        self._procedures[number] = builder.finish(outputs, [value.name or "" for value in results])
        return number

    def _node(self, builder: ProcedureBuilder, node: ir.Node, tensors: dict[ir.Value, int]) -> None:
        if node.domain == REGION_DOMAIN:
            self._region(builder, node, tensors)
        elif is_control_flow(node):
            self._control_flow(builder, node, tensors)
        elif any(constant_tensor(value) is None for value in node.outputs):
            raise UnsupportedError(
                f"{NodeView(node).where}: no backend takes this node; add 'reference' to the backends",
                node=node.name,
            )

    def _tensor(self, builder: ProcedureBuilder, value: ir.Value | None, tensors: dict[ir.Value, int]) -> int:
        """Return the tensor of a value, making it a constant of this procedure on first use."""
        if value is None:
            return -1
        if value not in tensors:
            constant = constant_tensor(value)
            assert constant is not None, f"value '{value.name}' is read before it is written"
            tensors[value] = self._constant(builder, value.name or "", constant)
        return tensors[value]

    def _constant(self, builder: ProcedureBuilder, name: str, tensor: ir.TensorProtocol) -> int:
        key = self._constants.add_tensor(tensor)
        shape = self._constants.arrays[key].shape
        return builder.add(TensorSpec(name, dtype_of(tensor.dtype), shape, "constant", constant=key))

    def _region(self, builder: ProcedureBuilder, node: ir.Node, tensors: dict[ir.Value, int]) -> None:
        region = self._regions[node.op_type]
        pairs = zip(region.function.inputs, node.inputs, strict=True)
        by_name = {parameter.name: value for parameter, value in pairs if value is not None}
        inputs = [self._tensor(builder, by_name[view.name], tensors) for view in region.inputs]
        constants = []
        if region.backend in self._passed:
            constants = [self._tensor(builder, by_name[name], tensors) for name in region.constants]
        if isinstance(self._compiled[region.name], Module):
            for name, tensor in region.constants.items():
                self.weights[by_name[name].name or ""] = self._constants.add_tensor(tensor)
        outputs = self._call_region(builder, region, inputs, constants, node.outputs)
        tensors.update(zip(node.outputs, outputs, strict=True))

    def _call_region(
        self,
        builder: ProcedureBuilder,
        region: Region,
        inputs: list[int],
        constants: list[int],
        results: Sequence[ir.Value],
    ) -> list[int]:
        """Append a region's calls and return the tensors of its outputs."""
        compiled = self._compiled[region.name]
        if isinstance(compiled, CompiledRegion):
            keys = {name: self._constants.add(array) for name, array in compiled.constants.items()}
            first = self._add_modules(region.name, compiled.modules)
            return builder.inline(compiled.procedure, inputs, first, keys)
        first = self._add_modules(region.name, (compiled,))
        if region.backend in self._passed:
            inputs = inputs + constants
        outputs = [builder.result(*_typed(value)) for value in results]
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

    def _control_flow(self, builder: ProcedureBuilder, node: ir.Node, tensors: dict[ir.Value, int]) -> None:
        """Append an If, Loop or Scan with its bodies; values captured from outside become explicit arguments."""
        view = NodeView(node)
        names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
        bodies, arguments = [], []
        for name in names:
            body: ir.Graph = node.attributes[name].as_graph()
            captured = [value for value in captured_values(body) if constant_tensor(value) is None]
            arguments.append(tuple(self._tensor(builder, value, tensors) for value in captured))
            bodies.append(self._graph(body, f"{view.name}.{name}", captured))
        outputs = tuple(builder.result(*_typed(value)) for value in node.outputs)
        builder.calls.append(
            Call(
                kind=node.op_type.lower(),  # type: ignore[arg-type]
                inputs=tuple(self._tensor(builder, value, tensors) for value in node.inputs),
                outputs=outputs,
                bodies=tuple(bodies),
                arguments=tuple(arguments),
                attributes=_scan_attributes(view) if node.op_type == "Scan" else {},
                origin=(view.name,),
            )
        )
        tensors.update(zip(node.outputs, outputs, strict=True))


def _typed(value: ir.Value) -> tuple[str, str, tuple[int, ...] | None]:
    view = ValueView(value)
    return view.name, storage_dtype(view.dtype), view.static_shape


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
