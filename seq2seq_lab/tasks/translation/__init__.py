"""Translation: its loss, teacher forcing, evaluation and report."""
