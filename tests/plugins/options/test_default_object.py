"""Loaders that a class is asked for, as plugins of level 1 may do."""

from __future__ import annotations

from dataclasses import dataclass

import graft


@dataclass(frozen=True)
class Options:
    """One option."""

    bits: int = 4


class Npu(graft.JsonBackend):
    name = "npu"
    options = Options


def test_a_class_brings_the_loader_of_its_default_options_and_an_object_that_of_its_own() -> None:
    (of_class,), (of_object,) = Npu.module_loaders(), Npu(bits=8).module_loaders()
    assert (of_class.kind, dict(of_class.options)) == ("json:npu", {"bits": 4})
    assert dict(of_object.options) == {"bits": 8}


def test_an_override_that_is_a_class_method_may_add_to_what_its_parent_brings() -> None:
    class Old(Npu):
        @classmethod
        def module_loaders(cls):
            return [*super().module_loaders()]

    assert [one.kind for one in Old().module_loaders()] == ["json:npu"]
