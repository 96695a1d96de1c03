"""docs/torch.md: its blocks run; docs/tutorials/torch.ipynb: its cells show what it holds."""

import ast
import json

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


NOTEBOOK = ROOT / "docs" / "tutorials" / "torch.ipynb"


def shown(source, names):
    """Run a cell; return what a notebook shows of its last expression, as text, and as HTML where it has a form."""
    *body, last = ast.parse(source).body
    exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)
    if not isinstance(last, ast.Expr):
        raise AssertionError(f"a cell ends in no expression: {source}")
    value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)
    return str(value), getattr(value, "_repr_html_", lambda: "")()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_cells_of_the_tutorial_show_what_it_holds(request):
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names, pages = {"__name__": "torch_tutorial"}, []
    cells = [one for one in notebook["cells"] if one["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        text, page = shown("".join(cell["source"]), names)
        pages.append(page)
        result = {
            "data": {"text/plain": text.splitlines(keepends=True)}, "execution_count": number, "metadata": {},
            "output_type": "execute_result",
        }  # fmt: skip
        if request.config.getoption("--update-golden"):
            cell["outputs"], cell["execution_count"] = [result], number
        assert cell["outputs"] == [result], "docs/tutorials/torch.ipynb is stale; run with --update-golden"
    if request.config.getoption("--update-golden"):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert ["<iframe" in one for one in pages] == [False, True, False, False, False, False]
