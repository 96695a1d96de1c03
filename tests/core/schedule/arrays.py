"""Arrays as a function's parameters want them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.inline import constant_shape
from graft.core.tensor_ir.ir import Function


def passed(function: Function, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """Return arrays in the shapes of a function's inputs where these are numbers, flat ones for example."""
    pairs = zip(map(np.asarray, arrays), function.input_buffers, strict=True)
    return [array if constant_shape(one) is None else array.reshape(b.dims(one)) for array, one in pairs]
