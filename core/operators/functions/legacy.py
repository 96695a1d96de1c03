"""Operators that ONNX dropped or changed in a way that its version converter does not know, as later ones.

Those that ONNX 1.4 called experimental ONNX Runtime kept; converters of CoreML and Caffe2 wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graft.core.operators.definition.function_body import Body, Function
from graft.core.operators.functions.microsoft import add
from graft.core.operators.reductions.plain_normalization import of_trained_batch, trained_batch

LEGACY = "graft.legacy"
"""The domain that the importer puts them in."""


def _affine(f: Body) -> None:
    x = f.scaled(f.input(0), f.attribute("alpha", 1.0))
    f.give(0, f.added(x, f.like(f.attribute("beta", 0.0), x)))


def _scale(f: Body) -> None:
    f.give(0, f.scaled(f.input(0), f.attribute("scale", 1.0)))


def _between_factors(op_type: str) -> Function:
    """``alpha * function(beta * x)``."""

    def function(f: Body) -> None:
        inner = f(op_type, f.scaled(f.input(0), f.attribute("beta", 1.0)))
        f.give(0, f.scaled(inner, f.attribute("alpha", 1.0)))

    return function


def _image_scaler(f: Body) -> None:
    x = f.scaled(f.input(0), f.attribute("scale", 1.0))
    bias = f.constant(np.array(f.attribute("bias", [0.0]), np.float64).reshape(-1, 1, 1))
    f.give(0, f.added(x, f.cast(bias, f.dtype(x))))


def _crop(f: Body) -> None:
    x, (left, top, right, bottom) = f.input(0), f.attribute("border", [0, 0, 0, 0])
    f.require(f.rank(x) == 4, f"its input has rank {f.rank(x)}, where 4 is expected")
    if size := f.attribute("scale"):
        ends = [top + size[0], left + size[1]]
    else:
        ends = [-bottom or np.iinfo(np.int64).max, -right or np.iinfo(np.int64).max]
    f.give(0, f("Slice", x, f.ints(top, left), f.ints(*ends), f.ints(2, 3)))


def _mean_variance(f: Body) -> None:
    x = f.input(0)
    axes = [0, *range(1 if f.attribute("across_channels", 0) else 2, f.rank(x))]
    if f.attribute("normalize_variance", 1):
        f.give(0, f("MeanVarianceNormalization", x, axes=axes))
    else:
        f.give(0, f("Sub", x, f("ReduceMean", x, f.ints(*axes))))


def _group_normalization(f: Body) -> None:
    """Before opset 21 scale and bias were those of groups, not of channels."""
    x, groups = f.input(0), f.attribute("num_groups")
    share = f("Div", f.extent(x, 1), f.ints(groups))
    shape = f.concatenated(f.ints(groups), share, axis=0)
    given = [f.reshaped(f("Expand", f.reshaped(f.input(one), groups, 1), shape), -1) for one in (1, 2)]
    y = f("GroupNormalization", x, *given, num_groups=groups, **f.attributes("epsilon"))
    f.types[y] = f.types[x]
    f.give(0, y)


def _batch_normalization(f: Body) -> None:
    """Training, which several outputs meant before opset 14, or before opset 9 statistics of single elements."""
    f.require(len(f.inputs) == 5 and f.rank(f.input(0)) > 1, "it needs an image, scale, bias, mean and variance")
    x, scale, bias, mean, variance = f.inputs
    f.require(
        not any(f.wants(one) for one in range(3, 5)),
        "its saved mean and variance are asked for; export it with opset 14",
    )
    if _trains(f):
        trained_batch(f)
        return
    root = f("Sqrt", f.added(variance, f.like(f.attribute("epsilon", 1e-5), variance)))
    f.give(0, f.added(f("Mul", f("Div", f("Sub", x, mean), root), scale), bias))


def _trains(f: Body) -> bool:
    return bool(f.attribute("training_mode", 0)) or len([one for one in f.node.output if one]) > 1


EXPERIMENTAL: Mapping[str, Function] = {
    "Affine": _affine,
    "Scale": _scale,
    "ScaledTanh": _between_factors("Tanh"),
    "ParametricSoftplus": _between_factors("Softplus"),
    "ThresholdedRelu": lambda f: f.give(0, f("ThresholdedRelu", f.input(0), alpha=f.attribute("alpha", 1.0))),
    "ImageScaler": _image_scaler,
    "Crop": _crop,
    "DynamicSlice": lambda f: f.give(0, f("Slice", *f.inputs)),
    "MeanVarianceNormalization": _mean_variance,
}
"""Those that stood among ai.onnx's before it had them, or that it never had."""
for _name, _function in EXPERIMENTAL.items():
    add(_name, _function, LEGACY)
add("GroupNormalization", _group_normalization, LEGACY)
add(
    "BatchNormalization", _batch_normalization, LEGACY,
    vjp=lambda f: of_trained_batch(f) if _trains(f) else f.through(_batch_normalization),
)  # fmt: skip
