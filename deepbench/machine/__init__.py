"""Describe the machine, diagnose it, read its energy counters, and remember facts about it."""
