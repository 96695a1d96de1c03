"""The Transposes of images as calls in C (`transpose.h`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from graft.core.affine.expressions import multiply
from graft.plugins.c_calls import CCall, CKernel
from graft.runtime.dtypes import numpy_dtype


@cache
def helpers() -> str:
    """Return the C functions that transpose."""
    return (Path(__file__).parent / "transpose.h").read_text(encoding="utf-8")


def transpose_call(kernel: CKernel) -> CCall:
    """Return the call of a kernel named `graft.plugins.json_graph.TRANSPOSE`."""
    image, made = kernel[0], kernel.outputs[0]
    is_last = kernel.node.attributes["perm"][-1] == 1
    channels = image.shape[1] if is_last else image.shape[-1]
    pixels = multiply(*(image.shape[2:] if is_last else image.shape[1:-1]))
    rows, columns = (channels, pixels) if is_last else (pixels, channels)
    values = {"image": image, "made": made, "count": image.shape[0], "rows": rows, "columns": columns}
    bits = 8 * numpy_dtype(image.dtype).itemsize
    return CCall(f"graft_transpose_{bits}({{count}}, {{rows}}, {{columns}}, {{image}}, {{made}})", values, success="")
