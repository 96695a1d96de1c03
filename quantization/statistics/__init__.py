"""What a recipe needs to know of activations, gathered by running the float model on data."""
