"""Where the figures of a run go."""

from seq2seq_lab.tracking.base import Logger, Tracker, Trackers
from seq2seq_lab.tracking.files import FILE_NAME, FileTracker, read_metrics
from seq2seq_lab.tracking.none import NoTracker

__all__ = ["FILE_NAME", "FileTracker", "Logger", "NoTracker", "Tracker", "Trackers", "read_metrics"]
