"""The hooks of the `reference` backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graft.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from graft.plugins.backend import Backend


@hookimpl
def graft_backends() -> list[type[Backend]]:
    """Return the backend."""
    from graft.plugins.reference.backend import ReferenceBackend

    return [ReferenceBackend]


@hookimpl
def graft_module_loaders() -> list[Any]:
    """Return the loader of kind ``reference``."""
    from graft.plugins.reference.loader import load
    from graft.runtime.loaders import PythonLoader

    return [PythonLoader("reference", load, holds_code=False)]
