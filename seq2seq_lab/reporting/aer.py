"""Which attention weights an AER on a page is of."""

from collections.abc import Mapping
from typing import Any

from seq2seq_lab.analysis.extraction import RULES
from seq2seq_lab.metrics.alignment import AER_ROWS, describe_rows
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting.score_tables import first_split, split_text

EMIT = "AER is that of the attention weights of the step that predicts a word (emit)"
MEANING = f"{EMIT}, of a Transformer the mean over the heads of its last layer. {RULES['drop']}"


def about_aer(result: Mapping[str, Any], declared: Declarations) -> str:
    """Return the meaning of the AER of `first_split`, the AER of the weights that the validation split selects, and the
    rule for `<sos>` and `<eos>`.
    """
    split = first_split(result)
    if result.get(f"{split}/aer") is None or "aer" not in declared.metrics:
        return ""
    one = declared.metrics["aer"]
    layered = any(name.startswith(f"{split}/aer_layer_") for name in result)
    text = f"{EMIT}{', the mean over the heads of the last layer' if layered else ''}."
    if (read := result.get(f"{split}/aer_read")) is not None:
        text += f" That of the next step, which reads the word (read), is {one.text(read)}."
    rows = result.get(AER_ROWS)
    if (
        isinstance(rows, str) and (value := result.get(f"{split}/aer_{rows}")) is not None
    ):  # not the row of `aer`
        text += f" The validation split selects {describe_rows(rows)}: AER {one.text(value)} on {split_text(split)}."
    return f"{text} {RULES['drop']}"
