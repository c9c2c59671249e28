"""The path model on a CPU, compiled with numba. Only `compiled.scorer` is used from outside."""
