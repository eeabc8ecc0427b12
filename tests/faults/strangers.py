"""Runs of someone else: files that they name, malformed records, and commands for the terminal."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from faults.rig import Ended, Fault, Rig, Seen, in_child
from malformed_runs import MALFORMED, write_malformed
from programs import compare, runs
from rewriting import rewrite

from seq2seq_lab import evaluate, predict

SECRET = "SECRET_OF_THE_USER"


def of_stranger(rig: Rig, *edits: tuple[str, str]) -> Path:
    """Return a copy of a finished run, with edits of its config.yaml, that is not on the list of this user's runs."""
    folder = rig.new()
    shutil.copytree(rig.whole(), folder)
    text = (folder / "config.yaml").read_text("utf-8")
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    rewrite(folder / "config.yaml", text)
    return folder


def call(main: Callable[[list[str]], None], *arguments: str) -> Ended:
    """Call the program of a module in a child, as a user with a secret and with another list of runs."""

    def work() -> int:
        os.environ.update({SECRET: "the secret", "XDG_STATE_HOME": f"{os.environ['XDG_STATE_HOME']}/other"})
        try:
            main([*arguments])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return in_child(work)


def programs(rig: Rig, folder: Path) -> Iterator[tuple[str, Ended]]:
    """Yield the name of each program that opens a run, and how it ends with this run."""
    sentence = folder.parent / "sentence"
    sentence.write_text("the cat sleeps .\n")
    yield "evaluate", call(evaluate.main, str(folder))
    yield "predict", call(predict.main, str(folder), str(sentence))
    yield "reproduce", call(runs.main, str(folder), "--reproduce")
    yield "resume", rig.resume(folder)


def resolvers(rig: Rig) -> Seen:
    seen = Seen()
    for new in (f"${{oc.env:{SECRET}}}", "${oc.decode:'3'}", "${trainer.max_epochs}"):
        folder = of_stranger(rig, ("max_epochs: 2", f"max_epochs: {new}"))
        for name, ended in programs(rig, folder):
            seen.expect(ended.status == 2, f"{name}, {new}: status {ended.status}: {ended.output}")
            seen.expect("Traceback" not in ended.output, ended.output)
            seen.count("refused", int(ended.status == 2))
        written = [
            path for path in folder.rglob("*") if path.is_file() and b"the secret" in path.read_bytes()
        ]
        seen.expect(not written, f"{written} contain the secret")
    return seen


def private_files(rig: Rig) -> Seen:
    """The run names a file of the user as its test set, and a cache folder."""
    seen, new = Seen(), rig.new()
    private, chosen = new.with_name("private.tsv"), new.with_name("cache")
    private.write_text("the cat\tthe secret\n" * 40)
    settings = [
        "seq2seq_lab.data.parallel.Parallel",
        *(f"{name}: {private}" for name in ("train", "validation", "test")),
        *("format: auto", "columns: null", "hub: null", "hub_config: null", "source: en", "target: fr"),
        *("validation_share: 0.1", "test_share: 0.1", "on_bad_pair: error", "on_duplicate: keep"),
        *("on_leak: keep", "max_tokens: null", "limit: null"),
    ]
    folder = of_stranger(rig, ("cache_dir: null", f"cache_dir: {chosen}"))
    text = (folder / "config.yaml").read_text("utf-8")
    before, _, rest = text.partition("dataset:\n")
    after = rest[rest.index("\ntokenizer:") :]
    rewrite(folder / "config.yaml", f"{before}dataset:\n  _target_: " + "\n  ".join(settings) + after)
    for name, ended in programs(rig, folder):
        expected = 0 if name == "predict" else 2  # it reads no data set
        seen.expect(ended.status == expected, f"{name}: status {ended.status}: {ended.output}")
        seen.expect(name == "predict" or "dataset.test" in ended.output, f"{name}: {ended.output}")
        seen.count("refused", int(ended.status == 2))
    written = [path for path in folder.rglob("*") if path.is_file() and b"the secret" in path.read_bytes()]
    seen.expect(not written, f"{written} contain the file of the user")
    seen.expect(not chosen.exists(), "the cache folder of the stranger was created")
    return seen


def malformed(rig: Rig) -> Seen:
    """A tree of malformed runs with two that are not."""
    seen, tree = Seen(), rig.new()
    write_malformed(rig.whole("dataset.test=6"), tree)
    page = ("--html", str(tree.parent / "page.html"))  # its outputs and attention are checked for the page
    for name, main, options in (("compare", compare.main, page), ("runs", runs.main, ())):
        ended = call(main, str(tree), *options)
        seen.worst("seconds", round(ended.seconds))
        seen.expect(ended.status == 0, f"{name}: status {ended.status}: {ended.output}")
        seen.expect("Traceback" not in ended.output, ended.output)
        seen.expect(not set("\x1b\x07\x9b") & set(ended.output), f"{name}: escapes: {ended.output!r}")
        if name == "compare":
            skipped = ended.output.count("skipped: ")
            seen.figures["left out"] = skipped
            seen.expect(
                skipped == len(MALFORMED), f"{skipped} of {len(MALFORMED)} are left out: {ended.output}"
            )
            seen.expect("2 runs" in ended.output, ended.output)
    seen.expect(not (tree / "canary").exists(), "a pickle was loaded")
    return seen


def faults() -> Iterator[Fault]:
    """Return the rows of this module."""
    yield Fault("50", "resolver in the run of a stranger", "config.yaml, four programs", "refused", resolvers)
    yield Fault(
        "51",
        "file named by a stranger",
        "test set, cache_dir",
        "refused, not read, not created",
        private_files,
    )
    yield Fault(
        "52",
        "malformed runs",
        "config, records, statistics, links, terminal",
        "left out, others shown",
        malformed,
    )
