"""Language model: its data, carried state, evaluation and report."""
