"""The hooks of the oneDNN plugin. Imports neither onnx nor the library: listing backends stays cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.plugins.built_in import built
from graft.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from graft.plugins.backend import Backend
    from graft.runtime.loaders import NativeLoader


@hookimpl
def graft_backends() -> list[type[Backend]]:
    """Return the backend, and its form in C."""
    from graft.plugins.onednn.backend import OneDnnBackend
    from graft.plugins.onednn.c_backend import OneDnnCBackend

    return [OneDnnBackend, OneDnnCBackend]


@hookimpl
def graft_module_loaders() -> list[NativeLoader]:
    """Return the native loader of module kind ``json:onednn``; it finds the library that is opened here."""
    from graft.plugins.onednn.library import open_library
    from graft.runtime.loaders import NativeLoader

    open_library()
    return [NativeLoader("json:onednn", native_loader(), holds_code=False)]


def native_loader() -> str:
    """Return the path of the compiled loader; raise PluginError if it was not built."""
    return built("onednn", "_loader", "the native loader of the oneDNN plugin is")
