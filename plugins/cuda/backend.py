"""The backend `cuda`: whatever has a lowering, in kernels for NVIDIA's devices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from graft.core.machine.machine import Machine
from graft.core.machine.target import PRECISIONS, Precision, Target
from graft.core.schedule.strategies.strategy import StrategyTable
from graft.errors import TuningError
from graft.plugins.codegen.grouping.fusion import FusionLimits
from graft.plugins.cuda.machines import SM_80, devices_of, weakest_of
from graft.plugins.tensor_ir_backend import TensorIrBackend
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.core.machine.target import CompileOptions
    from graft.core.operators.definition.table import Cost
    from graft.core.tensor_ir.ir import Function
    from graft.core.tuning.options import TuneOptions, TuneReport
    from graft.partition.region import Region
    from graft.plugins.cuda.image import FunctionRow, Image
    from graft.plugins.cuda.kernel_text import KernelText
    from graft.plugins.cuda.launches import Launch

FOR_PROCESSORS = frozenset({"horizontal", "winograd"})
"""Products side by side and transformed convolutions are forms that the strategies for processors have."""

SLOWER = 1000
"""How many times longer the emulator takes than code for the processor."""


class CudaBackend(TensorIrBackend):
    """Compiles for the devices of the target, for `sm_80` if it names none; the driver compiles PTX for later ones."""

    name: ClassVar[str] = "cuda"
    by_default: ClassVar[bool] = False
    device: ClassVar[str] = "cuda"
    precisions: ClassVar[Collection[Precision]] = PRECISIONS
    fusion: ClassVar[FusionLimits] = FusionLimits(attention=("float32", "float64", "float16", "bfloat16"), rows=())

    def available(self) -> str | None:
        """Return None if llvmlite has a code generator for PTX."""
        try:
            import llvmlite.binding  # noqa: F401 - only whether it is there
        except ImportError as error:
            return f"llvmlite cannot be imported ({error}); pip install llvmlite"
        return None

    def device_fault(self) -> str:
        """Return why programs cannot run here."""
        from graft.plugins.cuda.module import device_fault

        return device_fault()

    def lacks(self) -> Sequence[str]:
        """Return what would assemble kernels when they are compiled."""
        from graft.plugins.cuda.ptx import INSTALL, assembles

        assembly = f"no ptxas and no nvJitLink, so the driver assembles kernels when a program is loaded; {INSTALL}"
        return () if assembles() else (assembly,)

    def version(self) -> str:
        """Return the versions of LLVM and of what assembles."""
        from graft.plugins.cuda.ptx import versions

        return versions()

    def machine(self, target: Target) -> Target:
        """Return the device with the least shared memory, then with the fewest instructions, of the target's."""
        return replace(target, machine=weakest_of(target), without=target.without | FOR_PROCESSORS)

    def generates_code(self, machine: Machine) -> bool | str:
        """Return True: for devices, and for programs on any processor that has one beside it."""
        return True

    def cost(self, region: Region) -> Sequence[Cost]:
        """Return the seconds of each kernel on the device of `sm_80`."""
        return self.cost_on(region, Target(SM_80))

    def cost_on(self, region: Region, target: Target) -> Sequence[Cost]:
        """Return the seconds of each kernel on the device of the target."""
        from graft.partition.costs import Work
        from graft.plugins.codegen.region_cost import kernel_nodes
        from graft.plugins.cuda.cost import DeviceCost, generated

        target = self._machine(target, target.threads)
        kernels = kernel_nodes(region, self._table, target.without, self.fusion)
        cost = DeviceCost(target.machine, target.precision, generated(target.machine), self._table)
        return cost.kernels(kernels, Work(self._table, region.typical))

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        """Measure candidates on the device; raise TuningError where none is."""
        from graft.plugins.cuda.module import device_fault

        fault = device_fault() if wish.device is None else ""
        if fault:
            raise TuningError(
                f"tuning measures kernels on a device: {fault}; compile without it, and the model of cycles decides"
            )
        return super().tune(regions, options, wish)

    @property
    def table_of_strategies(self) -> StrategyTable:
        """The rows for devices alone."""
        from graft.plugins.cuda.strategies.table import TABLE

        return TABLE

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return the kernels of functions, for each device as PTX, and as a cubin where one can be made."""
        from graft.plugins.cuda.image import packed

        images, rows = self._compiled(functions, target)
        return Module("", "cuda", tuple(row.name for row in rows), packed(images, rows))

    def _compiled(self, functions: Sequence[Function], target: Target) -> tuple[list[Image], list[FunctionRow]]:
        from graft.plugins.cuda.image import Image
        from graft.plugins.cuda.ptx import assembles, cubin_of, ptx_of

        name = ", ".join(function.name for function in functions)
        images: list[Image] = []
        rows: list[FunctionRow] = []
        for machine in devices_of(target):
            texts, _, rows = _texts(functions, replace(target, machine=machine))
            ptx = ptx_of(texts, machine, name)
            if assembles():
                images.append(Image(machine.name, "cubin", cubin_of(ptx, machine, name)))
            images.append(Image(machine.name, "ptx", ptx.encode()))
        return images, rows


class CudaEmulator(CudaBackend):
    """The same kernels, run by the emulator: it says where threads touch what is not theirs, and needs no device."""

    name: ClassVar[str] = "cuda_emulator"
    device: ClassVar[str] = "cpu"

    def device_fault(self) -> str:
        """Return nothing: it needs no device."""
        return ""

    def available(self) -> str | None:
        """Return None if there is a C compiler."""
        from graft.errors import CompileError
        from graft.runtime.system.c_compiler import c_compiler

        try:
            c_compiler()
        except CompileError as error:
            return error.message
        return super().available()

    def cost_on(self, region: Region, target: Target) -> Sequence[Cost]:
        """Return the costs of kernels on one processor, which plays each thread of each block."""
        from graft.plugins.codegen.region_cost import region_costs

        costs = region_costs(region, self._table, self._machine(target, 1).without, self.fusion)
        return [replace(one, flops=SLOWER * one.flops, bytes=SLOWER * one.bytes) for one in costs]

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        """Measure nothing: how long the emulator takes says nothing of a device."""
        return None

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return the kernels as native code that the emulator runs."""
        from graft.plugins.cuda.emulator_module import KIND, module_bytes

        images, rows = self._compiled(functions, target)
        names = tuple(row.name for row in rows)
        return Module("", KIND, names, module_bytes(images, rows, functions), plugin=CudaBackend.name)

    def _compiled(self, functions: Sequence[Function], target: Target) -> tuple[list[Image], list[FunctionRow]]:
        from graft.plugins.cuda.emulated_image import emulated
        from graft.plugins.cuda.image import Image
        from graft.plugins.cuda.ptx import ptx_of

        name = ", ".join(function.name for function in functions)
        texts, launches, rows = _texts(functions, target)
        ptx = ptx_of(texts, target.machine, name)
        shared = [text.shared for text in texts]
        data = emulated(ptx, list(zip(launches, shared, strict=True)), name)
        return [Image(target.machine.name, "emulated", data)], rows


def _texts(functions: Sequence[Function], target: Target) -> tuple[list[KernelText], list[Launch], list[FunctionRow]]:
    """Return the text of all kernels, their launches, and the rows of the functions that launch them."""
    from graft.plugins.cuda.image import written
    from graft.plugins.cuda.kernel_text import kernel_text

    return written(functions, lambda launch, function: kernel_text(launch, function, target))
