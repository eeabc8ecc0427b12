"""seq2seq_lab: a Hydra-configured research harness for sequence-to-sequence models with attention.

`train` starts a run from Python as the command line does, `load` opens one that has been trained, `runs` lists runs, and
`compare` compares them.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seq2seq_lab.api import Loaded as Loaded
    from seq2seq_lab.api import LoadedTranslation as LoadedTranslation
    from seq2seq_lab.api import Prediction as Prediction
    from seq2seq_lab.api import Translation as Translation
    from seq2seq_lab.api import compare as compare
    from seq2seq_lab.api import difference as difference
    from seq2seq_lab.api import ensemble as ensemble
    from seq2seq_lab.api import load as load
    from seq2seq_lab.api import runs as runs
    from seq2seq_lab.api import train as train

__version__ = "0.3.0"
__path__.append(str(Path(__file__).parent / "renamed"))  # programs of earlier versions

__all__ = [
    *("Loaded", "LoadedTranslation", "Prediction", "Translation"),
    *("compare", "difference", "ensemble", "load", "runs", "train"),
]


def __getattr__(name: str) -> Any:
    # Torch takes seconds to import: what does not compute (--help, a misspelling) does not wait for it.
    if name in __all__:
        return getattr(importlib.import_module("seq2seq_lab.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
