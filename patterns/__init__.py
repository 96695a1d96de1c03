"""The pattern language: build, match, explain, rewrite."""

from graft.patterns.composite import Composite
from graft.patterns.language import (
    Pattern,
    absent,
    is_composite,
    is_constant,
    is_input,
    is_op,
    is_region,
    wildcard,
)

__all__ = [
    "Composite",
    "Pattern",
    "absent",
    "is_composite",
    "is_constant",
    "is_input",
    "is_op",
    "is_region",
    "wildcard",
]
