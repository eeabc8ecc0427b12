"""From the configuration to objects: checks of the slots, and the objects built from them."""

import copy
import inspect
import math
import re
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from hydra import compose
from omegaconf import OmegaConf

from seq2seq_lab.config import extensions
from seq2seq_lab.config.compose import compose_run, composer
from seq2seq_lab.config.schema import SLOTS, Config, Precision, typed
from seq2seq_lab.config.slots import INSTRUCTIONS, Kind, annotations, check_slot, missing_methods, part
from seq2seq_lab.data.corpus import Dataset
from seq2seq_lab.data.tokenized import tokenize_corpus
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching import start
from seq2seq_lab.launching.checks import KINDS, check_parts, check_slots
from seq2seq_lab.models.attention import AdditiveAttention
from seq2seq_lab.models.seq2seq import build_seq2seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.parts import build_dataset, build_search, build_task, build_tokenizer, check_model
from seq2seq_lab.tasks.translation.evaluation import METRICS, TranslationEvaluator, TranslationSplit
from seq2seq_lab.tracking.parts import build_logger
from seq2seq_lab.training.parts import build_optimizer, build_schedule, trainer_settings

CONF = Path(__file__).parents[2] / "conf"


@pytest.fixture(scope="module")
def composed() -> Config:
    with composer():
        return typed(compose("config"))


@pytest.fixture
def config(composed: Config) -> Config:
    """A configuration that a test may change."""
    return copy.deepcopy(composed)


def test_the_default_configuration_passes(config: Config) -> None:
    check_parts(config)
    assert set(KINDS) == {*SLOTS, "metric"}


@pytest.mark.parametrize(
    ("slot", "key", "value", "said"),
    [
        ("encoder", "hiden_size", 3, ["encoder.hiden_size=3", "'hidden_size'", "Allowed: cell, "]),
        ("encoder", "input_size", 3, ["encoder.input_size=3", "no such setting"]),
        ("encoder", "hidden_size", "big", ["encoder.hidden_size=big", "a whole number"]),
        ("encoder", "hidden_size", True, ["encoder.hidden_size=True", "a whole number"]),
        ("attention", "size", 1.5, ["attention.size=1.5", "a whole number"]),
        ("teacher_forcing", "scope", "tokens", ["scope=tokens", "'token'", "token, step, sequence, batch"]),
        ("optimizer", "lr", "fast", ["optimizer.lr=fast", "a number"]),
        ("optimizer", "betas", 0.9, ["optimizer.betas=0.9", "a list of 2"]),
        ("optimizer", "params", [], ["optimizer.params", "no such setting"]),
        ("logger", "folder", "x", ["logger.folder=x", "no such setting"]),
        *(
            ("encoder", key, 1, [f"encoder.{key}=1", "refused"])
            for key in sorted(INSTRUCTIONS - {"_target_"})
        ),
        ("logger", "tags", [{"_target_": "os.system"}], ["logger.tags[0]._target_=os.system", "refused"]),
        ("optimizer", "x", {"y": {"_target_": "os.system"}}, ["optimizer.x.y._target_=os.system", "refused"]),
        ("encoder", "_target_", "os.system", ["encoder._target_=os.system", "SEQ2SEQ_LAB_TRUST=os "]),
        ("encoder", "_target_", None, ["encoder._target_=None", "encoder=…"]),
        ("encoder", "_target_", "seq2seq_lab.nothing.X", ["cannot be imported"]),
        ("encoder", "_target_", "seq2seq_lab.models.encoders.X", ["cannot be imported"]),
        ("encoder", "_target_", "seq2seq_lab.models.encoders.recurrent.Tensor", ["refused"]),
        ("encoder", "_target_", "seq2seq_lab.models.encoders.base.Encoder", ["not a class for encoder"]),
        ("encoder", "_target_", "seq2seq_lab.models.attention.DotAttention", ["not a class for encoder"]),
        ("search", "_target_", "seq2seq_lab.data.grammar.Grammar", ["not a class for search"]),
        ("dataset", "_target_", "seq2seq_lab.search.greedy.GreedySearch", ["not a class for dataset"]),
        ("dataset", "_target_", "seq2seq_lab.files.write_atomically", ["not a class for dataset"]),
        ("optimizer", "_target_", "torch.optim.Optimizer.step", ["optimizer._target_"]),
    ],
)
def test_a_slot_is_refused(config: Config, slot: str, key: str, value: object, said: list[str]) -> None:
    getattr(config, slot)[key] = value
    with pytest.raises(UserError) as raised:
        check_slots(config)
    for fragment in said:
        assert fragment in str(raised.value)


