"""The preparation of a loaded model: passes, those of plugins, and what the chosen backends will read of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from graft.compiler.constant_subgraphs import Evaluate, fold_constant_subgraphs
from graft.compiler.exchanged_values import require_values
from graft.core.collection import collection_paused
from graft.core.graph.dimensions import Dims
from graft.core.importer.load import imported
from graft.core.importer.source import Source
from graft.core.passes.normalize import PASSES, normalize
from graft.core.passes.pipeline import Pipeline, record_of, verify_model
from graft.core.shapes.equations import note_equations

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager


@collection_paused()
def simplified(
    loaded: ir.Model,
    source: Source,
    shapes: Mapping[str, Sequence[int]] | None,
    manager: PluginManager | None,
    evaluate: Evaluate | None,
    without: Collection[str] = (),
    dims: Dims | None = None,
) -> ir.Model:
    """Return a model after all passes that was loaded from ``source``; it is changed unless it is ``source``.

    ``evaluate`` computes what depends on constants alone; None leaves it for the run. The passes that ``without``
    names are left out. Raise AssertionError, which names it, where a pass makes a model that is not valid.
    """
    model = loaded
    if loaded is source:
        model = loaded.clone()
        record_of(model)[:] = record_of(loaded)  # a copy: the loaded model's own record stays what it was
    more = [row for row in manager.passes("import") if row.name not in without] if manager else ()
    disable = PASSES.keys() & without
    normalize(model, disable=disable, more=more, verify=False)
    if evaluate and "constant-subgraphs" not in without and fold_constant_subgraphs(model, evaluate):
        normalize(model, disable=disable, more=more, verify=False)
    try:
        verify_model(model, "normalize")
    except AssertionError:
        again = imported(source, shapes, dims).clone()
        normalize(again, disable=disable, more=more)  # checked after every pass, this names the one that is wrong
        raise
    require_values(model)
    last = manager.passes("before-partition") if manager else ()
    if kept := tuple(row for row in last if row.name not in without):
        Pipeline(kept).run(model)
    note_equations(model)
    return model
