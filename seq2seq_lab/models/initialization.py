"""Initialization of a model's weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Positive
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import AdditiveAttention, BaseAttention, StatefulAdditiveAttention
from seq2seq_lab.models.encoders.base import Encoder

Role = Literal["matrix", "embedding", "recurrent", "attention", "energy", "bias"]


class Initialization(ABC):
    """Draw a model's weights in place, from torch's global generator.

    Draws the trainable matrices, including embedding tables, and the biases; a weight that several modules share is drawn
    once. Frozen and pretrained weights and other learned scalars and vectors, such as gains, keep their values. The padding
    row of an embedding table stays 0.
    """

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        """Draw the weights of a model.

        Raises:
            UserError: `draw` returned a value, which would have no effect.
        """
        for role, weight in weights_of(model):
            returned: object = self.draw(role, weight)
            if returned is not None:
                raise UserError(
                    f"initialization={type(self).__name__}: draw returned {type(returned).__name__} for role={role}. draw "
                    f"changes the weight in place and returns nothing: use a function such as nn.init.normal_(weight), or "
                    f"weight.copy_(VALUES), without return."
                )
        pretrained = pretrained_weights(model)
        for table in model.modules():
            if (
                isinstance(table, nn.Embedding)
                and table.padding_idx is not None
                and table.weight not in pretrained
            ):
                table.weight[table.padding_idx].zero_()

    @abstractmethod
    def draw(self, role: Role, weight: Tensor) -> None:
        """Draw a weight in place.

        Args:
            role: `recurrent` for a matrix from one state to the next, `attention` for a matrix of an attention function and
                `energy` for the v of an additive one, `embedding` for an embedding table, `matrix` for any other matrix.
                Matrices of layers with gates are drawn gate by gate.
        """


def weights_of(model: nn.Module) -> Iterator[tuple[Role, Tensor]]:
    """Yield the weights to draw, each once, with their roles; matrices of recurrent layers gate by gate."""
    attentions = [module for module in model.modules() if isinstance(module, BaseAttention)]
    of_attention = {weight for attention in attentions for weight in attention.parameters()}
    energies = {
        module.energy.weight
        for module in attentions
        if isinstance(module, AdditiveAttention | StatefulAdditiveAttention)
    }
    seen = pretrained_weights(model)
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if weight in seen or not weight.requires_grad:
                continue
            seen.add(weight)
            if name.startswith("bias"):
                yield "bias", weight
            elif weight.dim() < 2:
                continue
            elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
                role: Role = "recurrent" if name.startswith("weight_hh") else "matrix"
                for gate in torch.split(weight, module.hidden_size):
                    yield role, gate
            elif weight in energies:
                yield "energy", weight
            elif isinstance(module, nn.Embedding):
                yield "embedding", weight
            else:
                yield "attention" if weight in of_attention else "matrix", weight


def pretrained_weights(model: nn.Module) -> set[Tensor]:
    """Return the weights of encoders that are loaded from files."""
    encoders = [module for module in model.modules() if isinstance(module, Encoder)]
    return {weight for encoder in encoders for weight in encoder.pretrained_parameters()}


class Default(Initialization):
    """Keep the weights that the modules drew: embeddings from N(0, 1/E), the rest as in torch."""

    def draw(self, role: Role, weight: Tensor) -> None:
        pass


class Uniform(Initialization):
    """Every weight and bias from U(-bound, bound) (Sutskever 2014, §3.4; Luong 2015, §4.1)."""

    def __init__(self, bound: Positive) -> None:
        self.bound = bound

    def draw(self, role: Role, weight: Tensor) -> None:
        nn.init.uniform_(weight, -self.bound, self.bound)


class Normal(Initialization):
    """Every weight from N(0, std²), biases as well or 0."""

    def __init__(self, std: Positive, biases: Literal["zero", "drawn"]) -> None:
        self.std = std
        self.biases = biases

    def draw(self, role: Role, weight: Tensor) -> None:
        if role == "bias" and self.biases == "zero":
            nn.init.zeros_(weight)
        else:
            nn.init.normal_(weight, std=self.std)


class Bahdanau(Initialization):
    """The initialization of Bahdanau 2014, appendix B.1.

    Recurrent matrices are random orthogonal matrices. The matrices W_a and U_a of the attention are from N(0, 0.001²), its
    v_a and all biases are 0, and all other weights are from N(0, 0.01²).
    """

    def draw(self, role: Role, weight: Tensor) -> None:
        if role == "recurrent":
            nn.init.orthogonal_(weight)
        elif role in ("energy", "bias"):
            nn.init.zeros_(weight)
        else:
            nn.init.normal_(weight, std=0.001 if role == "attention" else 0.01)


class Xavier(Initialization):
    """Matrices from U(-b, b), b = √(6 / (rows + columns)) (Glorot and Bengio 2010, eq. 16); biases are 0.

    Recurrent matrices are random orthogonal matrices (Saxe 2014, arXiv:1312.6120).
    """

    def draw(self, role: Role, weight: Tensor) -> None:
        if role == "recurrent":
            nn.init.orthogonal_(weight)
        elif role == "bias":
            nn.init.zeros_(weight)
        else:
            nn.init.xavier_uniform_(weight)


class XavierNormalEmbeddings(Xavier):
    """`Xavier`, with embedding tables from N(0, 1/E), as in the Transformer of fairseq (Ott 2019, arXiv:1904.01038).

    Multiplied by √E, the embeddings then have variance 1, whatever the number of types. In a table that is also the output
    layer (`model.tied_embeddings`), steps of Adam are small relative to these values.
    """

    def draw(self, role: Role, weight: Tensor) -> None:
        if role == "embedding":
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        else:
            super().draw(role, weight)


class Lecun(Initialization):
    """Matrices from N(0, 1/m), m the number of inputs (LeCun 1998, Efficient BackProp, §4.6); biases are 0.

    Square matrices are random orthogonal matrices. For an embedding table m is the number of rows, so its values are
    small; this also holds for a table that is shared with the output layer.
    This is the initialization of the toolkit of Caglayan 2017 (arXiv:1707.04481).
    """

    def draw(self, role: Role, weight: Tensor) -> None:
        if role == "bias":
            nn.init.zeros_(weight)
        elif weight.dim() == 2 and len(weight) == weight.shape[1]:
            nn.init.orthogonal_(weight)
        else:
            inputs = len(weight) if role == "embedding" else weight[0].numel()
            nn.init.normal_(weight, std=1 / math.sqrt(inputs))