def test_the_settings_of_a_task_need_an_annotation(config: Config, tmp_path: Path) -> None:
    text = (
        "from seq2seq_lab.tasks.translation.task import TranslationTask\n"
        "class Own(TranslationTask):\n"
        "    def __init__(self, *, parts, seed, settings):\n"
        "        super().__init__(parts=parts, seed=seed, settings=settings)\n"
    )
    (tmp_path / "own_task.py").write_text(text)
    (tmp_path / "without.py").write_text(text.replace("settings):", "settings=None):"))
    config.task["_target_"] = "own_task.Own"
    with extensions.using(tmp_path):
        with pytest.raises(UserError, match=r"own_task.Own .*line 2.*`settings` .* annotation"):
            check_slots(config)
        config.task = {"_target_": "without.Own"}
        check_slots(config)


def test_a_missing_setting_is_named(config: Config) -> None:
    del config.encoder["cell"]
    with pytest.raises(UserError, match=r"encoder\.cell is missing"):
        check_slots(config)


@pytest.mark.parametrize(
    "name", ["Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta"]
)
def test_torchs_optimizers_pass_with_their_own_defaults(name: str) -> None:
    """A new version of torch may annotate otherwise: every default has to fit its own annotation."""
    optimizer = getattr(torch.optim, name)
    parameters = {
        key: item.default for key, item in inspect.signature(optimizer).parameters.items() if key != "params"
    }
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in parameters.items()}
    check_slot("optimizer", {"_target_": f"torch.optim.{name}", **plain}, KINDS)
    for key, value in (("lr", "fast"), ("weight_decay", [1])):
        with pytest.raises(UserError, match=rf"optimizer\.{key}"):
            check_slot("optimizer", {"_target_": f"torch.optim.{name}", **plain, key: value}, KINDS)


def test_annotations_that_cannot_be_resolved_leave_it_to_the_constructor() -> None:
    class Odd:
        def __init__(self, size: "OnlyForTypeCheckers", count: int) -> None:  # type: ignore[name-defined]  # noqa: F821
            self.size, self.count = size, count

    assert annotations(Odd) == {"count": int, "return": type(None)}
    with pytest.raises(NameError):
        typing.get_type_hints(Odd.__init__)


def test_a_text_is_meant_for_another_class_that_has_one(config: Config) -> None:
    assert config.attention is not None
    for value, shown in (("big", "big"), ("8", "'8'"), (None, "null")):
        with pytest.raises(UserError, match=rf"attention\.size={shown} is not allowed\. Allowed: [^.]*\.$"):
            check_slot("attention", {**config.attention, "size": value}, KINDS)


@dataclass(frozen=True)
class Shape:
    height: int
    width: int


class Window:
    def __init__(self, shape: Shape, origin: Shape) -> None:
        self.shape, self.origin = shape, origin


def test_the_fields_of_a_dataclass_are_settings_unless_the_program_passes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEQ2SEQ_LAB_TRUST", __name__)
    kinds = {"window": Kind(Window, frozenset({"origin"}))}
    slot = {"_target_": f"{__name__}.Window", "height": 2, "width": 3}
    check_slot("window", slot, kinds)
    made = part("window", slot, kinds)(origin=Shape(0, 1))
    assert (made.shape, made.origin) == (Shape(2, 3), Shape(0, 1))
    for key, value in (("origin", {}), ("shape", {}), ("width", "wide")):
        with pytest.raises(UserError, match=rf"window\.{key}="):
            check_slot("window", slot | {key: value}, kinds)


