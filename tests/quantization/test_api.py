"""`graft.quantize`: what the models compute, in Graft and elsewhere, and what goes wrong."""

from __future__ import annotations

import tomllib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.datatypes import DATATYPES, ScaledType, convert_scaled, register_float
from graft.errors import AccuracyError, RecipeError
from graft.quantization import NAMED, Scaling, compare, notes_of, quantize, recipe_of
from graft.quantization.preparation import in_floats
from tests.quantization.networks import convolutions, images, model, run, snr

X = images(24)
LEAST = {"int8": 24, "int8-channel": 34, "int8-weights": 40, "int4-weights": 20, "float8": 22, "mxfp4-weights": 18,
         "mxfp6-weights": 30, "int3-weights": 12}  # fmt: skip


@pytest.fixture(scope="module")
def exact() -> np.ndarray:
    return run(in_floats(convolutions()), x=X)


@pytest.mark.parametrize("name", NAMED)
def test_a_recipe_keeps_the_signal_and_graft_computes_what_the_reference_does(name, exact):
    found = quantize(convolutions(), name, {"x": X})
    onnx.checker.check_model(ir.to_proto(found), full_check=True)
    wanted = run(found, x=X)
    assert snr(exact, wanted) > LEAST[name]
    program = graft.compile(found)
    assert snr(wanted, np.asarray(program(X))) > (30 if NAMED[name].activations else 90)  # a step of a scale, rarely


@pytest.mark.parametrize("name", [name for name in NAMED if name != "mxfp4-weights"])  # it has no float4e2m1
def test_onnxruntime_computes_what_the_reference_does(name):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    proto = ir.to_proto(quantize(convolutions(), name, {"x": X}))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its products of bytes saturate where the processor has no VNNI: in floats it computes what the model says.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": X})[0]
    assert snr(run(proto, x=X), found) > (30 if NAMED[name].activations else 90)


def test_products_in_blocks_are_those_of_the_scaled_type_and_have_rows(exact):
    found = quantize(convolutions(), "mxfp8e4m3", keep=["c3"])
    assert notes_of(found) == ["recipe 'mxfp8e4m3': products in blocks of mxfp8e4m3, 8.25 bits a number"]
    wanted = graft.compile(convert_scaled(in_floats(convolutions()), "mxfp8e4m3", keep=["c3"]))(X)
    np.testing.assert_array_equal(np.asarray(graft.compile(found)(X)), np.asarray(wanted))
    report = compare(convolutions(), found, {"x": X})
    assert [(row.layer, row.operator) for row in report.layers] == [("c1", "Conv"), ("fc", "Gemm")]
    assert report.snr_db == pytest.approx(snr(exact, np.asarray(wanted)), abs=0.01)
    assert min(row.snr_db for row in report.layers) > 20
    alone = quantize(convolutions(), {"base": "mxfp8e4m3", "nodes": ["fc"]})
    assert [row.layer for row in compare(convolutions(), alone, {"x": X}).layers] == ["fc"]


def test_a_model_in_blocks_keeps_no_weights_in_floats():
    floats = in_floats(convolutions())
    left = {
        name for name, one in quantize(floats, "mxfp4").graph.initializers.items() if one.dtype is ir.DataType.FLOAT
    }
    taken = {"c1", "c3", "fc"}
    weights = {node.inputs[1].name for node in floats.graph if node.name in taken}
    assert len(weights) == 3
    assert not left & weights


def test_every_type_of_weights_and_activations_runs(exact):
    for kind in ("int8", "uint8", "int16", "uint16", "int4", "uint4", "float8e4m3fn", "float8e5m2"):
        recipe = {"weights": {"type": kind, "granularity": "channel"}, "activations": {"type": kind}}
        found = run(quantize(convolutions(), recipe, {"x": X}), x=X)
        bits = 16 if "16" in kind else 4 if "4" in kind and "float" not in kind else 8
        assert snr(exact, found) > {16: 60, 8: 12, 4: 3}[bits]


