"""The user's own parts: what giving their folder trusts, what it does not, and the examples."""

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import command_line
import hydra
import pytest
import torch
from omegaconf import OmegaConf
from program import Program, assert_refused

from seq2seq_lab.config import compose, extensions
from seq2seq_lab.config import schema as config
from seq2seq_lab.config.slots import locate, part
from seq2seq_lab.data.corpus import load_corpus
from seq2seq_lab.data.labelled import LabelledCorpus
from seq2seq_lab.data.tokenizers import load_tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS
from seq2seq_lab.models.encoders import EncoderOutputs
from seq2seq_lab.models.source import Source

EXAMPLES = Path(__file__).parents[2] / "examples" / "own_components"

GOOD = """
import os
from torch import Tensor
from seq2seq_lab.models.attention import AdditiveAttention, Attention

class Mine(Attention):
    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return query_BTQ.mean(-1, keepdim=True) + keys_BSK.mean(-1)[:, None]
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with attention=mine of my_part.py; what is imported from it is forgotten afterwards."""
    made = tmp_path_factory.mktemp("own") / "my_conf"
    (made / "attention").mkdir(parents=True)
    (made / "attention" / "mine.yaml").write_text("_target_: my_part.Mine\n")
    (made / "my_part.py").write_text(GOOD)
    modules = set(sys.modules)
    yield made
    for name in sys.modules.keys() - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(made.parent)):
            del sys.modules[name]


def check(folder: Path, *overrides: str) -> None:
    command_line.check(f"--config-dir={folder}", *overrides)


def check_refused(folder: Path, setting: str, said: Sequence[str]) -> None:
    with pytest.raises(UserError) as raised:
        check(folder, setting)
    for fragment in said:
        assert fragment in str(raised.value)


def located(folder: Path, target: str = "my_part.Mine") -> type:
    with extensions.using(folder):
        return locate("attention", {"_target_": target}, KINDS)


def test_the_config_dir_is_trusted_only_while_in_use(folder: Path) -> None:
    check(folder, "attention=mine")
    with pytest.raises(UserError, match=r"refused.*--config-dir FOLDER.*SEQ2SEQ_LAB_TRUST=my_part "):
        locate("attention", {"_target_": "my_part.Mine"}, KINDS)
    # No prefix: a module with a similar name is another module.
    with pytest.raises(UserError, match=r"no my_prat\.py\. Did you mean 'my_part'\?"):
        located(folder, "my_prat.Mine")


