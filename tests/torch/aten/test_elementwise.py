"""Rows of elementwise operators against eager PyTorch, at the values where implementations differ."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.torch.whole import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
EDGES = torch.tensor([0.0, -0.0, 1e-9, -1e-4, 0.5, -0.5, 1.5, 2.5, -2.5, 7.0, math.inf, -math.inf, math.nan])
DIVISORS = torch.tensor([3.0, -3.0, 1e-3, 2.0, 0.5, -0.5, 1.0, 2.5, 1.5, -7.0, 2.0, 3.0, 1.0])
INTEGERS = torch.tensor([-7, -3, 0, 1, 5, 8])
FAR_INTEGERS = torch.tensor([2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63])


@pytest.mark.parametrize(
    "name", ["log1p", "expm1", "log2", "log10", "exp2", "trunc", "round", "rsqrt", "sign", "isinf"]
)
def test_functions_that_onnx_lacks_or_defines_otherwise(name):
    check(getattr(torch, name), EDGES)
    check(getattr(torch, name), EDGES.double())


def test_logarithms_of_powers_are_exact_and_small_arguments_lose_nothing():
    check(torch.log2, 2.0 ** torch.arange(-20, 20), tolerance=0)
    check(lambda x: torch.log1p(x) / x, 10.0 ** -torch.arange(1.0, 12))


@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_quotients_round_as_in_python(mode):
    check(lambda x, y: torch.div(x, y, rounding_mode=mode), EDGES, DIVISORS)
    if mode is not None:
        check(lambda x: torch.div(x, 3, rounding_mode=mode), INTEGERS)
        check(lambda x: torch.div(x, -3, rounding_mode=mode), INTEGERS)


@pytest.mark.parametrize("by", [3, 7, -2, -1])
def test_the_quotients_and_limits_of_the_largest_integers_are_exact(by):
    check(lambda x: (x // by, x % by, torch.nn.functional.threshold(x, by, 5)), FAR_INTEGERS)


def test_the_largest_floats_have_logarithms_and_half_powers():
    x = torch.tensor([3e38, 1e37, 0.0, -0.0, math.inf, -math.inf])
    check(lambda x: (torch.log1p(x), x**0.5, x**-0.5), x)


def test_products_that_dynamo_fuses_are_compiled():
    found = torch.compile(
        lambda x, y, by: x.clone().addcmul_(y, y, value=by), backend="graft",
        options={"backends": ["llvm"], "strict": True},
    )  # fmt: skip
    x, y = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(found(x, y, 0.3), torch.addcmul(x, y, y, value=0.3))


def test_products_with_complex_numbers_are_refused_by_their_type():
    with pytest.raises(Exception, match="stays in PyTorch: elements of complex64 are not computed with"):
        check(lambda x: x * 2, torch.ones(2, dtype=torch.complex64))


def test_remainders_have_the_sign_of_the_divisor_and_fmod_that_of_the_dividend():
    check(torch.remainder, EDGES, DIVISORS)
    check(torch.fmod, EDGES, DIVISORS)
    check(lambda x: (torch.remainder(x, -3), torch.fmod(x, -3)), INTEGERS)


def test_types_are_promoted_as_in_pytorch():
    i, f, d = INTEGERS, torch.randn(6), torch.randn(6).double()
    check(lambda i, f, d: (i + f, f * d, i / 2, i > f, i + 1.5, i == 5, i & 3, i > 1), i, f, d)
    check(lambda i: (i.to(torch.uint8) - 1, i.to(torch.bool) | True, ~i.bool(), ~i), INTEGERS.abs())
    check(lambda f, s: f * s, f, torch.tensor(2.0, dtype=torch.float64))


def test_extremes_treat_nan_as_pytorch_does():
    other = EDGES.flip(0)
    check(lambda x, y: (torch.maximum(x, y), torch.fmax(x, y), torch.fmin(x, y), x.clamp(-1, 2)), EDGES, other)


def test_activations():
    f = torch.nn.functional
    x = torch.linspace(-6, 6, 25)
    for function in (f.gelu, f.silu, f.hardswish, f.hardsigmoid, f.softplus, f.elu, f.leaky_relu, f.mish, f.relu6):
        check(function, x)
    check(lambda x: f.gelu(x, approximate="tanh"), x)


def test_numbers_of_activations_and_norms_are_as_exact_as_their_tensors():
    f = torch.nn.functional
    x = torch.linspace(-3, 3, 16, dtype=torch.float64).reshape(4, 4)
    check(lambda x: (f.leaky_relu(x, 0.01), f.elu(x, 0.3), torch.addmm(x, x, x, alpha=0.1)), x, tolerance=1e-13)
    check(lambda x: f.batch_norm(x, x[0] * 0, x[0] * 0, eps=1e-3), x, tolerance=1e-13)


def test_angles_and_signs_of_zeros_infinities_and_nan():
    values = torch.tensor([0.0, -0.0, 1.5, -2.0, 3e38, -1e-38, float("inf"), -float("inf"), float("nan")])
    y, x = torch.meshgrid(values, values, indexing="ij")
    check(torch.atan2, y.contiguous(), x.contiguous())
    check(torch.hypot, y.contiguous(), x.contiguous(), tolerance=1e-6)
    check(lambda x: (torch.signbit(x[:-1]), torch.angle(x), torch.copysign(x.abs(), x[0])), values)


@pytest.mark.parametrize("decimals", [3, 0, -2])
def test_decimals(decimals):
    check(lambda x: torch.round(x, decimals=decimals), 100 * torch.randn(50))


def test_casts_to_small_integers_and_distances():
    check(lambda x: (x.to(torch.int8), x.to(torch.uint8), x.to(torch.int16)), 100 * torch.randn(20))
    check(lambda x: torch.nn.functional.selu(x), torch.randn(20))
    check(lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1.0)), torch.randn(2, 5, 3), torch.randn(2, 4, 3))


def test_random_slopes_are_the_middle_one_in_evaluation():
    run = torch.compile(torch.nn.functional.rrelu, backend="graft", options={"backends": ["llvm"], "strict": True})
    one, other = (torch.linspace(-2, 2, 9).requires_grad_() for _ in range(2))
    found, expected = run(one), torch.nn.functional.rrelu(other)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(one.grad, other.grad)