def test_finer_scales_and_more_bits_have_smaller_errors(exact):
    def error(**weights: object) -> float:
        return snr(exact, run(quantize(convolutions(), {"weights": weights}), x=X))

    assert error(granularity="tensor") < error(granularity="channel") < error(granularity="group", group=2)
    assert error(type="int4", granularity="channel") < error(granularity="channel")


@pytest.mark.parametrize(
    ("change", "gain"),
    [({"correct_bias": True}, 0.0), ({"equalize": True}, 1.0), ({"weights": {"rounding": "gptq"}}, 1.0)],
    ids=str,
)
def test_a_switch_makes_the_error_smaller(change, gain, exact):
    plain = {"weights": {"type": "int4", "granularity": "tensor" if "equalize" in change else "channel"}}
    weights = {**plain["weights"], **change.get("weights", {})}
    before = snr(exact, run(quantize(convolutions(), plain, {"x": X}), x=X))
    after = snr(exact, run(quantize(convolutions(), {**plain, **change, "weights": weights}, {"x": X}), x=X))
    assert after > before + gain


BIASED = {
    "own": ("[fc] y = Gemm <transB = 1> (x, w, b)", (4, 6)),
    "own, with factors": ("[fc] y = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, w, b)", (4, 6)),
    "own, absent": ("[fc] y = Gemm <transB = 1> (x, w)", (4, 6)),
    "added behind": ("[mm] t = MatMul (x, w) [add] y = Add (b, t)", (6, 4)),
}


@pytest.mark.parametrize("form", BIASED)
def test_the_bias_takes_out_the_mean_error_of_a_layer(form):
    text, shape = BIASED[form]
    bias = {} if "absent" in form else {"b": (4,)}
    one = model(f"g (float[n,6] x) => (float[n,4] y) {{ {text} }}", w=shape, **bias)
    x = np.random.default_rng(0).normal(3, 1, (200, 6)).astype(np.float32)
    recipe = {"weights": {"type": "int4"}}
    off = [
        np.abs(run(quantize(one, {**recipe, "correct_bias": on}, {"x": x}), x=x).mean(0) - run(one, x=x).mean(0)).max()
        for on in (False, True)
    ]
    assert off[0] > 0.01
    assert off[1] < 1e-5


def test_products_without_a_bias_are_noted():
    text = "g (float[n,6] x) => (float[n,4] y) { [mm] t = MatMul (x, w) y = Relu (t) }"
    recipe = {"weights": {"type": "int4"}, "correct_bias": True}
    notes = notes_of(quantize(model(text, w=(6, 4)), recipe, {"x": np.ones((4, 6), np.float32)}))
    assert notes[1] == "products without a bias that could be corrected: mm"


def test_groups_are_blocks_of_onnx_and_a_short_one_is_noted():
    text = "g (float[n,10] x) => (float[n,4] y) { [mm] y = MatMul (x, w) }"
    one = model(text, w=(10, 4))
    found = quantize(one, {"weights": {"type": "int4", "granularity": "group", "group": 4}})
    node = next(node for node in found.graph if node.op_type == "DequantizeLinear")
    assert (node.attributes["axis"].value, node.attributes["block_size"].value) == (0, 4)
    assert node.inputs[0].dtype is ir.DataType.INT4
    assert tuple(node.inputs[1].shape) == (3, 4)
    assert notes_of(found)[1] == "weights whose last group is short: 'w' (2 of 4)"
    x = np.random.default_rng(0).normal(size=(5, 10)).astype(np.float32)
    assert snr(run(found, x=x), np.asarray(graft.compile(found)(x))) > 90
    assert "4.00" not in notes_of(found)[0]
    assert "13.60 bits a weight" in notes_of(found)[0]  # 40 codes of 4 bits and 12 scales of 32


