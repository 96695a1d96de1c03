"""Sums of products over extents that are known only when a kernel runs: register tiles with tails.

The result is cut into tiles of constant size. Blocks of columns come first, so that one panel of the right factor stays
in a cache for all rows; within a block, tiles of rows follow each other, and the rows that are left over are a tile of
half the height, of a quarter, and so on, which overlap what is before where that makes them fewer. Columns that are
left over are masked. A constant right factor is packed into such panels at compile time; one whose columns lie apart is
copied into them, a panel at a time.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import Layout, flatten, stride
from graft.core.schedule.loops.nest import nest
from graft.core.schedule.parameters import ContractionParameters, Parameters, of_family
from graft.core.schedule.primitives.vectorize import instantiate, lower_loops
from graft.core.schedule.products.blocking import BLOCK_SHARE
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, fused_stages
from graft.core.schedule.products.packed_rows import packed_rows, rounded_rows
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import RegisterTile, adjusted_tile, lanes_of, ranked_tiles
from graft.core.schedule.strategies.contractions.varying_product_loops import Loops, Product
from graft.core.schedule.strategies.nests.generic_nest import schedule_generic
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy, always
from graft.core.tensor_ir.ir import Allocate, Block, Buffer, Constant, Expression, Function, If, Load, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier, simplify_statement
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import free_variables, loads
from graft.core.types import FLOATS, element_bits

NARROW = 2
"""The vectors of a tile where the number of columns varies: of what is left over at their end, less is in vain."""
NEAR = 1.006
"""Tiles that take so much of the fewest cycles are as good: the one with the least code is taken."""
MOST_ROWS = 8
"""Rows of a tile at the most: where each begins stays in a register for addresses."""
USUAL = 128
"""The rows or columns that tiles are chosen for where their number varies."""


def schedule_product(
    kernel: Kernel, target: Target, parameters: ContractionParameters | None = None
) -> Scheduled | None:
    """Return a kernel whose anchor is a sum of products in register tiles; None for any other.

    Products of bytes are taken whose right factor is a constant matrix.
    """
    product = _product_of(kernel, target)
    if product is None:
        return None
    tile = _chosen_tile(product, target)
    if parameters is not None:
        tile = adjusted_tile(tile, *_usual_size(product, target), parameters.rows, parameters.vectors)
    layout = Layout(Simplifier())
    loops = Loops(product, tile, target.machine)
    packed = loops.pack(kernel, layout)
    body = loops.body()
    for stage in () if product.packed is None else product.packed.before:
        made = lower_loops(simplify_statement(nest(flatten(stage, layout), layout.simplifier, target.machine, True)))
        body = Allocate(layout.flat(stage.buffer), Block((made, body)))
    function = Function(
        kernel.name,
        (*(packed.get(buffer, (buffer,))[0] for buffer in kernel.inputs), *kernel.outputs),
        len(kernel.outputs),
        body,
        kernel.origin,
    )
    if product.is_copied:  # as those of a single row's sums are
        for buffer in function.parameters:
            layout.flat(buffer)
    function = layout.function(function)
    function = replace(function, body=instantiate(function.body, {}))
    if product.is_copied and not isinstance(product.height, Constant):
        function = _with_single_rows(function, product, schedule_generic(kernel, target).function)
    knobs: dict[str, int | str] = {"rows": tile.rows, "vectors": tile.vectors}
    if product.packed is not None:
        knobs["dot"] = product.packed.multiply.dot
    return Scheduled(function, {source: contents for source, (_, contents) in packed.items()}, knobs=knobs)


def _with_single_rows(function: Function, product: Product, sums: Function) -> Function:
    """Return a function that computes a single row by sums along it, whose terms are read once: not worth a copy."""
    single = instantiate(sums.body, {}, dict(zip(sums.parameters, function.parameters, strict=True)))
    return replace(function, body=If(b.less(product.height, 2), single, function.body))


def _product_of(kernel: Kernel, target: Target) -> Product | None:
    """Return the product that a kernel is; None if it is none."""
    stages = fused_stages(kernel)
    epilogue = None if stages is None else epilogue_of(stages, kernel.outputs)
    return (
        None
        if epilogue is None
        else _with_packed_operands(epilogue, kernel, target) or _taken_apart(epilogue, kernel.constants, target)
    )


def _usual_size(product: Product, target: Target) -> tuple[int, int]:
    """Return the rows and columns that tiles are chosen for."""
    dtype, columns = product.epilogue.anchor.value.type.dtype, product.shape[product.columns]
    width = _usual(columns) if isinstance(columns, Constant) else NARROW * lanes_of(dtype, target)
    return _usual(product.height), width


def _chosen_tile(product: Product, target: Target) -> RegisterTile:
    """Return one of the best tiles: if there is one, such that no columns are left over, and of those the narrowest."""
    height, width = _usual_size(product, target)
    dtype = product.epilogue.anchor.value.type.dtype
    ranked = [row for row in ranked_tiles(height, width, dtype, target) if row[1].rows <= MOST_ROWS]
    good = [tile for cycles, tile in ranked if cycles <= NEAR * ranked[0][0]]
    return min(good, key=lambda tile: (-(-width // tile.lanes) % tile.vectors > 0, tile.vectors))


def _usual(extent: Expression) -> int:
    return max(1, int(extent.value)) if isinstance(extent, Constant) else USUAL


def _taken_apart(epilogue: Epilogue, constants: Container[Buffer], target: Target) -> Product | None:
    """Return the factors by what they depend on; None unless the right one lies row by row or panels of it are near."""
    stage = epilogue.anchor
    factors = factors_of(stage)
    if factors is None or stage.reduction is None or factors[2] or stage.value.type.dtype not in FLOATS:
        return None
    left, right, _ = factors
    if not stage.axes or epilogue.branches or epilogue.picks:
        return None
    columns = len(stage.axes) - 1
    column = stage.axes[columns]
    if column in free_variables(left):
        left, right = right, left
    if column in free_variables(left) or column not in free_variables(right):
        return None
    along = [load for load in loads(right) if any(column in free_variables(index) for index in load.indices)]
    reduced = stage.reduction.axes
    transposed = len(reduced) == 1 and _is_matrix(right, column, reduced[0].variable, constants)
    is_copied = not transposed and not all(_is_contiguous(load, column) for load in along)
    if len(reduced) > 1 and not all(isinstance(axis.extent, Constant) for axis in reduced):
        return None
    in_left, in_right, shape = free_variables(left), free_variables(right), stage.buffer.shape
    own = [
        n for n, axis in enumerate(stage.axes) if axis in in_left and axis not in in_right and shape[n] != b.index(1)
    ]
    product = Product(epilogue, left, right, tuple(own), columns, reduced, is_copied=is_copied)
    return product if not is_copied or _is_worth_copying(product, target) else None


def _is_worth_copying(product: Product, target: Target) -> bool:
    """Whether several rows read what is copied of the right factor, and a panel of it stays in a cache."""
    if len(product.depth) != 1 or product.terms is None or product.height == b.index(1):
        return False
    panel = product.terms * _chosen_tile(product, target).columns * element_bits(product.right.type.dtype) // 8
    return panel <= BLOCK_SHARE * target.machine.working_set(2)


def _with_packed_operands(epilogue: Epilogue, kernel: Kernel, target: Target) -> Product | None:
    """Return a product of byte rows, or rounded ones, by a constant matrix over packed operands; None of any other."""
    if epilogue.branches or epilogue.picks:
        return None
    stage = epilogue.anchor
    others = [stage.value for stage in epilogue.every if stage is not epilogue.anchor]
    packed = packed_rows(stage, kernel.constants, others, target)
    if packed is None and target.precision == "bf16" and lanes_of("float32", target) > 1:
        packed = rounded_rows(stage, kernel.constants, others)
    if packed is None:
        return None
    in_left, shape = free_variables(packed.left), stage.buffer.shape
    own = (n for n, axis in enumerate(stage.axes) if axis in in_left and shape[n] != b.index(1))
    changed = replace(epilogue, anchor=packed.anchor)
    return Product(changed, packed.left, packed.right, tuple(own), len(stage.axes) - 1, (packed.term,), packed)


def _is_contiguous(load: Load, column: Variable) -> bool:
    inner = not any(column in free_variables(index) for index in load.indices[:-1])
    return inner and stride(load.indices[-1], column, Simplifier()) == 1 and load.buffer.strides is None


def _is_matrix(right: Expression, column: Variable, term: Variable, constants: Container[Buffer]) -> bool:
    """Whether the right factor is a constant with a row for each column, which is packed by terms."""
    if not isinstance(right, Load) or right.buffer not in constants or right.mask is not None:
        return False
    return len(right.indices) == 2 and right.indices[0] is column and right.indices[1] is term


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    return schedule_product(anchor.kernel, target, of_family(anchor.parameters, ContractionParameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Register tiles; blocks follow from the extents when the kernel runs."""
    product = _product_of(anchor.kernel, target)
    if product is None or stage > 0:
        return []
    tiles = best_tiles(*_usual_size(product, target), product.epilogue.anchor.value.type.dtype, target)
    return [ContractionParameters(rows=tile.rows, vectors=tile.vectors) for tile in tiles]


STRATEGY = Strategy("varying_product", frozenset({Trait.CONTRACTION}), _build, always, _candidates, varies=True)
"""Takes products of floats whose right factor lies row by row, or is a constant, and of bytes by a constant."""
