"""Kernels as lines of text: shapes of an input and of constants, and what is computed of them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper, parser


def model(text: str) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return the model of a line such as ``x 1,8; w 8,4 : y = MatMul(x, w)``, and its input.

    The first name is the input, the others are constants of random numbers, and the last result, ``y``, is the output.
    """
    declared, body = text.split(" : ")
    random = np.random.default_rng(0)
    shapes = {name: [*map(int, shape.split(","))] for name, shape in (one.split() for one in declared.split(";"))}
    values = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    (name, given), *constants = values.items()
    shape = ",".join(map(str, given.shape))
    header = f'<ir_version: 10, opset_import: ["": 20]> g (float[{shape}] {name}) => (float[] y)'
    made = parser.parse_model(f"{header} {{ {body} }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants)
    return made, given
