"""Masked language model: a run from training to predictions, resumed, on two ranks; masks, pairs, loss and predictions."""

import io
import math
import sys
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from finished_runs import check_ranks, check_resumed, losses_of, result_of, rows_of
from torch.nn import functional

from seq2seq_lab import api, predict
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.sentences import Sentences
from seq2seq_lab.data.tokenizers import EOS, SPECIALS, UNK, CharTokenizer, WordTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.masked_language_model import MASK
from seq2seq_lab.runtime.counter_rng import uniform
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.masked_language_model.data import (
    MaskedBatches,
    MaskedTokens,
    Masking,
    NextSentences,
    encode_masked,
    fill,
    joined,
    mask,
)
from seq2seq_lab.tasks.masked_language_model.evaluation import (
    MaskedOutputs,
    MaskedSplit,
    MaskedText,
    TaggedTypes,
    are_parts_of_speech,
    examples_of,
)
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tasks.splits import TextSplit
from seq2seq_lab.tasks.tagging.data import IGNORED

MACHINE = ("logger=none", "trainer.device=cpu", "trainer.precision=fp32", "trainer.log_every_steps=1")
SIZES = ("model.embedding_size=8", "model.num_heads=2", "model.feedforward_size=8", "task.samples=1")
LINE = (
    *("experiment=masked_language_model", "dataset.sentences=120", "dataset.max_depth=1", *SIZES, *MACHINE),
    *("trainer.max_epochs=2", "task.batch_size=16", "optimizer.lr=0.02"),
)  # fmt: skip
PAIRS = (
    *("task=masked_language_model", "dataset=sentence_pairs", "dataset.pairs=90", "task.next_sentence=true"),
    *("tokenizer=whitespace", "encoder=bigru", "model.encoder_hidden_size=8", "task.batch_size=16"),
    *("trainer.max_epochs=2", *SIZES, *MACHINE),
)  # fmt: skip
MASKING = Masking(share=0.15, masked=0.8, random=0.1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked") / "run"
    assert command_line.run(*LINE, f"hydra.run.dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "run"
    assert command_line.run(*PAIRS, f"hydra.run.dir={folder}") == 0
    return folder


def test_it_trains_and_writes_its_files(run: Path) -> None:
    result, losses, rows = result_of(run), losses_of(run), rows_of(run)
    assert (result["unit"], result["metrics"]["primary"]) == ("tokens", "masked_accuracy")
    assert losses[-1] < losses[0] - 0.5
    words = [
        (found, true)
        for row in rows
        for found, true in zip(row["prediction"].split(), row["words"].split(), strict=True)
    ]
    assert result["test/masked_accuracy"] == pytest.approx(np.mean([found == true for found, true in words]))
    nats = [-row["log_probability"] * len(row["words"].split()) for row in rows]
    assert result["test/perplexity_masked"] == pytest.approx(math.exp(sum(nats) / len(words)), rel=1e-3)
    assert {"test/content_accuracy", "test/function_accuracy", "test/agreement"} <= set(result)
    assert "test/next_sentence_accuracy" not in result
    assert all(row["text"].split().count("<mask>") == len(row["words"].split()) for row in rows)
    for name in ("masks.test.png", "masks.test.jsonl"):
        assert (run / name).is_file(), name


def test_the_baseline_is_the_most_frequent_word(run: Path) -> None:
    corpus = api.load(run).task.corpus
    every = [word for line in corpus.train.lines for word in line.split()]
    words = [word for word in every if every.count(word) > 1]  # the others are unknown
    most = max(set(words), key=words.count)
    masked = [word for row in rows_of(run) for word in row["words"].split()]
    result = result_of(run)
    share = np.mean([word == most for word in masked])
    assert result["baseline/most_frequent/test/masked_accuracy"] == pytest.approx(share)
    size = len({*words}) + len(SPECIALS)
    nats = -np.mean([math.log((words.count(word) + 1) / (len(words) + size)) for word in masked])
    found = result["baseline/most_frequent/test/perplexity_masked"]
    assert found == pytest.approx(math.exp(nats))


def test_the_scores_by_kind_of_word_are_those_of_a_loop_over_words(run: Path) -> None:
    corpus = api.load(run).task.corpus
    tags_of: dict[str, set[str]] = {}
    for line, tags in zip(corpus.train.lines, corpus.train.tags, strict=True):
        for word, tag in zip(line.split(), tags.split(), strict=True):
            tags_of.setdefault(word, set()).add(tag)
    content, agreeing = [], []
    for row, tags in zip(rows_of(run), corpus.test.tags, strict=True):
        places = [i for i, word in enumerate(row["text"].split()) if word == "<mask>"]
        words = zip(places, row["words"].split(), row["prediction"].split(), strict=True)
        for place, true, found in words:
            tag = tags.split()[place]
            if tag.split(".")[0] in ("ADJ", "ADV", "NOUN", "NUM", "PROPN", "VERB"):
                content.append(true == found)
            if "." in tag:
                agreeing.append(tag in tags_of.get(found, ()))
    result = result_of(run)
    assert result["test/content_accuracy"] == pytest.approx(np.mean(content))
    assert result["test/agreement"] == pytest.approx(np.mean(agreeing))


def test_pieces_of_words_have_the_scores_of_their_first_token(tmp_path: Path) -> None:
    settings = ("tokenizer=char", "trainer.max_epochs=1", f"hydra.run.dir={tmp_path / 'run'}")
    assert command_line.run(*LINE, *settings) == 0
    assert 0 <= result_of(tmp_path / "run")["test/content_accuracy"] <= 1
    tags = Ragged(torch.tensor([1, IGNORED, 0]), torch.tensor([0, 3]))
    types = TaggedTypes(["NOUN.f.sg", "DET"], np.array([[True, False]] * 9), tags)
    text = MaskedTokens(
        Ragged(torch.tensor([4, 5, 6]), tags.offsets), Ragged(torch.tensor([4, 5, 6]), tags.offsets)
    )
    split = MaskedSplit("val", Sentences(["abc"]), text)
    outputs = MaskedOutputs.of(split, types, [np.array([7, 7, 7])], [np.zeros(3)])
    assert [
        None if kind is None else kind[0].tolist()
        for kind in (outputs.content, outputs.function, outputs.agreeing, outputs.agrees)
    ] == [[False, False, True], [True, False, False], [False, False, True], [False, False, True]]


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    check_resumed(run, tmp_path / "run", *LINE)


def test_a_killed_run_of_pairs_resumes_with_identical_losses(pairs: Path, tmp_path: Path) -> None:
    check_resumed(pairs, tmp_path / "run", *PAIRS)


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(tmp_path: Path) -> None:
    check_ranks(tmp_path, *PAIRS)


def test_the_next_sentence_is_scored(pairs: Path) -> None:
    rows, result = rows_of(pairs), result_of(pairs)
    right = [row["follows"] == row["predicted_follows"] for row in rows]
    assert result["test/next_sentence_accuracy"] == pytest.approx(np.mean(right))
    assert {row["follows"] for row in rows} == {True, False}
    assert all(row["text"].count(" <eos> ") == 1 for row in rows)
    (one,) = api.load(pairs).predict(["the <mask> sees a boy .\ta <mask> is seen ."])
    assert len(one.words) == 2
    assert 0 < one.follows < 1


def test_predict_in_python_and_on_the_command_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, recorded = api.load(run), rows_of(run)
    found = loaded.predict([row["text"] for row in recorded])
    assert [" ".join(one.words) for one in found] == [row["prediction"] for row in recorded]
    (fillings,) = loaded.nbest(["le <mask> <mask> ."])
    first, second = (np.array([*one.values()]) for one in fillings[0].candidates)
    best = sorted(np.log(np.outer(first, second)).flatten().tolist(), reverse=True)[: len(fillings)]
    assert [one.score for one in fillings] == pytest.approx(best)
    assert loaded.predict([]) == []
    with pytest.raises(UserError, match=r"line 2: .* has no <mask>"):
        loaded.predict(["il <mask> .", "il dort ."])
    with pytest.raises(UserError, match="has a tab"):
        loaded.predict(["il <mask> .\til dort ."])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"il  <mask> .\n")))
    pictures = ("--attention", str(tmp_path / "a.png"), "--attention-maps", str(tmp_path / "m.png"))
    predict.main([str(run), "--device", "cpu", *pictures])
    text, words = capsys.readouterr().out.strip("\n").split("\t")
    assert text == f"il  {words.split()[0]} ."
    assert len(words.split(", ")) == 5
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "m.encoder.png"}


