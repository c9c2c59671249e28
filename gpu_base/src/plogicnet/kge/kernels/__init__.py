"""The GPU's own kernels, in Triton: imported only where a CUDA device is used, or in tests through the interpreter."""
