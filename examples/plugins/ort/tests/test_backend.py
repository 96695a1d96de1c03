import numpy as np
import onnx
import onnxruntime

import graft

LAYERS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[rows,4] x) => (float[rows,3] y, double[rows,3] z)
<float[4,3] w = {1,2,3, -1,0,1, 2,-2,0, 1,1,1}>
{ h = MatMul(x, w) y = Relu(h) c = Cast<to=11>(h) z = Sqrt(c) }"""


def test_one_session_serves_every_shape(monkeypatch):
    made, session = [], onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda *given, **named: made.append(1) or session(*given, **named)
    )
    program = graft.compile(onnx.parser.parse_model(LAYERS), ["ort", "reference"])
    before = len(made)
    for rows in (1, 2, 5):
        x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4) - 5
        y, _ = program(x)
        assert (y >= 0).all()
        assert y.shape == (rows, 3)
    assert len(made) == before


def test_the_plan_says_why_not():
    plan = graft.plan(onnx.parser.parse_model(LAYERS), ["ort", "reference"])
    said = {row.op_type: row.reasons["ort"].text for row in plan.placements if row.backend != "ort"}
    assert said == {"Cast": "ort has no rule for Cast", "Sqrt": "float32 only, got float64"}