def test_masks_are_those_of_a_loop_over_texts() -> None:
    texts = [[4, 5, 6], [7, 8, EOS, 9, UNK], [*range(4, 24)], [6], [UNK]]
    tokens = Ragged.unframed(lambda lines: [*lines], texts, "")  # type: ignore[arg-type, return-value]
    masking = Masking(share=0.3, masked=0.5, random=0.25)
    found = mask(tokens, masking, 24, seed=3, epoch=2)
    for row, ids in enumerate(texts):
        draw, kind, other = (
            [float(uniform(3, 2, torch.tensor(row), position, n)) for position in range(len(ids))]
            for n in range(3)
        )
        places = sorted((i for i, token in enumerate(ids) if token not in (UNK, EOS)), key=draw.__getitem__)
        places = sorted(places[: max(1, round(0.3 * len(places)))])
        read = list(ids)
        for i in places:
            if kind[i] < 0.5:
                read[i] = MASK
            elif kind[i] < 0.75:
                read[i] = 4 + int(other[i] * 20)
        start, end = tokens.offsets[row : row + 2].tolist()
        assert found.tokens.tokens[start:end].tolist() == read
        positions, labels = found.of_words(row)
        assert (positions.tolist(), labels.tolist()) == (places, [ids[i] for i in places])


