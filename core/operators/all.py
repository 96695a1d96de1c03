"""Every family of operators: importing this module fills `graft.core.operators.table.OPERATORS`."""

from graft.core.operators import (
    activation,
    attention,
    contraction,
    convolution,
    elementwise,
    expanded,
    fourier,
    indexing,
    manipulation,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    sampling,
    sequential,
    training,
    views,
)
from graft.core.operators.demands import irregular
from graft.core.operators.functions import attention as microsoft_attention
from graft.core.operators.functions import (
    legacy,
    machine_learning,
    microsoft,
    microsoft_quantized,
    support_vectors,
    trees,
)
from graft.core.operators.table import OPERATORS

FAMILIES = (
    activation,
    attention,
    contraction,
    convolution,
    elementwise,
    expanded,
    fourier,
    indexing,
    manipulation,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    sampling,
    sequential,
    training,
    views,
    irregular,
    microsoft,
    microsoft_attention,
    microsoft_quantized,
    legacy,
    machine_learning,
    trees,
    support_vectors,
)

__all__ = ["FAMILIES", "OPERATORS"]
