"""Weights & Biases: online where it can be reached, otherwise recorded in the run folder for later."""

import contextlib
import logging
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from omegaconf import OmegaConf

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import make_numbered_folder
from seq2seq_lab.runtime.connectivity import find_connection_problem
from seq2seq_lab.tracking.base import Logger
from seq2seq_lab.tracking.git import git_commit

if TYPE_CHECKING:
    import wandb

_log = logging.getLogger(__name__)

Mode = Literal["auto", "online", "offline", "disabled"]

STEP = "trainer/step"

# `…token` but not `tokenizer` or `max_tokens`, which are settings of this field.
_SECRET_NAME = re.compile(
    r"secret|passw|passphrase|credential|bearer|(api|access|private|auth)[_-]?key|token$|(^|[_-])auth$",
    re.IGNORECASE,
)
_MASK = "***"


class WandbTracker(Logger):
    """Logs one run to Weights & Biases; the step of every chart is the optimizer update.

    `mode` auto takes the mode W&B is set to (WANDB_MODE, `wandb offline`), which is online by default,
    and goes offline where no key is known. The service never stops or stalls a run: where it cannot be
    reached, the run is recorded in `folder`/wandb with a warning, and where W&B's background process is
    lost, training goes on without it. Nothing is printed and nothing is asked.

    `config` (nested plain containers) is logged under "config" and `flat` at the top level, beside
    "git_commit"; secrets in them are masked. Neither the environment nor the command line is recorded.
    `run_id` goes on with that run. Timeouts are in seconds.

    Raises `UserError` for a W&B setting that does not exist, and for `mode` (or WANDB_MODE)
    online where no key is known.
    """

    def __init__(
        self,
        project: str,
        entity: str | None,
        mode: Mode,
        name: str | None,
        group: str | None,
        job_type: str | None,
        tags: Sequence[str],
        log_artifact: bool,
        init_timeout: float,
        finish_timeout: float,
        folder: Path,
        config: Mapping[str, object],
        flat: Mapping[str, object],
        run_id: str | None,
    ) -> None:
        reserved = {"config", "git_commit"} & flat.keys()
        assert not reserved, reserved
        # W&B reports its own errors to a third party, which costs a look-up even offline.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb
        from wandb.errors import CommError, UsageError
        from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError

        self._lost_errors = (ConnectionError, HandleAbandonedError, MailboxClosedError)
        self._log_artifact = log_artifact
        self._folder = folder
        self._config = _masked(config)
        # The online start may fail after the service has heard of the run: the second start keeps its name.
        session = _session(mode)
        self.run_id: str = run_id or session.run_id or secrets.token_hex(4)

        def start(mode: Literal["online", "offline", "disabled"]) -> "wandb.Run":
            return wandb.init(
                project=project,
                entity=entity,
                mode=mode,
                name=name,
                group=group,
                job_type=job_type,
                tags=list(tags),
                dir=folder,
                id=self.run_id,
                resume="allow" if run_id else None,
                reinit="finish_previous",
                config={"config": self._config, **_masked(flat), "git_commit": git_commit()},
                settings=wandb.Settings(
                    init_timeout=init_timeout,
                    finish_timeout=finish_timeout,
                    finish_timeout_raises=True,
                    silent=True,
                    console="off",
                    save_code=False,
                    label_disable=True,
                    # The metadata hold the command line, the user and the host; W&B's look at git takes
                    # the current folder's repository and would store its uncommitted changes.
                    x_disable_meta=True,
                    disable_git=True,
                    git_commit=git_commit(),
                ),
            )

        chosen = _choose_mode(mode, session)
        try:
            try:
                run = start(chosen)
            except CommError as error:
                if chosen != "online":
                    raise
                _log.warning("W&B cannot be used (%s): the run is recorded offline.", error)
                wandb.teardown()  # W&B's process holds on to the run's id
                run = start("offline")
        except (UsageError, ValueError) as error:
            raise UserError(
                f"W&B refuses a setting of logger=wandb (project, name, tags …): {error}"
            ) from None

        self._run: wandb.Run | None = run
        self.run_id = run.id
        self.offline = run.offline
        self.url = None if run.offline or run.disabled else run.url
        self._pieces = Path(run.settings.sync_dir)
        self._defined: set[str] = set()
        self._send(_define_metrics)

    def sync_command(self) -> str | None:
        """Return the `wandb sync …` line that sends an offline record, else None."""
        return self._sync_line() if self.offline else None

    def _sync_line(self) -> str:
        # A run that was resumed offline lies in several folders of one run id.
        pieces = sorted(self._pieces.parent.glob(f"*run-*-{self.run_id}")) or [self._pieces]
        return f"wandb sync {' '.join(shlex.quote(str(piece)) for piece in pieces)}"

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log figures. W&B's own step is left alone: it drops what comes with a smaller one."""
        # By name as they come: of two patterns that fit one name, W&B takes either.
        losses = {name for name in values if name.startswith("val/loss_")} - self._defined
        self._defined |= losses

        def log(run: "wandb.Run") -> None:
            for name in losses:
                run.define_metric(name, step_metric=STEP, summary="min")
            run.log({**values, STEP: step})

        self._send(log)

    def log_images(self, name: str, paths: Sequence[Path], captions: Sequence[str], step: int) -> None:
        """Log PNG files as a row of pictures."""
        import wandb

        pictures = [
            wandb.Image(str(path), caption=caption) for path, caption in zip(paths, captions, strict=True)
        ]
        self._send(lambda run: run.log({name: pictures, STEP: step}))

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], step: int
    ) -> None:
        """Log a table."""
        import wandb

        data = wandb.Table(columns=list(columns), data=[list(row) for row in rows], allow_mixed_types=True)
        self._send(lambda run: run.log({name: data, STEP: step}))

    def log_artifact(
        self, name: str, kind: str, parts: Sequence[Path], metadata: Mapping[str, object]
    ) -> None:
        """Log parts of the run folder as one that `run_folder` gives back, with the configuration, secrets masked.

        They are linked into W&B's part of the run folder, to outlive the originals.
        """
        import wandb

        if not self._log_artifact:
            return
        if self._run is None or self._run.disabled:
            return
        kept = make_numbered_folder(self._folder / "wandb" / "artifacts")
        for part in parts:
            place = kept / part.relative_to(self._folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            if part.is_dir():
                shutil.copytree(part, place, copy_function=os.link)
            else:
                os.link(part, place)
        (kept / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(self._config)), "utf-8")
        artifact = wandb.Artifact(name, type=kind, metadata=dict(metadata))
        # Immutable: otherwise each checkpoint is copied to W&B's folder in the user's home.
        artifact.add_dir(str(kept), skip_cache=True, policy="immutable")
        self._send(lambda run: run.log_artifact(artifact))

    def record_summary(self, values: Mapping[str, object]) -> None:
        """Set figures of the run's summary."""
        self._send(lambda run: run.summary.update(dict(values)))

    def finish(self, exit_code: int) -> None:
        """Close the run and W&B's session, so that the next run of this process begins its own."""
        import wandb

        def close(run: "wandb.Run") -> None:
            try:
                run.finish(exit_code)
            except TimeoutError:
                _log.warning(
                    "W&B has not taken all of the run in time; `%s` sends the rest.", self._sync_line()
                )
            wandb.teardown()

        self._send(close)
        self._run = None

    def _send(self, action: "Callable[[wandb.Run], object]") -> None:
        import wandb
        from wandb.errors import CommError

        if self._run is None:
            return
        try:
            action(self._run)
        except CommError as error:
            _log.warning("W&B did not take something of this run: %s", error)
        except self._lost_errors as error:
            _log.warning("W&B's background process is lost (%s): the run goes on without it.", error)
            # The dead session and its run would break the next run of this process.
            with contextlib.suppress(*self._lost_errors):
                wandb.teardown()
            wandb.run = None
            self._run = None


