"""The backend `cuda_source`: the kernels of `cuda` as CUDA C, compiled by NVRTC, for who reads and edits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from graft.core.machine.target import Target
from graft.errors import CompileError
from graft.plugins.cuda.backend import CudaBackend
from graft.plugins.cuda.machines import devices_of
from graft.runtime.c_source import CSource
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    from graft.core.machine.machine import Machine
    from graft.core.tensor_ir.ir import Function
    from graft.plugins.cuda.image import FunctionRow, Image

LANGUAGE = "cuda"


class CudaSource(CudaBackend):
    """Writes CUDA C of the same scheduled functions; the text stays with the program, and may come back edited."""

    name: ClassVar[str] = "cuda_source"

    def available(self) -> str | None:
        """Return None if NVRTC is installed."""
        from graft.plugins.cuda.source.nvrtc import MISSING, library

        return super().available() if library() is not None else MISSING

    def device_fault(self) -> str:
        """Return why programs cannot run here."""
        from graft.plugins.cuda.module import device_fault

        return device_fault()

    def version(self) -> str:
        """Return the version of NVRTC."""
        from graft.plugins.cuda.source.nvrtc import version

        return version()

    def machine(self, target: Target) -> Target:
        """Return the device, with those instructions that the text has words for."""
        from graft.plugins.cuda.source.kernels import MMA

        own = super().machine(target)
        known = tuple(
            one for one in own.machine.instructions if one.name in MMA or not _is_tensor_instruction(one.name)
        )
        return replace(own, machine=replace(own.machine, instructions=known))

    def emit(self, functions: Sequence[Function], target: Target) -> Module:
        """Return the kernels of functions with their text, for each device as a cubin and as PTX."""
        from graft.plugins.cuda.image import packed

        text, rows = _written(functions, target)
        name = ", ".join(function.name for function in functions)
        images = _images(text, devices_of(target), name)
        names = tuple(row.name for row in rows)
        source = CSource(text, {}, compiler=self.version(), language=LANGUAGE)
        return Module("", "cuda", names, packed(images, rows), plugin=CudaBackend.name, source=source)

    def recompile(self, module: Module, text: str) -> Module | None:
        """Return a module of this backend with the kernels of another text, for the same devices and launches.

        Raises CompileError for what NVRTC refuses, and where a kernel that is launched is no longer there.
        """
        from graft.plugins.cuda.image import repacked, unpacked
        from graft.plugins.cuda.machines import device

        if module.source is None or module.source.language != LANGUAGE:
            return None
        header, images = unpacked(module.data)
        devices = tuple(dict.fromkeys(device(one.arch) for one in images))
        own = _images(text, devices, module.name)
        _require_kernels(text, header, own, module.name)
        source = replace(module.source, text=text, compiler=self.version())
        return replace(module, data=repacked(header, own), source=source)


def _is_tensor_instruction(name: str) -> bool:
    return name.startswith(("mma", "wgmma"))


def _written(functions: Sequence[Function], target: Target) -> tuple[str, list[FunctionRow]]:
    """Return the text of all kernels, and the rows of the functions that launch them."""
    from graft.plugins.cuda.image import written
    from graft.plugins.cuda.source.kernels import kernel_c, source_text

    texts, _, rows = written(functions, lambda launch, function: kernel_c(launch, function, target))
    return source_text(texts), rows


def _images(text: str, devices: Sequence[Machine], name: str) -> list[Image]:
    from graft.plugins.cuda.image import Form, Image
    from graft.plugins.cuda.source.nvrtc import compiled

    forms: tuple[Form, ...] = ("cubin", "ptx")
    return [Image(one.name, form, compiled(text, one, name, form=form)) for one in devices for form in forms]


def _require_kernels(text: str, header: Mapping[str, object], images: Sequence[Image], name: str) -> None:
    ptx = next(image.data for image in images if image.form == "ptx").decode(errors="replace")
    functions = header["functions"]
    assert isinstance(functions, list), functions
    for launch in (launch for function in functions for launch in function["launches"]):
        if f".entry {launch['kernel']}(" not in ptx:
            raise CompileError(
                f"the text of '{name}' has no kernel '{launch['kernel']}', which the program launches; keep the names "
                "and parameters of kernels",
                function=name,
            )
