"""What runs in `reference` though nobody named it is said once, loudly."""

import logging

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.last_resort import MANY
from graft.plugins.llvm.backend import LlvmBackend


def chain(count: int) -> onnx.ModelProto:
    """A chain of operators that `llvm` takes."""
    nodes = "".join(f"v{number + 1} = Sinh(v{number}) " for number in range(count))
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[n,8] v0) => (float[n,8] v{count}) {{ {nodes} }}"""
    return onnx.parser.parse_model(text)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(LlvmBackend, "compile", fails)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.usefixtures("broken")
def test_a_region_that_ends_in_reference_is_told_by_warnings_and_the_plan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert graft.plan(chain(MANY)).coverage("llvm") == 1.0
    program = graft.compile(chain(MANY), cache=False)
    np.testing.assert_array_equal(program(np.zeros((1, 8), np.float32)), np.zeros((1, 8)))
    failed, left = messages(caplog)
    assert failed.endswith(
        "plugin 'llvm' raised IndexError in compile of region 'llvm_0': tuple index out of range; the region goes to "
        "the next backend"
    )
    assert left == (
        f"{MANY} of {MANY} operators run in 'reference', in Python: 100 % of the modelled time (Sinh {MANY}); `graft "
        "plan --why` says why no other backend takes them, and who names 'reference' among the backends is not told"
    )
    plan = graft.Plan.of(program)
    assert plan.coverage("reference") == 1.0
    assert {row.reasons["llvm"].code for row in plan.placements} == {"compile-failed"}
    assert "tuple index out of range (test_last_resort.py:" in plan.placements[0].reasons["llvm"].text
    assert f"reference {MANY}/{MANY} · llvm failed to compile {MANY}" in plan.summary()
    assert program.description.metadata["summary"] == plan.summary()


@pytest.mark.usefixtures("broken")
def test_who_names_reference_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    graft.compile(chain(MANY), ["reference"], cache=False)
    assert messages(caplog) == []


def test_a_model_without_reference_is_not_priced(caplog: pytest.LogCaptureFixture) -> None:
    graft.compile(chain(MANY), cache=False)
    assert messages(caplog) == []
