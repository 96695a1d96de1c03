import threading

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft

LAYERS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[rows,4] x) => (float[rows,3] y, double[rows,3] z)
<float[4,3] w = {1,2,3, -1,0,1, 2,-2,0, 1,1,1}>
{ [product] h = MatMul(x, w) [relu] y = Relu(h) [wide] z = Cast<to=11>(h) }"""
WEIGHTS = np.float32([[1, 2, 3], [-1, 0, 1], [2, -2, 0], [1, 1, 1]])


@pytest.fixture(scope="module")
def program():
    return graft.compile(onnx.parser.parse_model(LAYERS), ["openvino", "llvm"], cache=False)


def right(program, x):
    y, z = program(x)
    np.testing.assert_allclose(y, np.maximum(x @ WEIGHTS, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(z, x @ WEIGHTS, rtol=1e-5, atol=1e-5)


def drawn(rows):
    return np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)


def test_one_blob_serves_every_shape_and_is_in_the_artifact(program, tmp_path, monkeypatch):
    from graft_openvino import toolkit

    program.save(tmp_path / "m.graft")
    monkeypatch.setattr(toolkit, "compile", None)
    loaded = graft.runtime.load(tmp_path / "m.graft")
    for rows in (1, 2, 7):
        right(loaded, drawn(rows))


def test_several_threads_have_requests_of_their_own(program):
    failed = []

    def call(rows):
        try:
            for _ in range(20):
                right(program, drawn(rows))
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=(rows,)) for rows in (1, 2, 3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []


def test_the_plan_says_why_not():
    reasons = graft.plan(onnx.parser.parse_model(LAYERS), ["openvino", "llvm"])["wide"].reasons
    assert reasons["openvino"].text == "openvino has no rule for Cast"


def test_a_device_that_is_not_here_is_named():
    from graft_openvino.backend import OpenVino

    with pytest.raises(graft.GraftError, match="OpenVINO finds no device NPU here, only CPU"):
        graft.compile(onnx.parser.parse_model(LAYERS), [OpenVino(device="NPU"), "llvm"], strict=True, cache=False)


LIMITS = {
    "relu": ("y = Relu(x)", ""),
    "relu6": ("y = Clip(x, low, high)", "<float low = {0}, float high = {6}>"),
    "softmax": ("y = Softmax(x)", ""),
    "columns": ("y = Softmax<axis=0>(x)", ""),
    "behind a product": ("h = MatMul(x, w) y = Relu(h)", "<float[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}>"),
}
SPECIAL = np.float32([
    [1, -2, np.nan, 3], [np.inf, 1, 2, -1], [-np.inf] * 4, [-np.inf, 0, 1, 2], [3e38, 3e38, -3e38, 1],
    [-0.0, 0, 1e-45, 9], [np.nan] * 4,
])  # fmt: skip


def limited(name):
    text, constants = LIMITS[name]
    types = "(float[rows,4] x) => (float[rows,4] y)"
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {types} {constants} {{ {text} }}')


@pytest.mark.parametrize("name", LIMITS)
def test_limits_keep_nan_and_infinity_as_onnx_has_them(name):
    model = limited(name)
    program = graft.compile(model, ["openvino", "llvm"], strict=True, cache=False)
    assert {row.backend for row in graft.Plan.of(program).placements} == {"openvino"}
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(model).run(None, {"x": SPECIAL})
    np.testing.assert_allclose(program(SPECIAL), expected, rtol=1e-5, atol=1e-6)


def test_placement_by_cost_leaves_limits_to_others_where_nan_is_dropped():
    model = limited("relu")
    assert np.isfinite(graft.compile(model, ["openvino:nan=drop", "llvm"])(SPECIAL[:1])).all()
    policy = graft.Policy(placement="model")
    (row,) = graft.plan(model, ["openvino:nan=drop", "llvm"], policy=policy).placements
    assert row.reasons["openvino"].code == "accuracy"
    (row,) = graft.plan(model, ["openvino", "llvm"], policy=policy).placements
    assert "accuracy" not in {reason.code for reason in row.reasons.values()}


def test_a_clip_without_a_bound_is_left_to_others():
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) <float l = {0}> { y = Clip(x, l) }'
    (row,) = graft.plan(onnx.parser.parse_model(text), ["openvino", "llvm"]).placements
    assert row.reasons["openvino"].text == "OpenVINO limits infinity where a bound is left out"


def test_tensors_without_elements_are_left_to_others():
    types = "(float[3,0] x, float[0,2] w) => (float[3,2] y)"
    text = f'<ir_version: 10, opset_import: ["" : 21]> g {types} {{ y = MatMul(x, w) }}'
    model = onnx.parser.parse_model(text)
    (row,) = graft.plan(model, ["openvino", "llvm"]).placements
    assert row.reasons["openvino"].code == "shape"
    assert not graft.compile(model, ["openvino", "llvm"])(np.ones((3, 0), "f"), np.ones((0, 2), "f")).any()


@pytest.mark.parametrize(("options", "threads", "wanted"), [("", 1, 1), ("", 2, 2), (":threads=2", 1, 2)])
def test_a_region_has_the_threads_of_its_program_unless_the_user_says(options, threads, wanted, monkeypatch):
    from graft_openvino import toolkit

    seen, own = [], toolkit.settings
    monkeypatch.setattr(toolkit, "settings", lambda given, count: seen.append(count) or own(given, count))
    program = graft.compile(
        onnx.parser.parse_model(LAYERS), [f"openvino{options}", "llvm"], threads=threads, cache=False
    )
    right(program, drawn(2))
    assert set(seen) == {wanted}
    assert len(seen) == 2
