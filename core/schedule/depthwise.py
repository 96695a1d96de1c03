"""The schedule of depthwise convolutions: every output row directly, a few vectors of its pixels at a time.

Sums over the window are unrolled; weights are scalars that stay in registers over the rows of a plane.
"""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators import build as b
from graft.core.schedule.epilogue import epilogue_of
from graft.core.schedule.inline import constant_shape
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.tiling import Reduced, Tile, accumulate, column_mask, finish_tile, lanes_of, over, ramp
from graft.core.schedule.vectorize import vectorize_expression
from graft.core.target import Target
from graft.core.tensor_ir.ir import Binary, Block, Buffer, Constant, Expression, Function, Stage, Statement, Variable
from graft.core.tensor_ir.visit import free_variables, substitute
from graft.core.types import Type

ROW_VECTORS = 4


def schedule_depthwise(kernel: Kernel, stages: Sequence[Stage], target: Target) -> Scheduled | None:
    """Return the kernel with planes in parallel and rows in vectors, or None if a follower is not elementwise."""
    epilogue = epilogue_of(stages, kernel.outputs)
    anchor = stages[0]
    shape = constant_shape(anchor.buffer)
    if epilogue is None or shape is None or anchor.reduction is None or 0 in shape:
        return None
    if not isinstance(anchor.value, Binary) or anchor.value.operator != "mul":
        return None
    loops = [
        Reduced(axis.variable, int(axis.extent.value))
        for axis in anchor.reduction.axes
        if isinstance(axis.extent, Constant)
    ]
    weight, pixel = anchor.value.left, anchor.value.right
    if anchor.axes[-1] in free_variables(weight):
        weight, pixel = pixel, weight
    if anchor.axes[-1] in free_variables(weight) or len(loops) != len(anchor.reduction.axes):
        return None
    lanes = lanes_of(weight.type.dtype, target)
    kind = Type(weight.type.dtype)
    reduction = anchor.reduction

    def tile_at(index: list[Expression], begin: Expression, vectors: int) -> Statement:
        """The pixels ``[begin, begin + vectors * lanes)`` of the row ``index``."""
        tile = Tile(1, vectors, lanes)
        outer = dict(zip(anchor.axes[:-1], index, strict=True))
        cut = shape[-1] % lanes != 0

        def mask(vector: int) -> Expression | None:
            last = vector == vectors - 1
            return column_mask(b.add(begin, vector * lanes), shape[-1], lanes) if cut and last else None

        def left(_: int) -> Expression:
            return substitute(weight, outer)

        def right(vector: int) -> Expression:
            column = ramp(b.add(begin, vector * lanes), lanes)
            return vectorize_expression(pixel, {**outer, anchor.axes[-1]: column}, mask(vector))

        def finish(totals: Buffer) -> Statement:
            def point(_: Expression, column: Expression) -> list[Expression]:
                return [*index, ramp(b.add(begin, column), lanes)]

            return finish_tile(epilogue, tile, totals, point, mask)

        return accumulate(tile, kind, reduction.initial, loops, left, right, finish)

    total = -(-shape[-1] // lanes)
    pieces = -(-total // ROW_VECTORS)
    vectors = -(-total // pieces)
    indices: list[Expression] = [
        Variable(name) if extent > 1 else b.index(0)
        for name, extent in zip([f"i{axis}" for axis in range(len(shape) - 1)], shape[:-1], strict=True)
    ]
    statements = [
        tile_at(indices, b.index(begin * lanes), min(vectors, total - begin)) for begin in range(0, total, vectors)
    ]
    body: Statement = Block(tuple(statements))
    for axis in reversed(range(len(shape) - 1)):
        body = over(indices[axis], shape[axis], "parallel" if axis < 2 else "serial", body)
    parameters = (*kernel.inputs, *kernel.outputs)
    return Scheduled(Function(kernel.name, parameters, len(kernel.outputs), body, kernel.origin))
