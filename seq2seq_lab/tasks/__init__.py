"""Tasks: what a run trains, and how it is evaluated."""
