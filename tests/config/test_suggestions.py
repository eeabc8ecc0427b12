"""Which key or value the error about a mistake names."""

import command_line
import pytest

from seq2seq_lab.errors import did_you_mean, nearest

# The mistake, and what the suggestion names; None for no suggestion, which is better than a wrong one.
MISTAKES = {
    # names of groups and keys at the top level
    "modle=vanilla": "'model'",
    "attenton=dot": "'attention'",
    "Attention=dot": "'attention'",
    "encoders=gru": "'encoder'",
    "data=multi30k": "'dataset'",
    "optimiser=adamw": "'optimizer'",
    "teacher-forcing=linear": "'teacher_forcing'",
    "tokeniser=bpe": "'tokenizer'",
    "seeds=3": "'seed'",
    "init_form=RUN": "'init_from'",
    "loger=none": "'logger'",
    "cuda=0": None,
    # keys whose section is left out
    "hidden_size=128": "model.hidden_size",
    "lr=0.1": "optimizer.lr",
    "batch_size=32": "task.batch_size",
    "dropout=0.1": "model.dropout",
    "max_epochs=3": "trainer.max_epochs",
    "epochs=3": "trainer.max_epochs",
    "patience=2": "trainer.patience",
    "precision=bf16": "trainer.precision",
    "max_depth=2": "dataset.max_depth",
    "bidirectional=true": "encoder.bidirectional",
    "beam_size=5": "search=beam search.size=…",
    # keys of a section
    "metric.novel_ngrams.order=3": "metric=novel_ngrams",
    "attention.additive.size=3": None,
    "model.hiden_size=3": "'model.hidden_size'",
    "model.hidden-size=3": "'model.hidden_size'",
    "model.Dropout=0.1": "'model.dropout'",
    "model.hidden_dim=64": "'model.hidden_size'",
    "trainer.epochs=3": "'trainer.max_epochs'",
    "trainer.max_epoch=3": "'trainer.max_epochs'",
    "trainer.steps=10": "'trainer.max_steps'",
    "model.layers=2": "'model.num_layers'",
    "optimizer.learning_rate=0.1": "'optimizer.lr'",
    "optimizer.weight_deacy=0.1": "'optimizer.weight_decay'",
    "dataset.trian=100": "'dataset.train'",
    "search.beam_size=5": "search.size, a setting of search=beam",
    "search.beam=5": "search.size, a setting of search=beam",
    "search.size=5": "a setting of search=beam",
    "trainer.tags=[a]": None,
    "model.attention=dot": "the group 'attention', without model",
    "wandb.project=x": None,
    # values of groups
    "optimizer=AdamW": "'adamw'",
    "encoder=LSTM": "'lstm'",
    "encoder=bi-lstm": "'bilstm'",
    "encoder=BiGRU": "'bigru'",
    "tokenizer=BPE": "'bpe'",
    "dataset=multi30K": "'multi30k'",
    "dataset=multi-30k": "'multi30k'",
    "decoder=Luong": "'luong'",
    "model=Attn": "'attn'",
    "search=beem": "'beam'",
    "attention=aditive": "'additive'",
    "attention=scaled-dot": "'scaled_dot'",
    "attention=multi": "'multiplicative'",
    "task=translate": "'translation'",
    "study=attentoin": "'attention'",
    "experiment=luong": "'luong2015' or 'luong2015_feeding'",
    "experiment=vaswani2017": None,
    "readout=pointr": "'pointer'",
    # numbers for groups
    "teacher_forcing=0.5": "teacher_forcing=constant teacher_forcing.ratio=0.5",
    "decoder=2": None,
    # values of another group
    "model=lstm": "encoder=lstm",
    "model=GRU": "encoder=gru",
    "attention=luong": "decoder=luong",
    "encoder=beam": "search=beam",
    # closed choices
    "trainer.device=gpu": "'cuda'",
    "trainer.precision=float16": "'fp16'",
    "trainer.precision=BF16": "'bf16'",
    "teacher_forcing.scope=tokens": "'token'",
    "model.bridge=tahn": "'tanh'",
}


@pytest.mark.parametrize(("mistake", "named"), MISTAKES.items(), ids=MISTAKES)
def test_the_suggestion(mistake: str, named: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("logger=none", mistake) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {mistake.lstrip('+')}") or "is not" in error
    if named is None:
        assert "Did you mean" not in error
    else:
        suggestion = error.partition("Did you mean ")[2].partition("?")[0] or error.partition("It is ")[2]
        assert named in suggestion, error


def test_a_value_of_your_own_needs_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("attention=mine") == 2
    error = capsys.readouterr().err
    assert "--config-dir FOLDER" in error
    assert "Did you mean" not in error


@pytest.mark.parametrize("settings", [["experiment.seed=1"], ["experiment.seed=1", "experiment=g2p"]])
def test_a_setting_of_an_experiment_has_no_prefix(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("logger=none", *settings) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: experiment.seed=1:")
    assert "write seed=1." in error
    assert "Did you mean" not in error


@pytest.mark.parametrize(
    ("option", "setting"),
    [("--seed", "seed=VALUE"), ("--seed=3", "seed=3"), ("--trainer.max-epochs=3", "trainer.max_epochs=3")],
)
def test_a_setting_has_no_dashes(option: str, setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("logger=none", option) == 2
    assert f"Settings have no dashes: write {setting}." in capsys.readouterr().err


def test_a_value_that_the_shell_has_split_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("logger.tags=[a,", "b]") == 2
    error = capsys.readouterr().err
    assert "the shell has split a value at a space" in error
    assert "'logger.tags=[a, b]'" in error


@pytest.mark.parametrize("model", ["vanilla", "cho"])
def test_the_advice_for_a_model_without_attention_is_about_the_model(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(f"model={model}", "attention=dot", "logger=none") == 2
    assert "have no attention" in capsys.readouterr().err
    command_line.check("model=attn", "attention=dot", "model.hidden_size=384")


def test_the_nearest_choices() -> None:
    assert nearest("Dot", ["dot", "additive"]) == ["dot"]
    assert nearest("bi", ["bigru", "bilstm", "gru"]) == []  # two letters say too little
    assert nearest("big", ["bigru", "bilstm", "gru"]) == ["bigru"]
    assert nearest("mine", ["linear", "dot"]) == []
    assert did_you_mean("blue", ["bleu", "chrf"]) == " Did you mean 'bleu'?"
    assert did_you_mean("zzz", ["bleu"]) == ""
