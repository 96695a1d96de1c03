"""Programs for every shape: models with symbolic dimensions against ONNX Runtime, binding by binding."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.errors import GraftError, InputError
from graft.runtime.extents import ExtentEquation, Symbol
from graft.runtime.typical_shapes import typical_values
from tests.core.importer.exported import HEADER, MODELS


def onnxruntime_of(model: onnx.ModelProto):  # type: ignore[no-untyped-def]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_runs_every_shape_as_onnxruntime_does(name: str) -> None:
    exported, make = MODELS[name]
    model = make()
    program, session = graft.compile(model, cache=False, tuned=False), onnxruntime_of(model)
    for binding in (*exported.bindings, *exported.bindings):
        feeds = exported.feeds(binding)
        results = program.run(feeds)
        for value, expected in zip(model.graph.output, session.run(None, feeds), strict=True):
            np.testing.assert_allclose(results[value.name], expected, rtol=1e-4, atol=1e-4)


def test_ten_lengths_of_one_artifact_agree_with_ten_static_programs(tmp_path: Path) -> None:
    exported, make = MODELS["attention"]
    graft.compile(make(), cache=False, tuned=False).save(tmp_path / "any.graft")
    program = graft.runtime.load(tmp_path / "any.graft")
    for seq in range(1, 11):
        feeds = exported.feeds({"batch": 2, "seq": seq})
        static = graft.compile(make(), dims={"batch": 2, "seq": seq}, cache=False, tuned=False)
        np.testing.assert_allclose(program.run(feeds)["y"], static.run(feeds)["y"], rtol=1e-4, atol=1e-4)


ELSEWHERE = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("onnx", "onnx_ir", "llvmlite", "sympy", "pluggy"):
            raise ImportError(name)

sys.meta_path.insert(0, Refused())
import numpy as np
import graft.runtime

program = graft.runtime.load(sys.argv[1])
with np.load(sys.argv[2]) as given:
    feeds = [{key: given[f"{key}{n}"] for key in ("ids", "mask")} for n in range(20)]
np.savez(sys.argv[3], *(program.run(one)["y"] for one in feeds))
"""


def test_an_artifact_runs_twenty_shapes_in_a_process_without_compiler_and_onnx(tmp_path: Path) -> None:
    exported, make = MODELS["attention"]
    graft.compile(make(), ["llvm"], cache=False, tuned=False).save(tmp_path / "any.graft")
    feeds = [exported.feeds({"batch": 1 + n % 3, "seq": 1 + (5 * n) % 13}) for n in range(20)]
    np.savez(tmp_path / "in.npz", **{f"{key}{n}": one[key] for n, one in enumerate(feeds) for key in ("ids", "mask")})
    files = [str(tmp_path / name) for name in ("any.graft", "in.npz", "out.npz")]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *files], check=True)
    session = onnxruntime_of(make())
    with np.load(tmp_path / "out.npz") as found:
        for array, one in zip(found.values(), feeds, strict=True):
            np.testing.assert_allclose(array, session.run(None, one)[0], rtol=1e-4, atol=1e-4)


WINDOW = """<ir_version: 10, opset_import: ["" : 20]> decoder
    (float[seq,4] x, float[past,4] cache, float[64,4] places, bool[64,64] mask) => (float[r,t] y, float[t,4] keys)
    <int64[1] zero = {0}, int64[1] one = {1}, float low = {-1.0}> {
        before = Shape <start = 0, end = 1> (cache) new = Shape <start = 0, end = 1> (x) all = Add (before, new)
        place = Slice (places, before, all) at = Add (x, place) keys = Concat <axis = 0> (cache, at)
        rows = Slice (mask, before, all, zero) window = Slice (rows, zero, all, one)
        across = Transpose (keys) scores = MatMul (at, across) y = Where (window, scores, low) }"""


def test_a_decoder_that_cuts_its_mask_out_of_a_table_is_native_and_says_how_far_it_goes() -> None:
    model = parser.parse_model(WINDOW)
    program = graft.compile(model, ["llvm", "reference"], cache=False, tuned=False)
    assert {module.plugin for module in program.description.modules} == {"llvm"}
    generator = np.random.default_rng(1)
    tables = {"places": generator.standard_normal((64, 4)).astype(np.float32), "mask": np.tri(64, dtype=bool)}
    for seq, past in ((5, 0), (1, 5), (3, 61), (64, 0), (1, 63)):
        x, cache = (generator.standard_normal((rows, 4)).astype(np.float32) for rows in (seq, past))
        feeds = {"x": x, "cache": cache, **tables}
        for found, expected in zip(
            program.run(feeds).values(), ReferenceEvaluator(model).run(None, feeds), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError) as caught:
        program.run({"x": x, "cache": np.zeros((64, 4), np.float32), **tables})
    assert caught.value.message == (
        "'past + seq' is 65 (seq = 1, past = 64), but it is at most 64 in this model, or in what it was compiled for"
    )


