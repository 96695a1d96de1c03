"""Checkpoints: read by another library, written whole or not at all, refused where they are of another model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from graft.errors import ModelError
from graft.training import SGD, Adam, Trainer
from graft.training.checkpoints import read_checkpoint, write_checkpoint
from tests.training.test_trainer import data, network, trainer


def test_a_training_goes_on_from_a_checkpoint_to_the_bit(tmp_path: Path) -> None:
    whole, given = trainer(accumulate=2), data()
    whole.fit(given, epochs=2, batch=20, seed=3, checkpoint=tmp_path / "one")
    rest = whole.fit(given, epochs=2, batch=20, seed=3)
    again = trainer(accumulate=2)
    again.resume(tmp_path / "one")
    assert again.fit(given, epochs=2, batch=20, seed=3) == rest
    assert again.counts == whole.counts
    assert all(np.array_equal(again.arrays[name], array) for name, array in whole.arrays.items())


def test_another_library_reads_it(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    found = trainer()
    found.step(data(20))
    found.save(tmp_path / "one")
    tensors = safetensors.load_file(tmp_path / "one")
    assert tensors.keys() == found.state().keys()
    assert all(np.array_equal(tensors[name], array) for name, array in found.state().items())


def test_what_stood_there_stays_until_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one"
    write_checkpoint(path, {"a": np.arange(3)}, {})

    def broken(*given: object, **more: object) -> list[bytes]:
        return [b"half", 3]  # type: ignore[list-item]

    monkeypatch.setattr("graft.training.checkpoints.safetensors", broken)
    with pytest.raises(TypeError):
        write_checkpoint(path, {"a": np.zeros(3)}, {})
    np.testing.assert_array_equal(read_checkpoint(path)[0]["a"], np.arange(3))
    assert [one.name for one in tmp_path.iterdir()] == ["one"]


def test_a_checkpoint_of_another_model_is_named(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22]> other (float[n,4] x) => (float[n,3] y) <float[4,3] w = {
        1,2,3,4,5,6,7,8,9,10,11,12}> { y = MatMul (x, w) }"""
    )
    Trainer(model, "cross-entropy", SGD(), threads=1).save(tmp_path / "other")
    with pytest.raises(ModelError, match="is of another model, 'other', than the one that is trained, 'net'"):
        trainer().resume(tmp_path / "other")


def test_a_checkpoint_of_another_optimiser_is_refused(tmp_path: Path) -> None:
    Trainer(network(), "cross-entropy", SGD(), threads=1).save(tmp_path / "one")
    with pytest.raises(ModelError, match="the state is of another model or optimiser: b1_mean, b1_square, b1_velocity"):
        Trainer(network(), "cross-entropy", Adam(), threads=1).resume(tmp_path / "one")


def test_an_array_may_have_any_name(tmp_path: Path) -> None:
    """Those of a layer that is called `pad`, too."""
    arrays = {"a": np.ones(3, np.uint8), "pad.weight": np.arange(3), "pad.3": np.ones(2, np.float32)}
    write_checkpoint(tmp_path / "one", arrays, {"model": "x"})
    found, _ = read_checkpoint(tmp_path / "one")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("kept", [0, 5, 40, -1])
def test_a_damaged_checkpoint_is_an_error(tmp_path: Path, kept: int) -> None:
    write_checkpoint(tmp_path / "one", {"a": np.arange(300)}, {"model": "x"})
    (tmp_path / "one").write_bytes((tmp_path / "one").read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"is no checkpoint, or damaged|is damaged: tensor 'a' is not what"):
        read_checkpoint(tmp_path / "one")


def test_a_checkpoint_with_a_changed_bit_is_an_error(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "one", {"a": np.arange(300)}, {"model": "x"})
    data = bytearray((tmp_path / "one").read_bytes())
    data[-5] ^= 1
    (tmp_path / "one").write_bytes(data)
    with pytest.raises(ModelError, match="is damaged: its arrays are not those that were written"):
        read_checkpoint(tmp_path / "one")


def test_a_file_of_other_tensors_is_no_checkpoint(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"a": np.zeros(3)}, tmp_path / "one")
    with pytest.raises(ModelError, match="is no checkpoint of a training"):
        read_checkpoint(tmp_path / "one")
