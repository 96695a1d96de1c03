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
