"""The machines that code is generated for."""
