"""Static memory planning: offsets in one arena for tensors with known lifetimes."""
