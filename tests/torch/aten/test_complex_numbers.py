"""Rows of complex numbers and Fourier transforms, in exported models, against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

import graft  # noqa: E402
import graft.torch  # noqa: E402
from graft.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
fft = torch.fft


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.randn(3, 4, 6, 4, dtype=torch.cfloat, generator=generator))

    def forward(self, x):
        return self.function(x, self.weight)


def neural_operator(x, w):
    """A layer that multiplies low frequencies by complex matrices (Li et al., 2020)."""
    found, spectrum = torch.zeros(2, 4, 8, 5, dtype=torch.cfloat), fft.rfft2(x)
    found[:, :, :3, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :3, :4], w[:, :, :3])
    found[:, :, -3:, :4] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -3:, :4], w[:, :, 3:])
    return fft.irfft2(found, s=(8, 8))


def rotary(x, w):
    """Rotations of positions by complex numbers of length 1."""
    rotated = torch.view_as_complex(x.reshape(2, 3, 8, 4, 2)) * (w[0, 0, :1] / w[0, 0, :1].abs())
    return torch.view_as_real(rotated).flatten(-2)


CASES = {
    "of real numbers": lambda x, w: torch.view_as_real(fft.rfft(x, dim=1)),
    "of an odd number": lambda x, w: fft.irfft(fft.rfft(x[..., :7]), n=7),
    "to another length": lambda x, w: fft.irfft(fft.rfft(x), n=13, norm="ortho"),
    "of two axes, scaled": lambda x, w: fft.irfft2(fft.rfft2(x, norm="ortho") * 2, s=(8, 8), norm="ortho"),
    "of complex numbers": lambda x, w: fft.ifft(fft.fftn(x, dim=(0, 2)), dim=2, norm="forward").imag,
    "of a half alone": lambda x, w: fft.fft(x, n=12).real,
    "correlation": lambda x, w: fft.irfft(fft.rfft(x) * torch.conj(fft.rfft(x.flip(0))), n=8),
    "neural operator": neural_operator,
    "rotary": rotary,
    "sums": lambda x, w: torch.view_as_real((torch.complex(x[..., :4], x[..., 4:]) + w[0, 0, 0] - 1.5j) / 2),
    "products": lambda x, w: torch.view_as_real((x[0, 0, :, :6] + 0j) @ w[0].transpose(0, 1)[:, 1]),
    "magnitude": lambda x, w: (
        torch.cat([w[:, :, :1], w[:, :, 2:3]], 2).transpose(1, -1)[0, :, 0].abs() + x[0, 0, :4, :4]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_models_with_complex_numbers_inside_give_what_pytorch_gives(name):
    module, x = Module(CASES[name]).eval(), torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    program = graft.compile(graft.torch.export(module, (x,)), threads=1)
    torch.testing.assert_close(torch.from_numpy(program(x.numpy())), module(x), rtol=1e-4, atol=1e-4)


def test_complex_numbers_do_not_come_out_of_a_model():
    with pytest.raises(UnsupportedError, match="elements of complex64 are not computed with"):
        graft.torch.export(Module(lambda x, w: fft.rfft(x)), (torch.randn(2, 8),))


def test_what_has_no_row_for_complex_numbers_is_named():
    with pytest.raises(UnsupportedError, match=r"aten.exp.default .*: aten.exp.default has no row in the table"):
        graft.torch.export(Module(lambda x, w: fft.rfft(x).exp().real), (torch.randn(2, 8),))
