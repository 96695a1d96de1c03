"""Tuning: the kernels of regions as workloads, and candidates compiled and timed alone.

A kernel runs in the native runtime as it would in a program, with its weights and its output out of the caches, as far
as the whole model would have driven them out, and its inputs, which the kernel before would have written, within them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import thread_time

import numpy as np
import onnx_ir as ir

from graft.core.affine.text import parsed
from graft.core.graph.view import ValueView
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import OperatorTable
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.strategy import StrategyTable
from graft.core.tensor_ir.ir import Buffer, Constant, Function, Stage, Variable
from graft.core.tuning.candidates import is_tunable
from graft.core.tuning.learnt_cost import LearntCost, Times
from graft.core.tuning.options import Device, TuneOptions, TuneReport
from graft.core.tuning.race import Run
from graft.core.tuning.search import Search, Workload
from graft.core.tuning.trial import check_alike, results
from graft.core.tuning.tunings import Tunings, workload_key
from graft.core.types import Type, element_bits
from graft.datatypes.lower_function import lower_function
from graft.partition.region import Region
from graft.plugins.codegen.choices import CodegenChoices
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.codegen.sharing.kernel_structure import structure_of
from graft.runtime.constants import aligned_array
from graft.runtime.dtypes import dtype_name, numpy_dtype
from graft.runtime.extents import evaluate, symbols_of
from graft.runtime.isolation.connection import Supervision
from graft.runtime.procedure import ALIGNMENT, Call, Module, Procedure, ProgramDescription, TensorSpec
from graft.runtime.procedure import Device as Memory
from graft.runtime.program import Program

Emit = Callable[[Sequence[Function]], Module]
"""Compiles functions for the target."""
MOST_EVICTED = 64 << 20
"""More than the caches hold."""
_PREFIX = re.compile(r"^.*_\d+_")
"""Region and number in a kernel's name."""
FLOPS_PER_SECOND, BYTES_PER_SECOND = 5e10, 1e10


def tune_regions(
    regions: Sequence[Region],
    table: OperatorTable,
    builder: KernelBuilder,
    tunings: Tunings,
    options: TuneOptions,
) -> TuneReport:
    """Measure candidates for the kernels of regions, and keep the best in ``tunings``."""
    target, choices = builder.target, builder.choices
    measured: list[Measured] = []
    constants: dict[ir.Value, np.ndarray | None] = {}
    unknown = 0
    for region in regions:
        groups = RegionGroups(region, table, target, choices)
        lowered = list(groups.every_kernel())
        requested = [_numbers(groups.extents, {**region.typical, **dims}) for dims in options.bindings()]
        for one in lowered:
            constants |= {value: ValueView(value).constant for value in one.inputs}
            bindings = _bindings(one.kernel, requested)
            if bindings:
                measured.append(Measured(one.kernel, bindings, groups.extents))
            unknown += not bindings
    touched = sum(array.nbytes for array in constants.values() if array is not None)
    strategies = choices.table_of_strategies
    workloads = workloads_of(measured, strategies)
    cost = LearntCost(Times(tunings.path.with_name("trials.sqlite3"), tunings.machine))
    report = Search(workloads, target, replace(builder, touched=touched), tunings, options, strategies, cost).run()
    return replace(report, varying=unknown)


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel, the numbers that its extents have when it is measured, and what those that vary are called."""

    kernel: Kernel
    bindings: tuple[Mapping[Variable, int], ...] = ({},)
    names: Mapping[str, Variable] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Operators and shapes for people: ``conv_relu 1x64x56x56, 64x64x3x3``, ``matmul [batch, seq, 64], 64x96``."""
        shapes = map(self._shape, self.kernel.inputs[:2])
        return f"{_PREFIX.sub('', self.kernel.name)} {', '.join(shapes)}"

    def _shape(self, buffer: Buffer) -> str:
        extents = b.extents(buffer)
        if not any(isinstance(extent, Variable) for extent in extents):
            return "x".join(map(str, extents))
        names = {variable: text for text, variable in self.names.items()}
        return f"[{', '.join(names[one] if isinstance(one, Variable) else str(one) for one in extents)}]"

    @property
    def estimate(self) -> float:
        """Seconds by the products of the anchor's sum, or by the bytes that are moved, at the first binding."""
        kernel, binding = self.kernel, self.bindings[0]
        terms = max(_points(stage, binding) for stage in kernel.stages)
        moved = sum(_bytes(buffer, binding) for buffer in (*kernel.inputs, *kernel.outputs))
        return max(2 * terms / FLOPS_PER_SECOND, moved / BYTES_PER_SECOND)


def _numbers(extents: Mapping[str, Variable], values: Mapping[str, int]) -> dict[Variable, int]:
    """Return the numbers of extents for values of the symbols, as far as these say them."""
    numbers: dict[Variable, int] = {}
    for text, variable in extents.items():
        extent = parsed(text)
        if extent is not None and all(symbol.name in values for symbol in symbols_of(extent)):
            numbers[variable] = evaluate(extent, values)
    return numbers


