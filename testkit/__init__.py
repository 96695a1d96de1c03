"""The vendors' kit: `conformance` in a test file, `graft plugin new` and `graft plugin test` on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft.testkit.conformance.api import conformance

__all__ = ["conformance"]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name != "conformance":
            raise AttributeError(
                f"module 'graft.testkit' has no attribute '{name}'; the public names are {', '.join(__all__)}"
            )
        from graft.testkit.conformance.api import conformance

        globals()["conformance"] = conformance
        return conformance
