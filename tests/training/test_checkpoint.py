"""Checkpoints: what is written, and what a crash or damage leaves."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from seq2seq_lab import files
from seq2seq_lab.errors import UserError
from seq2seq_lab.training import checkpoint

Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Tied(nn.Module):
    """Two modules with one table."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 3)
        self.output = nn.Linear(3, size, bias=False)
        self.output.weight = self.embedding.weight


def trained(make: Optimizer, size: int = 4) -> tuple[Tied, torch.optim.Optimizer]:
    model = Tied(size)
    optimizer = make(list(model.parameters()))
    for _ in range(2):
        model.output(model.embedding(torch.tensor([1, 2]))).square().sum().backward()
        optimizer.step()
    return model, optimizer


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.1, betas=(0.8, 0.9))


def write(folder: Path, step: int, best: str | None = None) -> Path:
    return checkpoint.save(
        folder, f"step_{step:08d}", *trained(adam), {"step": step}, best=best, task_state={}
    )


@pytest.mark.parametrize(
    "make",
    [
        adam,
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True, amsgrad=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.5),
    ],
    ids=["adam", "adamw-fused", "sgd", "sgd-momentum"],
)
def test_weights_optimizer_and_state_come_back(make: Optimizer, tmp_path: Path) -> None:
    model, optimizer = trained(make)
    state = {"step": 7, "history": [0.1, 1 / 3], "note": "é"}
    carried = {"hidden": torch.arange(3.0), "line": 4}
    path = checkpoint.save(tmp_path, "step_7", model, optimizer, state, best=None, task_state=carried)
    fresh = Tied(4)
    other = make(list(fresh.parameters()))
    checkpoint.load_weights(path, fresh)
    checkpoint.load_optimizer(path, other)
    assert fresh.output.weight is fresh.embedding.weight
    assert torch.equal(fresh.embedding.weight, model.embedding.weight)
    loaded = checkpoint.load_state(path)
    assert {key: loaded[key] for key in state} == state
    carried_back = checkpoint.load_task_state(path)
    assert torch.equal(carried_back.pop("hidden"), carried["hidden"])
    assert carried_back == {"line": 4}
    for _ in range(2):
        for net, step in ((model, optimizer), (fresh, other)):
            step.zero_grad()
            net.output(net.embedding(torch.tensor([1, 3]))).square().sum().backward()
            step.step()
    assert torch.equal(fresh.embedding.weight, model.embedding.weight)


def test_weights_that_are_views_of_one_buffer_come_back(tmp_path: Path) -> None:
    """As the weights of recurrent layers are on a GPU."""
    model = nn.Sequential(nn.GRU(3, 4), nn.BatchNorm1d(4))
    weights = list(model[0].parameters())
    flat = torch.cat([weight.detach().flatten() for weight in weights])
    for weight, part in zip(weights, flat.split([weight.numel() for weight in weights]), strict=True):
        weight.data = part.view_as(weight)
    model[1].running_mean += 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = checkpoint.save(tmp_path, "step_1", model, optimizer, {}, best=None, task_state={})
    fresh = nn.Sequential(nn.GRU(3, 4), nn.BatchNorm1d(4))
    checkpoint.load_weights(path, fresh)
    for name, tensor in model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor), name


