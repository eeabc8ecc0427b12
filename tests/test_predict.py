"""The predict program with a run of translation: one output line per input line, and the errors for invalid input."""

import codecs
import io
import json
import math
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from demo_models import demo, demo_with
from matplotlib.figure import Figure

import seq2seq_lab
from seq2seq_lab import predict
from seq2seq_lab.analysis.align import Extraction, alignments
from seq2seq_lab.api import Translation
from seq2seq_lab.data.alignment_files import pharaoh
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.shades import shade_matrix
from seq2seq_lab.tasks.loaded import Loaded

SETTINGS = [
    *("dataset.train=300", "dataset.validation=10", "dataset.test=10", "dataset.test_compositional=0"),
    *(
        "dataset.max_depth=1",
        "model.embedding_size=16",
        "model.hidden_size=16",
        "model.encoder_hidden_size=8",
    ),
    *("optimizer.lr=0.02", "schedule=constant", "trainer.max_epochs=1", "task.batch_size=16"),
    *("task.eval_batch_size=2", "trainer.device=cpu", "task.samples=0", "logger=none"),
]
ODD = [
    "the king sleeps.",
    "",
    " \t",
    "x" * 3000,
    "⟦∅⟧ qqq \u2028 zzz\x0b\x85",
    "the cat",
    "a\rb",
    "the king sleeps.",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> seq2seq_lab.LoadedTranslation:
    return seq2seq_lab.train(SETTINGS, folder=tmp_path_factory.mktemp("translated") / "run")


def translated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes, *arguments: object
) -> tuple[int, list[str], str]:
    """Return (exit status, lines of the standard output, standard error)."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status = 0
    try:
        predict.main([*map(str, arguments)])
    except SystemExit as end:
        status = int(end.code or 0)
    out, err = capsys.readouterr()
    return status, out.split("\n")[:-1], err


def test_a_line_out_for_each_line_in(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ODD * 6  # more than are read together
    assert len(lines) > predict.BATCHES * 2
    data = "\n".join(lines).encode()  # the last one without an end
    releases: list[None] = []
    monkeypatch.setattr("seq2seq_lab.runtime.device.release_memory", lambda: releases.append(None))
    status, out, _ = translated(monkeypatch, capsys, data, run.folder, "--precision=fp32")
    assert status == 0
    assert out == [one.text for one in run.predict(lines)]
    assert out[1] == out[2] == ""
    assert len(releases) == math.ceil(len(lines) / (2 * predict.BATCHES))  # batches of two sentences
    assert translated(monkeypatch, capsys, b"", run.folder)[:2] == (0, [])
    assert translated(monkeypatch, capsys, b"\r\n\n", run.folder)[:2] == (0, ["", ""])


def test_files_stand_one_after_another(
    run: seq2seq_lab.LoadedTranslation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    paths = [tmp_path / "a.en", tmp_path / "b=c.en"]
    paths[0].write_text("the king sleeps.\n\n")
    paths[1].write_text("the cat sleeps.")
    status, out, _ = translated(
        monkeypatch, capsys, b"not read", run.folder, *paths, "search=beam", "search.size=2"
    )
    assert (status, len(out), out[1]) == (0, 3, "")
    status, _, err = translated(monkeypatch, capsys, b"", run.folder, tmp_path / "none.en")
    assert (status, err) == (
        2,
        f"error: {tmp_path / 'none.en'} is not a file. Give an existing file, or a setting as KEY=VALUE.\n",
    )


def test_a_line_is_drawn_by_its_number_alone(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = "\n".join(["the king sleeps.", "", "the cat sees the king."] * 20).encode()
    sampling = (run.folder, "--precision=fp32", "search=sampling")
    _, out, _ = translated(monkeypatch, capsys, data, *sampling)
    _, together, _ = translated(monkeypatch, capsys, data, *sampling, "task.eval_batch_size=100")
    assert out == together
    assert len(set(out)) > 10  # equal sentences are sampled independently
    _, behind, _ = translated(monkeypatch, capsys, b"a b\n" * 3 + data, *sampling)
    assert behind[3:] != out


def test_a_line_too_long_for_the_model_is_named(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bounded = seq2seq_lab.load(run.folder)
    monkeypatch.setattr(type(bounded.model), "longest_source", 9)
    monkeypatch.setattr("seq2seq_lab.predict.open_run", lambda *_: bounded)
    status, out, err = translated(
        monkeypatch, capsys, b"the king sleeps.\nthe cat\n" + b"the " * 20 + b"\nthe cat\n", run.folder
    )
    assert (status, len(out)) == (2, 2)
    assert "standard input, line 3 has " in err


def test_a_line_that_would_take_without_bound_is_refused_and_a_key_allows_it(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b"the cat\n" + b"the king sleeps " * 2700 + b"\n"
    status, out, err = translated(monkeypatch, capsys, text, run.folder)
    assert (status, len(out)) == (2, 1)
    assert "standard input, line 2 has 8,100 tokens; the limit is 1,000." in err
    assert "--max-tokens=8100" in err
    limit = "task.max_eval_length=2"
    assert translated(monkeypatch, capsys, b"the cat\n", run.folder, limit)[0] == 0
    assert "the limit is 2" in translated(monkeypatch, capsys, b"the king sleeps.\n", run.folder, limit)[2]
    assert translated(monkeypatch, capsys, b"the king sleeps.\n", run.folder, limit, "--max-tokens=4")[0] == 0


def test_what_comes_out_is_utf8_whatever_the_terminals_encoding(
    run: seq2seq_lab.LoadedTranslation, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "seq2seq_lab.predict", str(run.folder), "--alignments"]
    ended = subprocess.run(
        command,
        input="la reine où dort l'été ?\n".encode() * 3,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert ended.stdout.decode("utf-8").count("\n") == 3


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_what_is_not_utf8_is_named_and_shifts_nothing(
    mark: bytes,
    run: seq2seq_lab.LoadedTranslation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = mark + b"\n".join([*[b"the king sleeps."] * 40, b"caf\xe9 x", b"more"])
    status, out, err = translated(monkeypatch, capsys, data, run.folder)
    assert (status, len(out), len(set(out))) == (2, 40, 1)
    assert err.startswith(
        "error: standard input, line 41: byte 4 is not UTF-8 (invalid continuation byte; convert"
    )


def test_the_remedy_for_utf16_names_its_order(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, err = translated(monkeypatch, capsys, "the king sleeps.\n".encode("utf-16-le"), run.folder)
    assert "`iconv -f utf-16-le -t UTF-8`" in err


def test_columns(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "the old king sees the cat."
    (one,) = run.nbest([line])
    given = (run.folder, "--precision=fp32", "--scores", "--alignments")
    _, (out, empty), _ = translated(monkeypatch, capsys, f"{line}\n\n".encode(), *given)
    text, score, links = out.split("\t")
    assert (text, float(score)) == (one[0].text, pytest.approx(one[0].score, abs=1e-4))
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    assert [target for _, target in pairs] == [*range(len(text.split()))]
    assert all(0 <= source < len(line.split()) for source, _ in pairs)
    assert empty == "\t0.0000\t"


def test_unknown_words_are_named_and_marked(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "the zebra sees the king and a zebra qqq."
    (one,) = run.predict([line])
    assert one.unknown_words == ["zebra", "qqq"]
    assert one.source_tokens[1:-1] == ["the", "zebra⁇", "sees", "the", "king", "and", "a", "zebra⁇", "qqq⁇."]
    (parts,) = run.nbest([line], join_subwords=False)
    assert parts[0].source_tokens[-4:] == ["zebra⁇", "qqq⁇", ".", "<eos>"]
    assert run.predict(["the king sleeps."])[0].unknown_words == []
    _, out, err = translated(
        monkeypatch, capsys, f"the king sleeps.\n{line}\n".encode(), run.folder, "--weights"
    )
    assert any("zebra⁇" in row for row in out)
    assert err.count("zebra") == 1
    assert "not in the vocabulary" in err
    assert "'zebra', 'qqq'." in err
    assert predict.describe_unknown(["\t", " "]).endswith(r"'\t', ' '.")
    _, _, err = translated(monkeypatch, capsys, b"the king sleeps.\n", run.folder)
    assert err == ""


def test_the_links_count_the_words_between_spaces() -> None:
    sources = ["the old\u00a0king sleeps.", "the 人king sleeps."]
    found = demo().predict(sources)
    forced = demo().forced(sources, [one.text for one in found])
    links = [pharaoh(one) for one in alignments(demo().model, forced, Extraction())]
    assert [one.alignment() for one in found] == links
    assert all(int(link.partition("-")[0]) <= 2 for line in links for link in line.split())


def test_a_matrix_of_shades() -> None:
    attention = np.array([[0.5, 0.1, 0.3, 0.1], [0.1, 0.6, 0.1, 0.2], [0.0, 0.0, 0.0, 0.0]])
    one = Translation(
        source="a b",
        text="x y z",
        score=-1.0,
        log_prob=-1.0,
        source_tokens=["<sos>", "a", "b", "<eos>"],
        target_tokens=["x", "y", "z"],
        attention=attention,
    )
    shown = one.shades()
    assert shown[0] == "  <sos>  a  b  <eos>"
    assert shown[1] == "x ▓▓▓▓▓  ░  ▒  ░░░░░"
    assert shown[2] == "y ░░░░░  ▓  ░  ░░░░░"


def test_shades_at_a_terminal_keep_isolates_and_escape_controls_of_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    source = ["<sos>", "זה", "\u2067\x1b[31m", "<eos>"]
    predict.print_shades([*shade_matrix(source, ["\u202e"], [[0.25] * 4]), "of a custom task\x1b\u202e"])
    head, row, custom = capsys.readouterr().out.splitlines()
    assert "\u2067זה\u2069" in head
    assert "\\u2067\\x1b[31m" in head
    assert row.startswith("\\u202e ")
    assert custom == "of a custom task\\x1b\\u202e"


def test_nbest_lists(
    run: seq2seq_lab.LoadedTranslation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beam = ("search=beam", "search.size=4", "search.nbest=3")
    _, out, _ = translated(monkeypatch, capsys, b"the king sleeps.\nthe cat\n", run.folder, *beam, "--nbest")
    rows = [line.split(" ||| ") for line in out]
    assert [row[0] for row in rows] == ["0"] * 3 + ["1"] * 3
    scores = [float(row[2]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert len({row[1] for row in rows[:3]}) == 3


@pytest.mark.parametrize(
    "change", ["dataset=multi30k", "dataset.test=1", "metric=rouge", "task.multi_reference=true"]
)
def test_settings_of_an_evaluation_are_refused(
    change: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = translated(monkeypatch, capsys, b"the king sleeps.\n", "demo", change)
    assert (status, out) == (2, [])
    assert f"{change} has no effect on predict" in err


def test_options_without_effect_are_refused(tmp_path: Path) -> None:
    def error(run: object, *words: str) -> str:
        options = predict.parser().parse_intermixed_args(["RUN", *words])
        with pytest.raises(UserError) as raised:
            predict.refuse_options(run, options, options.inputs)
        return str(raised.value)

    plain = demo_with("plain", "none")
    for option in ("--weights", "--attention=a.png", "--alignments", "--replace-unknown"):
        expected = f"{option.partition('=')[0]}: the model of {plain.folder} has no attention"
        assert error(plain, option).startswith(expected)
    names = frozenset({"count", "attention_maps"})
    generator = SimpleNamespace(options=names, attends=True, reads="lines")
    assert "--attention-maps draws lines" in error(generator, "--count=1", "--attention-maps=a.png")
    assert error(generator, "--count=1", "--max-tokens=2").startswith("--max-tokens=2 has no effect")
    images = SimpleNamespace(options=names, attends=True, reads="files")
    assert error(images, "--max-tokens=2", "a.png").startswith("--max-tokens=2 has no effect")
    with pytest.raises(SystemExit):
        predict.main(["demo", f"--export={tmp_path / 'a'}", "--precision=bf16"])
    assert not (tmp_path / "a").exists()


def test_maps_that_the_model_does_not_have_are_refused_before_the_first_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--attention-maps", str(tmp_path / "maps.png"))
    status, out, err = translated(monkeypatch, capsys, b"the king sleeps.\n", "demo", *words)
    assert (status, out) == (2, [])
    assert "has no attention maps of layers and heads" in err


def test_a_run_that_cannot_be_in_an_ensemble_is_named() -> None:
    other: Any = Loaded.__new__(Loaded)
    object.__setattr__(other, "folder", Path("names"))
    object.__setattr__(other, "task", object())
    with pytest.raises(UserError, match="names is a run of object, which cannot be part of an ensemble"):
        seq2seq_lab.ensemble([demo(), other])


def test_pictures(
    run: seq2seq_lab.LoadedTranslation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    data = b"the king sleeps.\n\nthe cat\n"
    assert translated(monkeypatch, capsys, data, run.folder, "--attention", tmp_path / "a.png")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.3.png", "a.png"]


def test_a_picture_of_an_unknown_format_is_refused_before_the_run_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        predict.main([str(tmp_path), "--attention", str(tmp_path / "a.txt")])
    assert "a.txt: this suffix is not supported" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        predict.main([str(tmp_path), "--light"])
    assert "--light=True is not allowed. Allowed: only with --attention." in capsys.readouterr().err


def test_pictures_of_every_layer_and_head(
    run: seq2seq_lab.LoadedTranslation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Of both sides of a Transformer; a recurrent model has none."""
    sizes = ("model=transformer", "model.num_layers=2", "model.num_heads=2", "trainer.max_steps=2")
    folder = tmp_path / "run"
    transformer = seq2seq_lab.train([*SETTINGS, *sizes], folder=folder)
    data, picture = b"the king sleeps.\n\nthe cat\n", tmp_path / "pictures" / "a.png"
    assert translated(monkeypatch, capsys, data, folder, "--attention-maps", picture)[0] == 0
    names = [f"{line}.{side}.png" for line in ("a", "a.3") for side in ("cross", "decoder", "encoder")]
    assert sorted(path.name for path in picture.parent.iterdir()) == sorted(names)
    figures = transformer.plot_attention_maps("the king sleeps.")
    target = transformer.predict(["the king sleeps."])[0].target_tokens
    words = target if target[-1:] == ["<eos>"] else [*target, "<eos>"]
    shown = {
        name: [label.get_text() for label in figure.axes[0].get_yticklabels()]
        for name, figure in figures.items()
    }
    source = ["<sos>", "the", "king", "sleeps", ".", "<eos>"]
    assert shown == {"encoder": source, "decoder": ["<sos>", *words[:-1]], "cross": words}
    status, _, error = translated(monkeypatch, capsys, data, run.folder, "--attention-maps", picture)
    assert status != 0
    assert "model=transformer" in error
    with pytest.raises(UserError, match="no words"):
        transformer.plot_attention_maps(" ")
    figure = transformer.plot_masks(["the cat", "the king sleeps."], ["le chat", "le roi dort."])
    encoder, decoder, cross = (np.asarray(axes.images[0].get_array()) for axes in figure.axes[:3])
    seen, masked, unused = 1, 0, 2
    padded = [*[seen] * 4, *[masked] * 2]  # <sos> the cat <eos> and two places of padding
    assert encoder.tolist() == [padded] * 4 + [[unused] * 6] * 2
    assert decoder[:4].tolist() == np.tri(4, len(decoder[0]), dtype=int).tolist()
    assert cross[:4].tolist() == [padded] * 4
    with pytest.raises(UserError, match="model=transformer"):
        run.plot_masks(["the cat"], ["le chat"])


