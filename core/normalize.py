"""The standard pipeline: what every model goes through between import and partitioning."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from graft.core.passes.canonicalize_operators import CanonicalizeOperators
from graft.core.passes.canonicalize_shapes import CanonicalizeShapes
from graft.core.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.passes.eliminate_identity import EliminateIdentity
from graft.core.passes.fold_batch_normalization import FoldBatchNormalization
from graft.core.passes.fold_constants import FoldConstants
from graft.core.passes.inline_conditions import InlineConditions
from graft.core.passes.lift_constants import LiftConstants
from graft.core.passes.pipeline import Pass, PassResult, Pipeline
from graft.core.passes.split_heads import SplitHeads

FOLD_LIMIT = FoldConstants().limit

PASSES: Mapping[str, type[Pass]] = {
    row.name: row
    for row in (
        LiftConstants,
        FoldConstants,
        InlineConditions,
        EliminateIdentity,
        CanonicalizeOperators,
        SplitHeads,
        CanonicalizeShapes,
        FoldBatchNormalization,
        EliminateCommonSubexpressions,
        EliminateDeadCode,
    )
}
"""Every pass by name, in the order in which the standard pipeline runs them."""


def standard_pipeline(*, fold_limit: int = FOLD_LIMIT) -> Pipeline:
    """Return the standard pipeline; a folded constant has at most ``fold_limit`` bytes."""
    return Pipeline(tuple(FoldConstants(fold_limit) if row is FoldConstants else row() for row in PASSES.values()))


def normalize(
    model: ir.Model, *, disable: Collection[str] = (), fold_limit: int = FOLD_LIMIT, verify: bool = True
) -> list[PassResult]:
    """Run the standard pipeline on ``model`` in place, without the passes named in ``disable``.

    The model computes the same with any of them switched off (BatchNormalization folding rounds differently).
    Returns what each pass did; raises GraftError for an unknown name.
    """
    return standard_pipeline(fold_limit=fold_limit).run(model, disable=disable, verify=verify)
