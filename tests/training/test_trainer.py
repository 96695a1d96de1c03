"""The trainer: a step is one program, BatchNormalization learns, and a training goes on to the bit."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graft
from graft.errors import ArgumentError, ModelError, RecipeError
from graft.training import SGD, Adam, Trainer

TEXT = """<ir_version: 10, opset_import: ["" : 22]> net (float[n,4] x) => (float[n,3] y) {
    h = Gemm (x, w1, b1) k = BatchNormalization <momentum = 0.8> (h, scale, shift, mean, variance) r = Relu (k)
    y = Gemm (r, w2) }"""
SHAPES = {"w1": (4, 8), "b1": (8,), "scale": (8,), "shift": (8,), "mean": (8,), "variance": (8,), "w2": (8, 3)}


def network() -> onnx.ModelProto:
    model, rng = onnx.parser.parse_model(TEXT), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        array = np.ones(shape) if name in ("scale", "variance") else rng.normal(0, 0.5, shape)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def data(count: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 4)).astype(np.float32)
    return {"x": x, "target": np.argmax(x[:, :3], axis=1)}


def trainer(**more: object) -> Trainer:
    return Trainer(network(), "cross-entropy", Adam(0.02), backends=["llvm", "reference"], threads=1, **more)  # type: ignore[arg-type]


def test_it_learns_and_the_model_has_what_it_learnt() -> None:
    found, given = trainer(), data()
    assert found.weights == ("w1", "b1", "scale", "shift", "w2")
    losses = found.fit(given, epochs=40, batch=20)
    assert losses[-1] < 0.3 * losses[0]
    y = graft.compile(found.model, threads=1, cache=False)(given["x"])
    assert np.mean(np.argmax(y, axis=1) == given["target"]) > 0.9


def test_statistics_of_the_batch_join_those_of_the_model() -> None:
    found, given = trainer(), data(20)
    before = {name: array.copy() for name, array in found.arrays.items()}
    found.step(given)
    h = given["x"] @ before["w1"] + before["b1"]
    np.testing.assert_allclose(found.arrays["mean"], 0.8 * before["mean"] + 0.2 * h.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.arrays["variance"], 0.8 * before["variance"] + 0.2 * h.var(0), rtol=1e-4)


def test_only_the_weights_that_are_named_are_trained() -> None:
    found = trainer(wrt=["w2"])
    before = found.arrays["w2"].copy()
    found.step(data(20))
    assert not np.array_equal(found.arrays["w2"], before)
    assert set(found.arrays) == {"w2", "w2_mean", "w2_square", "mean", "variance"}


def test_a_training_goes_on_to_the_bit() -> None:
    whole, given = trainer(), data()
    whole.fit(given, epochs=1, batch=20, seed=3)
    state = whole.state()
    rest = whole.fit(given, epochs=2, batch=20, seed=4)
    again = trainer()
    again.restore(state)
    assert again.fit(given, epochs=2, batch=20, seed=4) == rest
    assert all(np.array_equal(again.arrays[name], array) for name, array in whole.arrays.items())


def test_a_schedule_gives_the_rate_and_a_callback_ends() -> None:
    found, rates = trainer(), []
    losses = found.fit(
        data(), epochs=9, batch=30, schedule=lambda step: rates.append(step) or 0.0, each=lambda epoch, loss: epoch == 1
    )  # fmt: skip
    assert rates == [0, 1, 2, 3]
    assert len(losses) == 2
    np.testing.assert_array_equal(found.arrays["w1"], numpy_helper.to_array(network().graph.initializer[0]))


@pytest.mark.parametrize(
    ("wrt", "message"),
    [(["x"], "'x' is no weight of the model, so it cannot be trained"), (["w3"], "'w3' is no weight of the model")],
)
def test_what_is_no_weight_cannot_be_trained(wrt: list[str], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        trainer(wrt=wrt)


def test_a_trainer_whose_weights_are_all_frozen_is_refused() -> None:
    with pytest.raises(ModelError, match=r"^there is nothing to train: all 5 weights are frozen$"):
        trainer(frozen=["*"])


def test_a_state_of_another_model_is_refused() -> None:
    state = Trainer(network(), "cross-entropy", SGD(), threads=1).state()
    with pytest.raises(ModelError, match="the state is of another model or optimiser: b1_mean, b1_square, b1_velocity"):
        trainer().restore(state)


def test_batches_that_data_do_not_make_are_refused() -> None:
    with pytest.raises(RecipeError, match="the data are empty; give at least one batch of 61 rows of the model's"):
        trainer().fit(data(), batch=61)


def test_data_come_piece_by_piece_too() -> None:
    # In front of a normalisation the gradient of a bias is what rounding leaves, which Adam makes steps of.
    whole, pieces = trainer(frozen=["b1"]), trainer(frozen=["b1"])
    order = np.random.default_rng((0, 0)).permutation(60)
    losses = whole.fit(data(), batch=20)
    drawn = {name: array[order] for name, array in data().items()}
    cut = [{name: array[start : start + 20] for name, array in drawn.items()} for start in (0, 20, 40)]
    assert pieces.fit(cut, batch=20) == pytest.approx(losses, rel=1e-3)
    assert pieces.evaluate(iter(cut), batch=20) == pytest.approx(whole.evaluate(data(), batch=20), rel=1e-3)


def test_held_out_data_end_a_training_that_gets_no_better() -> None:
    found, given = trainer(), data()
    held_out = {"x": given["x"], "target": (given["target"] + 1) % 3}  # which the training makes worse
    losses = found.fit(given, epochs=50, batch=20, validation=held_out, patience=3)
    assert len(losses) == losses.index(min(losses)) + 4 < 50
    assert found.evaluate(held_out, batch=20) == pytest.approx(0 + min(losses), abs=0.5 * (max(losses) - min(losses)))
    assert found.counts.epochs == losses.index(min(losses)) + 1


def test_the_loss_of_held_out_data_is_that_of_the_model() -> None:
    found, given = trainer(), data()
    found.fit(given, epochs=1, batch=20)
    y = np.asarray(graft.compile(found.model, threads=1, cache=False)(given["x"]), np.float64)
    likelihood = y - np.log(np.exp(y).sum(1, keepdims=True))
    wanted = -np.mean(likelihood[np.arange(60), given["target"]])
    assert found.evaluate(given, batch=30) == pytest.approx(wanted, rel=1e-5)


def test_a_bar_shows_how_far_an_epoch_is(capsys: pytest.CaptureFixture[str]) -> None:
    trainer().fit(data(), batch=30, progress=True)
    shown = capsys.readouterr().err
    assert "epoch 1/1 [############            ] 1/2 loss" in shown
    assert shown.endswith("/s\n")


def test_steps_write_into_two_sets_of_arrays_in_turns() -> None:
    found, given, places = trainer(), data(20), []
    for _ in range(5):
        found.step(given)
        places.append(found.arrays["w1"].__array_interface__["data"][0])
    assert places[1::2] == [places[1]] * 2
    assert places[2::2] == [places[2]] * 2
    assert places[1] != places[2]


def test_patience_without_held_out_data_is_an_error() -> None:
    with pytest.raises(ModelError, match="patience needs the losses of held-out data; give validation, too"):
        trainer().fit(data(), patience=2)


def test_a_loss_that_no_weight_changes_is_refused() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22]> g (float[4] x) => (float loss) <float[2] w = {1, 2}> {
            [i] i = Cast <to = 7> (w) f = Cast <to = 1> (i) s = ReduceSum <keepdims = 0> (f)
            y = Mul (s, x) loss = ReduceSum <keepdims = 0> (y) }"""
    )
    with pytest.raises(ModelError) as caught:
        Trainer(model, "loss")
    assert caught.value.message == (
        "there is nothing to train: all gradients are zero; zero for 'w': no gradient comes through Cast (node 'i')"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Trainer(network(), optimizer="adam"), "an optimiser, as graft.training.SGD(0.01) is one, or None"),  # type: ignore[arg-type]
        (lambda: trainer(clip_norm=0), "give a number above 0, or None"),
        (lambda: trainer().step(None), "Trainer.step: feeds is None; give a mapping of names to arrays"),  # type: ignore[arg-type]
        (
            lambda: trainer().step(data(), learning_rate="fast"),  # type: ignore[arg-type]
            "learning_rate is str 'fast'; give a number of at least",
        ),
        (lambda: trainer().fit(data(), batch=0), "Trainer.fit: batch is int 0; give a whole number of at least 1"),
    ],
)
def test_arguments_of_no_use_are_named(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        wrong()


def test_an_unknown_loss_is_refused_with_the_names_of_all() -> None:
    expected = (
        "the loss 'cross_entropy' is neither a value of the model nor one of cross-entropy, nll, mse, mae, huber, bce; "
        "did you mean 'cross-entropy'?"
    )
    with pytest.raises(ModelError) as caught:
        Trainer(network(), "cross_entropy", SGD())
    assert caught.value.message == expected