def test_the_maps_are_those_of_the_printed_translation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The draws of `search=sampling` depend on the number of the line."""
    sizes = ("model=transformer", "model.num_layers=1", "model.num_heads=2", "trainer.max_steps=2")
    folder = seq2seq_lab.train([*SETTINGS, *sizes], folder=tmp_path / "run").folder
    drawn: list[list[str]] = []

    def collect(figure: Figure, path: Path) -> None:
        if path.name.endswith(".cross.png"):
            drawn.append([label.get_text() for label in figure.axes[0].get_yticklabels()])

    monkeypatch.setattr(predict, "save_figure", collect)
    settings = ("search=sampling", "search.nbest=1")
    data = b"the cat\n" * 3
    status, *_ = translated(
        monkeypatch, capsys, data, folder, *settings, "--attention-maps", tmp_path / "a.png"
    )
    assert status == 0
    printed = seq2seq_lab.load(folder, precision="auto", changes=settings).predict(["the cat"] * 3)
    assert len({one.text for one in printed}) == 3
    assert [words[: len(one.target_tokens)] for words, one in zip(drawn, printed, strict=True)] == [
        one.target_tokens for one in printed
    ]


@pytest.mark.parametrize("option", ["--alignments", "--attention=a.png"])
def test_an_option_of_files_is_refused_at_the_prompt(
    option: str,
    run: seq2seq_lab.LoadedTranslation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(SystemExit):
        predict.main([str(run.folder), option])
    assert f"{option.partition('=')[0]} is for files" in capsys.readouterr().err


def test_the_prompt(run: seq2seq_lab.LoadedTranslation) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "seq2seq_lab.predict", str(run.folder), "--precision=fp32"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        for typed in (b"the kinx\x7fg sleeps.\n", b"\x04"):
            answered = len(said)
            while not said[answered:].endswith(b"> "):
                said += os.read(ours, 1000)
            os.write(ours, typed)
        assert process.wait(timeout=60) == 0
    os.close(ours)
    text = said.decode()
    assert run.predict(["the king sleeps."])[0].text in text
    assert "<sos>  the  king  sleeps.  <eos>" in text
    recorded = (run.folder / "translations.test.jsonl").read_text("utf-8").splitlines()
    shortest = min((json.loads(row)["source"] for row in recorded), key=len)
    assert f"A text of the test set: {shortest}" in text.replace("\r\n", " ")
