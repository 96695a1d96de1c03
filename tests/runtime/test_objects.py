from __future__ import annotations

import pytest

from graft.errors import ArtifactError
from graft.runtime.objects import ObjectFunction, pack_objects, unpack_objects

FUNCTIONS = (ObjectFunction("add", "llvm_0_0_add", b"\0asm"), ObjectFunction("mul", "mul", b""))


def test_objects_are_read_as_they_were_written() -> None:
    assert unpack_objects(pack_objects(FUNCTIONS)) == FUNCTIONS
    assert unpack_objects(pack_objects(())) == ()


def test_damaged_objects_are_refused_wherever_they_are_cut_off() -> None:
    data = pack_objects(FUNCTIONS)
    for length in range(len(data)):
        with pytest.raises(ArtifactError):
            unpack_objects(data[:length])


def test_another_version_is_named() -> None:
    data = pack_objects(FUNCTIONS)
    with pytest.raises(ArtifactError) as error:
        unpack_objects(data[:8] + b"\2" + data[9:])
    assert str(error.value) == "the module holds objects of version 2, this runtime reads version 1"
