"""What a user did wrong, said so that the user can mend it."""

import contextlib
import difflib
import sys
from collections.abc import Iterable, Iterator


class UserError(ValueError):
    """A mistake in what was asked for. The command line shows its message without a traceback.

    The message names the key, the value, what is allowed and the remedy.
    """


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Tell a user's mistake on standard error and end with status 2; end with 130 where the user interrupts."""
    try:
        yield
    except UserError as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the choice nearest to `word` in spelling, or an empty string."""
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
