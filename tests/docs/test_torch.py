"""docs/torch.md: its blocks run."""

import onnx_ir as ir
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.torch.aten.builder import Builder, Tensor  # noqa: E402
from tests.docs.blocks import ROOT, blocks, execute, prepare  # noqa: E402


@pytest.mark.filterwarnings("ignore")
def test_the_blocks_run(tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)
    names = {"__name__": "torch_page"}
    for block in blocks((ROOT / "docs" / "torch.md").read_text(encoding="utf-8")):
        if block.language == "python":
            execute(block, "docs/torch.md", names)
    assert 0 < names["explanation"].coverage < 1
    assert "linalg" in str(names["explanation"])
    ((name, row),) = names["graft_torch_operators"]()
    assert name == "acme::gate"
    builder = Builder()
    x = Tensor(ir.Value(name="x"), torch.float32, (3,))
    row(builder, None, x, x, slope=2.0)
    assert [node.op_type for node in builder.nodes] == ["Mul", "Sigmoid", "Mul"]