def _bindings(kernel: Kernel, requested: Sequence[Mapping[Variable, int]]) -> tuple[Mapping[Variable, int], ...]:
    """Return the different numbers of a kernel's extents; none if some are not known, or rows lie apart in memory."""
    buffers = (*kernel.inputs, *kernel.outputs, *(stage.buffer for stage in kernel.stages))
    varying = list(dict.fromkeys(extent for one in buffers for extent in one.shape if not isinstance(extent, Constant)))
    if not varying:
        return ({},)
    if any(buffer.strides is not None for buffer in buffers):
        return ()
    found: dict[tuple[int, ...], Mapping[Variable, int]] = {}
    for numbers in requested:
        own = {extent: numbers[extent] for extent in varying if isinstance(extent, Variable) and extent in numbers}
        if len(own) < len(varying) or min(own.values()) <= 0:
            return ()
        found[tuple(own.values())] = own
    return tuple(found.values())


def workloads_of(measured: Sequence[Measured], strategies: StrategyTable = TABLE) -> list[Workload]:
    """Return the different ones of the kernels that have parameters."""
    found: dict[str, Workload] = {}
    for one in measured:
        if not is_tunable(one.kernel, strategies):
            continue
        key = workload_key(structure_of(one.kernel))
        known = found.get(key)
        found[key] = (
            Workload(key, one.label, one.kernel, 1, one.estimate, one.bindings)
            if known is None
            else replace(known, count=known.count + 1)
        )
    return list(found.values())


def _dims(buffer: Buffer, binding: Mapping[Variable, int]) -> tuple[int, ...]:
    """Return a buffer's extents as numbers."""
    return tuple(binding[extent] if isinstance(extent, Variable) else extent for extent in b.extents(buffer))


def _points(stage: Stage, binding: Mapping[Variable, int]) -> int:
    inner = () if stage.reduction is None else stage.reduction.axes
    extents = [
        int(axis.extent.value) if isinstance(axis.extent, Constant) else binding.get(axis.extent, 1)
        for axis in inner
        if isinstance(axis.extent, Constant | Variable)
    ]
    return math.prod((*_dims(stage.buffer, binding), *extents))


def _bytes(buffer: Buffer, binding: Mapping[Variable, int]) -> int:
    return math.prod(_dims(buffer, binding)) * element_bits(buffer.dtype) // 8


@dataclass(frozen=True, slots=True)
class KernelBuilder:
    """Compiles kernels alone for a target; ``touched`` are the bytes that the model uses between two runs of one."""

    target: Target
    threads: int
    emit: Emit
    choices: CodegenChoices
    touched: int = 0
    device: Device | None = None
    """Where they are measured, if not here."""
    memory: Memory | None = None
    """What they compute in, if not in main memory."""
    processes: Supervision = field(default_factory=Supervision)
    """Where candidates run for the first time."""

    def bench(self, workload: Workload) -> KernelBench:
        """Return an empty bench."""
        kernel = workload.kernel
        given = [buffer for buffer in kernel.inputs if buffer not in kernel.constants]
        samples = [Sample(one, [_sample(buffer, one) for buffer in given]) for one in workload.bindings]
        evicted = np.zeros(min(self.touched, MOST_EVICTED), np.uint8)
        return KernelBench(self, kernel, samples, evicted)


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers of a kernel's extents, and inputs of these shapes."""

    binding: Mapping[Variable, int]
    arrays: Sequence[np.ndarray]


@dataclass(frozen=True, slots=True)
class KernelBench:
    """The candidates of one kernel; they share their inputs."""

    builder: KernelBuilder
    kernel: Kernel
    samples: Sequence[Sample]
    evicted: np.ndarray
    _texts: set[str] = field(default_factory=set)
    _expected: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    """What the first candidate gives, by sample."""

    def add(self, parameters: Parameters | None) -> Run | None:
        """Compile the kernel with parameters; None if the loops are those of a candidate that is there already.

        Where its extents vary, the time of a run is the geometric mean over their bindings: each counts alike. Raises
        TuningError for a candidate that crashes, hangs, or gives other results than the first.
        """
        choices = self.builder.choices
        scheduled = choices.schedule(self.kernel, self.builder.target, parameters)
        function = lower_function(scheduled.function, backend=choices.name).function
        text = str(function)
        if text in self._texts:
            return None
        self._texts.add(text)
        module = replace(self.builder.emit((function,)), name="kernel", plugin=choices.name)
        constants = {**self.kernel.constants, **scheduled.packed}
        self._check(module, constants)
        runs = [self._run(module, constants, sample) for sample in self.samples]
        return lambda: math.prod(run() for run in runs) ** (1 / len(runs))

    def _check(self, module: Module, constants: Mapping[Buffer, np.ndarray]) -> None:
        """Try a candidate in another process; one of another machine or memory is known by its time alone."""
        builder = self.builder
        if builder.device is not None or builder.memory is not None:
            return
        for number, sample in enumerate(self.samples):
            description = _description(self.kernel, constants, module, sample.binding, returned=True)
            found = results(description, sample.arrays, builder.threads, builder.processes)
            if number == len(self._expected):
                self._expected.append(found)
            else:
                check_alike(found, self._expected[number], builder.target.precision)

    def _run(self, module: Module, constants: Mapping[Buffer, np.ndarray], sample: Sample) -> Run:
        """Return what runs the compiled kernel once on a sample, and says how long it took."""
        threads, arrays = self.builder.threads, sample.arrays
        description = _description(self.kernel, constants, module, sample.binding)
        if self.builder.memory is not None:
            description = _beside(description, self.builder.memory)
        if self.builder.device is not None:
            return self.builder.device.bench(description, arrays)
        program = Program.from_description(description, threads)
        program.profile(*arrays)  # The first run finds no memory and no code in place.
        sources = [array.view(np.uint8) for array in arrays]

        def run() -> float:
            self.evicted.max(initial=0)
            for source in sources:
                source.max(initial=0)
            before = thread_time()
            (*_, (_, _, nanoseconds), _) = program.profile(*arrays)
            # Of a single thread it is known how long it ran, and how long others had the processor meanwhile.
            is_alone = threads == 1 and self.builder.memory is None
            return min(1e-9 * nanoseconds, thread_time() - before if is_alone else math.inf)

        return run


