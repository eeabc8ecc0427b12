"""Classification of texts: its data, evaluation and report."""
