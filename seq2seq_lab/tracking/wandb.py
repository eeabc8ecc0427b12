"""Weights & Biases: online if the service can be reached, otherwise recorded in the run folder."""

import contextlib
import json
import logging
import math
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from omegaconf import OmegaConf

from seq2seq_lab.config.run_folder import read_manifest, write_manifest
from seq2seq_lab.config.secrets import mask_secrets
from seq2seq_lab.config.type_checks import Positive
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import make_numbered_folder
from seq2seq_lab.runtime.connectivity import find_connection_problem
from seq2seq_lab.tracking.base import Logger
from seq2seq_lab.tracking.files import METRICS_FILE, read_sound_metrics
from seq2seq_lab.tracking.git import git_commit

if TYPE_CHECKING:
    import wandb

_log = logging.getLogger(__name__)

Mode = Literal["auto", "online", "offline", "disabled"]
OFFLINE = ("offline", "dryrun")  # modes of W&B

STEP = "trainer/step"


class WandbTracker(Logger):
    """Logs one run to Weights & Biases, with the optimizer step as the x-axis of every chart.

    A problem with the service neither stops nor delays a run: if it cannot be reached, the run is recorded in
    `folder`/wandb with a warning, and if W&B's background process dies, training continues without it. W&B prints
    nothing and never prompts. The environment is not recorded; of the command line only the settings, in the notes.

    If a run of the user is active in this process, for example in a notebook, it stays active, and so does its session.

    Args:
        mode: "auto" uses W&B's own setting (WANDB_MODE, `wandb offline`), by default online, and changes to offline if
            no API key is known. If a run of the user is active, "auto" means its mode.
        init_timeout, finish_timeout: seconds.
        config: logged under "config", with secrets masked.
        flat: logged at the top level, with secrets masked, beside "git_commit".
        run_id: continues the record of this run; None starts a new one.

    Raises:
        UserError: W&B refuses a setting, or `mode` (or WANDB_MODE) is online and no API key is known.
    """

    VARIABLES: ClassVar = {"name": "WANDB_NAME", "group": "WANDB_RUN_GROUP", "tags": "WANDB_TAGS"}

    def __init__(
        self,
        *,
        project: str,
        entity: str | None,
        mode: Mode,
        name: str | None,
        group: str | None,
        job_type: str | None,
        tags: Sequence[str],
        log_artifact: bool,
        init_timeout: Positive,
        finish_timeout: Positive,
        folder: Path,
        config: Mapping[str, object],
        flat: Mapping[str, object],
        run_id: str | None,
    ) -> None:
        reserved = {"config", "git_commit"} & flat.keys()
        assert not reserved, reserved
        self._own_session = not _has_active_run()
        session = _session(mode)
        self._log_artifact = log_artifact
        self._folder = folder
        self._config = mask_secrets(config)
        # The service may know the id already when an online start fails, so the offline start uses it too.
        self.run_id: str = run_id or session.run_id or secrets.token_hex(4)
        run = _start(
            _choose_mode(mode, session),
            project=project,
            entity=entity,
            name=name,
            group=group,
            job_type=job_type,
            tags=list(tags) or None,
            dir=folder,
            id=self.run_id,
            resume="allow" if run_id else None,
            reinit="finish_previous" if self._own_session else "create_new",
            config={"config": self._config, **mask_secrets(flat), "git_commit": git_commit()},
            settings=_run_settings(init_timeout, finish_timeout),
        )
        self.run_id = run.id
        self._run: wandb.Run | None = run
        self.offline = run.offline
        self.url = None if run.offline or run.disabled else run.url
        self._record = Path(run.settings.sync_dir)
        self._defined: set[str] = set()
        self._directions: dict[str, str] = {}
        self._best: dict[str, float] = {}
        self._resumed = run_id is not None
        self._send(_define_metrics)

    @classmethod
    def check(cls, settings: Mapping[str, Any]) -> None:
        """Check W&B's settings, and that an API key is known if the mode is online."""
        import wandb
        from wandb.sdk import wandb_setup

        is_new = wandb_setup._singleton is None
        try:
            if _session(settings["mode"]).mode not in ("disabled", *OFFLINE):
                _find_key(settings["mode"])
        finally:
            if is_new:
                wandb.teardown()  # the processes of a study would share this session

    def sync_command(self) -> str | None:
        """Return the `wandb sync …` command that uploads an offline record, or None if the run is online."""
        return self._sync_line() if self.offline else None

    def _sync_line(self) -> str:
        # A run that was resumed offline has several folders with one run id.
        records = sorted(self._record.parent.glob(f"*run-*-{self.run_id}")) or [self._record]
        # Without the option, `wandb sync` skips the records of a run that was online.
        option = "" if all(record.name.startswith("offline-") for record in records) else "--include-online "
        return f"wandb sync {option}{' '.join(shlex.quote(str(record)) for record in records)}"

    def declare_metrics(self, directions: Mapping[str, str]) -> None:
        """Make the summary of each metric of validation its best finite value.

        A resumed run includes the values before it was interrupted, which are in its folder.
        """
        self._directions = dict(directions)
        path = self._folder / METRICS_FILE
        if self._resumed and path.is_file():
            best: dict[str, dict[str, float]] = {}
            for row in read_sound_metrics(path):
                best |= self._new_best(row)
            self.record_summary(best)

    def _direction(self, name: str) -> str | None:
        return self._directions.get(name.rpartition("/")[2]) if name.startswith("val/") else None

    def _new_best(self, values: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Return summaries of the metrics that are better than before.

        W&B would compute NaN after one value that is not finite.
        """
        better = {}
        for name, value in values.items():
            if (direction := self._direction(name)) is None or not math.isfinite(value):
                continue
            choose = max if direction == "max" else min
            if choose(value, self._best.get(name, value)) != self._best.get(name):
                self._best[name] = value
                better[name] = {direction: value}
        return better

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log metrics: those of test sets, which have one value, in the summary, the others as charts.

        W&B's own step is not used, because W&B drops values with a smaller step.
        """
        final = {name: value for name, value in values.items() if name.startswith("test/")}
        values = {name: value for name, value in values.items() if name not in final}
        if final:
            self.record_summary(final)
        if not values:
            return
        # Defined by full name: if two patterns match a name, W&B uses either of them.
        new = {name for name in values.keys() - self._defined if self._direction(name)}
        self._defined |= new
        better = self._new_best(values)

        def log(run: "wandb.Run") -> None:
            for name in new:
                run.define_metric(name, step_metric=STEP, summary="none")
            run.log({**values, STEP: step})
            if better:
                run.summary.update(better)

        self._send(log)

    def log_images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        """Log PNG files as a row of images."""
        import wandb

        def log(run: "wandb.Run") -> None:
            pairs = zip(paths, captions, strict=True)
            pictures = [wandb.Image(str(path), caption=caption) for path, caption in pairs]
            run.log({name: pictures, STEP: step})

        self._send(log)

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int
    ) -> None:
        """Log a table; a path in it is shown as a picture."""
        import wandb

        def log(run: "wandb.Run") -> None:
            values = [
                [wandb.Image(str(one)) if isinstance(one, Path) else one for one in row] for row in rows
            ]
            # With mixed types, W&B writes pictures as text.
            mixed = not any(isinstance(one, Path) for row in rows for one in row)
            run.log({name: wandb.Table(list(columns), values, allow_mixed_types=mixed), STEP: step})

        self._send(log)

    def log_artifact(
        self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]
    ) -> None:
        """Log parts of the run folder and the configuration, from which `fetch_run_folder` restores a run folder.

        The files are hard-linked, or copied where the file system has no hard links, into `folder`/wandb, so they remain
        if the originals are deleted.
        """
        if self._log_artifact:
            self._send(lambda run: self._record_artifact(run, name, kind, parts, metadata))

    def _record_artifact(
        self, run: "wandb.Run", name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]
    ) -> None:
        import wandb

        if run.disabled:
            return
        kept = make_numbered_folder(self._folder / "wandb" / "artifacts")
        for part in parts:
            target = kept / part.relative_to(self._folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if part.is_dir():
                shutil.copytree(part, target, copy_function=_link_or_copy)
            else:
                _link_or_copy(part, target)
        (kept / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(self._config)), "utf-8")
        listed = read_manifest(self._folder)  # the configuration differs: its secrets are masked
        write_manifest(
            kept,
            {part: [name for name in names if (kept / name).is_file()] for part, names in listed.items()},
        )
        artifact = wandb.Artifact(name, type=kind, metadata=dict(metadata))
        # Without "immutable", W&B copies each checkpoint to its folder in the user's home.
        artifact.add_dir(str(kept), skip_cache=True, policy="immutable")
        run.log_artifact(artifact, aliases=["latest", "best"])

    def record_data(self, name: str, metadata: Mapping[str, object]) -> None:
        """Record the data set as an artifact that the run uses, without its files; not in offline records."""
        import wandb

        def use(run: "wandb.Run") -> None:
            artifact = wandb.Artifact(name, type="dataset", metadata=dict(metadata))
            with artifact.new_file("dataset.json") as file:
                json.dump(dict(metadata), file, indent=2)
            run.use_artifact(artifact)

        if not self.offline and self.url is not None:
            self._send(use)

    def record_notes(self, text: str) -> None:
        """Add a line to the notes of the run, unless they contain it."""

        def note(run: "wandb.Run") -> None:
            notes = run.notes or ""
            if text not in notes:
                run.notes = f"{notes}\n{text}".lstrip("\n")

        self._send(note)

    def record_summary(self, values: Mapping[str, object]) -> None:
        """Set values of the run's summary."""
        self._send(lambda run: run.summary.update(dict(values)))

    def finish(self, exit_code: int) -> None:
        """Close the run, and W&B's session unless it is the user's. The next run of this process starts a new one."""

        def close(run: "wandb.Run") -> None:
            try:
                run.finish(exit_code)
            except TimeoutError:
                _log.warning("The upload to W&B is incomplete. Run `%s` to finish it.", self._sync_line())
            finally:
                self._end_session()

        self._send(close)
        self._run = None

    def _end_session(self) -> None:
        """Close W&B's session unless it is the user's."""
        import wandb

        if self._own_session:
            wandb.run = None
            wandb.teardown()

    def _send(self, action: "Callable[[wandb.Run], object]") -> None:
        from wandb.errors import CommError

        if self._run is None:
            return
        process_lost: tuple[type[BaseException], ...] = (ConnectionError, *_mailbox_errors())
        try:
            with _staged_in(self._folder / "wandb"):
                action(self._run)
        except CommError as error:
            _log.warning("W&B refused data of this run: %s", error)
        except process_lost as error:
            _log.warning("W&B's background process has died (%s). The run continues without it.", error)
            # The dead session and its run would break the next run of this process.
            with contextlib.suppress(*process_lost):
                self._end_session()
            self._run = None
        except (OSError, MemoryError, RuntimeError) as error:  # RuntimeError: no new thread can be started
            _log.warning("W&B did not record data of this run (%s: %s).", type(error).__name__, error)


