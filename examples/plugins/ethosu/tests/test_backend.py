"""The backend: what it refuses and why, options, costs, modules, networks."""

import math
from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from networks import NETWORKS, Network, by_onnx_runtime, inputs_of, quantised, share, steps_apart
from onnx.reference import ReferenceEvaluator
from quantised_models import IMAGE, MODELS, WHOLE, layer, normal

import graft
from graft.errors import GraftError
from graft.training import Trainer
from graft_ethosu import compilation, vela
from graft_ethosu.backend import EthosU
from graft_ethosu.blob import described, opened
from graft_ethosu.vela import SYSTEMS, EthosUOptions, compiled, configuration


def reasons(model, npu="u55-128", core="core"):
    plan = graft.plan(model, [f"ethosu:accelerator={npu}", "llvm"])
    return [(row.reasons["ethosu"].code, row.reasons["ethosu"].text) for row in plan.placements
            if row.backend != "ethosu" and row.node.startswith(core)]  # fmt: skip


def header_of(model, options="", cache=True):
    program = graft.compile(model, [f"ethosu{options}", "llvm"], cache=cache)
    (module,) = [one for one in program.description.modules if one.kind == "ethosu"]
    return opened(module.data)[0]


REFUSALS = [
    (layer("y = Resize <mode=\"nearest\"> (x0, r, s)", IMAGE,
           [("r", np.zeros(0, np.float32)), ("s", np.array([1, 1, 3, 3], np.float32))]),
     ("size", "Vela refuses QuantizeLinear (node 'quantise'): Non-passthrough operation (Resize) could not run on NPU "
              "of u55-128: U55 and U65 repeat elements 2, 4 or 8 times, and enlarge linearly by 2")),
    (layer("y = Slice (x0, s, e, a, t)", IMAGE,
           [(name, np.array([number])) for name, number in zip("seat", (0, 8, 2, 2), strict=True)]),
     ("attribute", "a slice with steps")),
    (layer("y = Div (x0, x1)", [[2, 8], [2, 8]]),
     ("constant-required", "a division by what is computed; by constants it is supported")),
    (layer("y = MatMul (x0, x1)", [[2, 3, 8], [8, 5]]),
     ("shape", "products of (2, 3, 8) and (8, 5); as many matrices are needed on both sides")),
    (layer("c = Conv (x0, w) y = Sqrt(c)", IMAGE, weights=normal(4, 4, 1, 1)),
     ("no-pattern", "nothing in the plugin computes Conv on float32; it is taken quantised: "
                    "graft quantize --for ethosu")),
    (layer("y = LayerNormalization (x0, w)", [[2, 8]], weights=normal(8)),
     ("no-pattern", "nothing in the plugin computes LayerNormalization on float32")),
]  # fmt: skip


@pytest.mark.parametrize(("model", "reason"), REFUSALS, ids=[one[1][0] for one in REFUSALS])
def test_a_refusal_says_why(model, reason):
    assert reasons(model)[0] == reason


def test_what_u55_refuses_u85_takes():
    assert reasons(REFUSALS[0][0], "u85-256") == []


def test_options_are_vela_s():
    small, large = (header_of(MODELS["conv"], f":accelerator={npu}") for npu in ("u55-32", "u55-256"))
    assert small["cycles"] > large["cycles"]
    assert small["macs"] == large["macs"] == 6 * 8 * 8 * 9 * 4
    slow = header_of(MODELS["conv"], ":system=Ethos_U55_Deep_Embedded")
    assert slow["clock"] == 200e6
    assert header_of(MODELS["conv"], ":memory=Sram_Only")["memories"].keys() != slow["memories"].keys()


@pytest.mark.parametrize("npu", EthosUOptions.__annotations__["accelerator"].__args__)
def test_every_accelerator_has_a_configuration(npu):
    text, limit, clock = configuration(EthosUOptions(accelerator=npu))
    assert f"macs={256 if npu == 'u65-512' else npu.partition('-')[2]}\n" in text
    assert SYSTEMS[npu[:3]] in text
    assert limit > 0 < clock


