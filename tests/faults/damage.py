"""Damaged and hostile files and configurations."""

import json
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from faults.rig import Fault, Hook, Rig, Seen, at_step, kill, losses, valid
from hostile_configs import HOSTILE_ARGUMENTS, HOSTILE_FILES, write_hostile_experiment
from rewriting import rewrite

from seq2seq_lab.config.run_folder import MANIFEST, Part, find_damage, read_manifest
from seq2seq_lab.data import token_cache
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_json_object, read_lines, sha256
from seq2seq_lab.tracking import METRICS_FILE, read_metrics
from seq2seq_lab.training import checkpoint

RANDOM_FLIPS = 1000  # of each file that is not flipped byte by byte
NOT_READ = (".png", ".pdf", ".log", ".lock", ".diff", "")  # suffixes of files that no program reads


class Canary:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.path),)


def interrupted(rig: Rig) -> Path:
    """Return a new copy of a run that was killed in step 10, with checkpoints of the steps 5, 6 and 8."""
    folder = rig.new()
    if rig.stopped is None:
        rig.stopped = rig.new()
        ended = rig.start(rig.stopped, hooks=[at_step(9, kill)])
        assert ended.status == -signal.SIGKILL, ended.output
    shutil.copytree(rig.stopped.parent, folder.parent, dirs_exist_ok=True)
    return folder


def resume_exactly(rig: Rig, seen: Seen, folder: Path, *named: str) -> None:
    """Resume a run and expect the uninterrupted run, and output that contains these texts."""
    ended = rig.resume(folder)
    seen.expect(ended.status == 0, ended.output)
    output = " ".join(ended.output.split())
    for text in named:
        seen.expect(text in output, f"{text!r} is not in the output: {output}")
    if ended.status == 0:
        rig.check_same(seen, folder, rig.whole())
    seen.count("runs")


def refused(
    rig: Rig, seen: Seen, folder: Path, *arguments: str, named: str, hooks: tuple[Hook, ...] = ()
) -> None:
    """Expect the exit status 2 with a text, no traceback, and a folder that is not trained further."""
    before = {path: path.read_bytes() for path in folder.glob("checkpoints/*/*")}
    ended = rig.program(folder.parent, *arguments, hooks=hooks)
    output = "".join(ended.output.split())
    seen.expect(ended.status == 2, f"{arguments}: status {ended.status}: {ended.output}")
    seen.expect(
        "".join(named.split()) in output, f"{arguments}: {named!r} is not in the output: {output[-300:]}"
    )
    seen.expect("Traceback" not in output, ended.output)
    after = {path: path.read_bytes() for path in folder.glob("checkpoints/*/*")}
    seen.expect(before == after, f"{arguments}: the checkpoints have changed")
    seen.count("refused", int(ended.status == 2))


