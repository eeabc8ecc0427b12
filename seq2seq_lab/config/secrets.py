"""Secrets in the environment and in settings, which no run records."""

import os
import re
from collections.abc import Mapping, Sequence

from seq2seq_lab.errors import UserError

# Matches `…token`, but not the settings `tokenizer` and `max_tokens`.
SECRET_NAME = re.compile(
    r"secret|passw|passphrase|credential|bearer|(api|access|private|auth)[_-]?key|token$|(^|[_-])auth$",
    re.IGNORECASE,
)
URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
MASK = "***"


def environment_secrets() -> dict[str, str]:
    """Return the environment variables with the name of a secret and at least eight characters."""
    return {name: value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= 8}


def check_secrets(config: Mapping[str, object]) -> None:
    """Refuse a configuration that contains a secret of the environment, such as `${oc.env:WANDB_API_KEY}`.

    Raises:
        UserError: names the key and the environment variable.
    """
    known = environment_secrets()

    def check(key: str, value: object) -> None:
        if isinstance(value, Mapping):
            for inner, item in value.items():
                check(f"{key}.{inner}" if key else str(inner), item)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            for index, item in enumerate(value):
                check(f"{key}[{index}]", item)
        else:
            for name, secret in known.items():
                if secret in str(value):
                    raise UserError(
                        f"{key} contains the value of the environment variable {name}, and the run folder records every "
                        f"setting. Remove it; W&B and the Hugging Face hub read their keys from the environment."
                    )

    check("", config)


def mask_text(text: str) -> str:
    """Mask the secrets of the environment and the credentials of URLs in a text."""
    for secret in sorted(environment_secrets().values(), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return URL_CREDENTIALS.sub(MASK, text)


def mask_secrets(config: Mapping[str, object]) -> dict[str, object]:
    """Mask values whose key or text looks like a secret: by name, by secrets in the environment, and in URLs."""
    known = environment_secrets().values()

    def mask(key: str, value: object) -> object:
        if value is None or isinstance(value, bool):
            return value
        if SECRET_NAME.search(key):
            return MASK
        if isinstance(value, Mapping):
            return {inner: mask(str(inner), item) for inner, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [mask(key, item) for item in value]
        if not isinstance(value, str):
            return value
        if any(secret in value for secret in known):
            return MASK
        return URL_CREDENTIALS.sub(MASK, value)

    return {key: mask(key, value) for key, value in config.items()}
