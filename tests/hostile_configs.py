"""Configurations that name functions to be called. All are refused."""

from pathlib import Path

HOSTILE_ARGUMENTS = (
    *(f"{slot}._target_=os.system" for slot in ("encoder", "dataset", "optimizer", "logger")),
    "dataset._target_=seq2seq_lab.files.write_atomically",
    "dataset._target_=seq2seq_lab.tracking.files.FileTracker +dataset.folder=. +dataset.resumed=null",
    "dataset._target_=seq2seq_lab.launching.cli.Path",
    "dataset._target_=seq2seq_lab.launching.cli.os.system",
    "dataset._target_=torch.optim.os.system",
    "+encoder.x._target_=os.system",
    "+logger.tags=[{_target_:os.system}]",
    "+optimizer._args_=[x]",
    "+optimizer._partial_=true",
    "+optimizer._recursive_=true",
    "+optimizer._convert_=none",
    "+x._target_=os.system",
    "+trainer.x._target_=os.system",
    "+hydra.callbacks.x._target_=os.system",
    "+hydra.callbacks.x._target_=hydra.main.copy.os.system",
    "hydra.launcher._target_=os.system",
    "+hydra.launcher.x._target_=os.system",
    "hydra.sweeper._target_=os.system",
    "+hydra.job_logging.handlers.x.class=logging.os.system",
    "+hydra.job_logging.formatters.x={'()':os.system}",
    "+hydra.hydra_logging.handlers.x={'()':os.system}",
    "+hydra.callbacks.x='${oc.create:{_target_:os.system}}'",
    "+hydra.callbacks='${oc.create:{x:{_target_:os.system}}}'",
    "hydra.sweeper.params='${oc.decode:\"{_target_: os.system}\"}'",
    "hydra.launcher._target_='${oc.env:HOME}'",
    "hydra.run.dir='${hydra_override_dirname:}'",
    "+hydra.callbacks.x='${hydra_override_dirname:}'",
    "+hydra.job.env_set.SEQ2SEQ_LAB_TRUST=os",
    "hydra.job.env_set={SEQ2SEQ_LAB_TRUST:os}",
    "hydra/job_logging=default",
    "+hydra.job_logging.handlers.x={class:logging.StreamHandler,stream:'ext://antigravity'}",
    "+hydra.hydra_logging.handlers.x={class:logging.FileHandler,filename:x.log}",
    "study.number=1 +hydra.callbacks.x=${metric.m} +metric.m._target_=os.system",
    "+hydra.callbacks=${metric} +metric.m._target_=os.system",
    "hydra.launcher=${metric.m} +metric.m._target_=os.system",
    "+hydra.callbacks.x=${hydra.launcher} hydra.launcher._target_=hydra_plugins.seq2seq_lab_launcher.os.system",
    "+hydra.callbacks.x=${hydra:launcher} hydra.launcher._target_=hydra_plugins.seq2seq_lab_launcher.os.system",
    "+hydra.callbacks.x=${..optimizer} optimizer._target_=os.system",
    "hydra.job_logging=${metric.m} +metric.m._target_=os.system",
    "-m +hydra.callbacks.x._target_=os.system",
    "-m seed=1,2 +hydra.callbacks.x=${metric.m} +metric.m._target_=os.system",
    "-m seed=1,2 encoder._target_=os.system",
)

# Callbacks in an experiment file, and what the error names.
HOSTILE_FILES = {
    "{_target_: subprocess.Popen, args: [touch, CANARY]}": "subprocess.Popen",
    "${oc.create:{_target_:os.mkdir,path:CANARY}}": "oc.create",
    "\"${oc.decode:'{_target_: os.mkdir, path: CANARY}'}\"": "oc.decode",
    "{_target_: '${oc.env:CALLED}', path: CANARY}": "oc.env",
    "'${metric.m}'": "metric.m",
}

# A study whose callback refers to a key that is harmless in each job, and in some cases in the checked configuration.
HOSTILE_STUDY = """\
# @package _global_
hydra:
  callbacks:
    x: ${KEY}
  sweeper:
    cells:
      - {HARMLESS}
KEY:
  _target_: logging.FileHandler
  filename: CANARY
"""


def write_hostile_experiment(folder: Path, callback: str, canary: Path) -> Path:
    """Write experiment/evil.yaml with a callback that would create the canary, and return the folder."""
    (folder / "experiment").mkdir(parents=True, exist_ok=True)
    lines = [
        "# @package _global_",
        "hydra:",
        "  callbacks:",
        f"    x: {callback.replace('CANARY', str(canary))}",
    ]
    (folder / "experiment" / "evil.yaml").write_text("\n".join(lines) + "\n")
    return folder


def write_hostile_study(folder: Path, key: str, harmless: str, canary: Path) -> Path:
    """Write study/evil.yaml, whose callback would create the canary, and return the folder.

    Args:
        key: the key that the callback refers to.
        harmless: the settings of the jobs, which replace it.
    """
    (folder / "study").mkdir(parents=True, exist_ok=True)
    text = HOSTILE_STUDY.replace("HARMLESS", harmless).replace("CANARY", str(canary))
    section, _, name = key.partition(".")
    text = text.replace("KEY:\n  _target_", f"{section}:\n {name}:\n  _target_").replace("KEY", key)
    (folder / "study" / "evil.yaml").write_text(text)
    return folder
