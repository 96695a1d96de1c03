"""Kernels as lines of text: shapes of an input and of constants, and what is computed of them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper, parser


def model(text: str) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return the model of a line such as ``x 1,8; w 8,4 : y = MatMul(x, w)``, and its input.

    The first name is the input, the others are constants of random numbers, floats if no other type stands behind the
    shape (``x 1,8 uint8``), and the last result, ``y``, is the output.
    """
    declared, body = text.split(" : ")
    random = np.random.default_rng(0)
    values = dict[str, np.ndarray]()
    for name, extents, *kinds in (one.split() for one in declared.split(";")):
        size, own = [*map(int, extents.split(","))], np.dtype(kinds[0] if kinds else np.float32)
        low = -100 if own.kind == "i" else 0
        numbers = random.standard_normal(size) if own.kind == "f" else random.integers(low, 100, size)
        values[name] = numbers.astype(own)
    (name, given), *constants = values.items()
    shape = ",".join(map(str, given.shape))
    dtype = "float" if given.dtype == np.float32 else str(given.dtype)
    header = f'<ir_version: 10, opset_import: ["": 20]> g ({dtype}[{shape}] {name}) => (float[] y)'
    made = parser.parse_model(f"{header} {{ {body} }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants)
    return made, given
