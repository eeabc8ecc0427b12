"""Autograd functions and CPU kernels that are faster than those of torch."""
