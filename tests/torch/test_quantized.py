"""Modules of quantised weights and QDQ, beside eager PyTorch: what they become, and what they compute."""

import onnx_ir as ir
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

import graft  # noqa: E402
from graft.torch import explain, export  # noqa: E402
from graft.torch.aten.builder import onnx_type  # noqa: E402
from graft.torch.aten.quantized import decomposed, dequantized  # noqa: E402
from graft.torch.backend import _parts  # noqa: E402
from graft.torch.quantized import name_dequantisation  # noqa: E402
from tests.torch.whole import check, graph_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
DRAWN = torch.Generator().manual_seed(3)
X = torch.randn(5, 64, generator=DRAWN)
CODES = torch.randint(-128, 128, (32, 64), generator=DRAWN, dtype=torch.int8)
FEW = torch.randint(-8, 8, (32, 64), generator=DRAWN, dtype=torch.int8)
SCALES = torch.rand(32, 1, generator=DRAWN) / 100


class Held(torch.nn.Module):
    """A module of constants that computes what a function says."""

    def __init__(self, function, *constants):
        super().__init__()
        self.function = function
        for number, one in enumerate(constants):
            self.register_buffer(f"held_{number}", one)

    def forward(self, x):
        return self.function(x, *self.buffers())


def scaled_after(x, codes, scales):
    return (torch.mm(x.view(-1, 64), codes.t().to(torch.float32)) * scales.view(-1)).view(x.shape[0], 32).relu()


def scaled_before(x, codes, scales):
    return x @ (codes.to(torch.float32) * scales).t()


def in_blocks(x, codes, scales, zeros):
    blocks = (codes.view(32, 2, 32).float() - zeros.view(32, 2, 1).float()) * scales.view(32, 2, 1)
    return x @ blocks.view(32, 64).t()


BLOCKS = (SCALES.repeat(1, 2) * torch.tensor([1.0, 2.0]), torch.full((32, 2), 3, dtype=torch.int8))


def exported(module):
    """Return the operators of a module, and the type of what is dequantised, after comparing what it computes."""
    model = export(module, (X,))
    (node,) = [one for one in model.graph if one.op_type == "DequantizeLinear"]
    source = node.inputs[0]
    while source.producer() is not None:
        source = source.producer().inputs[0]
    operators = [one.op_type for one in model.graph]
    program = graft.compile(model, ["llvm"])
    torch.testing.assert_close(torch.from_numpy(program(X.numpy())), module(X), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        explanation = explain(module, (X,), options={"backends": ["llvm"], "freeze": True, "strict": True})
    assert len(explanation.graphs) == 1
    return operators, node, source.dtype


@pytest.mark.parametrize("function", [scaled_after, scaled_before])
@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_weights_with_a_scale_for_each_column_are_dequantised_by_one_operator(function, kind):
    operators, node, found = exported(Held(function, (CODES / 8).to(kind), SCALES))
    assert not {"Cast", "Mul"} & set(operators)
    assert found == onnx_type(kind)
    assert "axis" in node.attributes


@pytest.mark.parametrize(("codes", "kind"), [(FEW, ir.DataType.INT4), (CODES, ir.DataType.INT8)])
def test_weights_with_a_scale_for_each_block_take_4_bits_where_they_fit(codes, kind):
    operators, node, found = exported(Held(in_blocks, codes, *BLOCKS))
    assert "Sub" not in operators
    assert found == kind
    assert node.attributes["block_size"].as_int() == 32


def test_8_bit_floats_have_scales_for_each_block_but_no_zero_points():
    def scaled(x, codes, scales):
        return x @ (codes.view(32, 2, 32).float() * scales.view(32, 2, 1)).view(32, 64).t()

    codes = FEW.to(torch.float8_e4m3fn)
    _, node, found = exported(Held(scaled, codes, BLOCKS[0]))
    assert (found, node.attributes["block_size"].as_int()) == (ir.DataType.FLOAT8E4M3FN, 32)
    shifted = Held(in_blocks, codes, BLOCKS[0], BLOCKS[1].to(codes.dtype))
    found = graft.compile(export(shifted, (X,)), ["llvm"])(X.numpy())
    torch.testing.assert_close(torch.from_numpy(found), shifted(X), rtol=1e-4, atol=1e-4)


def test_weights_that_no_backend_takes_leave_only_what_reads_them_to_pytorch():
    weights = torch.randn(32, 64, generator=DRAWN).to(torch.float8_e4m3fn).t()  # a view: the part would transpose it

    def function(x, weights):
        return (x @ (weights.to(torch.float32) * 0.5)).relu()

    explanation = explain(function, (X, weights), options={"backends": ["llvm", "irregular"]})
    assert [row.operator for row in explanation.rows if not row.part] == ["aten._to_copy.default"]


def test_artifacts_hold_the_narrow_weights(tmp_path):
    codes, scales = CODES.repeat(8, 8), SCALES.repeat(8, 1)
    module = Held(lambda x, c, s: torch.mm(x, c.t().float()) * s.view(-1), codes, scales)
    path = tmp_path / "narrow.graft"
    graft.compile(export(module, (torch.rand(4, 512),)), ["llvm"]).save(path)
    assert path.stat().st_size < 1.5 * codes.numel()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, c, s: torch.mm(x, c.t().float()) * s[:1],  # one scale for all
        lambda x, c, s: torch.mm(c.float(), x.t()) * s,  # the codes on the left
        lambda x, c, s: (torch.mm(x, c.t().float()) * s.view(-1).double()).float(),
        lambda x, c, s: (lambda p: p * s.view(-1) + p)(torch.mm(x, c.t().float())),  # the product is read twice
        lambda x, c, s: torch.mm(x[:32], c.t().float()).t() * x[0, :5],
        lambda x, c, s: (c.float() - c.to(torch.int32).float()) * s,  # a zero point of another type
        lambda x, c, s: (c.float() - 3) * s.view(-1)[:1],
    ],
)
def test_other_arithmetic_stays_as_it_is(function):
    graph = graph_of(function, X, CODES, SCALES)
    name_dequantisation(graph)
    assert dequantized not in [node.target for node in graph.graph.nodes]
    check(function, X, CODES, SCALES, tolerance=1e-4)


