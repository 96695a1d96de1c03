"""Every family of operators: importing this module fills `graft.core.operators.definition.table.OPERATORS`."""

from graft.core.operators.definition.table import OPERATORS
from graft.core.operators.elementwise import activation, arithmetic, training
from graft.core.operators.functions import attention as microsoft_attention
from graft.core.operators.functions import (
    legacy,
    machine_learning,
    microsoft,
    microsoft_quantized,
    support_vectors,
    trees,
)
from graft.core.operators.images import convolution, pooling, resize, sampling
from graft.core.operators.movement import (
    generators,
    indexing,
    manipulation,
    padding,
    parts,
    repetition,
    sequential,
    views,
)
from graft.core.operators.products import attention, contraction, fourier, recurrent
from graft.core.operators.reductions import normalization, quantization, reduction
from graft.core.operators.without_lowering import expanded, irregular, random

FAMILIES = (
    activation, arithmetic, training, convolution, pooling, resize, sampling, generators, indexing, manipulation,
    padding, parts, repetition, sequential, views, attention, contraction, fourier, recurrent, normalization,
    quantization, reduction, expanded, irregular, random, legacy, machine_learning, microsoft, microsoft_attention,
    microsoft_quantized, support_vectors, trees,
)  # fmt: skip

__all__ = ["FAMILIES", "OPERATORS"]
