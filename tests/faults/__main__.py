"""Inject faults into real runs and print what they cost: `python -m tests.faults [ROW …]`.

`--record` writes the rows into the table of docs/reliability.md. The exit status is 1 if a row is not as expected.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- table of faults: begin -->", "<!-- table of faults: end -->"

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
sys.path.insert(0, str(TESTS))

from faults import afterwards, damage, ends, interruptions, several, strangers, surroundings  # noqa: E402
from faults.rig import Fault, Rig, Seen  # noqa: E402
from reports import fast_reports  # noqa: E402

from seq2seq_lab.errors import UserError  # noqa: E402


def rows() -> list[Fault]:
    """Return all rows by their row number."""
    return sorted(
        [
            *interruptions.faults(),
            *damage.faults(),
            *several.faults(),
            *surroundings.faults(),
            *strangers.faults(),
            *ends.faults(),
            *afterwards.faults(),
        ],
        key=lambda fault: int(fault.row),
    )


def run(faults: Sequence[Fault]) -> list[tuple[Fault, Seen]]:
    """Run the faults one after another, each with a line of its progress."""
    done = []
    with tempfile.TemporaryDirectory() as folder, fast_reports():
        os.environ["SEQ2SEQ_LAB_CACHE"] = str(Path(folder) / "cache")
        os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
        rig = Rig(Path(folder))
        rig.warm_up()
        for fault in faults:
            start = time.monotonic()
            try:
                seen = fault.run(rig)
            except (AssertionError, OSError, ValueError, KeyError, UserError) as error:
                seen = Seen([f"{type(error).__name__}: {error}"])
            state = "holds" if not seen.problems else "FAILS"
            print(f"{fault.row:>3} {fault.name}: {state}, {figures(seen)} ({time.monotonic() - start:.0f} s)")
            for problem in seen.problems:
                print(f"    {problem}")
            sys.stdout.flush()
            done.append((fault, seen))
    return done


def figures(seen: Seen) -> str:
    """Return the figures of a row as text."""
    return ", ".join(f"{name} {value}" for name, value in seen.figures.items())


def record(done: Sequence[tuple[Fault, Seen]]) -> None:
    """Write the rows into the table of docs/reliability.md, instead of earlier rows."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=TESTS, capture_output=True, text=True, check=True).stdout.strip()
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    lines = {int(line.split("|")[1]): line for line in old.splitlines() if line[2:3].isdigit()}
    for fault, seen in done:
        state = "as expected" if not seen.problems else f"{len(seen.problems)} problems"
        cells = (fault.row, fault.name, fault.injected, fault.expected, state, figures(seen), commit)
        lines[int(fault.row)] = f"| {' | '.join(cells)} |"
    machine = f"{os.cpu_count()} CPU cores ({platform.machine()}), {platform.system()}"
    head = "| # | fault | injected | expected | seen | figures | commit |\n|---|---|---|---|---|---|---|"
    rows = "\n".join(lines[number] for number in sorted(lines))
    PAGE.write_text(f"{before}{BEGIN}\n{machine}\n\n{head}\n{rows}\n{END}{after}", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="numbers of the rows to run; all without")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    parser.add_argument("--record", action="store_true", help="write the rows into docs/reliability.md")
    given = parser.parse_args()
    existing = {fault.row: fault for fault in rows()}
    if unknown := [row for row in given.rows if row not in existing]:
        parser.error(f"{' '.join(unknown)}: no such row. Rows: {' '.join(existing)}")
    if given.list:
        for fault in existing.values():
            print(f"{fault.row:>3} {fault.name}: {fault.injected}; expected: {fault.expected}")
        return 0
    done = run([existing[row] for row in given.rows] or rows())
    if given.record:
        record(done)
    return 1 if any(seen.problems for _, seen in done) else 0


if __name__ == "__main__":
    sys.exit(main())
