"""Ranks, device and precision, console output, counter-based random numbers."""
