"""The pictures of README.md are what the commands give; ``--update-golden`` draws them anew."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from graft.compiler.request import plugins
from tests.docs.blocks import ROOT
from tests.docs.pictures import graph, terminal

IMAGES = ROOT / "docs" / "images"
COMMAND = "graft plan examples/digits/digits.onnx -b onednn,llvm --exclude-op MaxPool --why"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    missing = plugins().backends(["onednn"])[0].available()
    if missing is not None:
        pytest.skip(missing)
    page = tmp_path_factory.mktemp("report") / "plan.html"
    words = [sys.executable, "-m", *COMMAND.split()]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    printed = re.sub(r" · \w+ alone: .*", "", printed)  # what another placement would gain is of this machine
    subprocess.run([*words, "--html", str(page)], cwd=ROOT, capture_output=True, check=True)
    return {"plan.svg": terminal(COMMAND, printed), "report.svg": graph(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("name", ["plan.svg", "report.svg"])
def test_a_picture_is_what_the_command_gives(name: str, drawn: dict[str, str], request: pytest.FixtureRequest) -> None:
    path: Path = IMAGES / name
    if request.config.getoption("--update-golden"):
        path.write_text(drawn[name], encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn[name], f"docs/images/{name} is stale; run with --update-golden"


def test_the_page_shows_the_pictures() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/images/plan.svg" in page
    assert "docs/images/report.svg" in page