def fetch_run_folder(name: str | Path) -> Path:
    """Return a run folder, given its path or the name of a checkpoint that `WandbTracker` has logged.

    A checkpoint (`ENTITY/PROJECT/NAME:VERSION`) is downloaded into the folder `artifacts`.

    Raises:
        UserError: the checkpoint cannot be downloaded.
    """
    if Path(name).exists() or not re.fullmatch(r"([\w.-]+/){0,2}[\w.-]+:[\w.-]+", str(name)):
        return Path(name)
    import wandb
    from wandb.errors import AuthenticationError, CommError, UsageError

    session = _session("auto")
    try:
        if not has_api_key():
            raise UsageError("no API key is known; run `wandb login`")
        if (problem := find_connection_problem(session.base_url)) is not None:
            raise CommError(problem)
        return Path(wandb.Api().artifact(str(name), type="model").download())
    except (AuthenticationError, CommError, UsageError, ValueError, OSError) as error:
        raise UserError(
            f"{name} cannot be downloaded from W&B: {str(error).rstrip('.')}. A run can also be given by its folder."
        ) from error


def has_api_key() -> bool:
    """Return whether an API key of W&B is known, without a prompt.

    Raises:
        UserError: the key has an invalid format, or a run that is not online is active.
    """
    import wandb
    from wandb.errors import AuthenticationError

    if wandb.run is not None:  # `wandb.login` has no effect while a run is active
        if wandb.run.offline or wandb.run.disabled:
            raise UserError(
                "A W&B run that is not online is active in this process. End it with wandb.finish()."
            )
        return True
    try:
        return wandb.login(prompt=False, verify=False)
    except AuthenticationError as error:
        raise UserError(f"The API key of W&B is not valid: {error}") from None


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    """Make a hard link to a file, or a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextlib.contextmanager
def _staged_in(folder: Path) -> Iterator[None]:
    """Set the folder where W&B keeps copies of artifact files until they are uploaded, unless the environment sets it.

    W&B's default is a folder in the user's home; W&B has no other setting for it.
    """
    if "WANDB_DATA_DIR" in os.environ:
        yield
        return
    os.environ["WANDB_DATA_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["WANDB_DATA_DIR"]


def _has_active_run() -> bool:
    """Return whether a run of the user is active in this process."""
    import wandb

    return wandb.run is not None


def _session(mode: Mode) -> "wandb.Settings":
    """Return the settings from W&B's files and environment, with the requested mode.

    If a run of the user is active, its session has the settings; its id is left out, and "auto" means its mode.
    """
    import wandb

    if wandb.run is not None:
        if mode == "auto":
            mode = "disabled" if wandb.run.disabled else "offline" if wandb.run.offline else "online"
        return wandb.setup().settings.model_copy(update={"mode": mode, "run_id": None})
    # W&B reports its own errors to a third party, which costs a name lookup even offline.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    settings = wandb.Settings(silent=True)
    try:
        if mode != "auto":
            settings = wandb.Settings(silent=True, mode=mode)
        return wandb.setup(settings).settings
    except ValueError as error:
        raise UserError(f"W&B's settings (WANDB_… in the environment) are not valid: {error}") from None


def _find_key(mode: Mode) -> bool:
    """Return whether an API key is known.

    Raises:
        UserError: the mode is online and no key is known, or the key has an invalid format.
    """
    try:
        known = has_api_key()
    except UserError as error:
        raise UserError(f"{error} To record the run offline, set logger.mode=offline.") from None
    if known:
        return True
    if mode == "online" or os.environ.get("WANDB_MODE") == "online":
        raise UserError(
            "W&B's mode is online (logger.mode or WANDB_MODE), but no API key is known. Run `wandb login`, "
            "set WANDB_API_KEY, or use logger.mode=auto or logger.mode=offline."
        )
    return False


def _choose_mode(mode: Mode, session: "wandb.Settings") -> Literal["online", "offline", "disabled"]:
    """Return the mode to start in, without a prompt and with at most one short connection."""
    if session.mode == "disabled":
        return "disabled"
    if session.mode in OFFLINE:
        return "offline"
    if not _find_key(mode):
        _log.info("No W&B API key was found. The run is recorded offline.")
        return "offline"
    if find_connection_problem(session.base_url) is not None:
        _log.warning("W&B cannot be reached at %s. The run is recorded offline.", session.base_url)
        return "offline"
    return "online"


def _run_settings(init_timeout: float, finish_timeout: float) -> "wandb.Settings":
    import wandb

    return wandb.Settings(
        init_timeout=init_timeout,
        finish_timeout=finish_timeout,
        finish_timeout_raises=True,
        silent=True,
        console="off",
        save_code=False,
        label_disable=True,
        # The metadata contain the command line, the user and the host, whose name is also a setting. W&B's git support
        # records the repository of the working directory and its uncommitted changes.
        x_disable_meta=True,
        host="",
        disable_git=True,
        git_commit=git_commit(),
    )


def _start(mode: Literal["online", "offline", "disabled"], **options: Any) -> "wandb.Run":
    """Start a run. If the service fails during an online start, start it offline."""
    import wandb
    from wandb.errors import CommError, UsageError

    try:
        try:
            return wandb.init(mode=mode, **options)
        except CommError as error:
            if mode != "online":
                raise
            _log.warning("W&B cannot be used (%s). The run is recorded offline.", error)
            # W&B's background process keeps the run's id.
            if _has_active_run():
                options |= {"id": secrets.token_hex(4), "resume": None}
            else:
                wandb.teardown()
            return wandb.init(mode="offline", **options)
    except (UsageError, ValueError) as error:
        raise UserError(f"W&B refuses a setting of logger=wandb (project, name, tags …): {error}") from None


def _define_metrics(run: "wandb.Run") -> None:
    run.define_metric(STEP, hidden=True)
    for part in ("train", "val"):
        run.define_metric(f"{part}/*", step_metric=STEP)


def _mailbox_errors() -> tuple[type[BaseException], ...]:
    """Return the errors of W&B's private module for its background process; nothing if a version has no such module."""
    try:
        from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError
    except ImportError:
        return ()
    return HandleAbandonedError, MailboxClosedError
