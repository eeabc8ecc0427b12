"""The score of given outputs: the model's own log-probabilities, and the program."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import SOURCES, TARGETS, demo, demo_with
from small_models import WITHOUT_ATTENTION, values_of

import seq2seq_lab
from seq2seq_lab.analysis.align import Extraction, alignments
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.score import ScoredText, score
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.config.run_folders import DEMO_FOLDER
from seq2seq_lab.config.schema import origin
from seq2seq_lab.data.alignment_files import pharaoh
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.translation.loaded import Translation

ATTENTIONS = [value for value in values_of("attention") if origin("attention", value) == value]
PAIRS = [
    (decoder, attention)
    for decoder in values_of("decoder")
    for attention in ATTENTIONS
    if (attention == "none") == (decoder in WITHOUT_ATTENTION)
]


@pytest.mark.parametrize(("decoder", "attention"), PAIRS)
def test_scores_are_those_of_unroll_to_the_last_bit(decoder: str, attention: str) -> None:
    run = demo_with(decoder, attention)
    forced = run.forced(SOURCES, TARGETS)
    scored = run.score(SOURCES, TARGETS)
    for index in forced.plan:
        batch = forced.batch(index)
        with torch.no_grad():
            logits_BTV, weights_BTS = run.model(batch, batch.inputs_BT)
        log_probs_BTV = logits_BTV.log_softmax(-1)
        for row, i in enumerate(index.tolist()):
            for t, token in enumerate(batch.outputs_BT[row][: len(scored[i].tokens)]):
                expected_V = log_probs_BTV[row, t]
                assert scored[i].log_probs[t] == expected_V[token].item()
                assert scored[i].ranks[t] == 1 + sum(one > expected_V[token] for one in expected_V)
                probs = expected_V.double().exp()
                assert scored[i].entropies[t] == pytest.approx(-(probs * probs.log()).sum().item(), rel=1e-4)
            if weights_BTS is not None:
                rows, columns = scored[i].attention.shape
                assert (scored[i].attention == weights_BTS[row, :rows, :columns].numpy()).all()


def score_in_batches(forced: Forced, plan: list[list[int]]) -> list[tuple[ScoredText, torch.Tensor]]:
    """The score and the log_probs_TV of each pair, in batches of the given pairs."""
    read: list[torch.Tensor] = []

    def record(batch: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        logits_BTV, weights_BTS = forced.read(batch)
        read.extend(logits_BTV.log_softmax(-1))
        return logits_BTV, weights_BTS

    scored = score(replace(forced, plan=[*map(np.array, plan)], read=record))
    log_probs = dict(zip(itertools.chain.from_iterable(plan), read, strict=True))
    return [(one, log_probs[i][: len(one.tokens)]) for i, one in enumerate(scored)]


def count_ties(forced: Forced, alone: list[list[int]], *plans: list[list[int]]) -> int:
    """Check that the pairs have the same predictions in other batches.

    Log-probabilities may differ by 1e-5. The steps at which another type is the most probable one, or the rank of the output
    differs, are counted: there, types that differ by less than 1e-6 have changed places.
    """
    expected, ties = score_in_batches(forced, alone), 0
    for plan in plans:
        found = score_in_batches(forced, plan)
        for (one, log_probs_TV), (other, others_TV) in zip(expected, found, strict=True):
            assert (one.tokens, one.words, one.word_of) == (other.tokens, other.words, other.word_of)
            np.testing.assert_allclose(other.log_probs, one.log_probs, rtol=0, atol=1e-5)
            ranks_T2 = torch.tensor([one.ranks, other.ranks]).T
            best_T2 = torch.stack([log_probs_TV.argmax(1), others_TV.argmax(1)], 1)
            for t in ((ranks_T2.diff() != 0) | (best_T2.diff() != 0)).nonzero()[:, 0].tolist():
                ordered_V = log_probs_TV[t].sort(descending=True).values
                assert ordered_V[ranks_T2[t] - 1].diff().abs() < 1e-6
                assert log_probs_TV[t, best_T2[t]].diff().abs() < 1e-6
                ties += 1
    return ties


@pytest.mark.parametrize(("decoder", "attention"), PAIRS)
def test_a_text_alone_has_the_score_that_it_has_in_a_batch(decoder: str, attention: str) -> None:
    run = demo_with(decoder, attention)
    ties = count_ties(run.forced(SOURCES, TARGETS), [[0], [1], [2], [3]], [[3, 0, 2, 1]])
    # In float32, the log-probabilities of long outputs are rounded by more than 1e-5 with these large weights.
    run.model.double()
    forced = run.forced([" ".join(SOURCES), *SOURCES[:2]], [" ".join(TARGETS), *TARGETS[:2]])
    assert ties + count_ties(forced, [[0], [1], [2]], [[1, 0, 2]]) <= 1


@pytest.fixture(scope="module")
def demo_translations() -> list[Translation]:
    lines = (DEMO_FOLDER / "translations.test.jsonl").read_text("utf-8").splitlines()
    return seq2seq_lab.load("demo", device="cpu").predict(
        [json.loads(line)["source"] for line in lines], join_subwords=False
    )


@pytest.mark.slow
def test_the_scores_of_1000_translations_are_the_log_probabilities_of_the_search(
    demo_translations: list[Translation],
) -> None:
    """A translation that is cut at the maximum length has no `<eos>`, but its score has one."""
    scored = demo().score([one.source for one in demo_translations], [one.text for one in demo_translations])
    assert len(scored) == 1000
    cut = 0
    for one, translation in zip(scored, demo_translations, strict=True):
        complete = translation.target_tokens[-1:] == ["<eos>"]
        log_prob = math.fsum(one.log_probs if complete else one.log_probs[:-1])
        assert log_prob == pytest.approx(translation.log_prob, rel=0, abs=1e-4)
        cut += not complete
    assert cut <= 2


@pytest.mark.slow
def test_translations_have_the_same_scores_in_batches_of_other_sizes_and_lengths(
    demo_translations: list[Translation],
) -> None:
    some = demo_translations[:250]
    forced = demo().forced([one.source for one in some], [one.text for one in some])
    mixed = np.array_split(np.random.default_rng(0).permutation(250), 8)
    plans = [[index.tolist() for index in plan] for plan in (forced.plan, mixed)]
    assert count_ties(forced, [[i] for i in range(250)], *plans) <= 2


@pytest.mark.parametrize("search", ["search=greedy", "search=beam"])
def test_the_score_of_an_output_is_its_log_probability_in_the_search(search: str) -> None:
    run = seq2seq_lab.load("demo", changes=[search])
    found = [one for outputs in run.nbest(SOURCES) for one in outputs]
    scored = run.score([one.source for one in found], [one.text for one in found])
    for one, output in zip(scored, found, strict=True):
        assert one.log_prob == pytest.approx(output.log_prob, abs=1e-4)


def test_words_and_perplexities() -> None:
    run = demo()
    (one,) = run.score(["the king sleeps."], ["le roi dort."])
    assert one.tokens == ["le", "roi", "dort", ".", "<eos>"]
    assert one.words == ["le", "roi", "dort."]
    assert one.word_of == [0, 1, 2, 2, None]
    assert one.word_log_probs[2] == one.log_probs[2] + one.log_probs[3]
    assert one.log_prob == math.fsum(one.log_probs)
    assert one.perplexity_per_token == pytest.approx(math.exp(-one.log_prob / 5))
    assert one.perplexity_per_word == pytest.approx(math.exp(-one.log_prob / 4))
    assert one.alignment == "0-0 1-1 2-2"
    (unknown,) = run.score(["the king sleeps."], ["le zèbre dort."])
    assert unknown.unknown_words == ["zèbre"]
    assert unknown.log_prob < one.log_prob - 5


def test_alignments_count_the_text_between_spaces_as_align_does() -> None:
    run, source, target = demo(), "the king\u00a0sleeps 睡觉.", "le roi\u00a0dort 他睡."
    (one,) = run.score([source], [target])
    assert len(one.words) == 5
    (links,) = alignments(run.model, run.forced([source], [target]), Extraction())
    assert one.alignment == pharaoh(links)
    assert max(j for _, j in links) < 3


def test_an_empty_text_has_only_its_end() -> None:
    (one,) = demo().score([""], [""])
    assert (one.tokens, one.words) == (["<eos>"], [])
    assert one.alignment == ""


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 sources and 1 targets"):
        demo().score(SOURCES[:2], TARGETS[:1])
    with pytest.raises(UserError, match=r"^targets takes a list of texts, not one text"):
        demo().score(SOURCES[:1], TARGETS[0])


def test_an_input_that_is_not_a_text_is_refused() -> None:
    with pytest.raises(UserError, match=r"inputs\[1\]=nan is not allowed"):
        demo().predict([SOURCES[0], float("nan")])


def files(folder: Path, sources: list[str], targets: list[str]) -> list[str]:
    paths = [folder / "source", folder / "target"]
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return [*map(str, paths)]


def test_all_formats_print_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = files(tmp_path, SOURCES, TARGETS)
    printed = {}
    for name in ("text", "tsv", "jsonl"):
        analyze.main(["score", "demo", *given, "--format", name])
        out, err = capsys.readouterr()
        printed[name] = out.splitlines()
        assert err.startswith("texts: 4, log-probability ")
    objects = [json.loads(line) for line in printed["jsonl"]]
    scored = demo().score(SOURCES, TARGETS)
    assert [one["log_prob"] for one in objects] == [one.log_prob for one in scored]
    for line, one in zip(printed["text"], objects, strict=True):
        expected = f"{one['log_prob']:.4f}\t{one['perplexity_per_token']:.4f}\t{one['target']}"
        assert line == expected
    rows = [line.split("\t") for line in printed["tsv"][1:]]
    tokens = [(one["pair"], token) for one in objects for token in one["tokens"]]
    for row, (pair, token) in zip(rows, tokens, strict=True):
        assert (int(row[0]), row[2], int(row[5])) == (pair, token["token"], token["rank"])
        assert float(row[4]) == pytest.approx(token["log_prob"], abs=1e-6)


def test_nbest_lists_are_ranked_by_the_log_probability(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = ["0 ||| la reine dort. ||| -1", "0 ||| le roi dort. ||| -2", "1 ||| la vache mange. ||| x"]
    analyze.main(["score", "demo", "--nbest", *files(tmp_path, SOURCES, listed)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" ||| ")[0] for line in lines] == [listed[1], listed[0], listed[2]]
    scored = demo().score(SOURCES[:1] * 2, ["le roi dort.", "la reine dort."])
    assert [float(line.rpartition(" ||| ")[2]) for line in lines[:2]] == [
        pytest.approx(one.log_prob, abs=1e-4) for one in scored
    ]


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        (TARGETS[:2], [], r"target ends after 2\. Give a target for each source"),
        (["le roi dort."], ["--nbest"], r"target, line 1: 'le roi dort\.' is not `INDEX"),
        (["0 ||| le roi dort."], ["--nbest", "--format", "jsonl"], r"--format=jsonl .*text with --nbest"),
        ([f"{i} ||| le roi dort." for i in (0, 1, 0)], ["--nbest"], "index 0 comes back after another one"),
        (["9 ||| le roi dort."], ["--nbest"], r"index 9 is not that of a source.* 4 lines"),
    ],
)
def test_files_that_do_not_match_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    targets: list[str],
    options: list[str],
    message: str,
) -> None:
    with pytest.raises(SystemExit):
        analyze.main(["score", "demo", *files(tmp_path, SOURCES, targets), *options])
    assert re.search(message, capsys.readouterr().err)
