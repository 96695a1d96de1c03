"""The scorecard in its forms: equal results, equal bytes."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

from graft.testkit.conformance.cases.outcome import Result
from graft.testkit.conformance.scorecard import Scorecard

GOOD = (
    Result("0/registration/loaded", "passed"),
    Result("1/Relu/relu", "passed"),
    Result("1/Relu/relu-special", "expected-failure", "0 instead of nan", "drops NaN"),
    Result("1/Conv/conv", "not-claimed"),
)
BAD = Result("1/Add/add", "failed", "1 instead of 2")


def test_the_text_says_level_by_level_what_was_claimed_and_how_it_ended() -> None:
    assert (
        Scorecard("npu", 1, (*GOOD, BAD)).text()
        == """\
npu: level 0 · 2/4

LEVEL                             SUBJECTS  CLAIMED  PASSED  EXPECTED  FAILED
0      registers, lists, answers         1        1       1         0       0
1      claimed operators                 2        3       1         1       1

failed:
  1/Add/add: 1 instead of 2

expected:
  1/Relu/relu-special: drops NaN
"""
    )


def test_the_level_reached_is_below_the_first_failure() -> None:
    assert (Scorecard("npu", 1, GOOD).reached, Scorecard("npu", 1, GOOD).ok) == (1, True)
    assert (Scorecard("npu", 1, (*GOOD, BAD)).reached, Scorecard("npu", 1, (*GOOD, BAD)).ok) == (0, False)
    assert Scorecard("npu", 0, (Result("0/registration/loaded", "failed", "x"),)).message == "not conformant · 0/1"


def test_a_check_that_was_not_run_is_said_and_its_level_is_not_reached() -> None:
    text = Scorecard("npu", 1, (*GOOD, Result("1/Add/samples", "not-run", "no model was found"))).text()
    assert text.startswith("npu: level 0 · 2/3\n")
    assert "not run:\n  1/Add/samples: no model was found\n" in text
    other = Result("1/Relu/sample-0", "not-run", "no model was found")  # the subject was checked by other cases
    assert Scorecard("npu", 1, (*GOOD, other)).reached == 1


def test_a_part_of_a_level_reaches_no_level() -> None:
    assert Scorecard("npu", 1, GOOD, ("1/Relu",)).message == "1/Relu alone · 2/3"


def test_a_warning_about_what_passes_is_said() -> None:
    slow = Result("1/Relu/relu-slow", "passed", "slow: a call takes 400 ms")
    card = Scorecard("npu", 1, (*GOOD, slow))
    assert card.reached == 1
    assert "warnings:\n  1/Relu/relu-slow: slow: a call takes 400 ms\n" in card.text()


def test_the_json_form_has_counts_and_what_was_claimed() -> None:
    facts = json.loads(Scorecard("npu", 1, GOOD).write(".json"))
    assert (facts["format"], facts["reached"], facts["ok"], facts["not_claimed"]) == ("graft.scorecard", 1, True, 1)
    assert [row["claimed"] for row in facts["levels"]] == [1, 2]
    assert facts["badge"] == {"schemaVersion": 1, "label": "npu", "message": "level 1 · 2/3", "color": "#2e7d32"}
    assert [row["name"] for row in facts["results"]] == [one.name for one in GOOD[:3]]


def test_the_badge_is_svg_whose_colour_tells_the_outcome() -> None:
    badge = ElementTree.fromstring(Scorecard("npu", 1, GOOD).write(".svg"))
    assert badge.get("aria-label") == "npu: level 1 · 2/3"
    assert "#2e7d32" in Scorecard("npu", 1, GOOD).badge()
    assert "#b26a00" in Scorecard("npu", 1, (*GOOD, BAD)).badge()


def test_the_page_needs_no_other_file_and_escapes_what_it_shows() -> None:
    page = Scorecard("npu", 1, (*GOOD, Result("1/Add/add", "failed", "<script>"))).write(".html")
    HTMLParser().feed(page)
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_markdown_form_joins_expected_failures_by_reason() -> None:
    text = Scorecard("npu", 1, GOOD).write(".md")
    assert "| 1 | claimed operators | 1 | 2 | 1 | 1 | 0 |" in text
    assert "Expected to fail, 1: drops NaN (`1/Relu/relu-special`)." in text
