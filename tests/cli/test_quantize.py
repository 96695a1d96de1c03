"""`graft quantize`, and `graft verify` of what it writes against the float model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
METRIC = "def spread(outputs, labels):\n    return float(outputs['logits'].max()) + 0 * len(labels)\n"


@pytest.fixture
def data(tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "data.npz"
    np.savez(path, image=random.uniform(0, 1, (24, 1, 8, 8)).astype(np.float32), labels=random.integers(0, 10, 24))
    return path


def test_a_model_is_written_with_its_errors(graft, tmp_path, data):
    output = tmp_path / "int8.onnx"
    found = graft("quantize", DIGITS, "--recipe", "int8-channel", "--data", data, "-o", output)
    assert found.code == 0, found.err
    lines = found.out.splitlines()
    assert lines[0] == "LAYER    OPERATOR  SNR dB  MAX ABS  SATURATED  UNDERFLOWED  INVALID  ELEMENTS"
    assert [line.split()[0] for line in lines[1:7]] == ["conv_0", "conv_3", "conv_6", "gemm_10", "logits", "logits"]
    assert lines[7].startswith("metric: 0.")
    assert lines[8] == "recipe 'int8-channel': 5 scales of activations, 5 products, 8.10 bits a weight"
    assert lines[9] == f"wrote {output}: {output.stat().st_size} bytes, of {DIGITS.stat().st_size}"
    kinds = [node.op_type for node in onnx.load(output).graph.node]
    assert kinds.count("DequantizeLinear") == 17  # of 7 activations, 5 weights and 5 biases


def test_json_has_the_comparison(graft, tmp_path, data):
    found = graft("quantize", DIGITS, "--data", data, "-o", tmp_path / "q.onnx", "--json")
    row = json.loads(found.out)
    assert row["notes"] == ["recipe 'int8': 5 scales of activations, 5 products, 8.00 bits a weight"]
    assert row["layers"][0]["layer"] == "conv_0"
    assert row["snr_db"] == row["outputs"][0]["snr_db"] > 20


def test_the_recipe_is_shown_as_a_file_with_its_changes(graft, tmp_path):
    found = graft("quantize", DIGITS, "--recipe", "int4-weights", "--set", "weights.group=64", "--set",
                  "weights.rounding=nearest", "--set", "correct_bias=false", "--show")  # fmt: skip
    content = tomllib.loads(found.out)
    assert content["weights"]["group"] == 64
    path = tmp_path / "own.toml"
    path.write_text(found.out)
    written = graft("quantize", DIGITS, "--recipe", path, "-o", tmp_path / "q.onnx", "--json")
    assert json.loads(written.out)["notes"][0].startswith("recipe 'int4-weights': 0 scales of activations, 5 products")


def test_a_folder_and_other_data_for_the_check(graft, tmp_path, data):
    folder = tmp_path / "folder"
    folder.mkdir()
    with np.load(data) as arrays:
        for row in range(4):
            np.savez(folder / f"{row}.npz", image=arrays["image"][row : row + 1])
    found = graft("quantize", DIGITS, "--data", folder, "--check", data, "-o", tmp_path / "q.onnx", "--json")
    row = json.loads(found.out)
    assert row["batches"] == 24
    assert row["metric"] is not None


GIVEN = """
import numpy as np
def batches():
    for seed in range(3):
        yield np.random.default_rng(seed).uniform(0, 1, (1, 64)), [seed]
def shaped(batch):
    rows, labels = batch
    return rows.reshape(1, 1, 8, 8).astype("float32"), labels
def read(path):
    return {"image": np.frombuffer(path.read_bytes(), np.uint8).reshape(1, 1, 8, 8) / np.float32(255), "labels": [3]}
