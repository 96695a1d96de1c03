"""Sums of products by tiles: shared memory, sums in registers, copies in stages, tensor instructions, split terms.

A block computes a tile of the result. Both factors are brought to shared memory a stage of terms at a time: copied past
the registers where they lie as they are used, otherwise computed (padding, conversions, rounding to the type of the
tensor instruction). Convolutions are such products whose columns are pixels (implicit GEMM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.parameters import BlockTileParameters, Parameters, of_family
from graft.core.schedule.primitives.loop_kinds import Parallel, Unroll
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir.ir import Allocate, Block, Buffer, Expression, Function, Load, Statement, Store, Variable
from graft.core.tensor_ir.statements import bind, loops_over
from graft.core.tensor_ir.visit import substitute
from graft.core.types import element_bits
from graft.plugins.cuda.machines import BULK, LAUNCH_SECONDS, SPEEDS
from graft.plugins.cuda.strategies.bulk import bulk_side, tiled
from graft.plugins.cuda.strategies.copied_factors import CopiedFactor, copied_factor, with_channels_inside
from graft.plugins.cuda.strategies.fills import copied_bytes
from graft.plugins.cuda.strategies.frames import launched, places
from graft.plugins.cuda.strategies.packing import Packed
from graft.plugins.cuda.strategies.packing import packed as packed_product
from graft.plugins.cuda.strategies.plain import finished
from graft.plugins.cuda.strategies.product_parts import Product, product_of
from graft.plugins.cuda.strategies.product_tiles import SIDES, ProductTile, over
from graft.plugins.cuda.strategies.tiles import LINE, USUAL, BlockTiling, Problem, chosen, parameters_of, ranked

MEASURED = 12
"""Candidates of a stage of tuning at the most."""
FEW = 16
"""A product of fewer terms is for a thread."""
SMALL = 4096
"""So many multiply-adds are for a thread each."""
INSTRUCTIONS = {
    ("float16", "float16"): "mma_float16", ("bfloat16", "bfloat16"): "mma_bfloat16", ("int8", "int8"): "mma_int8",
    ("uint8", "int8"): "mma_uint8_int8", ("int8", "uint8"): "mma_int8_uint8",
}  # fmt: skip
COPY_WORTH = 1.1
"""A factor is copied where the model says that the product takes so many times less by it."""
GROUP = "wg"
"""What the name of a warp's instruction has in front where it is a warpgroup's."""
ROUNDED = {"bf16": ("mma_bfloat16", "bfloat16"), "fp16": ("mma_float16", "float16"), "tf32": ("mma_tf32", "float32")}
"""By the requested precision of float32 products, the instruction and the type of its factors."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A product, the extents and instructions that tiles are chosen for, the types of both factors, a copied one."""

    packed: Packed
    problem: Problem
    dtypes: tuple[str, str]
    copy: CopiedFactor | None = None

    def cycles(self, machine: Machine, parameters: BlockTileParameters | None = None) -> float:
        """Return a model of the cycles with tiles that are wanted, or the best, and of what makes the copy."""
        cost = self.problem.cycles(chosen(self.problem, machine, parameters), machine)
        if self.copy is None:
            return cost
        return cost + self.copy.moved / machine.far.bandwidth + LAUNCH_SECONDS * SPEEDS[machine.cpu].hertz


def build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    """Return a sum of products in tiles, or why it is none."""
    wanted = _wanted(anchor, target)
    if isinstance(wanted, Reject):
        return wanted
    tiles = chosen(wanted.problem, target.machine, of_family(anchor.parameters, BlockTileParameters))
    packed, dtypes, bulk = wanted.packed, wanted.dtypes, None
    if tiles.bulk:
        packed, bulk = tiled(packed, anchor.kernel, tiles, dtypes[tiles.bulk == "columns"])
    tile, copy = ProductTile(packed.product, tiles, dtypes, bulk), wanted.copy
    knobs = tiles.knobs if copy is None else {**tiles.knobs, "copied": copy.source.name}

    def function() -> Function:
        whole = _function(anchor, packed, tile)
        return whole if copy is None else copy.before(whole, target)

    return Scheduled(function, packed.contents, knobs=knobs)


