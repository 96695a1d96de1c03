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

from graft.core.machine.target import Target
from graft.core.model.view import ValueView
from graft.core.operators import build as b
from graft.core.operators.table import OperatorTable, Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import Parameters
from graft.core.tensor_ir.ir import Buffer, Constant, Function, Stage
from graft.core.tuning.candidates import is_tunable
from graft.core.tuning.options import TuneOptions, TuneReport
from graft.core.tuning.race import Run
from graft.core.tuning.search import Search, Workload
from graft.core.tuning.tunings import Tunings, workload_key
from graft.core.types import Type, element_bits
from graft.datatypes.lower_function import lower_function
from graft.partition.region import Region
from graft.plugins.codegen.choices import CodegenChoices
from graft.plugins.codegen.kernel_structure import structure_of
from graft.plugins.codegen.region_groups import RegionGroups
from graft.runtime.dtypes import dtype_name, numpy_dtype
from graft.runtime.procedure import ALIGNMENT, Call, Module, Procedure, ProgramDescription, TensorSpec
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
    lowered = [one for region in regions for one in RegionGroups(region, table, target, choices).every_kernel()]
    kernels = [one.kernel for one in lowered if one.kernel.anchor is not Trait.RECURRENT]
    varying = [kernel for kernel in kernels if _varies(kernel)]
    workloads = workloads_of([kernel for kernel in kernels if not _varies(kernel)])
    constants = {value: ValueView(value).constant for one in lowered for value in one.inputs}
    touched = sum(array.nbytes for array in constants.values() if array is not None)
    report = Search(workloads, target, replace(builder, touched=touched), tunings, options).run()
    return replace(report, varying=len(varying))


def _varies(kernel: Kernel) -> bool:
    """Whether a kernel has a shape that is not all numbers: no time of it says anything of another shape."""
    buffers = (*kernel.inputs, *kernel.outputs, *(stage.buffer for stage in kernel.stages))
    return not all(isinstance(extent, Constant) for buffer in buffers for extent in buffer.shape)


def workloads_of(kernels: Sequence[Kernel]) -> list[Workload]:
    """Return the different ones of the kernels that have parameters."""
    found: dict[str, Workload] = {}
    for kernel in kernels:
        if not is_tunable(kernel):
            continue
        key = workload_key(structure_of(kernel))
        known = found.get(key)
        found[key] = (
            Workload(key, label_of(kernel), kernel, 1, _estimate(kernel))
            if known is None
            else replace(known, count=known.count + 1)
        )
    return list(found.values())


def label_of(kernel: Kernel) -> str:
    """Return operators and shapes of a kernel for people: ``conv_relu 1x64x56x56, 64x64x3x3``."""
    operators = _PREFIX.sub("", kernel.name)
    shapes = ("x".join(map(str, b.dims(buffer))) for buffer in kernel.inputs[:2])
    return f"{operators} {', '.join(shapes)}"


def _estimate(kernel: Kernel) -> float:
    """Seconds by the products of the anchor's sum, or by the bytes that the kernel reads and writes."""
    terms = max(_points(stage) for stage in kernel.stages)
    moved = sum(_bytes(buffer) for buffer in (*kernel.inputs, *kernel.outputs))
    return max(2 * terms / FLOPS_PER_SECOND, moved / BYTES_PER_SECOND)


def _points(stage: Stage) -> int:
    inner = () if stage.reduction is None else stage.reduction.axes
    extents = [axis.extent.value for axis in inner if isinstance(axis.extent, Constant)]
    return math.prod((*b.dims(stage.buffer), *map(int, extents)))


def _bytes(buffer: Buffer) -> int:
    return math.prod(b.dims(buffer)) * element_bits(buffer.dtype) // 8