def test_a_bias_that_int32_does_not_hold_stays_in_floats():
    text = "g (float[n,2] x) => (float[n,2] y) { [fc] y = Gemm <transB = 1> (x, w, b) }"
    one = model(text, w=np.array([[1e-9, 1e-9], [1, 1]]), b=np.array([1e3, 0.5]))
    x = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    found = quantize(one, "int8-channel", {"x": x})
    assert "the bias of Gemm (node 'fc') stays in float32: no int32 holds it" in notes_of(found)
    np.testing.assert_allclose(run(found, x=x)[:, 0], 1e3, rtol=1e-6)


def test_shared_weights_are_quantised_once():
    text = "g (float[n,4] x) => (float[n,4] y) { [a] b = MatMul (x, w) [c] y = MatMul (b, w) }"
    found = quantize(model(text, w=(4, 4)), "int8-weights")
    assert [node.op_type for node in found.graph] == ["DequantizeLinear", "MatMul", "MatMul"]


def test_nodes_that_are_kept_compute_as_before(exact):
    found = quantize(convolutions(), "int8", {"x": X}, keep=["c?", "add", "mean"])
    kinds = [node.op_type for node in found.graph]
    assert kinds.count("QuantizeLinear") == 2  # of h and i, for the matrix
    assert "in floats: c?, add, mean" in notes_of(found)[0]


def test_layers_have_the_types_of_their_recipes():
    layers = {"c1": "int8-weights", "c2": "float32", "add": "float32", "mean": "float32"}
    found = quantize(convolutions(), {"base": "int8-channel", "weights": {"type": "int4"}, "layers": layers}, {"x": X})
    kinds = {node.name: [value.producer().inputs[0].dtype.name for value in node.inputs[:2]
                         if value.producer() and value.producer().op_type == "DequantizeLinear"]
             for node in found.graph}  # fmt: skip
    assert {name: kinds[name] for name in ("c1", "c2", "c3", "fc", "add")} == {
        "c1": ["INT8"], "c2": [], "c3": ["INT8", "INT4"], "fc": ["INT8", "INT4"], "add": [],
    }  # fmt: skip
    assert snr(run(found, x=X), np.asarray(graft.compile(found)(X))) > 30


def test_weights_that_two_layers_share_are_scaled_by_each():
    text = "g (float[n,4] x) => (float[n,4] y) { [a] b = MatMul (x, w) [c] y = MatMul (b, w) }"
    recipe = {"base": "int8-weights", "layers": {"c": {"base": "int4-weights", "weights": {"rounding": "nearest"}}}}
    found = quantize(model(text, w=(4, 4)), recipe)
    kinds = [node.inputs[0].dtype.name for node in found.graph if node.op_type == "DequantizeLinear"]
    assert kinds == ["INT8", "INT4"]


def test_data_may_be_larger_than_memory():
    def source():
        for seed in range(6):
            yield {"x": images(8, seed)}

    stacked = {"x": np.concatenate([images(8, seed) for seed in range(6)])}
    streamed, whole = (quantize(convolutions(), "int8", data) for data in (source(), stacked))
    constants = [{k: v.const_value.numpy() for k, v in one.graph.initializers.items()} for one in (streamed, whole)]
    assert constants[0].keys() == constants[1].keys()
    for name, array in constants[0].items():
        np.testing.assert_allclose(array.astype(float), constants[1][name].astype(float), rtol=1e-6, err_msg=name)


def test_a_bound_on_the_metric_keeps_the_worst_layers_in_floats():
    recipe = {"weights": {"type": "int4"}, "activations": {"type": "int4"}}

    def metric(outputs, labels):
        return -float(np.sum((outputs["y"] - Y) ** 2))

    whole = compare(convolutions(), quantize(convolutions(), recipe, {"x": X}), {"x": X}, metric=metric).metric
    found = quantize(convolutions(), recipe, {"x": X}, within=-whole / 3, metric=metric)
    assert compare(convolutions(), found, {"x": X}, metric=metric).metric >= whole / 3
    assert "in floats:" in notes_of(found)[0]
    assert any(node.op_type == "QuantizeLinear" for node in found.graph)


