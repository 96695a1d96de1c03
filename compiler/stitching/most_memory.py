"""The most bytes that tensors of varying shapes may have, for memory that is planned once for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from graft.compiler.stitching.symbol_binding import Ranges
from graft.core.affine.expressions import Range, interval, names_in
from graft.errors import ModelError
from graft.runtime.dtypes import element_type
from graft.runtime.extents import MAXIMUM, Extent, Symbol
from graft.runtime.procedure import TensorSpec

Memory: TypeAlias = Literal["binding", "maximum"]
"""When the memory of a program with symbols is planned: for each binding of them, or once for the largest shapes."""
MEMORIES: tuple[Memory, ...] = ("binding", "maximum")


def most_bytes(tensor: TensorSpec, ranges: Ranges) -> int:
    """Return an upper bound of a tensor's bytes for symbols within their ranges, by bounds of each extent.

    Raises ModelError if there is none, naming the symbol that is open, or if it is beyond 2**62.
    """
    known = {extent: Range(low, high) for extent, (low, high) in ranges.items()}
    total = element_type(tensor.dtype).bytes
    for axis, extent in enumerate(tensor.shape or ()):
        high = extent if isinstance(extent, int) else interval(extent, known)[1]
        if math.isinf(high):
            raise _open(tensor, axis, extent, known)
        total *= max(0, int(high))
    if total > MAXIMUM:
        raise ModelError(
            f"memory='maximum' plans for the largest shapes, and tensor '{tensor.name}' then has {total} bytes, beyond "
            "2**62; give narrower ranges",
            tensor=tensor.name,
        )
    return total


def _open(tensor: TensorSpec, axis: int, extent: Extent, known: Mapping[Extent, Range]) -> ModelError:
    names = sorted(names_in([extent]))
    name = next((one for one in names if known.get(Symbol(one), Range()).high is None), names[0])
    return ModelError(
        f"memory='maximum' plans for the largest shapes, but dimension '{name}' is open: axis {axis} of tensor "
        f"'{tensor.name}' is '{extent}'; give it a range, as in dims={{\"{name}\": (1, 512)}} (--dim {name}=1..512), "
        "or, unless it is for a C project, leave the planning to each binding (memory='binding')",
        dimension=name,
        tensor=tensor.name,
        spelled={"memory='maximum'": "--memory maximum", "memory='binding'": "--memory binding"},
    )
