import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch
from small_models import WITHOUT_ATTENTION, recurrent_values_of, small_config, small_model
from torch import Tensor, nn

from seq2seq_lab.config.compose import compose_job, composer
from seq2seq_lab.config.schema import CONF_DIR
from seq2seq_lab.config.slots import part
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS
from seq2seq_lab.models.attention import AdditiveAttention, MultiplicativeAttention
from seq2seq_lab.models.initialization import (
    Bahdanau,
    Default,
    Initialization,
    Lecun,
    Normal,
    Role,
    Uniform,
    Xavier,
)

PAD, V, E, H = 1, 300, 32, 24


class Model(nn.Module):
    """One module of each kind that models contain; the output layer shares the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(V, E, padding_idx=PAD)
        self.frozen = nn.Embedding(V, E, padding_idx=PAD)
        self.frozen.weight.requires_grad_(False)
        self.encoder = nn.LSTM(E, H, num_layers=2, bidirectional=True)
        self.cell = nn.GRUCell(E, H)
        self.attention = AdditiveAttention(query_size=H, encoder_output_size=2 * H, size=40)
        self.bilinear = MultiplicativeAttention(query_size=H, encoder_output_size=2 * H)
        self.combine = nn.Linear(3 * H, E)
        self.convolution = nn.Conv2d(E, E, 3)
        self.norm = nn.LayerNorm(E)
        self.sharpness = nn.Parameter(torch.tensor(10.0))
        self.output = nn.Linear(E, V)
        self.output.weight = self.table.weight


def model() -> Model:
    torch.manual_seed(0)
    return Model()


def role_of(name: str) -> Role | None:
    """The role of a weight of the model above, None if it is not drawn; listed by hand, independent of the package."""
    if name in ("frozen.weight", "norm.weight", "sharpness"):
        return None
    if "bias" in name:
        return "bias"
    if name == "attention.energy.weight":
        return "energy"
    if name in ("attention.key.weight", "attention.query.weight", "bilinear.key.weight"):
        return "attention"
    if name == "table.weight":
        return "embedding"
    return "recurrent" if "weight_hh" in name else "matrix"


def gates_of(name: str, weight: Tensor) -> tuple[Tensor, ...]:
    recurrent = name.startswith(("encoder", "cell"))
    return weight.chunk(4 if name.startswith("encoder") else 3) if recurrent else (weight,)


Check = Callable[[Tensor], None]


def uniform(bound: float) -> Check:
    def check(x: Tensor) -> None:
        assert x.abs().max() <= bound
        assert x.mean().abs() < 5 * bound / (3 * x.numel()) ** 0.5
        assert x.std().item() == pytest.approx(bound / 3**0.5, rel=5 * (0.2 / x.numel()) ** 0.5)

    return check


def normal(std: float) -> Check:
    def check(x: Tensor) -> None:
        assert x.mean().abs() < 5 * std / x.numel() ** 0.5
        assert x.std().item() == pytest.approx(std, rel=5 / (2 * x.numel()) ** 0.5)
        assert x.numel() < 500 or x.abs().max() > 2.2 * std  # farther than a uniform distribution reaches

    return check


def zero(x: Tensor) -> None:
    assert not x.any()


def orthogonal(x: Tensor) -> None:
    torch.testing.assert_close(x @ x.T, torch.eye(H), rtol=0, atol=1e-5)
    assert (x - torch.eye(H)).abs().max() > 0.1


def glorot(x: Tensor) -> None:
    uniform(math.sqrt(6 / (sum(x.shape[:2]) * x[0, 0].numel())))(x)


def lecun(x: Tensor) -> None:
    normal(x[0].numel() ** -0.5)(x)


EVERY = get_args(Role)
# What each role is drawn from, by the file in conf/.
EXPECTED: dict[str, dict[Role, Check]] = {
    "default": {},
    "uniform": dict.fromkeys(EVERY, uniform(0.08)),
    "uniform_zaremba": dict.fromkeys(EVERY, uniform(0.05)),
    "normal_biases": dict.fromkeys(EVERY, normal(0.01)),
    "normal": dict.fromkeys(EVERY, normal(0.01)) | {"bias": zero},
    "bahdanau": {
        "matrix": normal(0.01),
        "embedding": normal(0.01),
        "recurrent": orthogonal,
        "attention": normal(0.001),
        "energy": zero,
        "bias": zero,
    },
    "xavier": dict.fromkeys(EVERY, glorot) | {"recurrent": orthogonal, "bias": zero},
    "xavier_normal_embeddings": dict.fromkeys(EVERY, glorot)
    | {"embedding": normal(E**-0.5), "recurrent": orthogonal, "bias": zero},
    "lecun": dict.fromkeys(EVERY, lecun)
    | {"embedding": normal(V**-0.5), "recurrent": orthogonal, "bias": zero},
}
FILES = sorted((CONF_DIR / "initialization").glob("*.yaml"))
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def initialization(path: Path) -> Initialization:
    with composer():
        made = part(
            "initialization", compose_job([f"initialization={path.stem}"]).plain["initialization"], KINDS
        )()
    assert isinstance(made, Initialization)
    return made


def check(made: Initialization, expected: dict[Role, Check]) -> None:
    drawn, before = model(), dict(model().named_parameters())
    made(drawn)
    checked = set()
    for name, weight in drawn.named_parameters():
        role = role_of(name)
        if role is None or role not in expected:
            assert torch.equal(weight, before[name]), name
            continue
        rows = torch.arange(V) != PAD if name == "table.weight" else slice(None)
        for gate in gates_of(name, weight.detach()):
            expected[role](gate[rows])
        checked.add(role)
    assert checked == set(expected)


def test_the_walk_is_not_empty() -> None:
    assert {path.stem for path in FILES} == set(EXPECTED)


@every_file
def test_each_file_draws_its_documented_distribution(path: Path) -> None:
    check(initialization(path), EXPECTED[path.stem])


def test_settings() -> None:
    check(Uniform(0.1), dict.fromkeys(EVERY, uniform(0.1)))
    check(Normal(0.02, "drawn"), dict.fromkeys(EVERY, normal(0.02)))
    check(Normal(0.02, "zero"), dict.fromkeys(EVERY, normal(0.02)) | {"bias": zero})


@every_file
def test_the_padding_row_stays_zero(path: Path) -> None:
    drawn = model()
    initialization(path)(drawn)
    assert not drawn.table.weight[PAD].any()
    assert not drawn.frozen.weight[PAD].any()
    assert drawn.table.weight.any(dim=1).sum() == V - 1


@pytest.mark.parametrize("made", [Bahdanau(), Lecun(), Xavier()], ids=lambda made: type(made).__name__)
def test_each_gate_and_direction_has_an_orthogonal_matrix_of_its_own(made: Initialization) -> None:
    drawn = model()
    made(drawn)
    gates = [
        gate
        for name, weight in drawn.named_parameters()
        if role_of(name) == "recurrent"
        for gate in gates_of(name, weight)
    ]
    assert len(gates) == 2 * 2 * 4 + 3
    for number, gate in enumerate(gates):
        assert not any(torch.equal(gate, other) for other in gates[:number])


def test_square_matrices_are_orthogonal_with_lecun() -> None:
    drawn = nn.Linear(H, H)
    Lecun()(drawn)
    orthogonal(drawn.weight.detach())


class Counting(Initialization):
    """Adds 1 to its input."""

    def draw(self, role: Role, weight: Tensor) -> None:
        weight += 1


def test_each_weight_is_drawn_once() -> None:
    drawn, before = model(), dict(model().named_parameters())
    drawn.again = drawn.combine
    Counting()(drawn)
    assert drawn.output.weight is drawn.table.weight
    for name, weight in drawn.named_parameters():
        added = torch.full_like(weight, 0 if role_of(name) is None else 1)
        if name == "table.weight":
            added[PAD] = 0
        torch.testing.assert_close(weight, before[name] + added)


@pytest.mark.parametrize("decoder", recurrent_values_of("decoder"))
def test_nothing_of_a_model_is_forgotten(decoder: str) -> None:
    attention = "none" if decoder in WITHOUT_ATTENTION else "additive"
    drawn = small_model(small_config("bilstm", decoder, attention, "deep"))
    before = {name: weight.clone() for name, weight in drawn.named_parameters()}
    Counting()(drawn)
    for name, weight in drawn.named_parameters():
        rows = slice(PAD + 1, None) if name.endswith("table.weight") else slice(None)
        torch.testing.assert_close(weight[rows], before[name][rows] + 1, msg=name)


def weights(made: Initialization, seed: int) -> Iterator[Tensor]:
    drawn = model()
    torch.manual_seed(seed)
    made(drawn)
    yield from drawn.parameters()


@every_file
def test_seeded_by_torch(path: Path) -> None:
    made = initialization(path)
    first, again, other = (torch.cat([*map(torch.flatten, weights(made, seed))]) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == isinstance(made, Default)


def test_the_default_draws_nothing() -> None:
    drawn = model()
    before = torch.get_rng_state()
    Default()(drawn)
    assert torch.equal(torch.get_rng_state(), before)


@every_file
def test_the_model_learns_afterwards(path: Path) -> None:
    drawn = model()
    initialization(path)(drawn)
    states_TBH, _ = drawn.encoder(drawn.table(torch.tensor([[4, PAD], [5, 6]])))
    drawn.output(
        drawn.combine(torch.cat([states_TBH, states_TBH[..., :H]], dim=-1))
    ).square().sum().backward()
    for name, weight in drawn.named_parameters():
        assert weight.is_leaf
        assert weight.requires_grad == (name != "frozen.weight")
        if name.startswith(("encoder", "combine", "output", "table")):
            assert weight.grad is not None, name


@every_file
def test_without_memory(path: Path) -> None:
    """Parts are checked in this way before data is read."""
    with torch.device("meta"):
        initialization(path)(Model())


class NewTensor(Initialization):
    def draw(self, role: Role, weight: Tensor) -> None:
        return torch.zeros_like(weight)  # type: ignore[return-value]


def test_a_draw_that_returns_a_tensor_is_refused() -> None:
    """It has not changed the weight."""
    with pytest.raises(UserError, match=r"^initialization=NewTensor: draw returned Tensor"):
        NewTensor()(Model())
