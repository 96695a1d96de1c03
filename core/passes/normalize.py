"""The standard pipeline: what every model goes through between import and partitioning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from graft.core.passes.canonicalize_operators import CanonicalizeOperators
from graft.core.passes.canonicalize_shapes import CanonicalizeShapes
from graft.core.passes.derive_shapes import DeriveShapes
from graft.core.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.passes.eliminate_identity import EliminateIdentity
from graft.core.passes.explicit_caches import ExplicitCaches
from graft.core.passes.fold_batch_normalization import FoldBatchNormalization
from graft.core.passes.inline_conditions import InlineConditions
from graft.core.passes.interleave_convolutions import InterleaveConvolutions
from graft.core.passes.keep_row_axes import KeepRowAxes
from graft.core.passes.lift_constants import LiftConstants
from graft.core.passes.move_transposes import MoveTransposes
from graft.core.passes.pipeline import Pass, PassResult, Pipeline
from graft.core.passes.split_einsums import SplitEinsums
from graft.core.passes.split_heads import SplitHeads
from graft.core.passes.split_resizes import SplitResizes
from graft.core.passes.state_pads import StatePads
from graft.core.rewriting.fold_constants import FoldConstants
from graft.errors import GraftError

FOLD_LIMIT = FoldConstants().limit

PASSES: Mapping[str, type[Pass]] = {
    row.name: row
    for row in (
        LiftConstants,
        FoldConstants,
        InlineConditions,
        EliminateIdentity,
        CanonicalizeOperators,
        StatePads,
        SplitEinsums,
        SplitHeads,
        ExplicitCaches,
        CanonicalizeShapes,
        DeriveShapes,
        KeepRowAxes,
        FoldBatchNormalization,
        InterleaveConvolutions,
        SplitResizes,
        MoveTransposes,
        EliminateCommonSubexpressions,
        EliminateDeadCode,
    )
}
"""Every pass by name, in the order in which the standard pipeline runs them."""


def standard_pipeline(*, fold_limit: int = FOLD_LIMIT) -> Pipeline:
    """Return the standard pipeline; a folded constant has at most ``fold_limit`` bytes."""
    return Pipeline(tuple(FoldConstants(fold_limit) if row is FoldConstants else row() for row in PASSES.values()))


def normalize(
    model: ir.Model,
    *,
    disable: Collection[str] = (),
    more: Sequence[Pass] = (),
    fold_limit: int = FOLD_LIMIT,
    verify: bool = True,
) -> list[PassResult]:
    """Run the standard pipeline and then ``more`` passes on ``model`` in place, without those named in ``disable``.

    The model computes the same with any of the standard ones switched off (BatchNormalization folding rounds
    differently). Returns what each pass did; raises GraftError for an unknown name and for one that two passes have.
    """
    passes = (*standard_pipeline(fold_limit=fold_limit).passes, *more)
    names = [row.name for row in passes]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise GraftError(f"two passes are called '{twice}'; rename the plugin's", name=twice)
    return Pipeline(passes).run(model, disable=disable, verify=verify)
