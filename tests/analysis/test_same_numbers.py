"""Every output about the same sentences shows the same numbers: terminal, pictures, page, JSON and Pharaoh lines."""

import html
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_models import DATA
from scipy.special import entr

from seq2seq_lab import evaluate, plots
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.reporting.page import attention_groupings
from seq2seq_lab.reporting.runs import find_runs

THREE = [*DATA, "dataset.test=3"]


def printed(capsys: pytest.CaptureFixture[str], *line: object) -> tuple[str, str]:
    analyze.main([*map(str, line)])
    return capsys.readouterr()


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def word_of(names: list[str], text: str) -> list[int]:
    """Return the word of `text`, between spaces, that each of its tokens belongs to."""
    words = text.split()
    assert "".join(names) == "".join(words)
    ends = np.cumsum([len(word) for word in words])
    starts = np.cumsum([0, *(len(name) for name in names[:-1])])
    return [int(np.searchsorted(ends, start, side="right")) for start in starts]


def links(pair: dict[str, Any]) -> str:
    """Return the Pharaoh line of the scores of attention, computed without the package."""
    scores_TU = np.array(pair["scores"]["attention"])[:-1, 1:-1]
    source = word_of(pair["words"][1:-1], pair["source"])
    target = word_of(pair["tokens"][:-1], pair["target"])
    joined = np.zeros((max(target) + 1, max(source) + 1))
    for (row, column), score in np.ndenumerate(scores_TU):
        joined[target[row], source[column]] += score / target.count(target[row])
    return " ".join(f"{row.argmax()}-{word}" for word, row in enumerate(joined))


def in_range(length: int, label: str) -> bool:
    """Return whether a length is in a range such as ≤6, 7–10 or >18."""
    if label[0] in "≤>":
        return (length <= int(label[1:])) == (label[0] == "≤")
    low, high = map(int, label.split("–"))
    return low <= length <= high


def table(page: str, title: str) -> list[list[str]]:
    """Return the rows of the table below a title of a page, its heads first."""
    (part,) = (part for part in re.split("<h3>", page) if part.startswith(f"<bdi>{title}"))
    rows = re.findall("<tr>(.*?)</tr>", part.split("</table>")[0])
    return [[*map(html.unescape, re.findall('<t[hd] dir="auto">(.*?)</t[hd]>', row))] for row in rows]


