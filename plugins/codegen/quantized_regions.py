"""Quantised regions in integer arithmetic: rewritten here, so that other backends saw the operators of the model."""

from __future__ import annotations

from collections.abc import Collection

from graft.core.passes.integer.integer_arithmetic import IntegerArithmetic
from graft.core.passes.normalize import PASSES
from graft.core.passes.pipeline import Pipeline
from graft.core.passes.weights_k_major import WeightsKMajor
from graft.core.rewriting.fold_constants import FoldConstants
from graft.partition.region import Region
from graft.plugins.codegen.region_models import model_of, region_of

BEHIND = (
    "eliminate-identity", "canonicalize-operators", "canonicalize-shapes", "move-transposes",
    "eliminate-common-subexpressions", "eliminate-dead-code",
)  # fmt: skip
"""The standard passes that tidy up what the rewriting leaves."""


def in_integers(region: Region, without: Collection[str] = ()) -> Region:
    """Return a quantised region with its products in integers, any other as it is; the region's body is changed.

    ``without`` names optimisations and passes that are left out: without ``integer-arithmetic``, dequantised weights
    still become constants.
    """
    if not any("Linear" in node.op_type for node in region.function):
        return region
    model = model_of(region)
    first = () if IntegerArithmetic.name in without else (IntegerArithmetic(),)
    passes = (
        *first,
        WeightsKMajor(),
        FoldConstants(dequantize=True),
        *(PASSES[name]() for name in BEHIND if name not in without),
    )
    Pipeline(passes).run(model, verify=False)
    return region_of(region, model)
