"""IREE as a peer: imported from ONNX, compiled for this processor, weights in a file of their own.

Its convolutions run as products with packed factors, which is a multiple faster than what it does by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import iree.runtime
import numpy as np
import onnx_ir as ir
from iree.compiler import compile_file
from iree.compiler.tools.import_onnx import __main__ as importer

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-llvmcpu-stack-allocation-limit=262144",  # its tiles of wide rows need more than it allows by itself
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
    "--iree-global-opt-use-im2col-for-convs",
)


def iree_run(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Callable[[], object]:
    """Return a call of the compiled model, which gives the list of outputs; inputs stay where the device has them.

    One thread is the caller's own. More are workers, and the first such number holds for the process.
    """
    if threads == 1:
        device = iree.runtime.get_device("local-sync")
    else:
        iree.runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
        device = iree.runtime.get_device("local-task")
    with TemporaryDirectory() as folder:
        invoke = _invoker(model, Path(folder), device)
    free = (value for value in model.graph.inputs if value.name not in model.graph.initializers)
    arguments = [iree.runtime.asdevicearray(device, feeds[value.name or ""]) for value in free]

    def run() -> list[np.ndarray]:
        results = invoke(*arguments)
        return [np.asarray(one) for one in (results if isinstance(results, tuple) else (results,))]

    return run


def _invoker(model: ir.Model, folder: Path, device: Any) -> Any:
    """Import, compile and load a model; what it maps of the folder stays after the folder is gone."""
    source, text, weights = (str(folder / f"model.{suffix}") for suffix in ("onnx", "mlir", "irpa"))
    Path(source).write_bytes(ir.to_proto(model).SerializeToString())
    importer.main(importer.parse_arguments([source, "-o", text, "--externalize-params", "--save-params-to", weights]))
    code = compile_file(text, input_type="onnx", extra_args=FLAGS)
    instance, parameters = iree.runtime.VmInstance(), iree.runtime.ParameterIndex()
    parameters.load(weights)
    compiled = iree.runtime.VmModule.copy_buffer(instance, code)
    modules = [
        iree.runtime.create_io_parameters_module(instance, parameters.create_provider(scope="model")),
        iree.runtime.create_hal_module(instance, device),
        compiled,
    ]
    context = iree.runtime.VmContext(instance, modules)
    name = next(one for one in compiled.function_names if not one.startswith("__") and not one.endswith("$async"))
    return iree.runtime.FunctionInvoker(context, device, compiled.lookup_function(name))
