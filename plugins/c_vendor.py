"""What a backend says whose kernels are C functions: how its calls are written and compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from graft.plugins.backend import Backend, ShapeSupport

if TYPE_CHECKING:
    import numpy as np

    from graft.partition.region import Region
    from graft.plugins.c_calls import CCall, CKernel
    from graft.plugins.json_graph import JsonGraph


class CVendor(Backend):
    """The backend, as far as its calls are written and compiled; `CSourceBackend` is the whole of it."""

    shapes: ClassVar[ShapeSupport] = "static"
    headers: ClassVar[tuple[str, ...]] = ()
    """What the calls need declared, as in ``#include <...>``."""
    includes: ClassVar[tuple[str | Path, ...]] = ()
    """Folders of headers besides the system's."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Shared libraries by soname, or by path, which ties a program to this machine."""
    link: ClassVar[tuple[str, ...]] = ()
    """The flags of a linker in a C project; without it, ``-l`` and the name of each library."""
    helpers: ClassVar[str] = ""
    """C functions of the backend's own, ``static inline``, that calls may call: after the headers, before the calls."""
    calls: ClassVar[Mapping[str, Any]] = {}
    """By composite or operator: the call as a text, as a `CCall`, or a function from `CKernel` to one of these."""
    success: ClassVar[str] = ""
    """What calls return where nothing failed, in C: ``0``; any other value fails the run. "": they cannot fail."""

    def call(self, kernel: CKernel) -> CCall | str:
        """Return the call that computes a kernel; here it is looked up in `calls`; raise PluginError without one."""
        from graft.errors import PluginError
        from graft.plugins.c_calls import nearest

        if kernel.name not in self.calls:
            known = nearest(kernel.name, self.calls)
            raise PluginError(f"{kernel.where} is supported, but calls have no '{kernel.name}'{known}")
        said = self.calls[kernel.name]
        found: CCall | str = said(kernel) if callable(said) else said
        return found

    def kernels(self, region: Region) -> tuple[JsonGraph, Mapping[str, np.ndarray]]:
        """Return the region as a graph, whose kernels `call` is asked for, and its constants by name."""
        from graft.plugins.graph_symbols import ModelSymbols
        from graft.plugins.json_codegen import serialize
        from graft.plugins.layouts.channels_last import with_channels_last

        return with_channels_last(*serialize(region, ModelSymbols()), self.channels_last)
