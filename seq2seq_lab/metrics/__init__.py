"""Metrics and tests of their differences."""
