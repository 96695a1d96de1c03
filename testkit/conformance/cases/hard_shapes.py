"""Models of one operator in the shapes, attributes and numbers that kernels get wrong, written by hand as rows.

ONNX's node tests have small, even, symmetric shapes. Here pads, strides and windows differ at each end and on each
axis; matrices and broadcasts are square, where a transposed or misaligned operand fits too; extents are 0, 1, odd,
prime, and beyond the tiles and vectors of kernels. What ONNX refuses of it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from graft.testkit.conformance.cases.outcome import Trial
from graft.testkit.conformance.cases.variants import is_valid
from graft.testkit.models.net import model_proto, typed

OPSET = 24
Shape = tuple[int, ...]
Given = Shape | np.ndarray | None
"""An input: the shape of floats that are drawn, a constant, or None where it is absent."""


@dataclass(frozen=True, slots=True)
class Row:
    """A model: inputs and attributes.

    With ``special``, one NaN and one infinity come in turns in the place of a float: it is clear how far they spread.
    """

    inputs: tuple[Given, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    special: bool = False

    def __str__(self) -> str:
        shown = "-".join("x".join(map(str, one)) or "scalar" for one in self.inputs if isinstance(one, tuple))
        constants = [",".join(map(str, one.reshape(-1))) for one in self.inputs if isinstance(one, np.ndarray)]
        said = [f"{name}={_text(value)}" for name, value in self.attributes.items()]
        return "-".join([shown, *constants, *said])


def hard_shapes(operator: str) -> Iterator[tuple[str, Trial]]:
    """Give the models of an operator of ONNX's main domain, with their names; equal ones each time."""
    for row in ROWS.get(operator, ()):
        trial = written(operator, row)
        if trial is None:
            continue
        yield str(row), trial
        if row.special:
            yield f"{row}-nan", _with_one(trial, np.nan)
            yield f"{row}-infinity", _with_one(trial, np.inf)


def written(operator: str, row: Row) -> Trial | None:
    """Return a row as a model of an operator, None where ONNX refuses it."""
    rng = np.random.default_rng(crc32(f"{operator} {row}".encode()))
    feeds: dict[str, np.ndarray] = {}
    constants: list[onnx.TensorProto] = []
    names = []
    for number, given in enumerate(row.inputs):
        name = "" if given is None else f"x{number}"
        names.append(name)
        if isinstance(given, tuple):
            feeds[name] = np.asarray(_drawn(operator, number, given, rng), np.float32)
        elif given is not None:
            constants.append(numpy_helper.from_array(given, name))
    outputs = ["y", *(f"y{number}" for number in range(1, RESULTS.get(operator, 1)))]
    node = helper.make_node(operator, names, outputs, name="n", **row.attributes)
    inputs = [typed(name, array) for name, array in feeds.items()]
    proto = model_proto([node], inputs, [helper.make_empty_tensor_value_info(one) for one in outputs], constants, OPSET)
    try:
        proto = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return None
    return Trial(proto, feeds) if is_valid(proto) else None