@pytest.mark.parametrize(
    "overrides",
    [
        ["attention=mine"],
        ["attention=window", "attention.components=3"],
        ["encoder=convolution", "decoder.cell=gru"],
        ["decoder=minimal", "model.bridge=mean"],
        ["task=captions", "encoder=patches", "encoder.patch=8"],
        ["dataset=reversal"],
        ["task=classification", "dataset=parity"],
        ["readout=copier", "tokenizer.joint=true"],
        ["schedule=triangle", "schedule.half_cycle=5"],
        ["tokenizer=chunks", "tokenizer.length=2"],
    ],
)
def test_the_examples_are_accepted(folder: Path, overrides: list[str]) -> None:
    check(EXAMPLES, *overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["attention=mine", "attention.initial_sharpness=-1"], "attention.initial_sharpness=-1"),
        (["attention=mine", "attention.initial_sharpnes=1"], "'attention.initial_sharpness'"),
        (["attention=mine", "attention.size=big"], "a whole number"),
        (["encoder=convolution", "decoder.cell=gru", "encoder.width=4"], "encoder.width=4"),
        (["dataset=reversal", "dataset.longest=3", "dataset.train=900"], "dataset.longest"),
        (["dataset=reversal", "dataset.train=-5"], "dataset.train=-5"),
        (["dataset=reversal", "dataset.shortest=0"], "dataset.shortest=0"),
        (["dataset=reversal", "dataset.shortest=9", "dataset.longest=8"], "at least dataset.shortest=9"),
        (["schedule=triangle", "schedule.half_cycle=0"], "schedule.half_cycle=0"),
        (["attention=mine", "attention.size=0"], "attention.size=0"),
        (["attention=window", "attention.components=0"], "attention.components=0"),
        (["task=captions", "encoder=patches", "encoder.lr=-1"], "encoder.lr=-1"),
        (["task=captions", "encoder=patches", "encoder.patch=0"], "encoder.patch=0"),
        (["attention=mien"], "Did you mean 'mine'?"),
    ],
)
def test_the_examples_are_checked_as_the_programs_own(overrides: list[str], said: str) -> None:
    with pytest.raises(UserError) as raised:
        check(EXAMPLES, *overrides)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("\nclass Mine(:\n", ["my_part.py, line 2: SyntaxError"]),
        ("\n\nimport nothing_of_this_name\n", ["my_part.py, line 3: ModuleNotFoundError"]),
        ("from torch import nothing_of_this_name\n", ["my_part.py, line 1: ImportError"]),
        ("\nsize = undefined + 1\n", ["my_part.py, line 2: NameError"]),
        ("import my_other\n", ["my_other.py, line 2: TypeError"]),
        (GOOD.replace("Mine", "Mein"), ["my_part.py has no Mine. Did you mean 'Mein'?"]),
        (
            "\nclass Mine:\n    pass\n",
            ["my_part.Mine", "my_part.py, line 2", "models.attention.base.BaseAttention"],
        ),
        ("def Mine():\n    pass\n", ["my_part.Mine", "my_part.py, line 1"]),
        ("Mine = 3\n", ["my_part.Mine"]),
        (
            GOOD.replace("def score", "def scroe"),
            ["my_part.Mine", "my_part.py, line 6", "It lacks score."],
        ),
        (
            GOOD + "    def __init__(self, query_size: int) -> None:\n        pass\n",
            ["my_part.py, line 6", "encoder_output_size, query_size"],
        ),
        (
            GOOD
            + "    def __init__(self, query_size, encoder_output_size):\n        raise ValueError('too big')\n",
            ["attention: too big", "my_part.Mine"],
        ),
    ],
)
def test_errors_in_the_file_name_file_and_line(folder: Path, code: str, said: list[str]) -> None:
    (folder / "my_part.py").write_text(code)
    (folder / "my_other.py").write_text("\nlen(3)\n")
    check_refused(folder, "attention=mine", said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["has no `_target_`", "_target_: FILE.CLASS"]),
        ("_target: my_part.Mine\n", ["has no `_target_`", "'_target'"]),
        ("attention:\n  _target_: my_part.Mine\n", ["below attention", "top level"]),
        ("# @package attention.mine\n_target_: my_part.Mine\n", ["below mine", "# @package"]),
        ("# @package _global_\n_target_: my_part.Mine\n", ["attention/mine", "Remove the line"]),
        ("_target_: Mine\n", ["attention._target_=Mine", "FILE.CLASS"]),
    ],
)
def test_a_file_without_a_class_is_named(folder: Path, text: str, said: list[str]) -> None:
    (folder / "attention" / "mine.yaml").write_text(text)
    check_refused(folder, "attention=mine", said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "defaults:\n  - override /attention: mine\n",
            ["experiment/one.yaml", "Add the line `# @package _global_`"],
        ),
        (
            "# @package _global_\ndefaults:\n  - override /attentoin: mine\n",
            ["experiment/one.yaml", "'attention'"],
        ),
        ("# @package _global_\nattention: mine\n", ["experiment/one", "- override /attention: "]),
    ],
)
def test_mistakes_in_an_experiment_name_their_remedy(folder: Path, text: str, said: list[str]) -> None:
    (folder / "experiment").mkdir()
    (folder / "experiment" / "one.yaml").write_text(text)
    check_refused(folder, "experiment=one", said)


@pytest.mark.parametrize("misplaced", ["encoders/other.yaml", "encoder/other.yml"])
def test_a_file_in_the_wrong_place_is_named(folder: Path, misplaced: str) -> None:
    (folder / misplaced).parent.mkdir()
    (folder / misplaced).write_text("_target_: my_part.Mine\n")
    with pytest.raises(UserError, match=rf"{misplaced} is not read\. Rename it to .*encoder/other\.yaml"):
        check(folder, "encoder=other")


def test_an_argument_that_the_file_lacks_is_named(folder: Path) -> None:
    constructor = "    def __init__(self, query_size, encoder_output_size, rate: float = 1):\n        pass\n"
    (folder / "my_part.py").write_text(GOOD + constructor)
    with pytest.raises(
        UserError, match=r"my_part\.Mine accepts rate.*Add `rate: …` to .*attention/mine\.yaml"
    ):
        check(folder, "attention=mine", "attention.rate=2")
    with pytest.raises(UserError, match=r"Write \+optimizer\.amsgrad=VALUE"):
        check(folder, "optimizer.amsgrad=true")


