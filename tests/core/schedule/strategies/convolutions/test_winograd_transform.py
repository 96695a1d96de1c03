import math

import numpy as np
import pytest

from graft.core.schedule.strategies.convolutions.winograd_transform import Transform


@pytest.mark.parametrize(("pieces", "stride"), [(2, 1), (4, 1), (2, 2)])
def test_the_transforms_compute_a_convolution(pieces: int, stride: int) -> None:
    transform, random = Transform(pieces, stride), np.random.default_rng(pieces)
    image, window = random.standard_normal((transform.inputs, transform.inputs)), random.standard_normal((3, 3))
    places = range(0, transform.step, stride)
    direct = [[(image[i : i + 3, j : j + 3] * window).sum() for j in places] for i in places]
    inside = transform.input_matrix() @ image @ transform.input_matrix().T
    weights = transform.weight_matrix() @ window @ transform.weight_matrix().T
    result = transform.output_matrix() @ (weights * inside) @ transform.output_matrix().T
    np.testing.assert_allclose(result, direct, atol=1e-13)


@pytest.mark.parametrize("pieces", [2, 4])
def test_transformed_weights_are_one_matrix_per_product(pieces: int) -> None:
    transform = Transform(pieces)
    weights = np.random.default_rng(0).standard_normal((5, 3, 3, 3)).astype("float32")
    packed = transform.packed_weights(weights, [0, 2, 5])
    assert packed.shape == (transform.products * 5 * 3,) and packed.dtype == np.float32
    first, second = np.split(packed.reshape(transform.products, 15), [6], axis=1)
    tiles = [first.reshape(transform.products, 3, 2), second.reshape(transform.products, 3, 3)]
    result, matrix = np.concatenate(tiles, axis=2).swapaxes(1, 2), transform.weight_matrix()
    expected = (matrix @ weights[4, 1].astype("float64") @ matrix.T).reshape(-1)
    np.testing.assert_allclose(result[:, 4, 1], expected, rtol=1e-6)


@pytest.mark.parametrize("pieces", [2, 4])
def test_the_error_of_float32_stays_within_three_times_that_of_a_direct_sum(pieces: int) -> None:
    """All products of one piece in float32, summed over channels one after another; against float64."""
    transform, random, channels = Transform(pieces), np.random.default_rng(3), 128
    single = np.float32
    images = np.maximum(random.standard_normal((channels, 64, pieces + 2, pieces + 2)), 0).astype(single)
    windows = (random.standard_normal((8, channels, 3, 3)) / math.sqrt(channels * 9 / 2)).astype(single)
    matrix, back = (m.astype(single) for m in (transform.input_matrix(), transform.output_matrix()))
    inside = (matrix @ images @ matrix.T).reshape(channels, 64, -1)
    products = np.zeros((8, 64, transform.products), single)
    direct, exact = np.zeros((8, 64, pieces, pieces), single), np.zeros((8, 64, pieces, pieces))
    weights = transform.packed_weights(windows, [0, 8]).reshape(transform.products, channels, 8).swapaxes(1, 2)
    for channel in range(channels):
        products += weights[:, :, channel].T[:, None, :] * inside[channel]
        for i, j in np.ndindex(3, 3):
            term = images[channel, :, i : i + pieces, j : j + pieces]
            direct += windows[:, channel, i, j, None, None, None] * term
            exact += windows[:, channel, i, j, None, None, None].astype(float) * term
    result = back @ products.reshape(8, 64, pieces + 2, pieces + 2) @ back.T
    assert np.abs(result - exact).max() <= 3 * np.abs(direct - exact).max()
