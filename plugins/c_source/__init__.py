"""The backend `c_source`: scalar portable C11 from the tensor IR, compiled by the system's compiler."""
