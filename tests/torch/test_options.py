"""The options of the backend, each by what it changes: a plan, isolation, another datatype, strictness."""

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

import graft  # noqa: E402
import graft.torch  # noqa: E402
from graft.core.importer.load import load  # noqa: E402
from graft.datatypes.conversion import convert  # noqa: E402
from graft.errors import ArgumentError, OptionError  # noqa: E402
from graft.torch.backend import warn_of_version  # noqa: E402
from graft.torch.options import options_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
nn = torch.nn


@pytest.fixture
def module():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval().requires_grad_(False)


def compiled(module, **options):
    torch._dynamo.reset()
    return torch.compile(module, backend="graft", options=options)


def plan_of(module, x, *backends):
    (plans,) = graft.torch.explain(module, (x,), options={"backends": list(backends)}).plans
    (plan,) = plans.values()
    return plan


def test_a_plan_says_where_a_module_runs(module, tmp_path):
    x = torch.randn(3, 4)
    plan = plan_of(module, x, "reference")
    assert {one.backend for one in plan.placements} == {"reference"}
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json(), encoding="utf-8")
    torch.testing.assert_close(compiled(module, plan=plan)(x), module(x))
    (found,) = graft.torch.explain(module, (x,), options={"plan": str(path), "strict": True}).plans
    assert {one.backend for one in found["part_0"].placements} == {"reference"}


def test_a_plan_that_is_not_there_is_an_error(module, tmp_path):
    with pytest.raises(Exception, match="cannot be read: No such file") as caught:
        compiled(module, plan=str(tmp_path / "none.json"))(torch.randn(3, 4))
    assert "none.json" in str(caught.value)


def test_a_backend_in_a_process_of_its_own_answers_the_same(module):
    x = torch.randn(3, 4)
    run = compiled(module, backends=["llvm"], isolate={"llvm": graft.Isolation(compile=False)}, strict=True)
    torch.testing.assert_close(run(x), module(x), rtol=1e-4, atol=1e-5)


def test_a_module_in_posits_answers_as_its_model_in_posits_does(module):
    x = torch.randn(3, 4)
    found = compiled(module, backends=["llvm"], datatype="custom[posit]16", strict=True)(x)
    model = convert(load(graft.torch.export(module, (x,))), "custom[posit]16")
    expected = graft.compile(model, ["llvm"])(x.numpy())
    np.testing.assert_array_equal(found.numpy(), expected)
    assert not np.array_equal(found.numpy(), module(x).numpy())  # 16 bits are fewer
    torch.testing.assert_close(found, module(x), rtol=1e-2, atol=1e-2)


def test_a_backend_that_fails_leaves_its_part_to_pytorch_with_a_warning_and_strict_raises(module, caplog):
    class Failing(graft.Backend):
        name = "failing"

        def supports(self, node):
            return True

        def compile(self, region, context):
            raise RuntimeError("the tool is out of licences")

    x = torch.randn(3, 4)
    with caplog.at_level(logging.WARNING, logger="graft"):
        torch.testing.assert_close(compiled(module, backends=[Failing()])(x), module(x))
    assert any("out of licences" in one.message for one in caplog.records)
    with pytest.raises(Exception, match="out of licences"):
        compiled(module, backends=[Failing()], strict=True)(x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device of CUDA")
def test_a_part_that_cannot_run_here_is_left_to_pytorch_with_a_warning_and_strict_raises(module, caplog):
    x = torch.randn(3, 4)
    with caplog.at_level(logging.WARNING, logger="graft"):
        torch.testing.assert_close(compiled(module, backends=["cuda"])(x), module(x))
    assert any("stays in PyTorch: " in one.message and "cannot run here" in one.message for one in caplog.records)
    with pytest.raises(Exception, match="cannot run here"):
        compiled(module, backends=["cuda"], strict=True)(x)


def test_options_are_checked_by_name_and_kind():
    assert options_of(None) == options_of({})
    with pytest.raises(OptionError, match="has no option 'back_ends'; did you mean 'backends'"):
        options_of({"back_ends": ["llvm"]})
    with pytest.raises(
        ArgumentError, match=r"torch.compile: options is list \['llvm'\]; give a dict of options by name"
    ):
        options_of(["llvm"])
    for name, value in {"plan": 3, "datatype": 16, "freeze": 1, "isolate": ["llvm"], "strict": "yes"}.items():
        with pytest.raises(ArgumentError, match=f"option '{name}' is"):
            options_of({name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backends": ["llmv"]}, "unknown backend 'llmv'; did you mean 'llvm'"),
        ({"datatype": "custom[posti]16"}, "datatype 'posti' is not registered; did you mean 'posit'"),
        ({"precision": "float31"}, "float31"),
        ({"threads": 0}, "threads"),
        ({"isolate": {"lvm": "process"}}, "isolation names 'lvm'"),
    ],
)
def test_options_that_no_graph_is_compiled_with_are_errors_not_a_part_that_stays_in_pytorch(module, options, message):
    with pytest.raises(Exception, match=message):
        compiled(module, **{"backends": ["llvm"], **options})(torch.randn(3, 4))


def test_a_mode_is_an_error_that_says_what_to_give():
    with pytest.raises(Exception, match="no mode 'reduce-overhead': modes are inductor's; give options"):
        torch.compile(torch.relu, backend="graft", mode="reduce-overhead")(torch.ones(2))


def test_another_version_of_pytorch_is_warned_of_and_the_tested_one_is_not(caplog):
    for version in ("2.13.0+cpu", "2.13.1", "2.130.0", "2.12.1"):
        warn_of_version(version)
    texts = [one.message for one in caplog.records]
    assert texts == [
        f"PyTorch {one} is another version than 2.13, which Graft is tested with" for one in ("2.130.0", "2.12.1")
    ]


def test_guards_are_left_out_by_a_filter_and_ahead_of_time_is_an_error_that_says_so(module):
    x = torch.randn(3, 4)
    run = compiled(module, backends=["llvm"], guard_filter_fn=torch.compiler.skip_all_guards_unsafe)
    torch.testing.assert_close(run(x), module(x))
    ahead = torch.compile(torch.relu, backend="graft", fullgraph=True)
    with pytest.raises(
        Exception, match=r"does not take part in 'aot_compile'; export the module by graft.torch.export"
    ):
        ahead.aot_compile(((x,), {}))
