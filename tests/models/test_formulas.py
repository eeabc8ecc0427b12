"""The model of each paper against its formulas, computed sentence by sentence and step by step.

The formulas read the weights by name, without batches, padding or masks. x is an embedded source token, e an embedded target
token, h an encoder output, s a decoder state and c a context vector.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
import torch
from small_models import batch_of, composed, random_sentences, recurrent_values_of, small_bundle, small_model
from torch import Tensor

from seq2seq_lab.data.tokenizers import EOS, SOS
from seq2seq_lab.models.seq2seq import Seq2Seq

SOURCES = random_sentences([3, 1, 4], seed=1)
TARGETS = random_sentences([2, 4, 1], seed=2)


class State(NamedTuple):
    """The state of one layer; only an LSTM has a memory cell."""

    hidden: Tensor
    cell: Tensor | None


class Paper:
    """A model's weights by name, its recurrent cell, and the formulas that all papers share."""

    def __init__(self, model: Seq2Seq, encoder: str) -> None:
        # Shared weights have an entry for each of their names.
        self.weights = dict(model.named_parameters(remove_duplicate=False))
        self.cell = {"rnn": rnn, "gru": gru, "lstm": lstm}[encoder.removeprefix("bi")]
        self.both_ways = encoder.startswith("bi")

    def product(self, name: str, x: Tensor) -> Tensor:
        """W x."""
        return self.weights[f"{name}.weight"] @ x

    def affine(self, name: str, x: Tensor) -> Tensor:
        """W x + b."""
        return self.product(name, x) + self.weights[f"{name}.bias"]

    def source(self, token: int) -> Tensor:
        return self.weights["source_embedding.table.weight"][token]

    def target(self, token: int) -> Tensor:
        return self.weights["target_embedding.table.weight"][token]

    def depth(self, network: str) -> int:
        return sum(f"{network}.layers.{number}.bias_ih_l0" in self.weights for number in range(9))

    def step(self, layer: str, x: Tensor, before: State, way: str = "") -> State:
        """One step of one layer: the products of W x + b and U s + b', then the cell."""
        names = [f"{layer}.{name}_l0{way}" for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")]
        w, b, u, b_recurrent = (self.weights[name] for name in names)
        return self.cell(w @ x + b, u @ before.hidden + b_recurrent, before)

    def steps(self, network: str, x: Tensor, before: list[State]) -> list[State]:
        """One step of stacked layers: each reads the state of the one below."""
        after = []
        for number, state in enumerate(before):
            after.append(self.step(f"{network}.layers.{number}", x, state))
            x = after[-1].hidden
        return after

    def encode(self, source: list[int]) -> tuple[list[Tensor], list[State]]:
        """The encoder outputs, and the final state of each layer, with the directions concatenated."""
        xs, finals = [self.source(token) for token in source], []
        for number in range(self.depth("encoder.layers")):
            layer = f"encoder.layers.layers.{number}"
            states = self.one_way(layer, xs)
            final = states[-1]
            if self.both_ways:
                backward = self.one_way(layer, xs[::-1], "_reverse")[::-1]
                final = side_by_side(final, backward[0])
                states = [side_by_side(*pair) for pair in zip(states, backward, strict=True)]
            finals.append(final)
            xs = [state.hidden for state in states]
        return xs, finals

    def one_way(self, layer: str, xs: list[Tensor], way: str = "") -> list[State]:
        zero = torch.zeros_like(self.weights[f"{layer}.weight_hh_l0{way}"][0])
        states = [State(zero, zero if self.cell is lstm else None)]
        for x in xs:
            states.append(self.step(layer, x, states[-1], way))
        return states[1:]

    def tanh_bridge(self, finals: list[State]) -> list[State]:
        """s_0 = tanh(W [h_fwd_last; h_bwd_last] + b); an LSTM's memory cell is W' of the encoder's, plus b'."""
        return [
            State(
                torch.tanh(self.affine("decoder.bridge.hidden.0", final.hidden)),
                None if final.cell is None else self.affine("decoder.bridge.cell", final.cell),
            )
            for final in finals
        ]

    def additive(self, s: Tensor, h: Tensor) -> Tensor:
        """v^T tanh(W s + U h_j + b)."""
        inner = self.product("decoder.attention.query", s) + self.affine("decoder.attention.key", h)
        return self.weights["decoder.attention.energy.weight"][0] @ torch.tanh(inner)

    def output(self, features: Tensor) -> Tensor:
        return log_softmax(self.affine("readout.linear", features))


def rnn(of_x: Tensor, of_s: Tensor, before: State) -> State:
    return State(torch.tanh(of_x + of_s), None)


def gru(of_x: Tensor, of_s: Tensor, before: State) -> State:
    reset_x, update_x, new_x = of_x.chunk(3)
    reset_s, update_s, new_s = of_s.chunk(3)
    reset, update = sigmoid(reset_x + reset_s), sigmoid(update_x + update_s)
    new = torch.tanh(new_x + reset * new_s)
    return State((1 - update) * new + update * before.hidden, None)


def lstm(of_x: Tensor, of_s: Tensor, before: State) -> State:
    assert before.cell is not None
    write, keep, new, show = (of_x + of_s).chunk(4)
    cell = sigmoid(keep) * before.cell + sigmoid(write) * torch.tanh(new)
    return State(sigmoid(show) * torch.tanh(cell), cell)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def log_softmax(x: Tensor) -> Tensor:
    return x - torch.log(torch.exp(x).sum())


def side_by_side(forward: State, backward: State) -> State:
    cells = (forward.cell, backward.cell)
    cell = None if cells[0] is None or cells[1] is None else torch.cat([cells[0], cells[1]])
    return State(torch.cat([forward.hidden, backward.hidden]), cell)


def context(scores: Iterable[Tensor], outputs: list[Tensor]) -> Tensor:
    """c = sum over j of a_j h_j, the a_j being the softmax of the scores."""
    powers = [torch.exp(score) for score in scores]
    return sum((power / sum(powers) * h for power, h in zip(powers, outputs, strict=True)), torch.tensor(0.0))


def sutskever(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 1, and section 2, where the decoder's layers are the encoder's: y_t = softmax(W s_t)."""
    _, states = paper.encode(source)
    rows = []
    for token in inputs:
        states = paper.steps("decoder.layers", paper.target(token), states)
        rows.append(paper.output(states[-1].hidden))
    return rows


def tutorial_plain(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """The PyTorch tutorial's decoder without attention: s_t = RNN(relu(e), s_{t-1}), y_t = softmax(W s_t + b)."""
    _, states = paper.encode(source)
    rows = []
    for token in inputs:
        states = paper.steps("decoder.layers", torch.relu(paper.target(token)), states)
        rows.append(paper.output(states[-1].hidden))
    return rows


def sutskever_reversed(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 1, the paper's option: the source is read from its end."""
    return sutskever(paper, source[::-1], inputs)


def cho(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 3: s_t = RNN([e; c], s_{t-1}), and the output layer sees embedding, state and context."""
    return fixed_context(paper, source, inputs, lambda e, s, c: paper.output(torch.cat([e, s, c])))


def cho_deep(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 3's other output: g = V (W1 e + W2 s + W3 c)."""

    def output(e: Tensor, s: Tensor, c: Tensor) -> Tensor:
        w1, w2, w3 = torch.split(paper.weights["readout.deep.weight"], [len(e), len(s), len(c)], dim=1)
        return paper.output(w1 @ e + w2 @ s + w3 @ c)

    return fixed_context(paper, source, inputs, output)


def fixed_context(
    paper: Paper, source: list[int], inputs: list[int], output: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> list[Tensor]:
    _, states = paper.encode(source)
    c = states[-1].hidden
    rows = []
    for token in inputs:
        e = paper.target(token)
        states = paper.steps("decoder.layers", torch.cat([e, c]), states)
        rows.append(output(e, states[-1].hidden, c))
    return rows


def bahdanau(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 4: the query is s_{t-1}, s_t = RNN([e; c_t], s_{t-1}), the output layer sees [s_t; c_t; e]."""
    outputs, finals = paper.encode(source)
    states = paper.tanh_bridge(finals)
    rows = []
    for token in inputs:
        e, query = paper.target(token), states[-1].hidden
        c = context([paper.additive(query, h) for h in outputs], outputs)
        states = paper.steps("decoder.layers", torch.cat([e, c]), states)
        rows.append(paper.output(torch.cat([states[-1].hidden, c, e])))
    return rows


def tutorial(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 4b: a score a position from [e; s_{t-1}], the input relu(W [e; c_t] + b), the output from s_t only."""
    outputs, states = paper.encode(source)
    rows = []
    for token in inputs:
        e, query = paper.target(token), states[-1].hidden
        scores = [w @ torch.cat([e, query]) for w in paper.weights["decoder.attention.position.weight"]]
        c = context(scores[: len(outputs)], outputs)
        x = torch.clamp(paper.affine("decoder.rectified", torch.cat([e, c])), min=0)
        states = paper.steps("decoder.layers", x, states)
        rows.append(paper.output(states[-1].hidden))
    return rows


def luong(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 5: the query is s_t, scores h_j^T W s_t, s~_t = tanh(W_c [c_t; s_t]) goes to the output layer."""
    outputs, finals = paper.encode(source)
    states = paper.tanh_bridge(finals)
    rows = []
    for token in inputs:
        states = paper.steps("decoder.layers", paper.target(token), states)
        rows.append(paper.output(attentional(paper, outputs, states[-1].hidden)))
    return rows


def luong_feeding(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """Section 5 with input feeding: s~_{t-1} is joined to the input, and is zero at first."""
    outputs, finals = paper.encode(source)
    states = paper.tanh_bridge(finals)
    fed = torch.zeros_like(paper.weights["decoder.combine.weight"][:, 0])
    rows = []
    for token in inputs:
        states = paper.steps("decoder.layers", torch.cat([paper.target(token), fed]), states)
        fed = attentional(paper, outputs, states[-1].hidden)
        rows.append(paper.output(fed))
    return rows


def attentional(paper: Paper, outputs: list[Tensor], s: Tensor) -> Tensor:
    # The layer holds W transposed, times the root of the size of s.
    c = context([paper.product("decoder.attention.key", h) @ s / len(s) ** 0.5 for h in outputs], outputs)
    return torch.tanh(paper.product("decoder.combine", torch.cat([c, s])))


def conditional(paper: Paper, source: list[int], inputs: list[int]) -> list[Tensor]:
    """The conditional recurrent decoder: s'_t = RNN1(e, s_{t-1}), c_t from the query s'_t, s_t = RNN2(c_t, s'_t).

    It starts from tanh(W mean(h) + b), an LSTM's memory cell from 0, and shows tanh(W [s_t; c_t; e] + b).
    """
    outputs, _ = paper.encode(source)
    mean = torch.stack(outputs).sum(0) / len(outputs)
    s = torch.tanh(paper.affine("decoder.bridge.hidden.0", mean))
    states = [State(s, torch.zeros_like(s) if paper.cell is lstm else None)]
    rows = []
    for token in inputs:
        e = paper.target(token)
        between = paper.steps("decoder.first", e, states)
        query = between[-1].hidden
        c = context([paper.additive(query, h) for h in outputs], outputs)
        states = paper.steps("decoder.second", c, between)
        shown = torch.tanh(paper.affine("decoder.combine", torch.cat([states[-1].hidden, c, e])))
        rows.append(paper.output(shown))
    return rows


Formula = Callable[[Paper, list[int], list[int]], list[Tensor]]
EQUAL: dict[str, Any] = {"embedding_size": 3, "encoder_hidden_size": 4, "hidden_size": 4}
SIZES: dict[str, Any] = {"embedding_size": 3, "encoder_hidden_size": 2, "hidden_size": 5}
ATTENTIONAL = SIZES | {"attentional_size": 4}

# The bundle of conf/model, the formula, the encoders it is tried with, the readout and the sizes.
PAPERS: list[tuple[str, Formula, str, str, dict[str, Any]]] = [
    ("sutskever", sutskever, "lstm gru rnn", "linear", EQUAL | {"num_layers": 2}),
    ("sutskever", sutskever_reversed, "lstm gru", "linear", EQUAL | {"reverse_source": True}),
    ("shared", sutskever, "lstm gru rnn", "linear", EQUAL | {"num_layers": 2}),
    ("cho", cho, "gru lstm rnn", "linear", EQUAL),
    ("cho", cho_deep, "gru lstm rnn", "deep", EQUAL | {"num_layers": 2}),
    ("bahdanau", bahdanau, "bigru bilstm birnn gru", "linear", SIZES),
    ("bahdanau", bahdanau, "bigru bilstm", "linear", SIZES | {"num_layers": 2}),
    ("tutorial_plain", tutorial_plain, "gru lstm", "linear", EQUAL),
    ("tutorial", tutorial, "gru lstm rnn", "linear", EQUAL),
    ("luong", luong, "bigru bilstm birnn lstm", "linear", ATTENTIONAL),
    ("luong_feeding", luong_feeding, "bigru bilstm birnn", "linear", ATTENTIONAL),
    ("luong_feeding", luong_feeding, "lstm", "linear", ATTENTIONAL | {"num_layers": 2}),
    ("lium", conditional, "bigru bilstm birnn", "linear", SIZES),
]
CASES = [
    pytest.param(*paper[:2], encoder, *paper[3:], id=f"{paper[1].__name__}-{encoder}-{number}")
    for number, paper in enumerate(PAPERS)
    for encoder in paper[2].split()
]


@pytest.mark.parametrize(("bundle", "formula", "encoder", "readout", "sizes"), CASES)
def test_log_probabilities_and_gradients_are_those_of_the_formulas(
    bundle: str, formula: Formula, encoder: str, readout: str, sizes: dict[str, Any]
) -> None:
    model = small_model(small_bundle(bundle, encoder, readout, **sizes), vocabulary=9).double().train()
    parameters = [*model.parameters()]
    for parameter in parameters:
        torch.nn.init.uniform_(parameter, -1, 1)  # far from 0, so that nothing is nearly linear
    sources, targets = (
        [[token % 5 + 4 for token in tokens] for tokens in side] for side in (SOURCES, TARGETS)
    )
    batch = batch_of(sources, targets)
    logits_BTV, _ = model(batch, batch.inputs_BT)
    log_probs_BTV = logits_BTV.log_softmax(-1)
    paper = Paper(model, encoder)
    found, expected = [], []
    for log_probs_TV, source, target in zip(log_probs_BTV, sources, targets, strict=True):
        rows = formula(paper, [SOS, *source, EOS], [SOS, *target])
        expected += rows
        found += [*log_probs_TV[: len(rows)]]
    assert len(found) == sum(map(len, targets)) + len(targets)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    direction = torch.linspace(-1, 2, found[0].numel() * len(found), dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(torch.cat(found) @ direction, parameters),
        torch.autograd.grad(torch.cat(expected) @ direction, parameters),
        rtol=1e-8,
        atol=1e-11,
    )


def test_every_recurrent_decoder_has_a_formula() -> None:
    bundles = {composed(f"model={paper[0]}").decoder._target_ for paper in PAPERS}
    assert bundles == {
        composed(f"decoder={value}").decoder._target_ for value in recurrent_values_of("decoder")
    }
