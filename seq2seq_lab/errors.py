"""Errors that the user can correct, and how programs report them."""

import argparse
import contextlib
import difflib
import errno
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn, TextIO

from seq2seq_lab.streams import StreamError, guarded

# Names of other libraries for values of this package. The value of nearest spelling would be a wrong suggestion.
SYNONYMS = {
    **{"gpu": "cuda", "float16": "fp16", "half": "fp16", "float32": "fp32", "bfloat16": "bf16"},
    **{
        "learning_rate": "lr",
        "beam_size": "size",
        "beam": "size",
        "epochs": "max_epochs",
        "steps": "max_steps",
    },
    **{
        "hidden_dim": "hidden_size",
        "embedding_dim": "embedding_size",
        "layers": "num_layers",
        "heads": "num_heads",
    },
}
MOST_NEAREST = 4  # suggestions of words that start alike
SIMILAR = 0.66  # `difflib`'s ratio of two words, from 0 to 1, above which they may be the same word


SEEDS = 2**32  # the number of seeds, as in NumPy and Hydra's settings
SEED = f"a whole number from 0 to {SEEDS - 1}"
# What to do if the operating system cannot write or read a file.
STORAGE_REMEDIES = {
    errno.ENOSPC: "Free some disk space, or choose a folder on another disk",
    errno.EDQUOT: "Free some of your disk quota, or choose a folder on another disk",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f)",
    errno.EMFILE: "Raise the limit on open files (ulimit -n)",
    errno.EROFS: "Choose a folder that can be written to",
    errno.EACCES: "Choose another path, or change its permissions",
    errno.EPERM: "Choose another path, or change its permissions",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.EEXIST: "It is a file, or a link without a target. Choose another folder, or remove it",
    errno.ENOTDIR: "A part of the path is a file. Choose another path",
    errno.ELOOP: "A link refers to itself. Choose another path, or remove it",
    errno.EISDIR: "It is a folder. Choose the path of a file",
}


LINES = "\n\t"  # the control characters of ordinary text
ISOLATES = "\u2066\u2067\u2068\u2069"  # controls of the direction of text; see `runtime.direction.isolate`
# Characters that end or change the display of the text after them: direction overrides, and line separators.
MISLEADING = frozenset("\u2028\u2029\u202a\u202b\u202c\u202d\u202e" + ISOLATES)


def visible(text: str, kept: str = LINES) -> str:
    """Return a text with control characters, such as those of terminals, written as escapes.

    Args:
        kept: the control characters that stay as they are.
    """
    return "".join(
        c.encode("unicode_escape").decode()
        if (unicodedata.category(c) in ("Cc", "Cs") or c in MISLEADING) and c not in kept
        else c
        for c in text
    )


def visible_line(text: str) -> str:
    """Return a text with all control characters, line breaks too, written as escapes."""
    return visible(text, kept="")


def print_visible(text: object, file: TextIO | None = None, kept: str = LINES) -> None:
    """Print a text that may come from a run: at a terminal with control characters as escapes, elsewhere as it is.

    Args:
        file: the stream; None for standard output.
        kept: see `visible`.
    """
    stream = sys.stdout if file is None else file
    print(visible(str(text), kept) if stream.isatty() else text, file=stream)


class UserError(ValueError):
    """An error that the user can correct. Programs print its message without a traceback.

    The message states the key and the value, the allowed values, and what to do.
    """


class ComponentError(UserError):
    """An error in a component of the user. `run.log` has its traceback."""


