"""Language models: training with and without carried state, metrics, generation, and the program."""

import io
import json
import math
import shutil
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
import yaml
from attribution_checks import check_attributions
from extras import needs_plotly
from finished_runs import losses_of, result_of
from forked_ranks import forked_ranks
from safetensors.torch import load_file, save_file
from torch.nn import functional
from trace_checks import check_trace

from seq2seq_lab import api, predict
from seq2seq_lab import run as runner
from seq2seq_lab.analysis.attributions import attribute
from seq2seq_lab.config.compose import compose_run, composer, read_config
from seq2seq_lab.config.job_hash import compute_job_hash
from seq2seq_lab.config.run_folder import write_covered
from seq2seq_lab.config.schema import flat_keys, plain
from seq2seq_lab.data.monolingual import Monolingual
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS, UNK
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import sha256
from seq2seq_lab.metrics.language_model import LANGUAGE_MODEL_METRICS, by_distance, by_phenomenon
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.reporting import comparison, page
from seq2seq_lab.reporting.runs import find_runs, group_runs
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.base import StepInfo, TaskData
from seq2seq_lab.tasks.examples import ExamplePlan, TrainingExamples
from seq2seq_lab.tasks.language_model import evaluation
from seq2seq_lab.tasks.language_model.carry import CarriedState, ChunkPlan
from seq2seq_lab.tasks.language_model.data import SentenceTokens, streams
from seq2seq_lab.tasks.language_model.evaluation import GenerationBatch, LanguageModelOutputs
from seq2seq_lab.tasks.language_model.loaded import LoadedLanguageModel
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.training.checkpoint import load_state
from seq2seq_lab.training.threads import restored_threads

LINE = (
    *("task=language_model", "logger=none", "trainer.device=cpu", "trainer.precision=fp32"),
    *("dataset.train=120", "dataset.validation=10", "dataset.test=40", "dataset.max_depth=2"),
    *("model.embedding_size=12", "model.hidden_size=12", "task.batch_size=20"),
    *("trainer.max_epochs=2", "trainer.log_every_steps=1", "task.samples=2", "optimizer.lr=0.02"),
)
CARRY = ("task.carry_state=true", "task.chunk_length=5", "task.batch_size=6", "trainer.max_epochs=1")
CPU = torch.device("cpu")


