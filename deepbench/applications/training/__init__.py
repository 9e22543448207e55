"""Trains applications to a given accuracy: processes, checkpoints, and what a run leaves in a result file."""
