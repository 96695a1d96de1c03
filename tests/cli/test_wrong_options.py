"""Every verb with every option wrong: an exit code and one line, or JSON; never a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from graft.cli.main import cli

TEXTS = ("", "nonsense", "=", "a=b", ":", ",")
"""Wrong in some way for every option that takes a text of its own form."""


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Give every verb, those of groups too, by the words that call it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from commands(inner, (*words, name))
    else:
        yield words, command


def wrong_values(parameter: click.Parameter) -> tuple[str, ...]:
    """Return values that a parameter must refuse while the command line is read."""
    match parameter.type:
        case click.Choice():
            return ("", "nonsense", "1")
        case click.IntRange() | click.FloatRange():
            return ("", "nonsense", "-1")
        case click.types.IntParamType() | click.types.FloatParamType():
            return ("", "nonsense", "1x")
        case click.Path(exists=True):
            return ("", "no/such/file", ".")
        case click.Path(file_okay=False):
            return (__file__,)
        case click.Path():
            return (".",)
    return ()


VERBS = dict(commands(cli))
READ = [
    (words, parameter.name, value)
    for words, command in VERBS.items()
    for parameter in command.params
    for value in wrong_values(parameter)
    if (words, parameter.name) != (("export",), "output")  # which may be a folder
]


def call(words: tuple[str, ...], name: str | None, value: str, model: object) -> list[object]:
    """Return a call of a verb with one parameter wrong."""
    command = VERBS[words]
    arguments: list[object] = list(words)
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.name != name:
            arguments += [] if not parameter.required else [model]
        elif parameter.name == name:
            arguments += ["--", value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
        elif parameter.required:
            arguments += [parameter.opts[0], "posit8" if "type" in str(parameter.opts) else "out.file"]
    options = [word for word in arguments if word != "--"]
    return arguments if arguments.count("--") else options


@pytest.mark.parametrize(("words", "name", "value"), READ, ids=[f"{' '.join(w)}-{n}-{v[-6:]}" for w, n, v in READ])
def test_a_wrong_option_is_a_usage_error_in_one_line(graft, model, words, name, value):
    arguments = call(words, name, value, model)
    outcome = graft(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("graft: ")
    assert outcome.err.endswith(f"; see graft {' '.join(words)} --help\n")


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_tells_usage_errors_as_json(graft, words):
    outcome = graft(*words, "--nonsense", "--json")
    assert (outcome.code, outcome.err) == (2, "")
    error = json.loads(outcome.out)["error"]
    assert error["type"] == "NoSuchOption"
    assert error["message"].startswith("No such option '--nonsense'")
    assert error["message"].endswith(f"; see graft {' '.join(words)} --help")


QUICK = {words: command for words, command in VERBS.items() if words not in (("bench",), ("profile",))}
FREE = [
    (words, parameter.name, value)
    for words, command in QUICK.items()
    for parameter in command.params
    if not wrong_values(parameter) and not getattr(parameter, "is_flag", False)
    for value in TEXTS
]


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_a_text_that_makes_no_sense_is_told_in_one_line(graft, model, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for verb, name, value in FREE:
        if verb == words:
            outcome = graft(*call(words, name, value, model))
            assert outcome.code in (0, 1, 2, 3, 5), (name, value, outcome)
            lines = [line for line in outcome.err.splitlines() if not line.startswith("graft: WARNING")]
            assert len(lines) <= 1, (name, value, outcome)
            assert "Traceback" not in outcome.out
