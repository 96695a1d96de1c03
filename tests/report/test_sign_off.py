"""The sign-off report: its numbers add up and are those of the project, in JSON and in HTML."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from benchmarks.cortex_m.tiny import missing
from graft.cli.main import main
from graft.errors import ArtifactError
from graft.report.sign_off import Counted, operations, page, sign_off, write_sign_off
from graft.runtime.export.c_project import ExportedProject
from graft.runtime.procedure import Call, Procedure, ProgramDescription
from tests.runtime.programs import tensor

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Export the digits model into a folder, and return the exit status and what was said."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")

    def export(*more: object, compiler: str = "gcc -Os") -> str:
        given = ["export", DIGITS, "-o", tmp_path / "m", "--name", "m", "--target", "generic", "--compiler", compiler]
        with pytest.raises(SystemExit) as caught:
            main([str(one) for one in (*given, *more)])
        printed = capsys.readouterr()
        return f"{caught.value.code or 0} {printed.out}{printed.err}"

    return export


def test_numbers_are_those_of_the_project_and_add_up(tmp_path: Path, run: Run) -> None:
    said = run("--report", tmp_path / "m.json")
    facts = json.loads((tmp_path / "m.json").read_text())
    memory, header = facts["memory"], (tmp_path / "m" / "m.h").read_text()
    for macro, key in (("ARENA", "arena"), ("WEIGHT", "weights"), ("STACK", "stack")):
        assert f"#define M_{macro}_BYTES {memory[key]}" in header
    assert f"code {memory['code']} bytes, stack at most {memory['stack']} bytes" in said
    assert memory["ram"] == memory["arena"] + memory["stack"]
    assert memory["flash"] == memory["weights"] + memory["code"]
    assert sum(one["frame"] for one in facts["stack"]) == memory["stack"] and facts["stack"][0]["function"] == "m_run"
    assert {node for kernel in facts["kernels"] for node in kernel["nodes"]} >= {"conv_0", "relu_2", "logits"}
    weights = facts["weights"]
    assert sum(one["bytes"] for one in weights) == memory["weights"] and {one["type"] for one in weights} == {"float32"}
    assert all(f" {one['name']}[]" in (tmp_path / "m" / "m.c").read_text() for one in weights)
    assert 0 < sum(kernel["code"] for kernel in facts["kernels"]) <= memory["code"]
    assert [(one["role"], one["shape"]) for one in facts["interface"]] == [
        ("input", ["1", "1", "8", "8"]), ("output", ["1", "10"])
    ]  # fmt: skip
    assert {one["function"] for one in facts["libraries"]} <= {"memcpy", "memset", "memmove"}


def test_a_page_has_every_fact(tmp_path: Path, run: Run) -> None:
    run("--report", tmp_path / "m.html")
    cells = Cells()
    cells.feed((tmp_path / "m.html").read_text())
    assert {"m_run", "Kernels", "conv_0, relu_2", "restrict"} <= {*cells.texts}
    assert any(one.startswith("Compiled by gcc") and "-Os" in one for one in cells.texts)
    facts = {"name": "<b>", "compiler": "&", "memory": {}, "work": {}, "stack": [], "kernels": [], "weights": [],
             "interface": [], "libraries": ["memcpy"], "soft float": [], "deviations": []}  # fmt: skip
    assert "<b>" not in page(facts) and "<p>none</p>" in page(facts) and "<td>memcpy</td>" in page(facts)


@pytest.mark.parametrize(
    ("option", "said"),
    [("--stack", "the stack needs at most "), ("--flash", "weights (190120 bytes) and code ("),
     ("--ram", "the arena has 12288 bytes")],
)  # fmt: skip
def test_a_budget_that_does_not_do_fails_with_what_to_change(tmp_path: Path, option: str, said: str, run: Run) -> None:
    refused = run(option, 100)
    assert refused.startswith(f"1 graft: {said}") and ": " in refused and not (tmp_path / "m").exists()
    changes = ("(-b c_source:narrow_indices=true)", "quantise the model", "make the model smaller")
    assert any(change in refused for change in changes)
    assert run(option, 1000000).startswith("0 ")


@pytest.mark.slow
def test_the_least_possible_does_where_it_is_made(tmp_path: Path, run: Run) -> None:
    for option, other in (("--flash", "-O3"), ("--stack", "-O0"), ("--ram", "-O0")):
        refused = run(option, 12500 if option == "--ram" else 100, compiler=f"gcc {other}")
        least, flag = re.findall(r"the least possible is (\d+), with (-O\w): compile with ", refused)[0]
        assert f"with {flag}: compile with {flag}\n" in run(option, least, compiler=f"gcc {other}")
        assert run(option, least, compiler=f"gcc {flag}").startswith("0 ")
        refused = run(option, int(least) - 1, compiler=f"gcc {flag}")
        assert refused.startswith("1 ") and f"{least} is the least possible with -Os, -O2, -O3: " in refused


def test_the_stack_is_part_of_the_memory(tmp_path: Path, run: Run) -> None:
    stack = int(run("--ram", 1000000).partition("stack at most ")[2].split()[0])
    refused = run("--ram", 12288 + stack - 1)
    said = f"the arena (12288 bytes) and the stack ({stack}) are 1 bytes more than the {12287 + stack} that there are; "
    assert refused.startswith(f"1 graft: {said}")
    assert run("--ram", 12288 + stack).startswith("0 ")


def test_what_cannot_be_reported_is_refused(tmp_path: Path, run: Run) -> None:
    with pytest.raises(ArtifactError, match=r"^a sign-off report needs a compiler; name one$"):
        sign_off(ProgramDescription((), (), {}), ExportedProject(tmp_path, 0, "m", 0, 0))
    with pytest.raises(ArtifactError, match=r"says neither \.html nor \.json; name the report so$"):
        write_sign_off({}, tmp_path / "m.txt")
    if shutil.which("clang"):
        assert "does not say the frames of functions" in run(compiler="clang")
    assert "the C compiler 'no-such-cc' cannot be run" in run(compiler="no-such-cc")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_processor_without_floats_is_told_and_priced(tmp_path: Path, run: Run) -> None:
    taken = []
    for unit in ("hard -mfpu=fpv4-sp-d16", "soft"):
        compiler = f"arm-none-eabi-gcc -O2 -mcpu=cortex-m4 -mthumb -mfloat-abi={unit}"
        said = run(
            "--target", "thumbv7em", "--profile", "bare-metal", "--report", tmp_path / "m.json", compiler=compiler
        )
        facts = json.loads((tmp_path / "m.json").read_text())
        assert ("no FPU" in said) == (unit == "soft") == ("__aeabi_fmul" in facts["soft float"])
        taken.append(facts["work"]["instructions"])
    assert 5 < taken[1] / taken[0] < 100


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_kernel_of_several_layers_is_one_row_with_what_all_of_them_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[1,64] x) => (float[1,32] y)
    <float[64,32] u, float[32,32] v> { p = MatMul(x, u) q = Relu(p) r = MatMul(q, v) y = Relu(r) }"""
    network = onnx.parser.parse_model(text)
    for name, shape in (("u", (64, 32)), ("v", (32, 32))):
        network.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    onnx.save(network, tmp_path / "m.onnx")
    given = ["--target", "thumbv7em", "--profile", "bare-metal", "--report", tmp_path / "m.json"]
    with pytest.raises(SystemExit) as caught:
        main([str(one) for one in ("export", tmp_path / "m.onnx", "-o", tmp_path / "m", *given)])
    assert not caught.value.code, capsys.readouterr()
    facts = json.loads((tmp_path / "m.json").read_text())
    (kernel,) = facts["kernels"]
    calls = re.findall(rf"^  {kernel['function']}\(.*\);", (tmp_path / "m" / "m.c").read_text(), re.MULTILINE)
    assert len(calls) == 2 and kernel["nodes"] == ["p", "q", "r", "y"]
    assert 0.8 < kernel["instructions"] / facts["work"]["instructions"] <= 1
    assert 0 < kernel["code"] <= facts["memory"]["code"]
    assert facts["work"]["operations"] == sum(2 * k * n + n for k, n in ((64, 32), (32, 32)))


