"""Models exported to where no runtime of Graft is: compiled for the target and written in one call."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graft.compiler.api import MEMORY, compile_model
from graft.compiler.request import Request, listed
from graft.core.importer.source import SOURCE, Source
from graft.plugins.registry.manager import MANAGER
from graft.runtime.arguments import DIMS, PATH, SHAPES, TEXT, TEXTS, optional, takes
from graft.runtime.export.wasm import export_wasm as write_wasm

if TYPE_CHECKING:
    from graft.compiler.request import Backends
    from graft.compiler.stitching.most_memory import Memory
    from graft.core.graph.dimensions import Dims
    from graft.plugins.registry.manager import PluginManager

WEB = "wasm32+simd128"
THREADS = 8
"""For how many a module for threads leaves enough parts; how many there are is known where it runs."""


@takes(
    model=SOURCE, folder=PATH, name=TEXT, target=TEXT, shapes=optional(SHAPES), dims=optional(DIMS), precision=TEXT,
    without=TEXTS, memory=MEMORY, manager=optional(MANAGER),
)  # fmt: skip
def export_wasm(
    model: Source,
    folder: str | os.PathLike[str],
    *,
    name: str = "model",
    target: str = WEB,
    backends: Backends = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Dims | None = None,
    precision: str = "float32",
    without: Collection[str] = (),
    memory: Memory = "binding",
    manager: PluginManager | None = None,
) -> list[Path]:
    """Compile a model to a WebAssembly module with its loader, types and weights; return the files.

    The arguments are those of `graft.compile`; dimensions that neither model nor ``dims`` give a number stay open, and
    the module runs any shape.
    ``backends`` is ``llvm`` unless others are given; a module has nothing to run but its code. A classifier of digits
    gets a page to draw on. Raises GraftError for a model that cannot be one module, or if a file cannot be written.
    """
    request = Request(
        ["llvm"] if backends is None else listed(backends), shapes=shapes, target=target,
        precision=precision, strict=True, without=without, memory=memory, manager=manager, dims=dims,
    )  # fmt: skip
    return write_wasm(compile_model(model, for_the_web(request)).description, folder, name)


def for_the_web(request: Request) -> Request:
    """Return a request with the threads that its target has in an engine, whatever there are here."""
    has_threads = "atomics" in request.options().target.features
    return replace(request, threads=THREADS if has_threads else 1)