def _description(
    kernel: Kernel,
    constants: Mapping[Buffer, np.ndarray],
    module: Module,
    binding: Mapping[Variable, int],
    *,
    returned: bool = False,
) -> ProgramDescription:
    """A program of one kernel; unless its outputs are ``returned``, it gives one number of its own, and copies none."""
    tensors: list[TensorSpec] = []
    offset = 0
    for buffer in kernel.inputs:
        if buffer in constants:
            array = constants[buffer]
            dtype = dtype_name(array.dtype)
            tensors.append(TensorSpec(buffer.name, dtype, array.shape, "constant", constant=str(len(tensors))))
        else:
            index = sum(one.storage == "input" for one in tensors)
            tensors.append(TensorSpec(buffer.name, buffer.dtype, _dims(buffer, binding), "input", index))
    for number, buffer in enumerate(kernel.outputs):
        storage = TensorSpec(buffer.name, buffer.dtype, _dims(buffer, binding), "output", number)
        tensors.append(storage if returned else replace(storage, storage="arena", index=-1, offset=offset))
        offset += 0 if returned else -(-_bytes(buffer, binding) // ALIGNMENT) * ALIGNMENT
    count, inputs = len(kernel.inputs), tuple(n for n, one in enumerate(tensors) if one.storage == "input")
    outputs = tuple(range(count, len(tensors)))
    calls = [Call("call", tuple(range(count)), outputs, 0, kernel.name)]
    contents = {str(number): constants[buffer] for number, buffer in enumerate(kernel.inputs) if buffer in constants}
    if not returned:
        calls.append(Call("copy", (len(tensors),), (len(tensors) + 1,)))
        tensors.append(TensorSpec("one", "float32", (1,), "constant", constant="one"))
        tensors.append(TensorSpec("done", "float32", (1,), "output", 0))
        contents["one"], outputs = np.ones(1, np.float32), (len(tensors) - 1,)
    procedure = Procedure("kernel", tuple(tensors), inputs, outputs, tuple(calls), offset, offset)
    return ProgramDescription((procedure,), (module,), contents)


def _beside(description: ProgramDescription, memory: Memory) -> ProgramDescription:
    """Return a program of one kernel with the kernel's tensors in another memory; inputs are copied there first."""
    (procedure,) = description.procedures
    kernel, done = procedure.calls
    tensors, copies, moved = list(procedure.tensors), [], dict[int, int]()
    size = procedure.arena_bytes
    for index in (*kernel.inputs, *kernel.outputs):
        if tensors[index].storage != "input":
            tensors[index] = replace(tensors[index], device=1)
            continue
        moved[index] = len(tensors)
        copies.append(Call("copy", (index,), (len(tensors),)))
        tensors.append(replace(tensors[index], storage="arena", index=-1, offset=size, device=1))
        size += -(-_size_of(tensors[index]) // ALIGNMENT) * ALIGNMENT
    calls = (*copies, replace(kernel, inputs=tuple(moved.get(index, index) for index in kernel.inputs)), done)
    beside = replace(
        procedure, tensors=tuple(tensors), calls=calls, arena_bytes=0, arena_bound=0, device_arenas=(size,)
    )
    return replace(description, procedures=(beside,), devices=(memory,))


def _size_of(tensor: TensorSpec) -> int:
    return math.prod(tensor.static_shape or ()) * numpy_dtype(tensor.dtype).itemsize


def _sample(buffer: Buffer, binding: Mapping[Variable, int]) -> np.ndarray:
    """An array for an input, aligned as the runtime aligns: normal numbers, or zeros, which any table has a row for."""
    dtype, shape = numpy_dtype(buffer.dtype), _dims(buffer, binding)
    array = aligned_array(shape, dtype)
    array.fill(0)
    if Type(buffer.dtype).is_float:
        array[...] = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return array
