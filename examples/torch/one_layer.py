"""Training where one layer of a larger model is compiled, the rest is eager PyTorch, and the optimiser PyTorch's.

Run it: python examples/torch/one_layer.py.
"""

import torch


def main(steps: int = 60) -> list[float]:
    """Return the loss of each step of learning a sine."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    )
    model[2] = torch.compile(model[2], backend="graft", options={"backends": ["llvm"]})
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    x = torch.linspace(-3, 3, 64)[:, None]
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = (model(x) - torch.sin(x)).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f} in {steps} steps")
    return losses


if __name__ == "__main__":
    main()
