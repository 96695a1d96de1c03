"""Quantised networks: accuracy beside ONNX Runtime's quantiser, perplexity beside bits."""
