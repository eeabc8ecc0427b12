"""The text and the example that `experiment=word_language_model` is compared with."""

import json
from pathlib import Path

import pytest

from benchmarks import word_language_model
from seq2seq_lab.errors import UserError

EXAMPLE = """
import argparse
parser = argparse.ArgumentParser()
for name in ("data", "save"):
    parser.add_argument(f"--{name}")
for name in ("seed", "epochs"):
    parser.add_argument(f"--{name}", type=int)
options = parser.parse_args()
words = open(f"{options.data}/train.txt").read().split()
for epoch in range(options.epochs):
    print(f"| end of epoch {epoch} | valid ppl {20.5 + abs(epoch - 1):8.2f}")
print(f"| End of training | test ppl {len(words) + options.seed:8.2f}")
"""


def test_the_text_has_the_format_of_the_penn_treebank(tmp_path: Path) -> None:
    for name, text in {"a": "A man, a Dog.\n\nA man.\n", "b": "A dog.\n", "c": "The man.\n"}.items():
        (tmp_path / name).write_text(text, "utf-8")
    files = [
        f"--{split}={tmp_path / name}" for split, name in zip(word_language_model.SPLITS, "abc", strict=True)
    ]
    word_language_model.main(["text", str(tmp_path / "made"), *files])
    texts = {path.name: path.read_text("utf-8") for path in (tmp_path / "made").iterdir()}
    assert texts == {
        "train.txt": " a man <unk> a <unk> . \n a man . \n",
        "valid.txt": " a <unk> . \n",
        "test.txt": " <unk> man . \n",
    }


def test_the_table_has_the_perplexities_that_the_example_prints(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(EXAMPLE, "utf-8")
    (tmp_path / "train.txt").write_text("a b", "utf-8")
    report = tmp_path / "report.json"
    paths = [str(tmp_path / "main.py"), str(tmp_path)]
    word_language_model.main(["example", *paths, "--epochs=3", "--seeds", "1", "3", f"--json={report}"])
    runs = json.loads(report.read_text("utf-8"))["runs"]
    assert [(run["seed"], run["val"], run["test"]) for run in runs] == [(1, 20.5, 3.0), (3, 20.5, 5.0)]
    table = word_language_model.example_table(report)
    assert [line for line in table if line.startswith("|")][2:5] == [
        "| seeds | 1, 3 |",
        "| perplexity per word ± std | 4.00 ± 1.41 |",
        "| validation perplexity per word ± std | 20.50 |",
    ]


def test_a_perplexity_that_is_not_a_number_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('valid ppl nan test ppl nan')", "utf-8")
    with pytest.raises(UserError, match="--seed 2 has not printed a perplexity"):
        word_language_model.train_example(tmp_path / "main.py", tmp_path, 2, 1)


def test_a_script_that_fails_is_an_error_with_its_message(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("raise SystemExit('no data')", "utf-8")
    with pytest.raises(UserError, match=r"main\.py ended with code 1:\nno data"):
        word_language_model.train_example(tmp_path / "main.py", tmp_path, 1, 1)
