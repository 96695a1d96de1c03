"""The front end of the accelerator: from operators on quantised tensors to layers of integers."""
