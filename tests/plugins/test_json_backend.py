import numpy as np
import pytest

from graft.core.machine.target import CompileOptions, target_named
from graft.errors import ArtifactError, PluginError
from graft.plugins.json_backend import JsonBackend
from graft.plugins.registry.fence import FencedBackend
from graft.plugins.registry.manager import PluginManager
from tests.plugins.regions import region_of

OPTIONS = CompileOptions(target_named("x86-64"))
WEIGHT = np.arange(8, dtype=np.float32).reshape(4, 2)


class Npu(JsonBackend):
    name = "npu"

    def load(self, graph, constants):
        kernels = {"MatMul": np.matmul, "Relu": lambda x: np.maximum(x, 0)}
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [kernels[node.name](*arrays)])


def region():
    return region_of("t = MatMul(x, w) y = Relu(t)", {"x": (1, 4)}, constants={"w": WEIGHT}, outputs={"y": (1, 2)})


def test_a_region_becomes_a_module_that_its_engine_runs():
    module = FencedBackend(Npu(), "npu-plugin", "pip install graft-npu").compile(region(), OPTIONS)
    assert (module.name, module.kind, module.functions) == ("r0", "json:npu", ("r0",))
    assert (module.plugin, module.install) == ("npu-plugin", "pip install graft-npu")
    (loader,) = Npu().module_loaders()
    assert loader.kind == "json:npu"
    (y,) = loader.load(module.name, module.data, module.constants)["r0"]([-np.ones((1, 4), np.float32)])
    assert y.tolist() == [[0, 0]]


def test_a_configured_object_loads_the_modules_that_it_made():
    class Scaled(Npu):
        def __init__(self, factor):
            self.factor = factor

        def load(self, graph, constants):
            engine = super().load(graph, constants)
            return lambda inputs: [self.factor * output for output in engine(inputs)]

    manager = PluginManager(sources=[])
    scaled = manager.admit(Scaled(3))
    module = scaled.compile(region(), OPTIONS)
    (loader,) = manager.loaders_for([module], [scaled])
    (y,) = loader.load(module.name, module.data, module.constants)["r0"]([np.ones((1, 4), np.float32)])
    assert y.tolist() == [[36, 48]]


def test_an_engine_that_is_not_callable_is_an_error():
    class Forgetful(Npu):
        def load(self, graph, constants):
            self.graph = graph

    module = Forgetful().compile(region(), OPTIONS)
    with pytest.raises(PluginError) as caught:
        Forgetful().module_loaders()[0].load(module.name, module.data, module.constants)
    assert caught.value.message == (
        "backend 'npu': load of region 'r0' returned NoneType; "
        "return a function that takes the inputs and returns the outputs"
    )


def test_damaged_data_is_an_error_at_load():
    with pytest.raises(ArtifactError) as caught:
        Npu().module_loaders()[0].load("r0", b"{", {})
    assert caught.value.message.startswith("damaged JSON graph: JSONDecodeError ")


def test_a_compile_that_returns_something_else_is_an_error():
    class Odd(Npu):
        def compile(self, region, options):
            return b"code"

    with pytest.raises(PluginError) as caught:
        FencedBackend(Odd(), "npu").compile(region(), OPTIONS)
    assert caught.value.message == (
        "backend 'npu': compile of region 'r0' returned bytes; return a graft Module or CompiledRegion"
    )


def test_a_compile_that_raises_names_plugin_and_region():
    class Raising(Npu):
        def compile(self, region, options):
            raise RuntimeError("out of registers")

    with pytest.raises(PluginError) as caught:
        FencedBackend(Raising(), "npu").compile(region(), OPTIONS)
    assert caught.value.message == "plugin 'npu' raised RuntimeError in compile of region 'r0': out of registers"
