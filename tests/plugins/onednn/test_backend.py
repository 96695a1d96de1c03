"""The backend and the plugin around it: what it writes, what it says of the library, what it imports."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from graft.errors import PluginError
from graft.plugins.json_graph import Entry, JsonGraph
from graft.plugins.onednn import library
from graft.plugins.onednn.backend import OneDnnBackend
from tests.plugins.onednn.cases import CASES
from tests.plugins.onednn.models import Case, compile_region, needs_library


@pytest.fixture
def no_library(monkeypatch):
    monkeypatch.setattr(library, "candidates", lambda: [])
    library.open_library.cache_clear()
    yield
    library.open_library.cache_clear()


def test_a_missing_library_makes_the_backend_unavailable(no_library):
    assert OneDnnBackend().available() == "oneDNN is not installed; pip install 'graft-compiler[onednn]'"
    assert OneDnnBackend().version() == "oneDNN is not installed; pip install 'graft-compiler[onednn]'"


def test_asking_a_missing_library_for_its_version_is_an_error(no_library):
    with pytest.raises(PluginError) as caught:
        library.version()
    assert caught.value.message == "oneDNN is not installed; pip install 'graft-compiler[onednn]'"


@pytest.fixture
def conv_relu():
    return CASES["conv_relu"].region()


def test_a_region_compiles_without_the_library(conv_relu, no_library):
    assert compile_region(conv_relu).kind == "json:onednn"


@needs_library
def test_the_version_names_the_library():
    assert re.fullmatch(r"oneDNN 3\.\d+\.\d+ \(.*libdnnl\.so\.3\)", OneDnnBackend().version())
    assert OneDnnBackend().available() is None


def test_a_module_is_the_graph_of_primitives_and_its_constants():
    module = compile_region(CASES["conv_bias_clip"].region())
    graph = JsonGraph.from_json(module.data)
    assert [(node.op, node.name) for node in graph.nodes] == [
        ("input", "x"),
        ("const", "w"),
        ("const", "b"),
        ("kernel", "onednn.conv_bias_clip"),
    ]
    assert graph.kernels[0].attributes == {
        "primitive": "convolution",
        "strides": [1, 1],
        "dilates": [0, 0],
        "padding_l": [0, 0],
        "padding_r": [0, 0],
        "groups": 1,
        "bias": 1,
        "post_ops": [{"algorithm": "clip", "alpha": 0.0, "beta": float(np.float32(0.6))}],
    }
    assert graph.kernels[0].inputs == (Entry(0), Entry(1), Entry(2))
    assert sorted(module.constants) == ["b", "w"]
    assert (module.plugin, module.install) == ("onednn", "pip install 'graft-compiler[onednn]'")


def test_equal_regions_give_equal_bytes():
    first, second = (compile_region(CASES["attention"].region()) for _ in range(2))
    assert first.data == second.data


def test_a_bias_of_several_axes_is_handed_over_as_one():
    case = Case("c = Conv(x, w) y = Add(c, b)", {"x": (1, 4, 8, 8)}, {"w": (8, 4, 3, 3), "b": (1, 8, 1, 1)})
    module = compile_region(case.region())
    assert sorted(array.shape for array in module.constants.values()) == [(8,), (8, 4, 3, 3)]


def test_the_plugin_lists_its_backend_without_heavy_imports():
    code = (
        "import sys; from graft.plugins.onednn import plugin; plugin.graft_backends(); "
        "print([name for name in ('onnx', 'onnx_ir', 'llvmlite', 'numpy.testing') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_opening_the_library_leaves_the_environment_as_it_was(monkeypatch):
    seen = []
    monkeypatch.setattr(library, "candidates", lambda: seen.append(os.environ.get("GOMP_SPINCOUNT")) or [])
    for name in library.WAITING:
        monkeypatch.delenv(name, raising=False)
    library.open_library.cache_clear()
    library.open_library()
    library.open_library.cache_clear()
    assert seen == ["1000"]
    assert "GOMP_SPINCOUNT" not in os.environ


def test_what_the_user_says_of_waiting_stays(monkeypatch):
    seen = []
    monkeypatch.setattr(library, "candidates", lambda: seen.append(os.environ.get("GOMP_SPINCOUNT")) or [])
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    library.open_library.cache_clear()
    library.open_library()
    library.open_library.cache_clear()
    assert seen == [None]
