"""Steps of training beside PyTorch's."""
