import subprocess
import sys

import pytest

import graft

VERBS = [
    *(
        "backends",
        "plan",
        "compile",
        "run",
        "verify",
        "bisect",
        "bench",
        "inspect",
        "profile",
        "report",
        "export",
        "device",
        "datatypes",
        "quantize",
        "grad",
        "cache",
        "plugin",
        "sign",
        "verify-signature",
        "keys",
        "completion",
    ),
]
HEAVY = (
    "print(sorted({'numpy', 'onnx', 'onnx_ir', 'llvmlite', 'rich', 'onnxruntime'} & set(sys.modules)), file=sys.stderr)"
)


def test_help_names_every_verb_and_the_exit_codes(graft):
    outcome = graft("--help")
    listed = [line.split()[0] for line in outcome.out.partition("Commands:\n")[2].splitlines()]
    assert listed == VERBS
    assert "0 ok, 1 failure, 2 usage, 3 coverage gate, 4 accuracy gate, 5" in outcome.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_has_the_common_options(graft, verb):
    is_group = verb in ("backends", "datatypes", "keys")
    help_text = graft(verb, "--help").out + (graft(verb, "list", "--help").out if is_group else "")
    for option in ("--json", "--plugin", "--without", "-v"):
        assert option in help_text


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["backends", "list"], ["--version"]])
def test_listing_and_help_import_nothing_heavy(arguments):
    code = f"import sys\nfrom graft.cli.main import main\ntry: main({arguments!r})\nfinally: {HEAVY}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "graft", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"graft, version {graft.__version__}\n"


def test_an_unknown_verb_is_a_usage_error(graft):
    outcome = graft("plot")
    assert outcome.code == 2
    assert outcome.err == "graft: No such command 'plot'; see graft --help\n"


def test_a_missing_file_is_a_usage_error(graft):
    outcome = graft("plan", "none.onnx")
    assert outcome.code == 2
    assert outcome.err == (
        "graft: Invalid value for 'MODEL': File 'none.onnx' does not exist; see graft plan model --help\n"
    )


@pytest.mark.parametrize("shape", ["x", "x:", ":1x2", "x:1xa", "x=1,-2", "x:1x"])
def test_a_malformed_shape_is_a_usage_error(graft, model, shape):
    outcome = graft("plan", model, "--shape", shape)
    assert outcome.code == 2
    message = f"Invalid value for '--shape': '{shape}' is not a shape; write x:1x3x224x224 or x=1,3,224,224"
    assert message in outcome.err


def test_an_empty_backend_name_is_a_usage_error(graft, model):
    outcome = graft("plan", model, "-b", "llvm,")
    assert outcome.code == 2
    message = "Invalid value for '-b' / '--backends': 'llvm,' has an empty name; write names with commas between, as in"
    assert message in outcome.err


def test_a_file_that_is_no_model_is_a_failure_with_one_line(graft, tmp_path):
    path = tmp_path / "notes.onnx"
    path.write_text("not a model")
    outcome = graft("plan", path)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"graft: '{path}' is not an ONNX model")
    assert "Traceback" not in outcome.err


def test_verbose_shows_the_traceback(graft, tmp_path):
    path = tmp_path / "notes.onnx"
    path.write_text("not a model")
    assert "Traceback (most recent call last)" in graft("plan", path, "-v").err


def test_an_error_is_json_where_json_was_asked_for(graft, model):
    import json

    outcome = graft("plan", model, "-b", "referense", "--json")
    assert outcome.code == 1
    error = json.loads(outcome.out)["error"]
    assert error["type"] == "PlanError"
    assert error["message"].startswith("unknown backend 'referense'; did you mean 'reference'? known backends are ")