def truncated_checkpoint(rig: Rig) -> Seen:
    seen = Seen()
    for name in (*checkpoint.FILES, "manifest.json"):
        for length in (lambda size: size - 1, lambda size: size // 2, lambda size: 0):
            folder = interrupted(rig)
            path = valid(folder)[-1] / name
            path.write_bytes(path.read_bytes()[: length(path.stat().st_size)])
            resume_exactly(rig, seen, folder, f"{name} is damaged", "Resuming from step 6")
    return seen


def flipped_tensors(rig: Rig) -> Seen:
    """One bit of each tensor; the first one also in a resumed run."""
    seen, folder = Seen(), interrupted(rig)
    newest = valid(folder)[-1]
    for name in ("model.safetensors", "optimizer.safetensors"):
        path = newest / name
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        for tensor, entry in header.items():
            if tensor == "__metadata__":
                continue
            place = 8 + size + entry["data_offsets"][0]
            path.write_bytes(flip(content, place, 0))
            seen.count("tensors")
            seen.expect(checkpoint.damage(newest) == f"{name} is damaged", f"{tensor}: not found")
        resume_exactly(rig, seen, folder, f"{name} is damaged")
        folder = interrupted(rig)
        newest = valid(folder)[-1]
    return seen


def all_checkpoints_bad(rig: Rig) -> Seen:
    seen, folder = Seen(), interrupted(rig)
    for path in folder.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(flip(path.read_bytes(), 1000, 0))
    refused(rig, seen, folder, f"resume={folder}", named="no checkpoint that can be used")
    seen.expect(losses(folder)[-1][0] == 9, "it has trained")
    return seen


def missing_checkpoints(rig: Rig) -> Seen:
    """The newest checkpoint, and the best one, which the others name."""
    seen, folder = Seen(), interrupted(rig)
    shutil.rmtree(valid(folder)[-1])
    resume_exactly(rig, seen, folder, "Resuming from step 6")
    folder = interrupted(rig)
    shutil.rmtree(folder / "checkpoints" / "step_00000005")
    ended = rig.resume(folder)
    lost = read_json_object(folder / "result.json").get("lost_checkpoints")
    seen.expect(ended.status == 0, ended.output)
    seen.expect(lost == ["step_00000005"], f"lost_checkpoints={lost}")
    return seen


def malicious_pickle(rig: Rig) -> Seen:
    """Instead of each file of the newest checkpoint, with a valid manifest, and of the tokenizer."""
    seen = Seen()
    for name in checkpoint.FILES:
        folder = interrupted(rig)
        canary, newest = folder.parent / "canary", valid(folder)[-1]
        (newest / name).write_bytes(pickle.dumps(Canary(canary)))
        digests = {file: sha256(newest / file) for file in checkpoint.FILES}
        manifest = {"format": checkpoint.FORMAT, "files": digests}
        (newest / "manifest.json").write_text(json.dumps(manifest))
        resume_exactly(rig, seen, folder, f"{name} has another format", "Resuming from step 6")
        seen.expect(not canary.exists(), f"{name}: the pickle was loaded")
        seen.count("files")
    folder = interrupted(rig)
    canary = folder.parent / "canary"
    (folder / "tokenizer" / "source.json").write_bytes(pickle.dumps(Canary(canary)))
    refused(rig, seen, folder, f"resume={folder}", named="source.json is damaged")
    seen.expect(not canary.exists(), "source.json: the pickle was loaded")
    return seen


def hostile_configs(rig: Rig) -> Seen:
    """On the command line, in experiment files, and in the config.yaml of a saved run with a valid manifest."""
    seen, folder = Seen(), rig.new()
    canary = folder.parent / "canary"

    def watch() -> None:
        os.environ.update(CALLED="os.mkdir")
        os.system = lambda *_: canary.mkdir()  # type: ignore[assignment]

    for arguments in HOSTILE_ARGUMENTS:
        refused(rig, seen, folder, *arguments.split(), named="error:", hooks=(watch,))
    for callback in HOSTILE_FILES:
        experiments = write_hostile_experiment(folder.parent / "mine", callback, canary)
        refused(
            rig,
            seen,
            folder,
            f"--config-dir={experiments}",
            "experiment=evil",
            named="error:",
            hooks=(watch,),
        )
    saved = interrupted(rig)
    content = (saved / "config.yaml").read_text("utf-8")
    rewrite(saved / "config.yaml", content.replace("seq2seq_lab.data.grammar.Grammar", "os.system"))
    refused(rig, seen, saved, f"resume={saved}", named="_target_=os.system", hooks=(watch,))
    seen.expect(not canary.exists(), "something was called")
    return seen


def changed_on_resume(rig: Rig) -> Seen:
    """Of config.yaml with a valid manifest, and of the tokenizer."""
    seen = Seen()
    edits = {
        "clip_norm: 1.0": ("clip_norm: 2.0", "trainer.clip_norm was 1 and is now 2"),
        "dropout: 0.3": ("dropout: 0.0", "dropout was 0.3 and is now 0"),
        "validation: 4": ("validation: 3", "other data"),
        "lowercase: false": ("lowercase: true", "data or the tokenizer"),
        "label_smoothing: 0.0": ("label_smoothing: 0.1", "task.label_smoothing was 0 and is now 0.1"),
    }
    for old, (new, named) in edits.items():
        folder = interrupted(rig)
        content = (folder / "config.yaml").read_text("utf-8")
        assert old in content, old
        rewrite(folder / "config.yaml", content.replace(old, new, 1))
        refused(rig, seen, folder, f"resume={folder}", named=named)
    for name in ("config.yaml", "run.json", "tokenizer/source.json"):
        folder = interrupted(rig)
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        refused(rig, seen, folder, f"resume={folder}", named=f"{name} is damaged")
    return seen


def flip(content: bytes, place: int, bit: int) -> bytes:
    """Return the content with one bit of one byte flipped."""
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def flipped_bytes(rig: Rig) -> Seen:
    """A bit of each byte of the manifest and the tokenizer, 1,000 random bits of every other file that programs read."""
    seen, folder, rng = Seen(), rig.new(), random.Random(1)
    shutil.copytree(rig.whole(), folder)
    entry = sorted((rig.folder / "cache" / "tokenized").glob("*/manifest.json"))[0].parent
    for root, find in ((folder, found_in_run), (entry, found_in_cache)):
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root)
            if not path.is_file() or path.suffix in NOT_READ:
                continue
            seen.expect(not find(root, name), f"{name} is refused before it is damaged")
            content = path.read_bytes()
            small = name.as_posix() == "manifest.json" or name.parts[0] == "tokenizer"
            places = range(len(content)) if small else rng.choices(range(len(content)), k=RANDOM_FLIPS)
            for place in places:
                path.write_bytes(flip(content, place, rng.randrange(8)))
                seen.expect(find(root, name), f"{name}: byte {place} is not found")
                seen.count("flips")
            path.write_bytes(content)
            seen.count("files")
    return seen


