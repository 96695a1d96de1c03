"""What `graft plugin new` writes: a distribution for each kind of backend, as templates."""
