from itertools import pairwise

import pytest

from graft.core.machine.target import LEVELS, available_threads, host_target, target_named
from graft.errors import GraftError


def test_native_is_this_machine():
    assert target_named("native") == host_target()
    assert host_target().arch in ("x86_64", "aarch64")


def test_a_level_has_the_features_of_the_levels_below():
    names = [name for name, target in LEVELS.items() if target.arch == "x86_64"]
    for lower, higher in pairwise(names):
        assert target_named(lower).features < target_named(higher).features
    assert [target_named(name).vector_bytes for name in names] == [16, 16, 32, 64]


def test_an_unknown_cpu_is_an_error():
    with pytest.raises(GraftError) as caught:
        target_named("z80")
    assert str(caught.value) == ("unknown cpu 'z80'; choose native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, armv8-a")


def test_at_least_one_thread_is_available():
    assert available_threads() >= 1