"""


def test_a_function_gives_batches_another_one_prepares_them_and_each_reads_anew(graft, tmp_path):
    (tmp_path / "own.py").write_text(GIVEN)
    own = tmp_path / "own.py"
    given = ("--data", f"{own}:batches", "--preprocess", f"{own}:shaped")
    found = graft("quantize", DIGITS, "--within", "1", *given, "-o", tmp_path / "q.onnx", "--json")
    assert found.code == 0, found.err
    row = json.loads(found.out)
    assert row["batches"] == 3
    assert row["metric"] is not None
    own.write_text(GIVEN + "def rows(outputs, labels):\n    return len(labels)\n")
    found = graft("verify", tmp_path / "q.onnx", "--original", DIGITS, *given, "--metric", f"{own}:rows", "--json")
    verified = json.loads(found.out)
    assert (found.code, verified["batches"], verified["metric"]) == (0, 3, 3)
    found = graft("quantize", DIGITS, "--data", f"{own}:batches", "-o", tmp_path / "q.onnx")
    assert "array 'image' of the data has shape [1, 64]" in found.err
    found = graft("quantize", DIGITS, "--data", f"{own}:none", "-o", tmp_path / "q.onnx")
    assert f"'{own}' has no function 'none'" in found.err


def test_files_of_any_kind_are_read_by_the_users_function(graft, tmp_path):
    (tmp_path / "own.py").write_text(GIVEN)
    (tmp_path / "raw").mkdir()
    for seed in range(3):
        (tmp_path / "raw" / f"{seed}.grey").write_bytes(bytes(range(seed, 64 + seed)))
    found = graft("quantize", DIGITS, "--data", tmp_path / "raw", "--preprocess", f"{tmp_path / 'own.py'}:read",
                  "-o", tmp_path / "q.onnx", "--json")  # fmt: skip
    assert json.loads(found.out)["batches"] == 3, found.err


def test_what_was_gathered_is_taken_from_the_folder_and_damage_is_not(graft, tmp_path, data):
    kept = tmp_path / "kept"
    for output in ("a", "b", "c"):
        assert graft("quantize", DIGITS, "--data", data, "--resume", kept, "-o", tmp_path / output).code == 0
        (file,) = kept.iterdir()
        file.write_bytes(file.read_bytes()[: -len(output) if output == "b" else None])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


def test_a_metric_of_the_users_file_is_taken(graft, tmp_path, data):
    (tmp_path / "own.py").write_text(METRIC)
    found = graft("quantize", DIGITS, "--data", data, "--metric", f"{tmp_path / 'own.py'}:spread", "-o",
                  tmp_path / "q.onnx", "--json")  # fmt: skip
    assert json.loads(found.out)["float_metric"] > 1


def test_layers_get_recipes_and_a_file_has_them(graft, tmp_path, data):
    found = graft("quantize", DIGITS, "--mixed", "int8-weights,int3-weights", "--bits", "4.5", "--data", data,
                  "--save-recipe", tmp_path / "mixed.toml", "-o", tmp_path / "q.onnx", "--json")  # fmt: skip
    assert found.code == 0, found.err
    content = tomllib.loads((tmp_path / "mixed.toml").read_text())
    assert set(content["layers"].values()) == {"int3-weights"}
    again = graft("quantize", DIGITS, "--recipe", tmp_path / "mixed.toml", "--data", data, "-o", tmp_path / "r.onnx")
    assert again.code == 0
    assert (tmp_path / "q.onnx").read_bytes() == (tmp_path / "r.onnx").read_bytes()


def test_a_group_that_does_not_divide_is_told(graft, tmp_path, data):
    own = ("--recipe", "int4-weights", "--set", "weights.group=24", "--set", "weights.rounding=nearest")
    found = graft("quantize", DIGITS, *own, "--data", data, "-o", tmp_path / "q.onnx")
    assert found.code == 0
    assert "weights whose last group is short: '6.weight_folded' (8 of 24), '10.weight' (8 of 24)" in found.out


def test_weights_that_are_no_numbers_are_refused_by_name(graft, tmp_path, data):
    model = onnx.load(DIGITS)
    weights = next(one for one in model.graph.initializer if one.name == "10.weight")
    weights.CopyFrom(
        onnx.numpy_helper.from_array(np.full_like(onnx.numpy_helper.to_array(weights), np.nan), "10.weight")
    )
    onnx.save(model, tmp_path / "nan.onnx")
    found = graft(
        "quantize", tmp_path / "nan.onnx", "--recipe", "int8-weights", "--data", data, "-o", tmp_path / "q.onnx"
    )
    assert found.code == 1
    assert "weights '10.weight' hold NaN or infinity, which no scale maps to numbers; keep their node" in found.err


def test_data_that_are_no_numbers_are_refused_without_calibration_too(graft, tmp_path):
    np.savez(tmp_path / "nan.npz", image=np.full((1, 1, 8, 8), np.nan, np.float32))
    found = graft("quantize", DIGITS, "--recipe", "mxfp4", "--data", tmp_path / "nan.npz", "-o", tmp_path / "q.onnx")
    assert found.code == 1
    assert (
        "output 'logits' of the float model has 10 elements that are NaN on the data, whose 'image' holds" in found.err
    )
    assert not (tmp_path / "q.onnx").exists()


def test_the_search_for_layers_takes_no_recipe_of_the_whole(graft, tmp_path, data):
    found = graft("quantize", DIGITS, "--recipe", "int8", "--bits", "5", "--data", data, "-o", tmp_path / "q.onnx")
    assert found.code == 2
    assert "--mixed and --bits choose among recipes" in found.err


def test_a_bound_that_cannot_be_met_is_exit_code_4_and_the_best_is_written(graft, tmp_path, data):
    (tmp_path / "own.py").write_text(
        "count = [0]\ndef falling(outputs, labels):\n    count[0] -= 1\n    return count[0]\n"
    )
    output = tmp_path / "q.onnx"
    found = graft("quantize", DIGITS, "--data", data, "--metric", f"{tmp_path / 'own.py'}:falling", "--within", "0.5",
                  "-o", output)  # fmt: skip
    assert found.code == 4
    assert "graft: the metric is -2 at best" in found.err
    onnx.checker.check_model(onnx.load(output))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--recipe", "int88", "-o", "q"), 1, "no recipe is called 'int88'; did you mean 'int8', or give a .toml file"),
        (
            ("--set", "weights.typ=int4", "-o", "q"),
            1,
            "recipe: table 'weights' has no field 'typ'; did you mean 'type'",
        ),
        (("--set", "weights", "-o", "q"), 2, "'weights' is not FIELD=VALUE, as in weights.group=64"),
        (("-o", "q"), 1, "recipe 'int8' is calibrated with data; give some"),
        (
            ("--recipe", "int8-weights", "--set", 'nodes=["Relu"]', "-o", "q"),
            1,
            "'Relu' matches Relu (node 'relu_2'), which has no form with scaled inputs; name products, Add or average",
        ),
        ((), 2, "name the file to write with -o"),
        (("--metric", "none.py:f", "-o", "q"), 2, "'none.py:f' is not FILE.py:FUNCTION of a file that there is"),
    ],
)
def test_wrong_options_are_said(graft, arguments, code, message):
    found = graft("quantize", DIGITS, *arguments)
    assert found.code == code
    assert message in found.err


def test_verify_holds_a_quantised_model_against_its_float_model(graft, tmp_path, data):
    output = tmp_path / "q.onnx"
    assert graft("quantize", DIGITS, "--data", data, "-o", output).code == 0
    found = graft("verify", output, "--original", DIGITS, "--data", data)
    assert found.code == 0
    assert f"{output} keeps the signal of {DIGITS}: " in found.out
    found = graft("verify", output, "--original", DIGITS, "--snr", "90")
    assert found.code == 4
    assert found.out.splitlines()[-1].endswith("dB, at least 90 wanted")
    assert json.loads(graft("verify", output, "--original", DIGITS, "--snr", "90", "--json").out)["ok"] is False


def test_the_recipe_of_a_backend_is_taken_and_what_it_leaves_is_told(graft, tmp_path, data):
    output = tmp_path / "npu.onnx"
    found = graft("quantize", DIGITS, "--for", "accelerator", "--data", data, "-o", output)
    assert found.code == 0, found.err
    assert found.out.splitlines()[-2] == "accelerator takes all that is quantised"
    kept = graft("quantize", DIGITS, "--for", "accelerator", "--data", data, "--set", "results=false", "-o", output)
    lines = kept.out.splitlines()
    assert "accelerator leaves 1 operators:" in lines
    assert lines[-2].startswith("  Gemm 'logits': Gemm is computed on bytes alone")
    shown = graft("quantize", DIGITS, "--for", "llvm", "--recipe", "llvm-int4-weights", "--show")
    assert tomllib.loads(shown.out)["weights"]["type"] == "int4"
