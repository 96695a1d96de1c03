"""What a compiled module keeps of PyTorch's semantics: random numbers, copies, processes, transforms, subclasses."""

import copy
import io
import os
import pickle
import signal

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.torch import explain  # noqa: E402
from graft.torch.fallbacks import COUNTS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
nn, f = torch.nn, torch.nn.functional
LLVM = {"backends": ["llvm"]}


def compiled(function, **options):
    return torch.compile(function, backend="graft", options={**LLVM, **options})


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_random_numbers_come_in_the_order_of_eager_pytorch():
    def function(x):
        noisy = torch.relu(x @ x) + torch.rand_like(x)
        return f.dropout(noisy @ torch.randn(3, 3), 0.5) + torch.randn(3, 3) + torch.randint(0, 9, (3, 3))

    x, run = torch.randn(3, 3), compiled(function)
    torch.manual_seed(1)
    found = [run(x), run(x)]
    torch.manual_seed(1)
    close(found, [function(x), function(x)])


def test_draws_of_a_training_step_are_those_of_eager_pytorch():
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.3))
    other, x = copy.deepcopy(module), torch.randn(4, 8)
    for one in (compiled(module), other):
        torch.manual_seed(2)
        one(x).square().sum().backward()
    for one, reference in zip(module.parameters(), other.parameters(), strict=True):
        close(one.grad, reference.grad)


def test_compiled_modules_are_pickled_and_saved_as_modules():
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    run = compiled(module)
    expected = run(x)
    close(pickle.loads(pickle.dumps(run))(x), expected)
    file = io.BytesIO()
    torch.save(run, file)
    file.seek(0)
    close(torch.load(file, weights_only=False)(x), expected)
    close(copy.deepcopy(run)(x), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_calls_what_its_parent_compiled():
    module, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval(), torch.randn(128, 64)
    with torch.no_grad():
        run = compiled(module, threads=2)
        expected = run(x)
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a thread that is not there is waited for
            os._exit(0 if run(x).equal(expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
        close(run(x), expected)


def test_transforms_of_functions_take_compiled_ones_and_are_compiled():
    w, x = torch.randn(3, 3), torch.randn(4, 3)

    def total(x):
        return torch.tanh(x @ w).sum()

    close(torch.func.grad(compiled(total))(x), torch.func.grad(total)(x))
    close(compiled(torch.func.grad(total))(x), torch.func.grad(total)(x))
    close(torch.func.vmap(compiled(total))(x[None].repeat(2, 1, 1)), total(x).repeat(2))
    close(compiled(torch.func.vmap(total))(x[None].repeat(2, 1, 1)), total(x).repeat(2))


def test_loops_stay_in_pytorch():
    from torch._higher_order_ops import scan, while_loop

    def repeated(x):
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + 1), (torch.tensor(0), x))[1].relu()

    def summed(x):
        return scan(lambda a, b: (a + b, a * b), x[0], x)[1] + 1

    for function, x in ((repeated, torch.randn(3)), (summed, torch.randn(4, 3))):
        close(compiled(function)(x), function(x))


def test_custom_operators_stay_in_pytorch_between_parts():
    @torch.library.custom_op("graft_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    def function(x):
        return torch.relu(twice(x @ x) + 1) @ x

    found = explain(function, (torch.randn(3, 3),), options=LLVM)
    assert [row.operator for row in found.rows if row.reason and "no row" in row.reason] == [
        "graft_tests.twice.default"
    ]
    assert len(found.plans[0]) == 2
    x = torch.randn(3, 3)
    close(compiled(function)(x), function(x))


def test_hooks_of_modules_and_gradients_are_called():
    def hooked(module):
        module[0].weight.register_hook(lambda grad: grad * 3)
        module[0].register_forward_hook(lambda module, given, result: result + 1)
        return module

    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    other, module, x = hooked(copy.deepcopy(module)), hooked(module), torch.randn(4, 8)
    found, expected = compiled(module)(x), other(x)
    close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    close(module[0].weight.grad, other[0].weight.grad)


def test_parallel_modules_learn_as_single_ones(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        other, x = copy.deepcopy(module), torch.randn(4, 8)
        compiled(nn.parallel.DistributedDataParallel(module))(x).sum().backward()
        other(x).sum().backward()
        for one, reference in zip(module.parameters(), other.parameters(), strict=True):
            close(one.grad, reference.grad)
    finally:
        distributed.destroy_process_group()


def test_subclasses_are_computed_by_their_parts():
    from torch.testing._internal.two_tensor import TwoTensor

    def function(x):
        return torch.relu(x @ x) + 1

    x = TwoTensor(torch.randn(3, 3), torch.randn(3, 3))
    found, expected = compiled(function)(x), function(x)
    close(found.a, expected.a)
    close(found.b, expected.b)


def test_other_devices_types_and_layouts_are_pytorchs():
    COUNTS.clear()
    assert compiled(lambda x: x + 1)(torch.ones(2, device="meta")).device.type == "meta"
    close(compiled(lambda x: x.to(torch.complex64) * 2)(torch.ones(2)), torch.full((2,), 2 + 0j))
    sparse = torch.eye(3).to_sparse()
    close(compiled(lambda s, x: torch.sparse.mm(s, x) + 1)(sparse, torch.ones(3, 3)), torch.full((3, 3), 2.0))
    assert compiled(lambda x: None)(torch.ones(2)) is None
    assert compiled(lambda x: (3, "a"))(torch.ones(2)) == (3, "a")
    assert any("memory" in reason for _, reason in COUNTS)
    assert any("complex64" in reason for _, reason in COUNTS)


def test_errors_of_shapes_are_pytorchs():
    with pytest.raises(Exception, match="must have same reduction dim"):
        compiled(lambda x, y: x @ y)(torch.ones(2, 3), torch.ones(2, 3))
