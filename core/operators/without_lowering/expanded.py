"""Operators that are computed as the functions by which ONNX defines them, and by nothing else."""

from __future__ import annotations

from graft.core.operators.definition.table import OPERATORS, Operator, Trait

for _name in (
    "BlackmanWindow", "CausalConvWithState", "HammingWindow", "HannWindow", "LinearAttention",
    "NegativeLogLikelihoodLoss", "SequenceMap", "SoftmaxCrossEntropyLoss", "SwiGLU",
):  # fmt: skip
    OPERATORS.add(Operator(_name, frozenset({Trait.EXPANDED})))
OPERATORS.add(Operator("FlexAttention", frozenset({Trait.EXPANDED}), domain="ai.onnx.preview"))
