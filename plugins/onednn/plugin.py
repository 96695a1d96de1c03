"""The hooks of the oneDNN plugin. Imports neither onnx nor the library: listing backends stays cheap."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from graft.errors import PluginError
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
    spec = find_spec("graft.plugins.onednn._loader")
    if spec is None or spec.origin is None:
        raise PluginError(
            "the native loader of the oneDNN plugin is not built; reinstall graft-compiler with a C compiler present",
            plugin="onednn",
        )
    return spec.origin
