"""The states of a model on its training data that are nearest to a given state, by cosine similarity.

The states are stored as float16 with the length 1, in one file that is mapped into memory. The search is exact for the
stored states: products in float16 select candidates, with a margin for their rounding, whose similarities are computed in
float32.
"""

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.analysis.plain import Plain
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.files import read_json_object
from seq2seq_lab.models.seq2seq import Seq2Seq

StateKind = Literal["decoder", "context", "encoder"]
KINDS: tuple[StateKind, ...] = get_args(StateKind)
LIMIT = 200_000  # states
VERSION = 1  # of the files
# The elements of the query and the result are rounded to float16, by at most the factor 2⁻¹¹: two similarities that are
# equal in float32 differ by less than this.
MARGIN = 4 * 2.0**-11


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """A state of the training data.

    Attributes:
        similarity: its cosine with the given state.
        source, target: the sentence pair.
        position: the step, or for `encoder` the position in the source, from 0.
        word: the token that was read: the one before the step, or for `encoder` the one at the position.
        next: the token after it: the one to predict, or for `encoder` the next one of the source; `<eos>` has none.
        same_next: whether this is that of the given state.
    """

    similarity: float
    source: str
    target: str
    position: int
    word: str
    next: str
    same_next: bool


@dataclass(frozen=True, kw_only=True)
class Neighbors(Plain):
    """The states nearest to a state of an output.

    Attributes:
        state: `decoder`: the features that the readout reads; `context`: the weighted sum of the encoder outputs;
            `encoder`: an encoder output.
        step: the step, or for `encoder` the position in the source.
        word, next: see `Neighbor`.
        same_next: the share of the neighbors whose next token is the same.
        states: the number of states that are compared.
        all_states: the number of states of the training data.
        limited: that not all states are compared, as a sentence; empty if all are.
        neighbors: the nearest first.
    """

    state: StateKind
    step: int
    word: str
    next: str
    same_next: float
    states: int
    all_states: int
    limited: str
    neighbors: list[Neighbor]


@dataclass(frozen=True)
class Store:
    """The states of training sentences.

    Attributes:
        states_ND: unit vectors in float16.
        rows_N4: for each state the index of its sentence, its position, its token and the next one; −1 for none.
        sentences: the pairs of texts.
        all_states: the number of states of all training sentences.
    """

    states_ND: Tensor
    rows_N4: npt.NDArray[np.int32]
    sentences: list[tuple[str, str]]
    all_states: int

    def nearest(self, state_D: Tensor, count: int) -> list[tuple[int, float]]:
        """Return the indices and the similarities of the nearest states, the nearest first; of equal ones in their order."""
        query_D = functional.normalize(state_D.float(), dim=0)
        rough_N = torch.mv(self.states_ND, query_D.half())
        count = min(count, len(rough_N))
        least = rough_N.topk(count).values[-1] - MARGIN
        candidates_C = (rough_N >= least).nonzero()[:, 0]
        exact_C = self.states_ND[candidates_C].float() @ query_D
        order = exact_C.argsort(descending=True, stable=True)[:count]
        return [(int(candidates_C[one]), float(exact_C[one])) for one in order.tolist()]


def states(model: Seq2Seq, batch: Any, kind: StateKind) -> Tensor:
    """Return the states [B, P, D] of a batch, P steps or source positions.

    Raises:
        UserError: the model has no attention, or its encoder outputs do not belong to tokens.
    """
    state, source = model.start(batch)
    outputs_BSM = source.encoder_outputs_BSM
    if kind != "decoder" and outputs_BSM.shape[1] != batch.source_BS.shape[1]:
        raise UserError(
            f"state={kind}: the encoder outputs of this model do not belong to tokens. Use state=decoder."
        )
    if kind == "encoder":
        return outputs_BSM
    embedded_BTE = model.embed_target(batch.inputs_BT)
    features_BTF, _, weights_BTS = model.decoder.unroll(embedded_BTE, state, source, kind == "context")
    if kind == "decoder":
        return features_BTF
    if weights_BTS is None:
        raise UserError("state=context: the model has no attention, so it has no context. Use state=decoder.")
    return torch.bmm(weights_BTS.to(outputs_BSM.dtype), outputs_BSM)


def token_pairs(kind: StateKind, source: Sequence[int], target: Sequence[int]) -> list[tuple[int, int]]:
    """Return the token and the next token of each state of a pair; −1 after the last one.

    Args:
        source, target: ids with `<sos>` and `<eos>`.
    """
    if kind == "encoder":
        return [*zip(source, (*source[1:], -1), strict=True)]
    return [*itertools.pairwise(target)]


