"""Attention of a few queries: keys and values are read where they are, for a copy would cost more than it saves.

A step of decoding has one query, and all that it does is to read its cache: a key is a product along the terms, and a
value is added to the results as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.primitives.statements import multiply_add, ramp, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.strategies.attention.attention_blocks import Keys, Rows
from graft.core.schedule.strategies.attention.attention_parts import FactoredProduct
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import loads

QUERIES = 4
"""The most queries for which nothing is copied."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """The factors of attention for the head ``outer``, which lie along vectors of so many lanes."""

    scores: FactoredProduct
    values: FactoredProduct
    outer: Sequence[ir.Expression]
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

    def products(self, scored: ir.Buffer, rows: Rows, keys: Keys) -> ir.Statement:
        """Return the scores of a group of rows against a block of keys, one after another."""
        number, key, scores = ir.Variable("number"), ir.Variable("key"), self.scores
        assert isinstance(scores.terms, ir.Constant), "heads of an unknown size"
        places = {
            **scores.at_head(self.outer),
            scores.axes[-2]: b.add(rows.place, number),
            scores.axes[-1]: b.add(keys.begin, key),
        }
        total: ir.Expression | None = None
        for begin in range(0, int(scores.terms.value), self.lanes):
            along = {**places, scores.term: ramp(b.index(begin), self.lanes)}
            left, right = (wide(vectorize_expression(one, along), self.lanes) for one in (scores.left, scores.right))
            total = b.multiply(left, right) if total is None else multiply_add(left, right, total)
        assert total is not None, "heads of no size"
        value = ir.Variable("products", total.type)
        store = ir.Store(scored, (number, key), ir.Horizontal("add", value) if self.lanes > 1 else value)
        return ir.For(number, rows.count, "serial", ir.For(key, keys.count, "serial", ir.Let(value, total, store)))

    def value(self, keys: Keys, column: ir.Expression, cut: ir.Expression | None) -> ir.Expression:
        """Return a vector of features from ``column`` on, of the key that is the product's term."""
        values = self.values
        places = {**values.at_head(self.outer), values.axes[-1]: column, values.term: b.add(keys.begin, values.term)}
        return wide(vectorize_expression(values.right, places, cut), self.lanes)
