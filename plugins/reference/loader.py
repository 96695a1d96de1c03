"""The loader of modules of kind ``reference``; imports onnx when such a module is loaded, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graft.errors import ArtifactError
from graft.runtime.packed_values import pack, unpack

Function = Callable[[Sequence[np.ndarray | None]], Sequence[np.ndarray]]


def load(name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> dict[str, Function]:
    """Return the one function of a module: arrays of the run-time inputs in, arrays of the outputs out.

    Raises ArtifactError if onnx is missing or the model is damaged.
    """
    try:
        import onnx

        from graft.plugins.reference.own import OWN, Evaluator
    except ImportError as error:
        raise ArtifactError(
            f"module '{name}' of kind 'reference' needs onnx to run; pip install onnx", module=name
        ) from error
    try:
        model = onnx.load_model_from_string(data)
        evaluator = Evaluator(model, new_ops=list(OWN))
    except Exception as error:  # protobuf's and the evaluator's own; any of them means the same
        raise ArtifactError(
            f"module '{name}' of kind 'reference' cannot be loaded: {error}; compile the model again", module=name
        ) from error
    run_time = [value.name for value in model.graph.input if value.name not in constants]
    packed = {value.name for value in (*model.graph.input, *model.graph.output) if is_packed(value)}
    outputs = [(value.name in packed, value.type, _dtype(value)) for value in model.graph.output]

    def run(inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        feeds: dict[str, Any] = {**constants}
        for name, array in zip(run_time, inputs, strict=True):
            feeds[name] = unpack(array) if name in packed and array is not None else array
        results = evaluator.run(None, feeds)
        return [
            pack(_value(result, kind)) if kept else _array(result, dtype)
            for result, (kept, kind, dtype) in zip(results, outputs, strict=True)
        ]

    return {name: run}


def is_packed(value: Any) -> bool:
    """Whether a value of a model comes and goes in packed bytes (`graft.core.graph.view.is_packed`)."""
    from onnx import TensorProto

    names = ("STRING", "INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "FLOAT8E8M0")
    kind = value.type
    if kind.WhichOneof("value") not in (None, "tensor_type"):
        return True
    return kind.tensor_type.elem_type in {TensorProto.DataType.Value(name) for name in names}


def _value(result: Any, kind: Any) -> Any:
    """Return a result of a type as it is packed: tensors in the dtype that is stated, optionals without a list around.

    onnx.reference has optionals both as their value and as a list of it.
    """
    from onnx import helper

    which = kind.WhichOneof("value")
    if which == "optional_type":
        inner = kind.optional_type.elem_type
        is_wrapped = isinstance(result, list) and len(result) == 1
        if is_wrapped and (inner.WhichOneof("value") == "tensor_type" or not isinstance(result[0], np.ndarray)):
            result = result[0]
        return None if result is None else _value(result, inner)
    if which == "sequence_type":
        return [_value(one, kind.sequence_type.elem_type) for one in result]
    element = kind.tensor_type.elem_type
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element)) if element else None
    return result if dtype is None or dtype.kind == "O" else _array(result, dtype)


def _dtype(value: Any) -> np.dtype | None:
    from onnx import helper

    kind = value.type.tensor_type.elem_type
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind)) if kind else None


def _array(result: Any, dtype: np.dtype | None) -> np.ndarray:
    """Return a result as an array of the dtype that the model states: onnx.reference sometimes gives a wider one."""
    array = np.asarray(result)
    return array if dtype is None or array.dtype == dtype else array.astype(dtype)
