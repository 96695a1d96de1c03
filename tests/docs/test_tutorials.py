"""docs/tutorials: their blocks run, in order, and show what the text says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.compiler.request import plugins
from graft.datatypes.formats import evaluate
from tests.docs.blocks import ROOT, Block, blocks, execute, prepare, shell

FOLDER = ROOT / "docs" / "tutorials"


def page(name: str) -> list[Block]:
    return list(blocks((FOLDER / f"{name}.md").read_text(encoding="utf-8")))


def run(name: str, names: dict[str, object]) -> str:
    """Run the Python and the `sh` blocks of a tutorial in order; return what the shell printed."""
    printed = []
    for block in page(name):
        if block.language == "python":
            execute(block, f"docs/tutorials/{name}.md", names)
        elif block.language == "sh":
            printed.append(shell(block.text))
    return "\n".join(printed)


def test_the_engineers_plan_and_artifact_are_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = plugins().backends(["onednn"])[0].available()
    if missing is not None:
        pytest.skip(missing)
    prepare(tmp_path, monkeypatch)
    names: dict[str, object] = {"__name__": "engineer"}
    printed = run("engineer", names)
    assert "maxpool_5" in printed and "lost-to:" in printed
    assert np.asarray(names["logits"]).shape == (1, 10)


def test_the_format_of_numerics_rounds_and_classifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    monkeypatch.setattr(sys, "path", [*sys.path])
    prepare(tmp_path, monkeypatch)
    run("numerics", {"__name__": "numerics"})
    first, *table = capsys.readouterr().out.splitlines()
    assert [float(word) for word in re.findall(r"[-+.\de]+", first)][:3] == [1.0, 1.0, 1.25]
    assert [line.split()[0] for line in table] == ["float32", "custom[brief]12", "posit8"]
    assert all(float(line.split()[1]) > 0.9 for line in table)


def test_the_format_of_numerics_rounds_to_nearest_and_keeps_nan() -> None:
    names: dict[str, Any] = {}
    exec(next(block.text for block in page("numerics") if block.language == "python"), names)
    bits = np.uint32([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000, 0x7F800000, 0xFF800000, 0x3F880000, 0x3F980000])
    codes = evaluate(lambda x: names["shorten"](x.expression), bits.view(np.float32))
    assert (codes & 0x7FF > 0x7F8).tolist() == [True] * 4 + [False] * 4
    assert codes[4:].tolist() == [0x7F8, 0xFF8, 0x3F8, 0x3FA]


def vendor_commands() -> list[str]:
    """Return the commands of the vendor's page that hold the composite to the kit."""
    return [block.text for block in page("vendor") if block.language == "console" and "--only" in block.text]


def test_the_vendors_first_check_fails_for_float16_and_the_second_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, monkeypatch)
    assert "npu has no rule for Conv" in "\n".join(shell(one.text) for one in page("vendor") if one.language == "sh")
    before, after = vendor_commands()
    first, second, third = (block.text for block in page("vendor") if block.language == "python")
    Path("npu.py").write_text(first, encoding="utf-8")
    failed = subprocess.run(["sh", "-ec", before], capture_output=True, text=True, timeout=300)
    assert failed.returncode == 1
    assert failed.stdout.count("in-float16: fails when it runs") == 2
    old = re.search(r"    @graft.supports\(is_op.*?return True\n", first, re.DOTALL)
    assert old is not None
    Path("npu.py").write_text(first.replace(old[0], second.partition("\n")[2]), encoding="utf-8")
    shell(after)
    product, _, method = third.partition("\n\n\nclass Npu(Npu):\n")
    by_node = first.replace(old[0], method).replace("class Npu(", f"{product}\n\n\nclass Npu(")
    Path("npu.py").write_text(by_node, encoding="utf-8")
    shell(after)
    scorecard = next(block.text for block in page("vendor") if "--badge" in block.text)
    shell(f"{scorecard.strip()} --only 1/Relu")  # the whole takes minutes
    assert Path("scorecard.html").stat().st_size > 0
    assert Path("badge.svg").stat().st_size > 0


def test_the_vendors_compiler_refuses_with_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    run("compiler", {})
