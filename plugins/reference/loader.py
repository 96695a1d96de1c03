"""The loader of modules of kind ``reference``; imports onnx when such a module is loaded, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graft.errors import ArtifactError

Function = Callable[[Sequence[np.ndarray | None]], Sequence[np.ndarray]]


def load(name: str, data: bytes, constants: Mapping[str, np.ndarray]) -> dict[str, Function]:
    """Return the one function of a module: arrays of the run-time inputs in, arrays of the outputs out.

    Raises ArtifactError if onnx is missing or the model is damaged.
    """
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator

        from graft.plugins.reference.own import OWN
    except ImportError as error:
        raise ArtifactError(
            f"module '{name}' of kind 'reference' needs onnx to run; pip install onnx", module=name
        ) from error
    try:
        model = onnx.load_model_from_string(data)
        evaluator = ReferenceEvaluator(model, new_ops=list(OWN))
    except Exception as error:  # protobuf's and the evaluator's own; any of them means the same
        raise ArtifactError(
            f"module '{name}' of kind 'reference' cannot be loaded: {error}; compile the model again", module=name
        ) from error
    run_time = [value.name for value in model.graph.input if value.name not in constants]
    dtypes = [_dtype(value) for value in model.graph.output]

    def run(inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        feeds: dict[str, Any] = {**constants, **dict(zip(run_time, inputs, strict=True))}
        results = evaluator.run(None, feeds)
        return [_array(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]

    return {name: run}


def _dtype(value: Any) -> np.dtype | None:
    from onnx import helper

    kind = value.type.tensor_type.elem_type
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind)) if kind else None


def _array(result: Any, dtype: np.dtype | None) -> np.ndarray:
    """Return a result as an array of the dtype that the model states: onnx.reference sometimes gives a wider one."""
    array = np.asarray(result)
    return array if dtype is None or array.dtype == dtype else array.astype(dtype)