def test_settings_may_be_gathered_by_the_constructor(folder: Path) -> None:
    passing = "    def __init__(self, size: int, **others):\n        super().__init__(**others)\n"
    (folder / "my_part.py").write_text(GOOD + passing)
    check(folder, "attention=mine", "+attention.size=3")
    with pytest.raises(UserError, match=r"attention\.size is missing: my_part\.Mine needs size\."):
        check(folder, "attention=mine")


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "subprocess.Popen",
        "my_part.os.system",
        "my_part.Tensor",
        "installed_for_this_test.Theirs",
        ".my_part.Mine",
        "attention..my_part.Mine",
        "nested.deep.installed_for_this_test.Theirs",
    ],
)
def test_code_outside_the_folder_stays_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    called: list[object] = []
    monkeypatch.setattr(os, "system", lambda *given: called.append(given))
    installed = folder / "library"
    installed.mkdir()
    (installed / "installed_for_this_test.py").write_text(GOOD.replace("Mine", "Theirs"))
    monkeypatch.syspath_prepend(installed)
    (folder / "attention" / "evil.yaml").write_text(f"_target_: {target}\n")
    with pytest.raises(UserError, match=r"refused|cannot be imported"):
        check(folder, "attention=evil")
    assert "installed_for_this_test" not in sys.modules
    assert called == []


def test_a_search_path_alone_trusts_nothing(folder: Path, program: Program) -> None:
    search_path = f"hydra.searchpath=[file://{folder}]"
    assert_refused(program, f"{search_path} attention=mine", "my_part.Mine is refused", "--config-dir FOLDER")
    assert "my_part" not in sys.modules
    assert str(folder) not in sys.path


def test_the_folder_does_not_open_hydras_own_slots(folder: Path) -> None:
    with pytest.raises(UserError, match=r"hydra\.callbacks\.x\._target_=my_part\.Mine is refused"):
        check(folder, "+hydra.callbacks.x._target_=my_part.Mine")


