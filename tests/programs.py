"""The programs whose names are functions of the package: `seq2seq_lab.compare` and `seq2seq_lab.runs`."""

import importlib

import seq2seq_lab

compare = importlib.import_module("seq2seq_lab.compare")
runs = importlib.import_module("seq2seq_lab.runs")
for name in ("compare", "runs"):
    delattr(seq2seq_lab, name)  # the import has replaced the function by the module
