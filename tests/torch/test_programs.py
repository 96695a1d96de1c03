"""Programs kept between processes: found again, and compiled anew where they are not what was written."""

import logging
from hashlib import sha256

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.plugins.discovery import PluginSource  # noqa: E402
from graft.plugins.registry.manager import PluginManager  # noqa: E402
from graft.torch import compiling, programs  # noqa: E402
from graft.torch.options import Options  # noqa: E402
from tests.torch.whole import boxed, compiled  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.arange(12.0).reshape(3, 4)


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Where programs are kept, and the list of compilations."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []
    real = compiling.compile_model
    monkeypatch.setattr(
        compiling, "compile_model", lambda *given, **named: calls.append(given) or real(*given, **named)
    )
    return tmp_path / "graft" / "programs", calls


def call(function=lambda x: torch.tanh(x) + x, **options):
    (found,) = boxed(compiled(function, X, options=Options(backends=["llvm"], **options)))([X])
    programs.finish_keeping()
    return found


def entries(folder):
    return [one for one in folder.rglob("*") if one.is_file()]


def test_the_second_compilation_of_a_part_is_none(counted):
    folder, calls = counted
    first, second = call(), call()
    assert (len(calls), len(entries(folder))) == (1, 1)
    assert torch.equal(first, second)
    torch.testing.assert_close(second, torch.tanh(X) + X)


def test_other_options_functions_and_constants_are_other_entries(counted):
    folder, calls = counted
    call()
    call(threads=1)
    call(precision="bf16")
    call(lambda x: torch.tanh(x) + 2 * x)
    call(lambda x: torch.tanh(x) + 3 * x)
    assert len(calls) == len(entries(folder)) == 5


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.999])
def test_a_damaged_entry_is_compiled_anew_and_replaced(counted, share):
    folder, calls = counted
    expected = call()
    (path,) = entries(folder)
    whole = bytearray(path.read_bytes())
    whole[int(share * len(whole))] ^= 0xFF
    path.write_bytes(whole)
    assert torch.equal(call(), expected)
    assert torch.equal(call(), expected)
    assert len(calls) == 2


def test_an_entry_that_others_may_write_is_not_used(counted, caplog):
    folder, calls = counted
    expected = call()
    (path,) = entries(folder)
    path.chmod(0o666)
    with caplog.at_level(logging.WARNING, logger="graft"):
        assert torch.equal(call(), expected)
    assert len(calls) == 2
    assert "may be written by everybody" in caplog.text


def test_a_changed_file_of_any_plugin_makes_another_entry_and_loads_none(counted, monkeypatch, tmp_path):
    folder, calls = counted
    home = tmp_path / "acme_npu"
    home.mkdir()
    (home / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    other = PluginSource("acme", "acme_npu:Plugin", "acme-npu", "1.0")
    monkeypatch.setattr(programs, "plugins", lambda: PluginManager(sources=[other]))
    call()
    call()
    assert len(calls) == 1
    (home / "passes.py").write_text("")
    programs._files.cache_clear()
    call()
    assert len(calls) == len(entries(folder)) == 2


def test_digests_are_those_of_the_memory_whether_they_were_computed_ahead_or_not():
    plain, gaps = torch.randn(3, 4), torch.randn(3, 8)[:, ::2]
    sparse = torch.eye(3).to_sparse()
    conjugate = torch.view_as_complex(torch.randn(3, 2)).conj()
    known = programs.Digests(
        [plain, plain.t(), plain.bfloat16(), gaps, sparse, conjugate, conjugate.imag, torch.zeros(0)]
    )
    for array in (plain.numpy(), gaps.numpy(), plain.numpy().T, torch.zeros(0).numpy()):
        assert known.of(array) == programs.Digests().of(array.copy()) == sha256(array.tobytes()).digest()


def test_plugins_in_processes_and_formats_of_the_user_are_not_kept(counted):
    folder, _ = counted
    call(datatype="custom[posit]16")
    assert entries(folder) == []