def test_operations_are_those_of_the_longest_way_or_unknown() -> None:
    def plain(flops: int) -> Call:
        return Call("call", (), (), module=0, function="f", flops=flops)

    def body(*calls: Call) -> Procedure:
        return Procedure("body", (tensor("trips", "int64", (), "constant", constant="k"),), (), (), calls)

    branch = Call("if", (0,), (), bodies=(2, 3))
    loop = Call("loop", (0, -1), (), bodies=(1,))
    bodies = (body(plain(5), branch), body(plain(7)), body(plain(11), plain(1)))
    constants = {"k": np.array(10)}
    assert operations(ProgramDescription((body(plain(3), loop), *bodies), (), constants)) == 3 + 10 * (5 + 12)
    by_data = Procedure("main", (tensor("trips", "int64", (), "input", index=0),), (0,), (), (loop,))
    assert operations(ProgramDescription((by_data, *bodies), (), {})) is None


def test_instructions_beyond_a_budget_are_refused_with_what_takes_most() -> None:
    calls = [Call("call", (), (), module=0, function="f", origin=(name,)) for name in "abcd"]
    counted = Counted("board", 100, tuple(zip(calls, (10, 40, 30, 20), strict=True)))
    counted.check(100, int)
    with pytest.raises(
        ArtifactError,
        match=r"^a run takes 100 instructions on board, 1 more than the 99 that there are; most are of 'b' \(40\), 'c' "
        r"\(30\), 'd' \(20\); the least possible is 90, with -O2: compile with -O2$",
    ):
        counted.check(99, {"-Os": 300, "-O2": 90, "-O3": 95}.__getitem__)
    with pytest.raises(
        ArtifactError, match=r"100 is the least possible with .*: measure schedules there \(graft device"
    ):
        counted.check(99, lambda flag: 100)


def test_instructions_are_counted_on_the_core_of_the_target(tmp_path: Path, run: Run) -> None:
    said = run("--instructions", 1)
    assert (
        "instructions are counted on an emulated core, and target 'generic' has none; 'thumbv7em' (mps2-an386)" in said
    )
    assert not (tmp_path / "m").exists()
