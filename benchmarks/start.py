"""Time from the command to the first loss, at the first start and at later ones, which use the cache.

python -m benchmarks.start [KEY=VALUE ...]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

STARTS = 4
FIRST_LOSS = " step 1/"  # in the first line of progress


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the seconds of each start, the first with an empty cache."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of the run")
    settings = parser.parse_args(arguments).settings
    with tempfile.TemporaryDirectory() as folder:
        for start in range(STARTS):
            name = "first start" if start == 0 else "later start"
            print(f"{name}: {seconds(Path(folder), str(start), settings):.2f} s", flush=True)


def seconds(folder: Path, run: str, settings: Sequence[str]) -> float:
    """Return the seconds from the command to the first loss.

    Raises:
        RuntimeError: the run ended before its first step.
    """
    command = [sys.executable, "-m", "seq2seq_lab", f"hydra.run.dir={folder / run}", *settings]
    environment = {**os.environ, "SEQ2SEQ_LAB_CACHE": str(folder / "cache")}
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if FIRST_LOSS in line:
                taken = time.perf_counter() - began
                process.terminate()
                return taken
    raise RuntimeError(f"{' '.join(command)} ended before its first step")


if __name__ == "__main__":
    main()
