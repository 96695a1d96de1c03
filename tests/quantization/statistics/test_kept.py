"""Kept statistics: a calibration that was broken off goes on to the same bits; no damaged file, no other data."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graft.errors import RecipeError
from graft.quantization import quantize
from graft.quantization.gptq import Gram
from graft.quantization.statistics import kept as module
from graft.quantization.statistics.histogram import Histogram
from tests.quantization.networks import convolutions, images

RECIPE = {"base": "int4-weights", "activations": {"type": "int8"}, "smooth": 0.5}
X = images(12)
PARTS = [X[row : row + 2] for row in range(0, 12, 2)]


def bytes_of(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def wanted() -> bytes:
    return bytes_of(quantize(convolutions(), RECIPE, PARTS, threads=1))


@pytest.fixture
def seen(monkeypatch) -> list[int]:
    """Batches that histograms took in, by rows."""
    rows: list[int] = []
    add = Histogram.add

    def counting(self, array):
        rows.append(len(array))
        return add(self, array)

    monkeypatch.setattr(Histogram, "add", counting)
    return rows


@pytest.mark.parametrize("batches", range(1, 6))
def test_it_goes_on_where_data_failed_to_the_same_bits(tmp_path, wanted, batches, seen):
    def failing():
        yield from PARTS[:batches]
        raise Stopped

    for _ in range(3):  # SmoothQuant's walk and the other one; at last nothing is new
        with pytest.raises(RecipeError, match="Stopped"):
            quantize(convolutions(), {**RECIPE, "smooth": 0.0}, failing(), threads=1, resume=tmp_path)
    once = len(seen)
    plain = bytes_of(quantize(convolutions(), {**RECIPE, "smooth": 0.0}, PARTS, threads=1))
    each = (len(seen) - once) // len(PARTS)
    assert once == each * batches
    del seen[:]
    found = quantize(convolutions(), {**RECIPE, "smooth": 0.0}, PARTS, threads=1, resume=tmp_path)
    assert bytes_of(found) == plain
    assert len(seen) == each * (len(PARTS) - batches)


def test_what_is_known_is_not_gathered_again_and_factors_move_by_it(tmp_path, wanted, seen):
    assert bytes_of(quantize(convolutions(), RECIPE, PARTS, threads=1, resume=tmp_path)) == wanted
    assert len(list(tmp_path.iterdir())) == 2
    del seen[:]
    assert bytes_of(quantize(convolutions(), RECIPE, PARTS, threads=1, resume=tmp_path)) == wanted
    assert not seen


def test_a_batch_that_is_half_gathered_is_not_kept(tmp_path, wanted, monkeypatch):
    add, count = Gram.add, [0]

    def failing(self, array):
        count[0] += 1
        if count[0] == 6:
            raise Stopped
        return add(self, array)

    monkeypatch.setattr(module, "SECONDS", -1.0)
    monkeypatch.setattr(module, "SHARE", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr(Gram, "add", failing)
        with pytest.raises(Stopped):
            quantize(convolutions(), RECIPE, PARTS, threads=1, resume=tmp_path)
    assert bytes_of(quantize(convolutions(), RECIPE, PARTS, threads=1, resume=tmp_path)) == wanted


@pytest.mark.parametrize("place", [0, 40, 0.3, 0.5, 0.9, -40, -1, "short", "empty"])
def test_a_damaged_file_counts_as_none(tmp_path, wanted, place, seen):
    quantize(convolutions(), RECIPE, PARTS, threads=1, resume=tmp_path)
    for file in tmp_path.iterdir():
        content = bytearray(file.read_bytes())
        if isinstance(place, str):
            content = content[: len(content) // 2 if place == "short" else 0]
        else:
            content[int(place * len(content)) if isinstance(place, float) else place] ^= 1
        file.write_bytes(content)
    del seen[:]
    assert bytes_of(quantize(convolutions(), RECIPE, PARTS, threads=1, resume=tmp_path)) == wanted
    assert seen


def test_other_data_are_refused_by_the_batch_where_they_differ(tmp_path):
    quantize(convolutions(), RECIPE, PARTS, threads=1, resume=tmp_path)
    with pytest.raises(RecipeError, match=r"were gathered from other data: batch 3 is another; give the same data, or"):
        quantize(convolutions(), RECIPE, [*PARTS[:2], *PARTS[3:]], threads=1, resume=tmp_path)
    with pytest.raises(RecipeError, match="there are 4 batches, and it is of 6"):
        quantize(convolutions(), RECIPE, PARTS[:4], threads=1, resume=tmp_path)


def test_another_model_recipe_or_first_batch_has_a_file_of_its_own(tmp_path):
    recipe = {"base": "int8"}
    for count, (seed, other, parts) in enumerate(
        [(0, recipe, PARTS), (1, recipe, PARTS), (0, {"base": "int4-weights"}, PARTS), (0, recipe, PARTS[1:])], 1
    ):
        quantize(convolutions(seed), other, parts, threads=1, resume=tmp_path)
        assert len(list(tmp_path.iterdir())) == count