def test_no_file_is_a_pickle(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    files = {file.name for file in path.iterdir()}
    assert files == {*checkpoint.FILES, "manifest.json"}
    for file in path.iterdir():
        data = file.read_bytes()
        if file.suffix == ".safetensors":
            size = int.from_bytes(data[:8], "little")
            assert isinstance(json.loads(data[8 : 8 + size]), dict)
        else:
            assert isinstance(json.loads(data), dict)


@pytest.mark.parametrize("file", [*checkpoint.FILES, "manifest.json"])
@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_damaged_newest_is_named_and_passed_over(
    file: str, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, last = write(tmp_path, 1), write(tmp_path, 2)
    assert checkpoint.newest(tmp_path) == last
    path = last / file
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[:-3])
    else:
        data[-3] ^= 1
        path.write_bytes(data)
    assert checkpoint.newest(tmp_path) == before
    assert str(last) in caplog.text
    # A flipped byte of the manifest's shows in what it says of another file.
    assert file in caplog.text or (file == "manifest.json" and how == "flipped")
    with pytest.raises(UserError, match=r"step_00000002 cannot be used"):
        checkpoint.load_weights(last, Tied(4))


def test_all_damaged_or_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint"):
        checkpoint.newest(tmp_path)
    for step in (1, 2):
        (write(tmp_path, step) / "state.json").unlink()
    with pytest.raises(UserError, match=r"(?s)step_00000002: state\.json is missing; step_00000001.*new run"):
        checkpoint.newest(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    manifest = write(tmp_path, 1) / "manifest.json"
    content = manifest.read_text("utf-8")
    manifest.write_text(content.replace(f'"format": {checkpoint.FORMAT}', '"format": 1'), "utf-8")
    with pytest.raises(UserError, match=rf"format 1.*format {checkpoint.FORMAT}"):
        checkpoint.newest(tmp_path)


def test_crash_within_save_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = write(tmp_path, 1)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, 2)
    assert (tmp_path / ".step_00000002.writing" / "manifest.json").is_file()
    assert checkpoint.newest(tmp_path) == old
    assert checkpoint.newest(tmp_path) != write(tmp_path, 2)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("where", ["rename", "save_file"])
def test_full_disk_is_an_error_and_the_old_checkpoint_remains(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write(tmp_path, 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((Path, where) if where == "rename" else (checkpoint, where)), full)
    with pytest.raises(UserError, match=r"step_00000002 cannot be written.*No space left.*resume="):
        write(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == [old.name]
    assert checkpoint.newest(tmp_path) == old


def test_full_disk_in_safetensors_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(tensors: dict[str, torch.Tensor], path: Path) -> None:
        save_file(tensors, path.parent / "no folder" / "file")

    save_file = checkpoint.save_file
    monkeypatch.setattr(checkpoint, "save_file", gone)
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path, 1)


def test_newest_and_their_best_are_kept(tmp_path: Path) -> None:
    def names() -> list[int]:
        return [int(path.name[5:]) for path in sorted(tmp_path.iterdir())]

    for step in (1, 2, 3):
        write(tmp_path, step, best="step_00000001")
    write(tmp_path, 4, best="step_00000004")
    # 1 is kept because it is the best checkpoint of 3, from which the run resumes if 4 is damaged.
    checkpoint.prune(tmp_path, 2)
    assert names() == [1, 3, 4]
    write(tmp_path, 5, best="step_00000004")
    checkpoint.prune(tmp_path, 2)
    assert names() == [4, 5]
    checkpoint.prune(tmp_path, 1)
    assert names() == [4, 5]
    (tmp_path / "step_00000005" / "state.json").write_text("{")
    checkpoint.prune(tmp_path, 1)
    assert names() == [5]


def test_damaged_newer_ones_are_removed(tmp_path: Path) -> None:
    paths = [write(tmp_path, step) for step in (1, 2, 3)]
    checkpoint.remove_newer(paths[1])
    assert sorted(tmp_path.iterdir()) == paths[:2]


def test_what_an_interrupted_save_has_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 1)
    rename, rmtree = Path.rename, shutil.rmtree

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def killed_at_the_end(folder: Path, **options: bool) -> None:
        if folder.is_dir() and folder.name.endswith(".replaced"):
            raise KeyboardInterrupt
        rmtree(folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.shutil, "rmtree", killed_at_the_end)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, 2)
    assert {folder.name for folder in tmp_path.glob(".*")} == {
        ".step_00000001.replaced",
        ".step_00000002.writing",
    }
    checkpoint.prune(tmp_path, 1)
    assert list(tmp_path.iterdir()) == [path]
    # The only valid copy is kept.
    rename(path, tmp_path / ".step_00000001.replaced")
    checkpoint.prune(tmp_path, 1)
    checkpoint.restore_moved(tmp_path)
    assert checkpoint.newest(tmp_path) == path


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    with pytest.raises(
        UserError, match=r"(?s)not fit this model.*embedding\.weight is \(4, 3\).*\(5, 3\).*config\.yaml"
    ):
        checkpoint.load_weights(path, Tied(5))
    with pytest.raises(UserError, match="not fit this model"):
        checkpoint.load_weights(path, nn.Linear(2, 2))


def test_checkpoint_may_move(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 1)
    moved = Path(shutil.move(path, tmp_path / "moved"))
    checkpoint.load_weights(moved, Tied(4))


def test_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "result.json"
    files.write_atomically(file, "old\n")
    monkeypatch.setattr(files.os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        files.write_atomically(file, "new\n")
    assert file.read_text("utf-8") == "old\n"


def test_a_checkpoint_of_the_same_name_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def save(value: int) -> Path:
        return checkpoint.save(
            tmp_path, "step_00000001", model, optimizer, {"value": value}, best=None, task_state={}
        )

    save(1)
    path = save(2)
    assert checkpoint.load_state(path)["value"] == 2
    rename, renamed = Path.rename, []

    def killed(source: Path, target: Path) -> Path:
        if renamed:
            raise KeyboardInterrupt
        renamed.append(target)
        return rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            save(3)
    assert not path.exists()
    assert checkpoint.any_in(tmp_path)
    assert checkpoint.load_state(checkpoint.newest(tmp_path))["value"] == 2
    checkpoint.restore_moved(tmp_path)
    assert checkpoint.newest(tmp_path) == path

    def full(source: Path, target: Path) -> Path:
        if source.name.endswith(".writing"):
            raise OSError(errno.ENOSPC, "full")
        return rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(UserError, match="full"):
            save(3)
    assert checkpoint.load_state(path)["value"] == 2  # the earlier one is not changed
    save(4)
    assert [found.name for found in tmp_path.iterdir()] == ["step_00000001"]


def test_a_reader_between_the_two_renames_of_save_finds_the_old_one_and_does_not_disturb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose best checkpoint is replaced while another program opens it."""
    write(tmp_path, 1)
    write(tmp_path, 2, best="step_00000002")
    rename, seen = Path.rename, []

    def renamed(source: Path, target: Path) -> Path:
        result = rename(source, target)
        if target.name.endswith(".replaced"):
            seen.extend(checkpoint.named(tmp_path, names)[0] for names in (None, "last:1", "step_00000002"))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", renamed)
        write(tmp_path, 2, best="step_00000002")
    assert seen == [tmp_path / ".step_00000002.replaced"] * 3
    assert checkpoint.best(tmp_path) == tmp_path / "step_00000002"
    # A newer one does not hide that its best one was moved.
    write(tmp_path, 3, best="step_00000002")
    moved = rename(tmp_path / "step_00000002", tmp_path / ".step_00000002.replaced")
    assert checkpoint.newest(tmp_path) == tmp_path / "step_00000003"
    assert checkpoint.best(tmp_path) == moved
    assert checkpoint.name_of(moved) == "step_00000002"


def test_the_remedy_is_that_of_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(checkpoint, "save_file", refused)
    with pytest.raises(UserError, match="ulimit -f"):
        write(tmp_path, 1)
