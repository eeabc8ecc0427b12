"""Masked language model: its data, evaluation and report."""
