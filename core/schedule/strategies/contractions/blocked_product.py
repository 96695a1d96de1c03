"""The schedule of sums of products: MatMul, Gemm, batched products, Einsum.

What is scheduled is the anchor's stage, ``out[..., m, ..., n] = sum over k of left * right``, however it came about:
``n`` is the output's innermost axis and becomes vectors, ``right`` is the factor that depends on it, ``m`` is an axis
of the other factor, and all other axes are outer loops. Leading axes that all stages go through in step are one axis of
rows first, so that the right factor is read for all of them at one time. Extents may be known only when the kernel
runs. (Its loops: `graft.core.schedule.products.contraction`.)
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapsed, with_sources
from graft.core.schedule.parameters import ContractionParameters, Parameters, of_family
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.schedule.products.contraction import ContractionScheduler
from graft.core.schedule.products.factors import USUAL_VECTORS, usual_size
from graft.core.schedule.products.packed_dot import Dots, with_packed_operands
from graft.core.schedule.products.product_axes import Contraction, contraction_of
from graft.core.schedule.products.tile_candidates import product_candidates
from graft.core.schedule.products.tiling import Ranked, arriving, lanes_of, ranked_tiles, split_evenly, with_dot
from graft.core.schedule.strategies.contractions.word_products import WORDS, words
from graft.core.schedule.strategies.nests.generic_nest import schedule_generic
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy, always
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Expression, Function, If, Load
from graft.core.tensor_ir.visit import loads
from graft.core.types import FLOATS, is_custom

MOST_ROWS = 64
"""Rows up to which tiles are chosen by where the right factor comes from."""
SURE = 0.95
"""So much of the usual tile's cycles is taken for less."""


def schedule_contraction(kernel: Kernel, target: Target, parameters: Parameters | None = None) -> Scheduled:
    """Return the kernel in blocked and vectorised loops; in plain ones if its stages are no contraction (`analyse`)."""
    joined, sources = collapsed(kernel)
    return with_sources(_scheduled(joined, target, parameters) or schedule_generic(kernel, target), sources)


def _scheduled(kernel: Kernel, target: Target, parameters: Parameters | None) -> Scheduled | None:
    parts = contraction_of(kernel)
    if parts is None:
        return None
    wanted = of_family(parameters, ContractionParameters)
    in_groups = _in_groups(kernel, parts, target, wanted)
    if in_groups is not None:
        return in_groups
    wanted = wanted or _for_few_rows(parts, target)
    if parts.varies and parts.total.dtype not in FLOATS:
        return None
    scheduler = ContractionScheduler(kernel, parts, target, wanted)
    scheduled = scheduler.scheduled()
    if scheduled is not None and parts.height == VARIES and scheduler.mode == "packed by panel":
        return replace(scheduled, source=lambda: _with_single_rows(kernel, scheduled.function, parts, target))
    return None if _copies_for_one_row(scheduler) else scheduled


