"""Dialogues as a task: whole runs, their reports, and programs that open them."""

import io
import json
import sys
from functools import partial
from pathlib import Path

import command_line
import numpy as np
import pytest
from attribution_checks import check_attributions
from finished_runs import losses_by_step, result_of
from forked_ranks import forked_ranks
from trace_checks import check_trace

import seq2seq_lab
from seq2seq_lab import evaluate, predict
from seq2seq_lab.analysis.distances import measure_distances
from seq2seq_lab.analysis.interventions import free, intervene
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching import study
from seq2seq_lab.metrics.texts import References
from seq2seq_lab.reporting.score_tables import CLUSTERS, read_statistics
from seq2seq_lab.runtime.console import Progress
from seq2seq_lab.tasks.dialogue import DialogueTask
from seq2seq_lab.tasks.translation.task import TranslationTask

GENERATED = ("dataset.train=24", "dataset.validation=4", "dataset.test=9", "dataset.max_distance=3")
OF_FILES = (
    *("experiment=dialogue", "logger=none"),
    *("model.embedding_size=8", "model.encoder_hidden_size=4", "model.hidden_size=8"),
    *("task.batch_size=8", "trainer.precision=fp32", "task.samples=1", "trainer.log_every_steps=1"),
    *("teacher_forcing.ratio=0.5", "trainer.max_epochs=2", "model.dropout=0.0", "search.max_length_factor=0"),
)
SMALL = (*OF_FILES, *GENERATED)

BOTH = ("encoder.outputs=both",)
ONE_EPOCH = ("trainer.max_epochs=1", "task.samples=0")
SHORT = (*SMALL, *ONE_EPOCH)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without interruption."""
    folder = tmp_path_factory.mktemp("dialogue") / "run"
    assert command_line.run(*SMALL, *BOTH, f"hydra.run.dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def of_turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with attention to turns."""
    folder = tmp_path_factory.mktemp("dialogue") / "turns"
    assert command_line.run(*SHORT, f"hydra.run.dir={folder}") == 0
    return folder


@pytest.fixture(scope="module")
def own_dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of dialogues in Hindi in which no turn decides the response."""
    folder = tmp_path_factory.mktemp("corpus")
    names = ("अनु", "रवि", "मीरा", "राम")
    for split, count in (("train", 12), ("validation", 4), ("test", 4)):
        lines = [
            json.dumps(["नमस्ते ।", f"नमस्ते {names[i % 4]} ।", f"क्या आप {split} {i} हैं ?"], ensure_ascii=False)
            for i in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines), "utf-8")
    return folder


def test_the_attention_over_the_training_is_that_of_the_samples(tmp_path: Path) -> None:
    settings = ("dataset.train=24", "dataset.validation=20", "dataset.test=4", "task.samples=2")
    assert command_line.run(*OF_FILES, *settings, "trainer.max_epochs=1", f"hydra.run.dir={tmp_path}") == 0
    lines = (tmp_path / "translations.val.jsonl").read_text("utf-8").splitlines()
    rows = (tmp_path / "attention/step_00000000.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(row)["source"] for row in rows] == [json.loads(lines[i])["source"] for i in (0, 10)]


def test_a_run_reports_accuracy_by_distance(whole: Path) -> None:
    result = result_of(whole)
    rows = [json.loads(line) for line in (whole / "translations.test.jsonl").read_text("utf-8").splitlines()]
    correct = [row["hypothesis"] == row["reference"] for row in rows]
    assert result["test/accuracy"] == pytest.approx(np.mean(correct))
    groups = result["test/accuracy_by_distance"]
    assert [group["group"] for group in groups] == ["1", "2", "3"]
    assert sum(group["count"] for group in groups) == 9
    assert sum(group["count"] for group in result["test/accuracy_by_phenomenon"]) == 9
    assert result["metrics"]["primary"] == "accuracy"
    assert result["metrics"]["metrics"]["accuracy"]["built_in"]
    assert (whole / "accuracy_by_distance.png").stat().st_size > 0
    assert (whole / "attention/sample_1.png").stat().st_size > 0


def test_dialogues_without_deciding_turns_monitor_perplexity(
    own_dialogues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact match is 0 at every validation, so it cannot select a checkpoint."""
    folder = tmp_path / "run"
    data = (f"dataset.path={own_dialogues}", "dataset.language=hi")
    words = (*OF_FILES, *data, "trainer.max_epochs=3", f"hydra.run.dir={folder}")
    progress: list[str] = []
    monkeypatch.setattr(Progress, "due", lambda self: True)
    monkeypatch.setattr(Progress, "_print", lambda self, step, parts: progress.append(parts[-1]))
    assert command_line.run(*words) == 0
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    by_step = {row["step"]: row for row in rows if "val/accuracy" in row}
    assert {row["val/accuracy"] for row in by_step.values()} == {0}
    name = "val/perplexity_teacher_forced"
    best = min(by_step, key=lambda step: by_step[step][name])
    result = result_of(folder)
    assert best == max(by_step) > min(by_step)
    assert (result["monitor"], result["best_checkpoint"]) == (name, f"step_{best:08d}")
    assert (result["metrics"]["primary"], result["metrics"]["metrics"]["accuracy"]["shown"]) == (
        "accuracy",
        True,
    )
    assert study.score(folder, None) == result[name] == pytest.approx(by_step[best][name])
    log = (folder / "run.log").read_text("utf-8")
    assert f"teacher-forced perplexity {result[name]:.2f}" in log
    assert progress[-1].startswith(f"best {name} ")
    # the bigrams of the four references: नमस्ते NAME, NAME ।, क्या आप, आप test, test 0, 0 हैं and so on, हैं ?
    assert result["test/distinct_2_references"] == pytest.approx((4 + 4 + 1 + 1 + 4 + 4 + 1) / 28)


