"""The backend `cblas`: matrix products by the C interface of a BLAS, OpenBLAS here."""
