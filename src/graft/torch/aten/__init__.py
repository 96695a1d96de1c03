"""ATen operators as ONNX operators: a table, one row an operator, in files by family."""
