"""Other kernels that compute the same as one, where a schedule may begin: by name, as a text says them first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.primitives.plain_nest import Product
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.schedule.templates.tiled_sum import TiledSum, tiled_sum
from graft.core.tensor_ir.ir import Buffer


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A kernel that computes the same as another, of which ``sources`` has the buffers behind its own.

    Its factors are multiplied, and added to a sum, by ``multiply``.
    """

    kernel: Kernel
    sources: Mapping[Buffer, Buffer]
    multiply: Product = multiply_add


Rewrites: TypeAlias = Mapping[str, Callable[[Kernel, Target], Rewritten | None]]


def sum_in(kernel: Kernel, target: Target, rewrites: Rewrites) -> TiledSum | None:
    """Return the sum of products that a kernel is after the first rewrite that takes it, or else as it is."""
    for name, rewrite in rewrites.items():
        found = rewrite(kernel, target)
        tiled = None if found is None else tiled_sum(found.kernel, target, found.multiply)
        if tiled is not None:
            return replace(tiled, rewrite=name)
    return tiled_sum(kernel, target)