def _for_few_rows(parts: Contraction, target: Target) -> ContractionParameters | None:
    """Return the register tile for few rows, of which the first ones read the right factor from afar.

    Each tile of rows reads a panel again, from the second-level cache, if it does not stay in the first.
    """
    machine, (height, width), dtype = target.machine, usual_size(parts, target), parts.left.type.dtype
    has_caches = machine.caches and machine.vectors and not is_custom(dtype)
    if parts.varies or height > MOST_ROWS or not has_caches:
        return None
    line = -(-width // lanes_of(dtype, target)) * machine.vector_bytes
    level = next((one for one in (1, 2) if parts.terms * line <= machine.working_set(one)), 3)

    def cycles(ranked: Ranked) -> float:
        whole, tile = ranked
        tiles, panel = split_evenly(height, tile.rows).count, parts.terms * tile.vectors * machine.vector_bytes
        near = 1 if panel <= machine.working_set(1) else 2
        first, again = (arriving(whole / tiles, line, machine.cache(one)) for one in (level, near))
        return first + (tiles - 1) * again

    shaped, busy = with_dot(parts.multiply.dot, target)
    every = ranked_tiles(height, width, dtype, shaped, busy + parts.held_vectors(USUAL_VECTORS))
    usual, *others = (one for one in every if parts.epilogue.allows(one[1].columns))
    best = min(others, key=cycles, default=usual)
    return ContractionParameters(best[1].rows, best[1].vectors) if cycles(best) < SURE * cycles(usual) else None


def _with_single_rows(kernel: Kernel, function: Function, parts: Contraction, target: Target) -> Function:
    """Return a function that computes a single row by sums along it, whose terms are read once: not worth a copy."""
    sums = schedule_generic(kernel, target).function
    single = instantiate(sums.body, {}, dict(zip(sums.parameters, function.parameters, strict=True)))
    return replace(function, body=If(b.less(parts.row_count, 2), single, function.body))


def _copies_for_one_row(scheduler: ContractionScheduler) -> bool:
    """Whether a factor would be transposed for one row, though its terms are contiguous: sums of rows read it once."""
    parts = scheduler.parts
    right, last = parts.right, parts.depth[-1].variable
    is_copied = parts.height == 1 and scheduler.mode not in (None, "in place", "packed before")
    return is_copied and isinstance(right, Load) and right.mask is None and right.indices[-1] is last


def _grouped(kernel: Kernel, plain: Contraction, target: Target) -> Dots | None:
    """Return a product as a sum of dot products; None if it is not one of small numbers."""
    dots = with_packed_operands(plain, kernel.constants, target)
    if dots is None:
        return None
    if dots.parts.height == 1 and not _is_constant(dots.parts.right, kernel):
        return None  # the right factor would be packed for a single use
    return dots


def _is_constant(factor: Expression, kernel: Kernel) -> bool:
    return all(load.buffer in kernel.constants for load in loads(factor))


def _in_groups(
    kernel: Kernel, plain: Contraction, target: Target, wanted: ContractionParameters | None
) -> Scheduled | None:
    """Return the schedule of a sum of dot products; None if the product is not one of small numbers."""
    dots = _grouped(kernel, plain, target)
    if dots is None:
        return None
    wanted = wanted or _for_few_rows(dots.parts, target)
    scheduler = ContractionScheduler(kernel, dots.parts, target, wanted, dots.sums, dots.small)
    scheduled = scheduler.scheduled()
    return scheduled if scheduler.starts.are_known else None


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    kernel, sources = collapsed(anchor.kernel)
    scheduled = _scheduled(kernel, target, anchor.parameters)
    return OTHER_FORM if scheduled is None else with_sources(scheduled, sources)


def candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return what to measure for a product in a stage of tuning."""
    kernel, _ = collapsed(anchor.kernel)
    parts = contraction_of(kernel)
    if parts is None or parts.total.is_integer or (parts.varies and stage > 0):
        return []
    own = of_family(anchor.parameters, ContractionParameters) or ContractionParameters()
    return [*product_candidates(own, *usual_size(parts, target), parts.left.type.dtype, target, stage)]


def rounds(anchor: Anchor, target: Target) -> bool | None:
    """Return whether the factors of a product are rounded to bfloat16; None if it is no product."""
    kernel, _ = collapsed(anchor.kernel)
    plain = contraction_of(kernel)
    found = None if plain is None else _grouped(kernel, plain, target)
    if found is not None and found.parts.varies and not _is_constant(found.parts.right, kernel):
        found = None  # only what is packed before is read in pairs
    return None if plain is None else found is not None and found.parts.multiply.dot == "dot2_bf16"


STRATEGY = Strategy(
    "blocked_product",
    frozenset({Trait.CONTRACTION}),
    _build,
    always,
    candidates,
    rounds=rounds,
    varies=None,
    rewrites={WORDS: words},
)
