"""The program `python -m seq2seq_lab.analyze`: questions to a trained run."""
