"""Answers in a text: its data, evaluation and report."""
