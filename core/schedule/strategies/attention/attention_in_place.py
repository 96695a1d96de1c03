"""Attention of a few queries: keys and values are read where they are, for a copy would cost more than it saves.

A step of decoding has one query, and all that it does is to read its cache: a key is a product along the terms, and a
value is added to the results as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.strategies.attention.attention_parts import FactoredProduct
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import loads

QUERIES = 4
"""The most queries for which nothing is copied."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """The factors of attention which lie along vectors of so many lanes."""

    scores: FactoredProduct
    values: FactoredProduct
    lanes: int

    @property
    def fits(self) -> bool:
        """Whether queries and keys lie along the terms, and values along the features, in whole vectors."""
        scores, values = self.scores, self.values
        pairs = (scores.left, scores.term), (scores.right, scores.term), (values.right, values.axes[-1])
        found = [(load, variable) for factor, variable in pairs for load in loads(factor)]
        whole = isinstance(scores.terms, ir.Constant) and int(scores.terms.value) % self.lanes == 0
        return whole and all(
            load.mask is None and stride(load.indices[-1], place, Simplifier()) == 1 for load, place in found
        )
