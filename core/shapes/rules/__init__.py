"""The rules of shape inference with expressions, one file a family of operators."""
