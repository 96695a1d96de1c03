"""What notebooks show of plans, programs, profiles, verifications, latencies and explanations."""

import html
import re
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

import graft
from graft.core.tuning.options import Progress, tune_options
from graft.report.notebook import LONGEST, framed, shown
from graft.runtime.system.displayed import CallTimes, notebook_bar
from tests.partition.graphs import small

CHAIN = "a = Relu(x)\nb = Exp(a)\nc = Add(b, a)\ny = Relu(c)"
X = np.ones((2, 3), np.float32)


def page(value: object) -> str:
    """What is in the frame of a value."""
    text = value._repr_html_()
    found = re.fullmatch(r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', text)
    assert found is not None
    inside = html.unescape(found[1])
    assert not re.search(r'(?:src|href)="(?!#)|url\(|@import|https?://(?!www\.w3\.org)', inside), (
        "a frame needs no network"
    )
    return inside


def compiled() -> graft.Program:
    return graft.compile(small(CHAIN), ["llvm"])


def test_a_plan_shows_coverage_and_reasons_without_links_that_lead_nowhere():
    plan = graft.plan(small(CHAIN), ["onednn", "llvm"])
    text = page(plan)
    assert html.escape(plan.summary()) in text
    assert 'class="bars"' in text and "data-reason" not in text
    for row in plan.why("onednn"):
        assert html.escape(row.text) in text


def test_a_program_shows_the_whole_report_with_its_graph():
    text = page(compiled())
    assert '<svg id="canvas"' in text and '"op":"Exp"' in text


def test_a_program_without_a_plan_is_shown_as_text():
    program = compiled()
    program.description = replace(program.description, metadata={})
    assert program._repr_html_() is None


def test_a_profile_shows_the_slowest_call_first_and_is_a_list():
    times = CallTimes([(("a",), "quick<", 1000), (("b", "c"), "slow", 3000)])
    text = page(times)
    assert text.index("slow") < text.index("quick&lt;")
    assert "2 calls, 4.0 us" in text and "75.0%" in text and "b, c" in text
    assert compiled().profile(X)[0][1].startswith("llvm")


def test_a_verification_shows_each_output_and_region_with_its_verdict():
    report = graft.verify(small(CHAIN), ["llvm"], per_region=True)
    text = page(report)
    assert "within rtol" in text and "<code>y</code>" in text and "llvm_0" in text
    assert "beyond rtol" in page(graft.verify(small(CHAIN), ["llvm"], rtol=0.0, atol=-1.0))


def test_a_node_explanation_and_latencies_are_tables():
    model = small(CHAIN)
    plan = graft.plan(model, ["onednn", "llvm"])
    node = plan.placements[1].node
    assert html.escape(f"Exp (node '{node}'): llvm") in page(graft.explain(model, node, ["onednn", "llvm"]))
    report = graft.bench(model, ["llvm"], seconds=0.01, warmup=0.0)
    assert f"{report.rows[0].median_ms:.3f}" in page(report)


def test_long_tables_are_cut_and_say_so():
    assert "7 rows more" in page(CallTimes([(("a",), "f", 1)] * (LONGEST + 7)))


def test_what_has_no_form_of_its_own_and_what_has_no_report_are_shown_as_text(monkeypatch):
    assert shown(3) is None
    monkeypatch.setitem(sys.modules, "graft.report.notebook", None)
    assert CallTimes()._repr_html_() is None


def test_a_title_is_text():
    assert "&amp;lt;script&amp;gt;" in framed("<script>")


@pytest.mark.filterwarnings("ignore")
def test_an_explanation_of_pytorchs_shows_what_stayed_there():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")
    from graft.torch import explain

    found = explain(
        lambda x: torch.linalg.inv(x @ x + torch.eye(3)) @ x, (torch.randn(3, 3),), options={"backends": ["llvm"]}
    )
    text = page(found)
    assert "compiled parts" in text and "linalg_inv" in text


@pytest.fixture
def moved(monkeypatch):
    """Stand in for IPython in a notebook; return what its bars were moved to, by total."""
    found = {}

    class ProgressBar:
        def __init__(self, total):
            self.__dict__["total"] = total

        def display(self):
            found[self.total] = []

        def __setattr__(self, name, value):
            found[self.total].append((name, value))

    display = types.ModuleType("IPython.display")
    display.ProgressBar = ProgressBar
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


def test_calibration_shows_a_bar(moved):
    graft.quantize(small(CHAIN), "int8", {"x": np.concatenate([X] * 3)})
    assert moved == {3: [("progress", one) for one in (1, 2, 3)]}


def test_tuning_shows_a_bar_of_its_seconds(moved):
    options = tune_options(5.0)
    options.progress(Progress(2.0, options.seconds, "gemm", 1, 2))
    options.progress(Progress(7.0, options.seconds, "conv", 2, 2))
    assert moved == {5.0: [("progress", 2.0), ("progress", 5.0)]}


def test_elsewhere_there_is_no_bar(monkeypatch):
    assert notebook_bar() is None
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert notebook_bar() is None
    assert tune_options(True).progress is None
