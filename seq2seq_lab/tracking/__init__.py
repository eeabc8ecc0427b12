"""Records of what a run measures: metrics.jsonl in the run folder and, optionally, Weights & Biases."""

from seq2seq_lab.tracking.base import Logger, Tracker, Trackers, logger_errors
from seq2seq_lab.tracking.files import METRICS_FILE, FileTracker, read_metrics
from seq2seq_lab.tracking.none import NoTracker

__all__ = [
    "METRICS_FILE",
    "FileTracker",
    "Logger",
    "NoTracker",
    "Tracker",
    "Trackers",
    "logger_errors",
    "read_metrics",
]
