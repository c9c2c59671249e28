"""Triton kernels of the path model. Only `kernels.layer` is used from outside."""
