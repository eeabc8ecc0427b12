"""What a process needs to compute: ranks, device and precision, console, random numbers."""