def test_an_extent_of_zero_runs() -> None:
    model = parser.parse_model(f"{HEADER} g (float[n, 4] x) => (float[n, 4] y) {{ y = Relu(x) }}")
    program = graft.compile(model, cache=False, tuned=False)
    assert program.run({"x": np.zeros((0, 4), np.float32)})["y"].shape == (0, 4)


def test_what_depends_on_data_has_the_shape_that_it_turns_out_to_have() -> None:
    model = parser.parse_model(
        f"""{HEADER} g (float[n, 4] x) => (float[a, b] y) {{
            i = NonZero(x) t = Transpose(i) f = Cast <to = 1> (t) y = Neg(f) }}"""
    )
    program = graft.compile(model, cache=False, tuned=False)
    for rows in (0, 1, 3):
        x = np.eye(max(rows, 1), 4, dtype=np.float32)[:rows]
        np.testing.assert_array_equal(program.run({"x": x})["y"], -np.argwhere(x).astype(np.float32))


def test_a_loop_that_grows_what_it_carries_runs() -> None:
    model = parser.parse_model(
        f"""{HEADER} g (float[n, 2] x, int64 count) => (float[m, 2] last, float[i, 2] sums) <bool go = {{1}}> {{
            last, sums = Loop(count, go, x) <body = b (int64 step, bool on, float[p, 2] h)
                => (bool more, float[q, 2] next, float[2] total) <int64[1] rows = {{0}}> {{
                    more = Identity(on) next = Concat <axis = 0> (h, x)
                    total = ReduceSum <keepdims = 0> (next, rows) }}>
        }}"""
    )
    program = graft.compile(model, cache=False, tuned=False)
    for rows, count in ((1, 2), (2, 0), (3, 3)):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        results = program.run({"x": x, "count": np.array(count)})
        np.testing.assert_array_equal(results["last"], np.tile(x, (count + 1, 1)))
        np.testing.assert_array_equal(results["sums"], [x.sum(0) * (k + 2) for k in range(count)] or np.zeros((0, 2)))


def test_a_body_reads_shapes_of_outside_and_captured_tensors() -> None:
    model = parser.parse_model(
        f"""{HEADER} g (float[n, m] x, float[k, 6] z, bool c) => (float[a, b] y) <int64[1] minus = {{-1}}> {{
            d = Concat <axis = 0> (z, z)
            y = If(c) <then_branch = t () => (float[p, q] u) {{
                        s = Shape(x) w = Gather(s, minus) flat = Concat <axis = 0> (minus, w) u = Reshape(z, flat) }},
                       else_branch = e () => (float[p, q] v) {{ v = Transpose(d) }}>
        }}"""
    )
    program = graft.compile(model, cache=False, tuned=False)
    for n, m, k in ((2, 3, 4), (1, 6, 1), (3, 2, 2)):
        feeds = {"x": np.ones((n, m), np.float32), "z": np.arange(6.0 * k, dtype=np.float32).reshape(k, 6)}
        for choice in (True, False):
            feeds["c"] = np.array(choice)  # type: ignore[assignment]
            expected = feeds["z"].reshape(-1, m) if choice else np.concatenate([feeds["z"], feeds["z"]]).T
            np.testing.assert_array_equal(program.run(feeds)["y"], expected)


