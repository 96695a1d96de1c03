"""ONNX Runtime, OpenVINO and MNN as peers: runtimes that read ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import chdir
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from graft.errors import GraftError
from graft.runtime.system.printed import printed

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

Run = Callable[[], object]
Call = Callable[[Mapping[str, np.ndarray]], Any]


def onnxruntime_call(model: onnx.ModelProto, threads: int = 0, is_optimised: bool = True) -> Call:
    """Return a call of ONNX Runtime, made once for every shape, which gives the list of outputs.

    With 0 ``threads`` it takes as many as it likes.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))


def onnxruntime_run(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Run:
    """Return a call of ONNX Runtime with feeds."""
    import onnx_ir as ir

    return partial(onnxruntime_call(ir.to_proto(model), threads), feeds)


def openvino_run(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int, hint: str = "f32") -> Run:
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


def mnn_run(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Run:
    """MNN in full float32, from its own format; integers are 32 bits wide there.

    Raise GraftError where MNN cannot convert it.
    """
    import onnx_ir as ir

    with printed():
        import MNN
        from _tools import mnnconvert
    inputs, outputs = ([value.name or "" for value in row] for row in (model.graph.inputs, model.graph.outputs))
    with TemporaryDirectory() as folder, chdir(folder), printed():  # the converter leaves a file where it runs
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
