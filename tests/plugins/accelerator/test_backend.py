"""The accelerator as a backend: from ONNX to artifacts that run on its simulators."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from examples.models.quantized import Network
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.errors import ArtifactError, OptionError
from graft.plugins.accelerator.assembly import assemble, disassemble
from graft.plugins.accelerator.backend import AcceleratorBackend
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.module import BORDER, HEAD, checksum, program_of
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.report import report_of
from graft.runtime.artifact import read, save
from graft.runtime.procedure import Module
from tests.end_to_end.quantized import Quantized

BACKENDS = ["accelerator", "reference"]
X = np.random.default_rng(3).standard_normal((1, 3, 16, 16)).astype(np.float32)


def small_network() -> onnx.ModelProto:
    """One layer of each kind that a network of images has."""
    net = Network("small", 0)
    x = net.conv(net.input(1, 3, 16, 16), 24, 3, 2)
    y = net.conv(net.conv(x, 24, 3, groups=24), 24, 1, relu=False)
    x = net.plus(x, y, relu=True)
    pooled = net.quantized(
        net.add("MaxPool", x.numbers, kernel_shape=[2, 2], strides=[2, 2]), (1, 24, 4, 4), x.scale, x.zero
    )
    joined = net.add("Concat", pooled.numbers, net.conv(pooled, 8, 1).numbers, axis=1)
    return net.classified(net.quantized(joined, (1, 32, 4, 4), x.scale, 0), 10)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accelerator") / "small.graft"
    graft.compile(small_network(), ["accelerator", "llvm"], strict=True).save(path)
    return path


def module_of(artifact: Path) -> Module:
    (found,) = (module for module in read(artifact).modules if module.kind == "accelerator")
    return found


@pytest.mark.parametrize("device", ["functional", "cycles"])
def test_an_artifact_gives_what_the_reference_gives(
    artifact: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFT_ACCELERATOR_DEVICE", device)
    program = graft.runtime.load(artifact, strict=True)
    expected = ReferenceEvaluator(small_network()).run(None, {"input": X})[0]
    for _ in range(2):
        np.testing.assert_array_equal(program(X), expected)


def test_a_network_of_quantized_layers_is_one_region() -> None:
    plan = graft.plan(small_network(), ["accelerator", "llvm"])
    assert {row.op_type for row in plan.placements if row.backend == "llvm"} == {"QuantizeLinear", "DequantizeLinear"}
    assert len(plan.regions("accelerator")) == 1


def test_views_of_what_a_region_is_given_are_among_its_outputs() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (int8[1,3,4,5] x) => (int8[3,4,5] y, int8[1,3,4,5] z, int8[1,3,2,2] p) <int64[1] first = {0}>
        { y = Squeeze(x, first) z = Unsqueeze(y, first) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }"""
    )
    x = np.random.default_rng(5).integers(-128, 128, (1, 3, 4, 5), np.int8)
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    for kept in (["y"], ["y", "z"], ["y", "z", "p"]):
        part = onnx.utils.Extractor(model).extract_model(["x"], kept)
        program = graft.compile(part, ["accelerator"], strict=True, cache=False)
        for found, wanted in zip(program.run({"x": x}).values(), expected, strict=False):
            np.testing.assert_array_equal(found, wanted)


