"""The studio: a page that shows how a run produces an output, and what changes it."""
