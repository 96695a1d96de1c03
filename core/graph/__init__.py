"""What a graph is: views of nodes and values, walks, symbols of dimensions; nothing here knows an operator."""
