"""Every family of operators: importing this module fills `graft.core.operators.table.OPERATORS`."""

from graft.core.operators import (
    activation,
    attention,
    contraction,
    convolution,
    elementwise,
    expanded,
    indexing,
    manipulation,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    sequential,
    views,
)
from graft.core.operators.table import OPERATORS

FAMILIES = (
    activation,
    attention,
    contraction,
    convolution,
    elementwise,
    expanded,
    indexing,
    manipulation,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    sequential,
    views,
)

__all__ = ["FAMILIES", "OPERATORS"]
