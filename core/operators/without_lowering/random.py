"""Operators that draw random numbers: facts alone, for no backend of Graft compiles them."""

from __future__ import annotations

from graft.core.operators.definition.table import OPERATORS, Operator, Trait

for _name in (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
):  # fmt: skip
    OPERATORS.add(Operator(_name, frozenset({Trait.NONDETERMINISTIC})))
