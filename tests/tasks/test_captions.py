"""Captioning: batches, the penalty, pointing, whole runs, the page of the comparison, and captions of new images."""

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from attribution_checks import check_attributions
from extras import needs_plotly
from finished_runs import losses_by_step
from forked_ranks import forked_ranks
from PIL import Image
from small_models import batch_of, random_sentences, small_config, small_model
from trace_checks import check_trace

import seq2seq_lab
from seq2seq_lab import predict
from seq2seq_lab.analysis.attributions import attribute
from seq2seq_lab.analysis.comparison import explain
from seq2seq_lab.config import extensions
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.captions import CaptionedImages
from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.ragged import Ragged, fitting
from seq2seq_lab.data.scenes import Scenes
from seq2seq_lab.data.tokenizers import BpeTokenizer, WordTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.pointing import pointing_counts
from seq2seq_lab.models.encoders import ConvolutionalEncoder
from seq2seq_lab.reporting import comparison, page
from seq2seq_lab.reporting.runs import find_runs, group_runs
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.captions.data import CaptionBatches, CaptionExamples, region_shares
from seq2seq_lab.tasks.captions.evaluation import caption_of, word_attention
from seq2seq_lab.tasks.captions.loss import CaptionLoss
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tasks.translation.teacher_forcing import Constant
from seq2seq_lab.training.parts import build_optimizer

CPU = torch.device("cpu")
SMALL = (
    *("experiment=captions", "dataset.train=24", "dataset.validation=6", "dataset.test=6", "logger=none"),
    *(
        "model.embedding_size=8",
        "model.encoder_hidden_size=8",
        "model.hidden_size=8",
        "encoder.channels=[4,6]",
        "encoder.strides=[2,2]",
    ),
    *("task.batch_size=8", "trainer.precision=fp32", "task.samples=1", "trainer.log_every_steps=1"),
    *("search.max_length_factor=1.0", "search.max_length_extra=1"),  # untrained models generate long captions
    *("task.doubly_stochastic=0.1", "teacher_forcing.ratio=0.5", "trainer.max_epochs=2", "model.dropout=0.0"),
)


def scenes(**settings: Any) -> Scenes:
    return Scenes(**{"train": 20, "validation": 5, "test": 5, "max_shapes": 3, "seed": 1} | settings)


def test_a_batch_has_the_images_and_captions_of_its_pairs() -> None:
    image_ICHW = torch.arange(3 * 3 * 2 * 2, dtype=torch.uint8).view(3, 3, 2, 2)
    examples = CaptionExamples(
        image_ICHW, torch.tensor([2, 1, 1]), Ragged.of([[5], [6, 7, 8], [9]]), longest=4
    )
    batch = CaptionBatches(examples, CPU)(np.array([2, 1]))
    assert torch.equal(batch.image_BCHW, image_ICHW[[1, 1]])
    assert batch.target_BU.tolist() == [[2, 9, 3, 1, 1], [2, 6, 7, 8, 3]]
    assert (batch.source_lengths, batch.target_tokens) == ((4, 4), 6)
    assert batch.twice().image_BCHW.shape[0] == 4


def test_the_penalty_is_that_of_the_paper() -> None:
    loss = CaptionLoss(
        Constant(1.0, "token"),
        label_smoothing=0.0,
        r_drop=0.0,
        stop_at_eos=False,
        seed=1,
        doubly_stochastic=2.0,
    )
    weights_BTS = torch.rand(2, 3, 4).softmax(-1)
    outputs_BT = torch.tensor([[5, 6, 3], [5, 3, 1]])
    expected = 0.0
    for row, length in enumerate((3, 2)):
        for position in range(4):
            expected += 2.0 * (1 - float(weights_BTS[row, :length, position].sum())) ** 2
    found = loss.penalty(weights_BTS, outputs_BT)
    assert found is not None
    assert float(found) == pytest.approx(expected, rel=1e-5)
    loss.reads_weights = False
    assert loss.penalty(weights_BTS, outputs_BT) is None


