"""Realistic mistakes: changes of the right solutions, and the first property in which each fails."""

import inspect

import solutions

MASKED = "scores_BTS.masked_fill(~mask_B1S, torch.finfo(scores_BTS.dtype).min)"
PROMOTED = "scores_BTS = scores_BTS.to(torch.promote_types(scores_BTS.dtype, torch.float32))"
CONTEXT = "context_BM = (weights_BS[:, None] @ encoder_outputs_BSM)[:, 0]"
PENALTY = "min(1, math.exp(1 - r / c))"
FINISHED = "candidates.append((tokens, log_prob))\n            continue"
BEST = "sorted(candidates, key=lambda one: -one[1])[:size]"
MATCHED = "sum((own & right).values())"
PER_SENTENCE = """def bleu(hypotheses, references):
    return sum(corpus([h], [r]) for h, r in zip(hypotheses, references, strict=True)) / len(references)


def corpus("""
JOINED = """hypotheses, references = [sum(hypotheses, [])], [sum(references, [])]
    """
EARLY = """brevity = min(1, math.exp(1 - r / c))
    """
EXTENSIONS = "enumerate(log_probs_KV[k].tolist())"
IN_FRONT = """done = [one for one in candidates if one in beam]
    return done + sorted([one for one in candidates if one not in done], key=lambda one: -one[1])[: size - len(done)]"""

