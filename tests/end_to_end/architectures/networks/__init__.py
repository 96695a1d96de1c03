"""Networks written by hand, small, with weights by seed: what `transformers` has not, or has in one form alone."""