class Preempted(KeyboardInterrupt):
    """A signal has stopped the run.

    Args:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """The status with which a program exits."""
        return 128 + self.number


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UserError`."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}. See `{self.prog} --help`.")

    def refuse_without(self, needed: str, names: Iterable[str], options: argparse.Namespace) -> None:
        """Raise `UserError` for one of the options `names` if `needed`, without which they have no effect, is not given."""
        if getattr(options, needed) == self.get_default(needed):
            self._refuse(names, options, f"only with {flag(needed)}")

    def refuse_with(self, given: str, names: Iterable[str], options: argparse.Namespace) -> None:
        """Raise `UserError` for one of the options `names`, which have no effect with `given`, if that is given."""
        if getattr(options, given) != self.get_default(given):
            self._refuse(names, options, f"only without {flag(given)}")

    def _refuse(self, names: Iterable[str], options: argparse.Namespace, allowed: str) -> None:
        for name in names:
            value = getattr(options, name)
            require(value == self.get_default(name), flag(name), value, allowed)


def output_file(text: str) -> Path:
    """Return the path of a file to write, as the type of an option: the program refuses a folder before it computes.

    Raises:
        argparse.ArgumentTypeError: it is a folder, or below a file.
    """
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder. Give the path of a file")
    output_folder(str(path.parent))
    return path


def output_folder(text: str) -> Path:
    """Return the path of a folder to write, as the type of an option; see `output_file`.

    Raises:
        argparse.ArgumentTypeError: it is a file, or below one.
    """
    path = Path(text)
    nearest = next((one for one in (path, *path.parents) if one.exists()), Path())
    if not nearest.is_dir():
        raise argparse.ArgumentTypeError(f"{nearest} is a file, not a folder. Choose another path")
    return path


def seed_number(text: str) -> int:
    """Return a seed, as the type of an option.

    Raises:
        argparse.ArgumentTypeError: it is not a whole number from 0 to below `SEEDS`.
    """
    if not (text.isascii() and text.isdigit() and int(text) < SEEDS):
        raise argparse.ArgumentTypeError(f"{text} is not allowed. Allowed: {SEED}")
    return int(text)


@contextlib.contextmanager
def storage_errors(folder: Path | None = None) -> Iterator[None]:
    """Raise `UserError` in place of an `OSError` about a full disk, or a file or folder that must not be written or read.

    Args:
        folder: named if the error does not contain a path.
    """
    try:
        yield
    except StreamError:
        raise
    except OSError as error:
        path = error.filename or folder
        if path is None or error.errno not in STORAGE_REMEDIES:
            raise
        raise UserError(f"{path}: {error.strerror}. {STORAGE_REMEDIES[error.errno]}.") from error


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Print a `UserError` to standard error and exit with status 2; exit with 128 + N after signal N.

    If standard output cannot be written, the error names it. If its reader, such as `head`, has closed it, exit with status
    1 and no message.
    """
    with guarded():
        try:
            with storage_errors():
                try:
                    yield
                finally:
                    sys.stdout.flush()
        except StreamError as error:
            if error.errno == errno.EPIPE:
                sys.exit(1)
            exit_with_error(
                f"{error.filename} cannot be used: {error.strerror}. Redirect it to or from a file."
            )
        except UserError as error:
            exit_with_error(str(error))
        except Preempted as preempted:
            sys.exit(preempted.exit_status)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)


def exit_with_error(message: str) -> NoReturn:
    """Print an error that the user can correct and exit with status 2."""
    print(f"error: {visible(message)}", file=sys.stderr)
    sys.exit(2)


def flag(name: str) -> str:
    """Return an option as it is written on the command line."""
    return f"--{name.replace('_', '-')}"


def require(holds: bool, key: str, value: object, allowed: str) -> None:
    """Raise `UserError` for the value of a key unless `holds` is true."""
    if not holds:
        raise UserError(f"{key}={value} is not allowed. Allowed: {allowed}.")


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number, also one of NumPy; a boolean is not."""
    return type(value) is not bool and isinstance(value, Integral)


def require_index(key: str, value: Any, count: int, what: str) -> None:
    """Raise `UserError` for the value of a key unless it is a whole number from 0 to `count` − 1.

    Args:
        what: the kind of thing that it is the index of, for the message.
    """
    require(
        is_whole(value) and 0 <= value < count,
        key,
        value,
        f"0 to {count - 1}, {what}" if count else f"none: there is no {what}",
    )


def require_seed(value: Any, key: str = "seed") -> None:
    """Raise `UserError` for a seed that is not a whole number from 0 to below `SEEDS`."""
    require(is_whole(value) and 0 <= value < SEEDS, key, value, SEED)


def require_list(function: str, kind: str, given: object, argument: str = "", split: bool = False) -> None:
    """Raise `UserError` if a function that takes a list is given another type, or one text, which is a list of letters.

    Args:
        kind: what the list contains, for the message.
        argument: the name of the argument; "" for the first one.
        split: whether the words of the text are the elements that the caller meant.
    """
    if isinstance(given, str | Path):
        meant, name = (str(given).split() if split else [str(given)]), argument and f"{argument}="
        raise UserError(f"{function} takes a list of {kind}, not one text. Write {name}{meant!r}.")
    try:
        iter(given)  # type: ignore[call-overload]
    except TypeError:
        raise UserError(f"{function} takes a list of {kind}, not {given!r}.") from None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest choices, or an empty string; see `nearest`."""
    near = nearest(word, choices)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def nearest(word: str, choices: Iterable[str], similar: float = SIMILAR) -> list[str]:
    """Return the choices that a misspelled word may stand for.

    A synonym comes first, then the choice that differs only in case, hyphens and underscores, then up to four that start
    with the word, then the one with the most similar spelling.

    Args:
        similar: the least similarity of the spelling; see `SIMILAR`.
    """
    known = list(choices)
    if SYNONYMS.get(word) in known:
        return [SYNONYMS[word]]
    plain = {choice: plain_letters(choice) for choice in known}
    if same := [choice for choice, letters in plain.items() if letters == plain_letters(word)]:
        return same[:1]
    near = [
        choice
        for choice, letters in plain.items()
        if len(word) > 2 and letters.startswith(plain_letters(word))
    ]
    if 0 < len(near) <= MOST_NEAREST:
        return near
    close = difflib.get_close_matches(plain_letters(word), plain.values(), n=1, cutoff=similar)
    return [choice for choice, letters in plain.items() if letters in close][:1]


def plain_letters(word: str) -> str:
    """Return a word in lower case, without hyphens and underscores."""
    return word.lower().replace("-", "").replace("_", "")