RANGES = {
    "attention=additive": {"size": [0, -3]},
    "attention=scaled_dot": {"size": [0]},
    "attention=location": {"max_length": [0]},
    "attention=local": {"size": [0], "window": [0]},
    "attention=location_sensitive": {"size": [0], "filters": [0], "width": [0]},
    "attention=coverage": {"size": [0]},
    "encoder=bigru": {"num_layers": [0], "hidden_size": [0], "dropout": [-0.1, 1.0]},
    "encoder=convolutional": {"channels": [[8, 0]], "strides": [[0, 1]], "size": [0]},
    "encoder=transformer": {
        key: [0] for key in ("num_layers", "num_heads", "feedforward_size", "max_length")
    },
    "decoder=luong": {"num_layers": [0], "attentional_size": [0]},
    "decoder=conditional": {"attentional_size": [0]},
    "readout=deep": {"size": [0]},
    "pooling=attender": {"sparsity": [-0.1, math.nan], "free_steps": [-1]},
    "initialization=uniform": {"bound": [0.0, -0.1, math.inf, math.nan]},
    "initialization=normal": {"std": [0.0, -0.1, math.inf, math.nan]},
    "teacher_forcing=constant": {"ratio": [-0.1, 1.1, math.nan]},
    "teacher_forcing=linear": {"start": [-0.1, 1.1], "end": [-0.1, 1.1], "steps": [0, -3]},
    "teacher_forcing=exponential": {"half_at": [0]},
    "teacher_forcing=inverse_sigmoid": {"half_at": [0]},
    "schedule=warmup": {"warmup_steps": [-1]},
    "schedule=inverse_sqrt": {"warmup_steps": [0]},
    "schedule=cosine": {"warmup_share": [-0.1, 1.0], "final_factor": [-0.5]},
    "schedule=one_cycle": {
        "warmup_share": [-0.1, 1.0],
        "initial_factor": [-0.04],
        "final_factor": [-1.0],
        "momentum": [[0.9], [0.85, 1.0]],
    },
    "schedule=epoch_decay": {"constant_epochs": [-1], "factor": [-1.0, 0.0, 1.0]},
    "schedule=plateau": {"factor": [-1.0, 0.0, 1.0], "patience": [-1]},
    "search=greedy": {"max_length_factor": [-0.1, 1e4], "max_length_extra": [0]},
    "search=sampling": {
        "temperature": [0.0],
        "top_k": [0],
        "top_p": [0.0, 1.1],
        "nbest": [0],
        "max_length_factor": [-0.1, 1e4],
        "max_length_extra": [0],
    },
    "search=beam": {
        "size": [0],
        "length_penalty": [-1.0],
        "length_offset": [-1],
        "coverage_penalty": [-1.0],
        "nbest": [0],
        "max_length_factor": [-0.1, 1e4],
        "max_length_extra": [0],
    },
    "tokenizer=word": {"min_frequency": [0], "max_size": [4]},
    "tokenizer=char": {"min_frequency": [0], "max_size": [4]},
    "tokenizer=whitespace": {"min_frequency": [0], "max_size": [4]},
    "tokenizer=spacy": {"min_frequency": [0], "max_size": [4]},
    "tokenizer=bpe": {"vocab_size": [259], "min_frequency": [0], "dropout": [-0.1, 1.5]},
    "tokenizer=unigram": {"vocab_size": [259]},
    "dataset=grammar": {
        **{key: [0, -5] for key in ("train", "validation", "test")},
        "test_compositional": [-1],
        "max_depth": [-1],
        "held_out_share": [-0.1, 0.51, 1],
    },
    "dataset=dialogue": {key: [0] for key in ("train", "validation", "test", "max_distance")}
    | {"overwritten": [-0.1, 1.5]},
    "dataset=scenes": {key: [0] for key in ("train", "validation", "test")} | {"max_shapes": [0, 5]},
    "dataset=image_folder": {"size": [7]},
    "dataset=names": {"names": [0]},
    "dataset=sentiment": {"reviews": [0]},
    "dataset=sentence_pairs": {"pairs": [0]},
    "dataset=tagged": {"sentences": [0], "max_depth": [-1]},
    "dataset=monolingual": {key: [0] for key in ("train", "validation", "test")} | {"max_depth": [-1]},
    "dataset=tatoeba": {"max_tokens": [0], "limit": [0, -1]},
    "dataset=multi30k": {"limit": [0]},
    "dataset=parallel": {"max_tokens": [0], "limit": [0]},
}


@pytest.mark.parametrize("choice", RANGES)
def test_numbers_out_of_range_are_refused(choice: str) -> None:
    group, _, name = choice.partition("=")
    target = OmegaConf.load(CONF / group / f"{name}.yaml")["_target_"]
    for key, values in RANGES[choice].items():
        for value in values:
            with pytest.raises(UserError) as raised:
                check_slot(group, {"_target_": target, key: value}, KINDS)
            assert str(raised.value).startswith(f"{group}.{key}={value} is not allowed. Allowed: ")


