"""The ledger of expected failures is strict: what passes, what has no reason, and what names nothing is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.errors import GraftError
from graft.testkit.conformance.cases.outcome import Failure, NotClaimed
from graft.testkit.conformance.kit import Kit
from graft.testkit.conformance.ledger import Entry, read
from graft.testkit.conformance.suite import Suite, bad


def check_of(how: str) -> None:
    if how == "fails":
        raise Failure("wrong")
    if how == "is not claimed":
        raise NotClaimed
    if how == "raises":
        raise ZeroDivisionError("by zero")


def run(monkeypatch: pytest.MonkeyPatch, how: str, *entries: Entry) -> list[tuple[str, str]]:
    from graft.testkit.conformance import levels
    from graft.testkit.conformance.cases.outcome import Case

    one = levels.Level("one", lambda kit: ["it"], lambda kit, subject: iter([Case("0/it/does", lambda: check_of(how))]))
    monkeypatch.setattr("graft.testkit.conformance.suite.LEVELS", (one,))
    return [(result.verdict, result.text) for result in Suite(Kit("npu"), 0, entries).run(0, "it")]


def test_an_entry_that_passes_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "passes", Entry("0/it/does", "why")) == [
        ("unexpected-pass", "it passes; take it out of the ledger")
    ]


def test_a_failure_of_the_ledger_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "fails", Entry("0/it/*", "why")) == [("expected-failure", "wrong")]
    assert run(monkeypatch, "raises", Entry("0/it/*", "why"))[0][0] == "expected-failure"


def test_an_entry_that_names_no_case_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "passes", Entry("0/it/did", "why")) == [
        ("passed", ""),
        ("unexpected-pass", "the ledger's entry names no case"),
    ]


def test_where_the_machine_decides_a_case_may_pass_or_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("0/it/does", "why", may_pass=True)
    assert run(monkeypatch, "passes", entry) == [("passed", "")]
    assert run(monkeypatch, "fails", entry) == [("expected-failure", "wrong")]


def test_nothing_is_charged_that_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "is not claimed", Entry("0/it/does", "why")) == [("not-claimed", "")]


def test_an_exception_that_is_no_graft_error_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "raises") == [
        ("failed", "raises ZeroDivisionError, which is no GraftError: by zero"),
    ]


def test_a_ledger_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.txt"
    path.write_text("# NaN\n1/Relu/*-special  drops NaN\n\n~1/Gelu/one   by a rounding\n")
    assert read(path) == (
        Entry("1/Relu/*-special", "drops NaN"),
        Entry("1/Gelu/one", "by a rounding", may_pass=True),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"1/Relu/special": ""},
            "the ledger: '1/Relu/special' has no reason; write it behind the name",
        ),
        (
            {"Relu": "why"},
            "the ledger: 'Relu' names no case; write LEVEL/SUBJECT/CASE, as in 1/Relu/*-special",
        ),
        (
            "none.txt",
            "ledger 'none.txt' cannot be read: [Errno 2] No such file or directory: 'none.txt'; make it, or give none",
        ),
    ],
)
def test_what_is_wrong_with_a_ledger_is_told(given: str | dict[str, str], said: str) -> None:
    with pytest.raises(GraftError) as caught:
        read(given)
    assert caught.value.message == said


def test_an_entry_stands_once(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("1/Relu/a b\n1/Relu/a c\n")
    with pytest.raises(GraftError) as caught:
        read(tmp_path / "l.txt")
    assert caught.value.message == "ledger 'l.txt': '1/Relu/a' stands twice; leave one of them out"


def test_there_is_no_level_7() -> None:
    with pytest.raises(GraftError, match="there is no level 7; give one of 0 to 6"):
        Suite(Kit("npu"), 7)


def test_bad_results_are_failures_and_unexpected_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    from graft.testkit.conformance.cases.outcome import Result

    verdicts = ("passed", "failed", "expected-failure", "unexpected-pass", "not-claimed")
    rows = [Result("1/a/b", verdict) for verdict in verdicts]  # type: ignore[arg-type]
    assert [row.verdict for row in bad(rows)] == ["failed", "unexpected-pass"]
