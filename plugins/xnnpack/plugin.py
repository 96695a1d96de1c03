"""The hooks of the XNNPACK backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from graft.plugins.backend import Backend


@hookimpl
def graft_backends() -> list[type[Backend]]:
    """Return the backend."""
    from graft.plugins.xnnpack.backend import XnnpackBackend

    return [XnnpackBackend]
