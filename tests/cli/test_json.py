"""``--json`` with every verb: one JSON document on standard output, nothing else."""

import json
import shutil

import pytest

from tests.cli.test_wrong_options import VERBS

CALLS = (
    "backends", "backends list", "backends show", "backends doctor", "plan MODEL", "plan MODEL --why",
    "plan MODEL --nodes", "plan MODEL -o plan.json", "plan MODEL --html plan.html", "plan diff PLAN PLAN",
    "compile MODEL -o m.graft", "compile MODEL -o m.graft --time", "run MODEL", "run ARTIFACT --output out",
    "verify MODEL", "verify ARTIFACT --model MODEL", "verify MODEL --per-region", "bisect MODEL -o cut",
    "bench MODEL --seconds 0.01",
    "bench ARTIFACT --seconds 0.01", "inspect MODEL", "inspect ARTIFACT", "inspect MODEL --text",
    "inspect ARTIFACT --disassemble", "inspect MODEL --stage normalized", "profile MODEL --runs 1",
    "profile ARTIFACT -o trace.json --runs 1",
    "report MODEL -o report.html", "report ARTIFACT -o report.html", "datatypes list",
    "datatypes convert MODEL --type posit16 -o p.onnx", "datatypes sweep MODEL --types posit8",
    "quantize MODEL --recipe int8-weights -o q.onnx", "verify MODEL --original MODEL",
    "grad MODEL --loss cross-entropy -o g.onnx", "cache", "cache info",
    "cache tuned", "cache clear --what all", "export MODEL -o project", "device MODEL",
    "keys new mine", "keys list --keys KEYS", "sign ARTIFACT --key KEY", "verify-signature SIGNED --keys KEYS",
    "completion bash",
    "plugin disable xnnpack", "plugin enable onednn",
    "plugin new npu9 -o npu9", "plugin test reference --level 1 --only 1/Relu",
)  # fmt: skip
FAILURES = (
    "backends show none", "plan none.onnx", "plan MODEL -b none",
    "plan MODEL --require-coverage 100 --require-backend none",
    "compile none.onnx -o x", "compile MODEL -o /dev/null/x", "run MODEL --input z=[1]", "run ARTIFACT -b llvm",
    "verify MODEL --model MODEL", "bench ARTIFACT --compare onnxruntime", "inspect none", "profile MODEL --input x=1",
    "report MODEL -o /dev/null/x", "datatypes convert MODEL --type none -o p.onnx",
    "datatypes sweep MODEL --types none", "quantize MODEL -o q.onnx", "verify ARTIFACT --original MODEL",
    "cache nonsense",
)  # fmt: skip


@pytest.fixture
def call(graft, model, artifact, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GRAFT_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text('[plugins]\ndisabled = ["onednn"]\n')
    assert graft("plan", model, "-b", "llvm", "-o", tmp_path / "saved.json").code == 0
    keys, signed = tmp_path / "keys.toml", tmp_path / "signed.graft"
    keys.write_text(graft("keys", "new", tmp_path / "key", "--name", "mine").out)
    shutil.copyfile(artifact, signed)
    assert graft("sign", signed, "--key", tmp_path / "key").code == 0
    places = {
        "MODEL": model, "ARTIFACT": artifact, "PLAN": tmp_path / "saved.json", "KEY": tmp_path / "key", "KEYS": keys,
        "SIGNED": signed,
    }  # fmt: skip

    def run(words):
        return graft(*(places.get(word, word) for word in words.split()), "--json")

    return run


@pytest.mark.parametrize("words", CALLS)
def test_a_verb_prints_one_json_document(call, words):
    outcome = call(words)
    assert outcome.code == 0, outcome
    json.loads(outcome.out)


@pytest.mark.parametrize("words", FAILURES)
def test_a_failure_is_told_as_json(call, words):
    outcome = call(words)
    assert outcome.code in (1, 2, 3, 4, 5), outcome
    error = json.loads(outcome.out).get("error")
    assert error is None or set(error) == {"type", "message"}, outcome


def test_every_verb_is_called():
    called = {" ".join(verb) for verb in VERBS}
    assert all(any(words.startswith(verb.removesuffix(" model")) for words in CALLS) for verb in called)
