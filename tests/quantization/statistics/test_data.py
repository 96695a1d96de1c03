"""Data: cut into batches as the model takes them, from arrays, files, folders and iterators."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from graft.errors import RecipeError
from graft.quantization.statistics.data import ROWS, Batches, preprocessed
from tests.quantization.networks import model

FIXED = graft.load(model("g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }"))
OPEN = graft.load(model("g (float[n,3] x) => (float[n,3] y) { y = Relu (x) }"))
IDS = graft.load(model("g (int64[2] x) => (int64[2] y) { y = Abs (x) }"))
TWO = graft.load(model("g (float[2,3] x, float[2,1] z) => (float[2,3] y) { y = Add (x, z) }"))
X = np.arange(18, dtype=np.float64).reshape(6, 3)


def rows(batches) -> list[list[list[float]]]:
    return [batch.feeds["x"].tolist() for batch in batches]


def test_arrays_are_cut_into_whole_batches_of_the_models_type():
    found = list(Batches({"x": X, "labels": np.arange(6)}, FIXED))
    assert rows(found) == [X[:2].tolist(), X[2:4].tolist(), X[4:].tolist()]
    assert [batch.labels.tolist() for batch in found] == [[0, 1], [2, 3], [4, 5]]
    assert found[0].feeds["x"].dtype == np.float32


def test_an_open_batch_gets_a_number_of_rows_at_a_time():
    many = np.zeros((2 * ROWS + 1, 3))
    assert [len(batch.feeds["x"]) for batch in Batches(many, OPEN)] == [ROWS, ROWS, 1]


def test_inputs_of_different_rows_make_as_many_batches():
    other = graft.load(model("g (float[2,3] x, float[1,1] z, float[n,1] w) => (float[n,3] y) { s = Add (x, z) "
                             "y = Add (s, w) }"))  # fmt: skip
    found = list(Batches({"x": X, "z": np.arange(3)[:, None], "w": np.arange(12)[:, None]}, other))
    assert [batch.feeds["z"].tolist() for batch in found] == [[[0]], [[1]], [[2]]]
    assert [batch.feeds["w"].ravel().tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_an_epoch_draws_rows_with_their_labels_and_may_leave_out_what_is_no_whole_batch():
    drawn = Batches({"x": X, "labels": np.arange(6)}, OPEN, 4, whole=True)
    (one,) = drawn.epoch(np.random.default_rng(0))
    order = np.random.default_rng(0).permutation(6)[:4]
    assert (one.labels.tolist(), one.feeds["x"].tolist(), drawn.total) == (order.tolist(), X[order].tolist(), 1)
    assert rows(Batches(X[:5], FIXED, whole=True)) == [X[:2].tolist(), X[2:4].tolist()]
    with pytest.raises(RecipeError, match="the model takes 2 rows of 'x' at a time, not 4; ask for batches of 2"):
        list(Batches(X, FIXED, 4))


@pytest.mark.parametrize(
    "given",
    [
        [X[:2], X[2:4]],
        [{"x": X[:2]}, {"x": X[2:4], "other": 1}],
        [(X[:2], [1, 2]), (X[2:4], [3, 4])],
        {"x": X[:4]},
        X[:4],
    ],
    ids=["arrays", "mappings", "pairs", "stacked", "array"],
)
def test_batches_come_in_many_forms(given):
    assert rows(Batches(given, FIXED)) == [X[:2].tolist(), X[2:4].tolist()]


def test_files_of_a_folder_are_read_in_order_each_time(tmp_path):
    np.savez(tmp_path / "b.npz", x=X[2:4])
    np.savez(tmp_path / "a.npz", x=X[:2], labels=[1, 2])
    found = Batches(tmp_path, FIXED)
    for _ in range(2):
        assert rows(found) == [X[:2].tolist(), X[2:4].tolist()]
    assert rows(Batches(str(tmp_path / "b.npz"), FIXED)) == [X[2:4].tolist()]


def test_an_iterator_is_read_once_and_never_held():
    alive = []

    def source():
        for number in range(3):
            alive.append(number)
            yield X[:2]

    found = Batches(source(), FIXED)
    for seen, _ in enumerate(found, 1):
        assert len(alive) == seen
    with pytest.raises(RecipeError, match="an iterator that has ended"):
        next(iter(found))


@pytest.mark.parametrize(
    ("given", "which", "message"),
    [
        ({"x": X[:3]}, FIXED, "the data have 3 rows of 'x', 2 at a time; give whole batches, as many of each input"),
        ({"z": X}, FIXED, "the data have no array 'x'; the model's inputs are x"),
        (X[:, :2], FIXED, "array 'x' of the data has shape [6, 2], but the model takes [2,3]; stack rows along the "
         "first axis"),
        ([X[:2]], TWO, "a batch is ndarray; the model has several inputs: give a mapping of x, z"),
        ({"x": X, "z": X[:4, :1]}, TWO, "the data have 6 rows of 'x', 2 at a time, 4 rows of 'z', 2 at a time; give "
         "whole batches, as many of each input"),
        ({"x": X, "labels": [1]}, FIXED, "there are 1 labels for 6 rows of data; give one label for each row"),
        ([], FIXED, "the data are empty; give at least one batch of the model's inputs"),
        (iter(()), FIXED, "the data are an iterator without, or with no more, batches; give a list or a path"),
        (3, FIXED, "data are int; give arrays by input name, a path, or an iterable of batches"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused(given, which, message):
    with pytest.raises(RecipeError) as caught:
        list(Batches(given, which))
    assert str(caught.value) == message


@pytest.mark.parametrize(("given", "kind", "shown"), [
    (np.array([1e300, 0]), "float", "1e+300"), (np.array([70000, 1]), "float16", "70000"),
    (np.array([1, 2 + 1j]), "float", "(2+1j)"), (np.array([1.0, 2.5]), "int64", "2.5"),
    (np.array([0.0, np.nan]), "int64", "nan"), (np.array([-1, 3]), "uint8", "-1"), (np.array([0, 2]), "bool", "2"),
])  # fmt: skip
def test_numbers_that_an_input_has_not_are_refused(given, kind, shown):
    one = graft.load(model(f"g ({kind}[2] x) => ({kind}[2] y) {{ y = Identity (x) }}"))
    with pytest.raises(RecipeError) as caught:
        list(Batches({"x": given}, one))
    dtype = "float32" if kind == "float" else kind
    assert str(caught.value) == (
        f"array 'x' of the data holds {shown}, which {dtype} has not; give numbers that it has"
    )


def test_numbers_of_other_types_are_rounded_to_the_inputs():
    (batch,) = Batches({"x": np.array([[1, np.inf, np.nan], [2**24 + 1, 0.1, 1e-300]])}, FIXED)
    np.testing.assert_array_equal(batch.feeds["x"], np.float32([[1, np.inf, np.nan], [2**24, 0.1, 0]]))
    (ids,) = Batches({"x": np.array([3.0, 5.0])}, IDS)
    assert ids.feeds["x"].tolist() == [3, 5]


def test_files_that_are_none_are_named(tmp_path):
    with pytest.raises(RecipeError, match=r"has no .npz file; write one for each batch"):
        list(Batches(tmp_path, FIXED))
    (tmp_path / "bad.npz").write_bytes(b"no")
    with pytest.raises(RecipeError, match=r"bad.npz' is not an .npz file"):
        list(Batches(tmp_path, FIXED))
    with (tmp_path / "bad.npz").open("wb") as file:
        np.save(file, np.zeros((2, 3)))
    with pytest.raises(RecipeError, match=r"bad.npz' is not an .npz file: it is an .npy file, of one array"):
        list(Batches(tmp_path, FIXED))


def test_pieces_pass_through_the_users_function_each_time(tmp_path):
    found = Batches(preprocessed([1.0, 2.0], lambda number: np.full((2, 3), number)), FIXED)
    for _ in range(2):
        assert rows(found) == [np.full((2, 3), number).tolist() for number in (1.0, 2.0)]
    once = Batches(preprocessed(iter([1.0]), lambda number: np.full((2, 3), number)), FIXED)
    assert rows(once) == [np.ones((2, 3)).tolist()]
    with pytest.raises(RecipeError, match="an iterator that has ended"):
        next(iter(once))
    np.savez(tmp_path / "b.npz", picture=X[:2])
    (tmp_path / "a.txt").write_text("1 2 3 4 5 6")
    (tmp_path / ".hidden").write_text("no")

    def read(piece):
        return np.loadtxt(piece).reshape(2, 3) if hasattr(piece, "suffix") else piece["picture"]

    assert rows(Batches(preprocessed(tmp_path, read), FIXED)) == [[[1, 2, 3], [4, 5, 6]], X[:2].tolist()]
    with pytest.raises(RecipeError, match=r"the data cannot be read \(KeyError: 'other'\)"):
        list(Batches(preprocessed([{}], lambda piece: piece["other"]), FIXED))


def test_how_many_batches_there_are_is_known_of_arrays_and_of_a_file(tmp_path):
    np.savez(tmp_path / "a.npz", x=X)
    assert Batches(tmp_path / "a.npz", FIXED).total == Batches(X, FIXED).total == 3
    assert Batches(iter([X]), FIXED).total is Batches(tmp_path, FIXED).total is None