def test_views_of_extents_that_vary_are_looked_through():
    def scaled(x, y, scale):
        return (x @ y).view(1, x.shape[0], 4) * scale

    run = torch.compile(scaled, backend="graft", dynamic=True, options={"backends": ["llvm"]})
    for rows in (2, 5):
        given = torch.randn(rows, 4), torch.randn(4, 4), torch.randn(4)
        torch.testing.assert_close(run(*given), scaled(*given))


def test_dequantisation_names_numbers_and_zero_points_and_gives_what_it_gave():
    def function(x, codes, scales, zeros):
        return in_blocks(x, codes, scales, zeros) + (codes.float() * scales[:1, :1]).sum()

    arguments = (X, CODES, *BLOCKS)
    graph = graph_of(function, *arguments)
    name_dequantisation(graph)
    assert [node.target for node in graph.graph.nodes].count(dequantized) == 2
    torch.testing.assert_close(graph(*arguments), function(*arguments), rtol=0, atol=0)
    check(function, *arguments, tolerance=1e-4)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8])
def test_qdq_of_pt2e_becomes_onnx(kind):
    limits = torch.iinfo(kind)
    ends, middle = (limits.min, limits.max, kind), (limits.min + limits.max + 1) // 2
    weights = (CODES, SCALES.view(-1), torch.zeros(32, dtype=torch.int64))

    def function(x, codes, scales, zeros):
        x = decomposed.quantize_per_tensor(x, 0.03, middle, *ends)
        x = decomposed.dequantize_per_tensor(x, 0.03, middle, *ends)
        w = decomposed.dequantize_per_channel(codes, scales, zeros, 0, -128, 127, torch.int8)
        return torch.relu(x @ w.t())

    module = Held(function, *weights)
    model = export(module, (X,))
    operators = [one.op_type for one in model.graph]
    assert operators.count("QuantizeLinear") == 1
    assert operators.count("DequantizeLinear") == 2
    steps = torch.arange(-60, 60).repeat(64, 1).t()[:, :64].contiguous() * 0.03  # no ties: both round alike
    found = graft.compile(export(module, (steps,)), ["llvm"])(steps.numpy())
    torch.testing.assert_close(torch.from_numpy(found), module(steps), rtol=1e-4, atol=1e-4)


def test_limits_within_a_type_are_kept():
    def function(x):
        x = decomposed.quantize_per_tensor(x, 0.5, 1, -7, 7, torch.int8)
        return decomposed.dequantize_per_tensor(x, 0.5, 1, -7, 7, torch.int8) + 1

    check(function, torch.arange(-20.0, 20.0) * 0.5)


def test_channels_are_quantised_along_their_axis():
    def function(x, scales):
        zeros = torch.arange(3)
        codes = decomposed.quantize_per_channel(x, scales, zeros, 1, -128, 127, torch.int8)
        return codes, decomposed.dequantize_per_channel(codes, scales, zeros, 1, -128, 127, torch.int8)

    check(function, torch.arange(24.0).reshape(2, 3, 4), torch.tensor([1.0, 0.5, 2.0]))


