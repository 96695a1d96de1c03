"""The bound of a project's stack: by hand, against the watermark of an emulated board, and as a budget."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.cortex_m.tiny import HARNESS, missing
from graft.errors import ArtifactError
from graft.runtime.export.c_build import BOARD_COMPILERS, FLAGS
from graft.runtime.export.c_built import LIBRARY_FRAME, CallGraph, built, depth, least_text
from tests.end_to_end.test_strict_warnings import written

BOARD = Path(__file__).parents[3] / "measure" / "device" / "mps2_an386"


def node(name: str, frame: str) -> str:
    return f'node: {{ title: "{name}" label: "{name}\\nm.c:1:1\\n{frame}" }}\n'


def edges(*pairs: str) -> str:
    ends = (pair.split(">") for pair in pairs)
    return "".join(f'edge: {{ sourcename: "{source}" targetname: "{target}" label: "" }}\n' for source, target in ends)


def test_the_deepest_path_is_the_bound() -> None:
    graph = CallGraph()
    graph.add(node("run", "16 bytes (static)") + edges("run>m.c:a", "run>b", "m.c:a>memcpy", "b>memcpy"))
    graph.add(node("m.c:a", "40 bytes (static)") + node("b", "24 bytes (dynamic,bounded)"))
    assert graph.deepest("run") == (("run", 16), ("a", 40), ("memcpy", LIBRARY_FRAME))
    assert depth(graph.deepest("run")) == 56 + LIBRARY_FRAME


def test_a_call_by_a_pointer_is_of_any_task() -> None:
    graph = CallGraph()
    graph.add(node("run", "8 bytes (static)") + node("m.c:k_task1_run", "32 bytes (static)"))
    graph.add(node("m.c:k_task2_run.constprop.0", "48 bytes (static)") + edges("run>__indirect_call"))
    assert graph.deepest("run") == (("run", 8), ("k_task2_run", 48))


def test_what_has_no_bound_is_refused() -> None:
    graph = CallGraph()
    with pytest.raises(ArtifactError, match=r"^the frame of 'f' has no bound, so that the stack has none$"):
        graph.add(node("f", "16 bytes (dynamic)"))
    graph.add(node("a", "16 bytes (static)") + edges("a>m.c:b", "m.c:b>a"))
    with pytest.raises(ArtifactError, match=r"^the stack has no bound, for functions call themselves: a -> b -> a$"):
        graph.deepest("a")


def test_the_least_is_told_with_what_to_change() -> None:
    sizes = {"-Os": 70, "-O2": 60, "-O3": 90}
    assert least_text(80, sizes.__getitem__, 65, "quantise") == "the least possible is 60, with -O2: compile with -O2"
    both = "the least possible is 60, with -O2: compile with -O2 and quantise"
    assert least_text(80, sizes.__getitem__, 59, "quantise") == both
    assert least_text(60, sizes.__getitem__, 59, "quantise") == "60 is the least possible with -Os, -O2, -O3: quantise"


def bound_of_image(project: Path, name: str) -> int:
    """The bound of all that runs on the board, from its first instruction on."""
    texts = {str(one.relative_to(project)): one.read_text() for one in project.rglob("*.[ch]")}
    texts = {file: text for file, text in texts.items() if file not in ("main.c", f"{name}_weights.c")}
    own = [*BOARD.glob("*.[ch]"), HARNESS / "board_main.c"]
    texts |= {one.name: one.read_text() for one in own if one.name != "serial.c"}
    wrapped = f"#define {name}_run __wrap_{name}_run\n"  # as the linker has it there
    texts[f"{name}_check.c"] = wrapped + texts[f"{name}_check.c"]
    command = [*BOARD_COMPILERS["thumb"].split(), "-std=c11", *FLAGS]
    command += [f"-DMODEL={name}", f"-D__real_{name}_run={name}_run"]
    sources = [file for file in texts if file.endswith(".c")]
    return built(name, texts, sources, command, "reset").stack


def watermark(project: Path, name: str) -> int:
    """What the board measures."""
    command = ["make", "--silent", "-C", HARNESS, f"PROJECT={project}", f"MODEL={name}", f"BUILD={project / 'build'}"]
    said = subprocess.run([*command, "run"], capture_output=True, text=True, timeout=300).stdout
    found = re.search(r"^stack (\d+)$", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1])


SLOW = ("tiny_resnet8", "tiny_ds_cnn", "tiny_mobilenet_v1", "tiny_autoencoder", "int8_digits", "int8_tiny_resnet8",
        "int8_tiny_ds_cnn", "int8_tiny_mobilenet_v1", "int8_tiny_autoencoder", "light_shufflenet")  # fmt: skip


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("name", ["digits", "scan", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_the_bound_is_no_less_than_what_a_board_uses(tmp_path: Path, name: str) -> None:
    short = name.removeprefix("light_")
    project = written(name, "thumbv7em", tmp_path / short)
    used, bound = watermark(project, short), bound_of_image(project, short)
    assert used <= bound <= 1.3 * used, f"{used} bytes used, bound {bound}"
