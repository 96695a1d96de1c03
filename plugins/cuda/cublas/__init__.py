"""The backend `cublas`: matrix products with what stands behind them, by cuBLASLt."""
