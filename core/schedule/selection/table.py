"""The table of strategies, in order of preference."""

from __future__ import annotations

from graft.core.schedule.selection.by_image import by_image
from graft.core.schedule.strategies.attention import fused_attention
from graft.core.schedule.strategies.contractions import (
    block_scaled,
    blocked_product,
    few_columns,
    narrow_weights,
)
from graft.core.schedule.strategies.convolutions import (
    depthwise,
    direct_convolution,
    direct_nhwc,
    first_convolution,
    large_windows,
    pointwise_nhwc,
    pointwise_tiles,
    register_tiles,
    winograd,
)
from graft.core.schedule.strategies.nests import (
    clipped_windows,
    fused_elementwise,
    fused_rows,
    generic_nest,
    split_reduction,
)
from graft.core.schedule.strategies.sequential import recurrent_layers, sequential_loops
from graft.core.schedule.strategies.strategy import StrategyTable

_LOOPS = (
    # stages whose elements depend on each other
    recurrent_layers.STRATEGY,
    sequential_loops.STRATEGY,
    fused_attention.STRATEGY,
    # convolutions of large windows and few pixels, however they lie
    large_windows.STRATEGY,
    # convolutions whose channels are last, at least in the result
    winograd.STRATEGY,
    depthwise.LAST,
    pointwise_nhwc.STRATEGY,
    first_convolution.STRATEGY,
    first_convolution.VARYING,
    depthwise.VARYING_FIRST,
    pointwise_nhwc.FIRST,
    register_tiles.VARYING,
    direct_nhwc.STRATEGY,  # all others where extents vary
    # convolutions whose channels come first
    depthwise.FIRST,
    pointwise_tiles.STRATEGY,
    register_tiles.STRATEGY,
    direct_nhwc.FIRST,
    direct_convolution.STRATEGY,
    # products
    block_scaled.STRATEGY,
    narrow_weights.STRATEGY,
    few_columns.STRATEGY,
    blocked_product.STRATEGY,
)
_NESTS = (
    fused_elementwise.STRATEGY,
    split_reduction.STRATEGY,
    clipped_windows.STRATEGY,
    fused_rows.STRATEGY,
    generic_nest.STRATEGY,
)
TABLE = StrategyTable((by_image(StrategyTable((*_LOOPS, *_NESTS))), *_LOOPS, *_NESTS))
"""The strategies for extents that are numbers, for such as are known only when a kernel runs, and for both."""
