"""What is asked of a backend whose kernels are C functions (`graft.plugins.c_source_backend`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from graft.partition.region import Region
    from graft.plugins.c_calls import CCall, CKernel
    from graft.plugins.json_graph import JsonGraph


class CVendor(Protocol):
    """The backend, as far as its calls are written and compiled; `CSourceBackend` says what each means."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    @property
    def install(self) -> str:
        """The command that installs the library."""
        ...

    @property
    def headers(self) -> Sequence[str]:
        """What is included."""
        ...

    @property
    def includes(self) -> Sequence[str | Path]:
        """Where headers are besides."""
        ...

    @property
    def libraries(self) -> Sequence[str]:
        """Shared libraries."""
        ...

    @property
    def link(self) -> Sequence[str]:
        """The flags of a linker instead."""
        ...

    @property
    def helpers(self) -> str:
        """C functions of its own."""
        ...

    @property
    def success(self) -> str:
        """What calls return where nothing failed."""
        ...

    def call(self, kernel: CKernel) -> CCall | str:
        """Return the call of a kernel."""
        ...

    def kernels(self, region: Region) -> tuple[JsonGraph, Mapping[str, np.ndarray]]:
        """Return the kernels of a region, and the contents of its constants."""
        ...
