"""The hooks of the CUDA backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from graft.core.machine.machine import Machine
    from graft.plugins.backend import Backend
    from graft.runtime.loaders import Loader


@hookimpl
def graft_backends() -> list[type[Backend]]:
    """Return the backend, the one whose kernels the emulator runs, the one that writes CUDA C, and cuBLASLt's."""
    from graft.plugins.cuda.backend import CudaBackend, CudaEmulator
    from graft.plugins.cuda.cublas.backend import CublasBackend
    from graft.plugins.cuda.source.backend import CudaSource

    return [CudaBackend, CudaEmulator, CudaSource, CublasBackend]


@hookimpl
def graft_machines() -> list[Machine]:
    """Return the rows of the devices."""
    from graft.plugins.cuda.machines import DEVICES

    return list(DEVICES)


@hookimpl
def graft_module_loaders() -> list[Loader]:
    """Return the library that has the devices and runs their modules, and what runs the emulator's."""
    from graft.plugins.cuda.cublas.library import cublas_loader
    from graft.plugins.cuda.module import emulator_loader, native_loader

    return [cublas_loader(), native_loader(), emulator_loader()]  # of two with the device, the last has it
