"""Products of patches and weights that copy a block of patches at a time (`graft.core.schedule.products.patches`)."""

from __future__ import annotations

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.products.blocking import RowBlock
from graft.core.schedule.products.contraction import ContractionScheduler
from graft.core.schedule.products.factors import Outer
from graft.core.schedule.products.packed_dot import CopiedRows, SmallRows, with_packed_operands
from graft.core.schedule.products.patches import Patches
from graft.core.schedule.products.product_axes import Contraction, contraction_of
from graft.core.tensor_ir.ir import Block, Expression, For, Statement, Variable
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import loads


class PatchedProduct(ContractionScheduler):
    """A product whose left factor is patches, which are copied a block of rows at a time."""

    def __init__(
        self,
        kernel: Kernel,
        parts: Contraction,
        target: Target,
        wanted: ContractionParameters | None,
        small: SmallRows,
        window: Patches,
    ) -> None:
        super().__init__(kernel, parts, target, wanted, (), small)
        self.window = window

    def _needs_groups(self) -> bool:
        return True

    def _with_grouped_rows(self, copied: CopiedRows, outer: Outer, rows: RowBlock, body: Statement) -> Statement:
        row = Variable("row")
        (height, width), pixel = self.window.windows.target, b.add(rows.first, row)
        n, y, x = Variable("n"), Variable("y"), Variable("x")
        line = b.divide(pixel, width)
        number: Expression = b.index(0)
        row_of = line
        if self.window.shape[0] > 1:
            number, row_of = b.divide(line, height), b.modulo(line, height)
        patch = self.window.patch(copied.buffer, (row,), (n, y, x), self.target)
        copy = bind(((n, number), (y, row_of), (x, b.modulo(pixel, width))), patch)
        return copied.around(Block((For(row, rows.count, "parallel", copy), body)))


def patched_product(
    kernel: Kernel, window: Patches, target: Target, wanted: ContractionParameters | None
) -> PatchedProduct | None:
    """Return the scheduler of a product of patches; None if what follows the product is not elementwise."""
    plain = contraction_of(kernel)
    dots = plain and with_packed_operands(plain, kernel.constants, target)
    if not dots or dots.parts.varies or dots.small is None:
        return None
    if any(load.buffer is window.matrix for load in loads(dots.parts.left)):
        return None
    return PatchedProduct(kernel, dots.parts, target, wanted, dots.small, window)
