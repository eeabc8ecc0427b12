"""The built-in metrics that the comparison computes from the statistics of a run."""

from seq2seq_lab.metrics.alignment import (
    AER_SOFT,
    AlignmentErrorRate,
    AlignmentPrecision,
    AlignmentRecall,
    PointingAccuracy,
)
from seq2seq_lab.metrics.answers import ANSWER_METRICS
from seq2seq_lab.metrics.attention import ATTENTION_MEASURES
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.chrf import Chrf
from seq2seq_lab.metrics.classification import METRICS as CLASSIFICATION_METRICS
from seq2seq_lab.metrics.degeneration import AtLimit, BrevityPenalty, LengthRatio, Loops
from seq2seq_lab.metrics.language_model import LANGUAGE_MODEL_METRICS
from seq2seq_lab.metrics.loss import Perplexity
from seq2seq_lab.metrics.masked_language_model import MASKED_METRICS, MaskedPerplexity, NextSentenceAccuracy
from seq2seq_lab.metrics.phones import PhoneErrorRate, WordErrorRate
from seq2seq_lab.metrics.pointing import AttentionInRegion, PointingGame, RegionShare
from seq2seq_lab.metrics.rouge import KINDS, RougeScore
from seq2seq_lab.metrics.tagging import TAGGING_METRICS
from seq2seq_lab.metrics.ter import Ter

TEXT_METRICS = (
    *(Bleu(), Chrf(), Ter()),
    *(Bleu(lowercased_tokenised=True), Chrf(lowercased_tokenised=True), Ter(lowercased_tokenised=True)),
)
UNKNOWN_REPLACED = tuple(
    type(metric)(metric.lowercased_tokenised, unknown_replaced=True) for metric in TEXT_METRICS
)
ALIGNMENT_METRICS = (
    AlignmentErrorRate(),
    AlignmentPrecision(),
    AlignmentRecall(),
    AlignmentErrorRate("read"),
    AER_SOFT,
    AlignmentErrorRate("oracle"),
    AlignmentErrorRate("diagonal"),
)
DECODING_METRICS = (Loops(), AtLimit(), LengthRatio(), BrevityPenalty())
POINTING_METRICS = (PointingGame(), AttentionInRegion(), RegionShare())
BUILT_IN: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *(*TEXT_METRICS, *UNKNOWN_REPLACED, *DECODING_METRICS, *ALIGNMENT_METRICS, *ATTENTION_MEASURES),
        *(*LANGUAGE_MODEL_METRICS, *POINTING_METRICS, *CLASSIFICATION_METRICS),
        *(
            PointingAccuracy(),
            WordErrorRate(),
            PhoneErrorRate(),
            *TAGGING_METRICS,
            *MASKED_METRICS,
            MaskedPerplexity(),
            NextSentenceAccuracy(),
            *ANSWER_METRICS,
            Perplexity("teacher_forced", "teacher-forced perplexity"),
            Perplexity("free_running", "free-running perplexity"),
            *(RougeScore(kind, stemmer=False) for kind in KINDS),
        ),
    )
}
