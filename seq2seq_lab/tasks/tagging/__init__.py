"""Tagging of words: its data, evaluation and report."""