MISTAKES = [
    ("masked_softmax", "axis", {".softmax(-1)": ".softmax(1)"}),
    ("masked_softmax", "axis", {".softmax(-1)": ".flatten(1).softmax(-1).view_as(scores_BTS)"}),
    ("masked_softmax", "padding", {MASKED: "scores_BTS", " * mask_B1S": ""}),
    ("masked_softmax", "padding", {MASKED: "scores_BTS * mask_B1S", " * mask_B1S": ""}),
    ("masked_softmax", "normalized", {MASKED: "scores_BTS"}),  # masked after the softmax
    ("masked_softmax", "padding", {"~mask_B1S": "mask_B1S", " * mask_B1S": ""}),
    ("masked_softmax", "shift", {"torch.finfo(scores_BTS.dtype).min": "-1e4"}),
    (
        "masked_softmax",
        "shift",
        {".softmax(-1) * mask_B1S": ".exp() / scores_BTS.exp().sum(-1, keepdim=True)"},
    ),
    ("masked_softmax", "empty", {"torch.finfo(scores_BTS.dtype).min": "-math.inf"}),
    ("masked_softmax", "empty", {" * mask_B1S": ""}),
    ("masked_softmax", "half_precision", {PROMOTED: "", "torch.finfo(scores_BTS.dtype).min": "-1e9"}),
    (
        "masked_softmax",
        "gradient",
        {
            MASKED: "(scores_BTS - scores_BTS.amax(-1, keepdim=True)).exp() * mask_B1S",
            "scores_BTS.softmax(-1) * mask_B1S": "(scores_BTS / scores_BTS.sum(-1, keepdim=True)).nan_to_num(0)",
        },
    ),
    ("masked_softmax", "gradient", {".softmax(-1)": ".detach().softmax(-1)"}),
    ("masked_softmax", "gradient", {" * mask_B1S": ".mul_(mask_B1S)"}),
    ("masked_softmax", "unchanged", {"masked_fill(": "masked_fill_("}),
    ("additive_score", "tanh", {"torch.tanh(": "("}),
    ("additive_score", "tanh", {"torch.tanh(": "torch.tanh((", " @ v_A": " @ v_A)"}),
    ("additive_score", "query_term", {"W_AQ.T": "W_AQ"}),
    ("additive_score", "position_term", {"U_AM.T": "U_AM"}),
    ("additive_score", "bias", {" + b_A": ""}),
    ("additive_score", "bias", {"U_AM.T)": "U_AM.T + b_A)"}),
    (
        "additive_score",
        "inside",
        {
            "torch.tanh(query_BT1A + keys_B1SA + b_A)": "(torch.tanh(query_BT1A) + torch.tanh(keys_B1SA + b_A))"
        },
    ),
    ("additive_score", "shape", {"[:, :, None]": "[:, None]", "[:, None]": "[:, :, None]"}),
    ("additive_score", "query_term", {" @ v_A": ".mean(-1)"}),
    ("decoder_step", "three_values", {", state_BH, weights_BS\n": ", weights_BS\n"}),
    (
        "decoder_step",
        "recurrent_state",
        {
            "return torch": "state_BH = torch",
            ", state_BH, weights_BS\n": "\n    return state_BH, state_BH, weights_BS\n",
        },
    ),
    ("decoder_step", "recurrent_state", {"rnn(embedded_BE, state_BH)": "rnn(embedded_BE)"}),
    ("decoder_step", "padding", {".masked_fill(~mask_BS, -math.inf)": ""}),
    (
        "decoder_step",
        "query",
        {
            "state_BH = rnn": "new_BH = rnn",
            "[context_BM, state_BH]": "[context_BM, new_BH]",
            ", state_BH, weights_BS\n": ", new_BH, weights_BS\n",
        },
    ),
    ("decoder_step", "query", {".softmax(-1)": ".softmax(0)"}),
    ("decoder_step", "query", {".masked_fill(~mask_BS, -math.inf).softmax(-1)": ".softmax(-1) * mask_BS"}),
    ("decoder_step", "order", {"[context_BM, state_BH]": "[state_BH, context_BM]"}),
    ("decoder_step", "context", {CONTEXT: "context_BM = encoder_outputs_BSM.mean(1)"}),
    ("decoder_step", "context", {CONTEXT: "context_BM = (scores_BS[:, None] @ encoder_outputs_BSM)[:, 0]"}),
    ("decoder_step", "features", {"torch.tanh": ""}),
    ("bleu", "identical", {"return 100 * ": "return "}),
    ("bleu", "geometric", {"math.log(m / t)": "m / t", "math.exp(mean)": "mean"}),
    ("bleu", "geometric", {"range(1, 5)": "range(1, 4)", "[0] * 4": "[0] * 3", "/ 4": "/ 3"}),
    ("bleu", "clipping", {MATCHED: "sum(count for ngram, count in own.items() if ngram in right)"}),
    ("bleu", "clipping", {"(own & right).values()": "1 for ngram in own if ngram in right"}),
    ("bleu", "long_output", {"sum(own.values())": "sum(right.values())"}),  # recall
    ("bleu", "long_output", {PENALTY: "math.exp(1 - max(r / c, c / r))"}),
    ("bleu", "brevity", {PENALTY: "1"}),
    ("bleu", "long_output", {PENALTY: "min(1, math.exp(1 - c / r))"}),
    ("bleu", "brevity", {PENALTY: "min(1, c / r)"}),
    ("bleu", "brevity", {PENALTY: "min(1, math.exp(1 - r // c))"}),
    (
        "bleu",
        "brevity_of_corpus",
        {"len(words) for words in hypotheses": "min(len(h), len(g)) for h, g in zip(hypotheses, references)"},
    ),
    ("bleu", "corpus", {"def bleu(": PER_SENTENCE}),
    ("bleu", "boundaries", {"matched, total = [0]": JOINED + "matched, total = [0]"}),
    ("bleu", "no_match", {"if min(matched) == 0": "if not matched"}),
    ("bleu", "empty", {"if min": EARLY + "if min", PENALTY: "brevity"}),
    (
        "bleu",
        "case",
        {
            "tuple(words[i": "tuple(w.lower() for w in words[i",
            "tuple(gold[i": "tuple(w.lower() for w in gold[i",
        },
    ),
    ("beam_step", "best_first", {"-one[1]": "one[1]"}),
    ("beam_step", "best_first", {BEST: "candidates[:size]"}),
    ("beam_step", "added", {"log_prob + added": "added"}),
    ("beam_step", "added", {"log_prob + added": "log_prob + math.exp(added)"}),
    ("beam_step", "added", {"log_prob + added": "(log_prob + added) / (len(tokens) + 1)"}),
    ("beam_step", "parents", {"enumerate(beam)": "enumerate(sorted(beam, key=lambda one: one[1]))"}),
    (
        "beam_step",
        "competing",
        {EXTENSIONS: f"sorted({EXTENSIONS}, key=lambda one: -one[1])[: size // len(beam)]"},
    ),
    ("beam_step", "kept", {FINISHED: "continue"}),  # drops finished hypotheses
    ("beam_step", "kept", {FINISHED: "pass"}),  # extends them
    ("beam_step", "kept", {FINISHED: FINISHED.replace("log_prob", "log_prob / len(tokens)")}),
    ("beam_step", "dropped", {f"return {BEST}": IN_FRONT}),
    (
        "beam_step",
        "ties",
        {"key=lambda one: -one[1])": "key=lambda one: (-one[1], [-token for token in one[0]]))"},
    ),
    (
        "beam_step",
        "unchanged",
        {"candidates = []": "candidates = beam\n    beam = [*beam]\n    candidates.clear()"},
    ),
]


def code_of(exercise: str, changes: dict[str, str]) -> str:
    """Return the code of a solution after changes; each old text must occur in it."""
    code = inspect.getsource(getattr(solutions, exercise))
    for number, old in enumerate(changes):
        assert old in code, old
        code = code.replace(old, f"⟦{number}⟧")
    for number, new in enumerate(changes.values()):
        code = code.replace(f"⟦{number}⟧", new)
    return "import math\nfrom collections import Counter\n\nimport torch\n\n\n" + code