def selected(lengths: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """Return the indices of evenly spaced sentences that have at most `limit` states together.

    Raises:
        UserError: the first sentence has more.
    """
    count = len(lengths)
    if lengths.sum() > limit:
        count = max(1, int(limit / lengths.mean()))
    chosen = np.unique(np.linspace(0, len(lengths) - 1, count).astype(np.int64))
    require(lengths[0] <= limit, "limit", limit, f"{lengths[0]} or more, the states of the first sentence")
    return chosen[np.cumsum(lengths[chosen]) <= limit]


@lru_cache(maxsize=6)
def open_store(folder: Path) -> Store:
    """Return a store that `write_store` wrote."""
    described = read_json_object(folder / "store.json")
    states_ND = np.load(folder / "states.npy", mmap_mode="c")  # private: torch wants to be able to write
    sentences = [
        (source, target) for source, target in json.loads((folder / "sentences.json").read_text("utf-8"))
    ]
    rows_N4 = np.load(folder / "rows.npy")
    return Store(torch.from_numpy(states_ND), rows_N4, sentences, int(described["all_states"]))


def write_store(
    folder: Path,
    sentences: Sequence[tuple[str, str]],
    *,
    rows: Sequence[Sequence[tuple[int, int]]],
    parts: Iterator[tuple[Sequence[int], Tensor]],
    all_states: int,
    advance: Callable[[int, int], None],
) -> None:
    """Write a store to a new folder, which appears when it is complete.

    Args:
        rows: the token and the next token of each state of each sentence.
        parts: yields the indices of some sentences, and their states [B, P, D].

    Raises:
        UserError: the folder cannot be written.
    """
    first_of = np.concatenate([[0], np.cumsum([len(one) for one in rows])])
    total, done = int(first_of[-1]), 0
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as name:
            temporary, states_ND = Path(name) / "store", None
            temporary.mkdir()
            for indices, states_BPD in parts:
                unit_BPD = functional.normalize(states_BPD.float(), dim=-1).half().cpu().numpy()
                if states_ND is None:
                    shape = (total, unit_BPD.shape[-1])
                    states_ND = np.lib.format.open_memmap(temporary / "states.npy", "w+", np.float16, shape)
                for index, unit_PD in zip(indices, unit_BPD, strict=True):
                    first, last = first_of[index], first_of[index + 1]
                    states_ND[first:last] = unit_PD[: last - first]
                    done += int(last - first)
                advance(done, total)
            table = [
                (index, position, *pair)
                for index, pairs in enumerate(rows)
                for position, pair in enumerate(pairs)
            ]
            np.save(temporary / "rows.npy", np.array(table, np.int32))
            (temporary / "sentences.json").write_text(json.dumps(sentences, ensure_ascii=False), "utf-8")
            described = {"version": VERSION, "states": total, "all_states": all_states}
            (temporary / "store.json").write_text(json.dumps(described), "utf-8")
            temporary.replace(folder)
    except OSError as error:
        raise UserError(
            f"The states cannot be written to {folder} ({error}). Make the folder writable, or set cache_dir for demo."
        ) from error


def neighbors(
    store: Store,
    kind: StateKind,
    step: int,
    state_D: Tensor,
    *,
    pair: tuple[str, str],
    count: int,
    names: Callable[[str, int], str],
) -> Neighbors:
    """Return the states of a store that are nearest to a state.

    Args:
        pair: the names of the token and the next token of the state.
        names: returns the printable form of a token of a source or its output, empty for −1.
    """
    found = []
    for index, similarity in store.nearest(state_D, count):
        sentence, position, word, following = store.rows_N4[index].tolist()
        source, target = store.sentences[sentence]
        next_name = names(source, following)
        found.append(
            Neighbor(
                similarity=similarity,
                source=source,
                target=target,
                position=position,
                word=names(source, word),
                next=next_name,
                same_next=next_name == pair[1],
            )
        )
    compared, total = len(store.rows_N4), store.all_states
    limited = f"{compared:,} of the {total:,} states of the training data are compared."
    return Neighbors(
        state=kind,
        step=step,
        word=pair[0],
        next=pair[1],
        same_next=float(np.mean([one.same_next for one in found])),
        states=compared,
        all_states=total,
        limited=limited if compared < total else "",
        neighbors=found,
    )
