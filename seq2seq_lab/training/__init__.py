"""The training loop, its checkpoints, schedules and profiling."""