def test_r_drop_does_not_double_the_penalty() -> None:
    model = small_model(small_config("gru", "luong", "additive")).eval()  # both readings agree
    batch = batch_of(random_sentences([5, 3], seed=1), random_sentences([4, 2], seed=2))
    once, twice = (
        CaptionLoss(
            Constant(1.0, "token"),
            label_smoothing=0.0,
            r_drop=weight,
            stop_at_eos=False,
            seed=1,
            doubly_stochastic=2.0,
        )(model, batch, StepInfo(epoch=0, step=0))
        for weight in (0.0, 5.0)
    )
    torch.testing.assert_close(once, twice)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"names": ["x", "y"]}, "names: 2"),
        ({"regions": []}, "regions: 0"),
        ({"image_N": np.array([1])}, "image_N .* 1 to 1"),
        ({"image_N": np.array([-1])}, "image_N"),
        ({"image_N": [0]}, "image_N is not an array of integers"),
        ({"image_N": np.array([0.0])}, "image_N is not an array of integers"),
        ({"images": np.zeros((1, 8, 8, 3), np.uint8)}, r"\(1, 8, 8, 3\)"),
    ],
)
def test_captioned_images_that_do_not_fit_are_refused(changes: dict[str, Any], named: str) -> None:
    columns: dict[str, Any] = {
        "images": np.zeros((1, 3, 8, 8), np.uint8),
        "captions": ["a red square"],
        "names": ["x"],
        "image_N": np.zeros(1, np.int64),
    }
    CaptionedImages(**columns)
    with pytest.raises(UserError, match=named):
        CaptionedImages(**{**columns, **changes})


def test_regions_on_a_grid() -> None:
    pairs = CaptionedImages(
        np.zeros((1, 3, 8, 8), np.uint8), ["a red square"], ["x"], np.zeros(1, np.int64), [{1: (0, 2, 4, 8)}]
    )
    shares = region_shares(pairs, 0, (2, 4))
    np.testing.assert_allclose(shares[1].reshape(2, 4), [[0.5, 0.5, 0, 0], [1, 1, 0, 0]])


def test_pointing_counts_hits_and_attention() -> None:
    regions = {1: np.array([0, 1, 0.25, 0], np.float32), 2: np.array([0, 0, 0, 1], np.float32)}
    weights = {0: np.full(4, 0.25), 1: np.array([0.1, 0.6, 0.2, 0.1]), 2: np.array([0.7, 0.1, 0.1, 0.1])}
    assert pointing_counts(weights, regions) == pytest.approx((1, 0.6 + 0.05 + 0.1, 1.25 / 4 + 1 / 4, 2))


def test_the_attention_of_a_word_is_the_mean_of_its_tokens() -> None:
    tokenizer = WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)
    tokenizer.use_languages("en")
    tokenizer.train(["a red-hot shape"])
    caption = "a red-hot shape"
    tokens = [caption[start:end] for start, end in tokenizer.spans(caption)]
    weights_TS = np.arange(2.0 * (len(tokens) + 1)).reshape(-1, 2)
    found = word_attention(weights_TS, tokenizer, caption)
    assert [*found] == [0, 1, 2]
    np.testing.assert_allclose(found[1], weights_TS[1 : len(tokens) - 1].mean(0))
    np.testing.assert_allclose(found[2], weights_TS[len(tokens) - 1])


def test_the_attention_of_a_caption_is_that_of_the_generated_tokens() -> None:
    tokenizer = BpeTokenizer(joint=False, lowercase=False, vocab_size=300, min_frequency=1, dropout=1.0)
    tokenizer.use_languages("en")
    tokenizer.train(["red red a red"])
    (tokens,) = tokenizer.sample(["red a"], np.random.default_rng(1))
    assert len(tokens) > len(tokenizer.encode(["red a"])[0])  # not the segmentation of `encode`
    text, spans = tokenizer.decode_spans(tokens)
    assert text == "red a"
    weights_TS = np.random.default_rng(2).random((len(tokens) + 1, 4), np.float32)
    image_3HW = np.zeros((3, 2, 6), np.uint8)
    found = caption_of(Hypothesis(tokens, -1.0, -1.0, weights_TS), tokenizer, image_3HW, (2, 2))
    assert (found.text, found.words, found.image_HWC.shape) == ("red a", ["red", "a"], (2, 6, 3))
    assert found.attention_WYX is not None
    for word, (start, end) in enumerate([(0, 3), (4, 5)]):
        rows = [weights_TS[i] for i, span in enumerate(spans) if start <= span[0] < span[1] <= end]
        np.testing.assert_allclose(found.attention_WYX[word].ravel(), np.mean(rows, 0), rtol=1e-5)


