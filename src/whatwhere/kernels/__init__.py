"""The kernels: each beside an implementation in PyTorch's operations, and tested to compute its numbers."""
