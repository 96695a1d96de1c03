"""Operators that draw random numbers: facts alone, for no backend of Graft compiles them."""

from __future__ import annotations

from graft.core.operators.definition.shape_rules import LIKE_FIRST
from graft.core.operators.definition.table import Trait, define

NONDETERMINISTIC = frozenset({Trait.NONDETERMINISTIC})

for _name in "Multinomial", "RandomNormal", "RandomUniform":
    define(_name, NONDETERMINISTIC)
for _name in "Bernoulli", "RandomNormalLike", "RandomUniformLike":
    define(_name, NONDETERMINISTIC, shapes=LIKE_FIRST)
