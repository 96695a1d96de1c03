"""The printed CUDA C in the emulator: the PTX that NVRTC makes of the text, as a device's driver gets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Function
from graft.plugins.cuda.backend import CudaEmulator
from graft.plugins.cuda.emulated_image import emulated
from graft.plugins.cuda.image import FunctionRow, Image, function_row
from graft.plugins.cuda.launches import launches_of
from graft.plugins.cuda.source import nvrtc
from graft.plugins.cuda.source.kernels import KernelC, kernel_c, source_text


class EmulatedSource(CudaEmulator):
    """The emulator's backend, whose kernels are the text of `cuda_source`; every text is kept."""

    name = "cuda_emulator"
    texts: ClassVar[list[str]] = []

    def _compiled(self, functions: Sequence[Function], target: Target) -> tuple[list[Image], list[FunctionRow]]:
        texts: list[KernelC] = []
        rows, launched = [], []
        for function in functions:
            launches = launches_of(function)
            own = [kernel_c(one, function, target) for one in launches.launches]
            pairs = list(zip(launches.launches, (c.shared for c in own), strict=True))
            rows.append(function_row(launches, {one.name: shared for one, shared in pairs}))
            launched += pairs
            texts += own
        text = source_text(texts)
        type(self).texts.append(text)
        ptx = nvrtc.compiled(text, target.machine, "kernels", form="ptx").decode()
        return [Image(target.machine.name, "emulated", emulated(ptx, launched, "kernels"))], rows
