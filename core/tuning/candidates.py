"""The candidates for a kernel's parameters: what the schedules' own models of cycles hold to be worth measuring.

Stage by stage, around the best so far: first the algorithm and the register tile, then the blocks, then what is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.operators.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.collapse import collapse_rows
from graft.core.schedule.parameters import (
    COLUMNS,
    PACKINGS,
    AttentionParameters,
    Columns,
    ContractionParameters,
    DepthwiseParameters,
    Parameters,
    WinogradParameters,
    of_family,
)
from graft.core.schedule.products.epilogue import epilogue_of, fused_stages
from graft.core.schedule.products.product_axes import analyse
from graft.core.schedule.products.tiling import Tile, ranked_tiles, split_evenly
from graft.core.schedule.select import INTEGER
from graft.core.schedule.strategies.attention_parts import analyse_attention
from graft.core.schedule.strategies.direct_convolution import MIN_CHANNELS
from graft.core.schedule.strategies.winograd_nchw import own_plan, winograd_plans
from graft.core.types import is_custom

STAGES = 3
TILES, OF_A_WIDTH = 6, 2
"""Register tiles that are measured in one stage, and those of one width among them."""
PLANS = 6
"""Plans of Winograd's algorithm that are measured in one stage."""
UNROLLS = (1, 4, 8)
BLOCK_SHARES = (1 / 16, 1 / 4, 1 / 2, 1, 4)
"""Blocks of rows, as parts of the second-level cache."""
SPAN_SHARES = (1 / 32, 1 / 16, 1 / 4, 32)
SCORE_SHARES = (1 / 4, 1 / 2, 2, 4, 8)
"""Spans of a sum, and scores of a block, as parts of the first-level cache."""
ROWS_AND_SUMS = ((1, 8), (1, 12), (2, 8), (2, 12), (2, 16), (3, 12), (4, 16), (4, 20))
CHAINS = (4, 12, 16)


def is_tunable(kernel: Kernel) -> bool:
    """Whether a kernel's schedule has parameters."""
    if kernel.node is not None and kernel.node.op_type in INTEGER:
        return False
    families = (Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION)
    return kernel.anchor in families and not any(is_custom(stage.buffer.dtype) for stage in kernel.stages)


def candidates(kernel: Kernel, target: Target, stage: int, best: Parameters | None) -> list[Parameters]:
    """Return what to measure in a stage beside ``best``; a ``best`` of None is the schedule's own choice."""
    found: Sequence[Parameters]
    match kernel.anchor:
        case Trait.CONTRACTION:
            found = _of_contraction(kernel, target, stage, of_family(best, ContractionParameters))
        case Trait.ATTENTION:
            found = _of_attention(kernel, target, stage, of_family(best, AttentionParameters))
        case Trait.CONVOLUTION if _is_depthwise(kernel):
            found = _of_depthwise(stage, of_family(best, DepthwiseParameters))
        case Trait.CONVOLUTION:
            found = _of_convolution(kernel, target, stage, best)
        case _:
            found = []
    return [one for one in dict.fromkeys(found) if one != best]


def best_tiles(height: int, width: int, dtype: str, target: Target) -> list[Tile]:
    """Return the tiles of fewest cycles, few of each width, and only one of those that cut the rows alike."""
    ranked = (tile for _, tile in ranked_tiles(height, width, dtype, target))
    different = dict.fromkeys(replace(tile, rows=split_evenly(height, tile.rows).sizes[0][1]) for tile in ranked)
    found: list[Tile] = []
    for tile in different:
        if sum(one.vectors == tile.vectors for one in found) < OF_A_WIDTH:
            found.append(tile)
    return found[:TILES]


def _of_contraction(
    kernel: Kernel, target: Target, stage: int, best: ContractionParameters | None
) -> list[ContractionParameters]:
    kernel, _ = collapse_rows(kernel) or (kernel, {})
    stages = fused_stages(kernel)
    epilogue = None if stages is None else epilogue_of(stages, kernel.outputs)
    parts = None if epilogue is None else analyse(epilogue)
    if parts is None:
        return []
    own = best or ContractionParameters()
    match stage:
        case 0:
            tiles = best_tiles(parts.height, parts.width, parts.left.type.dtype, target)
            return [replace(own, rows=tile.rows, vectors=tile.vectors) for tile in tiles]
        case 1:
            return list(_blocks(own, target))
        case _:
            packings = [replace(own, packing=one) for one in PACKINGS] if parts.height > 1 else []
            return [*(replace(own, unroll=unroll) for unroll in UNROLLS), *packings]


def _blocks(own: ContractionParameters, target: Target) -> Iterator[ContractionParameters]:
    first, second = (target.machine.cache(level).size for level in (1, 2))
    for share in BLOCK_SHARES:
        yield replace(own, block_bytes=int(share * second))
    for share in SPAN_SHARES:
        yield replace(own, span_bytes=int(share * first))


