"""The files of the page, the list of test sentences, and pages without a server."""

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from demo_models import demo

import seq2seq_lab
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.config import extensions
from seq2seq_lab.data.captions import read_image
from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting import studio_page
from seq2seq_lab.reporting.runs import read_finished
from seq2seq_lab.studio import opened
from seq2seq_lab.studio.picker import examples

SENTENCES = ["the old king does not sleep.", "where is the dog?"]


def test_the_page_is_small() -> None:
    names = (studio_page.PAGE, studio_page.STYLE, studio_page.SHARED, studio_page.SCRIPT)
    assert sum(len(gzip.compress((studio_page.file_of(name) or "").encode())) for name in names) <= 25_000


def test_the_modules_are_joined_in_the_order_of_their_imports() -> None:
    bundle = studio_page.bundle()
    assert "import {" not in bundle
    assert not re.search(r"^export ", bundle, re.M)
    used = [match[1] for match in re.finditer(r"= (\w+)_js;", bundle)]
    assert {*used} < {*studio_page.MODULES}
    for name in used:
        assert bundle.index(f"const {name}_js") < bundle.index(f"= {name}_js;")


def test_weights_that_are_hardly_seen_have_no_link() -> None:
    traced = demo().trace(SENTENCES[0])
    best = traced.best
    faint = replace(best, links=[*best.links, replace(best.links[0], weight=0.009)])
    page = studio_page.shown(replace(traced, outputs=[faint]))
    assert page["outputs"][0] == plain(best)


def test_the_examples_are_the_recorded_ones() -> None:
    run = demo()
    found = examples(studio_page.recorded(run.folder))
    recorded = read_finished(run.folder, for_page=True)
    columns = dict(zip(found["heads"], zip(*found["rows"], strict=True), strict=True))
    assert columns["input"] == tuple(one["input"] for one in recorded.examples)
    assert columns["score"] == tuple(one["score"] for one in recorded.examples)
    hits, _, links, _ = recorded.statistics["aer"].sum(0)
    assert links > hits > 0
    assert min(columns["AER"]) == 0
    assert 0 < max(columns["AER"]) <= 1
    assert sum(columns["loop"]) == recorded.statistics["loops"][:, 0].sum()


def test_a_run_without_recorded_outputs_has_the_reason(tmp_path: Path) -> None:
    found = examples(studio_page.recorded(tmp_path))
    assert found["rows"] == []
    assert "not finished" in found["note"]


def test_the_code_of_a_run_opens_it_as_it_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(seq2seq_lab, "load", lambda folder, **options: calls.append((folder, options)))
    monkeypatch.setattr(seq2seq_lab, "ensemble", calls.append)
    run = demo()
    eval(studio_page.about("a", run)["code"])
    opening = replace(run.opening, config_dir=Path("my 'own'"), precision="bf16", checkpoint="last:2")
    eval(studio_page.opening_code(replace(run, opening=replace(opening, changes=("search=beam",)))))
    members = (replace(opening, folder="a", changes=("search=beam",)), replace(run.opening, folder="b"))
    eval(studio_page.opening_code(replace(run, opening=replace(run.opening, members=members))))
    own = {"config_dir": "my 'own'", "precision": "bf16", "checkpoint": "last:2", "changes": ["search=beam"]}
    assert calls == [("demo", {}), ("demo", own), ("a", own), ("b", {}), [None, None]]


def test_a_saved_page_has_the_numbers_of_the_methods_and_needs_nothing_else() -> None:
    page = demo().show(SENTENCES)
    packed = re.search(r'id="saved-answers">([^<]*)<', page.html)
    assert packed
    saved = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert saved["sentences"] == SENTENCES
    for one, sentence in zip(saved["answers"], SENTENCES, strict=True):
        answer = demo().trace(sentence, search=["search=beam", "search.size=5", "search.nbest=5"]).as_json()
        assert one["name"] == "trace"
        best, saved_best = answer["outputs"][0], one["answer"]["outputs"][0]
        np.testing.assert_allclose(saved_best["attention"], best["attention"], atol=0.5e-4)
        rounded = ("attention", "word_attention", "margins")
        assert saved_best | dict.fromkeys(rounded) == best | dict.fromkeys(rounded)
        assert one["answer"]["steps"] == answer["steps"]
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page.html)
    assert "<iframe srcdoc=" in page._repr_html_()


def test_the_page_of_the_docs_has_the_scripts_of_today() -> None:
    def parts(page: str) -> tuple[str, set[str]]:
        (packed,) = re.findall(r'id="saved-answers">([^<]*)<', page)
        answers = json.loads(gzip.decompress(base64.b64decode(packed)))["answers"]
        fields = {name for one in answers if one["name"] == "trace" for name in one["answer"]}
        return re.sub(r"<title>[^<]*", "", page.replace(packed, "")), fields

    docs = (Path(__file__).parents[2] / "docs" / "studio.html").read_text("utf-8")
    assert parts(docs) == parts(demo().show(SENTENCES).html), "export docs/studio.html again"


def test_a_saved_page_of_twenty_sentences_is_small(tmp_path: Path) -> None:
    run = demo()
    sentences = [row[0] for row in examples(studio_page.recorded(run.folder))["rows"][:20]]
    run.show(sentences).save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size <= 300_000


@pytest.mark.parametrize(("arguments", "key"), [(([],), "sentences"), (("a", "wide"), "search")])
def test_show_refuses(arguments: tuple[object, ...], key: str) -> None:
    with pytest.raises(UserError, match=key):
        demo().show(*arguments)


def test_a_captioner_reads_only_the_images_of_its_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    image_ICHW = torch.from_numpy(rng.integers(0, 256, (2, 3, 8, 8), np.uint8))
    tokens = SimpleNamespace(image_ICHW=image_ICHW, image_N=torch.tensor([1, 0]))
    split = SimpleNamespace(text=SimpleNamespace(names=["a", "b"]), tokens=tokens)

    def read_data(run: Any, validation: bool) -> Any:
        assert extensions.folder() == tmp_path  # which may have the class of the data set
        return SimpleNamespace(tests=[split])

    monkeypatch.setattr(opened, "read_data", read_data)
    opening = SimpleNamespace(config_dir=tmp_path)
    one = opened.Opened("captions", SimpleNamespace(reads="files", folder=tmp_path, opening=opening))
    for name, image_CHW in (("a", image_ICHW[1]), ("b", image_ICHW[0])):
        np.testing.assert_array_equal(read_image(Path(one.readable(name)), 8, 8), image_CHW)
    secret = tmp_path / "secret.png"
    secret.write_bytes(Path(one.readable("a")).read_bytes())
    with pytest.raises(UserError, match="sentence="):
        one.readable(str(secret))