def convolutions() -> ConvolutionalEncoder:
    torch.manual_seed(1)
    return ConvolutionalEncoder(
        input_size=1, channels=[4, 5, 6], strides=[2, 1, 2], size=7, encoder_output_dropout=0.0
    )


@pytest.mark.parametrize("height", [32, 33])
def test_the_grid_is_that_of_the_feature_map(height: int) -> None:
    outputs = convolutions()(torch.randint(0, 256, (2, 3, height, 20), dtype=torch.uint8))
    rows, columns = height // 4, 5
    assert outputs.grid == (rows, columns)
    assert outputs.outputs_BSM.shape == (2, rows * columns, 7)
    assert outputs.lengths == (rows * columns,) * 2


def test_strides_leave_a_position_of_the_smallest_side() -> None:
    convolutions()(torch.zeros(1, 3, 4, 20, dtype=torch.uint8))
    with pytest.raises(UserError, match=r"^encoder\.strides=\[2, 1, 2\] .* by 4, .* only 3 × 20 pixels"):
        convolutions()(torch.zeros(1, 3, 3, 20, dtype=torch.uint8))


def test_a_position_reads_its_cell_with_an_equal_margin_on_each_side() -> None:
    image_BCHW = torch.rand(1, 3, 40, 40).mul(255).requires_grad_()
    encoder = convolutions()
    outputs = encoder(image_BCHW).outputs_BSM
    row, column = 4, 5
    outputs[0, row * 10 + column].sum().backward()
    assert image_BCHW.grad is not None
    read_YX = image_BCHW.grad[0].abs().sum(0).nonzero()
    margin = 1 + 2 + 2
    for side, (first, last) in enumerate(zip(read_YX.amin(0), read_YX.amax(0), strict=True)):
        start = 4 * (row, column)[side]
        assert (int(first), int(last)) == (start - margin, start + 3 + margin)


def test_the_edge_of_an_image_of_one_color_has_no_features_of_its_own() -> None:
    features_1CYX = convolutions().layers(torch.full((1, 3, 16, 16), 0.3))
    torch.testing.assert_close(features_1CYX, features_1CYX[..., 1:2, 1:2].expand_as(features_1CYX))


OWN = Path(__file__).parents[2] / "examples" / "own_components"


