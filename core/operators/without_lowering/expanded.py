"""Operators that are computed as the functions by which ONNX defines them, and by nothing else."""

from __future__ import annotations

from graft.core.operators.definition import checks as check
from graft.core.operators.definition.facts import Facts, Shape
from graft.core.operators.definition.table import Trait, define

EXPANDED = frozenset({Trait.EXPANDED})


def _loss(facts: Facts) -> list[Shape | None]:
    """Return the shape of a loss over classes, the second axis, and that of the logarithms."""
    labels = facts.shape(1)
    return [labels if facts.attribute("reduction", "mean") == "none" else (), facts.shape(0)]


for _name in (
    "BlackmanWindow", "CausalConvWithState", "HammingWindow", "HannWindow", "LinearAttention", "SequenceMap", "SwiGLU",
):  # fmt: skip
    define(_name, EXPANDED)
for _name in "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss":
    define(_name, EXPANDED, shapes=_loss, attributes=(check.one_of("reduction", "none", "sum", "mean"),))
define("FlexAttention", EXPANDED, domain="ai.onnx.preview")
