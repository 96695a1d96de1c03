"""The native loader: what it says when something is wrong, and that damage never crashes it."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graft.plugins.onednn import library
from graft.plugins.onednn.plugin import native_loader
from graft.runtime.procedure import Module
from tests.plugins.onednn.cases import CASES
from tests.plugins.onednn.models import compile_region, load, needs_library


def refusal(module: Module) -> str:
    with pytest.raises(RuntimeError) as caught:
        load(module)
    return str(caught.value)


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> Module:
    """Return the module of a case with its graph changed."""
    module = compile_region(CASES[name].region())
    graph = json.loads(module.data)
    change(graph)
    return replace(module, data=json.dumps(graph).encode())


def kernel(graph: dict[str, Any]) -> dict[str, Any]:
    return next(node for node in graph["nodes"] if node["op"] == "kernel")


def set_attribute(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda graph: kernel(graph)["attrs"]["attributes"].__setitem__(name, value)


DAMAGED = "module 'onednn_0' (kind 'json:onednn') is damaged: "
IN_CONV = "region 'onednn_0', Conv (node 'y'): "
IN_RELU = "region 'onednn_0', onednn.conv_relu (node 'c'): "
CHANGES = {
    "no nodes": ("conv", lambda graph: graph.pop("nodes"), DAMAGED + "'symbol' and 'nodes' are needed"),
    "no heads": ("conv", lambda graph: graph.pop("heads"), DAMAGED + "'heads' is missing or empty"),
    "head nowhere": (
        "conv",
        lambda graph: graph["heads"].__setitem__(0, [9, 0, 0]),
        DAMAGED + "a head must be [node, 0, version] of a node",
    ),
    "no such op": (
        "conv",
        lambda graph: kernel(graph).__setitem__("op", "loop"),
        DAMAGED + "node 2: 'op' must be input, const or kernel",
    ),
    "cycle": (
        "conv",
        lambda graph: kernel(graph)["inputs"].__setitem__(0, [2, 0, 0]),
        DAMAGED + "node 2: an input must be [node, 0, version] of an earlier node",
    ),
    "other type": (
        "conv",
        lambda graph: kernel(graph)["attrs"].__setitem__("dtype", ["int8"]),
        DAMAGED + "node 2: the element type must be float32",
    ),
    "huge": (
        "conv",
        lambda graph: kernel(graph)["attrs"].__setitem__("shape", [[2**40, 2**40]]),
        DAMAGED + "node 2: a size of the shape is out of range",
    ),
    "negative": (
        "conv",
        lambda graph: kernel(graph)["attrs"].__setitem__("shape", [[2, -32, 7, 9]]),
        DAMAGED + "node 2: a size of the shape is out of range",
    ),
    "no shape": (
        "conv",
        lambda graph: kernel(graph)["attrs"].pop("shape"),
        DAMAGED + "node 2: 'dtype' and 'shape' must have one entry: the one output of the node",
    ),
    "no primitive": ("conv", set_attribute("primitive", "fft"), IN_CONV + "unknown primitive"),
    "strides": (
        "conv",
        set_attribute("strides", [0, 1]),
        IN_CONV + "'strides' has the wrong length or a value out of range",
    ),
    "groups": ("conv", set_attribute("groups", 7), IN_CONV + "'groups' does not divide the output channels"),
    "bias": ("conv", set_attribute("bias", 1), IN_CONV + "the bias is missing"),
    "padding": (
        "conv",
        set_attribute("padding_l", [40, 0]),
        IN_CONV + "describing a convolution: oneDNN says 'invalid arguments'",
    ),
    "post-operation": (
        "conv_relu",
        set_attribute("post_ops", [{"algorithm": "fold"}]),
        IN_RELU + "unknown post-operation",
    ),
    "inputs": (
        "conv",
        lambda graph: kernel(graph)["inputs"].pop(),
        IN_CONV + "wrong number of inputs",
    ),
    "constant": (
        "conv",
        lambda graph: graph["nodes"][1].__setitem__("name", "v"),
        "region 'onednn_0', v (node 'v'): the constant was not handed over",
    ),
    "constant's shape": (
        "conv",
        lambda graph: graph["nodes"][1]["attrs"].__setitem__("shape", [[32, 16, 3, 4]]),
        "region 'onednn_0', w (node 'w'): the constant has another type or shape than the graph says",
    ),
}


@needs_library
@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_graph_is_refused_in_words(name):
    case, change, message = CHANGES[name]
    assert refusal(changed(case, change)) == message


@needs_library
def test_text_that_is_not_json_is_refused():
    module = replace(compile_region(CASES["conv"].region()), data=b'{"symbol"')
    assert refusal(module).startswith(DAMAGED)


@needs_library
def test_another_function_is_not_found():
    module = replace(compile_region(CASES["conv"].region()), functions=("other",))
    assert refusal(module) == "module of kind 'json:onednn' has function 'onednn_0', not 'other'"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)


WITHOUT_LIBRARY = """
import sys
from graft.runtime.procedure import Module
from tests.plugins.onednn.native_loader import LoadedModule
node = '{"op":"input","name":"x","attrs":{"dtype":["float32"],"shape":[[1]]}}'
graph = '{"symbol":"r","nodes":[' + node + '],"heads":[[0,0,0]]}'
try:
    LoadedModule(sys.argv[1], Module("r", "json:onednn", ("r",), graph.encode()))
