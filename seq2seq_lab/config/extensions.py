"""Extensions: a folder with configuration groups and Python files whose classes they name.

The user trusts the modules and packages directly in the folder by naming it, with `--config-dir` on the command line or
`config_dir` in Python; a configuration cannot. The folder is last on the import path, so no file in it hides an
installed module.
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import sha256

# Errors that are reported as mistakes in the user's file; others keep their traceback.
MISTAKES = (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError)

# State of the process, like the import path: Hydra passes a job only its configuration.
_folder: Path | None = None
_on_path: set[str] = set()
_one_at_a_time = threading.Lock()


def folder() -> Path | None:
    """Return the trusted folder."""
    return _folder


def option() -> list[str]:
    """Return the option of a command that names the trusted folder; none without one."""
    if _folder is None:
        return []
    here = Path.cwd()
    return [
        "--config-dir",
        str(_folder.relative_to(here) if _folder.is_relative_to(here) else _folder),
    ]


@contextmanager
def using(given: str | Path | None) -> Iterator[None]:
    """Trust the Python files of one folder within the context; None trusts no folder.

    Modules of the folder are imported again, so a notebook uses changed files.

    Raises:
        UserError: the folder does not exist, or a file in it has the name of another module.
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


@contextmanager
def naming_code_of(given: str | Path) -> Iterator[None]:
    """Let `frame_of` and the other functions of this module read frames of a folder, without importing its files."""
    global _folder
    with _one_at_a_time:
        before, _folder = _folder, Path(given).resolve()
        try:
            yield
        finally:
            _folder = before


@contextmanager
def using_in_turn(given: str | Path | None) -> Iterator[None]:
    """Trust a folder as `using` does, in one thread at a time: the trusted folder is that of the process."""
    with _one_at_a_time, using(given):
        yield


def file_of(module: str) -> Path | None:
    """Return the file of a module in the trusted folder, or None."""
    names = module.split(".")
    if _folder is None or not all(name.isidentifier() for name in names):
        return None
    path = _folder.joinpath(*names)
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


def load(module: str) -> ModuleType:
    """Import a module of the trusted folder.

    Raises:
        UserError: the module has an error, with file and line, or Python has imported another module of this name.
    """
    file = file_of(module)
    assert file is not None, module
    try:
        loaded = importlib.import_module(module)
    except MISTAKES as error:
        raise UserError(where(error)) from error
    origin = loaded.__file__
    if origin is None or not Path(origin).samefile(file):
        raise UserError(
            f"{file}: Python has imported {origin} as the module {module} instead. Rename the file."
        )
    return loaded


def hashes(modules: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each Python file in the trusted folder by relative path; {} if it has none of the modules.

    Files that no import statement can name, such as those of a virtual environment in the folder, are ignored.
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
    """Return a hash of a module of the trusted folder and of the files there that it imports; "" for any other module.

    The import statements are read, also those inside functions; no module is executed. If a file imports by name, with
    `import_module` or `__import__`, all Python files of the folder are included.
    """
    files, waiting = set[Path](), [module]
    while waiting:
        name = waiting.pop()
        file = file_of(name)
        if file is not None and file not in files:
            files.add(file)
            waiting += _imported(name, file)
    if _folder is None or not files:
        return ""
    by_name = any(b"import_module" in (data := file.read_bytes()) or b"__import__" in data for file in files)
    used = {file.relative_to(_folder).as_posix() for file in files}
    every = hashes([module])
    text = "".join(f"{name} {digest}\n" for name, digest in every.items() if by_name or name in used)
    return hashlib.sha256(text.encode()).hexdigest()


def _imported(module: str, file: Path) -> Iterator[str]:
    """Yield the names that may be modules that a module imports, with the packages around them and around itself."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names = [module]
    # A file with a syntax error is imported only where the error is caught.
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names += _imported_from(node, package)
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _imported_from(node: ast.ImportFrom, package: str) -> Iterator[str]:
    """Yield the names that may be modules of `from … import …` in a package; none if the package has no such parent."""
    with suppress(ImportError):
        start = importlib.util.resolve_name(f"{'.' * node.level}{node.module or ''}", package)
        for alias in node.names:
            file = file_of(start) if alias.name == "*" else None
            if file is not None and file.name == "__init__.py":  # `__all__` may name its modules
                yield from (f"{start}.{one.stem}" for one in _modules(file.parent))
            yield f"{start}.{alias.name}"


def where(error: BaseException) -> str:
    """Return an error's message, with the file and the line in the trusted folder that raised it."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    message, frame = f"{type(error).__name__}: {error}", frame_of(error)
    return message if frame is None else f"{frame.filename}, line {frame.lineno}: {message}"


def frame_of(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame of an error's traceback that is in the trusted folder; None if there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if _folder is not None and Path(frame.filename).is_relative_to(_folder)
    ]
    return frames[-1] if frames else None


def places(error: BaseException) -> list[tuple[Path, str]]:
    """Return the file and the class or function of each frame in the trusted folder, the innermost first.

    The class of a method is that of its object, which may inherit the method.
    """
    found = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code, owner = frame.f_code, type(frame.f_locals.get("self"))
        if _folder is None or not Path(code.co_filename).is_relative_to(_folder):
            continue
        file = file_of(owner.__module__)
        found.append(
            (file, owner.__name__) if file else (Path(code.co_filename), code.co_qualname.partition(".")[0])
        )
    return found[::-1]


def hint(module: str) -> str:
    """Return a hint for a module that is not trusted."""
    top = module.split(".")[0]
    if _folder is None:
        return f"If it is a custom component, give the folder of {top}.py: --config-dir FOLDER."
    modules = [path.stem for path in _modules(_folder)]
    return f"--config-dir={_folder} contains no {top}.py.{did_you_mean(top, modules)}"


def _open(new: Path) -> None:
    if not new.is_dir():
        raise UserError(f"--config-dir={new}: this folder does not exist.")
    # Files may have changed, and another folder may have had files with the same names.
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
    """Refuse a file or package if Python would import another module of its name."""
    name, origin = path.stem, "Python's own"
    if name not in sys.stdlib_module_names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            return
        if Path(spec.origin).resolve() in (path.resolve(), (path / "__init__.py").resolve()):
            return
        origin = spec.origin
    raise UserError(
        f"{path} cannot be used: Python would import another module named {name} ({origin}). Rename the file."
    )
