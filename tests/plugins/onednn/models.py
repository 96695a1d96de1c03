"""Small float32 models as ONNX text, partitioned onto oneDNN and run through its native loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from graft.core.machine.target import CompileOptions, target_named
from graft.partition.placement.partitioner import Partitioned, partition
from graft.partition.policy import Policy
from graft.partition.region import Region, regions
from graft.plugins.onednn import library
from graft.plugins.onednn.backend import OneDnnBackend
from graft.plugins.onednn.plugin import native_loader
from graft.runtime.procedure import Module
from tests.plugins.onednn.native_loader import LoadedModule

Shape = tuple[int, ...]

needs_library = pytest.mark.skipif(library.open_library() is None, reason=library.MISSING)
OPTIONS = CompileOptions(target_named("x86-64"), 1)


@dataclass(frozen=True)
class Case:
    """Nodes as text, shapes of the inputs ``x``, ``z``, and constants: arrays, or shapes to be filled with noise."""

    nodes: str
    inputs: Mapping[str, Shape]
    constants: Mapping[str, Shape | np.ndarray]
    outputs: tuple[str, ...] = ("y",)
    kernels: tuple[str, ...] = ()
    """The kernels that the region must consist of, where it matters."""

    def proto(self) -> onnx.ModelProto:
        inputs = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in self.inputs.items())
        outputs = ", ".join(f"float {name}" for name in self.outputs)
        text = f'<ir_version: 10, opset_import: ["" : 23]> g ({inputs}) => ({outputs}) {{ {self.nodes} }}'
        model = onnx.parser.parse_model(text)
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        noise = np.random.default_rng(1)
        for name, given in self.constants.items():
            array = given if isinstance(given, np.ndarray) else 0.3 * noise.normal(size=given).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)

    def partitioned(self) -> Partitioned:
        allowed = Policy(allow_inaccurate=("Log", "LogSoftmax", "Mish", "Softplus"))
        return partition(ir.serde.deserialize_model(self.proto()), [OneDnnBackend()], policy=allowed)

    def feeds(self) -> dict[str, np.ndarray]:
        noise = np.random.default_rng(0)
        return {name: noise.normal(size=shape).astype(np.float32) for name, shape in self.inputs.items()}

    def region(self) -> Region:
        """Return the one region that the model becomes."""
        found = self.partitioned()
        (region,) = regions(found.model)
        assert len(found.model.graph) == 1, found.plan.why()
        return region

    def expected(self) -> list[np.ndarray]:
        session = onnxruntime.InferenceSession(self.proto().SerializeToString(), providers=["CPUExecutionProvider"])
        return list(session.run(list(self.outputs), self.feeds()))


def compile_region(region: Region) -> Module:
    return OneDnnBackend().compile(region, OPTIONS)


def load(module: Module, threads: int = 1) -> LoadedModule:
    library.open_library()
    return LoadedModule(native_loader(), module, threads)


def run(loaded: LoadedModule, region: Region, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs by name."""
    shapes = [value.static_shape for value in region.outputs]
    arrays = loaded([feeds[value.name] for value in region.inputs], shapes)
    return {value.name: array for value, array in zip(region.outputs, arrays, strict=True)}


def kernel_names(loaded: LoadedModule) -> list[str]:
    return [row[0] for row in loaded.steps()]
