"""Any module in posits of 16 bits: `torch.compile` with another datatype. Run it: python examples/torch/posits.py."""

import torch


def main() -> float:
    """Return the largest difference that 16 bits make to a small classifier."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).eval()
    x = torch.randn(8, 64)
    options = {"backends": ["llvm"], "datatype": "custom[posit]16", "freeze": True}
    with torch.no_grad():
        found, expected = torch.compile(module, backend="graft", options=options)(x), module(x)
    difference = float((found - expected).abs().max())
    same = int((found.argmax(1) == expected.argmax(1)).sum())
    print(f"posit16: largest difference {difference:.1e}, {same} of 8 classes the same")
    return difference


if __name__ == "__main__":
    main()
