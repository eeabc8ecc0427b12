"""The right solution of each exercise."""

import math
from collections import Counter

import torch


def masked_softmax(scores_BTS, mask_B1S):
    scores_BTS = scores_BTS.to(torch.promote_types(scores_BTS.dtype, torch.float32))
    scores_BTS = scores_BTS.masked_fill(~mask_B1S, torch.finfo(scores_BTS.dtype).min)
    return scores_BTS.softmax(-1) * mask_B1S


def additive_score(query_BTQ, encoder_outputs_BSM, W_AQ, U_AM, b_A, v_A):
    query_BT1A, keys_B1SA = (query_BTQ @ W_AQ.T)[:, :, None], (encoder_outputs_BSM @ U_AM.T)[:, None]
    return torch.tanh(query_BT1A + keys_B1SA + b_A) @ v_A


def decoder_step(embedded_BE, state_BH, encoder_outputs_BSM, mask_BS, rnn, score, W_FX):
    state_BH = rnn(embedded_BE, state_BH)
    scores_BS = score(state_BH, encoder_outputs_BSM)
    weights_BS = scores_BS.masked_fill(~mask_BS, -math.inf).softmax(-1)
    context_BM = (weights_BS[:, None] @ encoder_outputs_BSM)[:, 0]
    return torch.tanh(torch.cat([context_BM, state_BH], -1) @ W_FX.T), state_BH, weights_BS


def bleu(hypotheses, references):
    matched, total = [0] * 4, [0] * 4
    c = sum(len(words) for words in hypotheses)
    r = sum(len(words) for words in references)
    for words, gold in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            own = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
            right = Counter(tuple(gold[i : i + n]) for i in range(len(gold) - n + 1))
            matched[n - 1] += sum((own & right).values())
            total[n - 1] += sum(own.values())
    if min(matched) == 0:
        return 0.0
    mean = sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4
    return 100 * min(1, math.exp(1 - r / c)) * math.exp(mean)


def beam_step(beam, log_probs_KV, size, eos):
    candidates = []
    for k, (tokens, log_prob) in enumerate(beam):
        if tokens and tokens[-1] == eos:
            candidates.append((tokens, log_prob))
            continue
        for token, added in enumerate(log_probs_KV[k].tolist()):
            candidates.append(((*tokens, token), log_prob + added))
    return sorted(candidates, key=lambda one: -one[1])[:size]