def test_test_sets_with_other_masks_are_not_the_same() -> None:
    tokens = Ragged.unframed(lambda lines: [*lines], [[*range(4, 24)]] * 5, "")  # type: ignore[arg-type, return-value]

    def examples(share: float) -> str:
        masked = mask(tokens, Masking(share=share, masked=0.8, random=0.1), 24, seed=3, epoch=0)
        return examples_of(TextSplit("test", Sentences(["a b"] * 5), masked))  # type: ignore[arg-type]

    assert examples(0.15) == examples(0.15) != examples(0.5)


def test_masks_are_drawn_for_one_block_of_texts_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = torch.tensor([3, 0, 20, 5, 1, 7, 4, 6])
    tokens = Ragged(
        torch.arange(4, 50, dtype=torch.int32), torch.cat([torch.zeros(1).long(), lengths.cumsum(0)])
    )
    whole = mask(tokens, MASKING, 60, seed=3, epoch=2)
    drawn: list[int] = []

    def counted(seed: int, epoch: int, text: torch.Tensor, *counters: Any) -> torch.Tensor:
        drawn.append(len(text))
        return uniform(seed, epoch, text, *counters)

    monkeypatch.setattr("seq2seq_lab.tasks.masked_language_model.data.uniform", counted)
    monkeypatch.setattr("seq2seq_lab.tasks.tagging.data.BLOCK", 3)
    parts = mask(tokens, MASKING, 60, seed=3, epoch=2)
    assert sorted({*drawn}) == [10, 13, 23]
    assert torch.equal(parts.tokens.tokens, whole.tokens.tokens)
    assert torch.equal(parts.labels.tokens, whole.labels.tokens)
    assert parts.units.tolist() == whole.units.tolist() == [1, 0, 3, 1, 1, 1, 1, 1]


