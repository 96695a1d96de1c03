from __future__ import annotations

import copy
import pickle

from graft.core.lazy import Lazy, LazyMapping


def test_value_is_made_once_when_it_is_first_read() -> None:
    made: list[int] = []
    lazy = Lazy(lambda: made.append(1) or "text")
    assert made == []
    assert (lazy.value, lazy.value, made) == ("text", "text", [1])


def test_lazy_values_compare_and_show_and_copy_as_what_they_are() -> None:
    lazy = Lazy(lambda: (1, "a"))
    assert lazy == Lazy.of((1, "a"))
    assert lazy != Lazy.of((1, "b"))
    assert lazy != (1, "a")
    assert hash(lazy) == hash(Lazy.of((1, "a")))
    assert repr(lazy) == "(1, 'a')"
    assert pickle.loads(pickle.dumps(Lazy.of((1, "a")))) == lazy
    assert copy.deepcopy(lazy) == lazy


def test_a_mapping_makes_its_lazy_values_when_they_are_read() -> None:
    made: list[int] = []
    rows = LazyMapping({"plain": 1, "made": Lazy(lambda: made.append(1) or "text")})
    assert ([*rows], len(rows), rows["plain"], made) == (["plain", "made"], 2, 1, [])
    assert (rows["made"], rows["made"], made) == ("text", "text", [1])
    assert type(copied := pickle.loads(pickle.dumps(rows))) is dict
    assert copied == rows == {"plain": 1, "made": "text"}
    assert repr(rows) == "{'plain': 1, 'made': 'text'}"