def test_an_unknown_device_is_refused(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_ACCELERATOR_DEVICE", "fpga")
    with pytest.raises(graft.GraftError) as caught:
        graft.runtime.load(artifact, strict=True)
    assert (
        "GRAFT_ACCELERATOR_DEVICE is 'fpga'; 'functional', 'cycles' or the path of a driver is expected"
        in caught.value.message
    )


def test_the_compiled_program_is_safe_and_is_its_text(artifact: Path) -> None:
    module = module_of(artifact)
    program = program_of(module.data, module.constants)
    prove(program)
    assert assemble(disassemble(program)) == program


@pytest.mark.parametrize("place", [0, 9, 24, 200, -30, -8, -1])
def test_a_damaged_module_is_refused(artifact: Path, place: int, tmp_path: Path) -> None:
    module = module_of(artifact)
    data = bytearray(module.data)
    data[place] ^= 4
    with pytest.raises(ArtifactError):
        program_of(bytes(data), module.constants)
    description = read(artifact)
    modules = tuple(
        replace(one, data=bytes(data)) if one is not module and one.name == module.name else one
        for one in description.modules
    )
    save(replace(description, modules=modules), tmp_path / "damaged.graft")
    with pytest.raises(graft.GraftError) as caught:
        graft.runtime.load(tmp_path / "damaged.graft", strict=True)
    assert "program" in caught.value.message


BORDER_ARGUMENT, BORDER_HEIGHT = 2, 7
"""Where a border has the number of its argument, and the height of its tensor."""


@pytest.mark.parametrize(
    ("field", "number", "text"),
    [
        (BORDER_ARGUMENT, 7, "takes output 7, and its call has 1; compile the model again"),
        (BORDER_ARGUMENT, -1, "takes output -1, and its call has 1; compile the model again"),
        (BORDER_HEIGHT, 99, "the program is damaged; compile the model again"),
    ],
)
def test_a_crafted_module_with_the_right_checksum_is_refused(
    artifact: Path, field: int, number: int, text: str, tmp_path: Path
) -> None:
    description, own = read(artifact), module_of(artifact)
    words = np.frombuffer(own.data, np.int64).copy()
    constants, inputs = words[HEAD - 5 : HEAD - 3]
    words[HEAD + 2 * constants + BORDER * inputs + field] = number
    words[-1:] = np.array([checksum(words[:-1].tobytes())], np.uint64).view(np.int64)
    modules = tuple(replace(one, data=words.tobytes()) if one.name == own.name else one for one in description.modules)
    save(replace(description, modules=modules), tmp_path / "crafted.graft")
    with pytest.raises(graft.GraftError) as caught:
        graft.runtime.load(tmp_path / "crafted.graft", strict=True)
    assert caught.value.message.endswith(text)


def test_a_report_accounts_for_all_cycles_and_bytes(artifact: Path) -> None:
    report = report_of(module_of(artifact))
    facts = report.facts
    assert sum(layer["cycles"] for layer in facts["layers"]) <= facts["cycles"]
    assert {layer["kind"] for layer in facts["layers"]} >= {"convolution", "pooling", "product"}
    for times in facts["units"].values():
        assert sum(times.values()) == facts["cycles"]
    assert 0 < facts["padding_waste"] < 1
    assert facts["roofline"]["hidden"] == facts["cycles"] <= facts["roofline"]["not_hidden"]
    assert "<table>" in report.html
    assert "LAYER" in report.text


# ---- What is not taken ----------------------------------------------------------------------------------------------


def reason(layer: Quantized, result: str, dtype: str, node: str, backend: object = "accelerator") -> str:
    plan = graft.plan(layer.model(result, dtype), [backend, "llvm"])  # type: ignore[list-item]
    (row,) = (row for row in plan.placements if row.node == node)
    assert row.backend == "llvm"
    return str(row.reasons["accelerator"])


def test_an_operator_of_floats_is_refused() -> None:
    layer = Quantized()
    y = layer.add("Conv", layer.input(1, 3, 4, 4), layer.constant(np.ones((2, 3, 1, 1))))
    assert reason(layer, y, "float32", "n0") == (
        "no-pattern: Conv is computed on bytes alone, between DequantizeLinear and QuantizeLinear; it is taken "
        "quantised: graft quantize --for accelerator"
    )


def test_an_operator_that_no_instruction_computes_is_refused() -> None:
    layer = Quantized()
    y = layer.add("Softmax", layer.input(1, 3))
    assert reason(layer, y, "float32", "n0") == "no-pattern: no instruction computes Softmax"


def test_a_bias_between_whole_numbers_is_refused() -> None:
    layer = Quantized()
    x = layer.dequantize(layer.input(1, 3, 4, 4, dtype="uint8"), 0.5, 3)
    w, _ = layer.weights(2, 3, 1, 1, axis=None, scale=0.25)
    y = layer.quantize(layer.add("Conv", x, w, layer.constant([0.3, 0.125])), 0.5)
    assert reason(layer, y, "uint8", "n3") == (
        "accuracy: the bias is no whole multiple of the product of the operands' scales"
    )


def test_weights_that_are_computed_are_refused() -> None:
    layer = Quantized()
    x = layer.dequantize(layer.input(1, 3, 4, 4, dtype="uint8"), 0.5, 3)
    w = layer.dequantize(layer.input(2, 3, 1, 1, dtype="int8"), 0.5, 0, "int8")
    y = layer.quantize(layer.add("Conv", x, w), 0.5)
    assert reason(layer, y, "uint8", "n3").startswith("constant-required: accelerator.convolution matched")


def test_a_layer_that_fits_in_no_tiling_is_refused_with_the_numbers() -> None:
    tiny = AcceleratorBackend(input_bytes=512, weight_bytes=4096, accumulator_bytes=2048)
    layer = Quantized()
    x = layer.dequantize(layer.input(1, 3, 64, 64, dtype="uint8"), 0.5, 3)
    w, _ = layer.weights(2, 3, 15, 15, axis=None, scale=0.25)
    y = layer.quantize(layer.add("Conv", x, w), 64.0)
    text = reason(layer, y, "uint8", "n3", tiny)
    assert text == (
        "size: no tile of 'v3' (kernel 15 x 15, 1 blocks of 64 x 64 to 1 of 50 x 50) fits into 16 inputs, 8 weights "
        "and 8 accumulators"
    )


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(input_bytes=8192, weight_bytes=65536, accumulator_bytes=65536),
        Configuration(block_in=8, block_out=8, input_bytes=16384, weight_bytes=32768, accumulator_bytes=32768),
        Configuration(block_in=32, block_out=32, queue_depth=16, token_depth=16),
    ],
    ids=["half", "8 x 8", "32 x 32"],
)
def test_a_configuration_of_its_own_runs_what_it_compiles(configuration: Configuration) -> None:
    own = AcceleratorBackend(**asdict(configuration), trials=2)
    placed = graft.plan(small_network(), [own, "reference"]).placements
    assert {row.op_type for row in placed if row.backend == "reference"} == {"QuantizeLinear", "DequantizeLinear"}
    program = graft.compile(small_network(), [own, "reference"], strict=True)
    np.testing.assert_array_equal(program(X), ReferenceEvaluator(small_network()).run(None, {"input": X})[0])


