"""The bytes of an artifact, read back by the standard library and by failing writes."""

import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.errors import ArtifactError
from graft.runtime.artifact import safetensors, save, write_archive
from graft.runtime.constants import constant_key
from graft.runtime.procedure import (
    Module,
    Procedure,
    ProgramDescription,
    TensorSpec,
)


def description() -> ProgramDescription:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    main = Procedure("main", (TensorSpec("x", "float32", (2,), "input", index=0),), (0,), (), ())
    module = Module("m", "native", ("f",), b"code", {"w": weight})
    return ProgramDescription((main,), (module,), {constant_key(weight): weight}, files={"model.onnx": b"onnx"})


def test_an_artifact_is_a_zip_archive_with_aligned_members(tmp_path):
    save(description(), tmp_path / "a.graft")
    raw = (tmp_path / "a.graft").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.graft") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", "constants.safetensors", "model.onnx", "modules/0000.native"]
        for info in archive.infolist():
            name, extra = raw[info.header_offset + 26], raw[info.header_offset + 28]
            start = info.header_offset + 30 + name + extra
            assert start % 64 == 0
            assert raw[start : start + info.file_size] == archive.read(info)


def test_the_same_program_gives_the_same_bytes(tmp_path):
    save(description(), tmp_path / "a.graft")
    save(description(), tmp_path / "b.graft")
    assert (tmp_path / "a.graft").read_bytes() == (tmp_path / "b.graft").read_bytes()


def test_a_constant_that_two_parts_share_is_stored_once(tmp_path):
    save(description(), tmp_path / "a.graft")
    with zipfile.ZipFile(tmp_path / "a.graft") as archive:
        header = archive.read("constants.safetensors")
        length = int.from_bytes(header[:8], "little")
        assert len(json.loads(header[8 : 8 + length])) == 1
        module = json.loads(archive.read("manifest.json"))["modules"][0]
    assert module["constants"]["w"] in json.loads(header[8 : 8 + length])


class FailingFile(io.BytesIO):
    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes = writes

    def write(self, data):
        self.writes -= 1
        if self.writes < 0:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_failed_write_leaves_no_file_and_keeps_the_old_one(tmp_path, monkeypatch):
    target = tmp_path / "a.graft"
    save(description(), target)
    before = target.read_bytes()
    total = 0
    whole = FailingFile(10**6)
    write_archive(whole, {"a": b"1", "b": b"2"})
    import graft.runtime.artifact as artifact

    real = artifact.write_archive
    while True:
        budget = total

        def failing(file, members, budget=budget):
            limited = FailingFile(budget)
            real(limited, members)
            file.write(limited.getvalue())

        monkeypatch.setattr(artifact, "write_archive", failing)
        try:
            save(description(), target)
        except ArtifactError as error:
            assert str(error) == (
                f"cannot write artifact '{target}': No space left on device; 'a.graft' is as it was before"
            )
            assert target.read_bytes() == before
            assert [path.name for path in tmp_path.iterdir()] == ["a.graft"]
            total += 1
        else:
            break
    assert total > 10


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=4),
        st.tuples(st.sampled_from(["float32", "uint8", "int64", "bool"]), st.lists(st.integers(0, 4), max_size=3)),
        max_size=6,
    )
)
def test_safetensors_reads_what_was_written(rows):
    from safetensors.numpy import load

    arrays = {name: np.ones(shape, dtype) for name, (dtype, shape) in rows.items()}
    read = load(b"".join(bytes(chunk) for chunk in safetensors(arrays)))
    assert {name for name in read if not name.startswith("pad.")} == set(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_an_unwritable_place_is_named(tmp_path):
    missing = tmp_path / "no" / "a.graft"
    with pytest.raises(ArtifactError) as caught:
        save(description(), missing)
    assert str(caught.value) == (
        f"cannot write artifact '{missing}': there is no folder '{missing.parent}', make it first; nothing was written"
    )
