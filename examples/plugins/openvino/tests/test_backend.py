import threading

import numpy as np
import onnx
import pytest

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
