"""DFT and STFT of lengths that are known when they run: what NumPy computes, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.errors import GraftError
from graft.partition.plan import Plan

RANDOM = np.random.default_rng(0)
LENGTHS = [1, 2, 3, 4, 5, 8, 12, 16, 30, 61, 64, 67, 128, 134, 243, 1000, 1031]
"""Powers of every radix, and primes beyond the largest of them."""


def compiled(text: str, backends: list[str] | None = None) -> graft.Program:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}')
    return graft.compile(model, backends)


def transform(attributes: str = "", kind: str = "float", parts: int = 2) -> graft.Program:
    """The transform of an axis of any length between two others, given the number of points."""
    return compiled(
        f"g ({kind}[a, n, b, {parts}] x, int64 points) => ({kind}[a, m, b, q] y) <int64 axis = {{1}}>"
        f" {{ y = DFT {attributes} (x, points, axis) }}"
    )


def parts_of(spectrum: np.ndarray) -> np.ndarray:
    return np.stack([spectrum.real, spectrum.imag], -1)


def drawn(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Complex numbers in two parts, and as numbers."""
    signal = RANDOM.standard_normal((2, length, 3, 2)).astype(np.float32)
    return signal, signal[..., 0] + 1j * signal[..., 1]


def test_a_transform_of_an_open_length_runs_without_python() -> None:
    program = compiled("g (float[a, n, 1] x) => (float[a, m, q] y) { y = DFT <onesided = 1> (x) }")
    assert [one.backend for one in Plan.of(program).placements] == ["irregular"]
    assert program.outputs[0].shape == ("a", "(n // 2) + 1", 2)


def test_transforms_there_and_back_are_those_of_numpy_for_every_kind_of_length() -> None:
    there, back = transform(), transform("<inverse = 1>")
    half, whole = transform("<onesided = 1>", parts=1), transform("<onesided = 1, inverse = 1>")
    for length in LENGTHS:
        signal, numbers = drawn(length)
        points = np.int64(length)
        for result, expected in (
            (there(signal, points), parts_of(np.fft.fft(numbers, axis=1))),
            (back(signal, points), parts_of(np.fft.ifft(numbers, axis=1))),
            (half(signal[..., :1], points), parts_of(np.fft.rfft(numbers.real, axis=1))),
            (whole(signal, points), np.fft.irfft(numbers, length, axis=1)[..., None]),
        ):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("points", [1, 6, 9, 14])
def test_a_signal_is_cut_or_filled_with_zeros_to_the_points_that_are_asked_for(points: int) -> None:
    signal, numbers = drawn(9)
    expected = parts_of(np.fft.fft(numbers, points, axis=1))
    np.testing.assert_allclose(transform()(signal, np.int64(points)), expected, rtol=1e-5, atol=1e-5)


def test_a_half_spectrum_alone_is_that_of_an_even_number_of_points() -> None:
    program = compiled("g (float[a, n, 2] x) => (float[a, m, q] y) { y = DFT <onesided = 1, inverse = 1> (x) }")
    signal, numbers = drawn(7)
    expected = np.fft.irfft(numbers[..., 0], axis=1)[..., None]
    np.testing.assert_allclose(program(signal[:, :, 0]), expected, rtol=1e-5, atol=1e-6)
    assert program.outputs[0].shape == ("a", "(2 * n) - 2", 1)


def test_a_transform_of_float64_is_right_to_its_last_digits() -> None:
    signal = RANDOM.standard_normal((1, 1031, 1, 2))
    expected = parts_of(np.fft.fft(signal[..., 0] + 1j * signal[..., 1], axis=1))
    result = transform(kind="double")(signal, np.int64(1031))
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def test_a_transform_of_no_batch_is_empty() -> None:
    assert transform()(np.zeros((0, 5, 3, 2), np.float32), np.int64(5)).shape == (0, 5, 3, 2)


def test_frames_of_a_window_of_any_length_are_those_of_numpy() -> None:
    program = compiled(
        "g (float[b, n] x, float[l] window, int64 step) => (float[b, f, k, 2] y) { y = STFT (x, step, window) }",
        ["irregular"],
    )
    signal, window = RANDOM.standard_normal((2, 300)).astype(np.float32), np.hanning(37).astype(np.float32)
    frames = np.stack([signal[:, at : at + 37] * window for at in range(0, 300 - 36, 11)], 1)
    expected = parts_of(np.fft.rfft(frames))
    np.testing.assert_allclose(program(signal, window, np.int64(11)), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(GraftError, match="axis 0 of 'window' is 37 and axis 1 of 'x' is 30; the first must be at most"):
        program(signal[:, :30], window, np.int64(11))


def test_a_transform_without_points_is_refused() -> None:
    with pytest.raises(GraftError, match="node 'y': a transform has no points"):
        transform()(np.zeros((1, 5, 1, 2), np.float32), np.int64(0))
