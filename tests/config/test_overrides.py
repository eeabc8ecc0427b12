"""The settings of a command line as run.json records them."""

import pytest

from seq2seq_lab.config.command_line import mask_overrides

SECRET = "correct-horse-battery-staple"


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ("trainer.max_steps=40", "trainer.max_steps=40"),
        ("~search.size", "~search.size"),
        ("+metric=[a,b]", "+metric=[a,b]"),
        ("tokenizer.max_tokens=9", "tokenizer.max_tokens=9"),
        ("++dataset.auth_token=hf_abcdefgh", "++dataset.auth_token=***"),
        ("dataset.credentials.user=me", "dataset.credentials.user=***"),
        ("dataset.files={path: a, api_key: b}", "dataset.files=***"),
        ("dataset.path=https://me:word@host/x", "dataset.path=https://***@host/x"),
        (f"cache_dir=/data/{SECRET}/x", "cache_dir=***"),
    ],
)
def test_secrets_are_masked(line: str, recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", SECRET)
    assert mask_overrides([line]) == [recorded]
    assert mask_overrides([recorded]) == [recorded]
