"""Attention in one kernel that never stores the scores: blocks of queries, keys and values a tile at a time.

The scores of a tile stay in registers; each row keeps its largest score and the sum of its weights so far, and what was
summed before is scaled when a larger score is found (FlashAttention, Dao et al. 2022). The threads of a row are
neighbours in a warp and exchange what they have of it, so that only keys and values need barriers of the block. Where
those lie as they are used they are copied past the registers, in stages: the next tiles are under way while one is
computed.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.parameters import AttentionTileParameters, Parameters, of_family
from graft.core.schedule.strategies.attention.attention_parts import attention_stages, factored, is_weighted
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir.ir import Cast, Expression
from graft.plugins.cuda.strategies.attention_kernel import FACTOR_TYPES, Attention

WIDEST = 256
"""Features of a head at the most: their sums are in registers."""
TILES = tuple(AttentionTileParameters(queries, keys) for queries in (64, 32, 128) for keys in (64, 32, 128))
USUAL = TILES[0]
STAGES = (1, 2, 3)
"""Tiles of keys and values in memory at one time."""
BESIDE = 2
"""Blocks of a multiprocessor that hide each other's copies: a second stage is not worth the last but one of them."""


def build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    """Return attention in tiles, or why the kernel is none."""
    stages = attention_stages(anchor.kernel)
    if stages is None:
        return OTHER_FORM
    scores, values = factored(stages.scores), factored(stages.values)
    if scores is None or values is None or not is_weighted(_exact(values.left), values.term, stages):
        return OTHER_FORM
    depth, width = b.counted(scores.terms), b.counted(values.extents[-1])
    if not isinstance(depth, int) or not isinstance(width, int) or max(depth, width) > WIDEST or 0 in (depth, width):
        return Reject("shape", f"heads of {depth} and {width} features are not held in registers")
    if scores.extents[:-2] != values.extents[:-2] or scores.left.type.dtype != "float32":
        return Reject("shape", "scores and values are of other heads, or not float32")
    memory = target.machine.memory("shared")
    most, least = 0 if memory is None else memory.bytes, 0
    wanted = of_family(anchor.parameters, AttentionTileParameters)
    for tile in _nearest(wanted):
        deep = {
            count: Attention(anchor, stages, scores, values, target, replace(tile, stages=count)) for count in STAGES
        }
        fitting = [kernel for kernel in deep.values() if kernel.shared_bytes() <= most and kernel.is_possible]
        if fitting:
            return _deepest(fitting, wanted, most).scheduled()
        least = deep[1].shared_bytes()
    return Reject("size", f"its smallest tiles take {least} bytes of shared memory")


def _exact(weights: Expression) -> Expression:
    """Return weights before they are made wider for the sums."""
    return weights.value if isinstance(weights, Cast) else weights


def _deepest(fitting: list[Attention], wanted: AttentionTileParameters | None, most: int) -> Attention:
    """Return the kernel with the stages that are nearest to what is wanted, or two, if they leave blocks beside it."""
    if wanted is not None and wanted.stages is not None:
        count = wanted.stages
    else:
        beside = {one.tiles.stages: most // one.shared_bytes() for one in fitting}
        is_worth = fitting[0].steps != 1 and beside.get(2, 0) >= min(BESIDE, beside[1])
        count = 2 if is_worth else 1
    return min(fitting, key=lambda one: abs(one.tiles.stages - count))


def _nearest(wanted: AttentionTileParameters | None) -> list[AttentionTileParameters]:
    """Return all tiles, those first that are nearest to what is wanted, in powers of two; then the smaller ones."""
    own = wanted or USUAL

    def far(one: AttentionTileParameters) -> tuple[float, int]:
        return abs(log2(one.queries / own.queries)) + abs(log2(one.keys / own.keys)), one.queries * one.keys

    return sorted(TILES, key=far)


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return the tiles that fit a block, then for the best of them stages."""
    best = of_family(anchor.parameters, AttentionTileParameters) or USUAL
    every = TILES if stage == 0 else tuple(replace(best, stages=count) for count in STAGES if stage == 1)
    found: list[Parameters] = []
    for one in every:
        built = build(replace(anchor, parameters=one), target)
        own = {"queries": one.queries, "keys": one.keys}
        own |= {"stages": one.stages} if one.stages is not None else {}
        if isinstance(built, Scheduled) and own.items() <= {"stages": 1, **built.knobs}.items():
            found.append(one)
    return found if len(found) > 1 else []


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    return target.precision in FACTOR_TYPES and not isinstance(build(anchor, target), Reject)


ANCHORS = frozenset({Trait.ATTENTION})
STRATEGY = Strategy("cuda.attention", ANCHORS, build, candidates=_candidates, rounds=_rounds, varies=None)
