"""One model by another tool, in the Python in which that is installed: `python other_tool.py TOOL IN DATA OUT`.

DATA is an `.npz` file with the arrays of each input for all batches, stacked along a first axis of their own.
Activations are int8 with a zero point, weights int8 by channel. What the tool took, in seconds, is the last line that
is printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

import numpy as np


class Reader:
    """What ONNX Runtime, and tools like it, call a calibration data reader."""

    def __init__(self, path: str) -> None:
        self._arrays = dict(np.load(path))
        self.rewind()

    def rewind(self) -> None:
        """Begin again."""
        self._rows = iter(range(len(next(iter(self._arrays.values())))))

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """Return the next batch, None behind the last."""
        row = next(self._rows, None)
        return None if row is None else {name: array[row] for name, array in self._arrays.items()}

    def __iter__(self) -> Reader:
        self.rewind()
        return self

    def __next__(self) -> Mapping[str, np.ndarray]:
        found = self.get_next()
        if found is None:
            raise StopIteration
        return found


def by_onnxruntime(before: str, reader: Reader, after: str) -> None:
    """Quantise by ONNX Runtime's quantiser."""
    from onnxruntime.quantization import QuantType, quantize_static

    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(before, after, reader, per_channel=True, **kinds)


def by_quark(before: str, reader: Reader, after: str) -> None:
    """Quantise by AMD Quark."""
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config.config import Config
    from quark.onnx.quantization.config.custom_config import get_default_config

    own = get_default_config("S8S8_AAWS")
    own.per_channel = True
    ModelQuantizer(Config(global_quant_config=own)).quantize_model(before, after, reader)


def by_neural_compressor(before: str, reader: Reader, after: str) -> None:
    """Quantise by ONNX Neural Compressor, which Intel's has become for ONNX."""
    from onnx_neural_compressor.quantization import QuantFormat, QuantType, config, quantize

    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    given = config.StaticQuantConfig(reader, quant_format=QuantFormat.QDQ, per_channel=True, **kinds)
    quantize(before, after, given)


TOOLS: dict[str, Callable[[str, Reader, str], None]] = {
    "onnxruntime": by_onnxruntime, "quark": by_quark, "neural-compressor": by_neural_compressor,
}  # fmt: skip


def main() -> None:
    """Quantise a model and print the seconds that it took, imports aside."""
    tool, before, data, after = sys.argv[1:]
    if tool == "quark":
        import quark.onnx  # noqa: F401  (it compiles its operators)
    began = time.perf_counter()
    TOOLS[tool](before, Reader(data), after)
    print(f"\n{time.perf_counter() - began:.2f}")


if __name__ == "__main__":
    main()
