"""The plugin with a made-up TensorRT and a made-up driver: engines, keys, weights, memory, what is missing."""

import gc
import re
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft_tensorrt import toolkit
from graft_tensorrt.backend import TensorRt

NETWORK = """<ir_version: 10, opset_import: ["" : 21]> g (float[2,3,8,8] x) => (float[2,5] y, double[2,5] z)
{ [conv] a = Conv<pads=[1,1,1,1]>(x, w, b) [relu] c = Relu(a) [pool] d = GlobalAveragePool(c) [flat] e = Flatten(d)
  [dense] y = Gemm<transB=1>(e, v) [wide] z = Cast<to=11>(y) }"""
X = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)


def network(seed=0):
    model, rng = onnx.parser.parse_model(NETWORK), np.random.default_rng(seed)
    for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,)), ("v", (5, 4))):
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def right(program, model):
    for found, expected in zip(program(X), graft.compile(model, ["reference"])(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def forget():
    for one in (toolkit.library, toolkit.device_of):
        one.cache_clear()


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "made_up"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("tensorrt", "cuda"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import cuda
    import tensorrt

    own = toolkit.ctypes.CDLL
    monkeypatch.setattr(toolkit.ctypes, "CDLL", lambda name: cuda.driver if name == "libcuda.so.1" else own(name))
    forget()
    yield tensorrt
    gc.collect()
    assert (cuda.driver.memory, cuda.driver.streams, cuda.driver.current) == ({}, set(), [])
    for name in ("tensorrt", "cuda"):
        sys.modules.pop(name, None)
    forget()


@pytest.fixture
def driver(made_up):
    return sys.modules["cuda"].driver


def test_a_region_is_one_engine_and_stands_in_the_artifact(made_up, tmp_path):
    program = graft.compile(network(), ["tensorrt", "llvm"], strict=True)
    placed = {row.node: row.backend for row in graft.Plan.of(program).placements}
    assert placed == dict.fromkeys(("conv", "relu", "pool", "flat", "dense"), "tensorrt") | {"wide": "llvm"}
    right(program, network())
    program.save(tmp_path / "m.graft")
    made_up.Builder.build_serialized_network = None
    right(graft.runtime.load(tmp_path / "m.graft"), network())


@pytest.mark.parametrize(
    ("options", "flags"), [("", {"STRICT_NANS"}), (":precision=tf32", {"STRICT_NANS", "TF32"}),
                           (":refit=true", {"STRICT_NANS", "REFIT", "STRIP_PLAN"})],
)  # fmt: skip
def test_options_are_the_builder_s(options, flags, made_up):
    graft.compile(network(), [f"tensorrt{options}", "llvm"], strict=True)
    assert [{one.name for one in flags} for flags in made_up.built] == [flags]


def test_an_engine_is_kept_by_device_version_and_weights(made_up):
    made = []
    for options, seed in (("", 0), ("", 0), ("", 1), (":device=1", 0)):
        graft.compile(network(seed), [f"tensorrt{options}", "llvm"], strict=True)
        made.append(len(made_up.built))
    made_up.__version__ = "11.5.0.1"
    graft.compile(network(), ["tensorrt", "llvm"], strict=True)
    assert [*made, len(made_up.built)] == [1, 1, 2, 3, 4]


def test_other_weights_need_no_other_engine_where_it_is_refitted(made_up, tmp_path):
    for seed in (0, 1):
        program = graft.compile(network(seed), ["tensorrt:refit=true", "llvm"], strict=True)
        right(program, network(seed))
        program.save(tmp_path / f"{seed}.graft")
    assert len(made_up.built) == 1
    for seed in (1, 0):
        right(graft.runtime.load(tmp_path / f"{seed}.graft"), network(seed))


def test_weights_that_do_not_fit_the_engine_are_refused(made_up, monkeypatch):
    options = {"device": 0, "level": 3, "precision": "f32", "refit": True}
    model = network()
    del model.graph.node[-1], model.graph.output[-1]
    blob = toolkit.compile(model.SerializeToString(), options)
    other = network()
    other.graph.initializer[2].dims[0] = 6
    other.graph.initializer[2].raw_data = bytes(96)
    with pytest.raises(RuntimeError, match="the weights do not fit the engine: another count of v; refit=false"):
        toolkit.load(blob, {**options, "model": other.SerializeToString()})
    del other.graph.initializer[2]
    with pytest.raises(RuntimeError, match="the engine lacks weights: v; refit=false"):
        toolkit.load(blob, {**options, "model": other.SerializeToString()})


def test_an_engine_of_another_device_is_named_with_both_and_the_region_compiled_anew(made_up, tmp_path, monkeypatch):
    graft.compile(network(), ["tensorrt", "llvm"], strict=True).save(tmp_path / "m.graft")
    monkeypatch.setattr(sys.modules["cuda"], "NAMES", ("Made-up C",))
    monkeypatch.setattr(made_up.Runtime, "deserialize_cuda_engine", lambda self, data: None)
    forget()
    text = (
        "TensorRT does not take the engine, which is for one version and one kind of device; it was compiled by "
        "TensorRT 11.4.0.106 on Made-up A (compute capability 9.0), and here is TensorRT 11.4.0.106 on Made-up C"
    )
    with pytest.warns(RuntimeWarning, match=re.escape(text)):
        loaded = graft.runtime.load(tmp_path / "m.graft")
    right(loaded, network())


@pytest.mark.parametrize(
    ("node", "options", "text"),
    [("y = Softplus(x)", "", "no importer for Softplus"), ("y = Exp(x)", ":level=5", "TensorRT builds no engine")],
)
def test_what_tensorrt_refuses_goes_to_the_next_backend_with_its_words(node, options, text, made_up):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) {{ [one] {node} }}'
    )
    program = graft.compile(model, [f"tensorrt{options}", "llvm"])
    assert text in graft.Plan.of(program)["one"].reasons["tensorrt"].text


def test_each_thread_has_memory_of_its_own_and_gives_it_back(driver):
    program = graft.compile(network(), ["tensorrt", "llvm"], strict=True)
    failed, counts = [], []

    def call():
        try:
            right(program, network())
        except AssertionError as error:
            failed.append(error)
        counts.append(len(driver.streams))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    assert max(counts) >= 1


@pytest.mark.parametrize("name", ["cuMemAlloc_v2", "cuStreamCreate", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"])
def test_a_call_of_the_driver_that_fails_is_named_and_the_next_is_right(name, driver):
    program = graft.compile(network(), ["tensorrt", "llvm"], strict=True)
    driver.fails = name
    with pytest.raises(graft.GraftError, match=f"{name}: out of memory"):
        program(X)
    driver.fails = None
    right(program, network())


def test_what_is_missing_is_said(made_up, monkeypatch):
    assert TensorRt().available() is None
    assert TensorRt(device=2).available() == "there is no device 2: CUDA's driver counts 2 here, from 0"
    sys.modules["cuda"].driver.fails = "cuInit"
    forget()
    assert TensorRt().available() == "cuInit: out of memory"
    monkeypatch.setattr(toolkit.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    assert TensorRt().available() == "no driver of NVIDIA's: libcuda.so.1 cannot be opened"
    sys.modules["cuda"].driver.fails = None
    made_up.__version__ = "8.6.1"
    with pytest.raises(RuntimeError, match=r"TensorRT 8.6.1 is too old; pip install 'tensorrt-cu12>=10.8'"):
        toolkit.vendor()
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(RuntimeError, match=r"TensorRT cannot be imported: .*; pip install 'tensorrt-cu12>=10.8'"):
        toolkit.vendor()
    monkeypatch.setattr("graft.plugins.toolkits.backend.find_spec", lambda name: None)
    assert TensorRt().available().startswith("tensorrt is not installed; pip install graft-tensorrt")


def test_the_plan_says_why_not(made_up):
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2,4] x, double[2] d, float[4,4] m, float[1,1,5,5] i)
    => (double[2] a, float[2,4] b, float[1,1,3,3] c, float[2,4] e)
    { [double] a = Exp(d) [cumulative] b = CumSum(x, z)
      [pool] c = MaxPool<kernel_shape=[2,2],strides=[2,2],ceil_mode=1>(i) [slopes] e = PRelu(x, x) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(0), "z"))
    plan = graft.plan(model, ["tensorrt", "llvm"])
    assert {name: str(plan[name].reasons["tensorrt"]) for name in ("double", "cumulative", "pool", "slopes")} == {
        "double": "dtype: float32 and float16 only, got float64",
        "cumulative": "no-pattern: tensorrt has no rule for CumSum",
        "pool": "attribute: TensorRT counts windows otherwise where extents are rounded up",
        "slopes": "constant-required: of what PRelu reads all but the first must be constant",
    }
    with pytest.raises(graft.GraftError, match="level is 7, not 0 to 5"):
        graft.plan(model, ["tensorrt:level=7", "llvm"])