@pytest.mark.parametrize("name", ["json.py", "torch.py", "torch/__init__.py", "seq2seq_lab/parts.py"])
def test_a_file_with_the_name_of_another_module_is_refused(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("raise SystemExit\n")
    with pytest.raises(UserError, match=rf"{folder / name.split('/')[0]} cannot be used"):
        check(folder, "attention=mine")


@pytest.mark.parametrize("name", ["attention/dot.yaml", "config.yaml"])
def test_a_value_with_the_name_of_the_programs_own_is_refused(folder: Path, name: str) -> None:
    """Hydra would take the program's, and say nothing."""
    (folder / name).write_text("_target_: my_part.Mine\n")
    with pytest.raises(UserError, match=f"{folder / name} .*Rename it"):
        check(folder, "attention=mine")


def test_a_changed_file_is_imported_again_and_folders_are_separate(folder: Path) -> None:
    assert not hasattr(located(folder), "changed")
    (folder / "my_part.py").write_text(GOOD + "    changed = True\n")
    assert hasattr(located(folder), "changed")
    other = folder.parent / "other"
    other.mkdir()
    (other / "my_part.py").write_text(GOOD + "    other = True\n")
    assert hasattr(located(other), "other")
    assert hasattr(located(folder), "changed")
    assert sys.path.count(str(folder)) == 1
    assert sys.path[-1] == str(folder)
    assert str(other) not in sys.path


def test_packages_are_trusted_as_modules_are(folder: Path) -> None:
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").write_text("from my_package.attention import Mine as Mine\n")
    (folder / "my_package" / "attention.py").write_text(GOOD)
    assert located(folder, "my_package.attention.Mine").__name__ == "Mine"
    assert located(folder, "my_package.Mine").__module__ == "my_package.attention"


def test_the_groups_know_the_folders_values(folder: Path) -> None:
    (folder / "attention" / "ours.yaml").write_text("defaults:\n  - mine\n")
    with extensions.using(folder):
        assert {"dot", "mine", "ours"} <= set(config.group_values("attention"))
        assert config.canonical("attention", "ours") == "mine"
        assert config.canonical("attention", "mine") == "mine"
        assert config.canonical("attention", "linear") == "additive"
    assert "mine" not in config.group_values("attention")


def test_a_multirun_and_its_folders(
    program: Program,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder given relatively, settings on both sides of it, jobs that change the working directory."""
    monkeypatch.chdir(folder.parent)
    arguments = ["-m", "attention=mine,dot", "--config-dir", "my_conf", "encoder=gru", "hydra.job.chdir=true"]
    status, _, error = program(*arguments)
    assert (status, error) == (0, "")
    assert [job.choices["attention"] for job in program.jobs] == ["mine", "dot"]
    assert program.trusted == [folder, folder]
    job = program.jobs[0]
    assert job.config.attention == {"_target_": "my_part.Mine"}
    assert str(folder) not in (job.folder / "config.yaml").read_text()
    assert extensions.folder() is None


def test_an_experiment_of_ones_own(program: Program, folder: Path) -> None:
    (folder / "experiment").mkdir()
    (folder / "experiment" / "ours.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /attention: mine\nseed: 8\n"
    )
    assert program(f"--config-dir={folder}", "experiment=ours")[0] == 0
    assert (program.jobs[0].config.seed, program.jobs[0].choices["attention"]) == (8, "mine")


def test_help_lists_the_folders_values(program: Program, folder: Path) -> None:
    located(folder)  # leaves __pycache__ there
    status, out, _ = program("--config-dir", str(folder), "--help")
    assert status == 0
    (values,) = re.findall(r"^attention: (.*(?:\n  .*)*)", out, re.MULTILINE)
    assert "mine" in re.split(r"[,\s]+", values)
    assert "__pycache__" not in out


def test_resuming_a_run_of_ones_own_needs_the_folder_again(
    program: Program,
    folder: Path,
) -> None:
    assert program(f"--config-dir={folder}", "attention=mine", "hydra.run.dir=run")[0] == 0
    program.jobs.clear()
    assert_refused(program, "resume=run", "attention._target_=my_part.Mine is refused", "--config-dir FOLDER")
    assert program("resume=run", f"--config-dir={folder}", "trainer.max_epochs=9")[0] == 0
    assert (program.jobs[0].resume, program.jobs[0].config.trainer.max_epochs) == (True, 9)


def test_the_examples_are_trained_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = "attention=mine encoder=convolution decoder.cell=gru dataset=reversal dataset.train=300 schedule=triangle"
    sizes = [f"model.{name}=8" for name in ("embedding_size", "encoder_hidden_size", "hidden_size")]
    settings = [*parts.split(), *sizes, "logger=none", "trainer.fast_dev_run=true", "task.samples=1"]
    monkeypatch.chdir(tmp_path)
    relative = os.path.relpath(EXAMPLES, tmp_path)
    assert command_line.run("--config-dir", relative, *settings, "hydra.run.dir=run") == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "finished"
    assert 0 <= result["test/aer"] <= 1
    assert json.loads((tmp_path / "run" / "run.json").read_text())["choices"]["attention"] == "mine"
    assert "decoder.attention" in (tmp_path / "run" / "run.log").read_text()
    assert str(EXAMPLES) not in (tmp_path / "run" / "config.yaml").read_text()


def test_the_decoder_and_the_readout_of_the_examples_are_trained_with(tmp_path: Path) -> None:
    """With beam search, so that sentences have several hypotheses."""
    parts = (
        "decoder=minimal attention=window readout=copier tokenizer.joint=true search=beam dataset=reversal"
    )
    sizes = [f"model.{name}=8" for name in ("embedding_size", "encoder_hidden_size", "hidden_size")]
    settings = [*parts.split(), *sizes, "dataset.train=60", "logger=none", "trainer.fast_dev_run=true"]
    run = tmp_path / "run"
    assert command_line.run("--config-dir", str(EXAMPLES), *settings, f"hydra.run.dir={run}") == 0
    assert json.loads((run / "result.json").read_text())["status"] == "finished"


@pytest.fixture
def examples() -> Iterator[Any]:
    """Makes a part of the examples with the defaults of its YAML."""
    with extensions.using(EXAMPLES), compose.composer():

        def make(group: str, value: str, *overrides: str, **runtime: int) -> Any:
            node = hydra.compose("config", [f"{group}={value}", *overrides])
            slot = OmegaConf.to_container(node[group], resolve=True)
            assert isinstance(slot, dict)
            settings = {str(key): item for key, item in slot.items()}
            return locate(group, settings, KINDS), part(group, settings, KINDS)(**runtime)

        yield make


@torch.no_grad()
def test_the_attention_function_is_its_formula(examples: Any) -> None:
    _, attention = examples("attention", "mine", "model.hidden_size=5", query_size=4, encoder_output_size=3)
    query_BTQ, encoder_outputs_BSM = torch.randn(2, 6, 4), torch.randn(2, 7, 3)
    source = Source.encoded(EncoderOutputs(encoder_outputs_BSM, (7, 5), None), attention.project)
    context_BTM, weights_BTS, _ = attention(query_BTQ, source, attention.initial_state(source))
    for b, length in enumerate((7, 5)):
        for t in range(6):
            query = attention.query.weight @ query_BTQ[b, t]
            scores = []
            for s in range(length):
                key = attention.key.weight @ encoder_outputs_BSM[b, s]
                scores.append(10.0 * float(query @ key) / math.sqrt(float(query @ query) * float(key @ key)))
            exponentials = [math.exp(score) for score in scores]
            weights = torch.tensor([value / sum(exponentials) for value in exponentials])
            torch.testing.assert_close(weights_BTS[b, t, :length], weights)
            torch.testing.assert_close(context_BTM[b, t], weights @ encoder_outputs_BSM[b, :length])
    assert weights_BTS[1, :, 5:].eq(0).all()


@torch.no_grad()
def test_the_window_is_its_formula_at_every_step(examples: Any) -> None:
    _, window = examples("attention", "window", "attention.components=2", query_size=4, encoder_output_size=3)
    query_BTQ, encoder_outputs_BSM = torch.randn(2, 6, 4), torch.randn(2, 7, 3)
    source = Source.encoded(EncoderOutputs(encoder_outputs_BSM, (7, 5), None), window.project)
    context_BTM, weights_BTS, end = window(query_BTQ, source, window.initial_state(source))
    for b, length in enumerate((7, 5)):
        centers = [0.0, 0.0]
        for t in range(6):
            values = [math.exp(value) for value in window.window(query_BTQ[b, t]).tolist()]
            centers = [center + move for center, move in zip(centers, values[4:], strict=True)]
            weights = torch.tensor(
                [
                    sum(values[k] * math.exp(-values[2 + k] * (centers[k] - s) ** 2) for k in range(2))
                    for s in range(length)
                ]
            )
            torch.testing.assert_close(weights_BTS[b, t, :length], weights)
            torch.testing.assert_close(context_BTM[b, t], weights @ encoder_outputs_BSM[b, :length])
        torch.testing.assert_close(end.history.center_NK[b], torch.tensor(centers))
    assert weights_BTS[1, :, 5:].eq(0).all()
    # A step at a time, with the rows of the state in another order.
    state = window.initial_state(source)
    for t in range(6):
        step = window(query_BTQ[:, t : t + 1], source, state)
        torch.testing.assert_close(step.weights_NTS[:, 0], weights_BTS[:, t])
        state = step.state
    swapped = state.select(torch.tensor([1, 0]))
    torch.testing.assert_close(swapped.history.center_NK, end.history.center_NK.flip(0))


def test_the_encoder_sees_no_padding(examples: Any) -> None:
    _, encoder = examples(
        "encoder",
        "convolution",
        "decoder.cell=gru",
        "model.encoder_hidden_size=6",
        "model.num_layers=3",
        input_size=4,
    )
    encoder.eval()
    embedded_BSE = torch.randn(2, 7, 4)
    together, alone = encoder(embedded_BSE, [7, 5]), encoder(embedded_BSE[1:, :5], [5])
    encoder_outputs_BSM, final = together.outputs_BSM, together.final
    torch.testing.assert_close(encoder_outputs_BSM[1:, :5], alone.outputs_BSM)
    torch.testing.assert_close(final.hidden_LBH[:, 1:], alone.final.hidden_LBH)
    assert encoder_outputs_BSM[1, 5:].eq(0).all()
    assert final.hidden_LBH.shape == (3, 2, 6)


def test_the_data_set_is_reversed_and_distinct(examples: Any) -> None:
    _, dataset = examples("dataset", "reversal", "dataset.train=50")
    corpus = dataset.load()
    splits = [corpus.train, corpus.validation, corpus.tests["test"]]
    assert list(map(len, splits)) == [50, 200, 200]
    assert len({line for split in splits for line in split.source}) == 450
    for split in splits:
        for source, target, gold in zip(split.source, split.target, split.gold, strict=True):
            assert target == source[::-1]
            assert all(gold.source_words[s] == gold.target_words[t] for s, t in gold.links)
            assert len(gold.links) == len(gold.source_words)


def test_the_numbers_have_their_parity(examples: Any) -> None:
    _, dataset = examples("dataset", "parity", "task=classification", "dataset.train=50")
    corpus = load_corpus(dataset, LabelledCorpus, "classification")
    assert [len(split) for split in corpus.splits.values()] == [50, 200, 200]
    for split in corpus.splits.values():
        assert [*split.labels] == [("even", "odd")[int(text) % 2] for text in split.texts]


def test_the_schedule_is_a_triangle(examples: Any) -> None:
    _, schedule = examples("schedule", "triangle", "schedule.half_cycle=4", "schedule.lowest_factor=0.2")
    factors = [schedule.factor(update, 100, []) for update in range(13)]
    way = [0.2, 0.4, 0.6, 0.8, 1.0, 0.8, 0.6, 0.4]
    assert factors == pytest.approx([*way, *way[:5]])


def test_the_tokenizer_is_trained_saved_and_read(examples: Any, tmp_path: Path) -> None:
    _, tokenizer = examples("tokenizer", "chunks")
    tokenizer.train(["hello world", "hold it"])
    (ids,) = tokenizer.encode(["hello it"])
    assert tokenizer.tokens(ids) == ["hel", "lo", "it"]
    assert tokenizer.spans("hello it") == [(0, 3), (3, 5), (6, 8)]
    tokenizer.save(tmp_path, "source")
    assert load_tokenizer(tmp_path, "source").decode(ids) == "hello it"


def test_a_module_that_a_part_imports_late_is_imported_anew_too(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "late_helper.py").write_text("VALUE = 1\n")
    (folder / "late_part.py").write_text(
        "def value():\n    import late_helper\n    return late_helper.VALUE\n"
    )
    with extensions.using(folder):
        assert extensions.load("late_part").value() == 1
        before = extensions.fingerprint("late_part")
    (folder / "late_helper.py").write_text("VALUE = 22\n")
    with extensions.using(folder):
        assert extensions.load("late_part").value() == 22
        now = extensions.fingerprint("late_part")
        assert now not in ("", before)
        assert extensions.fingerprint("seq2seq_lab.data.tokenizers") == ""
        (folder / "note.py").write_text("# of another component\n")
        assert extensions.fingerprint("late_part") == now


def test_the_fingerprint_of_a_part_is_of_the_files_that_its_imports_reach(tmp_path: Path) -> None:
    reached = {
        "part.py": "from package import inner\nfrom plain.one import name\nfrom star import *\n",
        "package/__init__.py": "from .first import value\n",
        "package/first.py": "try:\n    from ...beyond import x\nexcept ImportError:\n    import json\n",
        "package/inner.py": "from . import deep\n",
        "package/deep/__init__.py": "def late():\n    from ..second import value\n",
        "package/second.py": "import part, broken\n",
        "plain/one.py": "",  # a folder without __init__.py
        "star/__init__.py": "__all__ = ['named']\n",
        "star/named.py": "",
        "broken.py": "def (:\n",
    }
    others = {"package/third.py": "", "plain/two.py": "", "unrelated.py": ""}
    for name, text in {**reached, **others}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with extensions.using(tmp_path):
        before = extensions.fingerprint("part")
        for name in (*reached, *others):
            file = tmp_path / name
            text = file.read_text()
            file.write_text(f"{text}# changed\n")
            assert (extensions.fingerprint("part") != before) == (name in reached), name
            file.write_text(text)
        assert extensions.fingerprint("part") == before
        assert extensions.fingerprint("missing") == extensions.fingerprint("torch") == ""
        # Which modules it imports is not known before it runs.
        (tmp_path / "plain" / "one.py").write_text("__import__('unrelated')\n")
        before = extensions.fingerprint("part")
        (tmp_path / "unrelated.py").write_text("1\n")
        assert extensions.fingerprint("part") != before
