"""The user's own parts: a folder of configuration groups with the Python files whose classes they name.

Naming the folder, with `--config-dir` on the command line or `config_dir` in Python, is what trusts the modules
and packages that lie directly in it; no configuration can. It is put at the end of the import path, so that
nothing in it can stand before an installed module.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import sha256

# What goes wrong in a file that somebody is writing; anything else keeps its traceback.
MISTAKES = (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError)

# Of the process, as the import path is: Hydra calls a job with nothing but its configuration.
_folder: Path | None = None
_on_path: set[str] = set()


def folder() -> Path | None:
    """Return the folder that is trusted now."""
    return _folder


@contextmanager
def using(given: str | Path | None) -> Iterator[None]:
    """Trust the Python files of a folder, and no other folder's, within the context; None trusts none.

    Its modules are imported anew, so that a notebook sees what was changed in a file.

    Raises:
        UserError: there is no such folder, or a file in it has the name of another module.
    """
    global _folder
    new = None if given is None else Path(given).resolve()
    if new == _folder:
        yield
        return
    if new is not None:
        _open(new)
    before, _folder = _folder, new
    try:
        yield
    finally:
        _folder = before


def file_of(module: str) -> Path | None:
    """Return the file in the trusted folder that a module's dotted name stands for, or None."""
    names = module.split(".")
    if _folder is None or not all(name.isidentifier() for name in names):
        return None
    path = _folder.joinpath(*names)
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


def load(module: str) -> ModuleType:
    """Import a module that `file_of` finds in the trusted folder.

    Raises:
        UserError: a mistake in it, with file and line, or another module of this name was imported before.
    """
    file = file_of(module)
    assert file is not None, module
    try:
        loaded = importlib.import_module(module)
    except MISTAKES as error:
        raise UserError(where(error)) from error
    origin = loaded.__file__
    if origin is None or not Path(origin).samefile(file):
        raise UserError(f"{file} was passed over for another module {module}, of {origin}. Rename it.")
    return loaded


def hashes(modules: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each Python file of the trusted folder by its path in it; {} if none of the modules is there.

    Files that no import statement can name, as those of a virtual environment in the folder, are left out.
    """
    if _folder is None or not any(file_of(module) for module in modules):
        return {}
    named = [(path, path.relative_to(_folder)) for path in sorted(_folder.rglob("*.py"))]
    return {
        name.as_posix(): sha256(path)
        for path, name in named
        if all(part.isidentifier() for part in name.with_suffix("").parts)
    }


def fingerprint(module: str) -> str:
    """Return a hash of the trusted folder's Python files if a module lies there, else an empty string."""
    files = hashes([module])
    text = "".join(f"{name} {digest}\n" for name, digest in files.items())
    return hashlib.sha256(text.encode()).hexdigest() if files else ""


def where(error: BaseException) -> str:
    """Return the file and the line of the trusted folder that an error comes from, and what it says."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    said = f"{type(error).__name__}: {error}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if _folder is not None and Path(frame.filename).is_relative_to(_folder)
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: {said}" if frames else said


def hint(module: str) -> str:
    """Return how to trust a module that is not trusted."""
    top = module.split(".")[0]
    if _folder is None:
        return f"Is it your own, give the folder of {top}.py on the command line: --config-dir FOLDER."
    modules = [path.stem for path in _modules(_folder)]
    return f"--config-dir={_folder} holds no {top}.py.{did_you_mean(top, modules)}"


def _open(new: Path) -> None:
    if not new.is_dir():
        raise UserError(f"--config-dir={new}: there is no such folder.")
    # Files may have changed since, and another folder may have had files of the same names.
    within = tuple(f"{folder}{os.sep}" for folder in _on_path)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(within):
            del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if entry not in _on_path]
    importlib.invalidate_caches()
    for path in _modules(new):
        _refuse_taken_name(path)
    if str(new) not in sys.path:
        sys.path.append(str(new))
        _on_path.add(str(new))


def _modules(within: Path) -> list[Path]:
    """Return the Python files and packages directly in a folder."""
    paths = [path for path in sorted(within.iterdir()) if path.suffix == ".py" or any(path.glob("*.py"))]
    return [path for path in paths if path.stem.isidentifier() and not path.stem.startswith("__")]


def _refuse_taken_name(path: Path) -> None:
    """Refuse a file or package that Python would pass over for another module of its name."""
    name, origin = path.stem, "Python's own"
    if name not in sys.stdlib_module_names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            return
        if Path(spec.origin).resolve() in (path.resolve(), (path / "__init__.py").resolve()):
            return
        origin = spec.origin
    raise UserError(
        f"{path} cannot be used: {name} is the name of another module ({origin}), which Python would import in "
        f"its place. Rename it, and what names it."
    )
