"""Operators of ``ai.onnx.ml`` over ONNX's own: what scikit-learn's models are made of.

Attributes hold the parameters of the models; numbers are computed in the type of the input, float32 of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from graft.core.operators.definition.function_body import Body
from graft.core.operators.functions.microsoft import add as add_to

DOMAIN = "ai.onnx.ml"
INTEGERS = (TensorProto.INT32, TensorProto.INT64)


def add(name: str, function: Callable[[Body], None]) -> None:
    """Add an operator that is expanded to the table."""
    add_to(name, function, DOMAIN)


def _numbers(f: Body) -> str:
    """Return the input as float32, in which ONNX's machine learning counts."""
    return f.cast(f.input(0), TensorProto.FLOAT)


def _vector(f: Body, name: str) -> str:
    return f.constant(np.array(f.attribute(name), np.float32))


def transformed(f: Body, scores: str, transform: str) -> str:
    """Return scores ``[n, class]`` after what ``post_transform`` says."""
    match transform:
        case "LOGISTIC":
            return f("Sigmoid", scores)
        case "SOFTMAX":
            return f.softmax(scores)
        case "SOFTMAX_ZERO":  # scores of 0 stay, and do not count
            zero = f("Equal", scores, f.like(0, scores))
            power = f("Exp", f("Sub", scores, f("ReduceMax", scores, f.ints(-1))))
            power = f("Where", zero, f.like(0, scores), power)
            return f("Div", power, f("ReduceSum", power, f.ints(-1)))
        case "PROBIT":
            f.require(False, "post_transform PROBIT is not known")
    f.require(transform in ("NONE", ""), f"post_transform {transform} is not known")
    return scores


# ---- Features -----------------------------------------------------------------------------------------------------


def _scaler(f: Body) -> None:
    x = f("Sub", _numbers(f), _vector(f, "offset"))
    f.give(0, f("Mul", x, _vector(f, "scale")))


def _normalizer(f: Body) -> None:
    """Rows are divided by their largest magnitude, sum or length; a row of zeros stays."""
    x, kind = _numbers(f), f.attribute("norm", "MAX")
    f.require(kind in ("MAX", "L1", "L2"), f"norm is {kind!r}, where one of 'MAX', 'L1', 'L2' is expected")
    if kind == "MAX":
        size = f("ReduceMax", x, f.ints(-1))
    else:
        size = f("ReduceL1" if kind == "L1" else "ReduceL2", x, f.ints(-1))
    none = f("Equal", size, f.like(0, size))
    f.give(0, f("Div", x, f("Where", none, f.like(1, size), size)))


def _binarizer(f: Body) -> None:
    x = f.input(0)
    above = f("Greater", x, f.like(f.attribute("threshold", 0.0), x))
    f.give(0, f("Cast", above, to=f.dtype(x)))


def _imputer(f: Body) -> None:
    """Elements equal to one value, which may be a NaN, become another, of their column."""
    x = f.input(0)
    whole = f.dtype(x) in INTEGERS
    values = f.attribute("imputed_value_int64s" if whole else "imputed_value_floats", [])
    missing = f.attribute("replaced_value_int64" if whole else "replaced_value_float", 0)
    f.require(bool(values), "it has no values to put in")
    wrong = f("IsNaN", x) if math.isnan(missing) else f("Equal", x, f.like(missing, x))
    filler = f.cast(f.constant(np.array(values, np.int64 if whole else np.float32)), f.dtype(x))
    f.give(0, f("Where", wrong, filler, x))


def _one_hot(f: Body) -> None:
    numbers, texts = f.attribute("cats_int64s", []), f.attribute("cats_strings", [])
    f.require(bool(numbers or texts), "it names no categories")
    x = f("Cast", f.input(0), to=TensorProto.INT64) if numbers else f.input(0)
    categories = np.array(numbers, np.int64) if numbers else np.array(texts, object)
    same = f("Equal", f.unsqueezed(x, -1), f.constant(categories))
    f.require(f.attribute("zeros", 1) == 1, "zeros is 0: an unknown category is an error, which kernels do not raise")
    f.give(0, f("Cast", same, to=TensorProto.FLOAT))


def _label_encoder(f: Body) -> None:
    """Keys and values are numbers: the place of the key that is equal says which value, the default where none is."""
    x = f.input(0)
    keys, values, fallback = _table(f)
    f.require(len(keys) == len(values) and len(keys) > 0, "its keys and values are not as many")
    columns = f.constant(keys)
    same = f("Equal", f.unsqueezed(x, -1), f.cast(columns, f.dtype(x)))
    if np.isnan(keys.astype(np.float64)).any():
        nan = f.constant(np.isnan(keys))
        same = f("Or", same, f("And", f.unsqueezed(f("IsNaN", x), -1), nan))
    found = f("Cast", same, to=TensorProto.INT64)
    at = f("ArgMax", found, axis=-1, keepdims=0)
    result = f("Gather", f.constant(values), at)
    known = f("Cast", f("ReduceMax", found, f.ints(-1), keepdims=0), to=TensorProto.BOOL)
    f.give(0, f("Where", known, result, f.constant(np.array(fallback, values.dtype))))