def plain_config(folder: Path) -> dict[str, Any]:
    with composer():
        return plain(read_config(folder))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language_model") / "run"
    assert command_line.run(*LINE, f"hydra.run.dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> LoadedLanguageModel:
    return api.load(run, device="cpu")


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with carried state in two micro-batches."""
    folder = tmp_path_factory.mktemp("carried") / "run"
    settings = (*LINE, *CARRY, "trainer.micro_batches=2", f"hydra.run.dir={folder}")
    assert command_line.run(*settings) == 0
    return folder


@pytest.mark.parametrize("settings", ["tokenizer=char", "tokenizer.lowercase=true"])
def test_another_tokenizer_than_that_of_the_run_is_refused(run: Path, settings: str) -> None:
    with pytest.raises(UserError, match="another tokenizer or other settings"):
        build_task(compose_run([*LINE, settings]).config).open(run)


def test_it_learns_and_reports_its_metrics(run: Path) -> None:
    result, losses = result_of(run), losses_of(run)
    assert losses[-1] < losses[0]
    assert result["metrics"]["primary"] == "perplexity_per_word"
    assert result["unit"] == "tokens"
    for name in ("perplexity_per_token", "bits_per_character", "loss", "minimal_pairs_confidence"):
        assert result[f"test/{name}"] > 0, name
    groups = result["test/minimal_pairs_by_phenomenon"]
    assert [group["group"] for group in groups] == ["agreement", "negation", "object pronoun"]
    distances = result["test/minimal_pairs_by_distance"]
    assert distances[0]["group"] == "1"
    assert sum(group["count"] for group in distances) == groups[0]["count"]
    assert len((run / "generated.txt").read_text("utf-8").splitlines()) == 2
    rows = [json.loads(line) for line in (run / "sentences.test.jsonl").read_text("utf-8").splitlines()]
    assert sum(bool(row["phenomenon"]) for row in rows) == sum(group["count"] for group in groups)


@needs_plotly
def test_the_page_compares_sentence_by_sentence(run: Path, carried: Path) -> None:
    alone = page.page_data(comparison.compare(group_runs(find_runs([run])[0]), None))
    rows = [json.loads(line) for line in (run / "sentences.test.jsonl").read_text("utf-8").splitlines()]
    (shown,) = alone["examples"]
    assert [reference for _, reference in shown["inputs"]] == [row["sentence"] for row in rows]
    assert shown["scores"] == [[row["log_probability"] for row in rows]]
    table = comparison.compare(group_runs(find_runs([run, carried])[0]), None)
    assert table.metric == "perplexity_per_word"
    means = [line.group.values("test/perplexity_per_word")[0] for line in table.lines]
    assert means == sorted(means)  # lower is better
    both = page.page_data(table)
    assert len(both["examples"][0]["outputs"]) == 2
    assert "validation perplexity per word" in [curve["label"] for curve in both["curves"]]
    assert both["groupings"]


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command_line.run_until(5, *LINE, "trainer.checkpoint_every_steps=2", f"hydra.run.dir={folder}")
    assert command_line.run(f"resume={folder}") == 0
    assert losses_of(folder) == losses_of(run)
    assert result_of(folder)["test/perplexity_per_word"] == result_of(run)["test/perplexity_per_word"]


def test_a_killed_run_resumes_with_its_carried_state(carried: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command_line.run_until(
        10,
        *LINE,
        *CARRY,
        "trainer.micro_batches=2",
        "trainer.checkpoint_every_steps=4",
        f"hydra.run.dir={folder}",
    )
    assert command_line.run(f"resume={folder}") == 0
    assert losses_of(folder) == losses_of(carried)


def to_earlier_form(folder: Path) -> None:
    """Write the configuration and the weights of a run as the versions did in which the model was an encoder."""
    config = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
    decoder = config["decoder"]
    encoder = {
        "_target_": "seq2seq_lab.models.encoders.RecurrentEncoder",
        "bidirectional": False,
        "reverse": False,
    }
    encoder |= {
        name: decoder[name] for name in ("cell", "hidden_size", "num_layers", "dropout", "locked_dropout")
    }
    encoder["encoder_output_dropout"] = decoder["state_dropout"]
    config |= {"encoder": encoder, "decoder": None, "attention": None}
    config["model"]["bridge"] = "tanh"
    del config["model"]["cell"]
    write_covered(folder, "run", "config.yaml", yaml.safe_dump(config, sort_keys=False))
    record = json.loads((folder / "run.json").read_text("utf-8"))
    record["choices"] |= {"encoder": "lstm", "decoder": "None", "attention": "None"}
    write_covered(folder, "run", "run.json", json.dumps(record))
    for checkpoint in (folder / "checkpoints").iterdir():
        weights = checkpoint / "model.safetensors"
        renamed = {name.replace("decoder.", "encoder."): value for name, value in load_file(weights).items()}
        assert any(name.startswith("encoder.") for name in renamed)
        save_file(renamed, weights)
        manifest = json.loads((checkpoint / "manifest.json").read_text("utf-8"))
        manifest["files"]["model.safetensors"] = sha256(weights)
        (checkpoint / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def test_a_run_in_the_earlier_form_opens_and_compares(
    run: Path, model: LoadedLanguageModel, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    to_earlier_form(folder)
    opened = api.load(folder, device="cpu")
    assert opened.predict([""] * 3) == model.predict([""] * 3)
    assert opened.log_probs(["the king sleeps."]) == model.log_probs(["the king sleeps."])
    assert compute_job_hash(plain_config(folder)) == compute_job_hash(plain_config(run))
    (group,) = group_runs(find_runs([run, folder])[0])
    assert len(group.runs) == 2


@pytest.mark.parametrize("settings", [(), CARRY], ids=["sentences", "carried"])
def test_a_killed_run_in_the_earlier_form_resumes_with_identical_losses(
    settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, object]] = []
    monkeypatch.setattr(runner, "flat_keys", lambda *given: shown.append(flat_keys(*given)) or shown[-1])
    for name in ("now", "earlier"):
        line = (*LINE, *settings, "trainer.checkpoint_every_steps=4", f"hydra.run.dir={tmp_path / name}")
        command_line.run_until(6, *line)
    to_earlier_form(tmp_path / "earlier")
    for name in ("now", "earlier"):
        assert command_line.run(f"resume={tmp_path / name}") == 0
    assert losses_of(tmp_path / "earlier") == losses_of(tmp_path / "now")
    scores = [result_of(tmp_path / name)["test/perplexity_per_word"] for name in ("now", "earlier")]
    assert scores[0] == scores[1]
    assert shown[-2] == shown[-1]


def test_a_run_starts_from_the_weights_of_one_in_the_earlier_form(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "earlier")
    to_earlier_form(tmp_path / "earlier")
    for first, name in ((run, "of_now"), (tmp_path / "earlier", "of_earlier")):
        settings = (f"init_from={first}", "trainer.max_epochs=1", f"hydra.run.dir={tmp_path / name}")
        assert command_line.run(*LINE, *settings) == 0
    assert losses_of(tmp_path / "of_earlier") == losses_of(tmp_path / "of_now")


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_and_save_what_one_process_does(carried: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with forked_ranks():
        assert command_line.run(*LINE, *CARRY, "trainer.devices=2", f"hydra.run.dir={folder}") == 0
    assert losses_of(folder) == losses_of(carried)
    result, expected = result_of(folder), result_of(carried)
    assert result["test/minimal_pairs"] == expected["test/minimal_pairs"]
    assert result["test/perplexity_per_word_carried"] == expected["test/perplexity_per_word_carried"]
    assert result["test/perplexity_per_word"] == pytest.approx(expected["test/perplexity_per_word"])
    saved, states = (
        load_file(next(path.glob("checkpoints/step_*/task.safetensors"))) for path in (folder, carried)
    )
    assert states.keys() == {"hidden_LBH", "cell_LBH"}
    for name, state in states.items():
        assert torch.equal(saved[name], state), name
        assert state.abs().amin(dim=(0, 2)).shape == (6,)
        assert (state.abs().sum((0, 2)) > 0).all()  # a state for every stream


def test_streams_are_the_sentences_one_after_another() -> None:
    inputs_RL, outputs_RL = streams(Ragged.of([[5, 6], [7], [8, 9]]), 3)
    assert inputs_RL.tolist() == [[SOS, 5, 6], [SOS, 7, SOS], [8, 9, PAD]]
    assert outputs_RL.tolist() == [[5, 6, EOS], [7, EOS, 8], [9, EOS, PAD]]
    assert inputs_RL.dtype == outputs_RL.dtype == torch.int32


def test_chunks_with_carried_state_equal_one_pass_over_the_streams(model: LoadedLanguageModel) -> None:
    network, task = model.model, model.task
    sentences = Ragged.of([[5 + (i * j) % 7 for j in range(1 + i % 4)] for i in range(12)])
    plan = ChunkPlan(SentenceTokens(sentences), rows=3, chunk=4, device=CPU)
    task.carried = CarriedState(3)
    sums = []
    for step in range(plan.steps):
        (index,) = plan.plan[step]
        parts = [plan.batch(index[:1]), plan.batch(index[1:])]
        sums.append(sum(task.loss(network, part, StepInfo(0, step)).item() for part in parts))
    task.carried = None
    inputs_RL, outputs_RL = (tokens_RL.long() for tokens_RL in streams(sentences, 3))
    logits_RLV, _ = network(inputs_RL, None)
    nats_RL = functional.cross_entropy(
        logits_RLV.transpose(1, 2), outputs_RL, ignore_index=PAD, reduction="none"
    )
    expected = [part.sum().item() for part in nats_RL.split(4, dim=1)]
    assert sums == pytest.approx(expected, rel=1e-5)
    counts = [plan.count(step) for step in range(plan.steps)]
    assert sum(counts) == int((sentences.lengths - 1).sum())
    assert plan.steps == len(expected) > 2


def loaded_data(folder: Path, *settings: str) -> TaskData:
    task: Any = build_task(compose_run([*LINE, *settings]).config)
    loaded: TaskData = task.load(folder / "cache", None, None)
    return loaded


@pytest.mark.parametrize("settings", [("task.carry_state=false",), CARRY], ids=["sentences", "streams"])
def test_the_tokens_of_an_epoch_are_released_before_the_next_are_drawn(
    settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = loaded_data(tmp_path, "tokenizer=bpe_dropout", "tokenizer.vocab_size=300", *settings)
    drawn, copied = list[weakref.ref[torch.Tensor]](), list[weakref.ref[torch.Tensor]]()
    encoded = Ragged.encoded

    def draw(*args: Any) -> Ragged:
        assert all(tokens() is None for tokens in (*drawn, *copied))
        sentences = encoded(*args)
        drawn.append(weakref.ref(sentences.tokens))
        return sentences

    monkeypatch.setattr(Ragged, "encoded", draw)
    for epoch in (0, 0, 1, 2):
        plan: Any = data.train.epoch(epoch, CPU)
        if isinstance(plan, ChunkPlan):
            copied.append(weakref.ref(plan.inputs_RL))
        del plan
    assert len(drawn) == 3


@pytest.mark.parametrize(("earlier_version", "expected"), [(False, [1]), (True, [0, 1])])
def test_a_resumed_run_does_not_draw_the_first_epoch_to_count_its_steps(
    earlier_version: bool, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = (*LINE, "tokenizer=bpe_dropout", "tokenizer.vocab_size=300", "schedule=constant")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command_line.run(*line, f"hydra.run.dir={whole}") == 0
    assert command_line.run(*line, "trainer.max_epochs=1", f"hydra.run.dir={parts}") == 0
    epoch, opened = TrainingExamples.epoch, list[int]()

    def loaded(path: Path) -> dict[str, Any]:
        state = load_state(path)
        if earlier_version:
            del state["epoch_steps"]
        return state

    def open_epoch(examples: TrainingExamples, index: int, device: torch.device) -> ExamplePlan:
        opened.append(index)
        return epoch(examples, index, device)

    monkeypatch.setattr("seq2seq_lab.training.checkpoint.load_state", loaded)
    monkeypatch.setattr(TrainingExamples, "epoch", open_epoch)
    assert command_line.run(f"resume={parts}", "trainer.max_epochs=2") == 0
    assert opened == expected
    assert losses_of(parts) == losses_of(whole)


def test_streams_of_a_tokenizer_that_does_not_draw_are_made_once(tmp_path: Path) -> None:
    data = loaded_data(tmp_path, *CARRY)
    assert data.train.epoch(0, CPU) is data.train.epoch(1, CPU)


def test_a_restored_state_is_saved_again_as_it_is() -> None:
    carried = CarriedState(3)
    carried.load_state_dict({"hidden_LBH": torch.arange(6.0).reshape(1, 3, 2)})
    assert torch.equal(carried.state_dict(Ranks())["hidden_LBH"], torch.arange(6.0).reshape(1, 3, 2))


def test_threads_are_measured_with_a_carried_state(tmp_path: Path) -> None:
    with restored_threads():
        torch.set_num_threads(2)
        assert command_line.run(*LINE, *CARRY, f"hydra.run.dir={tmp_path / 'run'}") == 0


def log_prob(model: LoadedLanguageModel, tokens: list[int]) -> float:
    """The log-probability of tokens by one pass for each of them, from the start of the sentence."""
    total = 0.0
    for place, token in enumerate([*tokens, EOS]):
        logits_1TV, _ = model.model(torch.tensor([[SOS, *tokens[:place]]]), None)
        total += float(logits_1TV[0, -1].detach().log_softmax(-1)[token])
    return total


def test_scores_equal_a_slow_reference(model: LoadedLanguageModel, run: Path) -> None:
    rows = [json.loads(line) for line in (run / "sentences.test.jsonl").read_text("utf-8").splitlines()]
    lines = [row["sentence"] for row in rows]
    tokenizer = model.task.vocabulary.tokenizer
    values = model.log_probs(lines)
    with pytest.raises(UserError, match=r"log_probs takes a list .*\['the king'\]"):
        model.log_probs("the king")
    assert values[:5] == pytest.approx(
        [log_prob(model, ids) for ids in tokenizer.encode(lines[:5])], abs=1e-4
    )
    result, nats = result_of(run), -sum(values)
    words = sum(len(line.split()) + 1 for line in lines)
    tokens = sum(len(ids) + 1 for ids in tokenizer.encode(lines))
    assert result["test/perplexity_per_word"] == pytest.approx(math.exp(nats / words), rel=1e-4)
    assert result["test/perplexity_per_token"] == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    bits = nats / math.log(2) / sum(len(line) + 1 for line in lines)
    assert result["test/bits_per_character"] == pytest.approx(bits, rel=1e-4)
    paired = [row for row in rows if row["phenomenon"]]
    wrong = model.log_probs([row["ungrammatical"] for row in paired])
    good = dict(zip(lines, values, strict=True))
    correct = []
    for row, other in zip(paired, wrong, strict=True):
        first, second = tokenizer.encode([row["sentence"], row["ungrammatical"]])
        correct.append(0.5 if first == second else float(good[row["sentence"]] > other))
    assert 0.5 in correct  # rare words are unknown
    assert result["test/minimal_pairs"] == pytest.approx(np.mean(correct))


@pytest.mark.parametrize("trained", ["run", "carried"])
def test_the_carried_perplexity_equals_one_pass_over_the_whole_text(
    trained: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = request.getfixturevalue(trained)
    opened, result, name = api.load(folder, device="cpu"), result_of(folder), "perplexity_per_word_carried"
    rows = [json.loads(line) for line in (folder / "sentences.test.jsonl").read_text("utf-8").splitlines()]
    lines = [row["sentence"] for row in rows]
    tokens = SentenceTokens(Ragged.of(opened.task.vocabulary.tokenizer.encode(lines)))
    text_L = tokens.tokens.tokens.long()
    logits_1LV, _ = opened.model(text_L[text_L != EOS][None], None)
    nats = functional.cross_entropy(logits_1LV[0].detach(), text_L[text_L != SOS], reduction="sum").item()
    words = sum(len(line.split()) + 1 for line in lines)
    assert result[f"test/{name}"] == pytest.approx(math.exp(nats / words), rel=1e-4)
    assert result[f"test/{name}"] != pytest.approx(result["test/perplexity_per_word"], rel=1e-4)
    assert result[f"test/{name}_confidence"] > 0
    assert f'"val/{name}"' not in (folder / "metrics.jsonl").read_text("utf-8")
    nats_N = evaluation.carried_nats(opened.model, tokens, opened.compute)
    assert nats_N.sum() == pytest.approx(nats, rel=1e-5)
    assert nats_N[0] == pytest.approx(-opened.log_probs(lines[:1])[0], rel=1e-5)
    monkeypatch.setattr(evaluation, "CHUNK", 7)
    assert evaluation.carried_nats(opened.model, tokens, opened.compute) == pytest.approx(nats_N, rel=1e-4)


def test_the_signature_is_the_share_of_unknown_tokens(run: Path) -> None:
    task = api.load(run).task
    ids = [token for row in task.vocabulary.tokenizer.encode(task.corpus.test.lines) for token in row]
    tokens = len(ids) + len(task.corpus.test.lines)  # their ends
    assert 0 < ids.count(UNK) < tokens
    found = result_of(run)["test/perplexity_per_word_signature"]
    assert found == f"unk:{ids.count(UNK) / tokens:.2%}"


def test_metrics_of_known_probabilities() -> None:
    outputs = LanguageModelOutputs(
        nats=np.array([2.0, 4.0, 1.0]),
        tokens=np.array([4.0, 4.0, 4.0]),
        lines=["a b", "c", ""],
        phenomena=["x", "y", None],
        wrong_nats=np.array([2.0, 5.0, np.nan]),
        carried_nats=np.array([1.0, 4.0, 1.0]),
    )
    values = {metric.name: metric.value(metric.rows(outputs).sum(0)) for metric in LANGUAGE_MODEL_METRICS}
    assert values == pytest.approx(
        {
            "perplexity_per_word": math.exp(7 / 6),
            "perplexity_per_word_carried": math.exp(6 / 6),
            "perplexity_per_token": math.exp(7 / 12),
            "bits_per_character": 7 / 7 / math.log(2),
            "minimal_pairs": 0.75,
            "loss": 7 / 12,
        }
    )
    signatures = {metric.signature(replace(outputs, unknown=0.012)) for metric in LANGUAGE_MODEL_METRICS}
    assert signatures == {"unk:1.20%", None}  # minimal pairs have none
    assert by_phenomenon(outputs) == {"x": [0], "y": [1]}
    assert by_distance(outputs) is None
    assert by_distance(replace(outputs, distances=[4, None, 30])) == {"3–4": [0], "9 or more": [2]}


@pytest.mark.parametrize("beginning", ["", "the", "the old king"])
def test_greedy_search_continues_a_beginning(run: Path, beginning: str) -> None:
    changes = ["search=greedy", "search.max_length_factor=0", "search.max_length_extra=4"]
    model = api.load(run, device="cpu", changes=changes)
    tokenizer = model.task.vocabulary.tokenizer
    (tokens,) = tokenizer.encode([beginning])
    start, total = len(tokens), 0.0
    for _ in range(4):
        logits_1TV, _ = model.model(torch.tensor([[SOS, *tokens]]), None)
        log_probs_V = logits_1TV[0, -1].detach().log_softmax(-1)
        log_probs_V[[PAD, SOS]] = -math.inf
        tokens.append(int(log_probs_V.argmax()))
        total += float(log_probs_V.max())
        if tokens[-1] == EOS:
            break
    assert len(tokens) > start
    (found,) = model.predict([beginning])
    assert found.text == tokenizer.decode(tokens)
    assert found.score == pytest.approx(total, abs=1e-4)


def test_unknown_words_of_a_beginning_are_named(model: LoadedLanguageModel) -> None:
    first, second = model.predict(["the zebra qqq", "the"])
    assert first.unknown_words == ["zebra", "qqq"]
    assert second.unknown_words == []


def test_draws_depend_on_the_number_of_the_sentence_only(model: LoadedLanguageModel) -> None:
    drawn = model.predict([""] * 4)
    assert len({one.text for one in drawn}) > 1
    assert model.predict([""] * 2, first=2) == drawn[2:]


def test_different_beginnings_are_read_in_batches(
    model: LoadedLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    beginnings = ["the", "", "a king", "the old king", "a", "the king"] * 2
    sizes = list[int]()
    start = LanguageModel.start

    def counted(self: LanguageModel, batch: GenerationBatch) -> object:
        sizes.append(len(batch.index_B))
        return start(self, batch)

    monkeypatch.setattr(LanguageModel, "start", counted)
    drawn = model.predict(beginnings)
    assert sorted(sizes) == [2, 2, 4, 4]  # by the number of tokens
    sizes.clear()
    monkeypatch.setattr(model.task, "eval_batch_size", 3)
    again = model.predict(beginnings)
    assert sorted(sizes) == [1, 1, 2, 2, 3, 3]
    alone = [model.predict([one], first=index)[0] for index, one in enumerate(beginnings)]
    for one in (again, alone):
        assert [(found.source, found.text) for found in one] == [
            (found.source, found.text) for found in drawn
        ]
        assert [found.score for found in one] == pytest.approx([found.score for found in drawn], abs=1e-4)


def test_output_weights_are_the_embeddings(model: LoadedLanguageModel) -> None:
    assert model.model.readout.linear.weight is model.model.target_embedding.weight


def programmed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes, *arguments: object
) -> list[str]:
    """Return the lines that the program prints."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    predict.main([*map(str, arguments), "--device", "cpu"])
    return capsys.readouterr().out.split("\n")[:-1]


def test_the_program_generates_and_scores(
    run: Path,
    model: LoadedLanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = programmed(monkeypatch, capsys, b"", run, "--count", 3)
    assert lines == [one.text for one in model.predict([""] * 3)]
    beams = ("search=beam", "search.nbest=2", "--nbest")
    lines = programmed(monkeypatch, capsys, b"the king\na\n", run, *beams)
    columns = [line.split(" ||| ") for line in lines]
    assert [number for number, *_ in columns] == ["0", "0", "1", "1"]
    assert all(text.startswith(("the king", "a")) for _, text, _ in columns)
    drawn = programmed(monkeypatch, capsys, b"the king\n", run, "-", "--count", 2)
    assert [line.startswith("the king") for line in drawn] == [True] * 2
    text = "the king sleeps.\nking the sleeps.\n\n"
    lines = programmed(monkeypatch, capsys, text.encode(), run, "--log-probs")
    values, scored = zip(*(line.split("\t") for line in lines), strict=True)
    assert [*map(float, values)] == pytest.approx(model.log_probs(text.split("\n")[:3]), abs=1e-3)
    assert "\n".join(scored) == text.removesuffix("\n")


def test_the_program_draws_the_attention_of_a_transformer(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, picture = tmp_path / "run", tmp_path / "maps.png"
    transformer = ("decoder=transformer", "model.num_heads=2", "trainer.fast_dev_run=true")
    assert command_line.run(*LINE, *transformer, f"hydra.run.dir={folder}") == 0
    programmed(monkeypatch, capsys, b"the king sleeps.\n", folder, "--attention-maps", picture)
    assert [path.name for path in tmp_path.glob("*.png")] == ["maps.decoder.png"]
    figure = api.load(folder, device="cpu").plot_attention_maps("the king sleeps.")["decoder"]
    tokens = ["<sos>", "the", "king", "sleeps", "."]
    labels = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    assert set(tokens) <= set(labels)
    with pytest.raises(SystemExit):
        programmed(monkeypatch, capsys, b"the king\n", run, "--attention-maps", picture)
    assert "decoder=transformer" in capsys.readouterr().err
    assert "TransformerDecoder has no recurrent state" in (folder / "run.log").read_text("utf-8")
    assert "test/perplexity_per_word_carried" not in result_of(folder)


@pytest.mark.parametrize("mode", ["--log-probs", "--scores"])
def test_a_long_line_is_refused_with_the_option_that_allows_it(
    mode: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b"the king\n" + b"a " * 30
    with pytest.raises(SystemExit):
        programmed(monkeypatch, capsys, text, run, mode, "--max-tokens", 29)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1
    assert "line 2 has 30 tokens" in printed.err
    assert "--max-tokens=30" in printed.err
    assert len(programmed(monkeypatch, capsys, text, run, mode, "--max-tokens", 30)) == 2


def test_an_option_of_another_task_is_refused_by_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        predict.main([str(run), "--alignments"])
    error = capsys.readouterr().err
    assert "--alignments: runs of LanguageModelTask" in error
    assert "--log-probs" in error
    with pytest.raises(SystemExit):
        predict.main([str(run), "--log-probs", "--nbest", "--attention-maps", "maps.png"])
    assert "--log-probs generates no text. Leave out --nbest --attention-maps." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("encoder=gru", "model.cell=gru"),
        ("encoder=bilstm", "model.cell=lstm"),
        ("encoder.dropout=0.3", "decoder.dropout"),
        ("encoder.encoder_output_dropout=0.3", "decoder.state_dropout"),
        ("encoder.cell=gru", "decoder.cell"),
        ("encoder.reverse=true", "Leave encoder.reverse out"),
        ("encoder=transformer", "decoder=transformer"),
        ("model.encoder_hidden_size=8", "model.hidden_size=8"),
        ("decoder=transformer model.encoder_hidden_size=8", "model.hidden_size=8"),
        ("model.reverse_source=true", "model.reverse_source=false"),
        ("model.share_layers=true", "model.share_layers=false"),
        ("model.bridge=tanh", "model.bridge=zero"),
        ("attention=additive", "attention=none"),
        ("decoder=transformer attention=scaled_dot", "attention=none"),
        ("decoder=conditional", "decoder=plain"),
        ("decoder=context", "decoder=plain"),
        ("decoder=transformer task.carry_state=true", "decoder=plain"),
        ("decoder=transformer task.carry_state=true model.embedding_size=13", "decoder=plain"),
        ("decoder=transformer trainer.monitor=val/perplexity_per_word_carried", "trainer.monitor=null"),
        ("task.chunk_length=0", "task.chunk_length=0"),
        ("dataset.language=de", "dataset.language=de"),
        ("dataset.column=0", "dataset.column=0"),
        ("embedding.source.frozen=true", "embedding.source"),
        ("task.r_drop=1.0", "task.r_drop"),
    ],
)
def test_settings_that_do_not_apply_are_refused(
    setting: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(*LINE, *setting.split()) == 2
    assert key in capsys.readouterr().err


def test_streams_are_not_counted_in_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(*LINE, "task.carry_state=true", "task.batch_unit=tokens") == 2
    assert "task.batch_unit=tokens" in capsys.readouterr().err


def test_a_parallel_corpus_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [setting for setting in LINE if not setting.startswith("dataset.")]
    assert (
        command_line.run(*line, "dataset=grammar", "dataset.train=1", f"hydra.run.dir={tmp_path / 'run'}")
        == 2
    )
    assert "data set Grammar" in capsys.readouterr().err


def text_file(path: Path, **changed: Any) -> Monolingual:
    values: dict[str, Any] = {"language": "en", "validation_share": 0.2, "test_share": 0.3, "seed": 1}
    generated = {"train": 1, "validation": 1, "test": 1, "max_depth": 1}
    return Monolingual(**{"path": str(path), "encoding": None, "column": None} | values | generated | changed)


def test_a_text_is_split_by_the_numbers_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {number}\n\n" for number in range(10)), "utf-8")
    corpus = text_file(path).load()
    assert [[*split.lines] for split in corpus.splits.values()] == [
        [f"line {number}" for number in part] for part in (range(5), range(5, 7), range(7, 10))
    ]
    assert corpus.counts["blank_lines"] == 10
    rows = path.with_suffix(".jsonl")
    rows.write_text("".join(f'{{"text": "line {number}"}}\n\n' for number in range(10)), "utf-8")
    assert text_file(rows, column="text").load() == corpus


def test_validation_and_test_can_be_files(tmp_path: Path) -> None:
    for name, count in (("train", 4), ("valid", 2), ("test", 1)):
        (tmp_path / name).write_text("".join(f"{name} {number}\n\n" for number in range(count)), "utf-8")
    path = tmp_path / "train"
    corpus = text_file(path, validation=str(tmp_path / "valid"), test=str(tmp_path / "test")).load()
    assert [[*split.lines] for split in corpus.splits.values()] == [
        [f"train {number}" for number in range(4)],
        ["valid 0", "valid 1"],
        ["test 0"],
    ]
    assert list(corpus.train.documents or ()) == [0, 1, 2, 3]
    assert corpus.counts["blank_lines"] == 7
    one = text_file(path, test=str(tmp_path / "test"), validation_share=0.25, test_share=0).load()
    assert [len(split.lines) for split in one.splits.values()] == [3, 1, 1]
    (tmp_path / "test").write_text("\n")
    with pytest.raises(UserError, match=r"dataset\.test=.* has no line with text"):
        text_file(path, test=str(tmp_path / "test")).load()
    with pytest.raises(UserError, match=r"dataset\.test=a needs dataset\.path=FILE"):
        replace(text_file(path), path=None, test="a")


def test_unknown_tokens_that_training_lacks_give_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task: Any = build_task(
        compose_run(
            [
                *("task=language_model", "tokenizer=whitespace", "tokenizer.min_frequency=1"),
                f"dataset.path={tmp_path / 'train'}",
                f"dataset.test={tmp_path / 'test'}",
            ]
        ).config
    )
    (tmp_path / "train").write_text("a b\n" * 40)
    for text, warned in (("a c\n", True), ("b a\n", False)):
        (tmp_path / "test").write_text(text)
        task.__dict__.pop("corpus", None)
        task.load(tmp_path / "cache", None, None)
        caplog.clear()
        task.describe()
        assert ("not trained on <unk>" in caplog.text) is warned


@pytest.mark.parametrize(
    ("name", "content", "column", "remedy"),
    [
        ("a.csv", "id,sentence\n1,a b\n", "text", r"it has id, sentence\. .*dataset\.column"),
        ("a.csv", "id,sentence\n1,a b\n", 3, r"dataset\.column=3: .* 2 columns"),
        ("a.jsonl", '{"sentence": "a b"}\n', "text", r"it has sentence\. .*dataset\.column"),
        ("a.jsonl", '{"text": ["a b"]}\n', "text", r"dataset\.column=text\.KEY"),
        ("a.tsv", "\xff\n", "text", r"dataset\.column=text"),
    ],
)
def test_a_wrong_column_is_refused_with_the_key_of_the_data_set(
    name: str, content: str, column: str | int, remedy: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content, "latin-1")
    with pytest.raises(UserError, match=remedy) as error:
        text_file(path, column=column).load()
    assert "dataset.columns" not in str(error.value)
    assert "dataset.delimiter" not in str(error.value)


@pytest.mark.parametrize(("chunk", "warned"), [(28, True), (27, False)])
def test_chunks_that_carry_no_state_give_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, chunk: int, warned: bool
) -> None:
    """28 of 40 sentences are training sentences, with 3 tokens each: 84 in 3 streams."""
    path = tmp_path / "text"
    path.write_text("a b\n" * 40)
    settings = (f"task.chunk_length={chunk}", "task.carry_state=true", "task.batch_size=3")
    line = ("task=language_model", "tokenizer=whitespace", f"dataset.path={path}", *settings)
    shares = ("dataset.validation_share=0.15", "dataset.test_share=0.15")
    task: Any = build_task(compose_run([*line, *shares]).config)
    data = task.load(tmp_path / "cache", None, None)
    assert (len(data.train.epoch(0, CPU).plan) == 1) is warned
    task.describe()
    assert ("task.chunk_length=28" in caplog.text) is warned


@pytest.mark.parametrize("data", [b"a\n\xff\nb\n", b"a\nb\n", b"\n", b"a\0b\n", b"a\rb\n"])
def test_a_text_that_cannot_be_used_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"dataset\.path="):
        text_file(path).load()


def test_the_score_of_a_sentence_is_its_log_probability(model: LoadedLanguageModel) -> None:
    lines = ["the king sleeps.", "the cat sees a dog.", ""]
    scored = model.score([""] * 3, lines)
    assert [one.log_prob for one in scored] == pytest.approx(model.log_probs(lines), abs=1e-5)
    with pytest.raises(UserError, match="no source"):
        model.score(lines, lines)


def test_attributions_are_on_the_words_before(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        *("grad_x_input", "grad_norm", "integrated_gradients", "integrated_gradients_unknown"),
        *("smooth_grad", "occlusion", "occlusion_unknown"),
    }
    for one in check_attributions(run, expected, capsys):
        scores_TU = attribute(one, ["occlusion", "grad_norm"])
        for name, found in scores_TU.items():
            later = np.arange(found.scores_TU.shape[1]) > np.arange(one.steps)[:, None]
            assert (later == ~one.read_TU).all()
            assert (found.scores_TU[later] == 0).all(), name
            assert abs(found.scores_TU[~later]).max() > 1e-6, name


def test_its_trace_continues_a_beginning(model: LoadedLanguageModel) -> None:
    traced = check_trace(model, "the king", model.predict(["the king"])[0])
    assert [token.text for token in traced.source.tokens] == ["<sos>", "the", "king"]
    assert (traced.task, traced.best.attention) == ("language_model", None)
    assert traced.no_attention == "A language model has no source to attend to."
    explained = model.attribute("", traced.best.text, ["grad_x_input"])
    assert (explained.words[0], explained.tokens[-1]) == ("<sos>", "<eos>")
    with pytest.raises(UserError, match="no source"):
        model.trace("the king", change={"kind": "uniform", "step": 0})
