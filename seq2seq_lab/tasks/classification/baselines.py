"""The trivial baselines of classification: the most frequent class, and naive Bayes."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.ragged import Ragged, spaced
from seq2seq_lab.data.tokenizers import EOS, SOS
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.tasks.classification.data import LabelledTokens

log = logging.getLogger(__name__)

# The settings of naive Bayes; the validation accuracy chooses among them.
MAX_ORDER = 5
SMOOTHING = (1.0, 0.3, 0.1, 0.03)


def class_shares(labels: Tensor, classes: int) -> Array:
    """Return the share of each class among the training texts."""
    return np.bincount(labels.numpy(), minlength=classes) / len(labels)


@dataclass(frozen=True)
class NaiveBayes:
    """A multinomial naive Bayes classifier of n-grams of tokens.

    Attributes:
        vectorizer: the fitted `CountVectorizer`.
        model: the fitted `MultinomialNB`.
        order: the greatest n.
        smoothing: the number added to each count.
        of_some: the end of its name, with the number of texts that it is fitted to; empty for all training texts.
    """

    vectorizer: Any
    model: Any
    order: int
    smoothing: float
    of_some: str

    @property
    def label(self) -> str:
        """Its name in tables."""
        grams = "tokens" if self.order == 1 else f"1- to {self.order}-grams of tokens"
        return f"naive Bayes of {grams}, α = {self.smoothing:g}{self.of_some}"

    def probabilities(self, tokens: Ragged, classes: int) -> Array:
        """Return the probabilities of the classes of N texts, NC; a class without a training text has 0."""
        probabilities_NC = np.zeros((len(tokens), classes))
        counts = self.vectorizer.transform(documents(tokens))
        probabilities_NC[:, self.model.classes_] = self.model.predict_proba(counts)
        return probabilities_NC


def fit_naive_bayes(train: LabelledTokens, validation: LabelledTokens) -> NaiveBayes | None:
    """Return naive Bayes with the order and the smoothing of the best validation accuracy; None without scikit-learn.

    The n-grams are those of the tokens that the model reads, with a mark at each end of a text: of characters with
    tokenizer=char, of words with tokenizer=word. The order increases as long as the accuracy does, at most to `MAX_ORDER`.
    """
    try:
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.naive_bayes import MultinomialNB
    except ImportError:
        log.info(
            "No naive Bayes baseline: scikit-learn is not installed. pip install 'seq2seq_lab[baselines]'"
        )
        return None
    index, of_some = spaced(train.tokens)
    labels, texts = train.labels[index].numpy(), documents(train.tokens.select(index))
    best, best_accuracy = None, -1.0
    for order in progress(range(1, MAX_ORDER + 1), "Fitting naive Bayes", MAX_ORDER):
        vectorizer = CountVectorizer(token_pattern=r"\S+", lowercase=False, ngram_range=(1, order))
        counts = vectorizer.fit_transform(texts)
        held_out = vectorizer.transform(documents(validation.tokens))
        before = best_accuracy
        for smoothing in SMOOTHING:
            model = MultinomialNB(alpha=smoothing).fit(counts, labels)
            if (accuracy := model.score(held_out, validation.labels.numpy())) > best_accuracy:
                best, best_accuracy = NaiveBayes(vectorizer, model, order, smoothing, of_some), accuracy
        if best_accuracy == before:
            break
    return best


def documents(tokens: Ragged) -> Sequence[str]:
    """Return each text as its token ids, separated by spaces, with a mark at each end."""
    ids, offsets = tokens.tokens.numpy(), tokens.offsets.tolist()
    return [" ".join(map(str, (SOS, *ids[start:end].tolist(), EOS))) for start, end in pairwise(offsets)]