def run_folder(name: str | Path) -> Path:
    """Return the folder of a run given by its path, or by the name of a checkpoint that `WandbTracker` has logged.

    A checkpoint, `ENTITY/PROJECT/NAME:VERSION` as W&B writes it, is fetched into the folder `artifacts`.

    Raises:
        UserError: it cannot be fetched.
    """
    if Path(name).exists() or not re.fullmatch(r"([\w.-]+/){0,2}[\w.-]+:[\w.-]+", str(name)):
        return Path(name)
    import wandb
    from wandb.errors import AuthenticationError, CommError, UsageError

    session = _session("auto")
    try:
        if not has_key():
            raise UsageError("no key is known; log in with `wandb login`")
        if (problem := find_connection_problem(session.base_url)) is not None:
            raise CommError(problem)
        return Path(wandb.Api().artifact(str(name), type="model").download())
    except (AuthenticationError, CommError, UsageError, ValueError, OSError) as error:
        raise UserError(
            f"{name} cannot be fetched from W&B: {str(error).rstrip('.')}. Or give the folder of a run."
        ) from error


def has_key() -> bool:
    """Return whether a key of W&B is known; nobody is asked for one.

    Raises:
        UserError: what is known can be no key.
    """
    import wandb
    from wandb.errors import AuthenticationError

    try:
        return wandb.login(prompt=False, verify=False)
    except AuthenticationError as error:
        raise UserError(f"The key of W&B cannot be used: {error}") from None


