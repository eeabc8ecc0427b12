"""Detection of processes started by a launcher such as `torchrun`, by their environment variables."""

import os

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_external_rank() -> bool:
    """Return whether an external launcher has started this process as one of several ranks."""
    return all(name in os.environ for name in VARIABLES) and int(os.environ["WORLD_SIZE"]) > 1


def is_secondary_rank() -> bool:
    """Return whether this process is an external rank other than 0, which receives its job from rank 0."""
    return is_external_rank() and os.environ["RANK"] != "0"