def _candidates(anchor: Anchor, target: Target, stage: int) -> Sequence[Parameters]:
    """Return tiles first, then for the best of them stages, splits and bulk copies."""
    wanted = _wanted(anchor, target)
    if isinstance(wanted, Reject):
        return []
    every = [parameters_of(tiles) for tiles in ranked(wanted.problem, target.machine)]
    if stage == 0:
        shapes = {replace(one, stages=None, splits=None, bulk=None): one for one in reversed(every)}
        return [one for one in every if one in shapes.values()][:MEASURED]
    own = parameters_of(chosen(wanted.problem, target.machine, of_family(anchor.parameters, BlockTileParameters)))
    same = [one for one in every if replace(one, stages=own.stages, splits=own.splits, bulk=own.bulk) == own]
    return same[:MEASURED] if stage == 1 else []


def _wanted(anchor: Anchor, target: Target) -> _Wanted | Reject:
    product = product_of(anchor)
    if product is None:
        return OTHER_FORM
    rows, columns = product.rows.own.known(USUAL), product.columns.own.known(USUAL)
    terms, batch = product.terms.known(USUAL), product.batch.known(1)
    if 0 in (rows, columns, terms, batch):
        return OTHER_FORM
    if terms < FEW or rows * columns * terms < SMALL or rows * columns < 16:
        return Reject("size", f"{rows} x {columns} sums of {terms} products are few")
    instruction, dtypes = _instruction(product, target, rows, columns)
    if not instruction and product.total.dtype not in ("float32", "int32"):
        return Reject("dtype", f"sums of {product.total.dtype} have no tiles")
    ways = [_way(anchor, target, product, instruction, dtypes)]
    if instruction:
        ways.append(_way(anchor, target, with_channels_inside(product), instruction, dtypes))
        copy = copied_factor(product, anchor.kernel, dtypes)
        ways += [] if copy is None else [_way(anchor, target, copy.product, instruction, dtypes, copy)]
    return min(ways, key=lambda one: one.cycles(target.machine) * (1 if one.copy is None else COPY_WORTH))