def _table(f: Body) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return keys, values and default of a LabelEncoder."""
    kinds = {"int64s": np.int64, "floats": np.float32}
    found = {}
    for part in ("keys", "values"):
        name = next((one for one in kinds if f.attribute(f"{part}_{one}")), "")
        tensor = f.attribute(f"{part}_tensor")
        if tensor is not None:
            found[part] = onnx.numpy_helper.to_array(tensor)
        else:
            f.require(bool(name), "it encodes text, which is not lowered")
            found[part] = np.array(f.attribute(f"{part}_{name}"), kinds[name])
    keys, values = found["keys"], found["values"]
    f.require(keys.dtype.kind in "iuf" and values.dtype.kind in "iuf", "it encodes text, which is not lowered")
    tensor = f.attribute("default_tensor")
    if tensor is not None:
        return keys, values, onnx.numpy_helper.to_array(tensor).reshape(())[()]
    if values.dtype.kind == "f":
        return keys, values, f.attribute("default_float", -0.0)
    return keys, values, f.attribute("default_int64", -1)


def _vectorizer(f: Body) -> None:
    parts = []
    for name in f.inputs:
        x = f.cast(name, TensorProto.FLOAT)
        parts.append(f.reshaped(x, 1, -1) if f.rank(x) == 1 else x)
    f.give(0, f.concatenated(*parts, axis=1))


def _extractor(f: Body) -> None:
    """Columns by number, along the last axis; a vector counts as one row."""
    x = f.input(0)
    x = f.reshaped(x, 1, -1) if f.rank(x) == 1 else x
    f.give(0, f("Gather", x, f.reshaped(f.cast(f.input(1), TensorProto.INT64), -1), axis=-1))


add("Scaler", _scaler)
add("Normalizer", _normalizer)
add("Binarizer", _binarizer)
add("Imputer", _imputer)
add("OneHotEncoder", _one_hot)
add("LabelEncoder", _label_encoder)
add("FeatureVectorizer", _vectorizer)
add("ArrayFeatureExtractor", _extractor)

# ---- Linear models ------------------------------------------------------------------------------------------------


def _linear(f: Body, rows: int, weights: str = "coefficients") -> str:
    """Return ``x @ coefficients' + intercepts``."""
    factors = np.array(f.attribute(weights), np.float32).reshape(rows, -1)
    y = f("MatMul", _row(f), f.constant(np.ascontiguousarray(factors.T)))
    intercepts = f.attribute("intercepts", [])
    return f("Add", y, f.constant(np.array(intercepts, np.float32))) if intercepts else y


def _row(f: Body) -> str:
    """Return the input as rows: a vector is one."""
    x = _numbers(f)
    return f.reshaped(x, 1, -1) if f.rank(x) == 1 else x


def _linear_regressor(f: Body) -> None:
    y = _linear(f, f.attribute("targets", 1))
    f.give(0, transformed(f, y, f.attribute("post_transform", "NONE")))


def labelled(f: Body, best: str, labels: np.ndarray) -> None:
    """Give the label of the class of number ``best`` ``[n]``."""
    f.give(0, f("Gather", f.constant(labels), best))


def class_labels(f: Body, name: str) -> np.ndarray:
    """Return the labels of classes: whole numbers, of the attribute ``name``, or text."""
    numbers, texts = f.attribute(name, []), f.attribute("classlabels_strings", [])
    f.require(bool(numbers or texts), "it names no classes")
    return np.array(numbers, np.int64) if numbers else np.array(texts, object)


def _linear_classifier(f: Body) -> None:
    """A model of one row is of two classes: the score of the first is what is left of that of the second."""
    labels = class_labels(f, "classlabels_ints")
    rows = len(f.attribute("intercepts", [])) or len(labels)
    scores = _linear(f, rows)
    transform = f.attribute("post_transform", "NONE")
    if rows == 1 and len(labels) == 2:
        second = f("Sigmoid", scores) if transform == "LOGISTIC" else scores
        above = f("Greater", f("Squeeze", scores, f.ints(1)), f.like(0, scores))
        labelled(f, f("Cast", above, to=TensorProto.INT64), labels)
        f.give(1, f.concatenated(f("Sub", f.like(1, scores), second), second, axis=1))
        return
    labelled(f, f("ArgMax", scores, axis=1, keepdims=0), labels)
    f.give(1, transformed(f, scores, transform))


add("LinearRegressor", _linear_regressor)
add("LinearClassifier", _linear_classifier)