def test_a_name_that_the_configuration_does_not_have_is_said():
    with pytest.raises(GraftError, match=r"no System_Config 'None_Such' in .*; it has Ethos_U55_Deep_Embedded, "):
        EthosU(system="None_Such")


def test_vela_s_estimate_is_the_cost():
    program = graft.compile(MODELS["conv"], ["ethosu", "llvm"])
    (module,) = [one for one in program.description.modules if one.kind == "ethosu"]
    report = EthosU().report(module)
    assert report.facts["cycles"] > 0
    assert "multiplications" in report.text
    assert report.facts["macs"] == 6 * 8 * 8 * 9 * 4


def test_a_module_that_was_changed_is_refused():
    program = graft.compile(MODELS["conv"], ["ethosu", "llvm"])
    (module,) = [one for one in program.description.modules if one.kind == "ethosu"]
    for at in range(0, len(module.data), 97):
        broken = bytearray(module.data)
        broken[at] ^= 1
        with pytest.raises(GraftError, match="damaged"):
            opened(bytes(broken))


def test_weights_of_four_bits_are_taken():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (int8[1,4,8,8] x)
    => (int8[1,6,6,6] y) <float s = {0.02}, float t = {0.1}, int8 z = {7}, float ws = {0.05}>
    { d = DequantizeLinear(x, s) f = DequantizeLinear(w, ws) c = Conv(d, f) y = QuantizeLinear(c, t, z) }""")
    rng = np.random.default_rng(0)
    weights = onnx.helper.make_tensor("w", onnx.TensorProto.INT4, (6, 4, 3, 3), rng.integers(-8, 8, 216))
    model.graph.initializer.append(weights)
    program, x = graft.compile(model, ["ethosu", "llvm"], strict=True), rng.integers(-128, 128, (1, 4, 8, 8), np.int8)
    assert {row.backend for row in graft.Plan.of(program).placements} == {"ethosu"}
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert np.abs(program.run({"x": x})["y"].astype(int) - expected.astype(int)).max() <= 1


def test_calls_leave_the_process_as_it_was(capfd):
    model = MODELS["softmax"]
    graft.compile(model, ["ethosu", "llvm"]).run({"f0": np.ones((4, 10), np.float32)})
    assert capfd.readouterr() == ("", "")


def test_a_normalisation_is_decomposed_and_taken_whole():
    net = Network(1, 6, 16)
    y = net.op("LayerNormalization", net.product("x", 16, 16), net.constant(normal(16) + 1), net.constant(normal(16)))
    float_model = net.model(net.product(y, 16, 8))
    model = quantised(float_model)
    assert share(model, "u55-128") == (1.0, 1.0, {})
    x = {"x": inputs_of(float_model, 9)}
    exact, ours = (next(iter(graft.compile(one, backends).run(x).values()))
                   for one, backends in ((float_model, ["llvm"]), (model, ["ethosu", "llvm"])))  # fmt: skip
    assert np.corrcoef(exact.ravel(), ours.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("name", ["resnet8", "ds_cnn", "autoencoder", "person_detection"])
def test_networks_of_mlperf_tiny_are_whole_on_the_npu(name):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = by_onnx_runtime(NETWORKS[name]())
    assert share(model, "u55-128") == (1.0, 1.0, {})
    assert set(steps_apart(model, "u55-128")) <= {-1, 0, 1}


@pytest.mark.parametrize(
    "model",
    [
        layer("y = Conv <pads=[1,1,1,1]> (x0, w, b)", [["n", 4, 8, 8]], weights=normal(8, 4, 3, 3), bias=normal(8)),
        layer("y = Sub (x0, x1)", [["n", 4, 8, 8], ["n", 4, 1, 1]]),
    ],
)
def test_an_open_batch_is_computed_sample_by_sample(model):
    assert [code for code, _ in reasons(model)] == []
    program, reference = graft.compile(model, ["ethosu", "llvm"]), ReferenceEvaluator(model)
    for count in (1, 3):
        given = {one.name: np.random.default_rng(count).standard_normal((count, *one.shape[1:])).astype(np.float32)
                 for one in program.inputs}  # fmt: skip
        wanted = reference.run(None, given)[0]
        assert np.abs(program.run(given)["result"] - wanted).max() <= 0.1001


def test_by_the_recipe_pools_are_of_one_scale_and_transposed_convolutions_stay():
    net = Network(1, 8, 16, 16)
    y = net.op("ConvTranspose", "x", net.weights(8, 8, 2, 2, terms=32), strides=[2, 2])
    model = quantised(net.model(net.op("AveragePool", y, kernel_shape=[4, 4])))
    assert share(model, "u55-128") == (1.0, 1.0, {})
    made = graft.compile(model, ["ethosu", "llvm"]).description.modules
    (module,) = (one for one in made if one.kind == "ethosu")
    layers = {row[1] for row in opened(module.data)[0]["layers"]}
    assert "AvgPool" in layers
    assert "DepthwiseConv2D" not in layers


@pytest.mark.parametrize(("scale", "smooths"), [(0.02, False), (0.03, True)])
def test_u85_enlarges_linearly_itself_where_the_result_has_the_operand_s_scale(scale, smooths):
    model = layer('y = Resize <mode="linear"> (x0, roi, scales)', IMAGE, WHOLE, scale=scale)
    operators = {row[1] for row in header_of(model, ":accelerator=u85-256")["layers"]}
    assert ("DepthwiseConv2D" in operators) == smooths
    x = {"f0": normal(1, 4, 8, 8) * 4}
    (expected,) = ReferenceEvaluator(model).run(None, x)
    actual = graft.compile(model, ["ethosu:accelerator=u85-256", "llvm"], strict=True).run(x)["result"]
    assert np.abs(np.rint((actual - expected) / scale)).max() <= 1


def test_what_graft_quantises_is_taken():
    model = NETWORKS["resnet8"]()
    data = {"x": np.random.default_rng(3).standard_normal((4, 3, 32, 32)).astype(np.float32)}
    operators, work, left = share(graft.quantize(model, "int8-channel", data), "u55-128")
    assert work > 0.99
    assert {why.code for why in left.values()} <= {"no-pattern", "cost"}  # the last layers have float results
    assert operators > 0.8


def test_what_was_trained_through_quantisation_is_taken_as_before():
    model, rng = NETWORKS["resnet8"](), np.random.default_rng(3)
    data = {"x": rng.standard_normal((4, 3, 32, 32)).astype(np.float32)}
    quantised_model = graft.quantize(model, graft.quantization.recipe_for("ethosu"), data)
    (output,) = (value.name for value in quantised_model.graph.outputs)
    trainer = Trainer(quantised_model, "mse", of=output)
    target = np.zeros((4, *quantised_model.graph.outputs[0].shape.numpy()[1:]), np.float32)
    losses = trainer.fit({**data, "target": target}, epochs=3, batch=1)
    assert losses[-1] < losses[0]
    assert share(trainer.model, "u55-128") == share(quantised_model, "u55-128")


def test_vela_is_not_asked_again_for_a_region_that_any_process_had_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, asked = MODELS["conv"], []
    first = header_of(model)

    def counted(flatbuffer, options, where):
        asked.append(where)
        return compiled(flatbuffer, options, where)

    monkeypatch.setattr(compilation, "known", counted)
    assert header_of(model) == first
    assert not [where for where in asked if where.startswith("region")]
    assert header_of(model, ":accelerator=u55-32") != first
    assert [where for where in asked if where.startswith("region")]


def test_the_report_counts_what_is_transposed_at_the_edges_and_says_what_vela_printed(monkeypatch):
    monkeypatch.setattr(vela, "printed", lambda: nullcontext(["said by Vela"]))
    monkeypatch.setattr(compilation, "known", compiled)
    header = header_of(MODELS["conv"], cache=False)
    shapes = [one["shape"] for one in (*header["inputs"], *header["outputs"])]
    assert header["transposed"] == sum(map(math.prod, shapes))
    text = described(header | {"sections": {"commands": 0, "weights": 0}})
    assert f"{header['transposed']:,} B transposed where the region begins and ends" in text
    assert text.splitlines()[-1] == "said by Vela"