except RuntimeError as error:
    print(error)
"""


def test_a_missing_library_is_named_with_the_line_that_installs_it():
    """A process that did not open the library beside it, on a system that has none."""
    done = python(WITHOUT_LIBRARY, native_loader())
    assert done.returncode == 0, done.stderr
    if not done.stdout:
        pytest.skip("a system-wide libdnnl.so.3 is on the loader's path")
    assert done.stdout.strip() == (
        "region 'r' needs oneDNN, and libdnnl.so.3 cannot be opened (libdnnl.so.3: cannot open shared object file: "
        f"No such file or directory); {library.INSTALL}"
    )


FUZZ = """
import json, random, sys
import numpy as np
from dataclasses import replace
from tests.plugins.onednn.cases import CASES
from tests.plugins.onednn.models import compile_region, load

NUMBERS = [-1, 0, 1, 2, 3, 5, 12, 13, 64, 1000, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 1.5, "x", None, [], {}]

def leaves(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*path, key))

def mutate(graph, random):
    path = random.choice([path for path in leaves(graph) if path])
    place = graph
    for key in path[:-1]:
        place = place[key]
    if random.random() < 0.2:
        del place[path[-1]]
    else:
        place[path[-1]] = random.choice(NUMBERS)

chosen = random.Random(int(sys.argv[1]))
modules = {name: compile_region(CASES[name].region()) for name in sys.argv[3:]}
refused = 0
for _ in range(int(sys.argv[2])):
    module = modules[chosen.choice(list(modules))]
    if chosen.random() < 0.3:
        data = bytearray(module.data)
        data[chosen.randrange(len(data))] = chosen.randrange(256)
        data = bytes(data[: chosen.choice([len(data), chosen.randrange(len(data))])])
    else:
        graph = json.loads(module.data)
        for _ in range(chosen.randint(1, 3)):
            mutate(graph, chosen)
        data = json.dumps(graph).encode()
    try:
        loaded = load(replace(module, data=data))
    except RuntimeError as error:
        assert str(error), "a refusal without a text"
        refused += 1
        continue
    nodes = json.loads(data)["nodes"]
    shapes = [node["attrs"]["shape"][0] for node in nodes if node["op"] == "input"]
    results = [nodes[head[0]]["attrs"]["shape"][0] for head in json.loads(data)["heads"]]
    if all(np.prod(shape, dtype=object) < 10**6 for shape in shapes + results):
        loaded([np.ones(shape, np.float32) for shape in shapes], results)
    loaded.close()
print(refused)
"""

FUZZED = (
    "residual_in_place",
    "attention",
    "max_pool",
    "concat",
    "layer_normalization",
    "Add_last_axis",
    "conv_depthwise",
)


@needs_library
def test_damaged_graphs_never_crash_the_loader():
    done = python(FUZZ, "3", "400", *FUZZED, "batch_normalization", "gemm_relu", "softmax", "lrn")
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100


@needs_library
def test_arrays_of_another_shape_are_refused_at_the_call():
    """The harness has no runtime context, so the refusal itself is checked in the tests of programs."""
    region = CASES["conv"].region()
    loaded = load(compile_region(region))
    good = loaded([np.zeros((2, 16, 9, 11))], [(2, 32, 7, 9)])
    loaded.close()
    assert good[0].shape == (2, 32, 7, 9)