@pytest.fixture(scope="module")
def own_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with the example of an own encoder of images."""
    folder = tmp_path_factory.mktemp("own_encoder") / "run"
    words = [word for word in SMALL if not word.startswith("encoder.")]
    settings = ("encoder=patches", "encoder.patch=8", "encoder.lr=0.002", "optimizer.lr=0.001")
    assert command_line.run(f"--config-dir={OWN}", *words, *settings, f"hydra.run.dir={folder}") == 0
    return folder


def test_a_run_with_an_own_encoder_of_images_is_opened_and_describes_images(
    own_encoder: Path, tmp_path: Path
) -> None:
    captions = (own_encoder / "captions.val.jsonl").read_text("utf-8").splitlines()
    run = seq2seq_lab.load(own_encoder, config_dir=OWN)
    found = run.predict(save_images(tmp_path))
    assert [one.text for one in found] == [json.loads(line)["caption"] for line in captions]
    shapes = {one.attention_WYX.shape[1:] for one in found if one.attention_WYX is not None}
    assert shapes == {(4, 4)}  # of 32 pixels on a side
    assert 0 <= run.result["test/pointing_game"] <= 1


def test_an_own_encoder_has_a_learning_rate_of_its_own(own_encoder: Path) -> None:
    run = seq2seq_lab.load(own_encoder, config_dir=OWN)
    with extensions.using(OWN):
        others, own = build_optimizer(run.config, run.model).param_groups
    assert [*map(id, own["params"])] == [*map(id, run.model.encoder.parameters())]
    assert (others["lr"], own["lr"]) == (0.001, 0.002)


@pytest.mark.parametrize("grid", [None, (3, 5)])
def test_an_own_encoder_without_rows_and_columns_is_named(
    grid: tuple[int, int] | None, own_encoder: Path, tmp_path: Path
) -> None:
    code = (OWN / "my_image_encoder.py").read_text("utf-8")
    (tmp_path / "my_image_encoder.py").write_text(code.replace("grid=(rows, columns)", f"grid={grid}"))
    with pytest.raises(UserError, match=r"PatchEncoder\.encode returns 16 .*grid="):
        seq2seq_lab.load(own_encoder, config_dir=tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without interruption."""
    folder = tmp_path_factory.mktemp("captions") / "run"
    assert command_line.run(*SMALL, f"hydra.run.dir={folder}") == 0
    return folder


def test_a_run_writes_captions_and_pictures(whole: Path) -> None:
    result = json.loads((whole / "result.json").read_text("utf-8"))
    assert 0 <= result["test/pointing_game"] <= 1
    assert (whole / "attention/sample_1.png").stat().st_size > 0
    captions = [json.loads(line) for line in (whole / "captions.test.jsonl").read_text("utf-8").splitlines()]
    assert [row["image"] for row in captions] == [f"test {i}" for i in range(6)]


@pytest.mark.parametrize("settings", ["tokenizer=char", "tokenizer.lowercase=true"])
def test_another_tokenizer_than_that_of_the_run_is_refused(whole: Path, settings: str) -> None:
    with pytest.raises(UserError, match="another tokenizer or other settings"):
        build_task(compose_run([*SMALL, settings]).config).open(whole)


