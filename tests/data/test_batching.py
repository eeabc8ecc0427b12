from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from seq2seq_lab.data.batching import BatchMaker, Index, StepPlan, Unit, deal, plan_epoch, plan_evaluation
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS


def text_of(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> TokenizedText:
    """Return a split of these sentences, which have no `<sos>` and `<eos>`."""
    return TokenizedText(Ragged.of(sources), Ragged.of(targets))


def random_text(count: int, longest: int = 12, seed: int = 0) -> TokenizedText:
    rng = np.random.default_rng(seed)

    def sentences() -> list[list[int]]:
        return [
            rng.integers(4, 50, size=int(length)).tolist() for length in rng.integers(1, longest, size=count)
        ]

    return text_of(sentences(), sentences())


UNITS: tuple[Unit, ...] = ("sentences", "tokens")
TEXTS = {
    "usual": random_text(500),
    "one sentence": random_text(1),
    "two sentences": random_text(2),
    "one source length": text_of([[5, 6]] * 40, [[7] * (1 + i % 9) for i in range(40)]),
    "every length once": text_of([[5] * (i + 1) for i in range(30)], [[7] * (30 - i) for i in range(30)]),
    "none": text_of([], []),
}
every_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
every_unit = pytest.mark.parametrize("unit", UNITS)
every_size = pytest.mark.parametrize("batch_size", [1, 7, 32, 10_000])
micro = pytest.mark.parametrize("micro_batches", [1, 2, 5])


def steps_of(
    text: TokenizedText,
    batch_size: int = 32,
    unit: Unit = "sentences",
    micro_batches: int = 1,
    seed: int = 1,
    epoch: int = 0,
) -> list[StepPlan]:
    plan = plan_epoch(text, batch_size, unit, seed=seed, epoch=epoch)
    return [[index for part in deal(step, 0, 1, micro_batches).values() for index in part] for step in plan]


@every_text
@every_unit
@micro
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_step_is_dealt_to_the_ranks(
    text: TokenizedText, unit: Unit, micro_batches: int, ranks: int
) -> None:
    for step in plan_epoch(text, 32, unit, seed=1, epoch=0):
        dealt_to = [deal(step, rank, ranks, micro_batches) for rank in range(ranks)]
        shares = [[index for part in own.values() for index in part] for own in dealt_to]
        dealt = [int(i) for share in shares for part in share for i in part]
        assert sorted(dealt) == sorted(int(i) for part in step for i in part)
        sentences = [sum(map(len, share)) for share in shares]
        assert max(sentences) - min(sentences) <= 1
        count = -(-micro_batches // ranks) * ranks
        assert [[*own] for own in dealt_to] == [[*range(rank, count, ranks)] for rank in range(ranks)]
        most = -(-sum(map(len, step)) // count)
        assert all(sum(map(len, part)) <= most for own in dealt_to for part in own.values())
        assert all(len(part) > 0 for share in shares for part in share)
        for share in shares:
            for part in share:
                assert len({int(text.source.lengths[i]) for i in part}) == 1


def test_the_ranks_of_a_step_have_nearly_as_many_tokens() -> None:
    text = random_text(4000)
    for step in plan_epoch(text, 256, "sentences", seed=1, epoch=0):
        shares = [deal(step, rank, 4)[rank] for rank in range(4)]
        tokens = [sum(int(text.target.lengths[part].sum()) for part in share) for share in shares]
        # Each chunk is sorted by length: the alternating order leaves less than one sentence per chunk.
        assert max(tokens) - min(tokens) <= 12 * len(step)


@every_text
@every_unit
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_micro_batches_of_one_process_are_those_of_as_many_ranks(
    text: TokenizedText, unit: Unit, ranks: int
) -> None:
    for step in plan_epoch(text, 32, unit, seed=1, epoch=0):
        together = {number: part for rank in range(ranks) for number, part in deal(step, rank, ranks).items()}
        assert plain([*deal(step, 0, 1, ranks).values()]) == plain([*together.values()])


def plain(plan: Sequence[StepPlan]) -> list[list[list[int]]]:
    return [[part.tolist() for part in step] for step in plan]


def check_cover(text: TokenizedText, parts: Sequence[Index]) -> None:
    """Every sentence once."""
    assert sorted(number for part in parts for number in part.tolist()) == list(range(len(text)))
    assert all(len(part) > 0 for part in parts)


@every_text
@every_unit
@every_size
@micro
def test_an_epoch_has_every_sentence_once(
    text: TokenizedText, unit: Unit, batch_size: int, micro_batches: int
) -> None:
    plan = steps_of(text, batch_size, unit, micro_batches)
    assert all(plan)
    parts = [part for step in plan for part in step]
    check_cover(text, parts)
    for part in parts:
        assert len(set(text.source.lengths[torch.from_numpy(part)].tolist())) == 1
    assert max(map(len, parts), default=0) <= -(-batch_size // micro_batches)


@every_text
@every_size
@micro
def test_a_step_has_exactly_the_batch_size(text: TokenizedText, batch_size: int, micro_batches: int) -> None:
    sizes = Counter(sum(map(len, step)) for step in steps_of(text, batch_size, "sentences", micro_batches))
    whole, rest = divmod(len(text), batch_size)
    assert sizes == Counter({batch_size: whole}) + Counter({rest: 1 if rest else 0})


@every_text
@every_size
@micro
def test_the_target_tokens_of_a_step_are_bounded(
    text: TokenizedText, batch_size: int, micro_batches: int
) -> None:
    plan = steps_of(text, batch_size, "tokens", micro_batches)
    for step in plan:
        numbers = torch.from_numpy(np.concatenate(step))
        tokens = int((text.target.lengths[numbers] - 1).sum())
        assert tokens <= batch_size or len(numbers) == 1


def test_steps_of_tokens_are_well_filled() -> None:
    text = random_text(2000)
    plan = steps_of(text, 200, "tokens")
    assert int((text.target.lengths - 1).sum()) / (200 * len(plan)) > 0.9


def test_a_step_with_much_more_input_than_units_has_several_batches() -> None:
    text = text_of([[5] * 98] * 120, [[7]] * 120)  # 100 source tokens, 2 target tokens
    plan = plan_epoch(text, 100, "tokens", seed=1, epoch=0)
    assert [sum(map(len, step)) for step in plan].count(50) == 2
    assert max(len(batch) for step in plan for batch in step) == 4  # MOST_INPUT times 100 source tokens
    check_cover(text, [batch for step in plan for batch in step])


@every_unit
def test_a_sentence_longer_than_a_step_is_a_step(unit: Unit) -> None:
    text = text_of([[5], [5], [5, 6], [5, 6]], [[7] * 50, [7], [7], [7] * 50])
    plan = steps_of(text, 4 if unit == "tokens" else 1, unit)
    assert [0] in [np.concatenate(step).tolist() for step in plan]
    assert [3] in [np.concatenate(step).tolist() for step in plan]


@every_unit
@micro
def test_a_plan_is_a_function_of_seed_and_epoch(unit: Unit, micro_batches: int) -> None:
    text = TEXTS["usual"]

    def plan(seed: int, epoch: int) -> list[list[list[int]]]:
        return plain(steps_of(text, 32, unit, micro_batches, seed, epoch))

    assert plan(1, 0) == plan(1, 0)
    different = [plan(1, 0), plan(1, 1), plan(2, 0), plan(0, 1)]
    for i, one in enumerate(different):
        for other in different[:i]:
            assert one != other
            assert sorted(map(str, one)) != sorted(map(str, other))


def test_the_order_of_the_steps_is_random() -> None:
    """Neither a length nor the short step is at a fixed position."""
    text = random_text(500)
    first = {int(text.source.lengths[steps_of(text, epoch=epoch)[0][0][0]]) for epoch in range(20)}
    assert len(first) > 4
    short = {
        [sum(map(len, step)) < 32 for step in steps_of(text, epoch=epoch)].index(True) for epoch in range(20)
    }
    assert len(short) > 4


def test_batches_have_similar_target_lengths() -> None:
    text = TEXTS["one source length"]
    (first, second, *_) = sorted(
        (text.target.lengths[torch.from_numpy(step[0])].tolist() for step in steps_of(text, 20)), key=max
    )
    assert max(first) <= min(second)


@every_text
@every_size
def test_evaluation_has_every_sentence_once(text: TokenizedText, batch_size: int) -> None:
    plan = plan_evaluation(text, batch_size)
    check_cover(text, plan)
    assert all(len(part) == batch_size for part in plan[:-1])
    assert all(len(part) <= batch_size for part in plan)
    lengths = [text.source.lengths[torch.from_numpy(part)] for part in plan]
    assert all(one.max() <= other.min() for one, other in pairwise(lengths))
    assert [part.tolist() for part in plan] == [part.tolist() for part in plan_evaluation(text, batch_size)]


def test_evaluation_batches_of_long_examples_are_smaller() -> None:
    long_outputs = text_of([[5]] * 4, [[7] * (n - 1) for n in (10, 20, 128, 128)])
    assert [part.tolist() for part in plan_evaluation(long_outputs, 4)] == [[0, 1], [2, 3]]
    long_inputs = text_of([[5] * (n - 2) for n in (10, 20, 64, 64, 65, 120, 200, 1000)], [[7]] * 8)
    assert [len(part) for part in plan_evaluation(long_inputs, 4)] == [4, 2, 1, 1]
    assert [len(part) for part in plan_evaluation(long_inputs, 8)] == [5, 2, 1]


def test_batch_golden() -> None:
    text = text_of([[5, 6, 7], [8], []], [[9], [10, 11, 12], [13]])
    batch = BatchMaker(text, torch.device("cpu"))(np.array([2, 0, 1]))
    assert batch.index_B.tolist() == [2, 0, 1]
    assert batch.source_BS.tolist() == [
        [SOS, EOS, PAD, PAD, PAD],
        [SOS, 5, 6, 7, EOS],
        [SOS, 8, EOS, PAD, PAD],
    ]
    assert batch.source_lengths == (2, 5, 3)
    assert batch.target_BU.tolist() == [
        [SOS, 13, EOS, PAD, PAD],
        [SOS, 9, EOS, PAD, PAD],
        [SOS, 10, 11, 12, EOS],
    ]
    assert batch.target_tokens == 2 + 2 + 4
    assert batch.source_BS.dtype == batch.target_BU.dtype == torch.int64
    assert batch.inputs_BT.tolist()[1] == [SOS, 9, EOS, PAD]
    assert batch.outputs_BT.tolist()[1] == [9, EOS, PAD, PAD]
    assert batch.turn_lengths is None


def test_the_turns_of_a_batch() -> None:
    text = text_of([[5, 6], [8, EOS, EOS, 7, 9], []], [[], [], []])
    batch = BatchMaker(text, torch.device("cpu"))(np.array([1, 0, 2, 1]))
    assert batch.turn_lengths == ((3, 1, 3), (4,), (2,), (3, 1, 3))
    assert batch.source_lengths == tuple(map(sum, batch.turn_lengths))


@pytest.mark.parametrize(
    "sources",
    [[[5, 6], [7], [8, 9, 6], [], [9]], [[5, EOS, 6], [7], [8, EOS, EOS], [], [9]]],
    ids=["sentences", "turns"],
)
@pytest.mark.parametrize("rows", [[0, 2, 3], [4, 1, 3]])
def test_rows_of_a_text_have_the_batches_of_a_copy(sources: list[list[int]], rows: list[int]) -> None:
    text = replace(text_of(sources, [[4] * i for i in range(5)]), rows=torch.tensor(rows))
    copy = text_of([sources[i] for i in rows], [[4] * i for i in rows])
    assert len(text) == len(text.packed()) == 3
    for one in (text.packed(), text.select(torch.arange(3))):
        for side in ("source", "target"):
            assert torch.equal(getattr(one, side).tokens, getattr(copy, side).tokens)
            assert torch.equal(getattr(one, side).offsets, getattr(copy, side).offsets)
    plans = [plan_epoch(one, 2, "sentences", seed=1, epoch=0) for one in (text, copy)]
    assert repr(plans[0]) == repr(plans[1])
    index = np.array([2, 0, 1])
    one, other = (BatchMaker(every, torch.device("cpu"))(index) for every in (text, copy))
    for name in ("index_B", "source_BS", "target_BU"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    for name in ("source_lengths", "target_tokens", "turn_lengths"):
        assert getattr(one, name) == getattr(other, name)


@pytest.mark.parametrize("name", ["usual", "one sentence", "one source length", "every length once"])
def test_batches_hold_the_text(name: str) -> None:
    text = TEXTS[name]
    plan = plan_evaluation(text, 16)
    batches = list(map(BatchMaker(text, torch.device("cpu")), plan))
    assert len(batches) == len(plan)
    for batch, index in zip(batches, plan, strict=True):
        assert batch.index_B.tolist() == index.tolist()
        assert batch.target_tokens == int((batch.outputs_BT != PAD).sum())
        assert max(batch.source_lengths) == batch.source_BS.shape[1]
        for row, i in enumerate(index.tolist()):
            start, end = text.source.offsets[i : i + 2].tolist()
            source = text.source.tokens[start:end].tolist()
            assert batch.source_lengths[row] == len(source)
            assert batch.source_BS[row].tolist() == source + [PAD] * (batch.source_BS.shape[1] - len(source))
            start, end = text.target.offsets[i : i + 2].tolist()
            target = text.target.tokens[start:end].tolist()
            assert batch.target_BU[row].tolist() == target + [PAD] * (batch.target_BU.shape[1] - len(target))
        assert batch.target_BU.shape[1] == int(text.target.lengths[torch.from_numpy(index)].max())