def maps(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the title and the rows of the table of each heatmap of a page."""
    for part in re.split("<h3>", page)[1:]:
        if "what each row attends to" in part:
            title = re.match("<bdi>(.*?)</bdi>", part)
            assert title is not None
            rows = [
                re.findall('<td dir="auto">(.*?)</td>', row) for row in re.findall("<tr>(.*?)</tr>", part)
            ]
            yield html.unescape(title[1]), [[*map(html.unescape, row)] for row in rows[1:]]


def test_all_outputs_show_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(plots, "save_for_print", lambda figure, path: drawn.update({path.name: figure}))
    evaluate.main(["demo", *THREE, "--output", str(tmp_path / "run")])
    capsys.readouterr()
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    translations = json_lines((tmp_path / "run" / "translations.test.jsonl").read_text("utf-8"))
    files = [tmp_path / side for side in ("source", "reference")]
    for file in files:
        file.write_text("".join(f"{one[file.name]}\n" for one in translations), "utf-8")

    # The measures of attention: JSON of attributions, terminal, result.json and page.
    line = ["attribute", "demo", *THREE, "--methods", "attention"]
    files_of_attributions = ["--pictures", tmp_path / "pictures", "--html", tmp_path / "page.html"]
    *pairs, last = json_lines(printed(capsys, *line, *files_of_attributions, "--format", "jsonl")[0])
    aer, half = (last["means"]["attention"]["aer"][key] for key in ("value", "confidence"))
    assert aer == pytest.approx(result["test/aer"])
    assert re.search(rf"\battention +│ +{aer:.3f} ± {half:.3f} ", printed(capsys, *line)[0])
    page_of_attributions = (tmp_path / "page.html").read_text("utf-8")
    assert f'attention</td><td dir="auto">{aer:.3f} ± {half:.3f}</td>' in page_of_attributions
    assert f'AER (oracle, diagonal)</td><td dir="auto">{aer:.3f} (' in page
    assert f"That of the next step, which reads the word (read), is {result['test/aer_read']:.3f}." in page
    rows = np.concatenate([np.array(pair["scores"]["attention"]).sum(1) for pair in pairs])
    assert rows == pytest.approx(1)
    sums = {
        "attention_mass_sos": [np.array(pair["scores"]["attention"])[:, 0].sum() for pair in pairs],
        "attention_mass_eos": [np.array(pair["scores"]["attention"])[:, -1].sum() for pair in pairs],
        "attention_entropy": [entr(np.array(pair["scores"]["attention"])).sum() for pair in pairs],
        "attention_sharpness": [np.array(pair["scores"]["attention"]).max(1).sum() for pair in pairs],
    }
    for name, values in sums.items():
        assert result[f"test/{name}"] == pytest.approx(sum(values) / len(rows), rel=1e-5), name

    # The controls of AER.
    controls = {
        (one["weights"], one["rows"]): one
        for one in json_lines(printed(capsys, "aer", "demo", *THREE, "--format", "jsonl")[0])
    }
    assert controls["model", "attention"]["soft"] == pytest.approx(result["test/aer_soft"], rel=1e-5)
    assert controls["model", "attention"]["confidence"] == pytest.approx(half)
    for weights, rows_of_links, name in (
        ("model", "attention", "aer"),
        ("model", "read", "aer_read"),
        ("diagonal", "", "aer_diagonal"),
        ("oracle", "", "aer_oracle"),
    ):
        assert controls[weights, rows_of_links]["aer"] == pytest.approx(result[f"test/{name}"])
    assert controls["random parameters", "attention"]["aer"] > 0.6

    # The measures of attention by group, on the page of the run and on that of a comparison.
    (run,), _ = find_runs([tmp_path / "run"], for_page=True)
    compared = {one["label"]: one["bars"][0] for one in attention_groupings([run])}
    for key, label in (("phenomena", "phenomenon"), ("source_words", "source length in words")):
        heads, *groups = table(page, f"attention by {label} (number of examples), test")
        column = heads.index("attention entropy")
        bars = {bar["group"]: bar for bar in compared[f"attention entropy by {label}"]}
        assert {row[0].rsplit(" ", 1)[0] for row in groups if not row[0].endswith(" (0)")} == {*bars}
        for name, bar in bars.items():
            own = [
                np.array(pair["scores"]["attention"])
                for pair, one in zip(pairs, translations, strict=True)
                if (name in one[key].split(", ") if key == "phenomena" else in_range(one[key], name))
            ]
            entropy = sum(entr(rows).sum() for rows in own) / sum(map(len, own))
            assert (bar["count"], bar["value"]) == (len(own), pytest.approx(entropy, rel=1e-5))
            assert [f"{name} ({len(own)})", f"{entropy:.3f}"] in [[row[0], row[column]] for row in groups]

    # The pictures.
    for pair in pairs:
        scores_TU, figure = np.array(pair["scores"]["attention"]), drawn[f"pair_{pair['index']}"]
        shares_TU = np.asarray(figure.axes[0].images[0].get_array())
        assert np.allclose(shares_TU, scores_TU / scores_TU.max(1)[:, None])
        texts = " ".join(text.get_text() for text in figure.texts).split()
        for name, column in (("<sos>", 0), ("<eos>", -1)):
            assert f"{name} {scores_TU[:, column].sum() / len(scores_TU):.0%}" in " ".join(texts)
        assert html.escape(f"{pair['source']} → {pair['target']}") in page_of_attributions

    # The heatmaps of the page, of outputs that equal the reference.
    of = {pair["source"]: pair for pair in pairs}
    shown = [(of[title], lines) for title, lines in maps(page) if title in of]
    same = [(pair, lines) for pair, lines in shown if pair["tokens"] == [row[1] for row in lines]]
    assert len(same) >= 2
    for pair, cells in same:
        for row, scores in zip(cells, pair["scores"]["attention"], strict=True):
            word, weight = row[2].rsplit(" ", 1)
            assert word == pair["words"][int(np.argmax(scores))]
            assert float(weight.strip("()")) == pytest.approx(
                max(scores), abs=0.0056
            )  # kept with three decimals

    # Alignments.
    expected = [*map(links, pairs)]
    assert printed(capsys, "align", "demo", *files)[0].splitlines() == expected
    scored = json_lines(printed(capsys, "score", "demo", *files, "--format", "jsonl")[0])
    assert [one["alignment"] for one in scored] == expected

    # Log-probabilities.
    lines, summary = printed(capsys, "score", "demo", *files)
    assert [line.split("\t")[0] for line in lines.splitlines()] == [
        f"{one['log_prob']:.4f}" for one in scored
    ]
    assert f"perplexity {result['test/perplexity_teacher_forced']:.4f} per token" in summary
    columns = printed(capsys, "score", "demo", *files, "--format", "tsv")[0].splitlines()[1:]
    tokens = [token for one in scored for token in one["tokens"]]
    assert [line.split("\t")[4] for line in columns] == [f"{token['log_prob']:.6f}" for token in tokens]
    assert [math.fsum(token["log_prob"] for token in one["tokens"]) for one in scored] == pytest.approx(
        [one["log_prob"] for one in scored]
    )