def test_dialogues_with_deciding_turns_monitor_exact_match(whole: Path) -> None:
    result = result_of(whole)
    assert result["monitor"] == "val/accuracy"
    assert study.score(whole, None) == result["val/accuracy"]


def test_a_run_that_monitored_exact_match_is_not_resumed_with_perplexity(
    own_dialogues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a run of an earlier version, whose history has values of exact match."""
    with monkeypatch.context() as patch:
        patch.setattr(DialogueTask, "load", TranslationTask.load)
        for name, monitor in (("null", "null"), ("named", "val/bleu")):
            words = (f"dataset.path={own_dialogues}", f"trainer.monitor={monitor}")
            assert command_line.run(*OF_FILES, *ONE_EPOCH, *words, f"hydra.run.dir={tmp_path / name}") == 0
    capsys.readouterr()
    assert command_line.run(f"resume={tmp_path / 'null'}", "trainer.max_epochs=2") == 2
    error = capsys.readouterr().err
    assert 'trainer.monitor was null and is now "val/perplexity_teacher_forced"' in error
    assert command_line.run(f"resume={tmp_path / 'named'}", "trainer.max_epochs=2") == 0


def test_intervals_resample_the_dialogues_of_a_file(
    of_turns: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "validation", "test"):
        lines = [json.dumps([f"{word} {number}" for number in range(4)]) for word in ("a", "b", "c")]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines), "utf-8")
    output = tmp_path / "scores"
    evaluate.main([str(of_turns), f"dataset.path={tmp_path}", f"--output={output}", "--device=cpu"])
    clusters = read_statistics(output / "scored/test.npz")[CLUSTERS]
    assert np.unique(clusters, return_counts=True)[1].tolist() == [3, 3, 3]
    line = ["attribute", str(of_turns), f"dataset.path={tmp_path}", "--methods=grad_norm", "--format=jsonl"]
    for options in ([], ["--outputs"]):
        capsys.readouterr()
        for count, known in (("4", True), ("3", False)):  # of two dialogues, of one
            analyze.main([*line, *options, "--first", count])
            area = json.loads(capsys.readouterr().out.splitlines()[-1])["means"]["grad_norm"]["area"]
            assert (area["confidence"] is not None) == known


def test_a_killed_run_resumes_with_identical_losses(whole: Path, tmp_path: Path) -> None:
    command_line.run_until(4, *SMALL, *BOTH, f"hydra.run.dir={tmp_path}")
    assert command_line.run(f"resume={tmp_path}") == 0
    assert losses_by_step(tmp_path) == losses_by_step(whole)
    assert result_of(tmp_path)["test/bleu"] == result_of(whole)["test/bleu"]


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(whole: Path, tmp_path: Path) -> None:
    with forked_ranks():
        assert command_line.run(*SMALL, *BOTH, "trainer.devices=2", f"hydra.run.dir={tmp_path}") == 0
    assert losses_by_step(tmp_path) == pytest.approx(losses_by_step(whole), rel=1e-4)


def test_every_encoder_of_tokens_is_allowed() -> None:
    command_line.check("task=dialogue", "encoder=bigru")
    command_line.check("task=dialogue", "encoder=transformer", "model.bridge=mean")


def test_attention_to_words_is_joined_to_turns(whole: Path) -> None:
    run = seq2seq_lab.load(whole, device="cpu")
    context = TURN.join(("anna is in the kitchen .", "where is anna ?"))
    assert run.predict([context], join_subwords=False)[0].source_tokens.count("<eos>") == 2
    (joined,) = run.predict([context])
    names = [token.replace(UNKNOWN, "") for token in joined.source_tokens]
    assert names == ["<sos>", "anna is in the kitchen .", "where is anna ?", "<eos>"]
    assert joined.attention is not None
    assert joined.attention.sum(1) == pytest.approx(1, abs=1e-5)


def test_attention_to_turns_is_named_by_turns(of_turns: Path) -> None:
    run = seq2seq_lab.load(of_turns, device="cpu")
    (answer,) = run.predict([TURN.join(("anna is in the kitchen .", "where is anna ?"))])
    names = [token.replace(UNKNOWN, "") for token in answer.source_tokens]
    assert names == ["<sos>", "anna is in the kitchen .", "where is anna ?", "<eos>"]
    assert answer.attention is not None
    assert answer.attention[:, [0, 3]].sum() == 0
    assert answer.attention.sum(1) == pytest.approx(1, abs=1e-5)
    with pytest.raises(UserError, match="replace_unknown"):
        run.nbest(["where is anna ?"], replace_unknown=True)


def test_predictions_read_the_window_of_training(tmp_path: Path) -> None:
    """Turns before it change nothing."""
    run = seq2seq_lab.train((*SHORT, "dataset.turns=1"), tmp_path / "run")
    contexts = (TURN.join(("anna is in the kitchen .", "where is anna ?")), "where is anna ?")
    longer, shorter = run.predict(contexts)
    assert (longer.text, longer.log_prob) == (shorter.text, shorter.log_prob)
    assert longer.source_tokens == shorter.source_tokens
    assert len(longer.source_tokens) == 3  # one turn
    scores = run.score(contexts, ["in the kitchen ."] * 2)
    assert scores[0].log_probs.tolist() == scores[1].log_probs.tolist()


def test_attention_to_turns_has_no_distance(of_turns: Path) -> None:
    run = seq2seq_lab.load(of_turns, device="cpu")
    examples = [
        json.loads(line)
        for line in (of_turns / "translations.test.jsonl").read_text("utf-8").splitlines()[:4]
    ]
    texts = ([one["source"] for one in examples], [one["reference"] for one in examples])
    found = measure_distances([run, run], {"pair": [(0, 1)]}, *texts)["pair"]
    assert found.attention is None
    assert found.predictions is not None
    assert found.predictions.value == 0


def test_a_dialogue_starts_from_the_embeddings_of_another_one(of_turns: Path, tmp_path: Path) -> None:
    copied = (f"init_from={of_turns}", "init_part=[source_embedding,target_embedding]")
    run = seq2seq_lab.train((*SHORT, "dataset.turns=2", *copied, "optimizer.lr=0"), tmp_path / "run")
    before = seq2seq_lab.load(of_turns, device="cpu").model.state_dict()
    weight = "source_embedding.table.weight"
    after = run.model.state_dict()
    assert before.keys() == after.keys()
    assert after[weight].tolist() == before[weight].tolist()
    lines = [TURN.join(("hello .", "anna is here .", "where is anna ?"))]
    assert run.tokenizers.source.encode(lines)[0].count(EOS) == 1


def test_programs_open_a_run_of_dialogues(
    of_turns: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = TURN.join(("anna has two books .", "how many books has anna ?"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{line}\n".encode())))
    predict.main([str(of_turns), "search=beam", "--alignments", "--device=cpu"])
    output, alignment = capsys.readouterr().out.rstrip("\n").split("\t")
    assert {pair.partition("-")[0] for pair in alignment.split()} <= {"0", "1"}
    assert len(alignment.split()) >= len(output.split())
    evaluate.main([str(of_turns), f"--output={tmp_path / 'again'}", "--device=cpu", "--precision=fp32"])
    again, first = result_of(tmp_path / "again"), result_of(of_turns)
    assert again["test/accuracy_by_distance"] == first["test/accuracy_by_distance"]
    assert again["metrics"]["primary"] == "accuracy"


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("dataset=grammar", "task=dialogue"),
        ("encoder=convolutional model.bridge=mean", "encoder._target_"),
        ("encoder.outputs=utterances", "encoder.outputs=utterances"),
        ("task.length_bounds=[3]", "task.length_bounds"),
        ("+task.samples=3", "task.samples"),
        ("readout=pointer tokenizer.joint=true encoder=bigru", "readout.copied_words"),
    ],
)
def test_what_does_not_fit_is_refused(
    override: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"hydra.run.dir={tmp_path / 'run'}"
    assert command_line.run("task=dialogue", *override.split(), "logger=none", folder) == 2
    assert key in capsys.readouterr().err


@pytest.mark.parametrize("task", ["translation", "classification", "language_model"])
def test_an_encoder_of_turns_is_refused_for_other_tasks(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (f"task={task}", "encoder=hierarchical", "logger=none", f"hydra.run.dir={tmp_path}")
    assert command_line.run(*settings) == 2
    assert "encoder" in capsys.readouterr().err


def test_a_trace_has_the_turns_or_their_words_as_columns(whole: Path, of_turns: Path) -> None:
    for folder, columns in ((whole, "tokens"), (of_turns, "turns")):
        run = seq2seq_lab.load(folder, device="cpu")
        context = "hello\thow are you"
        traced = check_trace(run, context, run.predict([context])[0])
        assert (traced.task, traced.source.columns) == ("dialogue", columns)
        assert traced.best.attention is not None
        assert traced.best.attention.shape[1] == len(traced.source.column_names)
        changed = run.trace(context, change={"kind": "uniform", "step": 0})
        assert changed.best.attention[0] == pytest.approx(1 / len(traced.source.column_names))
    assert traced.source.column_names == ["hello", "how are you"]


def test_changed_weights_are_those_of_turns(of_turns: Path) -> None:
    run = seq2seq_lab.load(of_turns, device="cpu")
    pair = "hello\thow are you\tfine", "hello"
    forced = run.forced(*([one] for one in pair))
    for kind in ("word=0", "mask=1", "word=99"):
        for ask in (partial(run.intervene, *pair), partial(intervene, run.model, forced, scopes=["step"])):
            with pytest.raises(UserError, match=rf"^kind={kind} .*without a word"):
                ask(kinds=[kind])
        with pytest.raises(UserError, match=rf"^kind={kind} .*without a word"):
            free(run, References([pair[1]]), forced, [kind])
    first, uniform = (
        run.intervene(*pair, ["weights"], weights=[row]).effects[0].tokens
        for row in ([1.0, 0.0, 0.0], [1 / 3] * 3)
    )
    expected = run.intervene(*pair, ["uniform"]).effects[0].tokens
    np.testing.assert_allclose(uniform.log_prob_change, expected.log_prob_change, atol=1e-5)
    assert (first.log_prob_change != expected.log_prob_change).any()
    with pytest.raises(UserError, match=r"^weights=.*one list of 3 numbers"):
        run.intervene(*pair, ["weights"], weights=[[0.25] * 4])


def test_contexts_of_one_turn_are_not_permuted(whole: Path, of_turns: Path) -> None:
    contexts = ["hello how are you", "hello\thow are you", "!\t?"]
    for folder, expected in ((of_turns, [False, True, True]), (whole, [True, True, False])):
        run = seq2seq_lab.load(folder, device="cpu")
        forced = run.forced(contexts, ["hello"] * 3)
        found = intervene(run.model, forced, ["permute"], ["step"])["permute", "step"]
        assert [found.changed[found.cluster == i].all() for i in range(3)] == expected
        assert [found.changed[found.cluster == i].any() for i in range(3)] == expected
        (effect,) = free(run, References(["hello"] * 3), forced, ["permute"])
        assert (effect.sentences, effect.left_out) == (2, 1)


@pytest.mark.parametrize("outputs", ["both", "turns"])
def test_attributions_are_on_the_words_of_all_turns(
    outputs: str, whole: Path, of_turns: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {
        *("grad_x_input", "grad_norm", "integrated_gradients", "integrated_gradients_unknown"),
        *("smooth_grad", "occlusion", "occlusion_unknown", "occlusion_removed"),
    }
    if outputs == "both":  # attention to turns is not attention to words
        expected |= {"attention", "attention_norm", "value_zeroing"}
    for one in check_attributions(whole if outputs == "both" else of_turns, expected, capsys):
        assert "".join(one.source_names) == f"<sos>{one.line}<eos>".replace(" ", "")
        assert one.source_names.count(TURN) == one.line.count(TURN) > 0