def _of_attention(
    kernel: Kernel, target: Target, stage: int, best: AttentionParameters | None
) -> list[AttentionParameters]:
    parts = analyse_attention(kernel)
    own = best or AttentionParameters()
    if parts is None or stage > 1:
        return []
    if stage == 1:
        first = target.machine.cache(1).size
        return [replace(own, score_bytes=int(share * first)) for share in SCORE_SHARES]
    tiles = best_tiles(parts.scores.height, parts.values.width, parts.scores.left.type.dtype, target)
    return [replace(own, rows=tile.rows, vectors=tile.vectors) for tile in tiles]


# ---- Convolutions ----


def _groups(kernel: Kernel) -> int:
    return 1 if kernel.node is None else int(kernel.node.attribute("group", 1))


def _is_depthwise(kernel: Kernel) -> bool:
    return _groups(kernel) > 1 and _outputs(kernel) // _groups(kernel) < MIN_CHANNELS


def _outputs(kernel: Kernel) -> int:
    """The output channels: the weights know them wherever the output has its channels."""
    weights = None if kernel.node is None else kernel.node.input(1)
    shape = None if weights is None else weights.static_shape
    return b.dims(kernel.stages[0].buffer)[1] if shape is None else shape[0]


def _of_depthwise(stage: int, best: DepthwiseParameters | None) -> list[DepthwiseParameters]:
    own = best or DepthwiseParameters()
    if stage == 0:
        return [replace(own, rows=rows, sums=sums) for rows, sums in ROWS_AND_SUMS]
    return [replace(own, chains=chains) for chains in CHAINS] if stage == 1 else []


def _of_convolution(kernel: Kernel, target: Target, stage: int, best: Parameters | None) -> list[Parameters]:
    plans = _plans(kernel, target)
    if stage == 0:
        pieces: dict[int, WinogradParameters] = {}
        for plan in plans:
            pieces.setdefault(plan.pieces, plan)
        return [*pieces.values(), *(_with_best_tile(kernel, target, columns) for columns in COLUMNS)]
    best = best or _own_plan(kernel, target)
    if isinstance(best, WinogradParameters):
        return list(_of_winograd(kernel, target, stage, best, plans))
    own = of_family(best, ContractionParameters) or ContractionParameters()
    if stage == 1:
        # The schedule's own choice of columns is not known here: both then.
        wanted = COLUMNS if own.columns is None else (own.columns,)
        return [one for columns in wanted for one in _tiles(kernel, target, replace(own, columns=columns))]
    return [*_blocks(own, target), *(replace(own, unroll=unroll) for unroll in UNROLLS)]


def _own_plan(kernel: Kernel, target: Target) -> WinogradParameters | None:
    """The plan that the schedule itself would follow, None if it computes the convolution directly."""
    stages = fused_stages(kernel)
    plan = None if stages is None or "winograd" in target.without else own_plan(kernel, stages, target)
    return None if plan is None else WinogradParameters(plan.transform.outputs, plan.rows)


def _plans(kernel: Kernel, target: Target) -> list[WinogradParameters]:
    """The plans of Winograd's algorithm, the one of fewest cycles first."""
    stages = fused_stages(kernel)
    if stages is None or "winograd" in target.without:
        return []
    found = winograd_plans(kernel, stages, target)
    return [WinogradParameters(plan.transform.outputs, plan.rows) for _, plan in found]


def _of_winograd(
    kernel: Kernel, target: Target, stage: int, best: WinogradParameters, plans: Sequence[WinogradParameters]
) -> Iterator[WinogradParameters]:
    if stage == 1:
        yield from [plan for plan in plans if plan.pieces == best.pieces][:PLANS]
        return
    outputs, *pixels = b.dims(kernel.stages[0].buffer)[1:]
    vectors = best.lines * -(-pixels[-1] // best.pieces)
    for tile in best_tiles(outputs, vectors, "float32", target):
        yield replace(best, rows=tile.rows, vectors=tile.vectors)


def _with_best_tile(kernel: Kernel, target: Target, columns: Columns) -> ContractionParameters:
    return next(_tiles(kernel, target, ContractionParameters(columns=columns)))


def _tiles(kernel: Kernel, target: Target, own: ContractionParameters) -> Iterator[ContractionParameters]:
    """The tiles of a direct convolution, whose rows are channels and whose columns are pixels, or the reverse."""
    outputs = _outputs(kernel)
    shape = (outputs // _groups(kernel), math.prod(b.dims(kernel.stages[0].buffer)[1:]) // outputs)
    height, width = reversed(shape) if own.columns == "channels" else shape
    for tile in best_tiles(height, width, kernel.stages[0].value.type.dtype, target):
        yield replace(own, rows=tile.rows, vectors=tile.vectors)
