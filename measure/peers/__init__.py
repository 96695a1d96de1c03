"""Other runtimes on the same model and inputs, to compare with: a file or two each, and the table of them."""
