"""Other runtimes on the same model and inputs, to compare with."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from graft.errors import GraftError

if TYPE_CHECKING:
    import onnx_ir as ir

Run = Callable[[], object]


def peer(name: str, model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int, precision: str = "float32") -> Run:
    """Return a call of a peer on the same model and inputs, which gives the list of outputs.

    Only OpenVINO has another ``precision`` than float32 here, ``bf16``. Raises GraftError if the peer is unknown or not
    installed.
    """
    if name not in PEERS:
        raise GraftError(f"cannot compare with '{name}'; choose among {', '.join(COMPARE)}", peer=name)
    try:
        if name == "openvino":
            return _openvino(model, feeds, threads, "bf16" if precision == "bf16" else "f32")
        return PEERS[name](model, feeds, threads)
    except ImportError as error:
        raise GraftError(f"{name} is not installed; {INSTALL[name]}", peer=name) from error


def _onnxruntime(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Run:
    import onnx_ir as ir
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    text = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(feeds))


def _openvino(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int, hint: str = "f32") -> Run:
    """OpenVINO in float32 or bfloat16 (``hint``), its own choice where the processor can. Arrays are not copied."""
    import onnx_ir as ir
    import openvino

    config = {
        "INFERENCE_PRECISION_HINT": hint,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(ir.to_proto(model).SerializeToString()), "CPU", config)
    request = compiled.create_infer_request()
    arrays = [feeds[one.name or ""] for one in model.graph.inputs]

    def run() -> list[np.ndarray]:
        results = request.infer(arrays, share_inputs=True, share_outputs=True)
        return [results[port] for port in compiled.outputs]

    return run


def _mnn(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Run:
    """MNN in full float32, from its own format; integers are 32 bits wide there."""
    import onnx_ir as ir

    with _quiet():
        import MNN
        from _tools import mnnconvert
    inputs, outputs = ([value.name or "" for value in row] for row in (model.graph.inputs, model.graph.outputs))
    with TemporaryDirectory() as folder, chdir(folder), _quiet():  # the converter leaves a file where it runs
        manager = MNN.nn.create_runtime_manager(({"backend": "CPU", "precision": "high", "numThread": threads},))
        source, converted = Path(folder, "model.onnx"), Path(folder, "model.mnn")
        source.write_bytes(ir.to_proto(model).SerializeToString())
        mnnconvert(["", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(converted), "--bizCode", ""])
        if not converted.exists():
            raise GraftError("MNN cannot convert the model", peer="mnn")
        network = MNN.nn.load_module_from_file(str(converted), inputs, outputs, runtime_manager=manager)
    constants = []
    for name in inputs:
        wide = feeds[name].dtype.kind == "f"
        array = np.ascontiguousarray(feeds[name], np.float32 if wide else np.int32)
        kind = MNN.expr.float if wide else MNN.expr.int
        constants.append(MNN.expr.const(array, list(array.shape), MNN.expr.NCHW, kind))

    def run() -> list[np.ndarray]:
        results = network.forward(constants)
        return [np.array(one.read()) for one in (results if isinstance(results, list) else [results])]

    return run


@contextmanager
def _quiet() -> Iterator[None]:
    """Send what a library prints to nowhere."""
    flush = ctypes.CDLL(None).fflush
    kept = os.dup(1), os.dup(2)
    try:
        flush(None)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        flush(None)
        for number, copy in enumerate(kept, 1):
            os.dup2(copy, number)
            os.close(copy)


PEERS: Mapping[str, Callable[[ir.Model, Mapping[str, np.ndarray], int], Run]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "mnn": _mnn,
}
COMPARE = tuple(PEERS)
PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "mnn": "MNN"}
"""What each peer is imported as."""
INSTALL = {
    "onnxruntime": "pip install 'graft-compiler[onnxruntime]'",
    "openvino": "pip install openvino",
    "mnn": "pip install MNN",
}
