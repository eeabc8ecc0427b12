"""SCAN: every split against an independent interpreter of the commands, and against the published files."""

import gzip
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data.corpus import Corpus
from seq2seq_lab.data.scan import SIMPLE_TEST, Scan, commands, digest
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS

DEFAULTS = Path(__file__).parents[2] / "conf" / "dataset" / "scan.yaml"


def scan(**changes: Any) -> Corpus:
    """Load the corpus with the defaults of the YAML file."""
    arguments: Any = OmegaConf.to_container(OmegaConf.load(DEFAULTS)) | changes  # type: ignore[operator]
    check_slot("dataset", arguments, KINDS)
    assert arguments.pop("_target_") == f"{Scan.__module__}.{Scan.__name__}"
    return Scan(**arguments).load()


def sentences() -> Iterator[str]:
    """Return the sentences of the phrase-structure grammar of the paper's supplement, by its rules."""
    directions = ["left", "right"]
    verbs = ["walk", "look", "run", "jump"]
    phrases = [*verbs, *(f"{verb} {way}" for verb in [*verbs, "turn"] for way in directions)]
    phrases += [
        f"{verb} {how} {way}"
        for verb in [*verbs, "turn"]
        for how in ("opposite", "around")
        for way in directions
    ]
    simple = [phrase + times for phrase in phrases for times in ("", " twice", " thrice")]
    yield from simple
    yield from (f"{left} {word} {right}" for left in simple for word in ("and", "after") for right in simple)


def interpret(command: str) -> list[str]:
    """Return the actions by the interpretation function of the paper, from the words of a command."""
    words = command.split()
    for word in ("and", "after"):
        if word in words:
            cut = words.index(word)
            left, right = interpret(" ".join(words[:cut])), interpret(" ".join(words[cut + 1 :]))
            return left + right if word == "and" else right + left
    if words[-1] in ("twice", "thrice"):
        return interpret(" ".join(words[:-1])) * (2 if words[-1] == "twice" else 3)
    action = [] if words[0] == "turn" else [f"I_{words[0].upper()}"]
    if len(words) == 1:
        return action
    turn = [f"I_TURN_{words[-1].upper()}"]
    match words[1:-1]:
        case []:
            return turn + action
        case ["opposite"]:
            return turn + turn + action
        case ["around"]:
            return (turn + action) * 4
    raise AssertionError(command)


def test_the_commands_are_those_of_the_grammar_and_mean_what_its_interpreter_says() -> None:
    every = commands()
    assert len(every) == 20910
    assert every == {sentence: " ".join(interpret(sentence)) for sentence in sentences()}
    assert max(len(actions.split()) for actions in every.values()) == 48
    assert every["turn left and jump opposite right twice"] == (
        "I_TURN_LEFT I_TURN_RIGHT I_TURN_RIGHT I_JUMP I_TURN_RIGHT I_TURN_RIGHT I_JUMP"
    )


# Sizes, and the first 16 digits of the SHA-256 of the sorted distinct lines `command TAB actions`, of the published files.
# None: no checksum is known.
PUBLISHED = {
    "length": (16990, 3920, "b449c787a4c2e816", "e9bd0b06cb972a4a"),
    "add_jump": (14670, 7706, "1a1f56ee80a0cd39", "af971a314cdeda91"),
    "add_turn_left": (21890, 1208, "25df5ee47471b272", "871b1eb91236d07b"),
    "around_right": (15225, 4476, None, None),
    "jump_around_right": (18528, 1173, None, None),
}


@pytest.mark.parametrize("split", PUBLISHED)
def test_a_split_equals_the_published_one(split: str) -> None:
    corpus = scan(split=split)
    train, test, train_digest, test_digest = PUBLISHED[split]
    assert (len(corpus.train), len(corpus.tests["test"])) == (train, test)
    if train_digest is not None:
        found = [
            digest(zip(text.source, text.target, strict=True))
            for text in (corpus.train, corpus.tests["test"])
        ]
        assert found == [train_digest, test_digest]
    assert set(corpus.train.source).isdisjoint(corpus.tests["test"].source)
    assert set(corpus.validation.source) <= set(corpus.train.source)


