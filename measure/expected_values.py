"""What values of a model are as ONNX's reference, or ONNX Runtime, computes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.errors import GraftError, VerifyError
from graft.runtime.extents import Symbol

PEERS = ("reference", "onnxruntime")


def evaluate(
    model: ir.Model, feeds: Mapping[str, np.ndarray], names: Sequence[str], against: str
) -> dict[str, np.ndarray]:
    """Return the values called ``names`` of the model's main graph as the peer ``against`` computes them.

    Raises VerifyError if the peer cannot run the model, GraftError if it is not installed.
    """
    proto = ir.to_proto(model)
    known = {value.name for value in proto.graph.output}
    values = {value.name: value for node in model.graph for value in node.outputs}
    for name in names:
        if name not in known:
            proto.graph.output.append(ir.to_proto(values[name]))
    run = _reference if against == "reference" else _onnxruntime
    try:
        results = run(proto, feeds, names)
    except GraftError:
        raise
    except Exception as error:  # whatever the peer raises: it is the peer that cannot run the model
        other = PEERS[against == PEERS[0]]
        raise VerifyError(
            f"{against} cannot run the model ({type(error).__name__}: {error}); verify against '{other}'",
            against=against,
        ) from error
    return dict(zip(names, (np.asarray(result) for result in results), strict=True))


def _reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    results = list(ReferenceEvaluator(model).run(list(names), dict(feeds)))
    return results


def _onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> list[Any]:
    try:
        import onnxruntime
    except ImportError as error:
        raise GraftError(
            "onnxruntime is not installed; pip install 'graft-compiler[onnxruntime]'", against="onnxruntime"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(list(names), dict(feeds))
    return results


def symbols_in(values: Iterable[ir.Value], arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the numbers that symbols have, by the axes of values that are a symbol alone."""
    named = ((value, value.name or "") for value in values)
    shapes = [(dimensions_of(value) or (), arrays[name].shape) for value, name in named if name in arrays]
    axes = (axis for extents, shape in shapes for axis in zip(extents, shape, strict=True))
    return {extent.name: number for extent, number in axes if isinstance(extent, Symbol)}
