"""The hooks of the accelerator's plugin. Imports neither onnx nor its compiler: listing backends stays cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.plugins.built_in import built
from graft.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from graft.plugins.backend import Backend
    from graft.runtime.loaders import NativeLoader


@hookimpl
def graft_backends() -> list[type[Backend]]:
    """Return the backend."""
    from graft.plugins.accelerator.backend import AcceleratorBackend

    return [AcceleratorBackend]


@hookimpl
def graft_module_loaders() -> list[NativeLoader]:
    """Return the native loader of module kind ``accelerator``."""
    from graft.runtime.loaders import NativeLoader

    return [NativeLoader("accelerator", native_loader(), holds_code=False)]


def native_loader() -> str:
    """Return the path of the compiled loader; raise PluginError if it was not built."""
    return built("accelerator", "_loader", "the native loader of the accelerator is")