def test_trials_are_no_part_of_the_machine_and_not_negative() -> None:
    assert AcceleratorBackend(trials=2).version() == AcceleratorBackend().version()
    with pytest.raises(OptionError) as caught:
        AcceleratorBackend(trials=-1)
    assert str(caught.value) == "options of backend 'accelerator': 'trials' is -1; give 0 or more"


# ---- Several programs -----------------------------------------------------------------------------------------------


def test_a_product_with_a_result_of_its_own_region_is_two_programs() -> None:
    layer = Quantized(2)
    x = layer.dequantize(layer.input(1, 20, 20, dtype="int8"), 2.0**-5, 7, "int8")
    w, _ = layer.weights(20, 20, axis=None, scale=2.0**-7)
    inner = layer.quantize(layer.add("MatMul", x, w), 0.5, 3, "int8")
    y = layer.quantize(layer.add("MatMul", x, layer.dequantize(inner, 0.5, 3, "int8")), 4.0, -5, "int8")
    model = layer.model(y, "int8")
    compiled = compile_model(model, Request(BACKENDS, strict=True))
    assert [module.kind for module in compiled.description.modules] == ["accelerator", "accelerator"]
    program = graft.compile(model, BACKENDS, strict=True)
    np.testing.assert_array_equal(program(*layer.inputs.values()), layer.expected(model))


def test_a_right_hand_side_of_more_columns_than_rows_lies_block_by_block() -> None:
    layer = Quantized(2)
    left, right = layer.input(2, 5, 3, dtype="int8"), layer.input(2, 3, 40, dtype="uint8")
    x, w = layer.dequantize(left, 2.0**-5, 7, "int8"), layer.dequantize(right, 2.0**-5, 90)
    model = layer.model(layer.quantize(layer.add("MatMul", x, w), 0.5, 3, "int8"), "int8")
    program = graft.compile(model, ["accelerator"], strict=True)
    np.testing.assert_array_equal(program(*layer.inputs.values()), layer.expected(model))
