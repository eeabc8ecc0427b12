"""The programs of earlier versions print the command that replaced them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("translate RUN 'a b.en' search=beam --scores", "predict RUN 'a b.en' search=beam --scores"),
        ("caption RUN a.png", "predict RUN a.png"),
        ("generate RUN", "predict RUN --count 10"),
        ("generate RUN --count=3", "predict RUN --count=3"),
        ("generate RUN --score", "predict RUN --log-probs"),
        ("generate RUN --continue --count 2", "predict RUN - --count 2"),
        ("reproduce RUN", "runs RUN --reproduce"),
        ("dashboard --entity TEAM", "compare FOLDER --wandb ENTITY/PROJECT"),
    ],
)
def test_the_new_command_is_printed(old: str, new: str) -> None:
    ended = subprocess.run(
        f"{sys.executable} -m seq2seq_lab.{old}", shell=True, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith(f" is now: python -m seq2seq_lab.{new}\n")
