"""The user's configuration: where it is, what it may say, and how it is edited."""

from pathlib import Path

import pytest

from graft.compiler.configuration import Configuration, configuration, configuration_file, set_disabled
from graft.errors import GraftError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "own" / "config.toml"
    monkeypatch.setenv("GRAFT_CONFIG", str(path))
    return path


def test_the_place_is_the_users_unless_a_variable_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAFT_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert configuration_file() == tmp_path / "graft" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert configuration_file() == tmp_path / ".config" / "graft" / "config.toml"
    monkeypatch.setenv("HOME", "")
    assert configuration_file() is None
    assert configuration() == Configuration()


def test_without_a_file_all_is_as_by_default(file: Path) -> None:
    assert configuration() == Configuration((), 10.0)


def test_the_file_names_plugins_and_the_time_of_their_import(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('[plugins]\ndisabled = ["npu"]\nimport_seconds = 30\n')
    assert configuration() == Configuration(("npu",), 30.0)
    assert configuration().limits.importing == 30.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[plugins", "cannot be read: Expected ']' at the end of a table declaration (at end of document)"),
        ("[plugin]", "'plugin' is no table; did you mean 'plugins'? there are plugins"),
        ("plugins = 5", "plugins is 5; write a table, [plugins]"),
        ("[plugins]\ndisable = []", "'disable' is no key of [plugins]; did you mean 'disabled'? there are disabled, "
         "import_seconds"),
        ("[plugins]\ndisabled = 'npu'", "plugins.disabled is 'npu'; give a list of names"),
        ("[plugins]\nimport_seconds = 0", "plugins.import_seconds is 0; give a positive number"),
    ],
)  # fmt: skip
def test_a_file_that_says_something_else_is_told(file: Path, text: str, said: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(GraftError) as caught:
        configuration()
    between = " " if said.startswith("cannot") else ": "
    assert caught.value.message == f"configuration '{file}'{between}{said}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[plugins]\ndisabled = ["a", "b"]\n'),
        ("# mine", '# mine\n[plugins]\ndisabled = ["a", "b"]\n'),
        ("[plugins]", '[plugins]\ndisabled = ["a", "b"]\n'),
        ("[plugins] # mine\nimport_seconds = 5\n", '[plugins] # mine\ndisabled = ["a", "b"]\nimport_seconds = 5\n'),
        (
            '[plugins]\n# why\ndisabled = [\n  "c",\n]\nimport_seconds = 5\n',
            '[plugins]\n# why\ndisabled = ["a", "b"]\nimport_seconds = 5\n',
        ),
    ],
)
def test_what_else_the_file_says_is_kept(file: Path, before: str, after: str) -> None:
    file.parent.mkdir()
    file.write_text(before)
    assert set_disabled({"b", "a"}) == file
    assert file.read_text() == after


def test_a_file_of_another_form_is_left_alone(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('plugins.disabled = ["a"]\n')
    with pytest.raises(GraftError) as caught:
        set_disabled({"b"})
    assert caught.value.message == (
        f"configuration '{file}' has a form that is not edited here; set plugins.disabled in it by hand"
    )
    assert file.read_text() == 'plugins.disabled = ["a"]\n'
