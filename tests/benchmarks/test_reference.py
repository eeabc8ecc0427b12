"""The models of the tutorials have the published numbers of parameters, and feed back tokens as their formulas say."""

import random

import pytest
import torch

from benchmarks.reference import Bahdanau, Cho, Luong, Reference, Sizes, Sutskever
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS

MODELS = (Sutskever, Cho, Bahdanau, Luong)
SMALL = Sizes(source_vocabulary=11, target_vocabulary=13, embedding=6, hidden=4)


@pytest.mark.parametrize(
    ("model", "source_vocabulary", "parameters"),
    [
        (Sutskever, 7854, 13_898_757),
        (Sutskever, 7853, 13_898_501),
        (Cho, 7853, 14_219_781),
        (Bahdanau, 7853, 20_518_405),
        (Luong, 7853, 11_925_765),
    ],
)
def test_the_references_have_the_published_number_of_parameters(
    model: type[Reference], source_vocabulary: int, parameters: int
) -> None:
    with torch.device("meta"):
        made = model(Sizes(source_vocabulary, 5893, embedding=256, hidden=512), dropout=0.5)
    assert sum(parameter.numel() for parameter in made.parameters()) == parameters


@pytest.mark.parametrize("model", MODELS)
def test_the_loop_feeds_back_reference_tokens_or_predictions(model: type[Reference]) -> None:
    torch.manual_seed(1)
    made = model(SMALL, dropout=0.0)
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)  # far from zero, so that the predictions differ
    source_SB = torch.tensor([[SOS, 5, 6, EOS]] * 3).t()
    target_UB = torch.tensor(
        [[SOS, 4, 5, 6, 7, EOS], [SOS, 8, 9, 10, EOS, PAD], [SOS, 12, 4, 12, 4, EOS]]
    ).t()

    def logits(ratio: float, target_UB: torch.Tensor = target_UB) -> torch.Tensor:
        return made(source_SB, [4] * 3, target_UB, ratio, random.Random(0))

    own = logits(0.0)
    chosen_TB = own.argmax(-1)
    assert not torch.equal(chosen_TB[:-1], target_UB[1:-1])
    replayed = torch.cat([target_UB[:1], chosen_TB])
    torch.testing.assert_close(logits(1.0, replayed), own)
    draws = random.Random(0)
    forced = [draws.random() < 0.5 for _ in range(5)]
    assert len(set(forced[:-1])) == 2
    mixed = logits(0.5)
    read = [target_UB[0]] + [
        target_UB[t + 1] if forced[t] else mixed[t].argmax(-1) for t in range(len(forced))
    ]
    torch.testing.assert_close(logits(1.0, torch.stack(read)), mixed)


@pytest.mark.parametrize("model", [Bahdanau, Luong])
def test_attention_ignores_padding(model: type[Reference]) -> None:
    torch.manual_seed(1)
    made = model(SMALL, dropout=0.0)
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    state = torch.randn(1, 2, SMALL.hidden)
    embedded_1BE = torch.randn(1, 2, SMALL.embedding)
    outputs_SBM = torch.randn(5, 2, 2 * SMALL.hidden)
    mask_BS = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    changed_SBM = outputs_SBM.clone()
    changed_SBM[3:, 1] = 7.0
    logits, changed = (made.step(embedded_1BE, state, (o, mask_BS))[0] for o in (outputs_SBM, changed_SBM))
    assert torch.equal(logits, changed)
    everywhere = made.step(embedded_1BE, state, (changed_SBM, torch.ones_like(mask_BS)))[0]
    assert not torch.allclose(everywhere[1], logits[1])
    torch.testing.assert_close(everywhere[0], logits[0])
