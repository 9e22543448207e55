"""Typed records, the file format, which cases compete, summaries, and published results."""
