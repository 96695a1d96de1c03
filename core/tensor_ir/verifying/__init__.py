"""What a valid function and stage are, and what a machine must have for them."""
