"""`graft datatypes` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.cli.main import main
from graft.datatypes.conversion import convert

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PLUGIN = """
from graft.datatypes.registry import Datatype
from graft.datatypes.small_float import SmallFloat
from graft.plugins.hooks import hookimpl

@hookimpl
def graft_datatypes():
    return [Datatype("mini", formats={6: SmallFloat(6, 2)}.get, widths=(6,)), Datatype("takum", 1717, widths=(16,))]
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    return int(caught.value.code or 0), output.out, output.err


def test_list_has_one_line_for_every_type(capsys):
    code, out, _ = run(capsys, "datatypes", "list")
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("float8e4m3fn "))
    assert line.split() == ["float8e4m3fn", "custom[float8e4m3fn]8", "448", "0.00195", "0.125", "Graft"]


def test_list_has_the_scaled_types(capsys):
    code, out, _ = run(capsys, "datatypes", "list")
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("nvfp4 "))
    assert line.split() == ["nvfp4", "custom[float4e2m1]4", "custom[float8e4m3fn]8", "16", "nearest", "4.5"]
    rows = {row["name"]: row for row in json.loads(run(capsys, "datatypes", "list", "--json")[1])}
    assert (rows["mxint8"]["bits"], rows["mxint8"]["rule"]) == (8.25, "floor")


def test_list_has_the_datatypes_of_plugins(capsys, tmp_path):
    (tmp_path / "formats.py").write_text(PLUGIN)
    for _ in range(2):  # a second plugin manager in this process finds them registered
        code, out, _ = run(capsys, "datatypes", "list", "--json", "--plugin", tmp_path / "formats.py")
        assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["mini6"]["type"] == "custom[mini]6"
    assert (rows["takum16"]["largest"], rows["takum16"]["owner"]) == (None, "plugin 'formats'")


def test_a_plugin_with_a_datatype_that_is_taken_fails_with_both_owners(capsys, tmp_path):
    (tmp_path / "posits.py").write_text(PLUGIN.replace('"takum", 1717', '"posit", 1').replace("mini", "other"))
    code, _, err = run(capsys, "datatypes", "list", "--plugin", tmp_path / "posits.py")
    assert code == 5
    assert "datatype 'posit' is registered already, by Graft; plugin 'posits' must choose another name" in err


@pytest.mark.slow
def test_sweep_writes_a_table_json_and_a_page(capsys, tmp_path):
    images = np.random.default_rng(0).uniform(0, 1, (4, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", image=images, labels=np.array([1, 2, 3, 4]))
    given = (
        "datatypes",
        "sweep",
        DIGITS,
        "--types",
        "posit16,float8e5m2",
        "--recipes",
        "int8-weights",
        "--data",
        tmp_path / "data.npz",
    )
    code, out, _ = run(capsys, *given, "--html", tmp_path / "page.html", "--threads", 1)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:5]] == [
        "FORM", "float32", "posit16", "float8e5m2", "int8-weights",
    ]  # fmt: skip
    assert out.splitlines()[5] == "4 inputs; errors of the output against float64; sums rounded: each"
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    code, out, _ = run(capsys, *given, "--json", "--accumulate", "quire", "--limit", 2)
    assert (code, json.loads(out)["accumulate"], json.loads(out)["inputs"]) == (0, "quire", 2)


def test_sweep_wants_something_to_compare(capsys):
    code, _, err = run(capsys, "datatypes", "sweep", DIGITS)
    assert code == 2
    assert "name what to compare with --types or --recipes" in err


def test_convert_writes_a_model_that_compiles(capsys, tmp_path):
    path = tmp_path / "posit.onnx"
    given = (
        "datatypes",
        "convert",
        DIGITS,
        "--type",
        "posit16",
        "--keep",
        "MaxPool",
        "--mixed",
        "conv*=posit8",
        "-o",
        path,
    )
    code, out, _ = run(capsys, *given, "--accumulate", "quire")
    assert (code, out) == (0, f"wrote {path}: 10 nodes compute in custom types; sums rounded: quire\n")
    feeds = np.random.default_rng(0).uniform(0, 1, (1, 1, 8, 8)).astype(np.float32)
    expected = convert(
        DIGITS, "custom[posit]16", keep=["MaxPool"], types={"conv*": "custom[posit]8"}, accumulate="quire"
    )
    np.testing.assert_array_equal(graft.compile(path)(feeds), graft.compile(expected)(feeds))
    code, out, _ = run(capsys, *given, "--json")
    assert (code, json.loads(out)["type"], len(json.loads(out)["layers"])) == (0, "custom[posit]16", 10)


def test_convert_refuses_what_is_no_pair(capsys, tmp_path):
    given = ("datatypes", "convert", DIGITS, "--type", "posit16", "-o", tmp_path / "x.onnx")
    code, _, err = run(capsys, *given, "--mixed", "posit8")
    assert code == 2
    assert "'posit8' is not PATTERN=NAME, as in Conv=posit8" in err
    assert not (tmp_path / "x.onnx").exists()


def test_a_file_that_is_no_npz_is_refused(capsys, tmp_path):
    (tmp_path / "data.npz").write_text("labels")
    code, _, err = run(capsys, "datatypes", "sweep", DIGITS, "--types", "posit16", "--data", tmp_path / "data.npz")
    assert code == 1
    assert err.startswith(f"graft: '{tmp_path / 'data.npz'}' is not an .npz file: ")


def test_an_unknown_type_is_refused_before_anything_runs(capsys):
    code, _, err = run(capsys, "datatypes", "sweep", DIGITS, "--types", "posit16,posits8")
    assert code == 1
    assert err == "graft: no datatype is called 'posits8'; did you mean 'posit8'; or write custom[name]bits\n"


def test_convert_writes_a_model_whose_products_are_of_a_scaled_type(capsys, tmp_path):
    matrix = ", ".join(str(one % 5 - 2.0) for one in range(64))
    header = '<ir_version: 10, opset_import: ["" : 21]> net (float[2,32] x) => (float[2,2] y)'
    model = onnx.parser.parse_model(f"{header} <float[32,2] w = {{{matrix}}}> {{ y = MatMul(x, w) }}")
    onnx.save(model, tmp_path / "net.onnx")
    given = ("datatypes", "convert", tmp_path / "net.onnx", "--type", "mxfp4", "-o", tmp_path / "scaled.onnx")
    code, out, _ = run(capsys, *given)
    assert (code, out) == (
        0,
        f"wrote {tmp_path / 'scaled.onnx'}: 1 products compute in mxfp4; blocks are added in float32\n",
    )
    x = np.ones((2, 32), np.float32)
    expected = x @ onnx.numpy_helper.to_array(model.graph.initializer[0])
    np.testing.assert_array_equal(graft.compile(tmp_path / "scaled.onnx", ["llvm"])(x), expected)
    code, out, _ = run(capsys, *given, "--json", "--accumulate", "float16")
    assert (code, json.loads(out)["accumulate"]) == (0, "float16")
    np.testing.assert_array_equal(graft.compile(tmp_path / "scaled.onnx", ["llvm"])(x), expected)
    code, _, err = run(capsys, *given, "--accumulate", "quire")
    assert code == 1 and "sums of blocks are of a type, such as float16 or posit32, not 'quire'" in err
    code, _, err = run(capsys, *given, "--mixed", "Conv=posit8")
    assert code == 2 and "is a scaled type, of which --keep, --depthwise and --accumulate are the only options" in err
