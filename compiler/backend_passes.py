"""The passes that backends bring for models that they take part in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from graft.core.model.passes.pipeline import Pipeline
from graft.plugins.backend import Backend
from graft.plugins.fence import FencedBackend
from graft.plugins.fenced_pass import FencedPass


def prepare_for(model: ir.Model, backends: Sequence[Backend]) -> None:
    """Let the backends that take part run their own passes over a prepared model, in order of preference."""
    for backend in backends:
        plugin = backend.plugin if isinstance(backend, FencedBackend) else backend.name
        found: list[Any] = [FencedPass.of(one, plugin) for one in backend.passes()]
        if found:
            Pipeline(tuple(found)).run(model)
