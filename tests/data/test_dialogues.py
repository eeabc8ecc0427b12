"""Generated dialogues, whose answer follows from the deciding turn, and files of dialogues."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.dialogue import REMARKS, TOPICS, Dialogue, DialogueCorpus, DialogueText
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError


def dialogues(**settings: Any) -> Dialogue:
    given = {
        "path": None,
        "encoding": None,
        "on_bad_pair": "error",
        "turns": None,
        "language": "en",
        "train": 400,
        "validation": 5,
        "test": 5,
        "max_distance": 5,
        "overwritten": 0.5,
    }
    return Dialogue(**{**given, "seed": 1, **settings})


def answer(turns: list[str]) -> tuple[str, int, set[str]]:
    """Return the answer to the last turn, its distance to the deciding turn, and all stated values."""
    (topic,) = [topic for topic in TOPICS if topic.question == turns[-1]]
    pattern = re.escape(topic.statement).replace(r"\{\}", "([a-z]+)")
    stated = [
        (number, found[1]) for number, turn in enumerate(turns) if (found := re.fullmatch(pattern, turn))
    ]
    number, _ = stated[-1]
    return turns[number], len(turns) - 1 - number, {value for _, value in stated}


def test_the_answer_follows_from_the_deciding_turn() -> None:
    text = dialogues().load().train
    assert isinstance(text, DialogueText)
    assert text.distances is not None
    assert text.phenomena is not None
    kinds: Counter[str] = Counter()
    for context, response, distance, phenomena in zip(
        text.source, text.target, text.distances, text.phenomena, strict=True
    ):
        turns = context.split(TURN)
        found, found_distance, values = answer(turns)
        assert (found, found_distance) == (response, distance)
        assert phenomena == {"overwritten" if len(values) > 1 else "stated once"}
        kinds.update(phenomena)
        kinds["remark"] += any(turn in REMARKS for turn in turns)
        kinds["other fact"] += sum(turn not in REMARKS for turn in turns) > 2
    assert min(kinds["overwritten"], kinds["stated once"], kinds["remark"], kinds["other fact"]) > 50
    assert set(text.distances) == {1, 2, 3, 4, 5}


def test_dialogues_are_a_function_of_the_seed_and_not_of_other_splits() -> None:
    first, again, other = dialogues().load(), dialogues(train=3).load(), dialogues(seed=2).load()
    assert first.validation == again.validation
    assert first.train.source[:3] == again.train.source
    assert first.validation.source != other.validation.source


LINES = [
    json.dumps(["how are  you ?", "fine .", "good ."]),
    json.dumps([{"speaker": "ann", "text": "hi"}, {"speaker": "bob", "text": "hello"}, {"text": "bye"}]),
]


def read(folder: Path, lines: list[str], **settings: Any) -> DialogueCorpus:
    (folder / "train.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "validation.jsonl").write_text(f"{LINES[0]}\n", "utf-8")
    with gzip.open(folder / "test.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(f"{LINES[1]}\n")
    return dialogues(path=str(folder), **settings).load()


def pairs_of(text: ParallelText) -> list[tuple[str, str]]:
    return list(zip(text.source, text.target, strict=True))


def test_each_turn_but_the_first_is_a_response(tmp_path: Path) -> None:
    corpus = read(tmp_path, LINES)
    assert pairs_of(corpus.train) == [
        ("how are you ?", "fine ."),
        (f"how are you ?{TURN}fine .", "good ."),
        ("ann: hi", "hello"),
        (f"ann: hi{TURN}bob: hello", "bye"),
    ]
    assert corpus.tests["test"].target == ["hello", "bye"]
    assert isinstance(corpus.train, DialogueText)
    assert corpus.train.distances is None


def test_held_out_responses_of_training_dialogues_are_counted(tmp_path: Path) -> None:
    counts = read(tmp_path, [*LINES, LINES[0]]).counts
    assert (counts["duplicate_pairs"], counts["leaked_pairs"], counts["leaked_sources"]) == (2, 4, 4)
    assert read(tmp_path, ['["how are you ?", "well ."]']).counts["leaked_sources"] == 1
    assert dialogues().load().counts == {}  # nothing is counted


def test_a_split_without_responses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.jsonl has no responses"):
        read(tmp_path, ['["a", " "]'], on_bad_pair="drop")


def test_a_response_with_an_unusable_turn_is_refused_or_dropped(tmp_path: Path) -> None:
    lines = [
        '["a", "b", " ", "d", "e"]',
        '[{"text": "f", "speaker": 1}, "g", {"text": "h"}]',
        "no dialogue",
        '["\\ud800", "i"]',
    ]
    with pytest.raises(UserError, match=r"train\.jsonl line 1: turn 3, .*dataset\.on_bad_pair=drop"):
        read(tmp_path, lines)
    with pytest.raises(UserError, match=r"train\.jsonl line 2: the line is empty"):
        read(tmp_path, ['["a", "b"]', ""])
    corpus = read(tmp_path, lines, on_bad_pair="drop", turns=1)
    assert pairs_of(corpus.train) == [("a", "b"), ("d", "e"), ("g", "h")]
    assert corpus.counts["dropped_pairs"] == 5
    corpus = read(tmp_path, lines, on_bad_pair="drop")
    assert pairs_of(corpus.train) == [("a", "b")]
    assert corpus.counts["dropped_pairs"] == 7


def test_the_last_turns_before_the_response_are_the_context(tmp_path: Path) -> None:
    corpus = read(tmp_path, ['["a", {"speaker": "ann", "text": "b"}, "c", "d"]'], turns=2)
    assert pairs_of(corpus.train) == [("a", "b"), (f"a{TURN}ann: b", "c"), (f"ann: b{TURN}c", "d")]
    whole, cut = dialogues().load().train, dialogues(turns=2).load().train
    assert cut.source == [TURN.join(context.split(TURN)[-2:]) for context in whole.source]
    assert cut.target == whole.target
    assert max(context.count(TURN) for context in whole.source) > 1


def test_escaped_letters_are_composed_as_others_are(tmp_path: Path) -> None:
    corpus = read(tmp_path, [*LINES, r'["cafe\u0301?", "yes."]', '["cafe\u0301?", "no."]'])
    assert corpus.train.source[-2:] == ["caf\u00e9?"] * 2


def test_the_responses_in_a_dialogue_are_a_cluster(tmp_path: Path) -> None:
    clusters = read(tmp_path, LINES).train.clusters
    assert [*(clusters or ())] == [1, 1, 2, 2]
    assert dialogues().load().train.clusters is None


@pytest.mark.parametrize(
    "line",
    [
        "how are you ?",
        json.dumps({"turns": ["a", "b"]}),
        json.dumps(["alone"]),
        json.dumps(["a", 3]),
        json.dumps(["a", " "]),
        json.dumps(["a", {"speaker": "ann"}]),
        json.dumps(["a", {"text": "b", "mood": "good"}]),
        json.dumps(["a", {"text": "b", "speaker": 1}]),
        '["a", {"text": "b", "text": "c"}]',
        "[" * 100_000,
        "",
    ],
)
def test_a_line_of_another_format_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.jsonl line 3"):
        read(tmp_path, [*LINES, line])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(LINES[0])
    with pytest.raises(UserError, match=r"validation\.jsonl not found"):
        dialogues(path=str(tmp_path)).load()


def test_files_have_a_language_and_generated_dialogues_are_english(tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        (tmp_path / f"{name}.jsonl").write_text('["你好吗？", "很好。"]\n', "utf-8")
    corpus = dialogues(path=str(tmp_path), language="zh").load()
    assert (corpus.source_language, corpus.target_language) == ("zh", "zh")
    with pytest.raises(UserError, match=r"dataset\.language=zh"):
        dialogues(language="zh")