def test_masks_are_a_function_of_seed_and_epoch_and_have_the_shares_of_the_paper() -> None:
    tokens = Ragged(torch.full((40_000,), 7, dtype=torch.int32), torch.arange(0, 40_001, 20))
    first, again = (mask(tokens, MASKING, 1000, seed=1, epoch=0) for _ in range(2))
    assert torch.equal(first.tokens.tokens, again.tokens.tokens)
    for seed, epoch in ((1, 1), (2, 0)):
        other = mask(tokens, MASKING, 1000, seed=seed, epoch=epoch)
        assert not torch.equal(first.tokens.tokens, other.tokens.tokens)
    assert first.units.tolist() == [3] * 2000
    read = first.tokens.tokens[first.labels.tokens != IGNORED]
    shares = [float((read == MASK).float().mean()), float((read == 7).float().mean())]
    assert shares == pytest.approx([0.8, 0.1], abs=0.02)
    assert int(read.max()) < 1000
    assert int(read[read != MASK].min()) >= len(SPECIALS)
    assert bool((first.tokens.tokens[first.labels.tokens == IGNORED] == 7).all())


def test_the_second_sentence_is_the_next_one_or_of_another_document() -> None:
    documents = torch.tensor([0, 0, 0, 4, 5, 5, 5, 5])
    pairs = NextSentences(documents)
    assert pairs.firsts.tolist() == [0, 1, 4, 5, 6]
    drawn = [pairs.draw(1, epoch) for epoch in range(300)]
    for second, follows in drawn:
        for first, other, is_next in zip(
            pairs.firsts.tolist(), second.tolist(), follows.tolist(), strict=True
        ):
            assert other == first + 1 if is_next else documents[other] != documents[first]
    others = {(i, int(second[i])) for second, follows in drawn for i in range(5) if not follows[i]}
    assert others == {(i, k) for i in range(2) for k in range(3, 8)} | {
        (i, k) for i in range(2, 5) for k in range(4)
    }
    assert float(torch.stack([follows for _, follows in drawn]).float().mean()) == pytest.approx(
        0.5, abs=0.05
    )
    places = torch.tensor([0, 2, 3, 4, 5, 6, 8, 9])  # sentences around a missing index do not form a pair
    assert NextSentences(documents, places).firsts.tolist() == [1, 4, 6]
    texts = Ragged.unframed(lambda lines: [*lines], [[4], [5, 6], [7]], "")  # type: ignore[arg-type, return-value]
    both = joined(texts, torch.tensor([1, 0]), torch.tensor([2, 1]))
    assert both.tokens.tolist() == [5, 6, EOS, 7, 4, EOS, 5, 6]
    assert both.offsets.tolist() == [0, 4, 8]
    for wrong in ([0, 0], [0, 1]):
        with pytest.raises(UserError, match="two documents or more"):
            NextSentences(torch.tensor(wrong))


@pytest.mark.parametrize("encoder", ["transformer", "bigru"])
def test_the_loss_is_that_of_a_loop_over_texts_without_padding(encoder: str) -> None:
    settings = (
        "model.dropout=0",
        "model.state_dropout=0",
        f"encoder={encoder}",
        "model.encoder_hidden_size=6",
    )
    task: Any = build_task(compose_run([*PAIRS, *settings]).config)
    torch.manual_seed(1)
    model = task.parts.masked_language_model(20, True)
    texts = [[4, 5, EOS, 6], [7, EOS, 8], [9, 10, 11, EOS, 12, 13, 14]]
    tokens = Ragged.unframed(lambda lines: [*lines], texts, "")  # type: ignore[arg-type, return-value]
    masked = mask(
        tokens,
        Masking(share=0.5, masked=0.6, random=0.2),
        20,
        seed=1,
        epoch=0,
        follows=torch.tensor([1, 0, 1]),
    )
    batches = MaskedBatches(masked, torch.device("cpu"))
    total = 0.0
    for i in range(3):
        start, end = masked.tokens.offsets[i : i + 2].tolist()
        ids = masked.tokens.tokens[start:end].tolist()
        vectors = [model.mask.weight[0] if k == MASK else model.source_embedding.weight[k] for k in ids]
        embedded_1SE = model.dropout(torch.stack(vectors)[None])
        outputs_SM = model.encoder(embedded_1SE, (len(ids),)).outputs_BSM[0]
        positions, labels = masked.of_words(i)
        for position, label in zip(positions, labels, strict=True):
            logits_V = model.transform(outputs_SM[position]) @ model.source_embedding.weight.T
            logits_V = logits_V + model.readout.linear.bias
            total += functional.cross_entropy(logits_V, torch.tensor(label)).item()
            next_2 = model.next_sentence(outputs_SM.mean(0))
            total += functional.cross_entropy(next_2, masked.follows[i]).item()  # type: ignore[index]
    loss = task.loss(model, batches(np.arange(3)), StepInfo(0, 0))
    assert loss.item() == pytest.approx(total, rel=1e-5)


