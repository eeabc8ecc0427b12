"""The page of a run: what it says of attention, outputs and next steps."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from reporting.test_compare import make_run

from seq2seq_lab.data.licences import GENERATED, NOT_KNOWN
from seq2seq_lab.data.tatoeba import Tatoeba
from seq2seq_lab.reporting import advice, run_page
from seq2seq_lab.reporting.attention_groups import groups_of
from seq2seq_lab.reporting.runs import Run, find_runs

pytestmark = pytest.mark.usefixtures("with_full_reports")

WEIGHTS = {
    "title": "big <cat>",
    "columns": ["<sos>", "big", "cat", "<eos>"],
    "rows": ["chat", "gros", "<eos>"],
    "weights": [[0, 0.1, 0.9, 0], [0, 0.2, 0.8, 0], [0, 0, 0, 1]],
    "links": [[2, 0], [1, 1]],
}


def text_of(html: str) -> str:
    """Return the text of HTML, with spaces for tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_a_heatmap_says_which_rows_attend_to_the_aligned_word() -> None:
    html = run_page.heatmap(WEIGHTS, 1, None)
    assert html.count("<svg") == 1
    text = text_of(html)
    assert "big &lt;cat&gt;" in text
    assert "1 of 2 aligned words attend most to a word that they are aligned with." in text
    assert "1 chat cat (0.90) cat right 2 gros cat (0.80) big wrong 3 &lt;eos&gt; &lt;eos&gt; (1.00)" in text


def test_a_heatmap_without_alignment_has_the_reference() -> None:
    text = text_of(run_page.heatmap({**WEIGHTS, "links": None}, 1, "le gros chat"))
    assert "reference: le gros chat" in text
    assert "aligned" not in text
    assert "right" not in text


def test_words_that_differ_from_the_reference_are_marked() -> None:
    assert run_page.marked("a <b> c", "a d c") == "<bdi>a <mark>&lt;b&gt;</mark> c</bdi>"
    assert run_page.marked("a c", "a b c") == "<bdi>a c</bdi>"
    assert run_page.marked("", "a") == "<bdi></bdi>"
    different = "<bdi>我<mark>昨</mark>天去了北京<mark>。</mark></bdi>"
    assert run_page.marked("我昨天去了北京。", "我今天去了北京") == different


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("page") / "run"
    make_run(folder, "dot", 1, 0.9)
    (found,), _ = find_runs([folder], for_page=True)
    return found


def test_the_outputs_of_the_lowest_scores_are_listed(run: Run) -> None:
    html = run_page.outputs(run)
    wrong = [row for row in run.examples if row["output"] != row["reference"]]
    assert 0 < len(wrong) < len(run.examples)
    assert f"{len(wrong)} of {len(run.examples)} outputs differ from the reference" in text_of(html)
    rows = html.split("<tbody>")[1].split("</tr>")[:-1]
    assert len(rows) == min(len(wrong), run_page.OUTPUTS)
    worst = min(wrong, key=lambda row: float(row["score"]))
    assert f"<td data-label=input><bdi>{worst['input']}</bdi></td>" in rows[0]


def changed(run: Run, metrics: Sequence[dict[str, float]] = (), **result: Any) -> Any:
    """Return a run with other results and rows of metrics."""
    return SimpleNamespace(
        folder=run.folder,
        settings={"trainer.max_epochs": "4"},
        result={**run.result, "monitor": "val/bleu", **result},
        declared=run.declared,
        recorded={"overrides": "seed=1 trainer.max_epochs=4 attention=dot"},
        seed="1",
        is_evaluation=False,
        examples=run.examples,
        metrics=metrics,
    )


def curve(*values: float) -> list[dict[str, float]]:
    return [{"step": step, "val/bleu": value} for step, value in enumerate(values)]


def test_a_run_that_still_improves_is_to_be_trained_longer(run: Run) -> None:
    first, *_, last = [one.command for one in advice.advise(changed(run, curve(1, 3, 4)))]
    assert first == "python -m seq2seq_lab seed=1 attention=dot trainer.max_epochs=8"
    assert last == "python -m seq2seq_lab trainer.max_epochs=4 attention=dot -m seed=2,3"
    bounded = changed(run, curve(1, 3, 4))
    bounded.settings["trainer.max_steps"] = "600"
    first, *_ = [one.command for one in advice.advise(bounded)]
    assert first.endswith("trainer.max_epochs=8 trainer.max_steps=1200")
    for values in ((1, 4, 3), (1, 4, 4), (1, 4)):
        assert not advice.still_improving(changed(run, curve(*values)))
    least = changed(run, curve(4, 3, 1))
    least.settings["trainer.monitor_mode"] = "min"
    assert advice.still_improving(least)


def test_a_model_with_attention_is_suggested_for_the_same_data(run: Run) -> None:
    without = changed(run)
    without.settings |= {"attention": "none", "task": "translation"}
    without.recorded["overrides"] = (
        "dataset=multi30k dataset.path=D attention=none decoder=plain model=vanilla"
    )
    first, *_ = [one.command for one in advice.advise(without)]
    assert first == "python -m seq2seq_lab dataset=multi30k dataset.path=D model=attn"


def test_without_recorded_settings_no_command_is_made_up(run: Run) -> None:
    unknown = changed(run, curve(1, 3, 4))
    unknown.recorded["overrides"] = "unknown"
    assert [one.command for one in advice.advise(unknown)] == ["", ""]


