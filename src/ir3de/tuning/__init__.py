"""Choosing and calibrating on held-out prompts, from the statistics and a sample alone."""

from ir3de.tuning.choosing import Choice, Reading, Trial, calibrate, choose

__all__ = ["Choice", "Reading", "Trial", "calibrate", "choose"]
