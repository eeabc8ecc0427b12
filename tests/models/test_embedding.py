"""The embedding table: values, gradients and pretrained vectors."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.data.vectors import WordVectors
from seq2seq_lab.models.embedding import Embedding


def made(table_size: int, embedding_size: int, frozen: bool = False, vocabulary_size: int = 9) -> Embedding:
    torch.manual_seed(3)
    return Embedding(vocabulary_size, table_size, embedding_size, frozen)


def vectors(found: list[int], vocabulary_size: int, size: int, scale: float) -> WordVectors:
    found_V = torch.zeros(vocabulary_size, dtype=torch.bool)
    found_V[found] = True
    generator = torch.Generator().manual_seed(5)
    vectors_VD = scale * torch.randn(vocabulary_size, size, generator=generator)
    return WordVectors(vectors_VD * found_V[:, None], found_V)


@pytest.mark.parametrize(("table_size", "embedding_size"), [(6, 6), (6, 4), (4, 6)])
def test_values(table_size: int, embedding_size: int) -> None:
    embedding = made(table_size, embedding_size)
    tokens = torch.tensor([[4, 8, PAD], [0, 4, 2]])
    expected = embedding.weight[tokens]
    if table_size != embedding_size:
        expected = expected @ embedding.get_parameter("projection.weight").T
    assert embedding(tokens).shape == (2, 3, embedding_size)
    torch.testing.assert_close(embedding(tokens), expected)
    assert not embedding(tokens)[0, 2].any()
    torch.testing.assert_close(embedding(torch.tensor(4)), expected[0, 0])


def test_a_projection_only_where_sizes_differ() -> None:
    assert [name for name, _ in made(6, 6).named_parameters()] == ["table.weight"]
    shapes = {name: tuple(value.shape) for name, value in made(6, 4).named_parameters()}
    assert shapes == {"table.weight": (9, 6), "projection.weight": (4, 6)}


def test_first_weights() -> None:
    weight_VD = made(64, 64, vocabulary_size=5_000).weight
    assert weight_VD.mean().item() == pytest.approx(0, abs=1e-3)
    assert weight_VD.std().item() == pytest.approx(1 / 8, rel=0.01)
    assert not weight_VD[PAD].any()


def gradients(embedding: Embedding) -> dict[str, Tensor | None]:
    embedding(torch.tensor([4, PAD, 5])).square().sum().backward()
    return {name: parameter.grad for name, parameter in embedding.named_parameters()}


def test_a_frozen_table_takes_no_gradient_and_its_projection_does() -> None:
    for frozen in (True, False):
        embedding = made(6, 4, frozen)
        embedding.load_vectors(vectors([4, 5], 9, 6, scale=1.0), 1.0)
        found = gradients(embedding)
        projection = found["projection.weight"]
        assert projection is not None
        assert projection.any()
        table = found["table.weight"]
        assert (table is None) == frozen
        if table is not None:
            assert table.any(dim=1).nonzero().flatten().tolist() == [4, 5]


def test_weight_is_the_parameter_of_the_table() -> None:
    embedding = made(6, 6)
    assert embedding.weight is embedding.get_parameter("table.weight")
    tied = torch.nn.Linear(6, 9)
    tied.weight = embedding.weight
    assert functional.linear(torch.ones(6), embedding.weight, tied.bias).equal(tied(torch.ones(6)))


def test_loaded_rows_are_the_file_s_and_others_of_its_scale() -> None:
    size, count = 50, 4_000
    embedding = made(size, 8, vocabulary_size=count)
    parameter, before_VD = embedding.weight, embedding.weight.detach().clone()
    words = vectors(list(range(PAD + 3, count, 2)), count, size, scale=0.7)
    embedding.load_vectors(words, 1.0)
    assert embedding.weight is parameter
    assert embedding.weight[words.found_V].equal(words.vectors_VD[words.found_V])
    others_VD = embedding.weight[~words.found_V][2:].detach()
    assert others_VD.std().item() == pytest.approx(0.7, rel=0.02)
    assert others_VD.mean().item() == pytest.approx(0, abs=0.01)
    assert not torch.isclose(others_VD, before_VD[~words.found_V][2:]).all(dim=1).any()
    assert embedding.weight[0].any()
    assert not embedding.weight[PAD].any()


def test_the_scale_is_the_root_of_the_mean_square() -> None:
    """Vectors with a common component, like real ones: their standard deviation is smaller."""
    embedding = made(20, 20, vocabulary_size=4_000)
    found_V = torch.arange(4_000) == 7
    embedding.load_vectors(WordVectors(found_V[:, None] * torch.full((4_000, 20), 2.0), found_V), 1.0)
    others_VD = embedding.weight[torch.arange(4_000) > 7].detach()
    assert others_VD.std().item() == pytest.approx(2, rel=0.02)


def test_a_model_that_scales_its_embeddings_reads_the_vectors_of_the_file() -> None:
    embedding, words = made(6, 6, vocabulary_size=4_000), vectors([4], 4_000, 6, scale=0.7)
    embedding.load_vectors(words, 6**0.5)
    read_VD = 6**0.5 * embedding.weight.detach()
    torch.testing.assert_close(read_VD[4], words.vectors_VD[4])
    expected = words.vectors_VD[4].square().mean().sqrt().item()
    assert read_VD[5:].std().item() == pytest.approx(expected, rel=0.02)


def test_the_seed_decides_on_the_rows_that_are_drawn() -> None:
    words = vectors([4], 9, 6, scale=1.0)
    tables = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        embedding = Embedding(9, 6, 6, frozen=False)
        embedding.load_vectors(words, 1.0)
        tables.append(embedding.weight)
    assert tables[0].equal(tables[1])
    assert not tables[0].equal(tables[2])


def test_vectors_follow_the_type_of_the_table() -> None:
    embedding = made(6, 4).double()
    embedding.load_vectors(vectors([4], 9, 6, scale=1.0), 1.0)
    assert embedding.weight.dtype == torch.float64
    assert embedding.weight[4].equal(vectors([4], 9, 6, scale=1.0).vectors_VD[4].double())


def test_known_words_are_frozen_and_the_others_trained() -> None:
    embedding = Embedding(9, 6, 4, frozen="known")
    assert all(found.any() for found in table_gradient(embedding)[[4, 5]])  # no vectors are loaded yet
    embedding.load_vectors(vectors([4], 9, 6, scale=1.0), 1.0)
    again = Embedding(9, 6, 4, frozen="known")
    again.load_state_dict(embedding.state_dict())
    for table in (embedding, again):
        found_VD = table_gradient(table)
        assert not found_VD[[4, PAD]].any()
        assert found_VD[5].any()
    tokens = torch.tensor([4, 5, PAD])
    torch.testing.assert_close(embedding(tokens), embedding.projection(embedding.weight[tokens]))
    assert "known_V" not in made(6, 4).state_dict()


def table_gradient(embedding: Embedding) -> Tensor:
    embedding.zero_grad()
    gradient = gradients(embedding)["table.weight"]
    assert gradient is not None
    return gradient


def test_it_builds_without_memory() -> None:
    with torch.device("meta"):
        embedding = Embedding(9, 6, 4, frozen=True)
    assert embedding.weight.is_meta
    assert embedding(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 4)
