"""The import of a model: read, checked, completed and brought to one opset."""
