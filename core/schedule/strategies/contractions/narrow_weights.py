"""The schedule of products by constant weights of 2 to 8 bits with scales, of blocks of terms or of columns.

A product of few rows is as fast as its weights come from memory, so they stay as narrow as they are and are widened in
the innermost loop; with more rows, what is widened serves a tile of them. A weight is ``(digit - offset) * scale``,
where digit is what is stored: the sums of a block are of digits alone, and ``offset`` times the sum of the block's left
factors is taken off (so a left factor that is not finite gives NaN). (The loops:
`graft.core.schedule.products.block_loops`; what they read:
`graft.core.schedule.strategies.contractions.narrow_operand`.)
"""

from __future__ import annotations

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.products.epilogue import epilogue_of, fused_stages
from graft.core.schedule.products.product_axes import Contraction, by_rows
from graft.core.schedule.strategies.contractions.narrow_codes import Code, code_of
from graft.core.schedule.strategies.contractions.narrow_operand import TALLEST, Narrow, lanes_of, loops_of
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Binary, Buffer, Cast, Constant, Expression, Load, Variable
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, walk_expressions
from graft.core.types import FLOATS

NARROW = ("uint8", "int8")


def narrow_of(kernel: Kernel) -> Narrow | None:
    """Return the product by narrow weights that a kernel is around; None if it is none."""
    if not any(buffer.dtype in NARROW for buffer in kernel.constants):
        return None
    stages = fused_stages(kernel)
    epilogue = None if stages is None else epilogue_of(stages, kernel.outputs)
    factors = None if epilogue is None else factors_of(epilogue.anchor)
    if epilogue is None or epilogue.branches or epilogue.picks or factors is None or factors[2]:
        return None
    stage = epilogue.anchor
    assert stage.reduction is not None, "a sum of products without a sum"
    if not stage.axes or len(stage.reduction.axes) != 1 or stage.reduction.initial.type.dtype != "float32":
        return None
    column, term = stage.axes[-1], stage.reduction.axes[0].variable
    left, right = factors[:2]
    if column in free_variables(left):
        left, right = right, left
    in_left, in_right = free_variables(left), free_variables(right)
    if column in in_left or not in_right <= {column, term}:
        return None
    rows = tuple(n for n, axis in enumerate(stage.axes) if axis in in_left and stage.buffer.shape[n] != b.index(1))
    rest = [extent for n, extent in enumerate(stage.buffer.shape[:-1]) if n not in rows]
    product = by_rows(epilogue, left, right, rows)
    width = stage.buffer.shape[-1]
    if product.terms == VARIES or not isinstance(width, Constant) or any(extent != b.index(1) for extent in rest):
        return None
    return _taken_apart(product, kernel)


def _taken_apart(product: Contraction, kernel: Kernel) -> Narrow | None:
    """Return a product whose right factor is ``value * scale`` of narrow constants; None of any other."""
    right, stage = product.right, product.epilogue.anchor
    while isinstance(right, Cast) and right.dtype in FLOATS and right.value.type.dtype in FLOATS:
        right = right.value  # what the rounding of a weight would lose
    if not (isinstance(right, Binary) and right.operator == "mul" and right.type.dtype == "float32"):
        return None
    column, term = stage.axes[-1], product.depth[0].variable
    source = _source(right.left, {column, term}, kernel)
    others = (product.left, right.right, *(one.value for one in product.epilogue.every))
    if source is None or any(load.buffer is source.buffer for load in loads(*others)):
        return None
    sizes = {size for node in walk_expressions(right) if (size := _block_of(node, term))}
    terms, block = product.terms, min(sizes, default=product.terms)
    if len(sizes) > 1 or not block or terms % block:
        return None
    contents = kernel.constants[source.buffer]
    low, high = int(contents.min()), int(contents.max())
    is_masked = any(map(_keeps_four_bits, walk_expressions(right.left)))
    if is_masked and high - low > 15:
        return None
    code = code_of(contents, block) or Code(8, low if is_masked else 128 if source.buffer.dtype == "uint8" else 0)
    number = Variable("block")

    def of_block(node: Expression) -> Expression:
        if isinstance(node, Cast) and node.value == source:
            return Constant(code.low, node.type)
        return number if _block_of(node, term) else node

    least, scale = (simplify(ExpressionMap(of_block)(value)) for value in (right.left, right.right))
    if {source.buffer} & {load.buffer for load in loads(least)} or term in free_variables(least, scale):
        return None
    return Narrow(product, source, scale, least, number, block, code)


def _source(value: Expression, axes: set[Variable], kernel: Kernel) -> Load | None:
    """Return the constant that is widened, if a value is that plus what does not depend on it; None otherwise."""
    node = value
    while not isinstance(node, Load):
        if isinstance(node, Cast) or (isinstance(node, Binary) and node.operator in ("add", "sub")):
            node = node.value if isinstance(node, Cast) else node.left
        elif isinstance(node, Binary) and _keeps_four_bits(node):
            node = node.left
        else:
            return None
    is_own = node.buffer in kernel.constants and node.buffer.dtype in NARROW and node.mask is None
    is_matrix = len(node.indices) == 2 and set(node.indices) == axes
    once = sum(load.buffer is node.buffer for load in loads(value)) == 1
    return node if is_own and is_matrix and once else None


def _block_of(node: Expression, term: Variable) -> int:
    """Return the terms of a block where a node is the number of a term's block, otherwise 0."""
    if not isinstance(node, Binary) or node.operator != "div" or node.left is not term:
        return 0
    return int(node.right.value) if isinstance(node.right, Constant) else 0


def _keeps_four_bits(node: Expression) -> bool:
    return isinstance(node, Binary) and node.operator == "and" and node.right == Constant(15, node.type)


def _applies(anchor: Anchor, target: Target) -> Answer:
    narrow, lanes = narrow_of(anchor.kernel), lanes_of(target.machine)
    if narrow is None:
        return OTHER_FORM
    if narrow.width % lanes:
        return Reject("shape", f"{narrow.width} columns are no whole vectors of {lanes}")
    is_low = narrow.product.height != VARIES and narrow.product.height < TALLEST
    if lanes == 1 and not narrow.code.words and not is_low:
        return Reject("shape", "without vectors, bytes are widened once for so many rows")
    return True


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    kernel, narrow = anchor.kernel, narrow_of(anchor.kernel)
    assert narrow is not None, "built only where it applies"
    loops, packed = loops_of(narrow, kernel.constants, target.machine)
    replaced: dict[Buffer, Buffer] = {source: one.buffer for source, one in packed.items()}
    knobs: dict[str, int | str] = {"rows": loops.low, "vectors": loops.tile.vectors, "bits": narrow.code.bits}
    contents = {source: one.contents for source, one in packed.items()}
    return Scheduled(lambda: kernel.function(loops.body(), replaced), contents, knobs=knobs)


STRATEGY = Strategy("narrow_weights", frozenset({Trait.CONTRACTION}), _build, _applies, varies=None)
