"""Programs in other forms than an artifact: what needs no runtime of Graft where it runs."""
