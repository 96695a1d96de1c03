import json
import re
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from graft.core.schedule.primitives.schedule_text import parse_schedule, print_schedule


def test_inspect_shows_a_model(graft, model):
    outcome = graft("inspect", model)
    lines = outcome.out.splitlines()
    assert "constants  1, 32 B" in lines
    assert "input      x float32 1x4" in lines
    assert "output     y float32 1x2" in lines
    assert ["MatMul", "1"] in [line.split() for line in lines]


def test_the_text_of_a_model_parses_back(graft, model):
    text = graft("inspect", model, "--text").out
    assert [node.op_type for node in onnx.parser.parse_model(text).graph.node] == ["MatMul", "Sigmoid", "Relu"]


def test_the_text_of_the_partitioned_stage_shows_the_regions(graft, model, npu):
    text = graft("inspect", model, "--text", "--stage", "partitioned", "-b", "npu,reference", "--plugin", npu).out
    functions = {function.name for function in onnx.parser.parse_model(text).functions}
    assert functions == {"npu_0", "reference_0"}


def test_large_weights_are_left_out_of_the_text(graft, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[100] x) => (float[100] y) { y = Add(x, w) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(100, np.float32), "w"))
    path = tmp_path / "large.onnx"
    onnx.save(model, path)
    outcome = graft("inspect", path, "--text")
    assert "float[100] w" in outcome.out
    assert len(outcome.out) < 400


def test_inspect_shows_an_artifact(graft, artifact):
    lines = graft("inspect", artifact).out.splitlines()
    assert lines[0].startswith(f"{artifact}: ")
    assert "input      x float32 1x4" in lines
    assert "output     y float32 1x2" in lines
    rows = [line.split() for line in lines]
    assert ["MODULE", "KIND", "FUNCTIONS", "SIZE", "PLUGIN", "INSTALL"] in rows
    assert any(row[:2] == ["reference_0", "reference"] for row in rows)


def test_inspect_shows_arena_bound_ratio_and_peak(graft, tmp_path):
    path = tmp_path / "digits.graft"
    model = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    assert graft("compile", model, "-b", "llvm", "-o", path).code == 0
    lines = graft("inspect", path).out.splitlines()
    assert "arena      12.0 KiB (lower bound 12.0 KiB, ratio 1.000)" in lines
    assert any(re.match(r"peak       12\.0 KiB at call \d of \d, llvm_0_1_\w+: ", line) for line in lines), lines


def test_inspect_shows_how_kernels_are_made_from_the_cache_too(graft, model, tmp_path):
    found = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.graft"
        assert graft("compile", model, "-b", "llvm", "-o", path).code == 0
        lines = graft("inspect", path).out.splitlines()
        heads = ["KERNEL", "STRATEGY", "KNOBS", "REFUSED"]
        start = next(number for number, line in enumerate(lines) if line.split() == heads)
        found.append(lines[start + 1 :])
        calls = json.loads(graft("inspect", path, "--json").out)["procedures"][0]["calls"]
        assert calls[0]["schedule"]["strategy"] == "blocked_product"
        refused = calls[0]["schedule"]["refused"]
        assert refused["sequential_loops"] == "no-pattern: its stages are of another form"
    assert found[0] == found[1]
    assert found[0][0].split()[1] == "blocked_product"
    assert "rows=" in found[0][0]


def test_inspect_shows_the_steps_of_kernels(graft, tmp_path):
    nodes = [
        onnx.helper.make_node("Transpose", ["x"], ["s"], perm=[0, 3, 1, 2]),
        onnx.helper.make_node("Conv", ["s", "w"], ["t"], group=16, pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Transpose", ["t"], ["y"], perm=[0, 2, 3, 1]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1, 8, 8, 16]) for name in "xy")
    weights = onnx.numpy_helper.from_array(np.ones((16, 1, 3, 3), np.float32), "w")
    graph = onnx.helper.make_graph(nodes, "depthwise", [x], [y], [weights])
    model, artifact = tmp_path / "m.onnx", tmp_path / "m.graft"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)]), model)
    assert graft("compile", model, "-b", "llvm", "-o", artifact).code == 0
    shown = json.loads(graft("inspect", artifact, "--schedules", "--json").out)["schedules"]
    ((name, text),) = shown.items()
    assert "clip ky" in text.splitlines()
    assert print_schedule(parse_schedule(text)) == text
    printed = graft("inspect", artifact, "--schedules").out
    assert f"[{name}]  # depthwise_nhwc order=1 vectors=1 x=8" in printed
    assert text in printed
    schedule = tmp_path / "schedule.txt"
    schedule.write_text(printed)
    assert graft("compile", model, "-b", "llvm", "-o", artifact, "--schedule", schedule).code == 0
    again = graft("inspect", artifact, "--schedules").out
    assert again == printed.replace("depthwise_nhwc order=1 vectors=1 x=8", "given")
    schedule.write_text(printed.replace("unroll kx", "unroll ks"))
    refused = graft("compile", model, "-b", "llvm", "-o", artifact, "--schedule", schedule)
    assert refused.code == 5
    line = 1 + printed.splitlines().index("unroll kx")
    assert f"'{name}': line {line}: cannot 'unroll ks': there is no loop 'ks'; there are " in refused.err
    refused = graft("inspect", model, "--schedules")
    assert refused.code == 2
    assert "--schedules takes an artifact" in refused.err


def test_inspect_gives_the_manifest_as_json(graft, artifact):
    manifest = json.loads(graft("inspect", artifact, "--json").out)
    assert [module["kind"] for module in manifest["modules"]] == ["reference"]


def test_the_text_of_an_artifact_is_its_partitioned_model(graft, artifact):
    text = graft("inspect", artifact, "--text").out
    assert {function.name for function in onnx.parser.parse_model(text).functions} == {"reference_0"}


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for name, text in members.items():
            file.writestr(name.replace("_", "."), text)
    return path


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"other_txt": ""}, "'{path}' holds no manifest.json: it is not an artifact of Graft"),
        ({"manifest_json": "[]"}, "'{path}' has a damaged manifest: it is not an object"),
        ({"manifest_json": "{}"}, "'{path}' has a damaged manifest: KeyError 'procedures'"),
        ({"manifest_json": "{"}, "'{path}' has a damaged manifest: Expecting property name enclosed in double quotes"),
    ],
)
def test_an_archive_that_is_no_artifact_is_an_error(graft, tmp_path, members, message):
    path = archive(tmp_path / "odd.graft", **members)
    outcome = graft("inspect", path)
    assert outcome.code == 1
    assert outcome.err.startswith("graft: " + message.format(path=path))


def test_a_truncated_artifact_is_an_error(graft, artifact):
    artifact.write_bytes(artifact.read_bytes()[:-30])
    outcome = graft("inspect", artifact)
    assert (outcome.code, outcome.err.startswith(f"graft: '{artifact}' is damaged: ")) == (1, True)