def _way(
    anchor: Anchor, target: Target, product: Product, instruction: str, dtypes: tuple[str, str],
    copy: CopiedFactor | None = None,
) -> _Wanted:  # fmt: skip
    """Return one way to compute a product: constants packed, and how its factors come to a block."""
    size, terms = element_bits(dtypes[0]) // 8, product.terms.known(USUAL)
    packed = packed_product(product, anchor.kernel, dtypes) if instruction else Packed(product)
    factors = packed.product.rows, packed.product.columns
    copied = [
        copied_bytes(factor, dtype, by_tensors=bool(instruction)) for factor, dtype in zip(factors, dtypes, strict=True)
    ]
    is_copied = isinstance(product.terms.count, int) and all(copied)
    ways = {instruction: is_copied and terms % (64 // size if instruction else 16) == 0}
    if instruction and target.machine.has(GROUP + instruction):
        ways[GROUP + instruction] = is_copied and terms % (LINE // size) == 0
    bulk = bulk_side(packed, anchor.kernel, dtypes) if target.machine.has(BULK.name) else ""
    alone = [side for side, factor in zip(SIDES, factors, strict=True) if instruction and not factor.groups(2)]
    extents = product.rows.own.known(USUAL), product.columns.own.known(USUAL), terms, product.batch.known(1)
    problem = Problem(*extents, size, ways, bulk, alone[0] if alone and not is_copied else "")
    return _Wanted(packed, problem, dtypes, copy)


def _cost(anchor: Anchor, target: Target) -> float | None:
    """Return the cycles with the tiles that are wanted, or the best."""
    wanted = _wanted(anchor, target)
    parameters = of_family(anchor.parameters, BlockTileParameters)
    return None if isinstance(wanted, Reject) else wanted.cycles(target.machine, parameters)


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    """Whether factors of float32 are rounded for a tensor instruction."""
    scheduled = build(anchor, target) if target.precision in ROUNDED else OTHER_FORM
    if isinstance(scheduled, Reject):
        return None if target.precision in ROUNDED else False
    instruction = ROUNDED[target.precision][0]
    return scheduled.knobs.get("instruction") in (instruction, GROUP + instruction)


def _instruction(product: Product, target: Target, rows: int, columns: int) -> tuple[str, tuple[str, str]]:
    """Return the tensor instruction for a product ("" for none), and the types of both factors in shared memory."""
    exact = product.rows.exact.type.dtype, product.columns.exact.type.dtype
    wide = product.rows.value.type.dtype
    found = INSTRUCTIONS.get(exact, "")
    dtypes = exact
    if not found and wide == "float32" and target.precision in ROUNDED:
        found, dtype = ROUNDED[target.precision]
        dtypes = dtype, dtype
    sums = "int32" if "int8" in found else "float32"
    fits = product.total.dtype == sums and target.machine.has(found) and rows >= 8 and columns >= 8
    return (found, dtypes) if found and fits else ("", (wide, wide))


def _function(anchor: Anchor, packed: Packed, tile: ProductTile) -> Function:
    """Return the blocks around a tile, and where terms are split, what adds their sums."""
    product, tiles = packed.product, tile.tiles
    rows, columns, batch = product.rows.own.count, product.columns.own.count, product.batch.count
    row_tiles, column_tiles = over(rows, tiles.rows), over(columns, tiles.columns)
    block = Variable("block")
    split, which, row_tile, column_tile = (Variable(name) for name in ("split", "batch", "row_tile", "column_tile"))
    extents = (tiles.splits, batch, row_tiles, column_tiles)
    begin = b.multiply(row_tile, tiles.rows), b.multiply(column_tile, tiles.columns)
    sums: Buffer | None = None
    if tiles.splits > 1:
        shape = tuple(map(b.extent, (tiles.splits, batch, rows, columns)))
        sums = Buffer("sums", product.total.dtype, shape, alignment=16)
    inside = tile.body(split, which, begin, sums)
    body = bind(zip((split, which, row_tile, column_tile), places(block, extents), strict=True), inside)
    whole: Statement = launched(block, b.product_of(extents), tiles.threads, body, tile.behind)
    if sums is not None:
        whole = Allocate(sums, Block((whole, _added(product, tiles, sums))))
    function = finished(anchor.kernel, whole).function
    return replace(function, parameters=tuple(packed.replaced.get(one, one) for one in function.parameters))


def _added(product: Product, tiles: BlockTiling, sums: Buffer) -> Statement:
    """Return what adds the sums of all parts of the terms and applies the epilogue."""
    which, row, column, part = (Variable(name) for name in ("batch", "row", "column", "part"))
    at = {**product.batch.at(which), **product.rows.own.at(row), **product.columns.own.at(column)}
    total = Buffer("total", sums.dtype, (b.index(1),), memory="register")
    zero = (b.index(0),)
    added = b.add(Load(total, zero), Load(sums, (part, which, row, column)))
    stores = product.epilogue.stores(product.point(at), Load(total, zero), None)
    first = Store(total, zero, start(product, at))
    loop = loops_over([(part, b.index(tiles.splits))], Store(total, zero, added))
    axes = ((which, product.batch), (row, product.rows.own), (column, product.columns.own))
    extents = ((variable, b.extent(own.count)) for variable, own in axes)
    nest = loops_over(extents, Allocate(total, Block((first, loop, *stores))))
    return taken(nest, [Unroll("part"), *(Parallel(variable.name) for variable, _ in axes)])


def start(product: Product, at: dict[Variable, Expression]) -> Expression:
    """Return what the sum of an element starts from."""
    return substitute(product.epilogue.initial, at)


ANCHORS = frozenset({Trait.CONTRACTION, Trait.CONVOLUTION})
STRATEGY = Strategy(
    "cuda.product",
    ANCHORS,
    build,
    candidates=_candidates,
    is_for_integers=True,
    cost=_cost,
    rounds=_rounds,
    varies=None,
)
