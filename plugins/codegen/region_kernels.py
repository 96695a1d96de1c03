"""From a region to scheduled functions, the constants that they read, and the calls of them in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
import onnx_ir as ir

from graft.core.affine.text import parsed
from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import OperatorTable
from graft.core.operators.definition.varying import is_static
from graft.core.operators.extent_check import extent_check
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import Parameters, ScheduleParameters, to_json
from graft.core.schedule.strategies.nests.fused_elementwise import overwritable
from graft.core.tensor_ir.ir import Buffer, For, Function, Statement
from graft.core.tensor_ir.printer import print_function
from graft.core.tensor_ir.visit import map_nested
from graft.core.tuning.tunings import workload_key
from graft.core.types import storage_dtype
from graft.datatypes.compute_type import carried
from graft.datatypes.lower_function import lower_function, require
from graft.datatypes.shipped import DATATYPES
from graft.errors import ScheduleError
from graft.partition.region import Region
from graft.plugins.codegen.checked_indices import IndexChecks
from graft.plugins.codegen.choices import GRAFTS_OWN, CodegenChoices
from graft.plugins.codegen.constant_packing import Shared, scheduled_and_places
from graft.plugins.codegen.grouping.concat_in_place import Placed
from graft.plugins.codegen.grouping.fusion import Group
from graft.plugins.codegen.lowered_groups import Lowered, symbol
from graft.plugins.codegen.region_code import RegionCode
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.codegen.sharing.kernel_structure import structure_of
from graft.plugins.codegen.sharing.open_extents import with_open_extents
from graft.plugins.codegen.sharing.shifted_reads import shifted
from graft.runtime.dtypes import dtype_name, element_type
from graft.runtime.extents import Extent
from graft.runtime.procedure import Call, Procedure, Schedule, TensorSpec


def on_one_thread(function: Function) -> Function:
    """Return the function with every parallel loop serial."""

    def rule(statement: Statement) -> Statement:
        if isinstance(statement, For) and statement.kind == "parallel":
            return replace(statement, kind="serial")
        return statement

    return replace(function, body=map_nested(function.body, rule))


def extents_of(value: ValueView) -> tuple[Extent, ...]:
    """Return the shape of a value, whose dimensions are numbers or expressions over symbols."""
    extents = [extent if isinstance(extent, int) else parsed(extent or "") for extent in value.shape or ()]
    known = tuple(extent for extent in extents if extent is not None)
    assert value.shape is not None and len(known) == len(extents), f"value '{value.name}' has shape {value.shape}"
    return known


def _spec(value: ValueView, storage: str, dtype: str | None = None, **place: int | str) -> TensorSpec:
    kind = storage_dtype(dtype or value.dtype)
    return TensorSpec(value.name, kind, extents_of(value), storage, **place)  # type: ignore[arg-type]


def _bytes(value: ValueView) -> int:
    """The size of an element as it is stored."""
    return element_type(storage_dtype(value.dtype)).bytes


@dataclass(slots=True)
class RegionKernels:
    """A region as scheduled functions, the constants that they read, and the calls in order."""

    region: Region
    table: OperatorTable
    target: Target
    code: RegionCode | None = None
    """Gets every function as soon as it is scheduled, and may have some already."""
    tuned: Mapping[str, Parameters] = field(default_factory=dict)
    """Parameters by workload; the schedules choose by themselves for all others."""
    choices: CodegenChoices = GRAFTS_OWN
    schedules: Mapping[str, str] = field(default_factory=dict)
    """Schedules as text, by the names of the functions that the user gives them for."""
    functions: list[Function] = field(default_factory=list)
    """Those that were scheduled: without a cache all of them, each for all kernels of its structure."""
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    groups: RegionGroups = field(init=False)
    """C functions of this process that custom datatypes are lowered to."""
    _tensors: list[TensorSpec] = field(default_factory=list)
    _indices: dict[ir.Value, int] = field(default_factory=dict)
    _calls: list[Call] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("lower", "schedule", "pack"), 0.0))
    _known: dict[str, Shared] = field(default_factory=dict)
    _first: dict[str, str] = field(default_factory=dict)
    """By structure: the kernel whose name the function has."""
    _tables: dict[str, dict[Buffer, np.ndarray]] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    _index_checks: IndexChecks = field(init=False)
    _extent_checks: dict[str, str] = field(default_factory=dict)
    """Functions by what they check."""

    def __post_init__(self) -> None:
        self._index_checks = IndexChecks(symbol(self.region.name), self.target.machine)
        self.groups = RegionGroups(self.region, self.table, self.target, self.choices)
        with self._timed("lower"):
            lowered = self._lowered()
        for number, value in enumerate(self.region.inputs):
            self._add(value, "input", index=number)
        for number, group in enumerate(self.groups.groups):
            if group.is_view:
                self._check(group.nodes)
                self._view(group)
            elif group.appends is not None:
                self._append(group.anchor, group.appends)
            elif self.groups.is_empty(group):
                for empty in self.groups.stored(group):
                    self._add(ValueView(empty), "arena")
            else:
                self._compute(group, lowered[number])
        require(self._missing, self.choices.name, f"region '{self.region.name}'")

    def _lowered(self) -> dict[int, list[Lowered]]:
        """Return the kernels of each group that computes something, by the group's number."""
        made = {number: list(self.groups.kernels(number)) for number in self.groups.computed()}
        if self.target.machine.is_device:
            return made
        moved = [shifted(one) for kernels in made.values() for one in kernels]
        # Views that tell extents take stack, which is less than the code that is saved only where memory is plenty.
        wants_numbers = self.schedules or not self.target.machine.caches or not self.choices.opens_extents
        left = iter(moved if wants_numbers else with_open_extents(moved, self.target.machine))
        return {number: [next(left) for _ in kernels] for number, kernels in made.items()}

    def _compute(self, group: Group, lowered: Sequence[Lowered]) -> None:
        """Call the kernels of a group, behind the checks of the indices that they read."""
        self._check([node for one in (group, *group.beside) for node in (*one.before, *one.nodes)])
        for one in lowered:
            self._call(one, *self._schedule(one))
        for part, begin in group.parts:
            whole = self._index(group.tail.node.outputs[0])
            self._add(part, "view", of=whole, offset=begin * _bytes(part))

    def procedure(self) -> Procedure:
        """Return the calls over the region's tensors; arena tensors have no offset yet."""
        outputs = tuple(self._index(output.value) for output in self.region.outputs)
        inputs = tuple(range(len(self.region.inputs)))
        return Procedure(self.region.name, tuple(self._tensors), inputs, outputs, tuple(self._calls))

    # ---- Tensors ----

    def _add(self, value: ValueView, storage: str, dtype: str | None = None, **place: int | str) -> int:
        spec = _spec(value, storage, dtype, **place)
        layout = self.groups.layouts.get(value.value)
        if layout is not None and spec.shape is not None and value.static_shape is None:  # kernels look at the extents
            spec = replace(spec, shape=tuple(spec.shape[axis] for axis in layout.order))
        self._tensors.append(spec)
        self._indices[value.value] = len(self._tensors) - 1
        return self._indices[value.value]

    def _index(self, value: ir.Value) -> int:
        """The tensor of a value: known, or a constant that is used for the first time."""
        if value in self._indices:
            return self._indices[value]
        view = ValueView(value)
        array = view.constant
        assert array is not None, f"'{view.name}' is read before it is written"
        self.constants[view.name] = array
        return self._add(view, "constant", constant=view.name)

    def _packed(self, name: str, array: np.ndarray) -> int:
        self.constants[name] = array
        self._tensors.append(TensorSpec(name, dtype_name(array.dtype), array.shape, "constant", constant=name))
        return len(self._tensors) - 1

    def _result(self, value: ValueView, dtype: str | None = None) -> int:
        """The tensor of what is computed: in the arena, or in the memory of a Concat that it is a part of."""
        if value.value in self._indices:
            return self._indices[value.value]
        if value.value not in self.groups.places:
            return self._add(value, "arena", dtype)
        whole, offset = self.groups.places[value.value]
        return self._add(value, "view", of=self._result(whole), offset=offset * _bytes(value))

    def _view(self, group: Group) -> None:
        (node,) = group.nodes
        if group.placed is not None:
            self._put_together(group.placed)
            return
        source = node.input(0)
        assert source is not None
        for value, offset in group.slices or [(node.node.outputs[0], 0)]:
            part = ValueView(value)
            self._add(part, "view", of=self._index(source.value), offset=offset * _bytes(part))

    def _put_together(self, placed: Placed) -> None:
        """Copy those parts of a Concat that are not computed in its memory."""
        whole = self._result(placed.node.outputs[0])
        for value, offset in placed.copied:
            source, part = self._index(value), ValueView(value)
            self._tensors.append(_spec(part, "view", of=whole, offset=offset * _bytes(part)))
            self._calls.append(Call("copy", (source,), (len(self._tensors) - 1,), origin=(placed.node.name,)))

    def _append(self, node: NodeView, axis: int) -> None:
        past, more = (self._index(value) for value in node.node.inputs if value is not None)
        present = self._add(node.outputs[0], "arena")
        self._calls.append(Call("append", (past, more), (present,), origin=(node.name,), axis=axis))

    def _box(self, whole: int, box: Buffer, shape: tuple[int, ...], elements: int = 0) -> int:
        """The tensor of a box of some shape that begins so many elements behind the first of another."""
        name, dtype = f"{self._tensors[whole].name}.{elements}", storage_dtype(box.dtype)
        offset = elements * element_type(dtype).bytes
        self._tensors.append(TensorSpec(name, dtype, shape, "view", of=whole, offset=offset))
        return len(self._tensors) - 1

    # ---- Kernels ----

    def _schedule(self, lowered: Lowered) -> tuple[str, Mapping[Buffer, np.ndarray], Schedule]:
        """The name of the kernel's function, shared with kernels like it, its packed constants, and how it is made."""
        kernel = lowered.kernel
        with self._timed("lower"):
            structure = lowered.structure or structure_of(kernel)
        parameters = self.tuned.get(workload_key(structure)) if self.tuned else None
        text = self.schedules.get(self._first.setdefault(structure, kernel.name)) if self.schedules else None
        if text is not None:
            parameters = ScheduleParameters(text)
        if parameters is not None:
            structure += to_json(parameters)

        known: list[Scheduled] = []

        def scheduled(wanted: Kernel) -> Scheduled:
            if wanted is kernel and known:
                return known[0]
            try:
                made = self.choices.schedule(wanted, self.target, parameters)
            except ScheduleError:
                if text is not None:
                    raise
                made = self.choices.schedule(wanted, self.target)  # steps mean something else since it was tuned
            if wanted is kernel:
                known.append(made)
            return made

        shared = self._known.get(structure)
        if shared is None and self.code is not None:
            shared = self.code.find(structure, kernel.name)
        if shared is None:
            with self._timed("schedule"):
                made, places = scheduled_and_places(kernel, scheduled)
                function = made.function
            shared = Shared(function.name, places, made.report)
            self._define(function, structure, shared)
        self._known[structure] = shared
        with self._timed("pack"):
            return shared.name, shared.packed(kernel, scheduled), shared.report

    def _define(self, function: Function, structure: str | None = None, shared: Shared | None = None) -> None:
        """Add a function, custom datatypes lowered; what they look up in tables are its last inputs."""
        function = on_one_thread(function) if "threads" in self.target.without else function
        is_plain = structure is not None and "custom[" not in structure
        lowered = lower_function(function, backend=self.choices.name, is_plain=is_plain)
        self.functions.append(lowered.function)
        if self.code is not None and not lowered.missing:
            self.code.libraries |= lowered.libraries
            self.code.add(lowered.function, structure, shared)
        self._tables[function.name] = lowered.tables
        self._missing |= lowered.missing

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = perf_counter()
        yield
        self.seconds[stage] += perf_counter() - started

    def _check(self, nodes: Sequence[NodeView]) -> None:
        """Call the checks of what nodes read and of the shapes that are stated of their results."""
        for node in nodes if "index-checks" not in self.target.without else ():
            self._check_indices(node)
            self._check_extents(node)

    def _check_extents(self, node: NodeView) -> None:
        """Call the check of a stated shape, which comes before what is computed for it."""
        found = extent_check("extents", node)
        if found is None:
            return
        function, numbers = found
        structure = print_function(function)
        if self.target.machine.is_device:  # which tells later, and by the function alone, what was wrong
            function, structure = replace(function, origin=(node.name,)), f"{structure} {node.name}"
        if structure not in self._extent_checks:
            name = f"{symbol(self.region.name)}_extents_{len(self._extent_checks)}"
            self._extent_checks[structure] = name
            if self.code is None or self.code.find(structure, name) is None:
                self._define(replace(function, name=name), structure, Shared(name, {}))
        read = tuple(self._index(value.value) for number in numbers if (value := node.inputs[number]) is not None)
        self._calls.append(Call("call", read, (), 0, self._extent_checks[structure], origin=(node.name,)))

    def _check_indices(self, node: NodeView) -> None:
        """Call the checks of a node's indices, which come before what reads them."""
        for check in self._index_checks.of(node, self._indices):
            if check.is_new and (self.code is None or self.code.find(check.structure, check.name) is None):
                self._define(check.function(), check.structure, Shared(check.name, {}))
            read = tuple(self._index(value.value) for value in (check.value, *check.sources.values()))
            self._calls.append(Call("call", read, (), 0, check.name, origin=(node.name,)))

    def _call(
        self, lowered: Lowered, function: str, packed_constants: Mapping[Buffer, np.ndarray], report: Schedule
    ) -> None:
        inputs = []
        for buffer, value in zip(lowered.kernel.inputs, lowered.inputs, strict=True):
            packed = packed_constants.get(buffer, lowered.made.get(buffer))
            name = f"{lowered.kernel.name}.{buffer.name}"
            if packed is None:
                given = self._index(value)
            else:
                given = self._packed(name, carried(DATATYPES, buffer.dtype, packed))
            if buffer in lowered.offsets:
                given = self._box(given, buffer, b.dims(buffer), lowered.offsets[buffer])
            inputs.append(self._box(given, buffer, lowered.shapes[buffer]) if buffer in lowered.shapes else given)
        for buffer, table in self._tables.get(function, {}).items():
            inputs.append(self._packed(f"{function}.{buffer.name}", table))
        in_place = () if "in-place" in self.target.without else overwritable(lowered.kernel)
        stored = zip(lowered.outputs, lowered.kernel.outputs, strict=True)
        outputs = tuple(
            self._box(given, buffer, lowered.shapes[buffer]) if buffer in lowered.shapes else given
            for given, buffer in ((self._result(ValueView(value), one.dtype), one) for value, one in stored)
        )
        self._calls.append(
            Call(
                "call",
                tuple(inputs),
                outputs,
                0,
                function,
                origin=lowered.kernel.origin,
                flops=sum(self._flops(node) for node in lowered.group.nodes),
                in_place=in_place,
                schedule=report,
            )
        )

    def _flops(self, node: NodeView) -> int:
        operator = self.table.of(node)
        cost = None if operator is None or not is_static(node) else operator.cost
        return 0 if cost is None else cost(node).flops
