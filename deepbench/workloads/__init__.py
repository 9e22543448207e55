"""Lists of problems that other projects write: one file per format. `plan/foreign.py` says what a format is."""
