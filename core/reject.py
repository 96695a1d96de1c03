"""A refusal as data: why a backend does not take a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graft.errors import GraftError
from graft.runtime.arguments import TEXT, require

BACKEND_CODES = (
    "no-pattern", "dtype", "rank", "shape", "dynamic-shape", "attribute", "layout", "constant-required", "size",
    "fused-use", "accuracy",
)  # fmt: skip
CORE_CODES = ("cost", "region-too-small", "cycle", "user-excluded", "compile-failed", "unavailable")
LOST_TO = "lost-to:"


@dataclass(frozen=True, slots=True)
class Reject:
    """Why a predicate refuses: a machine-readable ``code`` and a sentence for people. Falsy, so `if not answer` works.

    Backends use `BACKEND_CODES` and ``cost``; the core adds the others and ``lost-to:<backend>``.
    """

    code: str
    text: str = ""

    def __post_init__(self) -> None:
        if type(self.code) is not str or type(self.text) is not str:
            require("Reject", "code", self.code, TEXT)
            require("Reject", "text", self.text, TEXT)
        if self.code not in BACKEND_CODES and self.code not in CORE_CODES and not self.code.startswith(LOST_TO):
            known = ", ".join((*BACKEND_CODES, *CORE_CODES, f"{LOST_TO}<backend>"))
            raise GraftError(f"unknown reason code '{self.code}'; use one of {known}", code=self.code)

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        return f"{self.code}: {self.text}" if self.text else self.code


@dataclass(frozen=True, slots=True)
class Yield:
    """A backend's answer that it takes a node only inside a region, not at its boundary; ``text`` says why.

    ``everywhere``: it would rather not have the node at all, for others compute it faster even inside a region.
    """

    text: str
    everywhere: bool = False

    def __post_init__(self) -> None:
        if type(self.text) is not str:
            require("Yield", "text", self.text, TEXT)


def first(*answers: Reject | None) -> Reject | None:
    """Return the first refusal, None without any. Not what `or` does, for refusals are falsy."""
    return next((answer for answer in answers if answer is not None), None)


def plain(answer: object) -> object:
    """Return a predicate's answer with a NumPy boolean as Python's: comparisons of arrays give these."""
    kind = type(answer)
    return bool(answer) if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_") else answer
