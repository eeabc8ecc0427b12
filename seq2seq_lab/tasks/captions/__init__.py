"""Captioning of images as a task."""