def _drawn(operator: str, number: int, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return numbers of both signs; positive ones for variances and the like, near 1 for long products."""
    if operator in POSITIVE or (operator, number) in POSITIVE_OPERANDS:
        return rng.uniform(0.5, 1.5, shape)
    return rng.normal(size=shape)


def _with_one(trial: Trial, value: float) -> Trial:
    """Return the trial with one element of its first input another one, in the middle."""
    name, array = next(iter(trial.feeds.items()))
    changed = np.array(array)
    changed.reshape(-1)[array.size // 2] = value
    return Trial(trial.proto, {**trial.feeds, name: changed})


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    """Return a shape with another extent along an axis."""
    changed = list(shape)
    changed[axis] = extent
    return tuple(changed)


def _windows(pads: bool = True, **more: Any) -> list[dict[str, Any]]:
    """Return attributes of windows over images: each differs between axes and ends in another way."""
    found: list[dict[str, Any]] = [
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [3, 3], "pads": [1, 0, 0, 2]},
        {"kernel_shape": [2, 3], "pads": [0, 1, 1, 0], "strides": [2, 1]},
        {"kernel_shape": [3, 3], "pads": [2, 0, 1, 1], "strides": [1, 3]},
        {"kernel_shape": [2, 3], "dilations": [3, 1], "pads": [0, 2, 1, 0]},
        {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 2, 1], "strides": [2, 1]},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ]
    return [{**one, **more} for one in found if pads or "auto_pad" not in one]


IMAGES: tuple[Shape, ...] = ((1, 3, 7, 11), (2, 17, 8, 5))
POSITIVE = frozenset({"ReduceProd", "ReduceLogSum", "ReduceLogSumExp", "CumProd"})
POSITIVE_OPERANDS = frozenset({("BatchNormalization", 4)})
RESULTS = {"TopK": 2, "Split": 2, "MaxPool": 1}
POOLS = (
    *(Row((image,), attributes) for image in IMAGES for attributes in _windows()),
    Row(((0, 3, 7, 11),), {"kernel_shape": [3, 2]}),
    Row(((2, 3, 17),), {"kernel_shape": [4], "pads": [1, 2], "strides": [3]}),
    Row(((2, 3, 1, 9),), {"kernel_shape": [1, 3], "pads": [0, 1, 0, 0]}),
    Row(((2, 3, 9, 1),), {"kernel_shape": [3, 1], "strides": [2, 1]}),
)
PRODUCTS: tuple[tuple[Shape, Shape], ...] = (
    ((1, 1), (1, 1)), ((3, 0), (0, 2)), ((0, 3), (3, 2)), ((3, 3), (3, 3)), ((5, 1), (1, 5)), ((1, 255), (255, 1)),
    ((2, 256), (256, 3)), ((3, 257), (257, 2)), ((5, 300), (300, 7)), ((33, 512), (512, 17)), ((7, 1031), (1031, 1)),
    ((3,), (3, 3)), ((3, 3), (3,)), ((3,), (3,)), ((2, 3, 3), (3, 3)), ((3, 3), (2, 3, 3)), ((2, 1, 3, 4), (3, 4, 5)),
    ((67, 129), (129, 131)), ((5, 3, 4), (5, 4, 2)), ((3, 2, 4), (4,)), ((4,), (3, 4, 2)), ((2, 3, 4), (3, 1, 4, 5)),
    ((3, 2, 2, 4), (3, 2, 4, 2)), ((1, 3, 2, 4), (3, 1, 4, 2)),
)  # fmt: skip
EVERY_AXIS = tuple(
    (shape, axis - len(shape) * (axis % 2))
    for shape in ((5,), (3, 4), (2, 3, 4), (3, 2, 4, 3), (2, 3, 2, 2, 3))
    for axis in range(len(shape))
)
"""Each axis of shapes of each rank, every other one counted from the end."""
AXES: tuple[tuple[Shape, tuple[int, ...]], ...] = (
    ((3, 3), (0,)), ((3, 3), (-1,)), ((3, 3, 3), (1,)), ((3, 3, 3), (0, 2)), ((2, 0, 3), (1,)), ((1,), (0,)),
    ((5, 257), (1,)), ((257, 5), (0,)), ((2, 4099), (-1,)), ((1, 3, 7, 11), (2, 3)), ((10007,), (0,)),
)  # fmt: skip
REDUCED = tuple(
    Row((shape, _whole(*axes)), {"keepdims": keep}, special=0 not in shape)
    for number, (shape, axes) in enumerate(AXES)
    for keep in (number % 2,)
)
ONE_REDUCED = tuple(Row((shape, _whole(axis)), {"keepdims": axis % 2}) for shape, axis in EVERY_AXIS)
EMPTY_FREE = (*(row for row in REDUCED if row.special), *ONE_REDUCED)
PLAIN = tuple(replace(row, special=False) for row in EMPTY_FREE)
ALONG_AXIS = tuple(
    Row((shape,), {"axis": axis}, special=True)
    for shape, axis in (
        ((3, 3), 0), ((3, 3), 1), ((3, 3, 3), 1), ((5, 257), -1), ((257, 5), 0), ((2, 4099), -1), ((1, 1), 1),
        ((7,), 0),
    )
) + tuple(Row((shape,), {"axis": axis}) for shape, axis in EVERY_AXIS)  # fmt: skip
EMPTY = Row(((0, 3),), {"axis": 1})
ORDERS = ([1, 2, 0], [2, 0, 1], [0, 2, 1], [1, 0, 2])
CONVOLUTIONS = tuple(
    Row(((1, 6, 9, 7), (4, 6 // group, *attributes["kernel_shape"]), (4,)), {**attributes, "group": group})
    for attributes in _windows()
    for group in (1, 2)
)
_TRANSPOSED: tuple[dict[str, Any], ...] = (
    {"strides": [2, 3]}, {"strides": [3, 2], "pads": [1, 0, 0, 1]}, {"dilations": [2, 1]},
    {"output_padding": [1, 0], "strides": [2, 2]}, {"strides": [2, 1], "dilations": [2, 3], "group": 2},
)  # fmt: skip
ROWS: Mapping[str, tuple[Row, ...]] = {
    "MatMul": tuple(Row(pair, special=0 not in pair[0]) for pair in PRODUCTS),
    "Gemm": (
        *(Row((left, right, None)[:2]) for left, right in PRODUCTS if len(left) == len(right) == 2),
        *(
            Row(((3, 3), (3, 3), bias), {"transA": a, "transB": b, "alpha": 0.5, "beta": 2.0})
            for a, b, bias in ((0, 1, (3,)), (1, 0, (3, 1)), (1, 1, ()), (0, 0, (1, 3)))
        ),
        Row(((257, 5), (7, 257), (7,)), {"transA": 1, "transB": 1}),
    ),
    "Conv": (
        *CONVOLUTIONS,
        Row(((1, 257, 3, 3), (2, 257, 1, 1))),
        Row(((2, 1, 1, 1), (3, 1, 3, 3), (3,)), {"pads": [1, 1, 1, 1]}),
        Row(((1, 33, 13, 11), (67, 33, 1, 1), (67,))),
        Row(((1, 5, 9, 9), (5, 1, 3, 3)), {"group": 5, "pads": [2, 0, 0, 1]}),
        Row(((1, 3, 17), (2, 3, 4)), {"pads": [3, 0], "strides": [2]}),
        Row(((0, 3, 5, 5), (2, 3, 3, 3), (2,)), {"pads": [1, 1, 1, 1]}),
    ),
    "ConvTranspose": tuple(
        Row(((1, 4, 5, 4), (4, 3, 3, 2), (3 * attributes.get("group", 1),)), attributes)
        for attributes in _TRANSPOSED
    ),
    "MaxPool": (*POOLS, *(Row(((1, 3, 8, 7),), {**one, "ceil_mode": 1}) for one in _windows(False))),
    "AveragePool": (
        *POOLS,
        *(Row(((1, 3, 8, 7),), {**one, "count_include_pad": 1}) for one in _windows(False)),
    ),
    "GlobalAveragePool": (Row(((2, 3, 1, 1),)), Row(((1, 5, 17, 13),)), Row(((3, 3, 3, 3),)), Row(((0, 3, 5, 5),))),
    "GlobalMaxPool": (Row(((2, 3, 1, 1),)), Row(((1, 5, 17, 13),)), Row(((3, 3, 3, 3),))),
    **dict.fromkeys(("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"), (*REDUCED, *ONE_REDUCED)),
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogSum"), EMPTY_FREE),
    **dict.fromkeys(("ReduceProd", "ReduceLogSumExp"), PLAIN),  # an infinity meets zero, or itself, by order alone
    **dict.fromkeys(("Softmax", "LogSoftmax"), (*ALONG_AXIS, EMPTY)),
    **dict.fromkeys(
        ("ArgMax", "ArgMin"),
        tuple(Row(row.inputs, {**row.attributes, "keepdims": n % 2}) for n, row in enumerate((*ALONG_AXIS, EMPTY))),
    ),
    "Transpose": (
        *(Row(((3, 3, 3),), {"perm": order}) for order in ORDERS),
        *(Row(((2, 5, 67),), {"perm": order}) for order in ORDERS),
        Row(((131, 97),)),
        Row(((5,),)), Row(((2, 0, 3),), {"perm": [2, 0, 1]}), Row(((2, 3, 1, 5, 2),), {"perm": [3, 1, 4, 0, 2]}),
        Row(((2, 1, 3, 2, 2, 3),), {"perm": [5, 3, 0, 4, 1, 2]}),
    ),
    "Concat": (
        *(Row(((3, 3), (3, 3), (3, 3)), {"axis": axis}) for axis in (0, 1, -1)),
        Row(((2, 0, 3), (2, 5, 3)), {"axis": 1}), Row(((1, 257), (1, 1)), {"axis": -1}),
        Row(((3,), (5,)), {"axis": 0}), Row(((2, 3),) * 7, {"axis": 1}),
        *(Row((shape, _with_extent(shape, axis, 1), shape), {"axis": axis}) for shape, axis in EVERY_AXIS),
    ),
    "Split": (
        Row(((5, 5), _whole(2, 3)), {"axis": 0}), Row(((5, 5), _whole(4, 1)), {"axis": -1}),
        Row(((6, 6, 2), _whole(0, 6)), {"axis": 1}), Row(((7,), _whole(3, 4)), {"axis": 0}),
        *(Row((shape, _whole(1, shape[axis] - 1)), {"axis": axis}) for shape, axis in EVERY_AXIS),
    ),
    "Slice": (
        Row(((5, 5), _whole(1), _whole(4), _whole(0))), Row(((5, 5), _whole(-1), _whole(-6), _whole(1), _whole(-2))),
        Row(((7, 5, 3), _whole(1, 0), _whole(1000, -1), _whole(-3, 2), _whole(2, 1))),
        Row(((5, 5), _whole(3), _whole(3))), Row(((0, 5), _whole(1), _whole(4), _whole(1))),
        Row(((5,), _whole(-2), _whole(-5), _whole(0), _whole(-1))),
        *(Row((shape, _whole(1), _whole(99), _whole(axis))) for shape, axis in EVERY_AXIS),
        *(Row((shape, _whole(-1), _whole(-99), _whole(axis), _whole(-2))) for shape, axis in EVERY_AXIS),
    ),
    "Gather": (
        Row(((3, 3), _whole(-1, 0, 1)), {"axis": 1}), Row(((3, 3), _whole(2, 2)), {"axis": 0}),
        Row(((5, 4, 3), np.array([[0, -2], [3, 1]])), {"axis": -2}), Row(((4, 3), np.array(2)), {"axis": 0}),
        Row(((4, 3), _whole()), {"axis": 0}), Row(((3, 0), _whole(2, 0)), {"axis": 0}), Row(((5,), _whole(-1, 3))),
        *(Row((shape, np.array([[1, -1, 0], [0, 1, -2]])), {"axis": axis}) for shape, axis in EVERY_AXIS),
    ),
    "Pad": (
        *(Row(((3, 4), _whole(2, 0, 1, 3)), {"mode": mode}) for mode in ("constant", "edge", "wrap")),
        Row(((3, 4), _whole(2, 0, 1, 3), np.array(2.5, np.float32))),
        Row(((4, 5), _whole(2, 0, 1, 3)), {"mode": "reflect"}),
    ),
    "Reshape": (
        Row(((2, 3, 4), _whole(0, -1))), Row(((2, 3, 4), _whole(4, 3, 2))),
        Row(((0, 3), _whole(3, 0)), {"allowzero": 1}),
    ),
    "Expand": (Row(((3, 1), _whole(3, 3))), Row(((3,), _whole(3, 3))), Row(((1, 1), _whole(2, 1, 257)))),
    "Tile": (Row(((3, 3), _whole(2, 1))), Row(((3, 3), _whole(1, 3))), Row(((2, 1), _whole(0, 2)))),
    "CumSum": (
        *(
            Row(((5, 5), np.array(axis)), {"exclusive": exclusive, "reverse": back})
            for axis, exclusive, back in ((0, 0, 1), (1, 1, 0), (-1, 1, 1))
        ),
        Row(((7,), np.array(0))), Row(((0, 3), np.array(1))),
        *(Row((shape, np.array(axis)), {"reverse": axis % 2}) for shape, axis in EVERY_AXIS),
    ),
    "TopK": (
        *(Row(((5, 5), _whole(3)), {"axis": axis, "largest": largest}) for axis, largest in ((0, 1), (1, 0), (-1, 1))),
        *(Row((shape, _whole(2)), {"axis": axis, "largest": axis % 2}) for shape, axis in EVERY_AXIS),
    ),
    "LayerNormalization": (
        Row(((3, 3), (3,), (3,))), Row(((3, 3, 3), (3, 3), (3, 3)), {"axis": 1}), Row(((5, 257), (257,), (257,))),
    ),
    "BatchNormalization": (Row(((3, 3, 3, 3), (3,), (3,), (3,), (3,))), Row(((1, 17, 5), (17,), (17,), (17,), (17,)))),
    "InstanceNormalization": (Row(((3, 3, 3, 3), (3,), (3,))), Row(((2, 5, 17), (5,), (5,)))),
    "PRelu": (Row(((3, 3), (3,))), Row(((3, 3), (3, 1))), Row(((2, 5, 3), (5, 1)))),
    "Sum": (Row(((3, 3), (3,), (3, 1))), Row(((257,), (1,)))),
    "DepthToSpace": tuple(Row(((1, 8, 2, 3),), {"blocksize": 2, "mode": mode}) for mode in ("DCR", "CRD")),
    "SpaceToDepth": (Row(((1, 2, 4, 6),), {"blocksize": 2}),),
    "Flatten": (Row(((2, 3, 4),), {"axis": 2}), Row(((2, 3, 4),), {"axis": 0}), Row(((2, 3, 4),), {"axis": -1})),
}  # fmt: skip
"""By operator."""