def test_loops_and_divergence_are_named(run: Run) -> None:
    reasons = " ".join(one.reason for one in advice.advise(changed(run, **{"test/loops": 0.004})))
    assert "0.40% of the outputs" in reasons
    assert "diverged" not in reasons
    reasons = " ".join(one.reason for one in advice.advise(changed(run, status="diverged")))
    assert "diverged" in reasons
    found, *_ = advice.defects(changed(run, **{"test/at_limit": 0.01}))
    assert found == "1.00% of the outputs were ended by the length limit."


def test_the_group_of_most_wrong_outputs_is_named(run: Run) -> None:
    (key, grouping), *_ = run.declared.groupings.items()
    share = dataclasses.replace(grouping.declaration, limits=[0.0, 1.0])  # as `result.json` has them
    declared = dataclasses.replace(
        run.declared,
        groupings={key: dataclasses.replace(grouping, ordered=False, declaration=share)},
    )
    rows = [{"group": "clitics", "count": 20, "value": 0.6}, {"group": "idioms", "count": 90, "value": 0.9}]
    found = changed(run, **{f"test/{key}": rows})
    found.declared = declared
    (one,) = advice.by_group(found)
    assert "highest for examples with clitics: 8 of 20 are wrong (40%)" in one.reason
    rows[0]["count"] = 5
    assert [*advice.by_group(found)] == []  # two wrong outputs suggest nothing


def test_of_an_error_rate_no_group_is_named(run: Run) -> None:
    (key, grouping), *_ = run.declared.groupings.items()
    rate = dataclasses.replace(grouping.declaration, limits=[0.0, 1.0], higher_is_better=False)
    groupings = {key: dataclasses.replace(grouping, ordered=False, declaration=rate)}
    found = changed(run, **{f"test/{key}": [{"group": "clitics", "count": 90, "value": 0.1}]})
    found.declared = dataclasses.replace(run.declared, groupings=groupings)
    assert [*advice.by_group(found)] == []


def test_examples_whose_words_and_phenomena_are_null_have_no_groups(run: Run) -> None:
    found = changed(run)
    found.examples = [{"source_words": None, "phenomena": None}]
    found.settings = {"task.length_bounds": "[10]"}
    assert groups_of(found) == {}


def test_a_figure_follows_the_theme_of_the_page() -> None:
    html = run_page.heatmap(WEIGHTS, 1, None)
    assert "currentColor" in html
    assert "#000000" not in html


def test_a_confusion_matrix_is_not_said_to_be_attention() -> None:
    html = run_page.heatmap({**WEIGHTS, "links": None, "scale": "share of the true class"}, 1, None)
    assert "share of the true class" in html
    assert "attention weight" not in html
    assert "attends" not in html
    assert "attention weight" in run_page.heatmap(WEIGHTS, 1, None)


@pytest.mark.parametrize(
    ("target", "path", "licence"),
    [
        ("grammar.Grammar", "null", GENERATED),
        ("grammar.Grammar", None, GENERATED),
        ("names.Names", "null", GENERATED),
        ("names.Names", "my/names", NOT_KNOWN),
        ("tagged.Tagged", None, GENERATED),
        ("tatoeba.Tatoeba", "eng-fra.txt", Tatoeba.licence),
        ("parallel.Parallel", None, NOT_KNOWN),
        ("of_the_user.Mine", None, NOT_KNOWN),
    ],
)
def test_the_licence_is_that_of_the_data_set(target: str, path: str | None, licence: str) -> None:
    settings = {"dataset._target_": f"seq2seq_lab.data.{target}"} | ({"dataset.path": path} if path else {})
    assert advice.licence(settings) == licence


@pytest.mark.parametrize(
    ("train", "licence"), [("20000", GENERATED), ("null", GENERATED), ("eng.train", NOT_KNOWN)]
)
def test_a_training_split_is_generated_or_a_file_of_the_user(train: str, licence: str) -> None:
    target = "seq2seq_lab.data.tagged.Tagged"
    assert advice.licence({"dataset._target_": target, "dataset.train": train}) == licence


def test_every_data_set_of_the_package_has_a_licence_or_reads_files_of_the_user() -> None:
    for file in (Path(__file__).parents[2] / "conf" / "dataset").iterdir():
        target = yaml.safe_load(file.read_text("utf-8")).get("_target_")
        if target is not None and target.rpartition(".")[2] not in (
            "Parallel",
            "FeatureFolder",
            "ImageFolder",
            "LabelledTexts",
        ):
            assert advice.licence({"dataset._target_": target}) != NOT_KNOWN, file.name


def test_advice_names_the_document_that_explains_it(run: Run) -> None:
    found = [*advice.advise(changed(run, **{"test/loops": 0.004}))]
    reading = {one.reading for one in found} - {""}
    assert {"docs/tutorial.md, lesson 6", "docs/studies.md"} == reading
    for one in reading:
        file, _, lesson = one.partition(", ")
        text = (Path(__file__).parents[2] / file).read_text("utf-8")
        assert f"## {lesson.capitalize()}" in text
    assert "Read docs/studies.md." in text_of(run_page.steps(found, {}))


def test_the_page_of_an_evaluation_has_no_training(run: Run) -> None:
    facts = {"run": "outputs/one", "checkpoint": "step_00000100", "precision": "fp32"}
    one = changed(run, curve(1, 3, 4))
    one.result |= facts
    one.is_evaluation = True
    assert run_page.curves(one) == ""
    assert ("evaluated run", "outputs/one") in run_page.evaluation_facts(one.result)
    assert all("Train" not in found.reason for found in advice.advise(one))
