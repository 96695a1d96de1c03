"""The pattern language: build, match, explain, rewrite."""

from graft.patterns.composite import Composite
from graft.patterns.language import (
    Pattern,
    absent,
    dominates,
    is_composite,
    is_constant,
    is_if,
    is_input,
    is_op,
    is_region,
    outputs,
    repeat,
    wildcard,
)
from graft.patterns.pattern_text import pattern_text

__all__ = [
    "Composite",
    "Pattern",
    "absent",
    "dominates",
    "is_composite",
    "is_constant",
    "is_if",
    "is_input",
    "is_op",
    "is_region",
    "outputs",
    "repeat",
    "wildcard",
]

Pattern.to_text = pattern_text
