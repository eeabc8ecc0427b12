"""The exercises: a Markdown file with the text and the code of the notebook, and a module with the properties."""

NAMES = ("masked_softmax", "additive_score", "decoder_step", "bleu", "beam_step")
