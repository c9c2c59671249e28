"""Triton kernels. They are imported only for a CUDA device, or by tests that use Triton's interpreter."""
