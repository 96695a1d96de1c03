"""The report as a user meets it: opened from a file in headless Chromium, clicked through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
import pytest

from benchmarks.zoo import path_of
from graft.compiler.driver import prepare
from graft.partition.placement.partitioner import partition
from graft.report.gathering import report_on_model
from graft.report.html import write_html
from tests.partition.graphs import everything, small, toy
from tests.report.webdriver import Browser, browser

CENTRE = "const box = document.querySelector(arguments[0]).getBoundingClientRect(); "
TRANSFORM = "return document.querySelector('#world').getAttribute('transform')"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def written(model: ir.Model, path: Path) -> Path:
    """Write the report of a model that two vendors share."""
    result = partition(model, [toy("blas", "MatMul", "Gemm"), toy("dsp", "Add", "Softmax"), everything()])
    write_html(report_on_model("model.onnx", result), path)
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(prepare(str(path_of("bert_base"))), tmp_path_factory.mktemp("report") / "bert.html")


@pytest.fixture
def page(window: Browser, bert: Path) -> Iterator[Browser]:
    window.open(bert)
    window.settle()
    yield window
    assert window.messages() == []


def shown(page: Browser, text: str) -> str:
    """Return a selector of the first vertex in the document with this text."""
    number = page.run(
        "return [...document.querySelectorAll('[data-vertex]')].find("
        "one => one.querySelector('text')?.textContent === arguments[0])?.dataset.vertex",
        text,
    )
    assert number is not None, text
    return f"[data-vertex='{number}']"


def test_a_click_on_a_region_shows_what_is_in_it(page: Browser) -> None:
    assert page.text("header h1") == "model.onnx"
    page.click(shown(page, "rest_0"))
    panel = page.text("#panel")
    assert panel.startswith("rest_0\nRegion\n")
    for part in ("Operators by type", "Why not elsewhere", "no-pattern", "To change it: give the backend a rule",
                 "Bytes in", "Inputs (", "Outputs ("):  # fmt: skip
        assert part in panel
    assert page.count("#marks path[d^=M]") == 1
    page.click("#panel details:last-of-type summary")
    page.click("#panel details:last-of-type li button")
    assert page.run("return document.querySelector('#show-operators').getAttribute('aria-pressed')") == "true"
    assert "Region\nrest_0" in page.text("#panel")


def test_a_click_on_an_operator_shows_its_types_and_reasons(page: Browser) -> None:
    page.click("#show-operators")
    page.type("#search", "node_MatMul_48")
    assert page.text("#hits") == "1 found"
    assert page.count(".box.hit") == 1
    page.click(".box.hit")
    panel = page.text("#panel")
    assert panel.startswith("MatMul\nnode_MatMul_48\nBackend\nblas\n")
    for part in ("float32[1,128,768]", "384.0 KiB", "Constants (1, 2.3 MiB)", "lost-to:blas", "blas comes first"):
        assert part in panel
    assert page.count("#rows tr.selected") == 1
    page.run("document.activeElement.blur()")
    page.click("#panel .link")
    assert page.text("#panel h2").startswith("blas_")


def test_the_wheel_zooms_and_the_mouse_moves(page: Browser) -> None:
    page.run("document.querySelector('#canvas').scrollIntoView()")
    x, y = page.run(f"{CENTRE} return [Math.round(box.x + 40), Math.round(box.y + box.height / 2)]", "#canvas")
    before = page.run(TRANSFORM)
    page.wheel(x, y, -240)
    closer = page.run(TRANSFORM)
    assert scale(closer) > scale(before)
    page.pointer(
        {"type": "pointerMove", "x": x, "y": y, "duration": 0},
        {"type": "pointerDown", "button": 0},
        {"type": "pointerMove", "x": x + 60, "y": y - 90, "duration": 20},
        {"type": "pointerUp", "button": 0},
    )
    moved = page.run(TRANSFORM)
    assert scale(moved) == scale(closer)
    assert [after - first for after, first in zip(place(moved), place(closer), strict=True)] == pytest.approx([60, -90])
    page.click("#zoom-fit")
    assert scale(page.run(TRANSFORM)) < scale(closer)
    assert page.run(
        "const stage = document.querySelector('#canvas').getBoundingClientRect(); "
        "return [...document.querySelectorAll('[data-vertex] rect')].map(one => one.getBoundingClientRect())"
        ".every(box => box.top >= stage.top && box.bottom <= stage.bottom && box.left >= stage.left "
        "&& box.right <= stage.right)"
    )
    page.click("#zoom-in")
    page.click("#zoom-out")


def scale(transform: str) -> float:
    return float(transform.rpartition("scale(")[2].rstrip(")"))


def place(transform: str) -> list[float]:
    return [float(part) for part in transform.partition("(")[2].partition(")")[0].split()]


def test_the_table_is_filtered_and_sorted(page: Browser) -> None:
    page.type("#filter", "softmax")
    assert page.text("#count").startswith("12 of ")
    assert page.count("#rows tbody tr[data-operator]") == 12
    page.type("#filter", " ")
    page.run("document.querySelector('#filter-backend').value = 'blas'; "
             "document.querySelector('#filter-backend').dispatchEvent(new Event('change'))")  # fmt: skip
    page.click("#rows th:nth-child(7)")
    flops = [row.split() for row in page.run(
        "return [...document.querySelectorAll('#rows tr[data-operator] td:nth-child(7)')].map(one => one.textContent)"
    )]  # fmt: skip
    assert page.run("return document.querySelector('#rows th:nth-child(7)').ariaSort") == "descending"
    numbers = [float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit] for number, unit in flops]
    assert numbers == sorted(numbers, reverse=True)
    page.click("#rows tbody tr[data-operator]")
    assert page.text("#panel").startswith("MatMul\n")


def test_a_group_of_reasons_filters_the_table(page: Browser) -> None:
    number = page.text("[data-reason]")
    page.click("[data-reason]")
    assert page.text("#count").startswith(f"{number} of ")
    assert "no-pattern" in page.text("#rows tbody tr[data-operator]")
    page.click("#filter-reason")
    assert not page.text("#count").startswith(f"{number} of ")


def test_boundaries_are_listed_with_their_bytes(page: Browser) -> None:
    text = page.text("#boundaries").replace("\n", " ")
    assert "model input rest 3 3.0 KiB" in text
    assert "rest blas 85 45.0 MiB" in text


def test_names_that_are_markup_stay_text(window: Browser, tmp_path: Path) -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    model.graph[0].name = "</script><img src=x onerror=alert(1)>&amp;"
    model.graph[1].name = '"<b>bold</b>'
    window.open(written(model, tmp_path / "odd.html"))
    window.settle()
    window.click("#show-operators")
    window.click(shown(window, "Relu"))
    assert "</script><img src=x onerror=alert(1)>&amp;" in window.text("#panel")
    assert window.count("img") + window.count("b b") == 0
    assert window.messages() == []


def test_five_thousand_operators_stay_usable(window: Browser, tmp_path: Path) -> None:
    names = ("Relu", "Add", "Exp")
    lines = [f"v{i + 1} = {names[i % 3]}(v{i}{f', v{max(0, i - 7)}' if i % 3 == 1 else ''})" for i in range(5000)]
    window.open(written(small("\n".join(lines) + "\ny = Neg(v5000)", "float[2,3] v0"), tmp_path / "large.html"))
    window.settle()
    assert window.text("#count") == "5001 of 5001 operators"
    assert window.count("#rows tr") < 100
    window.click("#show-operators")
    assert window.count("[data-vertex]") < 300
    window.type("#search", "v4321")
    window.run("document.querySelector('#search').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))")
    window.settle()
    assert "v4321" in window.text("#panel")
    window.click("#zoom-fit")
    assert window.count("[data-vertex]") > 5000
    assert window.messages() == []
