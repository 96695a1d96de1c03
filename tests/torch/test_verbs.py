"""Every verb of the command line that takes a model takes a program of `torch.export`, too."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.cli.conftest import graft  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a program ``m.pt2``, and data to calibrate it with."""
    found = tmp_path_factory.mktemp("verbs")
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
    torch.export.save(torch.export.export(module, (torch.randn(2, 8),)), found / "m.pt2")
    drawn = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    np.savez(found / "data.npz", input=drawn)
    return found


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("plan", ()),
        ("compile", ("-o", "m.graft")),
        ("run", ()),
        ("verify", ()),
        ("bisect", ("-b", "llvm")),
        ("inspect", ()),
        ("profile", ()),
        ("report", ("-o", "m.html")),
        ("quantize", ("--data", "data.npz", "-o", "q.onnx")),
        ("datatypes sweep", ("--types", "posit16")),
        ("datatypes convert", ("--type", "custom[posit]16", "-o", "p.onnx")),
        ("grad", ("--loss", "mse", "-o", "g.onnx")),
        pytest.param("bench", (), marks=pytest.mark.slow),
        pytest.param("export", ("-o", "m.so"), marks=pytest.mark.slow),
        pytest.param("export", ("-o", "project"), marks=pytest.mark.slow),
        pytest.param("device", (), marks=pytest.mark.slow),
    ],
)
def test_a_verb_takes_an_exported_program(graft, folder, monkeypatch, verb, options):  # noqa: F811
    monkeypatch.chdir(folder)
    outcome = graft(*verb.split(), "m.pt2", *options)
    assert outcome.code == 0, outcome.err
    assert outcome.out
    for name in options[1::2]:
        assert not name.endswith((".onnx", ".graft", ".html", ".so")) or (folder / name).stat().st_size


def test_a_file_that_is_none_is_refused(graft, tmp_path):  # noqa: F811
    (tmp_path / "m.pt2").write_bytes(b"nothing")
    outcome = graft("plan", tmp_path / "m.pt2")
    assert outcome.code == 1
    assert f"'{tmp_path / 'm.pt2'}' is no program of torch.export" in outcome.err
