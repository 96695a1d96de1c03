"""Vendors' toolkits that read ONNX: a region as a model of the opset that one takes, and the backend around it."""
