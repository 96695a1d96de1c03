"""The passes that backends bring for models that they take part in, and those that they ask for or do not want."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import onnx_ir as ir

from graft.core.passes.integer.dequantize_per_reader import DequantizePerReader
from graft.core.passes.pipeline import Pipeline
from graft.partition.sample_loop import SampleLoop
from graft.plugins.backend import Backend
from graft.plugins.registry.fence import FencedBackend
from graft.plugins.registry.fenced_pass import FencedPass


def prepare_for(model: ir.Model, backends: Sequence[Backend], without: Collection[str] = ()) -> None:
    """Let the backends that take part run their own passes over a prepared model, in order of preference.

    Passes named in ``without`` are left out.
    """
    for backend in backends:
        found: list[Any] = [one for one in passes_of(backend) if one.name not in without]
        if found:
            Pipeline(tuple(found)).run(model)


def passes_of(backend: Backend) -> list[Any]:
    """Return a backend's own passes, behind those of what it declares; raise PluginError for what is none."""
    plugin = backend.plugin if isinstance(backend, FencedBackend) else backend.name
    declared: list[Any] = [DequantizePerReader()] if backend.quantized else []
    declared += [SampleLoop()] if backend.one_sample else []
    return [*declared, *(FencedPass.of(one, plugin) for one in backend.passes())]


def unwanted_passes(backends: Sequence[Backend]) -> frozenset[str]:
    """Return the standard passes that are not to run where backends take part."""
    return frozenset[str]().union(*(backend.unwanted_passes for backend in backends))