def _session(mode: Mode) -> "wandb.Settings":
    """Return W&B's settings from its files and environment, with the mode asked for."""
    import wandb

    settings = wandb.Settings(silent=True)
    try:
        if mode != "auto":
            settings = wandb.Settings(silent=True, mode=mode)
        return wandb.setup(settings).settings
    except ValueError as error:
        raise UserError(f"W&B's settings (WANDB_… in the environment) are not valid: {error}") from None


def _choose_mode(asked: Mode, session: "wandb.Settings") -> Literal["online", "offline", "disabled"]:
    """Return the mode to start in, without a prompt and with at most one short connection."""
    if session.mode == "disabled":
        return "disabled"
    if session.mode in ("offline", "dryrun"):
        return "offline"
    try:
        known = has_key()
    except UserError as error:
        raise UserError(f"{error} Or use logger.mode=offline.") from None
    if not known:
        if asked == "online" or os.environ.get("WANDB_MODE") == "online":
            raise UserError(
                "W&B's mode is online (logger.mode or WANDB_MODE), but no key is known: run `wandb login`, "
                "set WANDB_API_KEY, or use logger.mode=auto or offline."
            )
        _log.info("No key of W&B is known: the run is recorded offline.")
        return "offline"
    if find_connection_problem(session.base_url) is not None:
        _log.warning("W&B cannot be reached at %s: the run is recorded offline.", session.base_url)
        return "offline"
    return "online"


def _define_metrics(run: "wandb.Run") -> None:
    run.define_metric(STEP, hidden=True)
    for part in ("train", "val", "test"):
        run.define_metric(f"{part}/*", step_metric=STEP)
    run.define_metric("val/bleu", step_metric=STEP, summary="max")
    run.define_metric("val/aer", step_metric=STEP, summary="min")


def _masked(config: Mapping[str, object]) -> dict[str, object]:
    """Return `config` without secrets: by key, by value (the environment's), and in addresses."""
    known = [value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= 8]

    def mask(key: str, value: object) -> object:
        if value is None or isinstance(value, bool):
            return value
        if _SECRET_NAME.search(key):
            return _MASK
        if isinstance(value, Mapping):
            return {inner: mask(str(inner), item) for inner, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [mask(key, item) for item in value]
        if not isinstance(value, str):
            return value
        if any(secret in value for secret in known):
            return _MASK
        return re.sub(r"(?<=://)[^/@\s]+(?=@)", _MASK, value)

    return {key: mask(key, value) for key, value in config.items()}
