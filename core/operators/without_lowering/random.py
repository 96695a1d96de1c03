"""Operators that draw random numbers: facts alone, for no backend of Graft compiles them."""

from __future__ import annotations

from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.table import OPERATORS, Operator, Trait

NONDETERMINISTIC = frozenset({Trait.NONDETERMINISTIC})

for _name in "Multinomial", "RandomNormal", "RandomUniform":
    OPERATORS.add(Operator(_name, NONDETERMINISTIC))
for _name in "Bernoulli", "RandomNormalLike", "RandomUniformLike":
    OPERATORS.add(Operator(_name, NONDETERMINISTIC, shapes=LIKE_FIRST))
