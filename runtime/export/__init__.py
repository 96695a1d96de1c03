"""Programs in other forms than an artifact: one shared library, one C project, a module for the web."""