def test_of_a_protocol_the_methods_are_asked_for() -> None:
    class Some:
        def load(self) -> None: ...

    assert "load" in missing_methods(object, Dataset)
    assert "load" not in missing_methods(Some, Dataset)


def test_mistakes_that_constructors_find_are_the_users(config: Config) -> None:
    for slot, key, value, said in (
        ("optimizer", "lr", -1.0, "optimizer: Invalid learning rate: -1.0. Its settings: "),
        ("dataset", "train", 10**9, "dataset.train=1000000000: "),
        ("search", "min_length_factor", -1.0, "search.min_length_factor=-1.0"),
    ):
        changed = copy.deepcopy(config)
        getattr(changed, slot)[key] = value
        with pytest.raises(UserError) as raised:
            check_parts(changed)
        assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("settings", "unused", "remedy"),
    [
        ("task=classification dataset=names dataset.path=a", "dataset.names=100", "Leave it out."),
        ("task=classification dataset=names dataset.path=a", "dataset.seed=2", ""),
        ("task=classification dataset=sentiment dataset.path=a", "dataset.test_share=0.2", ""),
        ("task=span dataset.train=a", "dataset.no_answer_share=0.5", ""),
        ("task=tagging dataset.train=a", "dataset.max_depth=1", ""),
        ("task=dialogue dataset.path=a", "dataset.train=10", ""),
        ("task=language_model dataset.path=a", "dataset.validation=20", "set dataset.validation_share"),
        ("task=language_model dataset.path=a", "dataset.train=20", ""),
    ],
)
def test_settings_of_generated_data_are_refused_with_files(settings: str, unused: str, remedy: str) -> None:
    words = settings.split()
    with pytest.raises(UserError) as raised:
        command_line.check(*words, unused)
    assert str(raised.value).startswith(f"{unused} ")
    assert words[-1] in str(raised.value)
    assert remedy in str(raised.value)
    command_line.check(*words)
    command_line.check(*words[:-1], unused)
    start.check_parts(compose_run([*words, unused]).config, recorded=True)  # a run that is repeated


@pytest.mark.parametrize(
    ("settings", "unused", "file"),
    [
        ("task=tagging", "dataset.language=de", "dataset.train=a"),
        ("task=tagging", "dataset.tag_column=2", "dataset.train=a"),
        ("task=span", "dataset.language=de", "dataset.train=a"),
        ("task=dialogue", "dataset.on_bad_pair=drop", "dataset.path=a"),
        ("task=language_model", "dataset.test_share=0.2", "dataset.path=a"),
        ("task=classification dataset=names", "dataset.encoding=cp1252", "dataset.path=a"),
    ],
)
def test_settings_of_files_are_refused_with_generated_data(settings: str, unused: str, file: str) -> None:
    with pytest.raises(UserError, match=rf"^{re.escape(unused)} .*{file.partition('=')[0]}"):
        command_line.check(*settings.split(), unused)
    command_line.check(*settings.split(), unused, file)


def test_files_of_splits_are_no_settings_of_generated_data() -> None:
    files = ("dataset.path=a", "dataset.validation=b", "dataset.test=c")
    command_line.check("task=language_model", *files)
    command_line.check("task=language_model", "dataset=text_files", *files)


def test_a_part_is_built_from_its_settings_and_run_time_arguments(config: Config, tmp_path: Path) -> None:
    made = part("attention", config.attention, KINDS)(query_size=4, encoder_output_size=6)
    assert isinstance(made, AdditiveAttention)
    assert (made.query_size, made.encoder_output_size, made.key.out_features) == (
        4,
        6,
        config.attention["size"],
    )
    assert type(build_optimizer(config, made)) is torch.optim.Adam
    assert build_schedule(config).factor(999, 1000, []) == pytest.approx(config.schedule["final_factor"])
    config.logger = {"_target_": "seq2seq_lab.tracking.NoTracker"}
    assert (
        build_logger(config, tmp_path, plain={}, flat={}, run_id=None, overrides=None).sync_command() is None
    )


