"""The loops of a kernel that the text of a schedule is for: what their names are follows from the kernel alone.

A sum of products has loops that are named for its axes (`plain_sum`). Of a convolution they are ``n`` (image), ``c``
(output channel), ``z``, ``y`` and ``x`` (pixel), and of what is summed ``g`` (input channel of the group), ``kz``,
``ky`` and ``kx`` (position in the window). Of other products the last axis is ``j``, the one before ``i``, those before
them ``b``, ``b1`` and so on; what is summed is ``k``, ``k1`` and so on. All other kernels have the loops of their
stages (`plain_nest`).
"""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.schedule.kernel import Kernel
from graft.core.schedule.primitives.plain_nest import Product, plain_sum
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of, fused_stages
from graft.core.tensor_ir.ir import Binary, Function, Stage


def sum_of(kernel: Kernel) -> Epilogue | None:
    """Return the sum of products that a kernel is, with what is fused behind it; None if it is of another form."""
    stages = fused_stages(kernel)
    epilogue = None if stages is None else epilogue_of(stages, kernel.outputs)
    if epilogue is None or epilogue.branches or epilogue.picks or not isinstance(epilogue.anchor.value, Binary):
        return None
    return epilogue if epilogue.anchor.value.operator == "mul" else None


def plain_products(kernel: Kernel, epilogue: Epilogue, multiply: Product = multiply_add) -> Function:
    """Return the plain loops of a sum of products, which ``multiply`` adds, and of what is fused behind it."""
    axes, reduced = names_of(epilogue.anchor)
    return plain_sum(
        kernel.name,
        epilogue.anchor,
        lambda place, total: epilogue.stores(place, total, None),
        axes,
        reduced,
        (kernel.inputs, kernel.outputs),
        copies=epilogue.is_heavy,
        multiply=multiply,
    )


def names_of(sums: Stage) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of the axes of a sum of products, and of those that it sums over."""
    assert sums.reduction is not None, f"'{sums.buffer.name}' is no sum"
    found = convolution_of(sums)
    if found is not None:
        space = "zyx"[-found.windows.rank :]
        axes, window = ("n", "c", *space), ("g", *(f"k{axis}" for axis in space))
        return [axes[axis] for axis in found.window.result], [window[axis] for axis in found.window.reduced]
    rank, depth = len(sums.axes), len(sums.reduction.axes)
    outer = [f"b{number or ''}" for number in range(rank - 2)]
    return [*outer, *("i", "j")[max(0, 2 - rank) :]], [f"k{number or ''}" for number in range(depth)]
