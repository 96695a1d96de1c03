"""The backend `c_source`: C from the tensor IR, compiled by the system's compiler."""