def test_an_image_of_which_another_axis_varies_is_resized() -> None:
    model = parser.parse_model(f"""{HEADER} g (float[1,c,5,2] x) => (float[1,c,10,4] y)
        <float[4] scales = {{1.0, 1.0, 2.0, 2.0}}> {{
            y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"> (x, "", scales) }}""")
    program = graft.compile(model, ["llvm"], threads=1, cache=False, tuned=False)
    x = np.arange(30, dtype=np.float32).reshape(1, 3, 5, 2)
    np.testing.assert_array_equal(program.run({"x": x})["y"], x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize("times", [2, 3])
def test_open_images_are_enlarged_by_whole_numbers(times: int) -> None:
    model = parser.parse_model(f"""{HEADER} g (float[1,2,h,w] x, float[1,2,a,b] z) => (float[1,2,a,b] y)
        <float[4] scales = {{1.0, 1.0, {times}.0, {times}.0}}> {{
            r = Resize <mode = "nearest"> (x, "", scales) y = Add (r, z) }}""")
    program = graft.compile(model, ["llvm"], threads=1, cache=False, tuned=False)
    for height, width in ((1, 1), (2, 7), (5, 8), (3, 23), (2, 40), (0, 3)):
        x = np.arange(2.0 * height * width, dtype=np.float32).reshape(1, 2, height, width)
        expected = x.repeat(times, 2).repeat(times, 3)
        np.testing.assert_array_equal(program.run({"x": x, "z": np.zeros_like(expected)})["y"], expected)
        if height > 1:  # one is broadcast
            with pytest.raises(GraftError):
                program.run({"x": x, "z": np.zeros((1, 2, times * height + 1, times * width), np.float32)})


def test_a_part_of_a_known_shape_is_read_of_what_has_symbols() -> None:
    model = parser.parse_model(f"""{HEADER} g (float[n,m] x) => (float[1,4] y)
        <int64[3] shape = {{1, 6, 4}}, int64 last = {{5}}> {{
            z = Reshape (x, shape) y = Gather <axis = 1> (z, last) }}""")
    program = graft.compile(model, ["llvm"], threads=1, cache=False, tuned=False)
    for shape in ((8, 3), (2, 12)):
        x = np.arange(24, dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(program.run({"x": x})["y"], [[20, 21, 22, 23]])
    with pytest.raises(GraftError) as caught:
        program.run({"x": np.zeros((5, 5), np.float32)})
    assert caught.value.message == (
        "Reshape (node 'z'): the number of elements of 'x' is 25 and that of 'z' is 24; they must be equal"
    )


def test_branches_of_two_shapes_are_right_though_the_model_states_one() -> None:
    model = parser.parse_model(f"""{HEADER} g (bool c, float[1,1] x) => (float[1,1] y) {{
        y = If (c) <then_branch = t () => (float[a,b] p) {{
                        k = Constant <value = float[1,2] {{1.0, 2.0}}> () p = Sub (k, x) }},
                    else_branch = e () => (float[d,f] q) {{ q = Neg (x) }}> }}""")
    program = graft.compile(model, ["llvm", "reference"], threads=1, cache=False, tuned=False)
    x = np.float32([[3]])
    for choice, expected in ((True, [[-2, -1]]), (False, [[-3]])):
        np.testing.assert_array_equal(program.run({"c": np.array(choice), "x": x})["y"], expected)


def test_typical_values_agree_where_they_must() -> None:
    shapes = {"x": [Symbol("n"), Symbol("k")], "y": [Symbol("m")], "z": [Symbol("j")]}
    says = ("", "", "")
    equations = [
        ExtentEquation(Symbol("n"), 3, "equal", says), ExtentEquation(5, Symbol("j"), "at most", says),
        ExtentEquation(Symbol("m"), Symbol("k"), "broadcast", says),
    ]  # fmt: skip
    assert typical_values(shapes, {}, {}, equations) == {"n": 3, "k": 16, "m": 16, "j": 5}
    assert typical_values(shapes, {}, {"m": 7}, equations) == {"n": 3, "k": 7, "m": 7, "j": 5}


def test_typical_values_lie_in_their_ranges() -> None:
    shapes = {"x": (Symbol("n"), 3, Symbol("h"), Symbol("w")), "y": (Symbol("n"), Symbol("seq"))}
    assert typical_values(shapes, {"h": (1, 32), "seq": (64, None)}, {"w": 5}) == {"n": 2, "h": 22, "w": 5, "seq": 64}
    with pytest.raises(GraftError) as caught:
        typical_values(shapes, {}, {"z": 1})
    assert str(caught.value) == "no input has a dimension 'z'; there is 'n', 'h', 'w', 'seq'"


def test_the_reference_takes_what_nobody_else_takes() -> None:
    exported, make = MODELS["image"]
    model, feeds = make(), exported.feeds(exported.bindings[1])
    program = graft.compile(model, ["reference"], cache=False, tuned=False)
    np.testing.assert_allclose(program.run(feeds)["y"], ReferenceEvaluator(model).run(None, feeds)[0], rtol=1e-5)