@needs_plotly
@pytest.mark.parametrize(
    "inputs",
    ['{"height": 32, "width": 32}', '{"source": "sounds", "height": 8, "width": 8, "longest_caption": 9}'],
)
def test_damaged_inputs_of_a_run_are_named(inputs: str, whole: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    next(copy.rglob("inputs.json")).write_text(inputs, "utf-8")
    with pytest.raises(UserError, match=r"inputs\.json is damaged"):
        seq2seq_lab.load(copy)


def test_the_page_shows_the_overlays(whole: Path) -> None:
    data = page.page_data(comparison.compare(group_runs(find_runs([whole])[0]), None))
    (example,) = data["attention"]
    assert example["title"].startswith("validation 0: a ")
    (shown,) = example["maps"].values()
    assert base64.b64decode(shown["picture"]).startswith(b"\x89PNG")
    assert len(data["examples"][0]["inputs"]) == 6


def save_images(folder: Path) -> list[Path]:
    """Write the validation images of the run to files."""
    images = scenes(train=24, validation=6, test=6, max_shapes=2).load().validation.images
    paths = [folder / f"{number}.png" for number in range(len(images))]
    for image_3HW, path in zip(images, paths, strict=True):
        Image.fromarray(image_3HW.transpose(1, 2, 0)).save(path)
    return paths


def test_the_program_writes_the_captions_of_the_run(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = save_images(tmp_path)
    predict.main([str(whole), *map(str, paths), "--attention", str(tmp_path / "overlays/of.png")])
    expected = [
        json.loads(line)["caption"] for line in (whole / "captions.val.jsonl").read_text("utf-8").splitlines()
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{path}\t{text}" for path, text in zip(paths, expected, strict=True)]
    assert len([*(tmp_path / "overlays").iterdir()]) == sum(map(bool, expected))


def test_the_captions_of_the_files_before_a_damaged_file_are_written(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, damaged, last = save_images(tmp_path)[:3]
    damaged.write_bytes(damaged.read_bytes()[:60])
    with pytest.raises(SystemExit, match="2"):
        predict.main([str(whole), str(first), str(damaged), str(last)])
    output = capsys.readouterr()
    assert [line.partition("\t")[0] for line in output.out.splitlines()] == [str(first)]
    assert str(damaged) in output.err


def test_captions_from_python(whole: Path, tmp_path: Path) -> None:
    run = seq2seq_lab.load(whole, changes=["search=beam", "search.size=2"])
    one, two = run.predict(save_images(tmp_path)[:2])
    assert one.log_prob < 0
    assert one.attention_WYX is not None
    assert one.attention_WYX.shape == (len(one.words), 8, 8)
    np.testing.assert_allclose(one.attention_WYX.sum((1, 2)), 1, rtol=1e-5)
    assert not np.array_equal(one.image_HWC, two.image_HWC)
    assert run.predict([]) == []
    for image, best in zip(save_images(tmp_path)[:2], (one, two), strict=True):
        (scored,) = run.score([image], [best.text])
        assert scored.tokens == ["<unk>" if word == UNKNOWN else word for word in [*best.words, "<eos>"]]
        ended = [scored.log_prob, sum(scored.log_probs[:-1])]  # it may have ended at the length limit
        assert min(abs(one - best.log_prob) for one in ended) < 1e-4
        np.testing.assert_allclose(
            scored.attention[:-1], best.attention_WYX.reshape(len(best.words), 64), atol=1e-5
        )
    run.plot_attention(one)
    with pytest.raises(UserError, match="list"):
        run.predict("image.png")
    with pytest.raises(UserError, match="empty"):
        run.plot_attention(replace(one, words=[]))
    with pytest.raises(UserError, match="no attention"):
        run.plot_attention(replace(one, attention_WYX=None))


def write_features(folder: Path, size: int = 5) -> Path:
    """Write features of six images, whose captions they determine, with two captions for each image."""
    rng = np.random.default_rng(1)
    lines = []
    for number, split in enumerate(["train", "train", "train", "validation", "test", "test"]):
        np.save(folder / f"{number}.npy", rng.standard_normal((6, size), np.float32))
        lines += [f"{split}\t{number}.jpg\ta red square", f"{split}\t{number}.jpg\tit is red"]
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


FEATURES = (
    *("task=captions", "dataset=feature_folder", "dataset.grid=[2,3]", "encoder=features", "logger=none"),
    *("encoder.feature_size=5", "task.samples=1", "task.batch_size=4", "trainer.precision=fp32"),
    *("model.embedding_size=8", "model.encoder_hidden_size=8", "model.hidden_size=8", "model.dropout=0.0"),
    *("trainer.max_epochs=40", "trainer.validate_every=20", "optimizer.lr=0.02"),
)


@pytest.fixture(scope="module")
def with_features(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of features with captions, and that of a run on it."""
    data = write_features(tmp_path_factory.mktemp("features"))
    folder = data / "run"
    assert command_line.run(*FEATURES, f"dataset.path={data}", f"hydra.run.dir={folder}") == 0
    return data, folder


def test_features_are_described_and_drawn(with_features: tuple[Path, Path], tmp_path: Path) -> None:
    data, folder = with_features
    assert "FEATURES.npy" in (folder / "run.log").read_text("utf-8")
    run = seq2seq_lab.load(folder)
    (one,) = run.predict([data / "4.npy"])
    assert one.attention_WYX is not None
    assert one.attention_WYX.shape == (len(one.words), 2, 3)
    assert one.image_HWC.shape == (2, 3, 3)
    assert run.plot_attention(one) is not None
    assert (folder / "attention/sample_1.png").stat().st_size > 0
    np.save(tmp_path / "other.npy", np.ones((6, 4), np.float32))
    with pytest.raises(UserError, match=r"other\.npy have L=6 and D=4, and others L=6 and D=5"):
        run.predict([tmp_path / "other.npy"])


def test_an_image_is_scored_once_against_all_of_its_captions(with_features: tuple[Path, Path]) -> None:
    _, folder = with_features
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert result["test/bleu_signature"].startswith("nrefs:2|")
    # The model learned one of the two captions of each image.
    assert (result["test/accuracy"], result["test/bleu"]) == (1.0, pytest.approx(100.0))
    evaluation = seq2seq_lab.load(folder, changes=["task.multi_reference=false"]).evaluate()
    assert evaluation["test/accuracy"] == 0.5


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("encoder.feature_size=4", "encoder.feature_size=4"),
        ("encoder=convolutional", "encoder=features"),
        ("dataset.grid=null", "dataset.grid"),
    ],
)
def test_an_encoder_that_does_not_match_the_features_is_refused(
    override: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in FEATURES if "convolutional" not in override or "feature_size" not in word]
    data = write_features(tmp_path)
    run = f"hydra.run.dir={tmp_path / 'run'}"
    assert command_line.run(*words, f"dataset.path={data}", override, run) == 2
    assert key in capsys.readouterr().err


@pytest.mark.parametrize("inputs", [["search=beam"], ["nothing.png"], ["result.json"]])
def test_missing_and_unreadable_images_are_refused(
    inputs: list[str], whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(whole)
    with pytest.raises(SystemExit, match="2"):
        predict.main([str(whole), *inputs])
    assert ("No file" if "=" in inputs[0] else inputs[0]) in capsys.readouterr().err


def test_a_killed_run_resumes_with_identical_losses(whole: Path, tmp_path: Path) -> None:
    command_line.run_until(4, *SMALL, f"hydra.run.dir={tmp_path}")
    assert command_line.run(f"resume={tmp_path}") == 0
    assert losses_by_step(tmp_path) == losses_by_step(whole)
    results = [json.loads((folder / "result.json").read_text("utf-8")) for folder in (tmp_path, whole)]
    assert results[0]["test/bleu"] == results[1]["test/bleu"]


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(whole: Path, tmp_path: Path) -> None:
    with forked_ranks():
        assert command_line.run(*SMALL, "trainer.devices=2", f"hydra.run.dir={tmp_path}") == 0
    assert losses_by_step(tmp_path) == pytest.approx(losses_by_step(whole), rel=1e-4)
    results = [json.loads((folder / "result.json").read_text("utf-8")) for folder in (tmp_path, whole)]
    for name in ("bleu", "chrf", "loss_teacher_forced", "pointing_game"):
        assert results[0][f"test/{name}"] == pytest.approx(results[1][f"test/{name}"], rel=1e-4), name


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("encoder=bigru", "encoder._target_"),
        ("dataset=grammar", "data set Grammar"),
        ("decoder=plain attention=none task.doubly_stochastic=1.0", "task.doubly_stochastic=1.0"),
        ("decoder=plain attention=none trainer.monitor=val/pointing_game", "trainer.monitor"),
        ("task.doubly_stochastic=-1.0", "task.doubly_stochastic=-1.0"),
        ("model.bridge=tanh", "bridge"),
        ("tokenizer=bpe_dropout", "tokenizer.dropout"),
    ],
)
def test_what_does_not_fit_is_refused(
    override: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        command_line.run(*SMALL[:1], *override.split(), "logger=none", f"hydra.run.dir={tmp_path / 'run'}")
        == 2
    )
    assert key in capsys.readouterr().err


def test_vectors_of_the_words_of_captions_are_read(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text(f"small {' '.join(['2.0'] * 8)}\n")
    settings = (f"embedding.target.path={tmp_path / 'vectors.txt'}", "embedding.target.frozen=true")
    run = seq2seq_lab.train([*SMALL, *settings, "trainer.fast_dev_run=true"], tmp_path / "run")
    row = run.model.target_embedding.weight[run.task.tokenizer.encode(["small"])[0][0]]
    torch.testing.assert_close(row * run.model.target_dropout.scale, torch.full((8,), 2.0))


def test_other_data_do_not_change_the_limit_of_the_search(whole: Path, tmp_path: Path) -> None:
    own = seq2seq_lab.load(whole).task.longest
    task = seq2seq_lab.load(whole, changes=["dataset.max_shapes=1", "dataset.seed=5"]).task
    task.evaluation_data(tmp_path, whole)
    assert max(len(ids) for ids in task.tokenizer.encode(task.corpus.train.captions)) < own
    assert task.longest == own


def test_captions_with_more_tokens_are_left_out_of_the_training(caplog: pytest.LogCaptureFixture) -> None:
    lengths = torch.tensor([3, 5, 2])
    with caplog.at_level("INFO"):
        assert fitting(lengths, 3, "captions").tolist() == [0, 2]
    assert "1 training captions of more than 3 tokens" in caplog.text
    with pytest.raises(UserError, match=r"task\.max_length=1: all training captions"):
        fitting(lengths, 1, "captions")


def test_attention_to_a_limited_number_of_positions_needs_one_for_each_of_the_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = (*SMALL, "trainer.fast_dev_run=true", "task.doubly_stochastic=0", "attention=location")
    for length, status in ((61, 2), (62, 0)):
        folder = tmp_path / str(length)
        assert command_line.run(*small, f"attention.max_length={length}", f"hydra.run.dir={folder}") == status
    error = capsys.readouterr().err
    assert "image has 64 positions" in error
    assert "attention.max_length=62 " in error


def test_the_positions_of_features_are_counted_as_those_of_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("attention=location", "attention.max_length=3", f"dataset.path={write_features(tmp_path)}")
    assert command_line.run(*FEATURES, *settings, f"hydra.run.dir={tmp_path / 'run'}") == 2
    error = capsys.readouterr().err
    assert "image has 6 positions" in error
    assert "attention.max_length=4 " in error


def test_an_encoder_of_images_is_refused_for_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("encoder=convolutional", "model.bridge=mean", f"hydra.run.dir={tmp_path}") == 2
    assert "encoder._target_" in capsys.readouterr().err


def test_attributions_are_on_the_regions(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        *("attention", "attention_norm", "grad_x_input", "grad_norm", "integrated_gradients"),
        *("smooth_grad", "occlusion", "value_zeroing"),
    }
    (one, _) = check_attributions(whole, expected, capsys)
    assert one.source_names[:9] == [*(f"0, {column}" for column in range(8)), "1, 0"]
    for method in ("occlusion_unknown", "occlusion_removed"):
        with pytest.raises(UserError, match=rf"^method={method} is not allowed: .* Methods: attention, "):
            attribute(one, [method])
    for how in ("unknown", "removed"):
        with pytest.raises(UserError, match=r"--delete zero\.$"):
            next(explain([one], ["occlusion"], how=how))


def test_its_trace_attends_to_regions(whole: Path, tmp_path: Path) -> None:
    run = seq2seq_lab.load(whole, device="cpu")
    path = str(save_images(tmp_path)[0])
    (best,) = run.predict([path])
    traced = check_trace(run, path, best)
    assert (traced.task, traced.source.columns, traced.source.grid) == ("caption", "regions", run.task.grid)
    assert (traced.source.image or "").startswith("data:image/png;base64,")
    assert traced.best.word_attention is not None
    np.testing.assert_array_equal(
        traced.best.word_attention.reshape(best.attention_WYX.shape), best.attention_WYX
    )
    assert run.attribute(path, best.text, ["value_zeroing"]).words == traced.source.column_names
    row = [1.0, *[0.0] * (len(traced.source.column_names) - 1)]
    changed = run.trace(path, change={"kind": "weights", "step": 1, "weights": row}, before=traced)
    assert changed.best.attention is not None
    assert changed.best.attention[1].tolist() == row
    with pytest.raises(UserError, match=r"change\.kind=word=0"):
        run.trace(path, change={"kind": "word=0", "step": 1}, before=traced)
    given = run.intervene(path, best.text, ["weights"], weights=[row]).effects[0].tokens
    assert given.log_prob_change.any()
    with pytest.raises(UserError, match=r"^kind=word=0"):
        run.intervene(path, best.text, ["word=0"])