def found_in_run(folder: Path, name: Path) -> bool:
    """Return whether the programs find that a file of a run is damaged."""
    if name.parts[0] == "checkpoints":
        return checkpoint.damage(folder / "checkpoints" / name.parts[1]) is not None
    if name.name == METRICS_FILE:
        try:
            return len(read_metrics(folder / name)) < len(read_lines(folder / name))
        except UserError:
            return True
    if name.name == MANIFEST:
        return find_damage(folder, "run") != {}
    part: Part = "run" if name.as_posix() in read_manifest(folder)["run"] else "result"
    return find_damage(folder, part, name.as_posix()) != {}


def found_in_cache(entry: Path, name: Path) -> bool:
    """Return whether a file of the cache differs from its digest in the manifest, or the manifest is damaged."""
    try:
        return json.loads((entry / MANIFEST).read_text("utf-8")) != token_cache.file_hashes(entry)
    except (UnicodeDecodeError, json.JSONDecodeError):
        return True


def faults() -> Iterator[Fault]:
    """Return the rows of this module."""
    yield Fault(
        "13",
        "truncated checkpoint",
        "-1 byte, half, empty: each file",
        "the one before",
        truncated_checkpoint,
    )
    yield Fault("14", "bit flip in a tensor", "one in each tensor", "refused by hash", flipped_tensors)
    yield Fault("15", "every checkpoint damaged", "a bit of each", "exit status 2", all_checkpoints_bad)
    yield Fault("16", "checkpoint missing", "newest, best", "newest valid one", missing_checkpoints)
    yield Fault(
        "17", "malicious pickle", "in the place of each file", "not loaded, the one before", malicious_pickle
    )
    yield Fault(
        "18", "hostile configuration", "command line, YAML, saved run", "refused, not called", hostile_configs
    )
    yield Fault(
        "19", "changed on resume", "config.yaml, data, vocabulary", "refused with the name", changed_on_resume
    )
    yield Fault(
        "37", "flipped bits", "in every file that programs read, of run and cache", "all found", flipped_bytes
    )