def test_a_mask_in_a_text_is_one_token_and_does_not_change_the_others() -> None:
    settings: dict[str, Any] = {"joint": False, "lowercase": False, "min_frequency": 1, "max_size": None}
    word = WordTokenizer(**settings)
    word.train(["l'ami dort."])
    (ids,) = word.encode(["l'ami dort."])
    assert encode_masked(word, "l'<mask> dort.") == [ids[0], MASK, *ids[2:]]
    assert encode_masked(word, "l'ami <mask>.\t<mask>") == [*ids[:2], MASK, ids[3], EOS, MASK]
    char = CharTokenizer(**settings)
    char.train(["abk"])
    assert encode_masked(char, "a<mask>k") == [char.encode(["a"])[0][0], MASK, char.encode(["k"])[0][0]]
    assert fill("a <mask> b<mask>", ["x", "y"]) == "a x by"


def test_the_probability_of_a_word_is_that_of_all_tokens_with_its_text(run: Path) -> None:
    loaded = api.load(run)
    (known,) = loaded.task.vocabulary.tokenizer.encode(["le la"])
    # <pad> and <sos> have the same text; a mask then has fewer words than another one.
    text = MaskedText(
        log_probs_K=np.zeros(2),
        tokens_KC=np.array([[known[0], 1, 2], [*known, UNK]]),
        probabilities_KC=np.array([[0.4, 0.3, 0.2], [0.5, 0.3, 0.1]]),
        next_2=np.zeros(0),
    )
    best, *_ = loaded._fillings("<mask> <mask>", text)
    assert [*best.candidates[0]] == ["", "le"]
    assert [*best.candidates[0].values()] == pytest.approx([0.5, 0.4])
    assert best.score == pytest.approx(math.log(0.5 * 0.5))
    best.figure()


def test_tags_of_entities_are_no_parts_of_speech() -> None:
    assert are_parts_of_speech(["NOUN.f.sg", "PUNCT"])
    assert not are_parts_of_speech(["B-PER", "O"])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (("attention=additive",), "attention="),
        (("dataset=grammar",), "task=masked_language_model"),
        (("tokenizer=bpe_dropout",), "tokenizer.dropout"),
        (("task.mask_share=0",), "task.mask_share=0"),
        (("task.masked=0.8", "task.random=0.3"), "task.masked + task.random=1.1"),
        (("model.tied_embeddings=target",), "model.tied_embeddings=target"),
        (("embedding.source.size=7",), "embedding.source="),
        (("encoder=pretrained", "encoder.path=x"), "encoder._target_="),
    ],
)
def test_what_does_not_fit_is_refused(
    settings: tuple[str, ...], key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("task=masked_language_model", *settings, "logger=none") == 2
    assert key in capsys.readouterr().err


def test_a_text_without_documents_has_no_next_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("a b .\nb a .\n\n" * 40)
    text = ("task=masked_language_model", f"dataset.path={tmp_path / 'text.txt'}", *SIZES, *MACHINE)
    lines = (*text, "task.next_sentence=true", "trainer.max_steps=1")
    assert command_line.run(*lines, f"hydra.run.dir={tmp_path / 'run'}") == 0
    rows = rows_of(tmp_path / "run")
    assert all(" <eos> " in row["text"] for row in rows)
    assert command_line.run("task=masked_language_model", "task.next_sentence=true", *SIZES, *MACHINE) == 2
    assert "dataset=sentence_pairs" in capsys.readouterr().err
