"""The loaders of the plugin's modules: the native library for devices, and the emulator in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np

from graft.plugins import built_in
from graft.runtime.loaders import ModuleFunction, NativeLoader, PythonLoader

KIND = "cuda"
EMULATOR_KIND = "cuda_emulator"


def native_loader() -> NativeLoader:
    """Return the loader of kind ``cuda``, whose library has the device; raise PluginError if it was not built."""
    return NativeLoader(KIND, built("_loader"), device="cuda")


def built(name: str) -> str:
    """Return the path of a native library of this plugin; raise PluginError if it was not built."""
    return built_in.built("cuda", name, "the native loader of CUDA modules is")


def device_fault(number: int = 0) -> str:
    """Return why programs cannot run on a device here: no driver, an old one, no device; "" if they can."""
    library = ctypes.CDLL(str(native_loader().library))
    text = ctypes.create_string_buffer(1024)
    status: int = library.graft_cuda_probe(number, text, len(text))
    return text.value.decode(errors="replace") if status else ""


def emulator_loader() -> PythonLoader:
    """Return the loader of kind ``cuda_emulator``; what it needs is imported when a module is loaded."""

    def load(name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> Mapping[str, ModuleFunction]:
        from graft.plugins.cuda.emulator_module import load

        return load(name, data, constants)

    return PythonLoader(EMULATOR_KIND, load)