@pytest.mark.parametrize(("split", "primitive"), [("add_jump", "jump"), ("add_turn_left", "turn left")])
def test_a_primitive_is_a_tenth_of_the_training_pairs(split: str, primitive: str) -> None:
    for hold_out in (False, True):
        corpus = scan(split=split, hold_out=hold_out)
        times = Counter(corpus.train.source)
        assert times.pop(primitive) == len(times) // 9
        assert set(times.values()) == {1}
        assert not [command for command in times if primitive in command]
        assert all(primitive in command for command in corpus.tests["test"].source)


@pytest.mark.parametrize("split", ["around_right", "jump_around_right"])
def test_a_template_is_only_in_the_test_split(split: str) -> None:
    corpus = scan(split=split)
    phrase = split.replace("_", " ")
    assert not [command for command in corpus.train.source if phrase in command]
    assert all(phrase in command for command in corpus.tests["test"].source)
    for text in (corpus.train, corpus.tests["test"]):
        assert not [command for command in text.source if "turn around right" in command]


def test_the_length_split_has_the_long_outputs_in_the_test_split() -> None:
    corpus = scan(split="length")
    for text, longest in ((corpus.train, 22), (corpus.tests["test"], 48)):
        assert text.lengths is not None
        assert max(target for _, target in text.lengths) == longest
    assert min(target for _, target in corpus.tests["test"].lengths or ()) == 24


def test_the_simple_split_is_random_and_named_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        corpus = scan()
    assert "not the published one" in caplog.text
    assert (len(corpus.train), len(corpus.tests["test"])) == (16728, SIMPLE_TEST)
    assert sorted([*corpus.train.source, *corpus.tests["test"].source]) == sorted(commands())
    assert scan().tests["test"].source == corpus.tests["test"].source
    assert scan(seed=2).tests["test"].source != corpus.tests["test"].source


def test_the_test_commands_of_the_simple_split_can_be_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = commands()
    chosen = [*every][::5]
    file = tmp_path / "test.txt"
    file.write_text("".join(f"{command}\n" for command in reversed(chosen)))
    corpus = scan(path=str(file))
    assert f"dataset.path={file} is not the published test split" in caplog.text
    caplog.clear()
    monkeypatch.setattr("seq2seq_lab.data.scan.SIMPLE_DIGEST", digest((one, every[one]) for one in chosen))
    assert corpus.tests["test"].source == chosen
    assert len(corpus.train) == 20910 - len(chosen)
    published = tmp_path / "tasks_test_simple.txt.gz"
    lines = "".join(f"IN: {command} OUT: {every[command]}\n" for command in chosen)
    published.write_bytes(gzip.compress(lines.encode()))
    assert scan(path=str(published)).tests["test"] == corpus.tests["test"]
    assert not caplog.text


def test_the_commands_are_predicted_from_the_actions() -> None:
    forward, backward = scan(split="length"), scan(split="length", direction="commands")
    assert (backward.source_language, backward.target_language) == ("actions", "commands")
    for name, text in forward.splits.items():
        other = backward.splits[name]
        assert (other.source, other.target, other.phenomena) == (text.target, text.source, text.phenomena)
        assert [pair[::-1] for pair in other.lengths or ()] == text.lengths


def test_validation_pairs_can_be_left_out_of_training() -> None:
    kept, left_out = scan(split="length", validation=300), scan(split="length", validation=300, hold_out=True)
    assert kept.validation == left_out.validation
    assert set(left_out.train.source) == set(kept.train.source) - set(kept.validation.source)
    assert len(left_out.train) == 16990 - 300


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"split": "length", "path": "test.txt"}, "dataset.path=test.txt"),
        ({"path": "missing.txt"}, "dataset.path=missing.txt"),
        ({"validation": 16728}, "dataset.validation=16728"),
        ({"split": "lenght"}, "dataset.split=lenght"),
    ],
)
def test_an_error_names_the_setting(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        scan(**changes)


@pytest.mark.parametrize(("text", "named"), [("jump\nfly\n", "line 2"), ("", "0 of the 20,910")])
def test_a_file_with_other_lines_is_refused(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "test.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=named):
        scan(path=str(file))
