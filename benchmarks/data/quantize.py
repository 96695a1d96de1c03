"""Models of 8-bit integers in QDQ form, quantised at run time by ONNX Runtime's own tool from seeded inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnx_ir as ir

import graft
from graft.compiler.driver import prepare
from graft.core.shapes.sample_inputs import sample_inputs

CALIBRATION = 4
"""Inputs from which the ranges of activations are taken."""


def quantized(source: ir.Model, *, signed: bool = False, operators: bool = False) -> ir.Model:
    """Return a float model with weights of int8, a scale for each channel, and activations of uint8 or int8.

    In QDQ form, or with ``operators`` in that of QLinear operators. Needs onnxruntime.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    with TemporaryDirectory() as folder:
        before, after = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(ir.to_proto(prepare(source)), before)
        quantize_static(
            before,
            after,
            _Inputs(source),
            quant_format=QuantFormat.QOperator if operators else QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return graft.load(onnx.load(after))


class _Inputs:
    """What ONNX Runtime calls a calibration data reader."""

    def __init__(self, model: ir.Model) -> None:
        self._feeds: Iterator[Mapping[str, np.ndarray]] = iter(
            [sample_inputs(model, seed) for seed in range(CALIBRATION)]
        )

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """Return the next inputs, None at the end."""
        return next(self._feeds, None)
