"""seq2seq_lab: a Hydra-configured research harness for sequence-to-sequence models with attention."""

__version__ = "0.1.0"
