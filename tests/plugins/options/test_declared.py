"""What a backend may declare as options, and which values these take."""

import re
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Literal

import pytest

import graft
from graft.errors import OptionError, PluginError
from graft.plugins.options.declared import rows_of
from graft.plugins.options.values import parsed
from graft.plugins.registry.manager import PluginManager


class Mode(Enum):
    FAST = "fast"
    EXACT = "exact"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Options:
    bits: int = graft.option(8, help="bits of a weight")
    scale: float = 1.0
    verbose: bool = False
    name: str = "npu0"
    mode: Mode = Mode.FAST
    level: Level = Level.LOW
    width: Literal[4, 8] = 4
    tiles: tuple[int, ...] = (4, 8)
    path: str | None = None
    token: str | None = graft.option(None, secret=True, help="who may")


class Npu(graft.JsonBackend):
    name = "npu"
    options = Options


def test_an_object_has_its_options_as_the_declared_types() -> None:
    assert Npu().options == Options()
    npu = Npu(bits=4, scale=2, mode="exact", level="HIGH", width=8, tiles=[1], path=None)
    assert npu.options == Options(4, 2.0, mode=Mode.EXACT, level=Level.HIGH, width=8, tiles=(1,))
    assert isinstance(npu.options.scale, float)
    assert Npu(mode=Mode.EXACT).options.mode is Mode.EXACT


def test_a_backend_without_options_has_none() -> None:
    class Plain(graft.Backend):
        name = "plain"

    assert Plain().option_values() == {}
    with pytest.raises(OptionError) as caught:
        Plain(bits=8)
    assert caught.value.message == "backend 'plain' has no option 'bits'; it has none"


def test_a_constructor_of_its_own_gets_the_defaults_and_may_pass_options_on() -> None:
    class Own(Npu):
        def __init__(self, **options: Any) -> None:
            assert self.options == Options()
            super().__init__(**options)
            self.double = 2 * self.options.bits

    assert Own(bits=3).double == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bit": 4}, "backend 'npu' has no option 'bit'; did you mean 'bits'? its options are bits, scale, verbose, "
         "name, mode, level, width, tiles, path, token"),
        ({"bits": "4"}, "option 'bits' of backend 'npu' is '4'; give a whole number"),
        ({"bits": True}, "option 'bits' of backend 'npu' is True; give a whole number"),
        ({"bits": 4.0}, "option 'bits' of backend 'npu' is 4.0; give a whole number"),
        ({"scale": float("nan")}, "option 'scale' of backend 'npu' is nan; give a number"),
        ({"verbose": 1}, "option 'verbose' of backend 'npu' is 1; give true or false"),
        ({"name": None}, "option 'name' of backend 'npu' is None; give a text"),
        ({"mode": "slow"}, "option 'mode' of backend 'npu' is 'slow'; give one of fast, exact"),
        ({"width": 5}, "option 'width' of backend 'npu' is 5; give one of 4, 8"),
        ({"tiles": 4}, "option 'tiles' of backend 'npu' is 4; give a list as in [int,...], each a whole number"),
        ({"tiles": (4, "x")},
         "option 'tiles' of backend 'npu' is (4, 'x'); give a list as in [int,...], each a whole number"),
        ({"path": 5}, "option 'path' of backend 'npu' is 5; give a text, or none"),
        ({"token": 12345}, "option 'token' of backend 'npu' has a value of type int; give a text, or none"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Npu(**given)
    assert caught.value.message == message
    assert (caught.value.backend, caught.value.option) == ("npu", next(iter(given)))


def test_texts_of_the_command_line_are_read_by_their_types() -> None:
    texts = {
        "bits": "4", "scale": "2", "verbose": "true", "name": '"a,b"', "mode": "exact", "level": "HIGH", "width": "8",
        "tiles": "[1, 2]", "path": "none", "token": "x",
    }  # fmt: skip
    values = parsed(rows_of(Options), "npu", texts)
    assert values == {
        "bits": 4, "scale": 2.0, "verbose": True, "name": "a,b", "mode": "exact", "level": "HIGH", "width": 8,
        "tiles": [1, 2], "path": None, "token": "x",
    }  # fmt: skip
    assert parsed(rows_of(Options), "npu", {"tiles": "[]"}) == {"tiles": []}
    with pytest.raises(OptionError, match="option 'tiles' of backend 'npu' is '4'; give a list as in"):
        parsed(rows_of(Options), "npu", {"tiles": "4"})
    with pytest.raises(OptionError, match="option 'verbose' of backend 'npu' is 'yes'; give true or false"):
        parsed(rows_of(Options), "npu", {"verbose": "yes"})


def test_a_secret_is_not_in_what_is_printed_of_the_options() -> None:
    assert "hush" not in repr(Npu(token="hush").options)


@dataclass
class Thawed:
    bits: int = 8


@dataclass(frozen=True)
class WithoutDefault:
    bits: int


@dataclass(frozen=True)
class OfLists:
    bits: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Open:
    token: str | None = field(default=None, metadata={"secret": True})


@dataclass(frozen=True)
class Wrong:
    bits: int = "8"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (Thawed, "options of Thawed: not a frozen dataclass; write @dataclass(frozen=True) above the class"),
        (int, "options of int: not a frozen dataclass; write @dataclass(frozen=True) above the class"),
        (Options(), "options of Options: not a frozen dataclass; write @dataclass(frozen=True) above the class"),
        (WithoutDefault,
         "options of WithoutDefault: 'bits' has no default; give it one, such as None for int | None"),
        (OfLists, "options of OfLists: 'bits' has the type list[int]; use bool, int, float, str, an Enum or a Literal, "
         "a tuple of one of these as in tuple[int, ...], or one | None"),
        (Open, "options of Open: 'token' is a secret that repr() would show; declare it as "
         "graft.option(None, secret=True)"),
        (Wrong, "options of Wrong: 'bits' has the default '8', which is no int"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be_used_is_told(declared: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        rows_of(declared)
    assert caught.value.message == message
    with pytest.raises((OptionError, PluginError), match=re.escape(message)):
        PluginManager(sources=[]).admit(type("Bad", (graft.JsonBackend,), {"name": "bad", "options": declared})())


def test_what_the_dataclass_itself_refuses_is_told() -> None:
    @dataclass(frozen=True)
    class Even:
        bits: int = 8

        def __post_init__(self) -> None:
            if self.bits % 2:
                raise ValueError(f"bits are even, not {self.bits}")

    backend = type("Even", (graft.JsonBackend,), {"name": "even", "options": Even})
    with pytest.raises(OptionError) as caught:
        backend(bits=3)
    assert caught.value.message == "options of backend 'even': bits are even, not 3"
