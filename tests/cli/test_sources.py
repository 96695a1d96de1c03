"""The sources of an artifact's modules: shown by `inspect --source`, edited, given back to `compile --source`."""

import json

import pytest

from graft.plugins.cuda.image import unpacked
from graft.plugins.cuda.source import nvrtc
from graft.runtime.artifact import read
from tests.cli.conftest import saved

needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason=nvrtc.MISSING)
EXP = '<ir_version: 10, opset_import: ["" : 21]> g (float[4,8] x) => (float[4,8] y) { [sum] y = Add(x, x) }'


@pytest.fixture
def kernels(graft, tmp_path):
    """An artifact of one CUDA kernel, and the file with its text."""
    model, path = saved(tmp_path / "sum.onnx", EXP), tmp_path / "sum.graft"
    outcome = graft("compile", model, "-b", "cuda_source", "--target", "sm_80,sm_90", "-o", path, "--strict")
    assert outcome.code == 0, outcome
    (module,) = json.loads(graft("inspect", path, "--source", "--json").out)["modules"].values()
    assert module["language"] == "cuda" and module["compiler"].startswith("NVRTC ")
    text = tmp_path / "sum.cu"
    text.write_text(module["text"])
    return path, text


def test_the_c_of_a_module_is_printed(graft, model, tmp_path):
    path = tmp_path / "m.graft"
    assert graft("compile", model, "-b", "c_source", "-o", path).code == 0
    printed = graft("inspect", path, "--source").out
    assert printed.startswith("// module c_source_0, compiled by ") and "GRAFT_KERNEL void c_source_0_" in printed


def test_an_artifact_without_sources_says_who_keeps_them(graft, artifact):
    assert graft("inspect", artifact, "--source").out == (
        f"{artifact}: no module keeps its source; the backends c_source and cuda_source do\n"
    )


@needs_nvrtc
def test_an_edited_text_is_compiled_for_the_same_devices(graft, kernels):
    path, text = kernels
    before = read(path).modules[0]
    text.write_text(text.read_text().replace(" + ", " - "))
    other = path.with_name("other.graft")
    outcome = graft("compile", path, "--source", text, "-o", other)
    assert outcome.code == 0, outcome
    after = read(other).modules[0]
    (old, olds), (new, news) = unpacked(before.data), unpacked(after.data)
    assert old["functions"] == new["functions"] and after.source.text == text.read_text()
    assert [(one.arch, one.form) for one in olds] == [(one.arch, one.form) for one in news]
    assert all(one.data != two.data for one, two in zip(olds, news, strict=True))


@needs_nvrtc
def test_a_text_that_lacks_a_kernel_or_does_not_compile_is_refused(graft, kernels):
    path, text = kernels
    whole, before = text.read_text(), path.read_bytes()
    text.write_text(whole.replace("KERNEL(32) void cuda_source_0_0_add(", "KERNEL(32) void other("))
    assert text.read_text() != whole
    outcome = graft("compile", path, "--source", f"cuda_source_0={text}")
    assert outcome.code == 5 and outcome.err.endswith(
        "the text of 'cuda_source_0' has no kernel 'cuda_source_0_0_add', which the program launches; keep the names "
        "and parameters of kernels\n"
    )
    text.write_text(whole + "nonsense;\n")
    outcome = graft("compile", path, "--source", text)
    assert outcome.code == 5 and "NVRTC refused the code of 'cuda_source_0' for sm_80: kernels.cu(" in outcome.err
    assert path.read_bytes() == before


def test_a_source_for_a_module_that_has_none_is_refused(graft, artifact, tmp_path):
    (tmp_path / "k.cu").write_text("")
    outcome = graft("compile", artifact, "--source", f"other={tmp_path / 'k.cu'}")
    assert outcome.code == 1 and "has no module 'other' with a source (those with one: none); say MODULE=FILE" in (
        outcome.err
    )


def test_c_is_not_given_back(graft, model, tmp_path):
    path, text = tmp_path / "m.graft", tmp_path / "k.c"
    text.write_text("")
    assert graft("compile", model, "-b", "c_source", "-o", path).code == 0
    outcome = graft("compile", path, "--source", text)
    assert outcome.code == 1 and outcome.err.endswith(
        "module 'c_source_0' of kind 'native' has no source that can be given back; only backends that keep their "
        "source and compile it themselves take one, such as 'cuda_source'\n"
    )
