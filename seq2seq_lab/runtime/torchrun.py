"""What a launcher such as `torchrun` says in the environment of each process that it starts."""

import os

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_external_rank() -> bool:
    """Return whether a launcher has started this process as one of several ranks."""
    return all(name in os.environ for name in VARIABLES) and int(os.environ["WORLD_SIZE"]) > 1


def is_secondary_rank() -> bool:
    """Return whether this process is a rank other than 0, which waits for rank 0's job."""
    return is_external_rank() and os.environ["RANK"] != "0"