@pytest.fixture(scope="module")
def float8():
    """Return torchao's operators that quantise and dequantise float8, of the same names where it is not installed."""
    try:
        import torchao.quantization.quant_primitives  # noqa: F401 - registers them
    except ImportError:
        library, mine = torch.library.Library("torchao", "FRAGMENT"), "CompositeExplicitAutograd"
        name = "quantize_affine_float8_non_decomposed(Tensor tensor, Tensor scale, ScalarType {}) -> Tensor"
        library.define(name.format("float8_dtype"))
        library.define("de" + name.format("output_dtype"))
        library.impl(name.partition("(")[0], lambda x, scale, dtype: _clamped(x / scale, dtype).to(dtype), mine)
        library.impl("de" + name.partition("(")[0], lambda x, scale, dtype: (x.float() * scale).to(dtype), mine)
        yield torch.ops.torchao
    else:
        yield torch.ops.torchao


def _clamped(x, dtype):
    return x.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)


@pytest.mark.parametrize("extents", [(), (1,), (32, 1)])
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_torchaos_float8_weights_are_dequantised_and_its_activations_are_pytorchs(float8, kind, extents):
    quantize, dequantize = float8.quantize_affine_float8_non_decomposed, float8.dequantize_affine_float8_non_decomposed
    scales, own = torch.rand(extents) / 8 + 0.01, torch.tensor([0.02])

    def weights_alone(x, codes, scales):
        return torch.relu(x @ dequantize(codes, scales, torch.float32).t())

    def both(x, codes, scales):
        return weights_alone(dequantize(quantize(x, own, kind), own, torch.float32), codes, scales)

    held = quantize(torch.randn(32, 64), scales, kind), scales
    module, other = Held(weights_alone, *held), Held(both, *held)
    options = {"backends": ["llvm"], "freeze": True}
    with torch.no_grad():
        assert explain(module, (X,), options={**options, "strict": True}).coverage == 1
        left = {row.operator for row in explain(other, (X,), options=options).rows if not row.part}
        assert all("quantize_affine_float8" in one for one in left)
        for one in (module, other):
            torch.testing.assert_close(
                torch.compile(one, backend="graft", options=options)(X), one(X), rtol=1e-4, atol=1e-4
            )
    assert [node.op_type for node in export(module, (X,)).graph].count("DequantizeLinear") == 1
    program = graft.compile(export(other, (X,)))
    torch.testing.assert_close(torch.from_numpy(program(X.numpy())), other(X), rtol=1e-4, atol=1e-4)


def test_products_of_integers_are_exact():
    check(lambda x, y: torch._int_mm(x, y.t()) + 1, CODES, CODES, tolerance=0)


def test_a_frozen_subclass_is_the_tensors_that_it_is_made_of():
    one, other = torch.rand(4, 4), torch.rand(4, 4)
    assert all(found is given for found, given in zip(_parts(TwoTensor(one, other)), (one, other), strict=True))

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Parameter(TwoTensor(one, other), requires_grad=False)
            self.second = torch.nn.Parameter(torch.rand(4, 4), requires_grad=False)

        def forward(self, x):
            return torch.relu(x @ self.first @ self.second)

    module, x = Module(), torch.rand(4, 4)
    with torch.no_grad():
        found = torch.compile(module, backend="graft", options={"backends": ["llvm"], "freeze": True})(x)
        expected = module(x)
    for part in ("a", "b"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part))


TORCHAO = ("Int8WeightOnly", "Int8DynamicActivationInt8Weight", "IntxWeightOnly", "Float8WeightOnly")


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHAO)
def test_torchaos_modules_become_one_part(name):
    configurations = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    options = {}
    if name == "IntxWeightOnly":
        options = {"weight_dtype": torch.int4, "granularity": configurations.PerGroup(32)}
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32)).eval()
    configurations.quantize_(module, getattr(configurations, f"{name}Config")(**options))
    with torch.no_grad():
        settings = {"backends": ["llvm"], "freeze": True, "strict": True}
        explanation = explain(module, (X,), options=settings)
        assert [len(graph) for graph in explanation.plans] == [1]
        operators = [node.op_type for node in export(module, (X,)).graph]
        assert sum(map(operators.count, ("DequantizeLinear", "MatMulInteger"))) == 2
        found = torch.compile(module, backend="graft", options=settings)(X)
        torch.testing.assert_close(found, module(X), rtol=1e-4, atol=1e-4)
