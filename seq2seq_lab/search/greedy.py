"""Greedy search: the most probable token at every step."""

import torch

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.base import Hypothesis


class GreedySearch:
    """Takes the arg-max until `<eos>`, or until the sentence has `max_length_factor` · S + `max_length_extra` tokens.

    S is the source length with its `<sos>` and `<eos>`. `<pad>` and `<sos>` are never chosen.

    Raises:
        ValueError: a limit that could leave a sentence no token.
    """

    def __init__(self, max_length_factor: float, max_length_extra: int) -> None:
        if max_length_factor < 0:
            raise ValueError(f"search.max_length_factor={max_length_factor} must be at least 0.")
        if max_length_extra < 1:
            raise ValueError(f"search.max_length_extra={max_length_extra} must be at least 1.")
        self.max_length_factor = max_length_factor
        self.max_length_extra = max_length_extra

    @torch.no_grad()
    def __call__(self, model: Seq2Seq, batch: Batch, with_weights: bool) -> list[Hypothesis]:
        state, source = model.start(batch.source_BS, batch.source_lengths)
        device = batch.source_BS.device
        limit_B = torch.tensor(
            [int(self.max_length_factor * length) + self.max_length_extra for length in batch.source_lengths],
            device=device,
        )
        token_B = torch.full_like(batch.source_BS[:, 0], SOS)
        ended_B = torch.zeros_like(token_B, dtype=torch.bool)
        log_prob_B = torch.zeros(len(token_B), device=device)
        tokens, rows = [], []
        # Reading `ended_B` waits for the device: on a GPU a few needless steps cost less than a wait a step.
        check_every = 1 if device.type == "cpu" else 8
        for t in range(int(limit_B.max())):
            log_probs_BV, state, weights_BS = model.step(token_B, state, source)
            for never in (PAD, SOS):
                log_probs_BV[:, never] = float("-inf")
            best_B, token_B = log_probs_BV.max(-1)
            token_B = torch.where(ended_B, PAD, token_B)
            log_prob_B += torch.where(ended_B, 0.0, best_B)
            tokens.append(token_B)
            if with_weights and weights_BS is not None:
                rows.append(weights_BS)
            ended_B = ended_B | (token_B == EOS) | (limit_B <= t + 1)
            if (t + 1) % check_every == 0 and bool(ended_B.all()):
                break
        tokens_BT = torch.stack(tokens, dim=1).tolist()
        weights_BTS = torch.stack(rows, dim=1).float().cpu().numpy() if rows else None
        hypotheses = []
        for i, (row, log_prob) in enumerate(zip(tokens_BT, log_prob_B.tolist(), strict=True)):
            length = row.index(PAD) if PAD in row else len(row)
            has_eos = length > 0 and row[length - 1] == EOS
            hypotheses.append(
                Hypothesis(
                    tokens=row[: length - 1] if has_eos else row[:length],
                    log_prob=log_prob,
                    weights_TS=None
                    if weights_BTS is None
                    else weights_BTS[i, :length, : batch.source_lengths[i]],
                )
            )
        return hypotheses
