"""Subwords of a unigram language model (Kudo 2018, arXiv:1804.10959), over bytes."""

import json
from collections.abc import Iterable

from tokenizers import pre_tokenizers
from tokenizers.models import Unigram
from tokenizers.trainers import UnigramTrainer

from seq2seq_lab.data.tokenizers.base import SPECIALS, UNK
from seq2seq_lab.data.tokenizers.byte_level import NUM_BYTES, ByteLevelTokenizer

# The library gives the bytes it has not seen scores in this range above the lowest score, in the order of a hash table.
_SPREAD = 1e-4 * (NUM_BYTES + 1)


class UnigramTokenizer(ByteLevelTokenizer):
    """The most probable pieces of a word, each with its own probability; decoding returns the exact text.

    The library only proposes pieces of more than one byte that occur in at least two different words.
    """

    def train(self, lines: Iterable[str]) -> None:
        """Learn the pieces and their log-probabilities. The same lines give the same vocabulary.

        The library adds in the order of a hash table: the last digits of its scores differ between calls. Therefore they
        are rounded to 0.001 nats, and the pieces are numbered by decreasing score, then alphabetically.
        """
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = UnigramTrainer(
            vocab_size=self.vocab_size,
            special_tokens=list(SPECIALS),
            initial_alphabet=letters,
            unk_token=SPECIALS[UNK],
            show_progress=False,
        )
        backend = self._around(Unigram())
        backend.train_from_iterator(lines, trainer)
        learnt: list[tuple[str, float | None]] = json.loads(backend.to_str())["model"]["vocab"]
        # Without any text the library's scores are None.
        found = {piece: score for piece, score in learnt[len(SPECIALS) :] if score is not None}
        lowest = min(found.values(), default=0.0)
        scores = {
            piece: round(lowest if score < lowest + _SPREAD else score, 3) for piece, score in found.items()
        }
        ordered = sorted(scores, key=lambda piece: (-scores[piece], piece))
        # On tiny corpora the library returns more pieces than requested.
        longer = [piece for piece in ordered if len(piece) > 1]
        kept = {*letters, *longer[: self.vocab_size - len(SPECIALS) - len(letters)]}
        floor = round(lowest, 3)
        vocabulary = [(name, floor) for name in SPECIALS]
        vocabulary += [(piece, scores[piece]) for piece in ordered if piece in kept]
        vocabulary += [(letter, floor) for letter in letters if letter not in scores]
        self._use_trained(self._around(Unigram(vocabulary, unk_id=UNK, byte_fallback=False)))