@dataclass(frozen=True, slots=True)
class KernelBuilder:
    """Compiles kernels alone for a target; ``touched`` are the bytes that the model uses between two runs of one."""

    target: Target
    threads: int
    emit: Emit
    choices: CodegenChoices
    touched: int = 0

    def bench(self, workload: Workload) -> KernelBench:
        """Return an empty bench."""
        kernel = workload.kernel
        arrays = [_sample(buffer) for buffer in kernel.inputs if buffer not in kernel.constants]
        evicted = np.zeros(min(self.touched, MOST_EVICTED), np.uint8)
        return KernelBench(self, kernel, arrays, evicted)


@dataclass(frozen=True, slots=True)
class KernelBench:
    """The candidates of one kernel; they share their inputs."""

    builder: KernelBuilder
    kernel: Kernel
    arrays: Sequence[np.ndarray]
    evicted: np.ndarray
    _texts: set[str] = field(default_factory=set)

    def add(self, parameters: Parameters | None) -> Run | None:
        """Compile the kernel with parameters; None if the loops are those of a candidate that is there already."""
        threads, choices = self.builder.threads, self.builder.choices
        scheduled = choices.schedule(self.kernel, self.builder.target, parameters)
        function = lower_function(scheduled.function, backend=choices.name).function
        text = str(function)
        if text in self._texts:
            return None
        self._texts.add(text)
        module = replace(self.builder.emit((function,)), name="kernel", plugin=choices.name)
        program = Program.from_description(
            _description(self.kernel, {**self.kernel.constants, **scheduled.packed}, module), threads
        )
        program.profile(*self.arrays)  # The first run finds no memory and no code in place.
        sources = [array.view(np.uint8) for array in self.arrays]

        def run() -> float:
            self.evicted.max(initial=0)
            for source in sources:
                source.max(initial=0)
            before = thread_time()
            ((_, _, nanoseconds), _) = program.profile(*self.arrays)
            # Of a single thread it is known how long it ran, and how long others had the processor meanwhile.
            return min(1e-9 * nanoseconds, thread_time() - before if threads == 1 else math.inf)

        return run


def _description(kernel: Kernel, constants: Mapping[Buffer, np.ndarray], module: Module) -> ProgramDescription:
    """A program of one kernel; it returns one number of its own, so that no output is allocated and none is copied."""
    tensors: list[TensorSpec] = []
    offset = 0
    for buffer in kernel.inputs:
        if buffer in constants:
            array = constants[buffer]
            dtype = dtype_name(array.dtype)
            tensors.append(TensorSpec(buffer.name, dtype, array.shape, "constant", constant=str(len(tensors))))
        else:
            index = sum(one.storage == "input" for one in tensors)
            tensors.append(TensorSpec(buffer.name, buffer.dtype, b.dims(buffer), "input", index))
    for buffer in kernel.outputs:
        tensors.append(TensorSpec(buffer.name, buffer.dtype, b.dims(buffer), "arena", offset=offset))
        offset += -(-_bytes(buffer) // ALIGNMENT) * ALIGNMENT
    count, inputs = len(kernel.inputs), tuple(n for n, one in enumerate(tensors) if one.storage == "input")
    call = Call("call", tuple(range(count)), tuple(range(count, len(tensors))), 0, kernel.name)
    done = Call("copy", (len(tensors),), (len(tensors) + 1,))
    tensors += [TensorSpec("one", "float32", (1,), "constant", constant="one")]
    tensors += [TensorSpec("done", "float32", (1,), "output", 0)]
    contents = {str(number): constants[buffer] for number, buffer in enumerate(kernel.inputs) if buffer in constants}
    return ProgramDescription(
        (Procedure("kernel", tuple(tensors), inputs, (len(tensors) - 1,), (call, done), offset, offset),),
        (module,),
        {**contents, "one": np.ones(1, np.float32)},
    )


def _sample(buffer: Buffer) -> np.ndarray:
    """An array for an input, aligned as the runtime aligns: normal numbers, or zeros, which any table has a row for."""
    dtype, shape = numpy_dtype(buffer.dtype), b.dims(buffer)
    size = math.prod(shape) * dtype.itemsize
    room = np.zeros(size + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    array = room[first : first + size].view(dtype).reshape(shape)
    if Type(buffer.dtype).is_float:
        array[...] = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return array