def test_labels_of_the_data_are_the_metric():
    data = {"x": X, "labels": Y.argmax(axis=1)}
    found = quantize(convolutions(), "int8", data, within=0.0)
    assert (compare(convolutions(), found, data).metric, "in floats" in notes_of(found)[0]) == (1.0, False)


def test_the_best_model_comes_with_the_error_of_a_bound_that_cannot_be_met():
    recipe = {"weights": {"type": "int4"}, "activations": {"type": "int4"}}
    with pytest.raises(AccuracyError, match=r"the metric is .* at best") as caught:
        quantize(convolutions(), recipe, {"x": X}, within=0.0, metric=lambda outputs, _: -abs(outputs["y"] - Y).max())
    assert isinstance(caught.value.model, ir.Model)


Y = run(in_floats(convolutions()), x=X)


@pytest.mark.parametrize(
    ("recipe", "data", "options", "message"),
    [
        (
            "int8", None, {},
            "recipe 'int8' is calibrated with data; give some, or a recipe of weights alone that rounds to 'nearest' "
            "and corrects no bias",
        ),
        (
            "int8", {"x": np.full((2, 3, 12, 12), np.nan)}, {},
            "value 'x' has 864 elements that are NaN or infinite on the data; mend the data, or keep the node that "
            "makes it",
        ),
        (
            {"keep": ["*"], "weights": {}}, None, {},
            "recipe 'custom' quantises nothing of this model: no node takes what it scales",
        ),
        ("int8", {"x": X}, {"within": 0.1}, "a bound on the metric needs labels in the data, or a metric"),
        (
            {"activations": {}, "smooth": 0.5}, iter([X]), {},
            "the data are an iterator that has ended, and are needed once more; give a list or a path",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_quantised_is_said(recipe, data, options, message):
    one = convolutions()
    if isinstance(recipe, dict) and recipe.get("smooth"):
        text = "g (float[n,3,12,12] x) => (float[n,4,12,12] y) { a = Conv (x, v) b = Relu (a) y = Conv (b, w) }"
        one = model(text, v=(4, 3, 1, 1), w=(4, 4, 1, 1))
    with pytest.raises(RecipeError) as caught:
        quantize(one, recipe, data, **options)
    assert str(caught.value) == message


def test_weights_alone_are_rounded_as_the_recipe_says():
    one = model("g (float[n,64] x) => (float[n,64] y) { y = MatMul (x, w) }", w=(64, 64))
    weights = onnx.numpy_helper.to_array(one.graph.initializer[0])

    def rounded(**fields: object) -> np.ndarray:
        found = quantize(one, {"weights": fields})
        return run(found, x=np.eye(64, dtype=np.float32))

    scale = np.abs(weights).max() / 127
    assert (np.abs(rounded(rounding="zero")) <= np.abs(weights) + 1e-7).all()
    np.testing.assert_allclose(rounded(), np.rint(weights / scale) * scale, atol=1e-6)
    drawn = rounded(rounding="stochastic", seed=1)
    assert np.array_equal(drawn, rounded(rounding="stochastic", seed=1))
    assert not np.array_equal(drawn, rounded(rounding="stochastic", seed=2))
    assert abs((drawn - weights).mean()) < 4 * scale / 64 / 2
    assert Scaling().rounding == "nearest"


def test_mxfp4_is_written_in_onnx_types():
    found = quantize(convolutions(), "mxfp4-weights", {"x": X})
    kinds = {tuple(value.dtype.name for value in node.inputs[:2]) for node in found.graph if "Deq" in node.op_type}
    assert kinds == {("FLOAT4E2M1", "FLOAT8E8M0")}


def test_a_normalisation_that_is_decomposed_computes_on_codes():
    text = """g (float[n,4,8] x) => (float[n,4,3] y) {
        a = MatMul(x, w) l = LayerNormalization<axis=-1>(a, s, b) y = MatMul(l, v) }"""
    one, x = model(text, w=(8, 8), s=(8,), b=(8,), v=(8, 3)), np.random.default_rng(2).normal(size=(40, 4, 8))
    x = x.astype(np.float32)
    recipe = {"base": "int8-channel", "results": True, "decompose": ["LayerNormalization", "Div"],
              "operators": ["Sub", "Mul", "ReduceMean"]}  # fmt: skip
    found = quantize(one, recipe, {"x": x})
    assert snr(run(one, x=x), run(found, x=x)) > 20
    kinds = [node.op_type for node in found.graph]
    assert "LayerNormalization" not in kinds
    assert "Div" not in kinds
    for node in found.graph:
        if node.op_type in ("Sub", "Mul", "ReduceMean"):
            assert node.inputs[0].producer().op_type == "DequantizeLinear"


def test_blocks_of_a_format_of_ones_own_are_a_table_of_the_recipe(exact):
    if "sevenbits" not in DATATYPES:
        register_float("sevenbits", exponent=3, mantissa=3, nan="none")
    type = ScaledType("custom[sevenbits]7", "custom[float8e4m3fn]8", 16, "nearest")
    blocks = {"element": "sevenbits7", "scale": "float8e4m3", "block": 16, "rule": "nearest"}
    recipe = recipe_of({"name": "seven", "blocks": blocks})
    assert recipe.scaled_type == type
    assert recipe_of(tomllib.loads(recipe.to_toml())) == recipe
    assert recipe_of({"base": "mxfp4", "blocks": {"block": 16}}).scaled_type == ScaledType(
        "custom[float4e2m1]4", block=16
    )
    found = np.asarray(graft.compile(quantize(convolutions(), recipe))(X))
    wanted = graft.compile(convert_scaled(in_floats(convolutions()), type))(X)
    np.testing.assert_array_equal(found, np.asarray(wanted))
    assert snr(exact, found) > 25
    report = graft.sweep(convolutions(), (), {"x": X[:2]}, recipes=[recipe], shapes={"x": (1, 3, 12, 12)}, threads=1)
    short = 216 * (7 + 8 / 3) + 104 * (7 + 8 / 8)  # blocks of 3 and of 8 channels; one layer is depthwise, and stays
    assert (report.rows[1].name, report.rows[1].weight_bits) == ("seven", pytest.approx((short + 72 * 32) / 392))


def test_layers_in_blocks_may_be_all_that_a_recipe_has():
    found = quantize(convolutions(), {"base": "int8", "layers": {"*": "mxfp4"}}, {"x": X})
    wanted = convert_scaled(in_floats(convolutions()), "mxfp4", depthwise=True)  # a sum is no product, and stays
    np.testing.assert_array_equal(np.asarray(graft.compile(found)(X)), np.asarray(graft.compile(wanted)(X)))
    assert notes_of(found) == ["recipe 'int8': 4 products in blocks of mxfp4, 4.25 bits a number"]


def test_weights_in_blocks_are_finite():
    floats = model("g (float[n,32] x) => (float[n,2] y) { y = MatMul (x, w) }", w=np.full((32, 2), np.inf))
    with pytest.raises(RecipeError) as caught:
        quantize(floats, "mxfp4")
    assert caught.value.message == ("weights 'w' hold NaN or infinity, which no scale maps to numbers; keep their node")


NOTHING = {
    "x_f16 = Cast <to = 10> (x) w_f16 = Cast <to = 10> (w) [p] p = MatMul (x_f16, w_f16) y = Cast <to = 1> (p)":
        "MatMul (node 'p') computes in float16, and recipes take float32",
    "t = Transpose <perm = [1,0]> (x) [p] y = MatMul (w, t)":
        "MatMul (node 'p') is not taken by it; weights are the right side of MatMul or Gemm, or those of a convolution",
}  # fmt: skip


@pytest.mark.parametrize("text", NOTHING)
def test_a_model_of_which_nothing_is_quantised_hears_why(text):
    floats = model(f"g (float[32,32] x) => (float[32,32] y) {{ {text} }}", w=(32, 32))
    with pytest.raises(RecipeError) as caught:
        quantize(floats, "int8-weights")
    assert caught.value.message == f"recipe 'int8-weights' quantises nothing of this model: {NOTHING[text]}"
