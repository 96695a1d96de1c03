"""The backend: the built-in compiler's kernels, which run in the memory of the device."""

from dataclasses import replace

from graft.core.machine.target import host_target
from graft.plugins.llvm.backend import LlvmBackend


class Fake(LlvmBackend):
    """Takes what `llvm` takes; its kernels are launched on a stream of the device."""

    name = "fake"
    priority = 200
    by_default = False
    fallback = False
    device = "fake"
    install = "pip install graft-fake"

    def generates_code(self, machine):
        """Return whether it is the machine that the device's kernels are made for."""
        return machine == host_target().machine or "its kernels are those of the processor here"

    def compile(self, region, options):
        """Return the region with modules for the loader of the device."""
        compiled = super().compile(region, options)
        return replace(compiled, modules=tuple(replace(one, kind="fake", source=None) for one in compiled.modules))
