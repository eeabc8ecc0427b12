"""Show the functions of the package from a command to the backward pass, and to the scores of the attention function.

    python -m benchmarks.call_path [SETTING...]

Trains a few steps of the default configuration, with these settings, in a temporary folder. The lines of a function include
its docstring. Functions of Hydra and PyTorch are not counted.
"""

import contextlib
import inspect
import io
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any
from unittest import mock

import torch

import seq2seq_lab
from seq2seq_lab.models import attention

PACKAGE = Path(seq2seq_lab.__file__).parent
SETTINGS = (
    *("logger=none", "trainer.device=cpu", "trainer.precision=fp32", "trainer.threads=1"),
    *("trainer.fast_dev_run=true", "dataset.train=40"),
)
FIRST = "run.py"  # the file from which a reader follows one training step
STEP = "training/step.py"  # on the path of a training step, unlike a validation before the first

Functions = list[CodeType]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both paths."""
    for target, path in call_paths(sys.argv[1:] if arguments is None else arguments).items():
        start = [file_of(code) for code in path].index(FIRST)
        print(f"{target}: {summary(path)}; from {FIRST}: {summary(path[start:])}")
        for code in path:
            print(f"  {file_of(code):35} {code.co_name:15} {lines_of(code):3} lines")


def call_paths(settings: Sequence[str]) -> dict[str, Functions]:
    """Run the program; return the functions of the package, the outermost first, by which a step first calls each target."""
    found: dict[str, Functions] = {}

    def noting(target: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*values: Any, **named: Any) -> Any:
            if target not in found:
                frames = [info.frame.f_code for info in reversed(inspect.stack(0)[1:])]
                path = [code for code in frames if PACKAGE in Path(code.co_filename).parents]
                if STEP in map(file_of, path):
                    found[target] = path
            return function(*values, **named)

        return noted

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
        patches.enter_context(
            mock.patch.object(torch.Tensor, "backward", noting("backward", torch.Tensor.backward))
        )
        for kind in vars(attention).values():
            if inspect.isclass(kind) and "score" in vars(kind):
                patches.enter_context(mock.patch.object(kind, "score", noting("score", vars(kind)["score"])))
        patches.enter_context(
            arguments_of("seq2seq_lab", *SETTINGS, *settings, f"hydra.run.dir={folder}/run")
        )
        patches.enter_context(contextlib.redirect_stdout(io.StringIO()))
        runpy.run_module("seq2seq_lab", run_name="__main__", alter_sys=True)
    return found


@contextmanager
def arguments_of(*words: str) -> Iterator[None]:
    """Set the command line of this process."""
    with mock.patch.object(sys, "argv", [*words]):
        yield


def summary(path: Functions) -> str:
    """Return the numbers of functions, files and lines of a path."""
    lines = sum(lines_of(code) for code in path)
    return f"{len(path)} functions in {len({*map(file_of, path)})} files, {lines} lines"


def file_of(code: CodeType) -> str:
    """Return the file of a function, in the package."""
    return Path(code.co_filename).relative_to(PACKAGE).as_posix()


def lines_of(code: CodeType) -> int:
    """Return the number of lines of a function; 1 for the call in `__main__`."""
    return 1 if code.co_name == "<module>" else len(inspect.getsourcelines(code)[0])


if __name__ == "__main__":
    main()
