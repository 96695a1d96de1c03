"""docs/torch.md: its blocks run."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.docs.blocks import ROOT, blocks, execute, prepare


@pytest.mark.filterwarnings("ignore")
def test_the_blocks_run(tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)
    names = {"__name__": "torch_page"}
    for block in blocks((ROOT / "docs" / "torch.md").read_text(encoding="utf-8")):
        if block.language == "python":
            execute(block, "docs/torch.md", names)
    assert 0 < names["explanation"].coverage < 1
    assert "linalg" in str(names["explanation"])
