"""What a model is: import, checks, shapes, views of nodes, and the passes every model goes through."""