def test_checking_a_model_takes_no_memory(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = build_seq2seq

    def record(*given: Any, **named: Any) -> Any:
        made.append(real(*given, **named))
        return made[-1]

    monkeypatch.setattr("seq2seq_lab.tasks.parts.build_seq2seq", record)
    before = torch.get_rng_state()
    check_model(config)
    (model,) = made
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert torch.equal(torch.get_rng_state(), before)


def test_tied_tables_need_one_vocabulary(config: Config) -> None:
    config.model.tied_embeddings = type(config.model.tied_embeddings).all
    with pytest.raises(UserError, match=r"model\.tied_embeddings=all.*tokenizer\.joint=true"):
        check_model(config)
    config.tokenizer["joint"] = True
    check_model(config)
    model = build_seq2seq(config, 8, 8, joint=True)
    assert model.source_embedding is model.target_embedding


@pytest.mark.parametrize(
    "setting",
    [
        *("task.batch_size=0", "task.batch_unit=token", "task.max_length=0", "task.pad_to=0"),
        *("task.label_smoothing=1.0", "task.r_drop=-1", "task.eval_batch_size=0", "task.max_eval_length=0"),
        *("task.samples=-1", "task.length_bounds=[2, 2]", "task.length_bounds=[0, 2]"),
        *("task.bleu_tokenizer=zhh", "task.stop_at_eos=1"),
    ],
)
def test_settings_of_tasks_have_types_and_ranges(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(setting) == 2
    assert f"{setting} is not allowed." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "monitor", "tie_breaker"),
    [
        ((), "val/bleu", "val/loss_teacher_forced"),
        (("trainer.monitor=val/ter",), "val/ter", "val/loss_teacher_forced"),
        (("trainer.monitor=val/loss_teacher_forced",), "val/loss_teacher_forced", "val/loss_free_running"),
        (
            ("trainer.monitor=val/length_ratio", "trainer.monitor_mode=min"),
            "val/length_ratio",
            "val/loss_teacher_forced",
        ),
        (("task=captions",), "val/bleu", "val/loss_teacher_forced"),
        (("task=dialogue",), "val/accuracy", "val/loss_teacher_forced"),
        (("task=classification",), "val/accuracy", "val/loss_classification"),
        (("task=language_model",), "val/perplexity_per_word", "val/loss"),
    ],
)
def test_the_first_other_loss_of_a_task_is_the_tie_breaker(
    words: tuple[str, ...], monitor: str, tie_breaker: str
) -> None:
    (job,) = command_line.check(*words).jobs
    settings = trainer_settings(job.config, build_task(job.config))
    assert (settings.monitor, settings.tie_breaker) == (monitor, tie_breaker)


def test_a_task_without_a_loss_has_no_tie_breaker(config: Config) -> None:
    task = build_task(config)
    task.metrics = [metric for metric in task.metrics if not metric.is_loss]
    assert trainer_settings(config, task).tie_breaker is None


def test_the_metrics_of_a_validation_can_be_monitored(config: Config, tmp_path: Path) -> None:
    """The metrics are declared without a model, so that a misspelt `trainer.monitor` is refused early."""
    config.dataset |= {"train": 30, "validation": 4, "test": 4, "test_compositional": 0, "max_depth": 1}
    corpus = build_dataset(config).load()
    tokenized = tokenize_corpus(corpus, build_tokenizer(config), config.tokenizer, tmp_path)
    tokenizers = tokenized.tokenizers
    config.encoder["hidden_size"] = config.decoder["hidden_size"] = 8
    torch.manual_seed(0)  # with some weights the rank correlation of attention is undefined
    model = build_seq2seq(config, tokenizers.source.size, tokenizers.target.size, tokenizers.joint)
    split = TranslationSplit("val", corpus.validation, tokenized.validation, corpus.target_language)
    search = build_search(config)
    evaluator = TranslationEvaluator(
        model,
        split,
        tokenizers,
        Compute(torch.device("cpu"), Precision.fp32),
        search=search,
        batch_size=4,
    )
    on_validation = {f"val/{metric.name}" for metric in METRICS if metric.when == "validation"}
    assert set(evaluator().values) == on_validation


def test_a_setting_reaches_the_class_as_it_is() -> None:
    slot = {"_target_": "seq2seq_lab.data.multi30k.Multi30k", "path": "${oc.env:HOME}/???"}
    others = {
        "hub": "x",
        "encoding": None,
        "alignments": None,
        "alignment_base": None,
        "alignments_reversed": False,
        "source": "de",
        "target": "en",
        "on_bad_pair": "error",
        "limit": None,
    }
    assert part("dataset", slot | others, KINDS)().path == "${oc.env:HOME}/???"
