"""Rows of products, convolutions and pools, with their gradients, against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.core.importer.load import load  # noqa: E402
from graft.core.passes.normalize import normalize  # noqa: E402
from graft.partition.plan import Plan  # noqa: E402
from graft.torch import export  # noqa: E402
from graft.torch.aten import products  # noqa: E402
from graft.torch.options import Options  # noqa: E402
from tests.torch.whole import check, compiled  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
f = torch.nn.functional


def gradients(function):
    """The gradients of a function's result, weighted by a fixed tensor, with respect to all inputs."""

    def row(*inputs):
        result = function(*inputs)
        weights = torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape).cos()
        return torch.autograd.grad(result, inputs, weights)

    return row


def leaves(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def test_products_of_matrices():
    x, y, bias = (one.detach() for one in leaves((3, 4), (4, 5), (5,)))
    check(
        lambda x, y, bias: (x @ y, torch.addmm(bias, x, y, beta=0.5, alpha=2), x @ y[:, 0], f.linear(x, y.t())),
        x,
        y,
        bias,
    )
    check(lambda x: torch.baddbmm(x, x, x, beta=0), torch.randn(2, 3, 3))


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (2, 2, 2), (3, 0, 1)])
def test_convolutions_and_their_gradients(stride, padding, dilation):
    x, w, bias = leaves((2, 3, 9, 8), (4, 3, 3, 3), (4,))
    check(lambda x, w, b: f.conv2d(x, w, b, stride, padding, dilation), *(one.detach() for one in (x, w, bias)))
    check(gradients(lambda x, w, b: f.conv2d(x, w, b, stride, padding, dilation)), x, w, bias, tolerance=1e-4)


def test_gradients_of_weights_are_products_of_as_many_places_as_fit(monkeypatch):
    monkeypatch.setattr(products, "MOST_ELEMENTS", 4 * 3 * 2 * 64)
    x, w = leaves((2, 3, 8, 8), (4, 3, 3, 3))
    run = gradients(lambda x, w: f.conv2d(x, w, None, 1, 1))
    check(run, x, w, tolerance=1e-4)
    (program,) = compiled(run, x, w, options=Options(backends=["llvm"])).programs.values()
    kinds = [row.op_type for row in Plan.of(program).placements]
    assert [kinds.count(one) for one in ("MatMul", "Conv")] == [3, 1]  # of 4, 4 and 1 places; of the image


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_of_an_image_is_convolutions_that_ask_nothing_of_the_weights(stride):
    x, w = leaves((1, 3, 8, 8), (4, 3, 3, 3))
    graph = compiled(gradients(lambda x, w: f.conv2d(x, w, None, stride, 1)), x, w, options=Options(backends=["llvm"]))
    (program,) = graph.programs.values()
    operators = {row.op_type for row in Plan.of(program).placements}
    assert "Conv" in operators
    assert not operators & {"ConvTranspose", "If"}


@pytest.mark.parametrize(("groups", "stride", "padding"), [(1, 2, 1), (2, 1, 0), (4, 2, 1)])
def test_transposed_and_grouped_convolutions_and_their_gradients(groups, stride, padding):
    x, w, g, bias = leaves((2, 4, 6, 5), (4, 8 // groups, 3, 3), (8, 4 // groups, 3, 3), (8,))
    plain = lambda x, g, bias: f.conv2d(x, g, bias, stride, padding, groups=groups)  # noqa: E731
    transposed = lambda x, w, bias: f.conv_transpose2d(x, w, bias, stride, padding, stride - 1, groups)  # noqa: E731
    check(plain, *(one.detach() for one in (x, g, bias)), tolerance=1e-4)
    check(transposed, *(one.detach() for one in (x, w, bias)), tolerance=1e-4)
    check(gradients(plain), x, g, bias, tolerance=1e-4)
    check(gradients(transposed), x, w, bias, tolerance=1e-4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_layer_that_encoders_call_in_evaluation_is_taken_apart_where_it_has_no_mask(norm_first):
    activation = "gelu" if norm_first else "relu"
    module = torch.nn.TransformerEncoderLayer(8, 2, 16, activation=activation, batch_first=True, norm_first=norm_first)
    module, x = module.eval().requires_grad_(False), torch.randn(2, 3, 8)
    run = torch.compile(module, backend="graft", options={"backends": ["llvm"], "strict": True})
    torch.testing.assert_close(run(x), module(x), rtol=1e-4, atol=1e-5)
    hidden = torch.tensor([[False, False, True], [False, False, False]])
    with pytest.raises(Exception, match=r"_transformer_encoder_layer_fwd.default .* stays in PyTorch"):
        run(x, src_key_padding_mask=hidden)


def test_attention_and_its_logarithms():
    q, k, v = (one.detach() for one in leaves((1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8)))
    mask = torch.randn(1, 1, 5, 6)
    check(f.scaled_dot_product_attention, q, k, v)
    check(lambda q, k, v, m: f.scaled_dot_product_attention(q, k, v, m, scale=0.3), q, k, v, mask)
    for kind in (torch.float16, torch.bfloat16):
        half = [one.to(kind) for one in (q, k, v)]
        check(f.scaled_dot_product_attention, *half, tolerance=1e-2)
        check(lambda q, k, v, m: f.scaled_dot_product_attention(q, k, v, m), *half, mask.to(kind), tolerance=1e-2)


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("form", ["plain", "causal", "masked", "hidden"])
def test_attention_and_its_gradients_of_own_and_shared_heads(form, heads):
    q, k, v = leaves((2, 4, 5, 8), (2, heads, 6, 8), (2, heads, 6, 8))
    mask = torch.randn(1, 1, 5, 6, generator=torch.Generator().manual_seed(1))
    if form == "hidden":  # the second query sees no key
        mask[:, :, 1] = -torch.inf
    how = {"is_causal": True} if form == "causal" else {"scale": 0.3} if form == "masked" else {}

    def function(q, k, v, mask=None):
        return f.scaled_dot_product_attention(q, k, v, mask, enable_gqa=heads < 4, **how)

    if form in ("masked", "hidden"):
        check(lambda q, k, v, m: gradients(lambda *given: function(*given, m))(q, k, v), q, k, v, mask, tolerance=1e-4)
    else:
        check(gradients(function), q, k, v, tolerance=1e-4)


def test_a_constant_mask_that_leaves_each_query_a_key_costs_no_choice():
    class Causal(torch.nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.register_buffer("mask", mask)

        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask[:, :, :8, :8])

    mask, x = torch.ones(1, 1, 16, 16, dtype=torch.bool).tril(), torch.randn(2, 3, 8, 4)
    for some, choices in ((mask, 0), (mask.tril(-1), 1)):  # the first query sees no key
        model = load(export(Causal(some), (x,)))
        normalize(model)
        assert [node.op_type for node in model.graph].count("Where") == choices


def test_a_bilinear_layer_is_two_products():
    layer, x, y = torch.nn.Bilinear(4, 5, 3), torch.randn(2, 6, 4), torch.randn(2, 6, 5)
    check(lambda x, y, w, b: torch.nn.functional.bilinear(x, y, w, b), x, y, layer.weight.detach(), layer.bias.detach())
    run = torch.compile(layer, backend="graft", options={"backends": ["llvm"], "strict": True})
    found = torch.autograd.grad(run(x, y).square().sum(), [*layer.parameters()])
    expected = torch.autograd.grad(layer(x, y).square().sum(), [*layer.parameters()])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
