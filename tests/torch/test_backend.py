"""`torch.compile(module, backend="graft")` against eager PyTorch: shapes, mutation, training, and what stays there."""

import copy
import logging

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

import graft.torch  # noqa: E402
from graft.errors import ArgumentError, OptionError, RunError  # noqa: E402
from graft.torch.fallbacks import COUNTS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
nn = torch.nn
LLVM = {"backends": ["llvm"]}


def compiled(function, **options):
    return torch.compile(function, backend="graft", options={**LLVM, **options})


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.stride() == expected.stride()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.heads = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.heads(y, y, y, need_weights=False)[0]
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        state = x.new_zeros(x.shape[1], 8)
        for step in x:
            state = self.cell(step, state)
        return self.out(state)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.c, self.d = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.d(self.b(torch.relu(self.c(self.a(x))))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(11, 8), nn.Linear(8, 3)

    def forward(self, x):
        return torch.log_softmax(self.out(self.words(x).mean(1)), -1)


ARCHITECTURES = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), lambda: torch.randn(3, 6)),
    "transformer": (Block, lambda: torch.randn(2, 5, 16)),
    "recurrent": (Recurrent, lambda: torch.randn(3, 2, 4)),
    "residual": (Residual, lambda: torch.randn(2, 4, 6, 6)),
    "words": (Classifier, lambda: torch.randint(0, 11, (4, 7))),
    "pooled": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)),
        lambda: torch.randn(2, 1, 8, 8),
    ),
    "depthwise": (
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4, stride=2), nn.Hardswish(), nn.Conv2d(4, 6, 1)),
        lambda: torch.randn(2, 4, 9, 9),
    ),
    "decoder": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2, stride=2), nn.SiLU(), nn.Upsample(scale_factor=2)),
        lambda: torch.randn(1, 3, 4, 4),
    ),
    "grouped": (
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.GroupNorm(2, 8), nn.ELU(), nn.AdaptiveAvgPool1d(1)),
        lambda: torch.randn(2, 4, 9),
    ),
    "gated": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Softplus()), lambda: torch.randn(3, 6)),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_compute_and_learn_as_in_pytorch(name):
    make, example = ARCHITECTURES[name]
    module, x = make(), example()
    with torch.no_grad():
        module.eval()
        close(compiled(module)(x), module(x))
        close(compiled(module, freeze=True)(x), module(x))
    module.train()
    other = copy.deepcopy(module)
    y, expected = compiled(module)(x), other(x)
    close(y.detach(), expected.detach())
    tangent = torch.randn_like(expected)
    y.backward(tangent)
    expected.backward(tangent)
    for one, reference in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, reference.grad, rtol=1e-3, atol=1e-4)
    for one, reference in zip(module.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(one, reference)


def test_one_program_serves_shapes_that_vary():
    def function(x, y):
        return torch.cat([x, x * 2], 0).reshape(-1, 2, x.shape[1]).sum(1) @ y

    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        run, y = torch.compile(function, backend="graft", options=LLVM, dynamic=True), torch.randn(4, 3)
        for rows in (2, 5, 8):
            x = torch.randn(rows, 4)
            close(run(x, y), function(x, y))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_number_of_python_may_vary():
    def function(x, n):
        return x.new_ones(n, 3) + x * n

    run = torch.compile(function, backend="graft", options=LLVM, dynamic=True)
    for n in (4, 7):
        close(run(torch.ones(3), n), function(torch.ones(3), n))


def test_writes_to_inputs_and_views_of_them_are_seen():
    def function(x):
        x[1:].mul_(2)
        x.add_(1)
        return x[0], x.view(-1)

    x = torch.randn(3, 4)
    y = x.clone()
    found, expected = compiled(function)(x), function(y)
    torch.testing.assert_close(x, y)
    for one, other in zip(found, expected, strict=True):
        close(one, other)
    assert found[1].data_ptr() == x.data_ptr()


def test_buffers_are_written_back_and_steps_of_an_optimiser_seen():
    module = nn.Linear(3, 2)
    run = compiled(module)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    x = torch.randn(4, 3)
    run(x).sum().backward()
    optimiser.step()
    close(run(x).detach(), module(x).detach())


def test_frozen_weights_are_those_of_the_compilation():
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    with torch.no_grad():
        run = compiled(module, freeze=True)
        before = run(x)
        module.weight.mul_(2)
        close(run(x), before)
        close(compiled(module)(x), module(x))


def test_frozen_modules_of_one_class_compute_their_own_weights():
    x, modules = torch.randn(2, 4), [nn.Linear(4, 4) for _ in range(12)]  # more than Dynamo compiles of one function
    with torch.no_grad():
        for one in modules:
            close(compiled(one, freeze=True, strict=True)(x), one(x))
        run = compiled(modules[0], freeze=True)
        other = copy.deepcopy(run)
        other.weight.zero_()
        close(other(x), other._orig_mod(x))
        modules[0].weight = nn.Parameter(torch.randn(4, 4))
        close(run(x), modules[0](x))
        given = compiled(lambda module, x: module(x) * 2, freeze=True)
        for one in modules[1:3]:
            close(given(one, x), one(x) * 2)


class Counting(nn.Module):
    """Buffers that its own calls write to, as a whole, in part, by another name, and put others in the place of."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.inner.register_buffer("scale", torch.ones(2))
        for name in ("calls", "mean", "view", "out", "data", "running", "variance"):
            self.register_buffer(name, torch.zeros(2))
        self.register_buffer("table", torch.zeros(3, 2))

    def forward(self, x):
        self.calls += 1
        self.table[1:] = x[:2, :2]
        self.mean = self.mean * 0.5 + x.mean()
        self.view[:1].add_(1)
        torch.add(self.out, 1, out=self.out)
        self.data.data.sub_(1)
        self.inner.scale = self.inner.scale * 2
        y = nn.functional.batch_norm(self.inner(x), self.running, self.variance, training=True)
        return y * self.inner.scale + self.calls + self.mean + self.view + self.out + self.data + self.table.sum(0)


def test_buffers_that_a_call_changes_are_not_frozen():
    module, x = Counting(), torch.randn(4, 3)
    run, other = compiled(module, freeze=True), copy.deepcopy(module)
    with torch.no_grad():
        for _ in range(3):
            close(run(x), other(x))
    for one, expected in zip(module.buffers(), other.buffers(), strict=True):
        close(one, expected)


class Broken(nn.Module):
    """A graph that reads a buffer on either side of a break of the graph that writes to it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        y = x * self.calls
        torch._dynamo.graph_break()
        self.calls += 1
        torch._dynamo.graph_break()
        return y, x * self.calls * self.scale


def test_buffers_that_another_graph_of_the_call_changes_are_not_frozen():
    module, x = Broken(), torch.ones(2)
    run, other = compiled(module, freeze=True), copy.deepcopy(module)
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        for _ in range(6):
            for one, expected in zip(run(x), other(x), strict=True):
                close(one, expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 4


def test_numbers_that_vary_may_be_negative():
    def function(x, k):
        return x * k, x.sum() * (k * k), x[: abs(k)], torch.full((2,), k) + x[0, 0]

    def whole(x, k):
        return x * k, torch.tril(x, k)

    x = torch.randn(3, 4)
    for one, run in ((function, compiled(function)), (whole, compiled(whole, strict=True))):
        for number in (3, 2, -5, 0):
            for found, expected in zip(run(x, number), one(x, number), strict=True):
                close(found, expected)


def test_dropout_draws_what_it_draws_without_a_compiler():
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU())
    x = torch.randn(4, 8)
    torch.manual_seed(3)
    found = compiled(module)(x)
    torch.manual_seed(3)
    close(found.detach(), module(x).detach())


def test_strided_and_permuted_inputs_and_outputs_keep_their_strides():
    def function(x, w):
        return torch.relu(x @ w.t()), nn.functional.conv2d(x[None, None], torch.ones(1, 1, 2, 2))

    x, w = torch.randn(6, 8)[::2, 1:7], torch.randn(6, 5).t()
    for found, expected in zip(compiled(function)(x, w), function(x, w), strict=True):
        close(found, expected)
    image = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    module = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    close(compiled(module)(image).detach(), module(image).detach())


def test_empty_and_scalar_tensors():
    def function(x, y):
        return x * y, x.sum() + y, torch.cat([x, x])

    for x in (torch.randn(0, 3), torch.randn(1, 3)):
        for found, expected in zip(
            compiled(function)(x, torch.tensor(2.0)), function(x, torch.tensor(2.0)), strict=True
        ):
            close(found, expected)


def test_casts_of_autocast_are_followed():
    module, x = nn.Linear(8, 8), torch.randn(4, 8)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = compiled(module)(x), module(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_what_has_no_row_stays_in_pytorch_and_is_said_once(caplog):
    def function(x, w):
        return torch.linalg.inv(torch.relu(x @ w) + torch.eye(3) * 9) @ w

    x, w = torch.randn(3, 3), torch.randn(3, 3)
    COUNTS.clear()
    with caplog.at_level(logging.WARNING, logger="graft"):
        close(compiled(function)(x, w), function(x, w))
        torch._dynamo.reset()
        compiled(function)(x, w)
    assert sum("linalg_inv_ex" in one.message for one in caplog.records) == 1
    (key,) = [one for one in COUNTS if "linalg_inv_ex" in one[0]]
    assert COUNTS[key] == 2
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"aten.linalg_inv_ex.default .* stays in PyTorch: .* has no row in the table"):
        compiled(function, strict=True)(x, w)


def test_complex_numbers_stay_in_pytorch():
    def function(x):
        return torch.fft.fft(torch.relu(x) + 1).abs() * 2

    x = torch.randn(8)
    close(compiled(function)(x), function(x))


def test_an_index_beyond_its_axis_is_an_error_with_its_place():
    def function(x, i):
        return x[i] + 1

    with pytest.raises((RunError, IndexError), match="index"):
        compiled(function)(torch.randn(3), torch.tensor([7]))


def test_a_misspelt_option_names_the_nearest():
    with pytest.raises(Exception, match="has no option 'backend'; did you mean 'backends'"):
        torch.compile(torch.relu, backend="graft", options={"backend": "llvm"})(torch.ones(2))
    with pytest.raises(OptionError):
        graft.torch.options.options_of({"thread": 2})
    with pytest.raises(ArgumentError, match="option 'threads' is str 'two'"):
        graft.torch.options.options_of({"threads": "two"})


def test_a_copy_of_a_compiled_module_computes_its_own_weights():
    module, x = nn.Linear(3, 3), torch.randn(2, 3)
    run = compiled(module)
    run(x)
    other = copy.deepcopy(run)
    with torch.no_grad():
        other.weight.zero_()
    close(other(x).detach(), module.bias.detach().expand(2, 3).contiguous())
    close(run(x).detach(), module(x).detach())


def test_tied_weights_and_several_modules_in_one_process():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[2].weight = module[0].weight
    x = torch.randn(2, 4)
    first, second = compiled(module), compiled(nn.Linear(4, 4))
    close(first(x).detach(), module(x).detach())
    assert second(x).shape == (2, 4)
    first(x).sum().backward()
    found = module[0].weight.grad.clone()
    module.zero_grad()
    module(x).sum().backward()
    torch.testing.assert_close(found, module[0].weight.grad, rtol=1e-4, atol=1e-5)


def test_results_that_are_no_tensors_and_results_that_are_inputs():
    def function(x, y):
        return x, None, 3, y + 1, y

    x, y = torch.randn(2), torch.randn(2)
    found = compiled(function)(x, y)
    assert found[0] is x
    assert found[1:3] == (None, 3)
    close(found[3], y + 1)


def test_cond_stays_in_pytorch():
    def function(x):
        return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,)) * 2

    for x in (torch.ones(3), -torch.ones(3)):
        close(compiled(function)(x), function(x))
